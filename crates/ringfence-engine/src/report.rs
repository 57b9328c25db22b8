//! Builds the result of an execution from its outcome. The only maker of a [`Report`]: streams and files have been
//! redacted as they came, and everything else from the program is redacted here.

use crate::{
    artifacts::Staged,
    backend::RawOutcome,
    error::denial,
    language::{Blocked, ProgramReport},
    limits_met::{self, Bounds, Evidence},
    policy::Grant,
    secrets::SecretLease,
    streams::{CapturedStream, whole_characters},
};
use ringfence_jail::wire::{Cause, Ending, Usage};
use ringfence_redact::Redactor;
use ringfence_types::{
    Analysis, Denial, Display, ExecutionResult, Exit, ExitKind, Lossy, Phases, ResourceUsage, Summary, Tier,
    Truncated, Validation,
};
use std::{borrow::Cow, time::Duration};

#[derive(Debug)]
pub(crate) struct Report {
    result: ExecutionResult,
    redactions: u64,
}

impl Report {
    /// Returns the result, and the number of secrets redacted from it, its streams and its files.
    pub(crate) fn into_parts(self) -> (ExecutionResult, u64) {
        (self.result, self.redactions)
    }
}

pub(crate) struct About<'a> {
    pub(crate) execution_id: &'a str,
    pub(crate) grant: &'a Grant,
    pub(crate) session_id: Option<String>,
    pub(crate) session_ended: Option<String>,
    pub(crate) phases: Phases,
    pub(crate) duration_ms: f64,
    pub(crate) validation: Option<Validation>,
    /// The reason why `validation` is missing.
    pub(crate) unchecked: Option<Denial>,
    /// Refused connections and other denials.
    pub(crate) refused: Vec<Denial>,
    pub(crate) bounds: Bounds,
}

/// Signals of limits that the kernel enforces by signal (setrlimit(2)), and of the system call filter.
const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;
const SIGSYS: i32 = 31;

pub(crate) fn build(
    raw: &RawOutcome,
    program: ProgramReport,
    staged: Staged,
    about: About<'_>,
    lease: &SecretLease,
) -> Report {
    let (request, rules) = (&about.grant.request, &about.grant.rules);
    let exit = exit(&raw.ending);
    let shown = |kept| {
        if request.capture_output {
            text(kept)
        } else {
            (String::new(), false)
        }
    };
    let (stdout, lossy_out) = shown(&raw.stdout);
    let (stderr, lossy_err) = shown(&raw.stderr);
    let mut redaction = Redaction::new(&lease.redactor);
    let program = redaction.program(program);
    let display = displayed(program.display, &staged);
    let denials = redaction.denials([staged.denials, about.refused].concat());
    let said = program.error.as_ref().map_or(&stderr, |error| &error.message);
    let mut denials = [limits_met(raw, about.bounds, &exit, said), denials].concat();
    // Output that was not requested was not cut by a limit.
    denials.retain(|denial| request.capture_output || denial.rule != "limit.output");
    denials.extend(limits_met::refused_by_kernel(said));
    let mut security_events = filtered(&exit);
    security_events.extend(staged.security_events);
    security_events.extend(unredactable(lease));
    security_events.extend(about.unchecked);
    // Without restrictions there are no refusals, and those in the report are forged.
    if rules.restrict() {
        let events = program.security_events.iter();
        security_events.extend(events.map(|event| refused(event, rules.profile.as_str())));
    }
    let validation = about.validation.map(|found| redaction.validation(found));
    let redactions = redaction.count + staged.found + raw.stdout.found + raw.stderr.found;
    let result = ExecutionResult {
        request_id: about.execution_id.to_owned(),
        execution_id: about.execution_id.to_owned(),
        namespace: request.namespace.to_string(),
        session_id: about.session_id,
        session_ended: about.session_ended,
        language: request.language,
        backend: about.grant.backend.to_string(),
        success: exit.kind == ExitKind::Code && exit.code == Some(0) && program.error.is_none(),
        exit_code: exit_code(&exit),
        exit,
        stdout,
        stderr,
        stdout_bytes: raw.stdout.total,
        stderr_bytes: raw.stderr.total,
        truncated: Truncated {
            stdout: request.capture_output && raw.stdout.is_cut,
            stderr: request.capture_output && raw.stderr.is_cut,
        },
        lossy: Lossy {
            stdout: lossy_out,
            stderr: lossy_err,
        },
        result: program.result,
        result_repr: program.result_repr,
        display,
        variables: program.variables,
        error: program.error,
        artifacts: staged.artifacts,
        duration_ms: about.duration_ms,
        phases: about.phases,
        resource_usage: usage(&raw.ending.usage),
        isolation: raw.isolation.clone(),
        denials,
        security_events,
        validation,
    };
    Report { result, redactions }
}

