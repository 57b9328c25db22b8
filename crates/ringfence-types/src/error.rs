//! The refusals and faults that a caller can meet. A program that fails is a result, not one of these.

use crate::{Validation, closed_words};
use serde::{Deserialize, Serialize};

/// A closed list: the front ends map each code exhaustively to their own status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// A value in the request is malformed or outside its range.
    InvalidArgument,
    /// A name in the request is not one that the tool knows.
    UnknownArgument,
    /// The name is known, and the part of the product behind it is not in this version.
    UnsupportedArgument,
    /// The language's interpreter is not on this host.
    RuntimeUnavailable,
    /// The host cannot give the isolation that the operator's floor demands.
    BelowFloor,
    /// The operator's policy does not allow it.
    PolicyDenied,
    /// The queue is full; `retry_after_ms` says when to come back.
    Busy,
    /// The caller cancelled before the program started.
    Cancelled,
    /// The jail could not be set up, or broke; nothing of the program ran unwatched.
    SandboxFault,
    /// There is no such thing, or it belongs to another namespace.
    NotFound,
    /// Somebody else has changed it meanwhile; the message names what.
    Conflict,
    /// The session has ended; the message says why.
    SessionEnded,
    /// The vault has no such secret for this namespace, or the policy does not give it.
    SecretUnavailable,
    /// A package cannot be had: the index does not know it, has no wheel of it, or cannot be reached.
    PackageUnavailable,
    /// A page cannot be had: its host does not answer, or what it sends is not a page.
    PageUnavailable,
    /// The code was refused before it ran; `validation` has what was found.
    CodeRejected,
    /// Code or data could not be checked: its parser gave up on it.
    CheckFailed,
    /// The audit record cannot be written, and nothing runs without one.
    AuditUnavailable,
    /// The vault or the artifact store cannot be read or written.
    StoreFault,
    /// The configuration is wrong.
    InvalidConfiguration,
}

impl ErrorCode {
    /// One sentence for the reference.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::InvalidArgument => "A value in the request is malformed or outside its range.",
            Self::UnknownArgument => "A name in the request is not one that the tool knows.",
            Self::UnsupportedArgument => {
                "The name is known, and the part of the product behind it is not in this version."
            }
            Self::RuntimeUnavailable => "The language's interpreter is not on this host.",
            Self::BelowFloor => "The host cannot give the isolation that the operator's floor demands.",
            Self::PolicyDenied => "The operator's policy does not allow it.",
            Self::Busy => "The queue is full; `retry_after_ms` says when to come back.",
            Self::Cancelled => "The caller cancelled before the program started.",
            Self::SandboxFault => {
                "The sandbox could not be made, or broke; nothing of the program ran unwatched."
            }
            Self::NotFound => "There is no such thing, or it belongs to another namespace.",
            Self::Conflict => "Somebody else has changed it meanwhile; the message names what.",
            Self::SessionEnded => "The session has ended; the message says why.",
            Self::SecretUnavailable => {
                "The vault has no such secret for this namespace, or the policy does not give it."
            }
            Self::PackageUnavailable => {
                "A package cannot be had: the index does not know it, has no wheel of it, or cannot be reached."
            }
            Self::PageUnavailable => {
                "A page cannot be had: its host does not answer, or what it sends is not a page."
            }
            Self::CodeRejected => "The code was refused before it ran; `validation` has what was found.",
            Self::CheckFailed => "Code or data could not be checked: its parser gave up on it.",
            Self::AuditUnavailable => "The audit record cannot be written, and nothing runs without one.",
            Self::StoreFault => "The vault or the artifact store cannot be read or written.",
            Self::InvalidConfiguration => "The configuration is wrong.",
        }
    }
}

// In the order of the reference.
closed_words!(ErrorCode: InvalidArgument = "invalid_argument", UnknownArgument = "unknown_argument",
    UnsupportedArgument = "unsupported_argument", RuntimeUnavailable = "runtime_unavailable",
    BelowFloor = "below_floor", PolicyDenied = "policy_denied", Busy = "busy", Cancelled = "cancelled",
    SandboxFault = "sandbox_fault", NotFound = "not_found", Conflict = "conflict",
    SessionEnded = "session_ended", SecretUnavailable = "secret_unavailable",
    PackageUnavailable = "package_unavailable", PageUnavailable = "page_unavailable",
    CodeRejected = "code_rejected", CheckFailed = "check_failed", AuditUnavailable = "audit_unavailable",
    StoreFault = "store_fault", InvalidConfiguration = "invalid_configuration");

/// What a caller may see of a refusal: what is wrong, and the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{code}: {message}{}{hint}", gap(.message))]
pub struct RequestError {
    /// From the closed list.
    pub code: ErrorCode,
    /// One sentence: what is wrong.
    pub message: String,
    /// One sentence: what to do about it.
    pub hint: String,
    /// Present once the request was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
    /// With `busy`: milliseconds until a place is likely to be free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// With `code_rejected`: what was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<Box<Validation>>,
}

/// Behind a message of several lines the hint has its own.
fn gap(message: &str) -> char {
    if message.contains('\n') { '\n' } else { ' ' }
}

impl RequestError {
    /// A refusal with its next step.
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

    /// A malformed value.
    pub fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message, hint)
    }

    /// The policy says no.
    pub fn denied(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorCode::PolicyDenied, message, hint)
    }

    /// There is no such thing, or it is another's.
    pub fn not_found(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorCode::NotFound, message, hint)
    }

    /// Ringfence cannot do what it should on this host.
    pub fn fault(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorCode::SandboxFault, message, hint)
    }

    /// What is kept cannot be read or written.
    pub fn store_fault(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorCode::StoreFault, message, hint)
    }

    /// A known argument that does not go with the others, or with this host.
    pub fn unsupported(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorCode::UnsupportedArgument, message, hint)
    }

    /// An interpreter is missing, or lacks something.
    pub fn runtime_unavailable(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorCode::RuntimeUnavailable, message, hint)
    }

    /// The same refusal, tied to an execution.
    #[must_use]
    pub fn for_execution(mut self, id: &str) -> Self {
        self.execution_id = Some(id.to_owned());
        self
    }
}
