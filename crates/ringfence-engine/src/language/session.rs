//! An interpreter that stays alive between calls: how it is started, how a call is written to it, and how the end of a
//! call is found in what it reports. Requests go to its standard input, which its driver puts out of the program's way;
//! reports come from descriptor 3. What is read here is the program's to forge, like everything that a driver says.

mod given;
mod shell;

pub(crate) use given::encode_given;
pub(crate) use shell::is_read_by_bash;

use super::{Checks, Launch, ProgramReport, by_name, literal, python_program, read_report, report::record};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ringfence_types::{Argument, Language};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, sync::LazyLock};

/// A Python that was not started ahead.
static PYTHON_SESSION: LazyLock<String> = LazyLock::new(|| {
    let session = literal(include_str!("python_session.py"));
    python_program(&format!("compile({session}, '<ringfence>', 'exec')"))
});

/// A Node.js that was not started ahead.
static NODE_SESSION: LazyLock<String> =
    LazyLock::new(|| format!("({})();", include_str!("node_session.cjs").trim_end()));

/// The largest request, with everything in it.
pub(crate) const REQUEST_BYTES_MAX: usize = 96 << 20;
/// The records of one call together.
const REPORT_BYTES_MAX: usize = 4 << 20;
/// A value that is given away: its JSON is at most 16 MiB, and escapes make it longer.
const VALUE_BYTES_MAX: usize = 24 << 20;
/// Elements of a shell's array.
const WORDS_MAX: usize = 4096;
/// Depth of a value, in lists and objects. The drivers have the same bound.
const DEPTH_MAX: usize = 100;
/// The record that ends a call.
const END_BYTES_MAX: usize = 256;

/// Why a call cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsendable {
    TooLong,
    Nul,
    Name,
    Value,
    /// In lists and objects.
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
            Self::Value => write!(to, "not a value that a session has given"),
            Self::Deep => write!(to, "deeper than {DEPTH_MAX}"),
        }
    }
}

/// One piece of code for a session.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// From 1; 0 is what an interpreter reports when it is ready.
    pub(crate) number: u64,
    /// The name of the code in tracebacks.
    pub(crate) name: &'a str,
    pub(crate) code: &'a str,
    pub(crate) args: &'a [Argument],
    /// Set in the session from now on.
    pub(crate) env: &'a [(String, String)],
    pub(crate) stdin: &'a [u8],
    /// For this call alone. Only Python has them.
    pub(crate) checks: Option<&'a Checks>,
}

/// How the interpreter of a session is started, where none was started ahead. It reads requests from its standard
/// input.
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
            &[("PS1", ""), ("PS2", ""), ("PROMPT_COMMAND", shell::BEGINNING)],
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
    stdin: String,
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
    frame(&Request {
        call: call.number,
        name: call.name,
        code: call.code,
        args: call.args.iter().map(Argument::as_str).collect(),
        env: by_name(call.env),
        stdin: STANDARD.encode(call.stdin),
        checks: call.checks,
    })
}

/// Asks for a variable, as bridge JSON: see `docs/sessions.md`.
pub(crate) fn encode_get(language: Language, number: u64, name: &str) -> Result<Vec<u8>, Unsendable> {
    if !is_name(name) {
        return Err(Unsendable::Name);
    }
    match language {
        Language::Shell => Ok(shell::get(number, name)),
        _ => frame(&serde_json::json!({"call": number, "get": name})),
    }
}

/// Gives a variable a value that another session has given.
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
        // Tags and escapes make it longer; what is much longer is not read.
        if bridge.len() > 16 * shell::VARIABLE_BYTES_MAX {
            return Err(Unsendable::TooLong);
        }
        let value = serde_json::from_str(bridge).map_err(|_| Unsendable::Value)?;
        return shell::set(number, name, &value);
    }
    // As it came: the order of its keys is part of it. Looked at first, for nothing else may follow.
    serde_json::from_str::<serde::de::IgnoredAny>(bridge).map_err(|_| Unsendable::Value)?;
    framed(format!("{{\"call\":{number},\"set\":\"{name}\",\"value\":{bridge}}}").as_bytes())
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
    framed(&serde_json::to_vec(request).map_err(|_| Unsendable::TooLong)?)
}

fn framed(json: &[u8]) -> Result<Vec<u8>, Unsendable> {
    if json.len() > REQUEST_BYTES_MAX {
        return Err(Unsendable::TooLong);
    }
    let length = u32::try_from(json.len()).map_err(|_| Unsendable::TooLong)?;
    Ok([&length.to_be_bytes(), json].concat())
}

/// What has become of one call.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct DriverAnswer {
    pub(crate) number: u64,
    pub(crate) ok: bool,
    /// The status of the last command, in a shell.
    pub(crate) status: Option<i32>,
    pub(crate) report: ProgramReport,
    /// The value that was asked for: bridge JSON, unchecked.
    pub(crate) bridge: Option<String>,
    /// More was reported than what is kept.
    pub(crate) is_cut: bool,
}

/// Finds the calls' ends in what a session reports. Holds what one call may report and no more.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    awaited: Option<u64>,
    /// The beginning of a record.
    part: Vec<u8>,
    /// Bytes to drop, of a record that is too long.
    drop: usize,
    kept: Vec<u8>,
    bridge: Option<String>,
    /// What a shell tells of a variable.
    words: Vec<String>,
    is_cut: bool,
}

#[derive(Deserialize)]
struct End {
    call: u64,
    /// A shell's call goes well when its status is 0.
    ok: Option<bool>,
    #[serde(default)]
    status: Option<i32>,
}

impl Reports {
    /// What comes from now on belongs to this call. A new session reports the end of call 0 when it is ready.
    pub(crate) fn expect(&mut self, number: u64) {
        // A record that was begun before, however long it says it is, is not a part of this call's.
        *self = Self {
            awaited: Some(number),
            ..Self::default()
        };
    }

    /// Takes bytes as they come, in any pieces, and gives the answer when the awaited call has ended. What comes
    /// between two calls is dropped.
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

    /// What was told of a call whose end never came, because the interpreter is gone.
    pub(crate) fn unfinished(&mut self) -> DriverAnswer {
        self.answer(&End {
            call: self.awaited.unwrap_or(0),
            ok: Some(false),
            status: None,
        })
    }

    /// Bytes missing from the record that has begun.
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
