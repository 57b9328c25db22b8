//! `run_sandbox_code`: Python in the workspace that is kept for the namespace, after a strict look at it, and nothing else to
//! decide.

use super::{
    Offer,
    arguments::{Arguments, NAMESPACE, invalid},
    execute_code::{CODE, TIMEOUT, milliseconds},
};
use ringfence_types::{ExecuteRequest, RequestError, Validate, WorkspaceSource};
use serde_json::{Map, Value};

/// Of a call that says nothing.
pub(super) const TIMEOUT_SECONDS: u64 = 10;

/// The request, with each part checked.
pub(super) fn parse(arguments: Map<String, Value>, offer: &Offer) -> Result<ExecuteRequest, RequestError> {
    let mut arguments = Arguments::open(arguments, "", &[CODE, TIMEOUT, NAMESPACE])?;
    let code = arguments.text(CODE)?.ok_or_else(|| {
        invalid(
            "`code` is missing.".to_owned(),
            "Send the program's text in `code`.",
        )
    })?;
    let caps = offer.policy.borrow().caps.clone();
    let timeout = arguments.number(TIMEOUT)?;
    let mut request = ExecuteRequest::python(code);
    request.namespace = arguments.namespace(offer.namespaces)?;
    request.workspace = WorkspaceSource::Namespace;
    request.validate = Validate::Strict;
    request.limits.timeout_ms = Some(match timeout {
        Some(seconds) => milliseconds(seconds, caps.timeout_ms)?,
        None => (1000 * TIMEOUT_SECONDS).min(caps.timeout_ms),
    });
    request.check()?;
    Ok(request)
}
