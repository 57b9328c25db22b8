//! What can be wrong with a container engine, as callers see it.

use bollard::errors::Error;
use ringfence_jail::wire::Failure;
use ringfence_types::{ErrorCode, RequestError};
use std::fmt;

/// The step of a failure that is the engine's; its detail is a whole sentence.
pub const ENGINE_STEP: &str = "container engine";
/// The number of such a failure where the engine does not answer, or has not what is needed (`ECONNREFUSED`).
const UNAVAILABLE_ERRNO: i32 = 111;
/// Of what an engine says of a failure.
const WHY_CHARS_MAX: usize = 400;

/// Why an engine does not do what it is asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// Nothing answers at its socket, or too late.
    #[error("the container engine at {socket} does not answer: {why}")]
    Unreachable { socket: String, why: String },
    #[error("the container engine has no runtime `{runtime}`")]
    NoRuntime { runtime: String },
    /// It knows the runtime, and makes containers with another.
    #[error("the container engine uses the runtime `{used}` where `{runtime}` is asked for")]
    OtherRuntime { runtime: String, used: String },
    /// Nor can it get it.
    #[error("the container engine has no image {image}: {why}")]
    NoImage { image: String, why: String },
    /// The operator wants images by digest.
    #[error("the image {image} is not pinned by a digest")]
    NotPinned { image: String },
    /// It refuses, or fails at, a step.
    #[error("the container engine could not {step}: {why}")]
    Refused { step: &'static str, why: String },
}

impl EngineError {
    pub(crate) fn refused(step: &'static str, why: impl fmt::Display) -> Self {
        let why = why.to_string();
        Self::Refused { step, why }
    }

    /// An answer of the engine, or the lack of one.
    pub(crate) fn of(step: &'static str, socket: &str, error: &Error) -> Self {
        match error {
            Error::DockerResponseServerError { message, .. } => Self::Refused {
                step,
                // It may repeat all that it was told.
                why: message
                    .chars()
                    .filter(|c| !c.is_control())
                    .take(WHY_CHARS_MAX)
                    .collect(),
            },
            other => Self::Unreachable {
                socket: socket.to_owned(),
                why: innermost(other),
            },
        }
    }

    /// As the supervisor of a container tells it.
    pub(crate) fn failure(&self) -> Failure {
        let errno = match self {
            Self::Refused { .. } => 0,
            _ => UNAVAILABLE_ERRNO,
        };
        Failure {
            step: ENGINE_STEP.to_owned(),
            errno,
            detail: self.to_string(),
        }
    }

    /// As a caller sees it.
    pub fn refusal(&self) -> RequestError {
        let code = match self {
            Self::NotPinned { .. } => ErrorCode::PolicyDenied,
            Self::Refused { .. } => ErrorCode::SandboxFault,
            _ => ErrorCode::RuntimeUnavailable,
        };
        RequestError::new(code, format!("{self}."), self.hint())
    }

    fn hint(&self) -> String {
        match self {
            Self::Unreachable { socket, .. } => format!(
                "Start the container engine, or correct `containers.socket`: `docker -H {socket} info` has to work for the server's user."
            ),
            Self::NoRuntime { runtime } => format!(
                "Install it, and name it in the engine's daemon.json: {{\"runtimes\": {{\"{runtime}\": {{\"path\": \"/usr/bin/{runtime}\"}}}}}}."
            ),
            Self::OtherRuntime { .. } => {
                "Podman's socket takes no runtime for one container: gVisor needs Docker's engine.".to_owned()
            }
            Self::NoImage { image, .. } => {
                format!("`docker pull {image}`, or name another image in `containers.images`.")
            }
            Self::NotPinned { image } => {
                format!(
                    "Write it as {image}@sha256:..., which `docker inspect` shows, or set `containers.require_digest: false`."
                )
            }
            Self::Refused { .. } => "`ringfence doctor` looks at the engine.".to_owned(),
        }
    }
}

/// The last cause in the chain, which says most.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
