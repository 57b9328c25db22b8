//! A value that moves into a session: the caller's own, or a variable of another session of the namespace. On its way it is
//! JSON of a few kinds more than JSON has (`language/session.rs` has the table), and whoever gives it is not trusted.

use super::{
    Live,
    interpreter::{Called, How, Sent},
};
use crate::{
    engine::{Caller, Engine, House, Stdin},
    language::session::{self, Answer},
    record::Note,
    streams::Wires,
};
use ringfence_store::audit::{Action, Outcome};
use ringfence_types::{EnvName, ErrorCode, Namespace, RequestError, SessionId};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::sync::watch;

/// Of a value's JSON.
pub const BRIDGE_BYTES_MAX: usize = 16 << 20;

/// Where a value comes from.
#[derive(Clone, Debug)]
pub enum Gift {
    /// From the caller.
    Value(Value),
    /// From a variable of another session.
    Variable {
        /// Whose it is.
        session: SessionId,
        /// Its name.
        name: EnvName,
    },
}

/// A value that has arrived.
#[derive(Clone, Debug)]
pub struct Bridged {
    /// The variable's name now.
    pub name: EnvName,
    /// Bytes of its JSON.
    pub bytes: usize,
}

impl Engine {
    /// Gives a session a variable. `name`: what it is called there; the name that it had, where nothing is said.
    pub async fn bridge(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        gift: Gift,
        to: &SessionId,
        name: Option<EnvName>,
    ) -> Result<Bridged, RequestError> {
        let house = self.house();
        let note = async |outcome, details| {
            let note = Note {
                action: Action::SessionBridged,
                outcome,
                namespace: namespace.as_str(),
                execution_id: None,
                caller,
                details,
            };
            house.record.note(note).await
        };
        let from = match &gift {
            Gift::Value(_) => Value::Null,
            Gift::Variable { session, .. } => json!(session.as_str()),
        };
        note(Outcome::Pending, json!({"from": from, "to": to.as_str()})).await?;
        let moved = carry(house, namespace, &gift, to, name).await;
        let (outcome, mut details) = match &moved {
            Ok(bridged) => (
                Outcome::Ok,
                json!({"name": bridged.name.as_str(), "bytes": bridged.bytes}),
            ),
            Err(error) => (Outcome::Failed, json!({"code": error.code.as_str()})),
        };
        details["from"] = from;
        details["to"] = json!(to.as_str());
        note(outcome, details).await?;
        moved
    }
}

async fn carry(
    house: &Arc<House>,
    namespace: &Namespace,
    gift: &Gift,
    to: &SessionId,
    name: Option<EnvName>,
) -> Result<Bridged, RequestError> {
    // Both are there before either is asked.
    let target = house.sessions.find(namespace, to)?;
    let (value, name) = match gift {
        Gift::Value(value) => {
            let name = name.ok_or_else(|| {
                RequestError::invalid("`name` is missing.", "Say what the variable is to be called.")
            })?;
            (value.to_string(), name)
        }
        Gift::Variable { session, name: own } => {
            let source = house.sessions.find(namespace, session)?;
            (get(&source, own).await?, name.unwrap_or_else(|| own.clone()))
        }
    };
    let bytes = value.len();
    if bytes > BRIDGE_BYTES_MAX {
        return Err(too_large());
    }
    set(&target, &name, &value).await?;
    Ok(Bridged { name, bytes })
}

/// Its JSON, which is whatever the session says.
async fn get(live: &Arc<Live>, name: &EnvName) -> Result<String, RequestError> {
    let word = |number| session::encode_get(live.language, number, name.as_str());
    let answer = ask(live, word).await?;
    let text = answer.bridge.ok_or_else(|| nothing(live, "gave no value"))?;
    if text.len() > BRIDGE_BYTES_MAX {
        return Err(too_large());
    }
    let no_json = || nothing(live, "gave what is no JSON");
    if live.lease.secrets.is_empty() {
        // As it is: the order of names may matter to somebody.
        return match serde_json::from_str::<IgnoredAny>(&text) {
            Ok(_) => Ok(text),
            Err(_) => Err(no_json()),
        };
    }
    // The session that gets it may not know that there are secrets in it, and would let them out.
    let mut value: Value = serde_json::from_str(&text).map_err(|_| no_json())?;
    live.lease.redactor.json(&mut value);
    Ok(value.to_string())
}

async fn set(live: &Arc<Live>, name: &EnvName, value: &str) -> Result<(), RequestError> {
    let word = |number| session::encode_set(live.language, number, name.as_str(), value);
    ask(live, word).await.map(drop)
}

/// One question to the driver of a session, in its turn.
async fn ask(
    live: &Arc<Live>,
    word: impl FnOnce(u64) -> Result<Vec<u8>, session::Unsendable>,
) -> Result<Answer, RequestError> {
    let turn = live.turn_soon().await?;
    let (_nobody, cancelled) = watch::channel(false);
    let number = live.calls.fetch_add(1, Ordering::Relaxed) + 1;
    let word = word(number).map_err(|why| {
        RequestError::invalid(format!("the value cannot be sent: {why}."), "Send it as a file.")
    })?;
    let sent = Sent {
        number,
        word,
        wires: Wires {
            stdin: Stdin::FromRequest,
            stdin_bytes: Vec::new(),
            live: None,
            redactor: live.lease.redactor.clone(),
            teller: None,
        },
        keep: 0,
        timeout: Duration::from_millis(live.limits.timeout_ms),
        cancelled,
        interrupts: turn.interrupts(),
        is_question: true,
    };
    let Called { how, .. } = super::call::send(live, sent).await?;
    match how {
        How::Answered(answer, None) if answer.ok => Ok(answer),
        How::Answered(answer, None) => Err(match answer.report.error {
            Some(error) => RequestError::invalid(
                live.lease
                    .redactor
                    .text(&format!(
                        "{}: {}.",
                        error.kind,
                        error.message.trim_end_matches('.')
                    ))
                    .into_owned(),
                "Move values of plain kinds: text, numbers, dates, bytes, lists and maps of them.",
            ),
            None => nothing(live, "refused it"),
        }),
        How::Answered(_, Some(_)) => Err(nothing(live, "was out of time")),
        How::Lost(error) => Err(error),
        How::Ended(..) | How::GivenUp(..) => Err(nothing(live, "has ended meanwhile")),
    }
}

fn nothing(live: &Live, what: &str) -> RequestError {
    RequestError::new(
        ErrorCode::SessionEnded,
        format!("the session {} {what}.", live.id),
        "Look at it with a call; `create_session` makes another.",
    )
}

fn too_large() -> RequestError {
    RequestError::invalid(
        format!("the value has more than {} MiB as JSON.", BRIDGE_BYTES_MAX >> 20),
        "Move large data as a file: `get_file` and `put_file`.",
    )
}
