//! Two tenants of one sandbox: each has limits, secrets and a record of its own, and one cannot see the other's.
#![expect(clippy::print_stdout, reason = "an example shows what it got")]

use ringfence::{ExecuteRequest, LimitsRequest, Namespace, Sandbox, audit::Query};
use std::error::Error;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    ringfence::init();
    tokio::runtime::Runtime::new()?.block_on(tenants())
}

async fn tenants() -> Result<(), Box<dyn Error>> {
    let sandbox = Sandbox::builder()
        .audit_in_memory()
        .concurrency(2)
        .build()
        .await?;
    let (blue, red): (Namespace, Namespace) = ("blue".parse()?, "red".parse()?);
    let less = LimitsRequest {
        max_ram_mb: Some(64),
        ..LimitsRequest::default()
    };
    sandbox.narrow_limits(&red, &less).await?;
    sandbox
        .secrets(&blue)
        .put("TOKEN", "of-the-blue-tenant".to_owned(), None)
        .await?;

    for namespace in [&blue, &red] {
        let mut request = ExecuteRequest::shell("echo ${#TOKEN}");
        request.namespace = namespace.clone();
        request.secrets.insert("TOKEN".parse()?);
        let (limits, _) = sandbox.limits(namespace);
        match sandbox.execute(request).await {
            Ok(result) => print!(
                "{namespace}, {} MiB: {}",
                limits.memory_bytes >> 20,
                result.stdout
            ),
            Err(error) => println!("{namespace}, {} MiB: {}", limits.memory_bytes >> 20, error.code),
        }
    }
    let of_red = Query {
        namespace: Some(red.to_string()),
        ..Query::default()
    };
    for record in sandbox.audit(of_red).await?.records {
        println!("{} {}", record.action, record.outcome);
    }
    sandbox.shutdown().await;
    Ok(())
}
