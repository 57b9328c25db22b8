//! Supervisors that report the end before the start.

use super::*;
use ringfence_jail::{Program, wire::Usage};

/// Returns the outcome if a supervisor first reports an end with this cause.
async fn begun_with(cause: Cause) -> Result<Option<Cause>, NotBegun> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut events = Events::new(ours.into(), Counter::default()).unwrap();
    let ending = Ending {
        cause,
        status: None,
        usage: Usage::default(),
        is_stuck: false,
    };
    wire::send(theirs.as_fd(), &Event::Ended(ending), &[]).unwrap();
    let (_cancel, mut cancelled) = watch::channel(false);
    let (dirs, early) = events.begun(&mut cancelled).await?;
    assert!(dirs.is_empty());
    Ok(early.map(|ending| ending.cause))
}

/// On a busy machine a program may meet a limit before its supervisor learns that it runs.
#[tokio::test]
async fn limit_met_before_start_is_reported_ends_the_run_without_a_fault() {
    for cause in [Cause::OutOfMemory, Cause::Timeout, Cause::Disk, Cause::Cancelled] {
        assert_eq!(begun_with(cause).await.ok().flatten(), Some(cause));
    }
    let Err(killed) = begun_with(Cause::Killed).await else {
        panic!("it is not a fault")
    };
    // A shell may have run before pid 1 could report it; a fork of a template waits for its program.
    assert!(!killed.has_not_run(&Program::Claimed) && killed.has_not_run(&Program::Forked));
    assert_eq!(killed.error().code, ErrorCode::SandboxFault);
}

#[test]
fn silent_supervisor_may_have_run_the_program() {
    let silent = NotBegun::Silent(gone());
    assert!(!silent.has_not_run(&Program::Forked));
}
