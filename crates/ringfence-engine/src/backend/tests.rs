//! What is made of a supervisor that tells an end first.

use super::*;
use ringfence_jail::wire::Usage;

/// What is made of a supervisor that says first that the tree has ended of this.
async fn begun_with(cause: Cause) -> Result<Option<Cause>, RequestError> {
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
        assert_eq!(begun_with(cause).await.unwrap(), Some(cause));
    }
    let fault = begun_with(Cause::Killed).await.unwrap_err();
    assert_eq!(fault.code, ErrorCode::SandboxFault);
}
