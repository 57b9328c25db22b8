//! What some clients bring along: installed from the index that this machine is configured for, where there is one, into the
//! state directory that Ringfence then has where there is no network at all.

use super::world::{STATE, User, ringfence_of};
use crate::client::*;
use std::{path::PathBuf, process::Command};

const WANTED: [&str; 2] = ["requests", "httpx"];

/// A state directory with them in it.
pub struct Packages {
    directory: TempDir,
}

impl Packages {
    /// They are downloaded, and so it needs the network, where `RINGFENCE_REQUIRE` names `index`.
    pub fn install(user: User) -> Option<Self> {
        if !asks_for("index") {
            eprintln!(
                "requests and httpx are left out: they come from the index; RINGFENCE_REQUIRE=index runs them"
            );
            return None;
        }
        let made = Self {
            directory: TempDir::new("packages"),
        };
        let copy = made.directory.0.join("ringfence");
        if user == User::Nobody {
            link_program(&binary(), &copy);
        }
        for package in WANTED {
            let script = made
                .directory
                .file("script.py", &format!("import {package}\nprint('is there')"));
            let words = ["run", &script, "--package", package];
            let mut command = ringfence_of(user, &copy, &made.state(), &words);
            configure(&mut command);
            let done = command.output().unwrap();
            assert!(stdout_of(&done).contains("is there"), "{package}: {done:?}");
        }
        Some(made)
    }

    pub fn state(&self) -> PathBuf {
        self.directory.0.join("state")
    }
}

/// Is this process one that was given them.
pub fn are_there() -> bool {
    std::env::var_os(STATE).is_some()
}

/// Tells which index it is, as the machine says it by its environment.
pub fn configure(command: &mut Command) {
    let lower = |name: &str| name.to_ascii_lowercase();
    let is_about_it = |name: &str| {
        name.starts_with("PIP_") || lower(name).starts_with("npm_") || lower(name).contains("proxy")
    };
    command.envs(std::env::vars().filter(|(name, _)| is_about_it(name)));
}
