//! The checks: each starts this program in a role, in surroundings of its own, and looks at what it said.

use crate::{client::*, roles};
use std::{
    fs,
    io::Read,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

type Check = (&'static str, fn());

pub const ALL: &[Check] = &[
    (
        "the_examples_say_what_they_promise",
        the_examples_say_what_they_promise,
    ),
    (
        "without_init_there_is_an_error_that_says_what_to_do",
        without_init,
    ),
    (
        "without_init_the_installed_binary_of_this_version_is_the_helper",
        installed,
    ),
    ("init_that_comes_too_late_is_told", late),
    ("a_helper_with_threads_refuses", helper_with_a_thread),
    ("from_env_reads_what_serve_reads", environment),
    ("a_vault_in_the_environment_has_its_secrets", vault_in_environment),
    ("a_program_that_is_killed_takes_its_sandboxes_with_it", killed),
    ("closed_standard_streams_do_no_harm", closed_streams),
    ("ignored_children_do_no_harm", ignored_children),
    ("a_deleted_working_directory_does_no_harm", deleted_directory),
    (
        "a_huge_environment_does_no_harm_and_is_not_seen_inside",
        huge_environment,
    ),
    ("any_file_mode_mask_does_no_harm", masks),
    ("few_descriptors_refuse_some_and_harm_none", few_descriptors),
];

/// A directory with the state of one check.
struct Scratch(TempDir);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(TempDir::new(name))
    }

    /// This program in that role, which knows nothing but a path and where its state is.
    fn role(&self, role: &str) -> Command {
        let mut command = Command::new(own());
        command.args([roles::WORD, role]);
        self.surround(&mut command);
        command
    }

    /// The same, after the shell has done this to itself, and by way of the command `WITH`, if it has set one.
    fn after(&self, doing: &str, role: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        let script = format!("{doing}\nexec $WITH \"$0\" {} {role} \"$1\"", roles::WORD);
        command.args(["-c", &script]).arg(own()).arg(self.answer());
        self.surround(&mut command);
        command
    }

    fn surround(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", "/nonexistent")
            .env("XDG_STATE_HOME", &self.0.0)
            .current_dir(&self.0.0)
            .stdin(Stdio::null());
    }

    fn answer(&self) -> PathBuf {
        self.0.0.join("answer")
    }

    /// `survive` after this: it did everything once, and left no process. What the process was like.
    fn survives(&self, doing: &str) -> String {
        self.is_survived(self.after(doing, "survive"))
    }

    fn is_survived(&self, mut command: Command) -> String {
        let output = command.output().unwrap();
        let answer = fs::read_to_string(self.answer()).unwrap_or_default();
        let expect = "survived\nchildren: []\n";
        let words = command.get_args();
        assert!(answer.starts_with(expect), "{words:?}: {answer}\n{output:?}");
        answer
    }
}

fn own() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// What a program prints that ends well.
fn printed(command: Command) -> String {
    stdout_of(&succeeded(command))
}

