//! Errors of a container engine, as callers see them.

use bollard::errors::Error;
use ringfence_jail::wire::Failure;
use ringfence_types::{ErrorCode, RequestError};
use std::fmt;

/// The step of a failure of the engine; its detail is a whole sentence.
pub const ENGINE_STEP: &str = "container engine";
/// The errno of such a failure if the engine does not answer or lacks something (`ECONNREFUSED`).
const UNAVAILABLE_ERRNO: i32 = 111;
/// Maximum length of an engine's error message.
const WHY_CHARS_MAX: usize = 400;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// Its socket does not answer, or not in time.
    #[error("the container engine at {socket} does not answer: {why}")]
    Unreachable { socket: String, why: String },
    #[error("the container engine has no runtime `{runtime}`")]
    NoRuntime { runtime: String },
    /// It has the runtime, but creates containers with another.
    #[error("the container engine uses the runtime `{used}` where `{runtime}` is asked for")]
    OtherRuntime { runtime: String, used: String },
    /// It does not have the image and cannot pull it.
    #[error("the container engine has no image {image}: {why}")]
    NoImage { image: String, why: String },
    #[error("the image {image} is not pinned by a digest")]
    NotPinned { image: String },
    #[error(
        "the image {image} declares the volume {volume}, which is relative, or holds or lies in a path of the sandbox"
    )]
    Volume { image: String, volume: String },
    #[error("the container engine could not {step}: {why}")]
    Refused { step: &'static str, why: String },
}

impl EngineError {
    pub(crate) fn refused(step: &'static str, why: impl fmt::Display) -> Self {
        let why = why.to_string();
        Self::Refused { step, why }
    }

    /// Converts an error of the client: an error response of the engine, or no response.
    pub(crate) fn of(step: &'static str, socket: &str, error: &Error) -> Self {
        match error {
            Error::DockerResponseServerError { message, .. } => Self::Refused {
                step,
                // It may repeat everything in the request.
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

    /// Returns it as the supervisor of a container reports it.
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

    /// Returns it as a caller sees it.
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
            Self::Volume { .. } => {
                "Name another image in `containers.images`. One that is built from this image inherits its volumes.".to_owned()
            }
            Self::Refused { .. } => "`ringfence doctor` checks the engine.".to_owned(),
        }
    }
}

/// Returns the last cause in the chain, which is the most specific.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
