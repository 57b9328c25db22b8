//! Turns what a tree left into what a caller may see. The only maker of a [`Report`]: whatever is done to hostile bytes
//! before they leave is done here.

use crate::{
    artifacts::Staged,
    backend::{Kept, RawOutcome},
    language::ProgramReport,
};
use ringfence_jail::wire::{Cause, Ending};
use ringfence_types::{
    Denial, ExecutionResult, Exit, ExitKind, Language, Lossy, Phases, ResourceUsage, Truncated,
};

/// A result that may leave.
#[derive(Debug)]
pub(crate) struct Report(ExecutionResult);

impl Report {
    pub(crate) fn into_result(self) -> ExecutionResult {
        self.0
    }
}

/// What the engine knows of a request beside its outcome.
pub(crate) struct About {
    pub(crate) execution_id: String,
    pub(crate) namespace: String,
    pub(crate) language: Language,
    pub(crate) capture_output: bool,
    pub(crate) phases: Phases,
    pub(crate) duration_ms: f64,
}

/// Signals of limits that the kernel enforces by signal (setrlimit(2)), and of the system call filter.
const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;
const SIGSYS: i32 = 31;

pub(crate) fn build(raw: &RawOutcome, program: ProgramReport, staged: Staged, about: About) -> Report {
    let exit = exit(&raw.ending);
    let shown = |kept| {
        if about.capture_output {
            text(kept)
        } else {
            (String::new(), false)
        }
    };
    let (stdout, lossy_out) = shown(&raw.stdout);
    let (stderr, lossy_err) = shown(&raw.stderr);
    let cut = |kept: &Kept| about.capture_output && kept.total > kept.bytes.len() as u64;
    let security_events = filtered(&exit);
    Report(ExecutionResult {
        request_id: about.execution_id.clone(),
        execution_id: about.execution_id,
        namespace: about.namespace,
        session_id: None,
        language: about.language,
        backend: "native".to_owned(),
        success: exit.kind == ExitKind::Code && exit.code == Some(0) && program.error.is_none(),
        exit_code: exit_code(&exit),
        exit,
        stdout,
        stderr,
        stdout_bytes: raw.stdout.total,
        stderr_bytes: raw.stderr.total,
        truncated: Truncated {
            stdout: cut(&raw.stdout),
            stderr: cut(&raw.stderr),
        },
        lossy: Lossy {
            stdout: lossy_out,
            stderr: lossy_err,
        },
        result: program.result,
        result_repr: program.result_repr,
        variables: program.variables,
        error: program.error,
        artifacts: staged.artifacts,
        duration_ms: about.duration_ms,
        phases: about.phases,
        resource_usage: usage(&raw.ending),
        isolation: raw.isolation.clone(),
        denials: staged.denials,
        security_events,
        validation: None,
    })
}

/// A character that the limit cut in two is not the program's fault and does not count as lossy.
fn text(kept: &Kept) -> (String, bool) {
    let cut = kept.total > kept.bytes.len() as u64;
    match std::str::from_utf8(&kept.bytes) {
        Ok(text) => (text.to_owned(), false),
        Err(error) if cut && error.error_len().is_none() => (
            String::from_utf8_lossy(&kept.bytes[..error.valid_up_to()]).into_owned(),
            false,
        ),
        Err(_) => (String::from_utf8_lossy(&kept.bytes).into_owned(), true),
    }
}

fn exit(ending: &Ending) -> Exit {
    let by = |kind, signal, limit: Option<&str>| Exit {
        kind,
        code: None,
        signal,
        limit: limit.map(str::to_owned),
    };
    match (ending.cause, ending.status) {
        (Cause::Timeout, _) => by(ExitKind::Timeout, None, Some("timeout")),
        (Cause::OutOfMemory, _) => by(ExitKind::OutOfMemory, Some(SIGKILL), Some("memory")),
        (Cause::Disk, _) => by(ExitKind::Limit, Some(SIGKILL), Some("disk")),
        (Cause::Cancelled, _) => by(ExitKind::Cancelled, Some(SIGKILL), None),
        (Cause::Killed, _) | (Cause::Program, None) => by(ExitKind::Signal, Some(SIGKILL), None),
        (Cause::Program, Some(status)) => match status & 0x7f {
            0 => Exit {
                kind: ExitKind::Code,
                code: Some((status >> 8) & 0xff),
                signal: None,
                limit: None,
            },
            SIGXCPU => by(ExitKind::Limit, Some(SIGXCPU), Some("cpu")),
            SIGXFSZ => by(ExitKind::Limit, Some(SIGXFSZ), Some("file_size")),
            signal => by(ExitKind::Signal, Some(signal), None),
        },
    }
}

/// As a shell would give it; 124 as timeout(1).
fn exit_code(exit: &Exit) -> i32 {
    match (exit.kind, exit.code, exit.signal) {
        (ExitKind::Timeout, ..) => 124,
        (ExitKind::Cancelled, ..) => 130,
        (_, Some(code), _) => code,
        (_, None, signal) => 128 + signal.unwrap_or(0),
    }
}

fn filtered(exit: &Exit) -> Vec<Denial> {
    if exit.signal != Some(SIGSYS) {
        return Vec::new();
    }
    vec![Denial {
        rule: "seccomp.foreign_abi".to_owned(),
        layer: "seccomp".to_owned(),
        what: "the program used the system call interface of another architecture and was killed".to_owned(),
        hint: "Run programs built for this machine's architecture.".to_owned(),
    }]
}

fn usage(ending: &Ending) -> ResourceUsage {
    ResourceUsage {
        cpu_user_ms: ending.cpu_user.as_secs_f64() * 1000.0,
        cpu_system_ms: ending.cpu_system.as_secs_f64() * 1000.0,
        max_rss_bytes: ending.memory_peak_bytes,
        processes_peak: ending.processes_peak,
        disk_bytes: ending.disk_bytes,
    }
}
