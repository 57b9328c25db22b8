//! A person at a terminal.

use super::below;
use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use std::{
    fs::File,
    io::{Read, Write},
    process::{Child, Command, Stdio},
};

/// A command in the foreground of a terminal of its own, and the person before it.
pub struct Terminal {
    pub child: Child,
    keyboard: File,
    unread: String,
}

impl Terminal {
    pub fn new(command: &Command) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let line = rustix::fs::open(&*name, flags, Mode::empty()).unwrap();
        // A process in the background of its terminal is not asked.
        let child = below(&["setsid", "--ctty", "--wait"], command)
            .stdin(line.try_clone().unwrap())
            .stdout(Stdio::null())
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
