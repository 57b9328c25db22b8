//! The program of a container: starts it at once or ahead of its claim, limits and interrupts it, records its end.

use crate::{
    Failure,
    calls::{self, Reaped, Start, User},
    frame::{REPORT, STDERR, STDIN, STDOUT, Spec, Used},
    proc::{self, ProcessorTime},
    stream::Stream,
};
use std::{
    io::{self, PipeWriter, Write},
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    path::Path,
    time::Duration,
};

const WORKSPACE: &str = "/workspace";
const SIGINT: i32 = 2;
/// Signals that a session's shell (`SIGPWR`) and Node.js (`SIGSTKFLT`) catch in order to learn of an interrupt.
const ABANDON: i32 = 30;
const WAKE: i32 = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Descriptors {
    /// 0 to 2, and 3 if it reports.
    Plain,
    /// Always 3, and also 4, from which it reads its claim, and 5, on which it reports its imports.
    WithClaim,
}

pub struct Program {
    pid: i32,
    /// Pipe from which a program that was started ahead reads its claim.
    go: Option<PipeWriter>,
    memory_bytes: u64,
    pub is_killed: bool,
    pub is_out_of_memory: bool,
    /// Wait status, once it has ended.
    status: Option<i32>,
    /// Times and peak memory of all reaped processes.
    user: Duration,
    system: Duration,
    peak_kib: u64,
    processes_peak: u64,
    kills_before: u64,
}

impl Program {
    pub fn start(
        spec: &Spec,
        descriptors: Descriptors,
        user: Option<User>,
    ) -> Result<(Self, Vec<Stream>, Option<OwnedFd>), Failure> {
        let name = spec.argv.first().cloned().unwrap_or_default();
        let path = find(&name, &spec.environment)
            .ok_or_else(|| Failure::at(format!("find {name}"))(io::ErrorKind::NotFound.into()))?;
        // Pipes owned by the program's user, so that the program can reopen its streams.
        let pipe = || calls::as_user(user, io::pipe).map_err(Failure::at("pipes"));
        let (stdin_read, stdin) = pipe()?;
        let (stdout, stdout_write) = pipe()?;
        let (stderr, stderr_write) = pipe()?;
        let (report, report_write) = pipe()?;
        let mut inside: Vec<OwnedFd> = vec![stdin_read.into(), stdout_write.into(), stderr_write.into()];
        if spec.report || descriptors == Descriptors::WithClaim {
            inside.push(report_write.into());
        } else {
            drop(report_write);
        }
        let (mut go, mut imports) = (None, None);
        if descriptors == Descriptors::WithClaim {
            let (claim_read, claim_write) = pipe()?;
            let (imports_read, imports_write) = pipe()?;
            inside.extend([OwnedFd::from(claim_read), imports_write.into()]);
            (go, imports) = (Some(claim_write), Some(imports_read.into()));
        }
        let argv: Vec<String> = std::iter::once(path.clone())
            .chain(spec.argv.iter().skip(1).cloned())
            .collect();
        let environment: Vec<String> = spec
            .environment
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let pid = calls::start(&Start {
            path: &path,
            argv: &argv,
            environment: &environment,
            directory: WORKSPACE,
            rlimits: &spec.rlimits,
            user,
            descriptors: &inside,
        });
        let pid = pid.map_err(Failure::at(format!("start {path}")))?;
        drop(inside);
        calls::set_nonblocking(&stdin).map_err(Failure::at("pipes"))?;
        for output in [&stdout, &stderr] {
            calls::set_nonblocking(output).map_err(Failure::at("pipes"))?;
        }
        let pipes = vec![
            Stream::write_end(STDIN, stdin.into()),
            Stream::read_end(STDOUT, stdout.into()),
            Stream::read_end(STDERR, stderr.into()),
            Stream::read_end(REPORT, report.into()),
        ];
        let program = Self {
            pid,
            go,
            memory_bytes: spec.memory_bytes,
            is_killed: false,
            is_out_of_memory: false,
            status: None,
            user: Duration::ZERO,
            system: Duration::ZERO,
            peak_kib: 0,
            processes_peak: 0,
            kills_before: proc::kills_for_memory(),
        };
        Ok((program, pipes, imports))
    }

    /// Limits a program that waits, and writes its claim to it.
    pub fn go(mut self, spec: &Spec) -> Result<Self, Failure> {
        for (which, value) in &spec.rlimits {
            calls::limit(self.pid, *which, *value).map_err(Failure::at("limit the program"))?;
        }
        self.memory_bytes = spec.memory_bytes;
        if let Some(mut go) = self.go.take() {
            match go.write_all(&spec.word) {
                // If it has ended, that is reported as its end.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    return Err(Failure::at("go")(error));
                }
                _ => {}
            }
        }
        Ok(self)
    }

    pub fn runs(&self) -> bool {
        self.status.is_none() && self.go.is_none()
    }

    /// Interrupts the program as Ctrl-C does: it leads a process group. A session's shell and Node.js learn of the
    /// interrupt by a signal of their own, which they catch; `SIGINT` is for the command that a shell waits for.
    pub fn interrupt(&mut self) {
        let caught = proc::caught_signals(self.pid);
        let catches = |signal: i32| caught & (1 << (signal - 1)) != 0;
        // If it has ended, that is reported as its end.
        for signal in [ABANDON, WAKE].into_iter().filter(|signal| catches(*signal)) {
            drop(calls::send_signal(self.pid, signal));
        }
        if !catches(ABANDON) || proc::sleeps(self.pid) {
            drop(calls::send_signal(-self.pid, SIGINT));
        }
    }

    /// Records the end of a child. Returns true if it was this program.
    pub fn ended(&mut self, child: &Reaped) -> bool {
        self.user += child.user;
        self.system += child.system;
        self.peak_kib = self.peak_kib.max(child.max_rss_kib);
        if child.pid == self.pid {
            self.status = Some(child.status);
        }
        child.pid == self.pid
    }

    /// Samples the tree. True if it is over its memory limit, or the kernel has killed a process for lack of memory.
    pub fn is_over_memory(&mut self) -> bool {
        let seen = proc::tree();
        self.processes_peak = self.processes_peak.max(seen.processes);
        let is_over = self.memory_bytes > 0 && seen.memory_bytes > self.memory_bytes;
        is_over || proc::kills_for_memory() > self.kills_before
    }

    pub fn used(&mut self, living: ProcessorTime, unrouted: u64) -> Used {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.is_out_of_memory |= !self.is_killed && proc::kills_for_memory() > self.kills_before;
        Used {
            status: self.status.unwrap_or(0),
            out_of_memory: self.is_out_of_memory,
            user_us: micros(self.user + living.user),
            system_us: micros(self.system + living.system),
            memory_peak_kib: self.peak_kib,
            processes_peak: self.processes_peak,
            unrouted,
        }
    }
}

fn find(name: &str, environment: &[(String, String)]) -> Option<String> {
    let is_executable = |path: &str| {
        Path::new(path)
            .metadata()
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return is_executable(name).then(|| name.to_owned());
    }
    let path = environment.iter().find(|(name, _)| name == "PATH")?;
    path.1
        .split(':')
        .map(|directory| format!("{directory}/{name}"))
        .find(|path| is_executable(path))
}
