//! The command line, and directories for what it reads.

use super::state_dir;
use serde_json::Value;
use std::{
    fs,
    io::{ErrorKind, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

/// Of this build, or of another that is to be tested.
pub fn binary() -> PathBuf {
    std::env::var_os("TESTED_RINGFENCE")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_ringfence")), PathBuf::from)
}

/// A program at another place, as a link where that can be made. This process writes no program that it starts: a
/// child of another thread may have it open for writing then, and it is busy (ETXTBSY, execve(2)).
pub fn link_program(program: &Path, to: &Path) {
    if fs::hard_link(program, to).is_err() {
        let copied = Command::new("cp").arg(program).arg(to).status().unwrap();
        assert!(copied.success(), "{copied}");
    }
}

/// `ringfence` with these words, an environment of nothing but a path, and this test's state directory.
pub fn ringfence(words: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .args(words)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .env("RINGFENCE_STATE_DIR", state_dir())
        .stdin(Stdio::null());
    command
}

/// The same command as an argument of another.
pub fn below(wrapper: &[&str], inner: &Command) -> Command {
    let mut command = Command::new(wrapper[0]);
    let environment = inner.get_envs();
    command
        .args(&wrapper[1..])
        .arg(inner.get_program())
        .args(inner.get_args())
        .env_clear()
        .envs(environment.filter_map(|(name, value)| Some((name, value?))));
    command
}

/// `ringfence serve` with this configuration, YAML, and no log.
pub fn serve_with(yaml: &str) -> Command {
    let mut command = ringfence(&["serve", "--config", &config(yaml)]);
    command.stderr(Stdio::null());
    command
}

/// A configuration file in this test's state directory.
pub fn config(yaml: &str) -> String {
    fs::create_dir_all(state_dir()).unwrap();
    let path = state_dir().join("config.yaml");
    fs::write(&path, yaml).unwrap();
    path.display().to_string()
}

/// The output of `ringfence` with these words.
pub fn said(words: &[&str]) -> Output {
    ringfence(words).output().unwrap()
}

/// The output of a command that must succeed.
#[track_caller]
pub fn succeeded(mut command: Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// What a command prints that must succeed.
#[track_caller]
pub fn told(words: &[&str]) -> String {
    stdout_of(&succeeded(ringfence(words)))
}

/// The same with `--json`, as data.
#[track_caller]
pub fn told_json(words: &[&str]) -> Value {
    json_of(&succeeded(ringfence(&[words, &["--json"]].concat())))
}

/// The output of a command that must end so.
#[track_caller]
pub fn ended_with(words: &[&str], status: i32) -> Output {
    let output = said(words);
    assert_eq!(output.status.code(), Some(status), "{words:?}: {output:?}");
    output
}

/// What a command that must fail in this way says of that, on standard error.
#[track_caller]
pub fn refused(words: &[&str], status: i32) -> String {
    stderr_of(&ended_with(words, status))
}

/// What a command prints whose answer is no.
#[track_caller]
pub fn denied(words: &[&str]) -> String {
    stdout_of(&ended_with(words, 1))
}

/// The output of a command that has this on its standard input. It may end before it has read it.
pub fn feed(mut command: Command, input: impl AsRef<[u8]>) -> Output {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.as_ref().to_owned();
    // It may write more than a pipe has room for before it reads.
    let feeding = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    match feeding.join().unwrap() {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => panic!("{error}"),
        _ => output,
    }
}

/// A command that goes on beside the test, with pipes for what it says.
pub fn start(command: &mut Command) -> Child {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Runs code through `ringfence run -`.
pub fn run_code(language: &str, code: &str, words: &[&str]) -> Output {
    let mut command = ringfence(&["run", "-", "--language", language]);
    command.args(words);
    feed(command, code)
}

/// The same with `--json`, as data.
#[track_caller]
pub fn run_json(language: &str, code: &str, words: &[&str]) -> Value {
    json_of(&run_code(language, code, &[words, &["--json"]].concat()))
}

/// Standard output, which is one document.
#[track_caller]
pub fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

pub fn stdout_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Both streams.
pub fn all_of(output: &Output) -> String {
    stdout_of(output) + &stderr_of(output)
}

pub fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A directory that goes away.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let own = format!("ringfence-story-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(own);
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub fn file(&self, name: &str, content: &str) -> String {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
