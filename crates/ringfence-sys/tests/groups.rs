//! A group is signalled by the descriptor of the process that leads it.
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
fn every_process_of_a_group_hears_the_signal_and_no_other() {
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
    let mut told = String::new();
    let mut pipe = BufReader::new(leader.stdout.take().unwrap());
    pipe.read_line(&mut told).unwrap();
    let descriptor = process::descriptor_of(i32::try_from(leader.id()).unwrap()).unwrap();
    process::kill_group_of(descriptor.as_fd(), Kill::Terminate).unwrap();
    assert_eq!(leader.wait().unwrap().signal(), Some(15));
    // The end of the pipe: the child of the leader has it too, and is gone.
    assert_eq!(pipe.read_line(&mut told).unwrap(), 0);
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();
}
