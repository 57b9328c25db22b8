//! A command in a terminal, and the keys typed there.

use super::wrap_command;
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

/// A command in the foreground of its own pseudoterminal.
pub struct Terminal {
    pub child: Child,
    keyboard: File,
    unread: String,
}

impl Terminal {
    /// The terminal is the command's standard input and standard error; its standard output is discarded.
    pub fn new(command: &Command) -> Self {
        Self::open(command, |_| Stdio::null())
    }

    /// The terminal is the command's standard output, too.
    pub fn with_stdout(command: &Command) -> Self {
        Self::open(command, |line| line.try_clone().unwrap().into())
    }

    fn open(command: &Command, stdout: impl FnOnce(&OwnedFd) -> Stdio) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let line = rustix::fs::open(&*name, flags, Mode::empty()).unwrap();
        // `setsid --ctty` makes it the foreground process: one in the background is not prompted.
        let child = wrap_command(&["setsid", "--ctty", "--wait"], command)
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

    /// Reads until the text appears, and returns all output since the last call up to its end.
    pub fn read_until(&mut self, text: &str) -> String {
        let mut chunk = [0; 4096];
        while !self.unread.contains(text) {
            let count = self.keyboard.read(&mut chunk).unwrap();
            self.unread += &String::from_utf8_lossy(&chunk[..count]);
        }
        let end = self.unread.find(text).unwrap() + text.len();
        self.unread.drain(..end).collect()
    }

    pub fn type_keys(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    /// True if the terminal echoes typed keys.
    pub fn is_echoing(&self) -> bool {
        tcgetattr(&self.keyboard)
            .unwrap()
            .local_modes
            .contains(LocalModes::ECHO)
    }

    /// The remaining output, until all processes have closed the terminal.
    pub fn read_to_end(mut self) -> String {
        let mut chunk = [0; 4096];
        // Reading fails once no process has the terminal open.
        while let Ok(count) = self.keyboard.read(&mut chunk) {
            self.unread += &String::from_utf8_lossy(&chunk[..count]);
        }
        std::mem::take(&mut self.unread)
    }

    /// Waits for the command and returns its exit status; `None` after a signal.
    pub fn status(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Ctrl-C as a user would type it, then SIGKILL: SIGINT is ignored if the test process inherited that.
        drop(self.keyboard.write_all(b"\x03"));
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
