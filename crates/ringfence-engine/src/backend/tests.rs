//! What is made of a supervisor that tells an end first.

use super::*;
use ringfence_jail::{Program, wire::Usage};

/// What is made of a supervisor that says first that the tree has ended of this.
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

/// On a busy machine a program has met a limit before its supervisor heard that it runs.
#[tokio::test]
async fn a_limit_that_is_met_at_once_is_the_end_of_the_run_and_no_fault() {
    for cause in [Cause::OutOfMemory, Cause::Timeout, Cause::Disk, Cause::Cancelled] {
        assert_eq!(begun_with(cause).await.ok().flatten(), Some(cause));
    }
    let Err(killed) = begun_with(Cause::Killed).await else {
        panic!("it is no fault")
    };
    // A shell may have run before pid 1 could say so; a fork of a template waits for its program.
    assert!(!killed.has_not_run(&Program::Claimed) && killed.has_not_run(&Program::Forked));
    assert_eq!(killed.error().code, ErrorCode::SandboxFault);
}

#[test]
fn a_supervisor_that_is_silent_may_have_run_the_program() {
    let silent = NotBegun::Silent(gone());
    assert!(!silent.has_not_run(&Program::Forked));
}
