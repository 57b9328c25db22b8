//! Values that are copied into a session: the caller's own, or a variable of another session of the namespace. They are
//! copied as JSON with a few more kinds than JSON has (see `docs/sessions.md`), and not trusted.

use super::{
    Session, Sessions,
    interpreter::{CallOutcome, DriverRequest},
};
use crate::{
    caller::Client,
    error::Result,
    language::session::{self, DriverAnswer},
    secrets::Secrets,
    streams::Stdio,
};
use ringfence_redact::{Found, Redactor};
use ringfence_types::{EnvName, ErrorCode, Language, Namespace, ProgramError, RequestError, SessionId};
use serde::de::IgnoredAny;
use serde_json::Value;
use std::{
    borrow::Cow,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

pub const BRIDGE_BYTES_MAX: usize = 16 << 20;

/// Most values of a JSON text that is parsed for redaction: in memory each takes much more than its text.
const VALUES_MAX: usize = 1 << 20;

/// Values that take as much memory as an object with one member.
const OBJECT_VALUES: usize = 8;

const NO_SUCH_NAME: &str = "`name` is a variable at the top of `from_session`; a call there makes it.";

#[derive(Clone, Debug)]
pub enum BridgedValue {
    Value(Value),
    Variable { session: SessionId, name: EnvName },
}

pub(crate) struct BridgeTarget<'a> {
    pub(crate) session: &'a SessionId,
    /// The variable's name there; `None`: its own name.
    pub(crate) name: Option<EnvName>,
    pub(crate) timeout_ms: u64,
    /// For the redactors of both sessions.
    pub(crate) secrets: &'a Secrets,
}

#[derive(Clone, Debug)]
pub struct Bridged {
    pub name: EnvName,
    /// Size of its JSON, in bytes.
    pub bytes: usize,
}

pub(crate) async fn carry(
    sessions: &Sessions,
    namespace: &Namespace,
    value: &BridgedValue,
    to: BridgeTarget<'_>,
) -> Result<Bridged> {
    // Both sessions are found before a request is sent to either.
    let target = sessions.find(namespace, to.session)?;
    let name = to.name.clone();
    let (value, name) = match value {
        BridgedValue::Value(value) => {
            let name = name.ok_or_else(|| {
                RequestError::invalid("`name` is missing.", "Say what the variable is to be called.")
            })?;
            let value = session::encode_given(value)
                .map_err(|why| RequestError::invalid(format!("`data`: {why}."), "Send it as a file."))?;
            (value, name)
        }
        BridgedValue::Variable { session, name: own } => {
            let source = sessions.find(namespace, session)?;
            (get(&source, own, &to).await?, name.unwrap_or_else(|| own.clone()))
        }
    };
    let bytes = value.len();
    if bytes > BRIDGE_BYTES_MAX {
        return Err(too_large());
    }
    set(&target, &name, &value, &to).await?;
    Ok(Bridged { name, bytes })
}

/// Reads a variable as JSON, which is untrusted.
async fn get(session: &Arc<Session>, name: &EnvName, to: &BridgeTarget<'_>) -> Result<String> {
    let message = |number| session::encode_get(session.language, number, name.as_str());
    let absent = || {
        RequestError::invalid(
            format!("the session {} has no variable `{}`.", session.id, name.as_str()),
            NO_SUCH_NAME,
        )
    };
    let answer = ask(session, name, to, message, absent).await?;
    let text = answer.bridge.ok_or_else(absent)?;
    if text.len() > BRIDGE_BYTES_MAX {
        return Err(too_large());
    }
    let no_json = || {
        RequestError::invalid(
            format!("the session {} returned invalid JSON.", session.id),
            "Its texts have to be Unicode, without halves of characters.",
        )
    };
    let redactor = session.redactor(to.secrets).await?;
    if redactor.is_idle() {
        return match serde_json::from_str::<IgnoredAny>(&text) {
            Ok(_) => Ok(text),
            Err(_) => Err(no_json()),
        };
    }
    if values(&text) > VALUES_MAX {
        return Err(RequestError::invalid(
            format!(
                "secrets are looked for in at most {VALUES_MAX} values; an object counts as {OBJECT_VALUES}, and this has more."
            ),
            "Move large data as a file: `get_file` and `put_file`.",
        ));
    }
    // The receiving session may not know the secrets in it, and would not redact them.
    let mut value: Value = serde_json::from_str(&text).map_err(|_| no_json())?;
    let found = redactor.json(&mut value);
    // Of equal keys only the last is parsed.
    if found == Found::default() && matches!(redactor.text(&text), Cow::Borrowed(_)) {
        // Unchanged: the order of keys may matter.
        return Ok(text);
    }
    Ok(value.to_string())
}