struct Redaction<'a> {
    redactor: &'a Redactor,
    count: u64,
    /// True if texts may end within a secret.
    is_cut: bool,
}

impl<'a> Redaction<'a> {
    fn new(redactor: &'a Redactor) -> Self {
        Self {
            redactor,
            count: 0,
            is_cut: false,
        }
    }

    fn text(&mut self, text: &mut String) {
        let clean = if self.is_cut {
            self.redactor.cut_text(text)
        } else {
            self.redactor.text(text)
        };
        if let Cow::Owned(clean) = clean {
            *text = clean;
            self.count += 1;
        }
    }

    fn program(&mut self, mut program: ProgramReport) -> ProgramReport {
        if self.redactor.is_idle() {
            return program;
        }
        self.is_cut = program.is_cut;
        if let Some(result) = &mut program.result {
            let found = self.redactor.json(result);
            self.count += found.secrets + found.personal;
        }
        program.result_repr.iter_mut().for_each(|text| self.text(text));
        program.variables.iter_mut().for_each(|text| self.text(text));
        let events = program.security_events.iter_mut();
        events.for_each(|event| self.text(&mut event.module));
        for display in &mut program.display {
            let (text, artifact) = (display.text.iter_mut(), display.artifact.iter_mut());
            text.chain(artifact).for_each(|text| self.text(text));
        }
        if let Some(error) = &mut program.error {
            for text in [&mut error.kind, &mut error.message, &mut error.traceback] {
                self.text(text);
            }
        }
        program
    }

    /// Redacts findings, which repeat parts of the code; that may contain a secret from the vault.
    fn validation(&mut self, found: Validation) -> Validation {
        if self.redactor.is_idle() {
            return found;
        }
        let clean = serde_json::to_value(&found).and_then(|mut value| {
            let taken = self.redactor.json(&mut value);
            self.count += taken.secrets + taken.personal;
            serde_json::from_value(value)
        });
        // If redaction replaced an enumerated word, all details are left out.
        clean.unwrap_or_else(|_| Validation {
            issues: Vec::new(),
            fixes_applied: Vec::new(),
            fixed_code: None,
            validation: Summary::default(),
            analysis: Analysis::default(),
            recommendations: Vec::new(),
            ..found
        })
    }

    fn denials(&mut self, mut denials: Vec<Denial>) -> Vec<Denial> {
        self.is_cut = false;
        for denial in &mut denials {
            self.text(&mut denial.what);
            self.text(&mut denial.hint);
        }
        denials
    }
}

fn unredactable(lease: &SecretLease) -> impl Iterator<Item = Denial> {
    lease.unredactable().into_iter().map(|(name, why)| {
        let name = name.as_str();
        let what = format!("the secret {name} is not redacted from the program's output: {why}");
        denial("redact.too_short", "redact", what, "Use a longer secret.")
    })
}

fn refused(event: &Blocked, profile: &str) -> Denial {
    let line = event
        .line
        .map_or_else(String::new, |line| format!(" (line {line})"));
    let list = match profile {
        "unrestricted" => "`allowed_imports`".to_owned(),
        profile => format!("the profile `{profile}`"),
    };
    let module = &event.module;
    let what = format!("import of `{module}`{line} is not in {list}");
    let hint = format!("Name it by `allowed_imports: [\"{module}\"]`, or choose a profile that has it.");
    denial("blocked_import", "language", what, hint)
}

/// Decodes a stream. A character that was cut by the limit does not count as lossy.
fn text(kept: &CapturedStream) -> (String, bool) {
    let bytes = match kept.is_cut {
        true => whole_characters(&kept.bytes),
        false => &kept.bytes,
    };
    let text = String::from_utf8_lossy(bytes);
    let is_lossy = matches!(text, Cow::Owned(_));
    (text.into_owned(), is_lossy)
}