fn refused(mut command: Command, why: &str) {
    let output = command.output().unwrap();
    let stderr = stderr_of(&output);
    assert_eq!(output.status.code(), Some(1), "an error, no panic: {stderr}");
    assert!(stderr.contains(why), "{stderr}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

fn the_examples_say_what_they_promise() {
    let scratch = Scratch::new("examples");
    for (name, expect) in [
        (
            "hello",
            "hello sandbox\nvalue: 42\ntier: full\nZeroDivisionError in line 2\n",
        ),
        ("stream", "1\n2\n3\nenough\nCancelled, 13 bytes\n"),
        (
            "secrets",
            "API_KEY: 28 bytes\n28 ***REDACTED*** ***REDACTED***\nsecret_unavailable\n",
        ),
        (
            "artifacts",
            "table.csv: 8 bytes, text/csv\nintact: true, forged: false\n",
        ),
        (
            "session",
            "2 rows\nthe shell has them\ngone: in.csv\n1,2\n3,4\n1 session left\n",
        ),
        (
            "tenants",
            "blue, 512 MiB: 18\nred, 64 MiB: secret_unavailable\nlimits.changed ok\nexecution.started pending\n\
             vault.accessed failed\nexecution.refused failed\ntool.called ok\n",
        ),
    ] {
        assert_eq!(printed(scratch.role(name)), expect, "{name}");
    }
}

fn without_init() {
    let scratch = Scratch::new("without-init");
    refused(
        scratch.role("without-init"),
        "Call `ringfence::init()` first in `main`",
    );
}

fn installed() {
    let scratch = Scratch::new("installed");
    let directory = Path::new(env!("CARGO_BIN_EXE_ringfence")).parent().unwrap();
    let mut command = scratch.role("without-init");
    command.env("PATH", format!("/usr/bin:/bin:{}", directory.display()));
    assert_eq!(printed(command), "local\n");
}

fn late() {
    let scratch = Scratch::new("late");
    refused(scratch.role("late-init"), "was called when 2 threads ran");
}

fn helper_with_a_thread() {
    let scratch = Scratch::new("thread");
    let helper = scratch.0.0.join(roles::WITH_A_THREAD);
    symlink(own(), &helper).unwrap();
    let mut command = scratch.role("helper-with-a-thread");
    command.arg(&helper);
    refused(command, "ringfence helper: it has 2 threads");
}

fn environment() {
    let scratch = Scratch::new("from-env");
    let file = scratch.0.0.join("config.yaml");
    fs::write(&file, "limits: {processes: 33}\n").unwrap();
    let role = |variable: &str, value: &str| {
        let mut command = scratch.role("from-env");
        command.env("RINGFENCE_CONFIG", &file).env(variable, value);
        command
    };
    let told = printed(role("SANDBOXMCP_MAX_RAM_MB", "100"));
    assert_eq!(told, "100 MiB, 33 processes\n");
    refused(
        role("RINGFENCE_LIMITS_RAM_MBB", "1"),
        "Did you mean `RINGFENCE_LIMITS_RAM_MB`?",
    );
    refused(
        role("RINGFENCE_SECRET_DEFAULT_KEY", "a-secret-of-nobody"),
        "does not read the environment",
    );
}

fn vault_in_environment() {
    let scratch = Scratch::new("vault-env");
    let mut command = scratch.role("vault-in-environment");
    command.env("RINGFENCE_SECRET_DEFAULT_KEY", "a-secret-of-nobody");
    assert_eq!(printed(command), "18 ***REDACTED***\n");
}

fn killed() {
    let scratch = Scratch::new("killed");
    let name = format!("sleeper-killed-{}", std::process::id());
    let mut command = scratch.role("wait");
    let mut child = command.arg(&name).stdout(Stdio::piped()).spawn().unwrap();
    let mut up = [0; 3];
    child.stdout.take().unwrap().read_exact(&mut up).unwrap();
    let is_ours = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == own());
    // Of every process but this one.
    let ours = || processes_with("").into_iter().filter(is_ours).count();
    // The control: the program, and what is inside; its helper, a supervisor.
    eventually(|| processes_with(&name).len() >= 2);
    assert!(ours() >= 3, "the control");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_gone(&name);
    eventually(|| ours() == 0);
}

fn closed_streams() {
    let scratch = Scratch::new("closed");
    scratch.survives("exec <&- >&- 2>&-");
}

fn ignored_children() {
    let scratch = Scratch::new("children");
    let answer = scratch.survives("WITH='env --ignore-signal=CHLD'");
    let ignored = answer
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    assert_ne!(ignored & 1 << 16, 0, "the control: SIGCHLD is ignored: {answer}");
}

fn deleted_directory() {
    let scratch = Scratch::new("deleted");
    scratch.survives("mkdir gone; cd gone; rmdir ../gone; ! ls -d \"$PWD\" 2>/dev/null || exit 9");
}

fn huge_environment() {
    let scratch = Scratch::new("environment");
    let mut command = scratch.after("", "survive");
    for number in 0..14 {
        command.env(format!("LARGE_{number}"), "x".repeat(100_000));
    }
    // What `from_env` would refuse, and `local` does not read.
    command.env("RINGFENCE_LIMITS_RAM_MBB", "1");
    command.env("RINGFENCE_SECRET_DEFAULT_KEY", "a-secret-of-nobody");
    command.env("PATH", format!("/usr/bin:/bin:{}", "/nowhere:".repeat(10_000)));
    scratch.is_survived(command);
}

fn masks() {
    for mask in ["0", "077"] {
        let scratch = Scratch::new(&format!("mask-{mask}"));
        scratch.survives(&format!("umask {mask}"));
    }
}

fn few_descriptors() {
    let scratch = Scratch::new("descriptors");
    let told = printed(scratch.after("ulimit -n 64", "crowd"));
    assert_eq!(
        told,
        "after\ndone and refused: 40\nsome refused: true\nchildren: []\n"
    );
}
