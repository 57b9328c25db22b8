//! The refusals and faults that a caller can get. A program that fails is a result, not an error.

use crate::{Validation, closed_words};
use serde::{Deserialize, Serialize};

closed_words! {
    /// A closed list, in the order of the reference: the front ends map each code exhaustively to their own status.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum ErrorCode {
        /// A value in the request is malformed or outside its range.
        InvalidArgument = "invalid_argument",
        /// The request has an argument that the tool does not have.
        UnknownArgument = "unknown_argument",
        /// The name is known, and the part of the product behind it is not in this version.
        UnsupportedArgument = "unsupported_argument",
        /// The language's interpreter is not on this host.
        RuntimeUnavailable = "runtime_unavailable",
        /// The host cannot provide the isolation that the operator's floor requires.
        BelowFloor = "below_floor",
        /// The operator's policy does not allow it.
        PolicyDenied = "policy_denied",
        /// The queue is full; `retry_after_ms` says when to try again.
        Busy = "busy",
        /// The caller cancelled before the program started.
        Cancelled = "cancelled",
        /// The sandbox could not be made, or broke; nothing of the program ran unwatched.
        SandboxFault = "sandbox_fault",
        /// It does not exist, or it belongs to another namespace.
        NotFound = "not_found",
        /// Another caller has changed it meanwhile; the message names what.
        Conflict = "conflict",
        /// The session has ended; the message says why.
        SessionEnded = "session_ended",
        /// The vault has no such secret for this namespace, or the policy does not give it.
        SecretUnavailable = "secret_unavailable",
        /// A package is unavailable: the index does not know it, has no wheel of it, or cannot be reached.
        PackageUnavailable = "package_unavailable",
        /// A page is unavailable: its host does not answer, or what it sends is not a page.
        PageUnavailable = "page_unavailable",
        /// The code was refused before it ran; `validation` has the findings.
        CodeRejected = "code_rejected",
        /// Code or data could not be checked: its parser gave up on it.
        CheckFailed = "check_failed",
        /// The audit record cannot be written, and nothing runs without one.
        AuditUnavailable = "audit_unavailable",
        /// The vault or the artifact store cannot be read or written.
        StoreFault = "store_fault",
        /// The configuration is wrong.
        InvalidConfiguration = "invalid_configuration",
    }
}

/// A refusal as a caller may see it: the problem and the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{code}: {message}{}{hint}", gap(.message))]
pub struct RequestError {
    /// From the closed list.
    pub code: ErrorCode,
    /// One sentence about the problem.
    pub message: String,
    /// One sentence about the next step.
    pub hint: String,
    /// Present once the request was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
    /// With `busy`: milliseconds until a slot is likely to be free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// With `code_rejected`: the findings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<Box<Validation>>,
}

/// Separator of message and hint: after a message of several lines the hint starts a new line.
fn gap(message: &str) -> char {
    if message.contains('\n') { '\n' } else { ' ' }
}

impl RequestError {
    /// Creates a refusal with its next step.
    pub fn new(code: ErrorCode, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: hint.into(),
            execution_id: None,
            retry_after_ms: None,
            validation: None,
        }
    }

    /// Refuses a malformed value.
    pub fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message, hint)
    }

    /// Refuses because of the policy.
    pub fn denied(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorCode::PolicyDenied, message, hint)
    }

    /// Refuses because it does not exist or belongs to another namespace.
    pub fn not_found(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorCode::NotFound, message, hint)
    }

    /// Reports that Ringfence does not work on this host as it should.
    pub fn fault(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorCode::SandboxFault, message, hint)
    }

    /// Reports that stored data cannot be read or written.
    pub fn store_fault(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorCode::StoreFault, message, hint)
    }

    /// Refuses a known argument that does not go with the others or with this host.
    pub fn unsupported(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorCode::UnsupportedArgument, message, hint)
    }

    /// Refuses because an interpreter is missing or incomplete.
    pub fn runtime_unavailable(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorCode::RuntimeUnavailable, message, hint)
    }

    /// Adds the id of an execution.
    #[must_use]
    pub fn for_execution(mut self, id: &str) -> Self {
        self.execution_id = Some(id.to_owned());
        self
    }
}
