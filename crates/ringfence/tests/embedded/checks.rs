//! The checks: each starts this program in a role and an environment of its own, and inspects its output.

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
        "the_examples_print_the_expected_output",
        the_examples_print_the_expected_output,
    ),
    ("a_missing_init_is_an_error_that_says_what_to_do", without_init),
    (
        "without_init_the_installed_binary_of_this_version_is_the_helper",
        installed,
    ),
    ("a_late_init_is_reported", late),
    ("a_helper_with_threads_refuses_to_start", helper_with_a_thread),
    ("from_env_reads_the_settings_that_serve_reads", environment),
    ("an_environment_vault_has_its_secrets", vault_in_environment),
    ("killing_a_program_ends_its_sandboxes", killed),
    ("sandboxes_work_with_closed_standard_streams", closed_streams),
    ("sandboxes_work_with_sigchld_ignored", ignored_children),
    ("sandboxes_work_in_a_deleted_working_directory", deleted_directory),
    ("sandboxes_work_with_a_huge_environment", huge_environment),
    ("sandboxes_work_with_any_umask", masks),
    (
        "calls_beyond_the_descriptor_limit_are_refused_and_later_calls_run",
        few_descriptors,
    ),
];

/// The state directory of one check.
struct Scratch(TempDir);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(TempDir::new(name))
    }

    /// This program in a role, with an environment of `PATH`, `HOME` and the state directory only.
    fn role(&self, role: &str) -> Command {
        let mut command = Command::new(own());
        command.args([roles::WORD, role]);
        self.set_environment(&mut command);
        command
    }

    /// This program in a role, started by a shell that first runs `setup`, and through the command `WITH` if `setup`
    /// sets it.
    fn role_after(&self, setup: &str, role: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        let script = format!("{setup}\nexec $WITH \"$0\" {} {role} \"$1\"", roles::WORD);
        command.args(["-c", &script]).arg(own()).arg(self.answer());
        self.set_environment(&mut command);
        command
    }

    fn set_environment(&self, command: &mut Command) {
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

    /// Runs the role `survive` after `setup` and asserts that it ran everything once and left no process. Returns its
    /// answer, which includes /proc/self/status.
    fn assert_survives(&self, setup: &str) -> String {
        self.assert_survived(self.role_after(setup, "survive"))
    }

    fn assert_survived(&self, mut command: Command) -> String {
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

/// Returns the output of a command that must succeed.
fn printed(command: Command) -> String {
    stdout_of(&run_successfully(command))
}

fn assert_refused(mut command: Command, why: &str) {
    let output = command.output().unwrap();
    let stderr = stderr_of(&output);
    assert_eq!(output.status.code(), Some(1), "an error, no panic: {stderr}");
    assert!(stderr.contains(why), "{stderr}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

fn the_examples_print_the_expected_output() {
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
    assert_refused(
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
    assert_refused(scratch.role("late-init"), "was called when 2 threads ran");
}

fn helper_with_a_thread() {
    let scratch = Scratch::new("thread");
    let helper = scratch.0.0.join(roles::WITH_A_THREAD);
    symlink(own(), &helper).unwrap();
    let mut command = scratch.role("helper-with-a-thread");
    command.arg(&helper);
    assert_refused(command, "ringfence helper: it has 2 threads");
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
    let output = printed(role("SANDBOXMCP_MAX_RAM_MB", "100"));
    assert_eq!(output, "100 MiB, 33 processes\n");
    assert_refused(
        role("RINGFENCE_LIMITS_RAM_MBB", "1"),
        "Did you mean `RINGFENCE_LIMITS_RAM_MB`?",
    );
    assert_refused(
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
    // All processes except this one that run this program.
    let ours = || processes_with("").into_iter().filter(is_ours).count();
    // The control: the name is on at least two command lines, and the program, its helper and a supervisor run.
    eventually(|| processes_with(&name).len() >= 2);
    assert!(ours() >= 3, "the control");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_processes_end(&name);
    eventually(|| ours() == 0);
}

fn closed_streams() {
    let scratch = Scratch::new("closed");
    scratch.assert_survives("exec <&- >&- 2>&-");
}

fn ignored_children() {
    let scratch = Scratch::new("children");
    let answer = scratch.assert_survives("WITH='env --ignore-signal=CHLD'");
    let ignored = answer
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    assert_ne!(ignored & 1 << 16, 0, "the control: SIGCHLD is ignored: {answer}");
}

fn deleted_directory() {
    let scratch = Scratch::new("deleted");
    scratch.assert_survives("mkdir gone; cd gone; rmdir ../gone; ! ls -d \"$PWD\" 2>/dev/null || exit 9");
}

fn huge_environment() {
    let scratch = Scratch::new("environment");
    let mut command = scratch.role_after("", "survive");
    for number in 0..14 {
        command.env(format!("LARGE_{number}"), "x".repeat(100_000));
    }
    // `from_env` would refuse these variables; `local` does not read them.
    command.env("RINGFENCE_LIMITS_RAM_MBB", "1");
    command.env("RINGFENCE_SECRET_DEFAULT_KEY", "a-secret-of-nobody");
    command.env("PATH", format!("/usr/bin:/bin:{}", "/nowhere:".repeat(10_000)));
    scratch.assert_survived(command);
}

fn masks() {
    for mask in ["0", "077"] {
        let scratch = Scratch::new(&format!("mask-{mask}"));
        scratch.assert_survives(&format!("umask {mask}"));
    }
}

fn few_descriptors() {
    let scratch = Scratch::new("descriptors");
    let output = printed(scratch.role_after("ulimit -n 64", "crowd"));
    assert_eq!(
        output,
        "after\ndone and refused: 40\nsome refused: true\nchildren: []\n"
    );
}
