//! An interpreter that stays alive between calls: its start, the encoding of calls, and their ends. Requests go to its
//! standard input, which its driver moves away; reports, which the program can forge, come from descriptor 3.

mod given;
mod shell;

pub(crate) use given::encode_given;
pub(crate) use shell::is_read_by_bash;

use super::{Checks, Launch, ProgramReport, by_name, literal, python_program, read_report, report::record};
use ringfence_types::{Argument, Language};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, sync::LazyLock};

static PYTHON_SESSION: LazyLock<String> = LazyLock::new(|| {
    let session = literal(include_str!("python_session.py"));
    python_program(&format!("compile({session}, '<ringfence>', 'exec')"))
});

static NODE_SESSION: LazyLock<String> =
    LazyLock::new(|| format!("({})();", include_str!("node_session.cjs").trim_end()));

pub(crate) const REQUEST_BYTES_MAX: usize = 96 << 20;
/// The records of one call together.
const REPORT_BYTES_MAX: usize = 4 << 20;
/// A value for another session: its JSON is at most 16 MiB, and escapes make it longer.
const VALUE_BYTES_MAX: usize = 24 << 20;
/// Most elements of a shell's array.
const WORDS_MAX: usize = 4096;
/// Depth of a value, in lists and objects. The drivers have the same limit.
const DEPTH_MAX: usize = 100;
/// Size of the record that ends a call.
const END_BYTES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsendable {
    TooLong,
    Nul,
    Name,
    Value,
    Deep,
}

impl fmt::Display for Unsendable {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(
                to,
                "code, arguments and input are more than {} MiB",
                REQUEST_BYTES_MAX >> 20
            ),
            Self::Nul => write!(to, "a shell's code and values cannot hold a NUL"),
            Self::Name => write!(
                to,
                "a variable's name is letters, digits and _, at most {NAME_BYTES_MAX} of them"
            ),
            Self::Value => write!(to, "not a value in the bridge format"),
            Self::Deep => write!(to, "deeper than {DEPTH_MAX}"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// From 1; an interpreter reports 0 when it is ready.
    pub(crate) number: u64,
    /// The name of the code in tracebacks.
    pub(crate) name: &'a str,
    pub(crate) code: &'a str,
    pub(crate) args: &'a [Argument],
    /// Variables to set in the session from now on.
    pub(crate) env: &'a [(String, String)],
    pub(crate) stdin: &'a [u8],
    /// For this call only, and only in Python.
    pub(crate) checks: Option<&'a Checks>,
}

/// The command of a session's interpreter, if none was started ahead. It reads requests from its standard input.
pub(crate) fn launch(language: Language, interpreter: &str) -> Launch {
    let (words, env): (&[&str], &[(&str, &str)]) = match language {
        Language::Python => (
            &["-c", &PYTHON_SESSION],
            &[
                ("PYTHONDONTWRITEBYTECODE", "1"),
                // There is no display.
                ("MPLBACKEND", "Agg"),
            ],
        ),
        Language::Node => (&["-e", &NODE_SESSION], &[]),
        Language::Typescript => (&["--enable-source-maps", "-e", &NODE_SESSION], &[]),
        Language::Shell => (
            &["--norc", "--noprofile", "--noediting", "-i"],
            &[("PS1", ""), ("PS2", ""), ("PROMPT_COMMAND", shell::SETUP)],
        ),
    };
    Launch::of(std::iter::once(interpreter).chain(words.iter().copied()), env)
}

#[derive(Serialize)]
struct Request<'a> {
    call: u64,
    name: &'a str,
    code: &'a str,
    args: Vec<&'a str>,
    env: BTreeMap<&'a str, &'a str>,
    /// Its size; the bytes follow the request.
    stdin: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    checks: Option<&'a Checks>,
}

pub(crate) fn encode_call(language: Language, call: &Call<'_>) -> Result<Vec<u8>, Unsendable> {
    if call.code.len() + call.stdin.len() > REQUEST_BYTES_MAX {
        return Err(Unsendable::TooLong);
    }
    if language == Language::Shell {
        return shell::lines(call);
    }
    let mut message = frame(&Request {
        call: call.number,
        name: call.name,
        code: call.code,
        args: call.args.iter().map(Argument::as_str).collect(),
        env: by_name(call.env),
        stdin: call.stdin.len(),
        checks: call.checks,
    })?;
    message.extend_from_slice(call.stdin);
    Ok(message)
}

/// Encodes a request for the value of a variable, as bridge JSON: see `docs/sessions.md`.
pub(crate) fn encode_get(language: Language, number: u64, name: &str) -> Result<Vec<u8>, Unsendable> {
    if !is_name(name) {
        return Err(Unsendable::Name);
    }
    match language {
        Language::Shell => Ok(shell::get(number, name)),
        _ => frame(&serde_json::json!({"call": number, "get": name})),
    }
}

/// Encodes a request to set a variable to a value from another session.
pub(crate) fn encode_set(
    language: Language,
    number: u64,
    name: &str,
    bridge: &str,
) -> Result<Vec<u8>, Unsendable> {
    if !is_name(name) {
        return Err(Unsendable::Name);
    }
    if language == Language::Shell {
        // Tags and escapes make it longer.
        if bridge.len() > 16 * shell::VARIABLE_BYTES_MAX {
            return Err(Unsendable::TooLong);
        }
        let value = serde_json::from_str(bridge).map_err(|_| Unsendable::Value)?;
        return shell::set(number, name, &value);
    }
    // Sent unchanged, to keep the order of its keys. Parsed first, because nothing may follow the value.
    serde_json::from_str::<serde::de::IgnoredAny>(bridge).map_err(|_| Unsendable::Value)?;
    framed(format!("{{\"call\":{number},\"set\":\"{name}\",\"value\":{bridge}}}").into_bytes())
}

