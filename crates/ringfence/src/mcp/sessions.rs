//! The toolset `sessions`: interpreters that stay alive between calls of `execute_code`.

use super::{
    Answer,
    arguments::{Arguments, NAMESPACE, Name, invalid},
    execute_code::{
        self, ALLOWED_DOMAINS, ENV, LANGUAGE, LIMITS, MEMORY, PACKAGES, SECRETS, SESSION, TIMEOUT, WORKSPACE,
    },
    observe::{Call, Object, answer},
};
use crate::shown;
use ringfence_engine::Gift;
use ringfence_types::{EnvName, ErrorCode, Language, RequestError, SessionId, SessionRequest};
use serde_json::{Value, json};

pub(super) const IDLE: Name = ("idle_timeout_seconds", &["idle_timeout"]);
pub(super) const DATA: Name = ("data", &[]);
pub(super) const VARIABLE: Name = ("name", &[]);
pub(super) const AS: Name = ("as", &[]);
pub(super) const FROM: Name = ("from_session", &[]);
pub(super) const TO: Name = ("to_session", &[]);

type Answered = Result<Answer, RequestError>;

/// A session's name among the arguments.
pub(super) fn session_id(arguments: &mut Arguments, name: Name) -> Result<Option<SessionId>, RequestError> {
    let given = arguments.text(name)?;
    given
        .map(|text| {
            text.parse()
                .map_err(|reason| invalid(format!("`{}`: {reason}.", name.0), USE_ITS_ID))
        })
        .transpose()
}

const USE_ITS_ID: &str = "`list_sessions` has the ids of those there are.";

fn missing(name: Name) -> RequestError {
    invalid(format!("`{}` is missing.", name.0), USE_ITS_ID)
}

fn variable(arguments: &mut Arguments, name: Name) -> Result<Option<EnvName>, RequestError> {
    let given = arguments.text(name)?;
    given
        .map(|text| {
            EnvName::try_from(text)
                .map_err(|reason| invalid(format!("`{}`: {reason}.", name.0), "Use a plain variable's name."))
        })
        .transpose()
}

