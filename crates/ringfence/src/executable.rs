//! The helper, a small process with one thread that makes sandboxes. It is started from this executable, or from the
//! installed `ringfence`. This module chooses between them, and turns a process into the helper.

use ringfence_jail::helper::HELPER_WORD;
use ringfence_types::RequestError;
use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};
use tokio::{io::AsyncReadExt, net::unix::pipe};

/// The executable of this process, even if its path has been replaced since.
pub(crate) const SELF: &str = "/proc/self/exe";

const INSTALLED: &str = "ringfence";
const CANDIDATES_MAX: usize = 4;
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 256;

/// Number of threads when [`init`] was called. If there were several, the helper would have them, too.
static THREADS: OnceLock<usize> = OnceLock::new();

/// Must be called first in `main`, before any thread exists.
///
/// Ringfence starts this executable a second time, as the helper that makes sandboxes; there, this function does not
/// return. In your own process it only records that this is possible.
///
/// A process with threads cannot be the helper, because the helper forks. `#[tokio::main]` starts threads before your
/// first line; write
///
/// ```no_run
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     ringfence::init();
///     tokio::runtime::Runtime::new()?.block_on(async {
///         // ...
///         Ok(())
///     })
/// }
/// ```
///
/// Where `main` is not yours, as in `#[test]` functions, name a binary with [`helper`](crate::SandboxBuilder::helper).
///
/// A call that comes too late does nothing here; [`SandboxBuilder::build`](crate::SandboxBuilder::build) then returns
/// an error, unless a helper is named.
pub fn init() {
    match std::env::args_os().nth(1) {
        Some(word) if word == HELPER_WORD => {
            std::process::exit(ringfence_jail::helper::run(ringfence_engine::workers()))
        }
        Some(word) if word == ringfence_engine::HOST_CHILD_WORD => {
            std::process::exit(ringfence_engine::run_host_child())
        }
        _ => {}
    }
    // An unknown number means that /proc is missing, and nothing here works without it.
    THREADS.get_or_init(|| ringfence_jail::thread_count().unwrap_or_default());
}

pub(crate) async fn find(search_path: &[PathBuf]) -> Result<PathBuf, RequestError> {
    match THREADS.get() {
        Some(1) => Ok(PathBuf::from(SELF)),
        Some(threads) => Err(RequestError::fault(
            format!(
                "`ringfence::init()` was called when {threads} threads ran, and the helper must have one."
            ),
            "Call it first in `main`, before the asynchronous runtime is made; `#[tokio::main]` makes it too early.",
        )),
        None => installed(search_path).await,
    }
}

/// Returns the first `ringfence` on the path that has this version: different versions need not be compatible.
async fn installed(search_path: &[PathBuf]) -> Result<PathBuf, RequestError> {
    // The embedding program may have this name, and would start itself without end.
    let own = fs::metadata(SELF).ok();
    let is_candidate = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| {
            let is_executable = found.is_file() && found.permissions().mode() & 0o111 != 0;
            let is_same = |own: &Metadata| (own.dev(), own.ino()) == (found.dev(), found.ino());
            is_executable && !own.as_ref().is_some_and(is_same)
        })
    };
    let candidates = search_path.iter().map(|directory| directory.join(INSTALLED));
    let mut others = Vec::new();
    for binary in candidates.filter(is_candidate).take(CANDIDATES_MAX) {
        let version = version_of(&binary).await;
        if version.as_deref() == Some(env!("CARGO_PKG_VERSION")) {
            return Ok(binary);
        }
        let version = version.unwrap_or_else(|| "of no known version".to_owned());
        others.push(format!("{} is {version}", binary.display()));
    }
    let found = match others.is_empty() {
        true => "no `ringfence` is on PATH".to_owned(),
        false => others.join(", "),
    };
    Err(RequestError::fault(
        format!(
            "`ringfence::init()` was not called, and there is no other helper: {found}, and this is {}.",
            env!("CARGO_PKG_VERSION")
        ),
        "Call `ringfence::init()` first in `main`, or name a binary of this version with `builder().helper(path)`.",
    ))
}

