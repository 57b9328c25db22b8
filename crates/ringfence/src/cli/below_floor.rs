//! Says what the host lacks when a command is refused for it. The examination forks, which a process with threads must
//! not; the command has threads by then, so the process becomes a fresh one of the same binary first.

use super::{FAILED, doctor};
use crate::{settings::Environment, terminal::Terminal};
use ringfence_types::{ErrorCode, RequestError, Tier};
use std::{
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

/// The first word of the command line of that fresh process.
const WORD: &str = "__below-floor";
const SELF: &str = "/proc/self/exe";

/// Where the error is that the host is too weak, becomes the process that tells what it lacks. Otherwise, or if that is
/// not possible, gives the error back.
pub(super) fn tell_about(error: RequestError, floor: Tier) -> RequestError {
    if error.code != ErrorCode::BelowFloor {
        return error;
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "no process is started: this one is replaced by its own binary"
    )]
    let mut command = Command::new(SELF);
    let failed = command
        .arg0("ringfence")
        .args([WORD, floor.as_str(), &error.message])
        .exec();
    tracing::warn!(error = %failed, "could not examine the host");
    error
}

/// Is this that process.
pub(super) fn is_meant() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == WORD)
}

/// Prints the refusal and every layer on stderr.
pub(super) fn tell() -> ExitCode {
    let mut words = std::env::args_os()
        .skip(2)
        .map(|word| word.to_string_lossy().into_owned());
    let floor: Tier = words
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(Tier::Full);
    let message = words.next().unwrap_or_default();
    let terminal = Terminal::new(&Environment::capture());
    let report = ringfence_jail::doctor::examine();
    let hint = "The layers below say what is missing and the smallest change that gives it.";
    terminal.error(&RequestError::new(ErrorCode::BelowFloor, message, hint));
    terminal.note(&doctor::render(&report, floor, |_, word| word.to_owned()));
    ExitCode::from(FAILED)
}
