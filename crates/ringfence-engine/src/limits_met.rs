//! Denials for limits that a run has met, with the argument that raises each, and for refusals that its error shows.

use crate::{error::denial, policy::Grant};
use ringfence_types::{Denial, Exit, ExitKind, Limits, ResourceUsage, WorkspaceSource};

const MEBIBYTE: u64 = 1 << 20;
/// A disk is full when a page more does not fit; programs write in pieces.
const FULL_BYTES: u64 = 256 << 10;
/// Bytes at the end of the program's error that are searched.
const ERROR_BYTES_MAX: usize = 4 << 10;
const LINE_CHARS_MAX: usize = 200;

#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub(crate) limits: Limits,
    pub(crate) caps: Limits,
    /// True: the caller specified the memory, which then does not grow with the disk.
    pub(crate) names_memory: bool,
    /// True: its files are in the sandbox's memory.
    pub(crate) in_memory: bool,
    /// True: a call in a session, which keeps some of its limits.
    pub(crate) in_session: bool,
}

impl Bounds {
    /// `session` is the workspace of the session, for a call in one.
    pub(crate) fn of(grant: &Grant, session: Option<&WorkspaceSource>) -> Self {
        let request = &grant.request;
        Self {
            limits: grant.limits.clone(),
            caps: grant.caps.clone(),
            names_memory: request.limits.max_ram_mb.is_some(),
            in_memory: session.unwrap_or(&request.workspace).is_in_memory(),
            in_session: session.is_some(),
        }
    }

    /// Returns the call that raises a limit fixed at the start of a sandbox.
    fn raised_call(&self, raised: &str) -> String {
        if self.in_session {
            let kept = "a session keeps the limits that it was made with";
            return format!("next: create_session {{resource_limits: {{{raised}}}}} ({kept})");
        }
        format!("next: execute_code {{resource_limits: {{{raised}}}}}")
    }
}

pub(crate) struct Evidence<'a> {
    pub(crate) exit: &'a Exit,
    pub(crate) usage: &'a ResourceUsage,
    /// Total bytes of the longer of the streams that were cut.
    pub(crate) output: Option<u64>,
    /// The program's error, or the end of its standard error.
    pub(crate) error_text: &'a str,
}

impl Evidence<'_> {
    fn mentions(&self, words: &[&str]) -> bool {
        last_lines(self.error_text).any(|line| words.iter().any(|word| line.contains(word)))
    }
}

pub(crate) fn denials(bounds: &Bounds, evidence: &Evidence<'_>) -> Vec<Denial> {
    let met = [
        time(bounds, evidence),
        memory(bounds, evidence),
        disk(bounds, evidence),
        locks(evidence),
        processes(bounds, evidence),
        output(bounds, evidence),
    ];
    met.into_iter().flatten().collect()
}

/// Returns twice as much, at most the cap; none: it is at the cap.
fn more<N: PartialOrd + Copy + std::ops::Add<Output = N>>(now: N, most: N) -> Option<N> {
    let twice = now + now;
    (now < most).then_some(if twice < most { twice } else { most })
}

/// Returns four times as much, at most the cap: unused disk costs nothing; none: it is at the cap.
fn more_disk(now: u64, most: u64) -> Option<u64> {
    (now < most).then(|| most.min(4 * now))
}

fn no_more(setting: &str) -> String {
    format!("next: use less; it has the most that the operator allows (`caps.{setting}`)")
}

fn time(bounds: &Bounds, evidence: &Evidence<'_>) -> Option<Denial> {
    let is_cpu = evidence.exit.limit.as_deref() == Some("cpu");
    if evidence.exit.kind != ExitKind::Timeout && !is_cpu {
        return None;
    }
    let now = bounds.limits.timeout_ms.div_ceil(1000);
    let hint = match more(now, bounds.caps.timeout_ms / 1000) {
        // Also in a session: each call has its own time limit.
        Some(seconds) => {
            format!("next: execute_code {{timeout_seconds: {seconds}}}, if the program ends by itself")
        }
        None => no_more("timeout_seconds"),
    };
    let what = format!("the program was stopped after its {now} s (`timeout_seconds`)");
    Some(denial("limit.timeout", "wall_time", what, hint))
}