const NAME_BYTES_MAX: usize = 256;

fn is_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX
        && name.starts_with(|first: char| first == '_' || first.is_ascii_alphabetic())
        && name
            .chars()
            .all(|each| each == '_' || each.is_ascii_alphanumeric())
}

fn frame(request: &impl Serialize) -> Result<Vec<u8>, Unsendable> {
    framed(serde_json::to_vec(request).map_err(|_| Unsendable::TooLong)?)
}

fn framed(mut json: Vec<u8>) -> Result<Vec<u8>, Unsendable> {
    if json.len() > REQUEST_BYTES_MAX {
        return Err(Unsendable::TooLong);
    }
    let length = u32::try_from(json.len()).map_err(|_| Unsendable::TooLong)?;
    json.splice(0..0, length.to_be_bytes());
    Ok(json)
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct DriverAnswer {
    pub(crate) number: u64,
    pub(crate) ok: bool,
    /// The status of the last command, in a shell.
    pub(crate) status: Option<i32>,
    pub(crate) report: ProgramReport,
    /// The requested value: bridge JSON, unchecked.
    pub(crate) bridge: Option<String>,
    /// True if more was reported than is kept.
    pub(crate) is_cut: bool,
}

/// Finds the ends of calls in the reports of a session. Keeps at most what one call may report.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    awaited: Option<u64>,
    /// The beginning of a record.
    part: Vec<u8>,
    /// Bytes still to drop of a record that is too long.
    drop: usize,
    kept: Vec<u8>,
    bridge: Option<String>,
    /// A shell's report of a variable.
    words: Vec<String>,
    is_cut: bool,
}

#[derive(Deserialize)]
struct End {
    call: u64,
    /// Missing in a shell, where a call is successful if its status is 0.
    ok: Option<bool>,
    #[serde(default)]
    status: Option<i32>,
}

impl Reports {
    /// Assigns all reports from now on to this call. A new session reports the end of call 0 when it is ready.
    pub(crate) fn expect(&mut self, number: u64) {
        // An incomplete earlier record, of any announced length, is not a part of this call's report.
        *self = Self {
            awaited: Some(number),
            ..Self::default()
        };
    }

    /// Takes bytes in any pieces; returns the answer when the awaited call has ended. Drops bytes between calls.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Option<DriverAnswer> {
        let mut answer = None;
        while !bytes.is_empty() {
            let dropped = self.drop.min(bytes.len());
            self.drop -= dropped;
            bytes = &bytes[dropped..];
            let wanted = self.wanted();
            let taken = wanted.min(bytes.len());
            self.part.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if self.part.len() >= 5 && !self.has_room() {
                self.is_cut = true;
                self.drop = self.wanted();
                self.part.clear();
            } else if self.part.len() >= 5 && self.wanted() == 0 {
                let record = std::mem::take(&mut self.part);
                answer = self.take(&record).or(answer);
            }
        }
        answer
    }

    /// Returns the reports of a call that did not end because the interpreter has ended.
    pub(crate) fn unfinished(&mut self) -> DriverAnswer {
        self.answer(&End {
            call: self.awaited.unwrap_or(0),
            ok: Some(false),
            status: None,
        })
    }

    /// Returns the number of bytes missing from the current record.
    fn wanted(&self) -> usize {
        match self.part.first_chunk::<5>() {
            None => 5 - self.part.len(),
            Some(head) => 5 + length(head) - self.part.len(),
        }
    }

    fn has_room(&self) -> bool {
        let Some(head) = self.part.first_chunk::<5>() else {
            return true;
        };
        match head[0] {
            b'C' => length(head) <= END_BYTES_MAX,
            b'J' => length(head) <= VALUE_BYTES_MAX,
            b'W' => {
                let taken: usize = self.words.iter().map(String::len).sum();
                self.words.len() < WORDS_MAX && taken + length(head) <= VALUE_BYTES_MAX
            }
            _ => self.awaited.is_some() && self.kept.len() + 5 + length(head) <= REPORT_BYTES_MAX,
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Option<DriverAnswer> {
        let (tag, payload, _) = record(bytes)?;
        match tag {
            b'C' => {
                let end: End = serde_json::from_slice(payload).ok()?;
                if self.awaited != Some(end.call) {
                    return None;
                }
                self.awaited = None;
                return Some(self.answer(&end));
            }
            b'J' => self.bridge = String::from_utf8(payload.to_vec()).ok(),
            b'W' => self.words.push(String::from_utf8_lossy(payload).into_owned()),
            _ => self.kept.extend_from_slice(bytes),
        }
        None
    }

    fn answer(&mut self, end: &End) -> DriverAnswer {
        let kept = std::mem::take(&mut self.kept);
        DriverAnswer {
            number: end.call,
            ok: end.ok.unwrap_or(end.status == Some(0)),
            status: end.status,
            report: read_report(&kept),
            bridge: self
                .bridge
                .take()
                .or_else(|| shell::value(&std::mem::take(&mut self.words))),
            is_cut: std::mem::take(&mut self.is_cut),
        }
    }
}

fn length(head: &[u8; 5]) -> usize {
    usize::try_from(u32::from_be_bytes([head[1], head[2], head[3], head[4]])).unwrap_or(usize::MAX >> 1)
}

#[cfg(test)]
mod tests;
