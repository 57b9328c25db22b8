//! Packages of some clients, installed from the index that this machine is configured for, if there is one. They are
//! installed into the state directory that Ringfence then uses in the network namespace, which has no network.

use super::world::{STATE, User, ringfence_of};
use crate::client::*;
use std::{path::PathBuf, process::Command};

const WANTED: [&str; 2] = ["requests", "httpx"];

/// A state directory in which the packages are installed.
pub struct Packages {
    directory: TempDir,
}

impl Packages {
    /// Downloads the packages if `RINGFENCE_REQUIRE` names `index`, because this needs the network.
    pub fn install(user: User) -> Option<Self> {
        if !is_required("index") {
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

/// True if this process was started with a state directory that has the packages.
pub fn are_installed() -> bool {
    std::env::var_os(STATE).is_some()
}

/// Passes on the variables of this process that configure pip, npm and proxies.
pub fn configure(command: &mut Command) {
    let lower = |name: &str| name.to_ascii_lowercase();
    let is_relevant = |name: &str| {
        name.starts_with("PIP_") || lower(name).starts_with("npm_") || lower(name).contains("proxy")
    };
    command.envs(std::env::vars().filter(|(name, _)| is_relevant(name)));
}