async fn set(session: &Arc<Session>, name: &EnvName, value: &str, to: &BridgeTarget<'_>) -> Result<()> {
    if session.language == Language::Shell && session::is_read_by_bash(name.as_str()) {
        return Err(RequestError::invalid(
            format!("bash itself reads `{}`: data there could run.", name.as_str()),
            "Give it another name with `as`; a call of the session can set this one.",
        ));
    }
    let message = |number| session::encode_set(session.language, number, name.as_str(), value);
    let refused = || {
        RequestError::invalid(
            format!(
                "the session {} does not let `{}` be set: it is read-only there.",
                session.id,
                name.as_str()
            ),
            "Give it another name with `as`.",
        )
    };
    ask(session, name, to, message, refused).await.map(drop)
}

/// Sends one request to the driver of a session, in its turn. `refused`: the error for a failure without details.
async fn ask(
    session: &Arc<Session>,
    name: &EnvName,
    to: &BridgeTarget<'_>,
    message: impl FnOnce(u64) -> Result<Vec<u8>, session::Unsendable>,
    refused: impl FnOnce() -> RequestError,
) -> Result<DriverAnswer> {
    let timeout = Duration::from_millis(to.timeout_ms.min(session.limits.timeout_ms));
    let turn = session.turn_soon().await?;
    let redactor = session.redactor(to.secrets).await?;
    let number = session.activity.calls.fetch_add(1, Ordering::Relaxed) + 1;
    let message = message(number).map_err(|why| {
        RequestError::invalid(format!("the value cannot be sent: {why}."), "Send it as a file.")
    })?;
    let sent = DriverRequest {
        number,
        message,
        stdio: Stdio::captured(redactor.clone()),
        keep: 0,
        timeout,
        cancelled: Client::absent().cancelled,
        interrupts: turn.open_to_interrupts(),
        is_question: true,
    };
    match session.send(sent).await?.outcome {
        CallOutcome::Answered(answer, None) if answer.ok => Ok(answer),
        CallOutcome::Answered(answer, None) => Err(match answer.report.error {
            Some(error) => objection(&redactor, &error),
            None => refused(),
        }),
        CallOutcome::Answered(_, Some(_)) => Err(RequestError::invalid(
            format!(
                "the session {} needs more than {} s for `{}`, and was interrupted.",
                session.id,
                timeout.as_secs_f64(),
                name.as_str()
            ),
            "Move less of it, or make the session with a longer `timeout_seconds`.",
        )),
        CallOutcome::Lost(error) => Err(error),
        CallOutcome::Ended(..) | CallOutcome::GivenUp(..) => Err(RequestError::new(
            ErrorCode::SessionEnded,
            format!("the session {} has ended meanwhile.", session.id),
            "`create_session` makes another; what the old one held in memory is gone.",
        )),
    }
}

fn objection(redactor: &Redactor, error: &ProgramError) -> RequestError {
    let hint = match error.kind.as_str() {
        "NameError" | "ReferenceError" => NO_SUCH_NAME,
        "KeyboardInterrupt" | "Interrupted" => "Ask again.",
        "SyntaxError" => "Give it another name with `as`: this one is a word of the language.",
        _ => {
            "Values of plain kinds move: text, numbers, dates, bytes, lists and maps of them. Make one of what stands there \
             with a call first."
        }
    };
    let message = format!("{}.", error.to_string().trim_end_matches('.'));
    RequestError::invalid(redactor.text(&message).into_owned(), hint)
}

/// Counts the values in the lists and objects of a JSON text; an object counts as several.
fn values(json: &str) -> usize {
    let (mut count, mut is_text, mut is_escaped) = (1, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b',' | b'[' if !is_text => count += 1,
            b'{' if !is_text => count += OBJECT_VALUES,
            _ => {}
        }
    }
    count
}

fn too_large() -> RequestError {
    RequestError::invalid(
        format!("the value has more than {} MiB as JSON.", BRIDGE_BYTES_MAX >> 20),
        "Move large data as a file: `get_file` and `put_file`.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_strings() {
        assert_eq!(
            values(r#"[1,",,\"[",{"a":2,"b":[3]}]"#),
            1 + 3 + 2 + OBJECT_VALUES
        );
        // Objects within objects have no comma.
        assert_eq!(values(&r#"{"":"#.repeat(1_000)), 1 + 1_000 * OBJECT_VALUES);
    }
}
