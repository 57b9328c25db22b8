//! The host around a story: its state directory, its processes, its users, and what it can do.

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
    /// Each test runs in a thread of its own, and with it goes what its servers and commands have kept.
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

/// The state directory of this test's servers and commands.
pub fn state_dir() -> PathBuf {
    STATE.with(|state| state.0.clone())
}

/// How often a condition is looked at: what is waited for needs the processors more.
const LOOK: Duration = Duration::from_millis(2);
/// What takes longer, on a machine that is busy with others, does not come.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Does it become true in time.
pub fn within(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}

/// It becomes true, however busy the machine is.
#[track_caller]
pub fn eventually(condition: impl FnMut() -> bool) {
    assert!(
        within(PATIENCE, condition),
        "it does not come true in {PATIENCE:?}"
    );
}

/// Processes whose command line holds this word.
pub fn processes_with(word: &str) -> Vec<u32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holds = |pid: &u32| command_line(*pid).contains(word);
    pids.filter(|pid| *pid != own).filter(holds).collect()
}

/// The processes of this word end, long before they would by themselves; how long that took.
#[track_caller]
pub fn assert_gone(word: &str) -> Duration {
    let begun = Instant::now();
    let are_gone = within(Duration::from_secs(20), || processes_with(word).is_empty());
    assert!(are_gone, "{word}: {:?}", processes_with(word));
    begun.elapsed()
}

/// What took no longer than the bound; where starting a process takes longer than usual just now, that much longer.
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
        "{took:?}, and a machine of this speed has {bound:?}"
    );
}

#[track_caller]
pub fn assert_within_a_second(round: impl FnOnce() -> Duration) {
    assert_took_at_most(round(), Duration::from_secs(1));
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

/// Every process below this one.
pub fn descendants(pid: u32) -> Vec<u32> {
    let of_child = |child| [descendants(child), vec![child]].concat();
    children(pid).into_iter().flat_map(of_child).collect()
}

/// Those whose command line holds this word.
pub fn descendants_with(pid: u32, word: &str) -> Vec<u32> {
    let mut all = descendants(pid);
    all.retain(|pid| command_line(*pid).contains(word));
    all
}

/// What a process calls itself.
pub fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

pub fn command_line(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).into_owned()
}

/// A field of [`stat_of`].
pub const MINOR_FAULTS: usize = 10;

/// A field of proc_pid_stat(5), counted from 1; the second, a name, may hold anything.
pub fn stat_of(pid: u32, number: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split_whitespace().nth(number - 3).map(str::to_owned)
}

/// What it can write to. Nothing, where the kernel does not show it, as of pid 1 to its own user.
pub fn memory_of(pid: u32) -> Vec<u8> {
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

/// A process that has ended is its parent's to bury.
pub fn lives(pid: u32) -> bool {
    stat_of(pid, 3).is_some_and(|state| state != "Z")
}

/// A field of `/proc/PID/status`, in KiB.
pub fn status_of(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    let number = line.trim_start_matches(':').split_whitespace().next();
    number.unwrap().parse().unwrap()
}

/// Sends a signal. One that has ended meanwhile is no error.
pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    kill_process(pid, signal).unwrap_or_default();
}

/// What lies below a directory and is none, with the bytes of files.
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

/// Does this stand in it.
pub fn holds(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

/// The files below a directory in which this stands, and the links to files in which it does.
pub fn holding(directory: &Path, word: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for (path, mut bytes) in files_below(directory) {
        if path.is_symlink() && path.is_file() {
            bytes = fs::read(&path).unwrap();
        }
        if holds(&bytes, word) {
            found.push(path);
        }
    }
    found
}

/// The names of directories below this one, so many levels deep.
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

/// What this variable asks for.
pub fn number<T: FromStr>(variable: &str) -> Option<T> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Does `RINGFENCE_REQUIRE` name this capability.
pub fn asks_for(capability: &str) -> bool {
    let required = std::env::var("RINGFENCE_REQUIRE").unwrap_or_default();
    required.split(',').any(|word| word.trim() == capability)
}

/// Can a test run that needs this: if not, it says so, unless `RINGFENCE_REQUIRE` asks for it.
#[track_caller]
pub fn has(capability: &str, look: impl FnOnce() -> bool) -> bool {
    let is_there = look();
    if !is_there {
        assert!(!asks_for(capability), "RINGFENCE_REQUIRE asks for {capability}");
        let caller = std::panic::Location::caller();
        eprintln!("skipped, because it needs {capability}: {caller}");
    }
    is_there
}

/// May a test do what only root can; if not, it says so.
#[track_caller]
pub fn is_root() -> bool {
    has("root", || geteuid().is_root())
}

/// An ordinary user, who cannot look into the directory of the build.
pub const NOBODY: u32 = 65534;

/// This program as that user, with no variables but a path.
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

/// A place where that user runs a server, from a copy of the binary.
pub struct Nobody(pub PathBuf);

impl Nobody {
    /// None, and says so, where whoever tests is not root.
    #[track_caller]
    pub fn new(yaml: &str) -> Option<Self> {
        if !is_root() {
            return None;
        }
        let own = state_dir();
        let own = own.file_name().unwrap().to_string_lossy();
        let place = std::env::temp_dir().join(format!("ringfence-nobody-{own}"));
        drop(fs::remove_dir_all(&place));
        fs::create_dir_all(&place).unwrap();
        link_program(&binary(), &place.join("ringfence"));
        fs::write(place.join("config.yaml"), yaml).unwrap();
        std::os::unix::fs::chown(&place, Some(NOBODY), Some(NOBODY)).unwrap();
        Some(Self(place))
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

    /// What a Python program prints outside of every sandbox, in a directory of its own.
    pub fn python(&self, program: &str) -> String {
        let work = self.0.join("work/here");
        fs::create_dir_all(&work).unwrap();
        std::os::unix::fs::chown(&work, Some(NOBODY), Some(NOBODY)).unwrap();
        let mut outside = as_nobody("/usr/bin/python3");
        outside.args(["-c", program]).current_dir(&work);
        stdout_of(&outside.output().unwrap())
    }

    pub fn serve(&self) -> Server {
        Server::of(self.command())
    }
}

impl Drop for Nobody {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
