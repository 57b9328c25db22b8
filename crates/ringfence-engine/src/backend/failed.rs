//! Sandboxes that failed as they were claimed: whether another one may run the program.

use ringfence_jail::Program;
use ringfence_types::RequestError;

#[derive(Debug)]
pub(crate) struct ClaimError {
    pub(crate) error: RequestError,
    /// Nothing of the request has run, so that another sandbox may run it.
    pub(crate) is_retryable: bool,
}

impl From<ClaimError> for RequestError {
    fn from(failed: ClaimError) -> Self {
        failed.error
    }
}

/// Why it is not known that a program runs.
pub(super) enum NotBegun {
    /// The supervisor says nothing, and what became of the program is not known.
    Silent(RequestError),
    Ended(RequestError),
}

impl NotBegun {
    /// Whether nothing of the request has run: an interpreter that was started ahead gets its program after pid 1 has
    /// reported it, while a claimed program may run before that.
    pub(super) fn has_not_run(&self, program: &Program) -> bool {
        let is_reported_first = !matches!(program, Program::Claimed | Program::Worker { .. });
        matches!(self, Self::Ended(_)) && is_reported_first
    }

    pub(super) fn error(self) -> RequestError {
        match self {
            Self::Silent(error) | Self::Ended(error) => error,
        }
    }
}
