//! Failed claims of sandboxes, and if another sandbox may run the program.

use ringfence_jail::Program;
use ringfence_types::RequestError;

#[derive(Debug)]
pub(crate) struct ClaimError {
    pub(crate) error: RequestError,
    /// True: no part of the request has run, so that another sandbox may run it.
    pub(crate) is_retryable: bool,
}

impl From<ClaimError> for RequestError {
    fn from(failed: ClaimError) -> Self {
        failed.error
    }
}

/// The reason why the start of a program was not confirmed.
pub(super) enum NotBegun {
    /// The supervisor is silent, and the state of the program is not known.
    Silent(RequestError),
    Ended(RequestError),
}

impl NotBegun {
    /// Returns true if no part of the request has run: an interpreter that was started ahead gets its program after pid
    /// 1 has reported the start, while a claimed program may run before that report.
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