impl Call<'_> {
    pub(super) async fn create_session(&self, arguments: Object) -> Answered {
        const KNOWN: &[Name] = &[
            LANGUAGE,
            TIMEOUT,
            IDLE,
            ENV,
            SECRETS,
            MEMORY,
            LIMITS,
            WORKSPACE,
            PACKAGES,
            ALLOWED_DOMAINS,
            NAMESPACE,
        ];
        let mut arguments = Arguments::open(arguments, "", KNOWN)?;
        let language = execute_code::language(&mut arguments)?.unwrap_or(Language::Python);
        let mut wish = SessionRequest::new(language);
        wish.namespace = arguments.namespace(self.offer().namespaces)?;
        wish.env = execute_code::env(arguments.object(ENV)?.unwrap_or_default())?;
        wish.secrets = execute_code::secrets(arguments.list(SECRETS)?.unwrap_or_default())?;
        wish.limits = execute_code::limits(&mut arguments, self.offer())?;
        wish.packages = execute_code::packages(&mut arguments, language)?;
        wish.allowed_domains = execute_code::allowed_domains(&mut arguments)?;
        wish.idle_ms = arguments
            .number(IDLE)?
            .map(super::observe::milliseconds)
            .transpose()?;
        if let Some(name) = arguments.text(WORKSPACE)? {
            wish.workspace = execute_code::workspace(&name)?;
        }
        let session = self.engine().create_session(self.caller(), wish).await?;
        Ok(answer(shown::session(&session)))
    }

    pub(super) async fn list_sessions(&self, arguments: Object) -> Answered {
        let (_, namespace) = self.open(arguments, &[])?;
        let sessions = self.engine().sessions(self.caller(), &namespace).await?;
        Ok(answer(shown::sessions(&sessions)))
    }

    pub(super) async fn terminate_session(&self, arguments: Object) -> Answered {
        let (mut arguments, namespace) = self.open(arguments, &[SESSION])?;
        let id = session_id(&mut arguments, SESSION)?.ok_or_else(|| missing(SESSION))?;
        let ended = self
            .engine()
            .terminate_session(self.caller(), &namespace, &id)
            .await;
        let killed = match ended {
            Ok(killed) => Some(killed),
            // Another namespace's is as little there as one that never was.
            Err(error) if error.code == ErrorCode::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(answer(shown::terminated(killed)))
    }

    pub(super) async fn interrupt_session(&self, arguments: Object) -> Answered {
        let (mut arguments, namespace) = self.open(arguments, &[SESSION])?;
        let id = session_id(&mut arguments, SESSION)?.ok_or_else(|| missing(SESSION))?;
        let interrupted = self
            .engine()
            .interrupt_session(self.caller(), &namespace, &id)
            .await?;
        let text = if interrupted {
            "interrupted; its call answers by itself\n"
        } else {
            "nothing runs in it\n"
        };
        Ok(Answer::plain(
            text.to_owned(),
            json!({"success": true, "interrupted": interrupted}),
        ))
    }

    pub(super) async fn bridge_data(&self, arguments: Object) -> Answered {
        let is_null = arguments.get(DATA.0).is_some_and(Value::is_null);
        let (mut arguments, namespace) = self.open(arguments, &[DATA, VARIABLE, AS, FROM, TO])?;
        let to = session_id(&mut arguments, TO)?.ok_or_else(|| missing(TO))?;
        let from = session_id(&mut arguments, FROM)?;
        let name = variable(&mut arguments, VARIABLE)?;
        let renamed = variable(&mut arguments, AS)?;
        // Here null is a value, but beside another source it is what a client leaves out.
        let null = (is_null && from.is_none()).then_some(Value::Null);
        let data = arguments.take(DATA)?.map(|(_, value)| value).or(null);
        let (gift, name) = gift(data, from, name, renamed)?;
        let bridged = self
            .engine()
            .bridge(self.caller(), &namespace, gift, &to, name)
            .await?;
        let text = format!(
            "{} is a variable of the session now ({} bytes)\n",
            bridged.name.as_str(),
            bridged.bytes
        );
        let facts = json!({
            "success": true, "to_session": to.as_str(), "name": bridged.name.as_str(), "bytes": bridged.bytes,
        });
        Ok(Answer::plain(text, facts))
    }
}

/// Either `data` that is called `name`, or the variable `name` of `from_session`, called `as` where that is given.
fn gift(
    data: Option<Value>,
    from: Option<SessionId>,
    name: Option<EnvName>,
    renamed: Option<EnvName>,
) -> Result<(Gift, Option<EnvName>), RequestError> {
    match (data, from, name) {
        (Some(data), None, name) => Ok((Gift::Value(data), renamed.or(name))),
        (None, Some(session), Some(name)) => Ok((Gift::Variable { session, name }, renamed)),
        (None, Some(_), None) => Err(invalid(
            "`name` is missing.".to_owned(),
            "Name the variable of `from_session`.",
        )),
        _ => Err(invalid(
            "one of `data` and `from_session` is wanted.".to_owned(),
            "Give `data` and `name`, or `from_session` and the `name` of a variable in it.",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_one_source() {
        let id: SessionId = "0190b8f0-5c1e-7000-8000-00000000abcd".parse().unwrap();
        let name: EnvName = "x".parse().unwrap();
        let check = |data: Option<Value>, from: Option<&SessionId>, name: Option<&EnvName>, good: bool| {
            let made = gift(data, from.cloned(), name.cloned(), None);
            assert_eq!(made.is_ok(), good, "{made:?}");
        };
        check(Some(json!(1)), None, Some(&name), true);
        check(None, Some(&id), Some(&name), true);
        check(None, Some(&id), None, false);
        check(None, None, Some(&name), false);
        check(Some(json!(1)), Some(&id), Some(&name), false);
    }
}
