//! A process group is signalled by the pidfd of its leader.
#![expect(clippy::disallowed_methods, reason = "a test starts processes")]

use ringfence_sys::process::{self, Kill};
use std::{
    io::{BufRead, BufReader},
    os::{
        fd::AsFd,
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{Command, Stdio},
};

#[test]
fn signal_to_a_group_reaches_its_members_and_no_other_process() {
    let mut leader = Command::new("sh")
        .args(["-c", "sleep 1000 & echo $!; wait; wait"])
        .process_group(0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut other = Command::new("sleep")
        .arg("1000")
        .process_group(0)
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut pipe = BufReader::new(leader.stdout.take().unwrap());
    pipe.read_line(&mut line).unwrap();
    let descriptor = process::open_pidfd(i32::try_from(leader.id()).unwrap()).unwrap();
    process::kill_group_by_pidfd(descriptor.as_fd(), Kill::Terminate).unwrap();
    assert_eq!(leader.wait().unwrap().signal(), Some(15));
    // End of file: the leader's child, which holds the pipe too, has ended.
    assert_eq!(pipe.read_line(&mut line).unwrap(), 0);
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();
}
