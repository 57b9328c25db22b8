//! Runs the command line, and provides temporary directories for its files.

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

/// The binary of this build, or the one named by `TESTED_RINGFENCE`.
pub fn binary() -> PathBuf {
    std::env::var_os("TESTED_RINGFENCE")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_ringfence")), PathBuf::from)
}

/// Places a program at another path: a hard link where possible, else a copy made by `cp`. This process never writes a
/// program that it starts: a child forked by another thread could still have the file open for writing, and execve(2)
/// would fail with ETXTBSY.
pub fn link_program(program: &Path, to: &Path) {
    if fs::hard_link(program, to).is_err() {
        let copied = Command::new("cp").arg(program).arg(to).status().unwrap();
        assert!(copied.success(), "{copied}");
    }
}

/// `ringfence` with these arguments, this test's state directory, and an environment of only `PATH` and `HOME`.
pub fn ringfence(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .env("RINGFENCE_STATE_DIR", state_dir())
        .stdin(Stdio::null());
    command
}

/// The command as an argument of a wrapper program, with the same environment.
pub fn wrap_command(wrapper: &[&str], inner: &Command) -> Command {
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

/// `ringfence serve` with this YAML configuration; its log is discarded.
pub fn serve_with(yaml: &str) -> Command {
    let mut command = ringfence(&["serve", "--config", &config(yaml)]);
    command.stderr(Stdio::null());
    command
}

/// Writes a configuration file in this test's state directory and returns its path.
pub fn config(yaml: &str) -> String {
    fs::create_dir_all(state_dir()).unwrap();
    let path = state_dir().join("config.yaml");
    fs::write(&path, yaml).unwrap();
    path.display().to_string()
}

/// Runs `ringfence` with these arguments and returns its output.
pub fn run_cli(arguments: &[&str]) -> Output {
    ringfence(arguments).output().unwrap()
}

/// The output of a command that must exit with 0.
#[track_caller]
pub fn run_successfully(mut command: Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// The standard output of a command that must exit with 0.
#[track_caller]
pub fn cli_stdout(arguments: &[&str]) -> String {
    stdout_of(&run_successfully(ringfence(arguments)))
}

/// [`cli_stdout`] with `--json`, parsed.
#[track_caller]
pub fn cli_json(arguments: &[&str]) -> Value {
    json_of(&run_successfully(ringfence(&[arguments, &["--json"]].concat())))
}

/// The output of a command that must exit with this status.
#[track_caller]
pub fn cli_exits_with(arguments: &[&str], status: i32) -> Output {
    let output = run_cli(arguments);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {output:?}");
    output
}

/// The standard error of a command that must exit with this status.
#[track_caller]
pub fn cli_error(arguments: &[&str], status: i32) -> String {
    stderr_of(&cli_exits_with(arguments, status))
}

/// The standard output of a command that must exit with 1.
#[track_caller]
pub fn cli_failure_stdout(arguments: &[&str]) -> String {
    stdout_of(&cli_exits_with(arguments, 1))
}

/// Runs a command with this standard input and returns its output. The command may exit before it has read all input.
pub fn run_with_stdin(mut command: Command, input: impl AsRef<[u8]>) -> Output {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.as_ref().to_owned();
    // A thread writes the input: the command may fill its output pipes before it reads.
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    match writer.join().unwrap() {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => panic!("{error}"),
        _ => output,
    }
}

/// Spawns a command with pipes for its output, and does not wait for it.
pub fn spawn_piped(command: &mut Command) -> Child {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Runs code with `ringfence run -`.
pub fn run_code(language: &str, code: &str, arguments: &[&str]) -> Output {
    let mut command = ringfence(&["run", "-", "--language", language]);
    command.args(arguments);
    run_with_stdin(command, code)
}

/// [`run_code`] with `--json`, parsed.
#[track_caller]
pub fn run_json(language: &str, code: &str, arguments: &[&str]) -> Value {
    json_of(&run_code(language, code, &[arguments, &["--json"]].concat()))
}

/// Parses standard output, which must be one JSON document.
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

/// Standard output followed by standard error.
pub fn both_streams_of(output: &Output) -> String {
    stdout_of(output) + &stderr_of(output)
}

pub fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A temporary directory, removed on drop.
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
