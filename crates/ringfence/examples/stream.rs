//! Output as it comes, and a program that is stopped because of what it says.
#![expect(clippy::print_stdout, reason = "an example shows what it got")]

use ringfence::{ExecuteRequest, Sandbox};
use std::error::Error;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    ringfence::init();
    tokio::runtime::Runtime::new()?.block_on(stream())
}

async fn stream() -> Result<(), Box<dyn Error>> {
    let sandbox = Sandbox::local().await?;
    let mut execution = sandbox.start(ExecuteRequest::shell(
        "for n in 1 2 3; do echo $n; done; echo enough; sleep 3600",
    ));
    let canceller = execution.canceller();
    let mut seen = String::new();
    while let Some(chunk) = execution.next_output().await {
        let text = String::from_utf8_lossy(&chunk.bytes);
        print!("{text}");
        seen += &text;
        if seen.contains("enough") {
            canceller.cancel();
        }
    }
    let result = execution.finish().await?;
    println!("{:?}, {} bytes", result.exit.kind, result.stdout_bytes);
    sandbox.shutdown().await;
    Ok(())
}
