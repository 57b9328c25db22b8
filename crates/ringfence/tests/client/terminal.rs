//! A person at a terminal.

use super::below;
use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, tcgetattr},
};
use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
};

/// A command in the foreground of a terminal of its own, and the person before it.
pub struct Terminal {
    pub child: Child,
    keyboard: File,
    unread: String,
}

impl Terminal {
    /// What the command prints is not shown, but for what it says.
    pub fn new(command: &Command) -> Self {
        Self::open(command, |_| Stdio::null())
    }

    /// What the command prints is shown, too.
    pub fn showing_all(command: &Command) -> Self {
        Self::open(command, |line| line.try_clone().unwrap().into())
    }

    fn open(command: &Command, stdout: impl FnOnce(&OwnedFd) -> Stdio) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let line = rustix::fs::open(&*name, flags, Mode::empty()).unwrap();
        // A process in the background of its terminal is not asked.
        let child = below(&["setsid", "--ctty", "--wait"], command)
            .stdin(line.try_clone().unwrap())
            .stdout(stdout(&line))
            .stderr(line)
            .spawn();
        Self {
            child: child.unwrap(),
            keyboard: File::from(controller),
            unread: String::new(),
        }
    }

    /// Reads until this stands there: all that came since the last time.
    pub fn sees(&mut self, text: &str) -> String {
        let mut chunk = [0; 4096];
        while !self.unread.contains(text) {
            let count = self.keyboard.read(&mut chunk).unwrap();
            self.unread += &String::from_utf8_lossy(&chunk[..count]);
        }
        let end = self.unread.find(text).unwrap() + text.len();
        self.unread.drain(..end).collect()
    }

    pub fn types(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    /// Are keys shown as they are typed.
    pub fn echoes(&self) -> bool {
        tcgetattr(&self.keyboard)
            .unwrap()
            .local_modes
            .contains(LocalModes::ECHO)
    }

    /// What comes until the command and all others have left the terminal.
    pub fn rest(mut self) -> String {
        let mut chunk = [0; 4096];
        // Reading from a terminal that nobody has open ends with an error.
        while let Ok(count) = self.keyboard.read(&mut chunk) {
            self.unread += &String::from_utf8_lossy(&chunk[..count]);
        }
        std::mem::take(&mut self.unread)
    }

    /// How the command ends.
    pub fn status(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Ctrl-C, as a person ends it; where tests were started so that it is ignored, by force.
        drop(self.keyboard.write_all(b"\x03"));
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
