//! Refusals and denials shared by several operations.

use ringfence_types::{Denial, ErrorCode, RequestError};

pub(crate) type Result<T, E = RequestError> = std::result::Result<T, E>;

/// The refusal of a request for which there is no capacity now; the same request may succeed later.
pub(crate) fn busy(message: impl Into<String>, hint: impl Into<String>, retry_after_ms: u64) -> RequestError {
    let mut busy = RequestError::new(ErrorCode::Busy, message, hint);
    busy.retry_after_ms = Some(retry_after_ms);
    busy
}

/// The refusal of a request cancelled during a slow step, named by `meanwhile`.
pub(crate) fn cancelled(meanwhile: &str) -> RequestError {
    RequestError::new(
        ErrorCode::Cancelled,
        format!("the request was cancelled while {meanwhile}."),
        "Send it again when it is wanted.",
    )
}

pub(crate) fn stopping() -> RequestError {
    RequestError::new(ErrorCode::Cancelled, "the server is stopping.", "Start it again.")
}

pub(crate) fn task_died() -> RequestError {
    RequestError::fault("the engine's task died.", "Report this.")
}

pub(crate) fn denial(rule: &str, layer: &str, what: impl Into<String>, hint: impl Into<String>) -> Denial {
    Denial {
        rule: rule.to_owned(),
        layer: layer.to_owned(),
        what: what.into(),
        hint: hint.into(),
    }
}

/// Returns the text with a capital first letter and a full stop.
pub(crate) fn sentence(text: &str) -> String {
    let mut chars = text.trim_end_matches('.').chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).chain(['.']).collect()
}
