//! Shared by `run` and `session exec`: a program's output and end, findings about its script, and the test for a person
//! who can answer questions.

use super::{
    FAILED,
    hints::{rewrite, validation_in_commands},
};
use crate::{
    control::Response,
    render::diagnostics::{self, Bounds},
    terminal::{GuestStream, Raw, Terminal, quiet},
};
use ringfence_engine::OutputStream;
use ringfence_types::{
    Denial, ExecuteRequest, ExecutionResult, ExitKind, RequestError, Validate, Validation,
};
use rustix::{process::getpgrp, termios::tcgetpgrp};
use std::{
    io::{self, IsTerminal},
    path::Path,
};

/// Exit code for a broken pipe, as shells report it: 128 + SIGPIPE.
pub(super) const READER_LEFT: u8 = 141;
const NAMES_SHOWN: usize = 5;

pub(super) struct ProgramOutput {
    out: GuestStream<tokio::io::Stdout>,
    err: GuestStream<tokio::io::Stderr>,
    result: io::Result<()>,
}

impl ProgramOutput {
    pub(super) fn new(terminal: Terminal, raw: Raw) -> Self {
        let (out, err) = terminal.guest(raw);
        let result = Ok(());
        Self { out, err, result }
    }

    /// Writes bytes to the matching stream. False if stdout has failed and no more output is wanted.
    pub(super) async fn write(&mut self, stream: OutputStream, bytes: &[u8]) -> bool {
        self.result = match stream {
            OutputStream::Stdout => self.out.write(bytes).await,
            // A closed stderr does not end the run: its stdout may still be read.
            OutputStream::Stderr | OutputStream::Notice => quiet(self.err.write(bytes).await),
        };
        self.result.is_ok()
    }

    pub(super) async fn write_response(&mut self, response: Response) -> bool {
        match response {
            Response::Output { stream, bytes } => self.write(stream, &bytes.0).await,
            _ => true,
        }
    }

    /// Flushes both streams. False if the reader of stdout has closed it.
    pub(super) async fn end(mut self) -> Result<bool, RequestError> {
        for end in [self.result, self.out.end().await, quiet(self.err.end().await)] {
            match end {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(false),
                end => end.map_err(|error| {
                    RequestError::fault(
                        format!("could not write the script's output: {error}."),
                        "Redirect it to a file or pipe that accepts it.",
                    )
                })?,
            }
        }
        Ok(true)
    }
}

/// Prints what the script's own output does not show: how it ended, and what was refused.
pub(super) fn explain(terminal: Terminal, result: &ExecutionResult) {
    explain_end(terminal, result);
    for denial in other_denials(result) {
        let lost = match denial.rule.as_str() {
            "artifacts.plain_files" => "not kept: ",
            _ => "",
        };
        let hint = match rewrite(&denial.hint) {
            hint if hint.is_empty() => hint,
            hint => format!(" ({hint})"),
        };
        terminal.dim(&format!("{lost}{}{hint}", rewrite(&denial.what)));
    }
}

fn explain_end(terminal: Terminal, result: &ExecutionResult) {
    let (message, hint) = match result.exit.kind {
        ExitKind::Timeout | ExitKind::OutOfMemory | ExitKind::Limit => {
            match result.denials.iter().find(|denial| denial.is_limit()) {
                Some(met) => (format!("{}.", rewrite(&met.what)), rewrite(&met.hint)),
                None => (
                    "the script passed a limit and was stopped.".to_owned(),
                    "`--json` says which.".to_owned(),
                ),
            }
        }
        ExitKind::Signal => (
            "the script was ended by a signal.".to_owned(),
            "Its status is 128 + the signal's number.".to_owned(),
        ),
        ExitKind::Code | ExitKind::Cancelled => return,
    };
    terminal.error_with_hint(&message, &hint);
}

/// The denials, without limits if one was reported as the end, and without the output limit: all output was shown.
fn other_denials(result: &ExecutionResult) -> impl Iterator<Item = &Denial> {
    let is_reported = !matches!(result.exit.kind, ExitKind::Code | ExitKind::Signal);
    let denials = result.denials.iter();
    denials.filter(move |denial| denial.rule != "limit.output" && !(is_reported && denial.is_limit()))
}

/// Names the artifacts in the store. Others stay in the workspace, or a denial says why they were not kept.
pub(super) fn mention_artifacts(terminal: Terminal, result: &ExecutionResult) {
    let artifacts = result.artifacts.iter();
    let stored = artifacts.filter(|artifact| artifact.signature.is_some());
    let stored: Vec<&str> = stored.map(|artifact| artifact.name.as_str()).collect();
    let more = match stored.len().saturating_sub(NAMES_SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    if !stored.is_empty() {
        let names = stored[..stored.len().min(NAMES_SHOWN)].join(", ");
        let id = &result.execution_id;
        terminal.dim(&format!(
            "artifacts: {names}{more} (get them with `ringfence artifacts {id} --out DIR`)"
        ));
    }
}

/// The program's exit code; 1 if it succeeded, but its files could not be copied out.
pub(super) fn exit_code(result: &ExecutionResult) -> u8 {
    let mut denials = result.denials.iter();
    let is_uncopied = denials.any(|denial| denial.rule == "artifacts.copy");
    match u8::try_from(result.exit_code) {
        Ok(0) if is_uncopied => FAILED,
        Ok(code) => code,
        Err(_) => FAILED,
    }
}

/// True if there is a person who sees a question and can answer it.
pub(super) fn is_interactive(terminal: Terminal) -> bool {
    io::stdin().is_terminal() && !in_background() && terminal.has_person()
}

/// True for a background job: SIGTTIN would stop it as soon as it reads its terminal.
pub(super) fn in_background() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground != getpgrp())
}

/// The text of a checked script, for the code frames around findings.
#[derive(Clone, Debug)]
pub(super) struct Source {
    name: String,
    code: String,
}

impl Source {
    /// None if the code is not checked.
    pub(super) fn of(request: &ExecuteRequest, script: &Path) -> Option<Self> {
        (request.validate != Validate::Off).then(|| Self {
            name: script.to_string_lossy().into_owned(),
            code: request.code.clone(),
        })
    }

    /// Prints warnings and errors; only `ringfence validate` prints notes.
    pub(super) fn report(&self, terminal: Terminal, found: &Validation) {
        let found = &validation_in_commands(found.clone());
        let frames = diagnostics::of_code(&self.name, &self.code, found, Bounds::BESIDE);
        if !frames.is_empty() {
            terminal.note_styled(&frames);
        }
        if !found.fixes_applied.is_empty() {
            terminal.dim(&format!(
                "added to the script: {}",
                found.fixes_applied.join("; ")
            ));
        }
    }
}
