//! What `run` and `session exec` tell alike of a program's end, what was found of a script that runs, and when a person
//! is there to be asked.

use super::hints;
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

/// Broken pipe, as a shell shows it: 128 + SIGPIPE.
pub(super) const READER_LEFT: u8 = 141;
const NAMES_SHOWN: usize = 5;

/// What a program in a server writes, on our own streams.
pub(super) struct ProgramOutput {
    out: GuestStream<tokio::io::Stdout>,
    err: GuestStream<tokio::io::Stderr>,
    lost: io::Result<()>,
}

impl ProgramOutput {
    pub(super) fn new(terminal: Terminal, raw: Raw) -> Self {
        let (out, err) = terminal.guest(raw);
        let lost = Ok(());
        Self { out, err, lost }
    }

    /// False: more is not wanted.
    pub(super) async fn write(&mut self, stream: OutputStream, bytes: &[u8]) -> bool {
        self.lost = match stream {
            OutputStream::Stdout => self.out.write(bytes).await,
            // A closed stderr does not end the run: its stdout may still be read.
            OutputStream::Stderr | OutputStream::Notice => quiet(self.err.write(bytes).await),
        };
        self.lost.is_ok()
    }

    /// The same, of what a server says before its answer.
    pub(super) async fn take(&mut self, said: Response) -> bool {
        match said {
            Response::Output { stream, bytes } => self.write(stream, &bytes.0).await,
            _ => true,
        }
    }

    /// False: its reader has left.
    pub(super) async fn end(mut self) -> Result<bool, RequestError> {
        for end in [self.lost, self.out.end().await, quiet(self.err.end().await)] {
            match end {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(false),
                end => end.map_err(|error| {
                    RequestError::fault(
                        format!("could not write the script's output: {error}."),
                        "Send it to a place that takes it.",
                    )
                })?,
            }
        }
        Ok(true)
    }
}

/// What the script's own output cannot explain: its end, and what was refused.
pub(super) fn explain(terminal: Terminal, result: &ExecutionResult) {
    explain_end(terminal, result);
    for denial in other_denials(result) {
        let lost = match denial.rule.as_str() {
            "artifacts.plain_files" => "not kept: ",
            _ => "",
        };
        let hint = match hints::words(&denial.hint) {
            hint if hint.is_empty() => hint,
            hint => format!(" ({hint})"),
        };
        terminal.dim(&format!("{lost}{}{hint}", hints::words(&denial.what)));
    }
}

fn explain_end(terminal: Terminal, result: &ExecutionResult) {
    let (message, hint) = match result.exit.kind {
        ExitKind::Timeout | ExitKind::OutOfMemory | ExitKind::Limit => {
            match result.denials.iter().find(|denial| denial.is_limit()) {
                Some(met) => (format!("{}.", hints::words(&met.what)), hints::words(&met.hint)),
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
    terminal.complain(&message, &hint);
}

/// What was refused, but for the limit that has been told as the end, and for the output that is kept: it was shown
/// whole.
fn other_denials(result: &ExecutionResult) -> impl Iterator<Item = &Denial> {
    let is_told = !matches!(result.exit.kind, ExitKind::Code | ExitKind::Signal);
    result
        .denials
        .iter()
        .filter(move |denial| denial.rule != "limit.output" && !(is_told && denial.is_limit()))
}

pub(super) fn some_of<'a>(mut names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let shown = names.by_ref().take(NAMES_SHOWN).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Whether a person is there who sees a question and can answer it.
pub(super) fn has_answers(terminal: Terminal) -> bool {
    io::stdin().is_terminal() && !in_background() && terminal.has_person()
}

/// A background job that reads its terminal is stopped by SIGTTIN, wanted or not.
pub(super) fn in_background() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground != getpgrp())
}

/// A script that is looked at: what the frames are made of.
#[derive(Clone, Debug)]
pub(super) struct Source {
    name: String,
    code: String,
}

impl Source {
    /// None: the code is not checked.
    pub(super) fn of(request: &ExecuteRequest, script: &Path) -> Option<Self> {
        (request.validate != Validate::Off).then(|| Self {
            name: script.to_string_lossy().into_owned(),
            code: request.code.clone(),
        })
    }

    /// Warnings and errors; notes are for `ringfence validate`.
    pub(super) fn tell(&self, terminal: Terminal, found: &Validation) {
        let found = &hints::found_in_commands(found.clone());
        let frames = diagnostics::of_code(&self.name, &self.code, found, Bounds::BESIDE);
        if !frames.is_empty() {
            terminal.note_painting(&frames);
        }
        if !found.fixes_applied.is_empty() {
            terminal.dim(&format!(
                "added to the script: {}",
                found.fixes_applied.join("; ")
            ));
        }
    }
}