fn memory(bounds: &Bounds, evidence: &Evidence<'_>) -> Option<Denial> {
    if evidence.exit.kind != ExitKind::OutOfMemory {
        return None;
    }
    let now = bounds.limits.memory_bytes / MEBIBYTE;
    let hint = match more(now, bounds.caps.memory_bytes / MEBIBYTE) {
        Some(mb) => bounds.raised_call(&format!("max_ram_mb: {mb}")),
        None => no_more("ram_mb"),
    };
    let files = evidence.usage.disk_bytes / MEBIBYTE;
    let of_files = if bounds.in_memory && files > 0 {
        format!(", of which files of its private disk took {files} MiB")
    } else {
        String::new()
    };
    let what = format!(
        "the program was stopped: it needed more than its {now} MiB of memory (`max_ram_mb`){of_files}"
    );
    Some(denial("limit.memory", "memory", what, hint))
}

fn disk(bounds: &Bounds, evidence: &Evidence<'_>) -> Option<Denial> {
    let (limits, caps) = (&bounds.limits, &bounds.caps);
    let (size, most) = if bounds.in_memory {
        (limits.private_disk_bytes(), caps.private_disk_bytes())
    } else {
        (limits.disk_bytes, caps.disk_bytes)
    };
    let is_stopped = matches!(evidence.exit.limit.as_deref(), Some("disk" | "file_size"));
    let is_reported = evidence.mentions(&["No space left on device", "ENOSPC", "File too large", "EFBIG"]);
    let is_full = evidence.usage.disk_bytes + FULL_BYTES > size;
    if !is_stopped && !is_reported && !is_full {
        return None;
    }
    if is_stopped && !bounds.in_memory && evidence.usage.disk_bytes <= size {
        let what = "the workspace has too many files or a directory that cannot be listed, or the server keeps no more \
                    on its disk (`disk.free_mb`, `disk.total_mb`, `disk.namespace_mb`)";
        let hint = "next: remove files, let their owner list directories (chmod u+rwx), or have the operator make room";
        return Some(denial("limit.disk", "disk", what, hint));
    }
    let now = size / MEBIBYTE;
    let hint = match more_disk(now, most / MEBIBYTE) {
        Some(mb) => {
            let mut raised = format!("max_disk_mb: {mb}");
            if bounds.in_memory && bounds.names_memory {
                raised += &format!(", max_ram_mb: {}", 2 * mb);
            }
            bounds.raised_call(&raised)
        }
        None => no_more("disk_mb"),
    };
    let what = match (bounds.in_memory, limits.disk_bytes > size) {
        (true, true) => {
            format!("its private disk was full at {now} MiB, half of its memory; `max_disk_mb` raises both")
        }
        (true, false) => format!("its private disk was full at {now} MiB (`max_disk_mb`)"),
        (false, _) => format!(
            "the workspace has {} MiB, and may have {now} (`max_disk_mb`); remove something, or close deleted files \
             (those of a process that is not dumpable are estimated)",
            evidence.usage.disk_bytes / MEBIBYTE
        ),
    };
    Some(denial("limit.disk", "disk", what, hint))
}

fn locks(evidence: &Evidence<'_>) -> Option<Denial> {
    let is_stopped = evidence.exit.limit.as_deref() == Some("locks");
    let what = "the program was stopped: it held more than 4,096 record locks, each counted for every descriptor of its file";
    let hint = "Lock longer ranges, or fewer files at once.";
    is_stopped.then(|| denial("limit.locks", "locks", what, hint))
}

fn processes(bounds: &Bounds, evidence: &Evidence<'_>) -> Option<Denial> {
    let now = bounds.limits.processes;
    let is_reported = evidence.mentions(&[
        "can't start new thread",
        "Resource temporarily unavailable",
        "EAGAIN",
    ]);
    let is_likely = match evidence.usage.processes_peak {
        // The peak of a session covers all its calls: alone it proves nothing about this one.
        Some(peak) => {
            let is_met = peak >= u64::from(now) && !bounds.in_session;
            is_met || (is_reported && peak >= u64::from(now / 2))
        }
        None => is_reported,
    };
    if !is_likely {
        return None;
    }
    let hint = match more(now, bounds.caps.processes) {
        Some(count) => bounds.raised_call(&format!("max_processes: {count}")),
        None => no_more("processes"),
    };
    let what = format!("the program had {now} processes and threads, and may have no more (`max_processes`)");
    Some(denial("limit.processes", "processes", what, hint))
}

