//! Runs one of our own functions on untrusted bytes, in a jail made for that one run.

use crate::{
    backend::{Running, Sandbox},
    error::Result,
    sandbox::{NO_BLOBS, Sandboxes},
    streams::Stdio,
};
use ringfence_jail::wire::Cause;
use ringfence_redact::Redactor;
use std::sync::Arc;

/// Returns the answer of the worker of this name, which is as untrusted as the input. `Ok(Err(..))`: it did not finish,
/// with the cause of its end. A ready sandbox saves the time of making one.
pub(crate) async fn run(
    sandboxes: &Sandboxes,
    name: &str,
    ready: Option<Sandbox>,
    input: Vec<u8>,
) -> Result<Result<Vec<u8>, Cause>> {
    let sandbox = match ready {
        Some(sandbox) => sandbox,
        None => {
            let id = uuid::Uuid::now_v7().to_string();
            let plan = sandboxes.plan_of_worker(&id, name)?;
            sandboxes.native.spawn(Arc::new(plan), None)?
        }
    };
    let claim = sandboxes.claim_of_worker();
    let isolation = sandbox.plan.isolation(&claim, &sandboxes.native.host);
    let (_cancel, mut cancelled) = tokio::sync::watch::channel(false);
    let stdio = Stdio {
        stdin_bytes: input,
        ..Stdio::captured(Redactor::none())
    };
    let started = sandbox.claim(&claim, NO_BLOBS, &mut cancelled).await?;
    let running = Running::attach(started, stdio, claim.limits.output_bytes)?;
    let outcome = running.wait(cancelled, isolation).await?;
    Ok(match (outcome.ending.cause, outcome.ending.status) {
        (Cause::Program, Some(0)) => Ok(outcome.stdout.bytes),
        (cause, _) => Err(cause),
    })
}
