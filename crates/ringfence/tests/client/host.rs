//! The host of a test: its state directory, processes, users and capabilities.

use super::{Server, binary, link_program, stdout_of};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    str::FromStr,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

thread_local! {
    /// State directory of the current test, which runs in its own thread; removed when the thread ends.
    static STATE: State = State::new();
}

struct State(PathBuf);

impl State {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let own = format!("state-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(own);
        drop(fs::remove_dir_all(&path));
        Self(path)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// State directory of this test's servers and commands.
pub fn state_dir() -> PathBuf {
    STATE.with(|state| state.0.clone())
}

/// Interval between checks of a condition; longer than a spin, to leave the processors to the work that is awaited.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Time after which an awaited condition has failed, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// True if the condition becomes true within the timeout.
pub fn becomes_true_within(timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + timeout;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    true
}

/// Asserts that the condition becomes true within [`PATIENCE`].
#[track_caller]
pub fn eventually(condition: impl FnMut() -> bool) {
    assert!(
        becomes_true_within(PATIENCE, condition),
        "the condition is not true within {PATIENCE:?}"
    );
}

/// Processes whose command line contains this text.
pub fn processes_with(text: &str) -> Vec<u32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let matches = |pid: &u32| command_line(*pid).contains(text);
    pids.filter(|pid| *pid != own).filter(matches).collect()
}

/// Asserts that all processes whose command line contains this text end within 20 seconds, and returns the time taken.
/// The processes of the tests would run longer by themselves.
#[track_caller]
pub fn assert_processes_end(text: &str) -> Duration {
    let begun = Instant::now();
    let are_gone = becomes_true_within(Duration::from_secs(20), || processes_with(text).is_empty());
    assert!(are_gone, "{text}: {:?}", processes_with(text));
    begun.elapsed()
}

/// Asserts that a duration is within the bound. If starting a process currently takes longer than 2 ms, the bound grows
/// by the same factor.
#[track_caller]
pub fn assert_took_at_most(took: Duration, bound: Duration) {
    const USUAL: Duration = Duration::from_millis(2);
    const STARTS: u32 = 20;
    if took <= bound {
        return;
    }
    let begun = Instant::now();
    for _ in 0..STARTS {
        assert!(Command::new("/bin/true").status().unwrap().success());
    }
    let slower = begun.elapsed().as_secs_f64() / f64::from(STARTS) / USUAL.as_secs_f64();
    let bound = bound.mul_f64(slower.max(1.0));
    assert!(
        took <= bound,
        "took {took:?}; the limit on a machine of this speed is {bound:?}"
    );
}

#[track_caller]
pub fn assert_within_a_second(measure: impl FnOnce() -> Duration) {
    assert_took_at_most(measure(), Duration::from_secs(1));
}

pub fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let lists = lists.collect::<Vec<_>>().concat();
    lists
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// All descendants of this process.
pub fn descendants(pid: u32) -> Vec<u32> {
    let of_child = |child| [descendants(child), vec![child]].concat();
    children(pid).into_iter().flat_map(of_child).collect()
}

/// Descendants whose command line contains this text.
pub fn descendants_with(pid: u32, text: &str) -> Vec<u32> {
    let mut all = descendants(pid);
    all.retain(|pid| command_line(*pid).contains(text));
    all
}

/// The name of a process, from `/proc/PID/comm`.
pub fn comm_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

pub fn command_line(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).into_owned()
}

/// Field number for [`proc_stat`].
pub const MINOR_FAULTS: usize = 10;

/// A field of proc_pid_stat(5) after the second, numbered from 1. The second, the name, may contain any character.
pub fn proc_stat(pid: u32, number: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split_whitespace().nth(number - 3).map(str::to_owned)
}

/// The private writable memory of a process. Empty if the kernel denies access, as for pid 1 to its own user.
pub fn writable_memory_of(pid: u32) -> Vec<u8> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"));
    let Some((maps, memory)) = maps.ok().zip(File::open(format!("/proc/{pid}/mem")).ok()) else {
        return Vec::new();
    };
    let spans = maps.lines().filter(|line| line.contains(" rw-p "));
    let bytes = spans.filter_map(|line| {
        let (start, rest) = line.split_once('-')?;
        let end = rest.split_once(' ')?.0;
        let [start, end] = [start, end].map(|at| u64::from_str_radix(at, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        memory.read_exact_at(&mut bytes, start).ok()?;
        Some(bytes)
    });
    bytes.flatten().collect()
}

/// True if the process exists and is not a zombie.
pub fn is_running(pid: u32) -> bool {
    proc_stat(pid, 3).is_some_and(|state| state != "Z")
}

/// A field of `/proc/PID/status`, in KiB.
pub fn proc_status_kib(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    let number = line.trim_start_matches(':').split_whitespace().next();
    number.unwrap().parse().unwrap()
}

/// Sends a signal; not an error if the process has ended.
pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    kill_process(pid, signal).unwrap_or_default();
}

