//! The shortest program: one script, its output, its value, and the walls that it had.
#![expect(clippy::print_stdout, reason = "an example shows what it got")]

use ringfence::{ExecuteRequest, Sandbox};
use std::error::Error;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    ringfence::init();
    tokio::runtime::Runtime::new()?.block_on(hello())
}

async fn hello() -> Result<(), Box<dyn Error>> {
    let sandbox = Sandbox::local().await?;
    let result = sandbox
        .execute(ExecuteRequest::python("print('hello sandbox')\n6 * 7"))
        .await?;
    print!("{}", result.stdout);
    println!("value: {}", result.result.unwrap_or_default());
    println!("tier: {}", result.isolation.tier);

    // A program that fails is a result, not an error.
    let failed = sandbox.execute(ExecuteRequest::python("\n1 / 0")).await?;
    if let Some(error) = failed.error {
        println!("{} in line {}", error.kind, error.line.unwrap_or_default());
    }
    sandbox.shutdown().await;
    Ok(())
}