fn output(bounds: &Bounds, evidence: &Evidence<'_>) -> Option<Denial> {
    let (total, now) = (evidence.output?, bounds.limits.output_bytes);
    let hint = if now < bounds.caps.output_bytes {
        let bytes = total.min(bounds.caps.output_bytes);
        format!("next: execute_code {{resource_limits: {{max_output_bytes: {bytes}}}}}, or write a file")
    } else {
        no_more("output_bytes")
    };
    let what = format!("of {total} bytes of output the first {now} are kept (`max_output_bytes`)");
    Some(denial("limit.output", "output", what, hint))
}

fn last_lines(text: &str) -> impl Iterator<Item = &str> {
    let from = text.len().saturating_sub(ERROR_BYTES_MAX);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at));
    text[from.unwrap_or_default()..].lines()
}

/// Returns the denial for a refusal of the sandbox that shows in the program's error, which it has not handled.
pub(crate) fn refused_by_kernel(error_text: &str) -> Option<Denial> {
    const REFUSALS: [(&str, &[&str], &str, &str); 3] = [
        (
            "kernel.read_only",
            &["Read-only file system", "EROFS"],
            "mount_namespace",
            "Write below /workspace, /tmp or $HOME; all else is read-only.",
        ),
        (
            "kernel.not_permitted",
            &["Operation not permitted", "EPERM"],
            "seccomp",
            "Programs have no privileges: no raw sockets, no mounts, no other users, no tracing of others.",
        ),
        (
            "kernel.socket_family",
            &["Address family not supported", "EAFNOSUPPORT"],
            "seccomp",
            "Programs have TCP, UDP and UNIX sockets.",
        ),
    ];
    REFUSALS.into_iter().find_map(|(rule, words, layer, hint)| {
        let line = last_lines(error_text).find(|line| words.iter().any(|word| line.contains(word)))?;
        let what: String = line.trim().chars().take(LINE_CHARS_MAX).collect();
        Some(denial(rule, layer, what, hint))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        memory_bytes: 512 << 20,
        cpu_millicores: 1000,
        timeout_ms: 60_000,
        processes: 64,
        output_bytes: 1000,
        disk_bytes: 512 << 20,
    };

    fn bounds() -> Bounds {
        Bounds {
            limits: LIMITS,
            caps: Limits {
                memory_bytes: 8192 << 20,
                timeout_ms: 3_600_000,
                processes: 1024,
                output_bytes: 1 << 20,
                disk_bytes: 16384 << 20,
                ..LIMITS
            },
            names_memory: false,
            in_memory: true,
            in_session: false,
        }
    }

    fn exit(kind: ExitKind, limit: Option<&str>) -> Exit {
        Exit {
            kind,
            code: None,
            signal: None,
            limit: limit.map(str::to_owned),
        }
    }

    /// Returns the rule and the hint of each denial.
    fn findings(
        bounds: &Bounds,
        exit: &Exit,
        usage: &ResourceUsage,
        error_text: &str,
    ) -> Vec<(String, String)> {
        let evidence = Evidence {
            exit,
            usage,
            output: None,
            error_text,
        };
        let denials = denials(bounds, &evidence).into_iter();
        denials.map(|denial| (denial.rule, denial.hint)).collect()
    }

    fn check(bounds: &Bounds, exit: &Exit, error_text: &str, rule: &str, hint: &str) {
        let found = findings(bounds, exit, &ResourceUsage::default(), error_text);
        assert_eq!(found, [(rule.to_owned(), hint.to_owned())]);
    }

    /// claim: [RES-12]
    #[test]
    fn each_limit_names_the_argument_that_raises_it() {
        let ended = exit(ExitKind::Code, None);
        let next = "next: execute_code {timeout_seconds: 120}, if the program ends by itself";
        check(
            &bounds(),
            &exit(ExitKind::Timeout, None),
            "",
            "limit.timeout",
            next,
        );
        let next = "next: execute_code {resource_limits: {max_ram_mb: 1024}}";
        check(
            &bounds(),
            &exit(ExitKind::OutOfMemory, None),
            "",
            "limit.memory",
            next,
        );
        let full = "OSError: [Errno 28] No space left on device";
        let next = "next: execute_code {resource_limits: {max_disk_mb: 1024}}";
        check(&bounds(), &ended, full, "limit.disk", next);
        let named = Bounds {
            names_memory: true,
            ..bounds()
        };
        let next = "next: execute_code {resource_limits: {max_disk_mb: 1024, max_ram_mb: 2048}}";
        check(&named, &ended, full, "limit.disk", next);
        let locked = exit(ExitKind::Limit, Some("locks"));
        let next = "Lock longer ranges, or fewer files at once.";
        check(&bounds(), &locked, "", "limit.locks", next);
        let forks = "bash: fork: retry: Resource temporarily unavailable\n";
        let next = "next: execute_code {resource_limits: {max_processes: 128}}";
        check(&bounds(), &ended, forks, "limit.processes", next);
        let session = Bounds {
            in_session: true,
            ..bounds()
        };
        let next = "next: create_session {resource_limits: {max_ram_mb: 1024}} (a session keeps the limits that it was made with)";
        check(
            &session,
            &exit(ExitKind::OutOfMemory, None),
            "",
            "limit.memory",
            next,
        );
        let next = "next: execute_code {timeout_seconds: 120}, if the program ends by itself";
        check(
            &session,
            &exit(ExitKind::Timeout, None),
            "",
            "limit.timeout",
            next,
        );
    }

    #[test]
    fn limit_at_its_cap_is_not_advised_to_be_raised() {
        let all = Bounds {
            caps: LIMITS,
            ..bounds()
        };
        let next = "next: use less; it has the most that the operator allows (`caps.ram_mb`)";
        check(&all, &exit(ExitKind::OutOfMemory, None), "", "limit.memory", next);
        assert_eq!(more(3, 5), Some(5));
        assert_eq!(more(2, 5), Some(4));
        assert_eq!(more(5, 5), None);
        assert_eq!([1, 3, 5].map(|now| more_disk(now, 5)), [Some(4), Some(5), None]);
    }

    #[test]
    fn only_limits_that_were_met_are_reported() {
        let ended = exit(ExitKind::Code, None);
        let found = |usage: ResourceUsage, error_text: &str| findings(&bounds(), &ended, &usage, error_text);
        let peak = |processes| ResourceUsage {
            processes_peak: Some(processes),
            ..ResourceUsage::default()
        };
        assert!(found(ResourceUsage::default(), "ValueError: no").is_empty());
        let blocked = "BlockingIOError: [Errno 11] Resource temporarily unavailable";
        assert!(found(peak(3), blocked).is_empty(), "a read that would block");
        assert_eq!(found(peak(64), "").len(), 1, "the program has caught it");
        let session = Bounds {
            in_session: true,
            ..bounds()
        };
        let of_call = |error_text: &str| findings(&session, &ended, &peak(64), error_text).len();
        assert_eq!(of_call(""), 0, "an earlier call has met it");
        assert_eq!(of_call(blocked), 1);
        let full = ResourceUsage {
            disk_bytes: (256 << 20) - 4096,
            ..ResourceUsage::default()
        };
        assert_eq!(found(full, "")[0].0, "limit.disk");
    }

    #[test]
    fn kernel_refusals_are_recognized_in_the_programs_error() {
        let rule = |error_text: &str| refused_by_kernel(error_text).map(|denial| denial.rule);
        let refused = |error_text: &str, expect: &str| {
            assert_eq!(rule(error_text).as_deref(), Some(expect), "{error_text}")
        };
        refused("[Errno 30] Read-only file system: '/usr/x'", "kernel.read_only");
        refused("EROFS: read-only file system, open '/usr/x'", "kernel.read_only");
        refused(
            "one\nmount: /x: Operation not permitted\n",
            "kernel.not_permitted",
        );
        assert_eq!(rule("[Errno 2] No such file or directory: 'x'"), None);
    }
}