async fn version_of(binary: &Path) -> Option<String> {
    let (_query, answer) = VersionQuery::start(binary)
        .inspect_err(|error| tracing::debug!(binary = %binary.display(), %error, "asking for a version"))
        .ok()?;
    let mut text = String::new();
    let mut answer = answer.take(ANSWER_BYTES_MAX);
    let read = tokio::time::timeout(ANSWER_PATIENCE, answer.read_to_string(&mut text)).await;
    read.ok()?.ok()?;
    Some(text.strip_prefix("ringfence ")?.trim_end().to_owned())
}

/// A running `BINARY --version`; killed when dropped.
struct VersionQuery(Child);

impl VersionQuery {
    fn start(binary: &Path) -> io::Result<(Self, pipe::Receiver)> {
        #[expect(
            clippy::disallowed_methods,
            reason = "a candidate for the helper is run with --version"
        )]
        let mut child = Command::new(binary)
            .arg("--version")
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let answer = child.stdout.take();
        let query = Self(child);
        let answer = answer.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok((query, pipe::Receiver::from_owned_fd(answer.into())?))
    }
}

impl Drop for VersionQuery {
    /// In a process that ignores SIGCHLD, `wait` fails because the child is gone already, which does no harm.
    fn drop(&mut self) {
        let ended = self.0.kill().and_then(|()| self.0.wait());
        if let Err(error) = ended {
            tracing::debug!(%error, "ending a query for a version");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// A directory with a shell script named `ringfence`.
    struct Fake(PathBuf);

    impl Fake {
        fn new(name: &str, script: &str) -> Self {
            let directory =
                std::env::temp_dir().join(format!("ringfence-fake-{name}-{}", std::process::id()));
            fs::create_dir_all(&directory).unwrap();
            let binary = directory.join(INSTALLED);
            fs::write(&binary, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
            Self(directory)
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[tokio::test]
    async fn first_binary_of_this_version_is_used_and_others_are_named() {
        let old = Fake::new("old", "echo ringfence 0.0.0");
        let same = Fake::new("same", concat!("echo ringfence ", env!("CARGO_PKG_VERSION")));
        let search =
            |directories: &[&Fake]| directories.iter().map(|fake| fake.0.clone()).collect::<Vec<_>>();
        let found = installed(&search(&[&old, &same])).await;
        assert_eq!(found.unwrap(), same.0.join(INSTALLED));
        let error = installed(&search(&[&old])).await.unwrap_err();
        assert!(error.message.contains("is 0.0.0"), "{error}");
        assert!(error.hint.contains("ringfence::init()"), "{error}");
    }

    #[tokio::test]
    async fn binary_with_endless_or_invalid_version_output_is_rejected() {
        for (name, script) in [
            ("endless", "while :; do echo ringfence; done"),
            ("other", "echo hello"),
            ("silent", "exit 0"),
            ("binary", r"printf '\377\377'"),
        ] {
            let fake = Fake::new(name, script);
            let begun = Instant::now();
            let error = installed(std::slice::from_ref(&fake.0)).await.unwrap_err();
            assert!(error.message.contains("of no known version"), "{name}: {error}");
            assert!(begun.elapsed() < ANSWER_PATIENCE, "{name}");
        }
    }

    #[tokio::test]
    async fn binary_without_version_output_times_out() {
        let fake = Fake::new("mute", "exec sleep 600");
        let begun = Instant::now();
        assert!(installed(std::slice::from_ref(&fake.0)).await.is_err());
        assert!(begun.elapsed() < 3 * ANSWER_PATIENCE);
    }

    #[tokio::test]
    async fn own_executable_is_never_a_candidate() {
        let directory = std::env::temp_dir().join(format!("ringfence-self-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        std::os::unix::fs::symlink(std::env::current_exe().unwrap(), directory.join(INSTALLED)).unwrap();
        let error = installed(std::slice::from_ref(&directory)).await.unwrap_err();
        fs::remove_dir_all(&directory).unwrap();
        assert!(error.message.contains("no `ringfence` is on PATH"), "{error}");
    }
}
