//! The toolset `sessions`: interpreters that stay alive between calls of `execute_code`.

use super::{Answer, Answered, call::Call, execute_code};
use crate::{
    api::{BridgeData, CreateSession, InterruptSession, ListSessions, TerminateSession, invalid},
    render::{self, Rendered},
};
use ringfence_engine::BridgedValue;
use ringfence_types::{
    AllowedDomains, EnvName, ErrorCode, Language, Namespace, RequestError, SessionId, SessionRequest,
    requirements,
};
use serde_json::{Value, json};

impl Call<'_> {
    pub(super) async fn create_session(&self, given: CreateSession, namespace: Namespace) -> Answered {
        let language = given.language.map_or(Language::Python, |word| word.0);
        let mut request = SessionRequest::new(language);
        request.namespace = namespace;
        request.backend = given.backend.map(|word| word.0);
        request.env = given.env.unwrap_or_default();
        request.secrets = given.secrets.unwrap_or_default().0;
        let limits = given.resource_limits.unwrap_or_default();
        request.limits =
            execute_code::limits_of(limits, given.timeout_seconds, given.memory_limit, self.offer())?;
        request.packages = requirements(language, &given.packages.unwrap_or_default().0)?;
        request.allowed_domains = AllowedDomains::from_request(given.allowed_domains.map(|list| list.0));
        let idle = given.idle_timeout_seconds;
        request.idle_ms = idle
            .map(|seconds| super::observe::milliseconds("idle_timeout_seconds", seconds))
            .transpose()?;
        if let Some(name) = given.workspace {
            request.workspace = execute_code::workspace(&name)?;
        }
        let refusal = [
            "the session was cancelled while it was made.",
            "Ask again when it is wanted.",
        ];
        let made = self.engine().create_session(self.caller(), request);
        Ok(render::session(&self.until_left(made, refusal).await?).into())
    }

    pub(super) async fn list_sessions(&self, _: ListSessions, namespace: Namespace) -> Answered {
        let sessions = self.namespace(&namespace).sessions().await?;
        Ok(Answer::from(render::sessions(&sessions)))
    }

    pub(super) async fn terminate_session(&self, given: TerminateSession, namespace: Namespace) -> Answered {
        let access = self.namespace(&namespace);
        let killed = match access.terminate_session(&given.session_id).await {
            Ok(killed) => Some(killed),
            // A session of another namespace is treated as one that never existed.
            Err(error) if error.code == ErrorCode::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Answer::from(render::terminated(killed)))
    }

    pub(super) async fn interrupt_session(&self, given: InterruptSession, namespace: Namespace) -> Answered {
        let access = self.namespace(&namespace);
        let interrupted = access.interrupt_session(&given.session_id).await?;
        let text = if interrupted {
            "the call is being interrupted and answers itself; the session and its state are kept\n"
        } else {
            "nothing runs in the session\n"
        };
        Ok(Rendered::new(text, json!({"interrupted": interrupted})).into())
    }

    pub(super) async fn bridge_data(&self, given: BridgeData, namespace: Namespace) -> Answered {
        let (to, from) = (given.to_session, given.from_session);
        // Here null is a value, but beside `from_session` it is an argument that the client omits.
        let data = given.data.filter(|data| from.is_none() || !data.is_null());
        let (value, name) = bridged_value(data, from, given.name, given.r#as)?;
        let access = self.namespace(&namespace);
        let bridged = access.bridge(value, &to, name).await?;
        Ok(Answer::from(render::bridged(&to, &bridged)))
    }
}

/// Returns the value and its name: `data` under `as` or `name`, or the variable `name` of `from_session` under `as`.
fn bridged_value(
    data: Option<Value>,
    from: Option<SessionId>,
    name: Option<EnvName>,
    renamed: Option<EnvName>,
) -> Result<(BridgedValue, Option<EnvName>), RequestError> {
    match (data, from, name) {
        (Some(data), None, name) => Ok((BridgedValue::Value(data), renamed.or(name))),
        (None, Some(session), Some(name)) => Ok((BridgedValue::Variable { session, name }, renamed)),
        (None, Some(_), None) => Err(invalid(
            "`name` is missing.",
            "Name the variable of `from_session`.",
        )),
        _ => Err(invalid(
            "exactly one of `data` and `from_session` is required.",
            "Give `data` and `name`, or `from_session` and the `name` of a variable in it.",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bridged_value_has_one_source() {
        let id: SessionId = "0190b8f0-5c1e-7000-8000-00000000abcd".parse().unwrap();
        let name: EnvName = "x".parse().unwrap();
        let check = |data: Option<Value>, from: Option<&SessionId>, name: Option<&EnvName>, good: bool| {
            let made = bridged_value(data, from.cloned(), name.cloned(), None);
            assert_eq!(made.is_ok(), good, "{made:?}");
        };
        check(Some(json!(1)), None, Some(&name), true);
        check(None, Some(&id), Some(&name), true);
        check(None, Some(&id), None, false);
        check(None, None, Some(&name), false);
        check(Some(json!(1)), Some(&id), Some(&name), false);
    }
}