/// Keeps displays whose artifact exists; a PNG or JPEG must have such content, since the program chose name and type.
fn displayed(mut display: Vec<Display>, staged: &Staged) -> Vec<Display> {
    for one in &mut display {
        let saved = one.artifact.as_ref().and_then(|name| staged.saved.get(name));
        one.artifact = saved.cloned().or_else(|| one.artifact.take());
    }
    let is_there = |mime: &str, name: &str| {
        let by_content = matches!(mime, "image/png" | "image/jpeg");
        let artifact = staged.artifacts.iter().find(|artifact| artifact.name == name);
        artifact.is_some_and(|artifact| !by_content || artifact.mime == mime)
    };
    display.retain(|one| one.artifact.as_ref().is_none_or(|name| is_there(&one.mime, name)));
    display
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
        (Cause::Locks, _) => by(ExitKind::Limit, Some(SIGKILL), Some("locks")),
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

/// Returns the exit code as a shell would; 124 for a timeout, as timeout(1).
fn exit_code(exit: &Exit) -> i32 {
    match (exit.kind, exit.code, exit.signal) {
        (ExitKind::Timeout, ..) => 124,
        (ExitKind::Cancelled, ..) => 130,
        (_, Some(code), _) => code,
        (_, None, signal) => 128 + signal.unwrap_or(0),
    }
}

fn limits_met(raw: &RawOutcome, bounds: Bounds, exit: &Exit, said: &str) -> Vec<Denial> {
    let cut = [&raw.stdout, &raw.stderr]
        .into_iter()
        .filter(|stream| stream.is_cut);
    let evidence = Evidence {
        exit,
        usage: &usage(&raw.ending.usage),
        output: cut.map(|stream| stream.total).max(),
        error_text: said,
    };
    let bounds = Bounds {
        in_memory: bounds.in_memory && raw.isolation.tier == Tier::Full,
        ..bounds
    };
    limits_met::denials(&bounds, &evidence)
}

fn filtered(exit: &Exit) -> Vec<Denial> {
    if exit.signal != Some(SIGSYS) {
        return Vec::new();
    }
    let what = "the program used the system call interface of another architecture and was killed";
    let hint = "Run programs built for this machine's architecture.";
    vec![denial("seccomp.foreign_abi", "seccomp", what, hint)]
}

fn usage(usage: &Usage) -> ResourceUsage {
    let milliseconds = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    ResourceUsage {
        cpu_user_ms: milliseconds(usage.cpu_user),
        cpu_system_ms: milliseconds(usage.cpu_system),
        max_rss_bytes: usage.memory_peak_bytes,
        processes_peak: usage.processes_peak,
        disk_bytes: usage.disk_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_types::Artifact;

    #[test]
    fn refused_import_is_reported_with_line_and_profile() {
        let event = |line| Blocked {
            module: "os".to_owned(),
            line,
        };
        let denial = refused(&event(Some(3)), "basic");
        assert_eq!(
            (denial.rule.as_str(), denial.layer.as_str(), denial.what.as_str()),
            (
                "blocked_import",
                "language",
                "import of `os` (line 3) is not in the profile `basic`"
            )
        );
        assert!(denial.hint.contains("allowed_imports: [\"os\"]"));
        assert_eq!(
            refused(&event(None), "unrestricted").what,
            "import of `os` is not in `allowed_imports`"
        );
    }

    #[test]
    fn display_needs_an_existing_artifact() {
        let artifact = |name: &str, mime: &str| Artifact {
            name: name.to_owned(),
            size_bytes: 1,
            sha256: String::new(),
            mime: mime.to_owned(),
            signature: None,
            uri: None,
            content_b64: None,
        };
        let staged = Staged {
            artifacts: vec![
                artifact("output/a.png", "image/png"),
                artifact("output/b.png", "text/plain"),
                artifact("output/c.html", "text/html"),
            ],
            ..Staged::default()
        };
        let shows = |mime: &str, name: Option<&str>| {
            let one = Display {
                mime: mime.to_owned(),
                artifact: name.map(str::to_owned),
                text: name.is_none().then(|| "x".to_owned()),
            };
            !displayed(vec![one], &staged).is_empty()
        };
        assert!(shows("image/png", Some("output/a.png")));
        assert!(shows("text/html", Some("output/c.html")));
        assert!(shows("text/html", None));
        assert!(!shows("image/png", Some("output/b.png")));
        assert!(!shows("image/jpeg", Some("output/a.png")));
        assert!(!shows("image/png", Some("a.png")));
        assert!(!shows("image/png", Some("/etc/passwd")));
    }
}