/// All entries below a directory that are not directories, with the content of regular files.
pub fn files_below(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files.extend(files_below(&entry.path())),
            kind if kind.is_file() => files.push((entry.path(), fs::read(entry.path()).unwrap())),
            _ => files.push((entry.path(), Vec::new())),
        }
    }
    files
}

/// True if the bytes contain the text.
pub fn contains_text(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Files below a directory that contain the text, and symlinks to such files.
pub fn files_containing(directory: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for (path, mut bytes) in files_below(directory) {
        if path.is_symlink() && path.is_file() {
            bytes = fs::read(&path).unwrap();
        }
        if contains_text(&bytes, text) {
            found.push(path);
        }
    }
    found
}

/// Names of the directories below this one: its children, and `depth` further levels.
pub fn directories_below(directory: &Path, depth: usize) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut names = Vec::new();
    for entry in directories {
        names.push(entry.file_name().to_string_lossy().into_owned());
        if depth > 0 {
            names.extend(directories_below(&entry.path(), depth - 1));
        }
    }
    names
}

/// The number in an environment variable; `None` if unset or not a number.
pub fn env_number<T: FromStr>(variable: &str) -> Option<T> {
    std::env::var(variable).ok()?.parse().ok()
}

/// True if `RINGFENCE_REQUIRE` names this capability.
pub fn is_required(capability: &str) -> bool {
    let required = std::env::var("RINGFENCE_REQUIRE").unwrap_or_default();
    required.split(',').any(|word| word.trim() == capability)
}

/// Returns the result of the check for a capability that a test needs. If it is false, prints that the test is skipped,
/// or fails if `RINGFENCE_REQUIRE` names the capability.
#[track_caller]
pub fn has_capability(capability: &str, check: impl FnOnce() -> bool) -> bool {
    let is_there = check();
    if !is_there {
        assert!(
            !is_required(capability),
            "RINGFENCE_REQUIRE asks for {capability}"
        );
        let caller = std::panic::Location::caller();
        eprintln!("skipped, because it needs {capability}: {caller}");
    }
    is_there
}

/// [`has_capability`] for root.
#[track_caller]
pub fn is_root() -> bool {
    has_capability("root", || geteuid().is_root())
}

/// Uid and gid of an unprivileged user, who cannot read the build directory.
pub const NOBODY: u32 = 65534;

/// The program as that user, with only `PATH` and `HOME` in its environment.
pub fn as_nobody(program: impl AsRef<OsStr>) -> Command {
    let user = NOBODY.to_string();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"])
        .arg(program)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent");
    command
}

/// A directory where that user runs a server, with a copy of the binary.
pub struct Nobody(pub PathBuf);

impl Nobody {
    /// `None`, with a message, unless the tests run as root.
    #[track_caller]
    pub fn new(yaml: &str) -> Option<Self> {
        if !is_root() {
            return None;
        }
        let own = state_dir();
        let own = own.file_name().unwrap().to_string_lossy();
        let directory = std::env::temp_dir().join(format!("ringfence-nobody-{own}"));
        drop(fs::remove_dir_all(&directory));
        fs::create_dir_all(&directory).unwrap();
        link_program(&binary(), &directory.join("ringfence"));
        fs::write(directory.join("config.yaml"), yaml).unwrap();
        std::os::unix::fs::chown(&directory, Some(NOBODY), Some(NOBODY)).unwrap();
        Some(Self(directory))
    }

    pub fn command(&self) -> Command {
        let mut command = as_nobody(self.0.join("ringfence"));
        command
            .args(["serve", "--config"])
            .arg(self.0.join("config.yaml"))
            .env("RINGFENCE_STATE_DIR", self.0.join("state"))
            .stderr(Stdio::null());
        command
    }

    /// Standard output of a Python program that runs outside any sandbox, in its own directory.
    pub fn python(&self, program: &str) -> String {
        let work = self.0.join("work/here");
        fs::create_dir_all(&work).unwrap();
        std::os::unix::fs::chown(&work, Some(NOBODY), Some(NOBODY)).unwrap();
        let mut outside = as_nobody("/usr/bin/python3");
        outside.args(["-c", program]).current_dir(&work);
        stdout_of(&outside.output().unwrap())
    }

    pub fn serve(&self) -> Server {
        Server::from_command(self.command())
    }
}

impl Drop for Nobody {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
