//! The interpreters of the toolset `sessions`.

use super::{
    ResourceLimits,
    data::any,
    operation,
    read::{BACKENDS, LANGUAGES, many, present, words},
    response,
};
use ringfence_types::{Backend, EnvName, EnvValue, Language, Session, SessionId};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Start an interpreter that keeps variables, imports and files between calls of execute_code with its session_id. A
/// call that times out does not end it; being idle for too long does.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateSession {
    #[serde(default, deserialize_with = "words")]
    #[schemars(with = "Option<String>", extend("enum" = LANGUAGES))]
    pub(crate) language: Option<Language>,
    #[serde(alias = "timeout", alias = "timeout_sec")]
    pub(crate) timeout_seconds: Option<f64>,
    #[serde(alias = "idle_timeout")]
    pub(crate) idle_timeout_seconds: Option<f64>,
    #[serde(default, deserialize_with = "many")]
    pub(crate) packages: Option<Vec<String>>,
    #[serde(alias = "env_vars")]
    #[schemars(with = "Option<BTreeMap<String, String>>", extend("x-unlisted" = true))]
    pub(crate) env: Option<BTreeMap<EnvName, EnvValue>>,
    #[serde(default, deserialize_with = "many")]
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) secrets: Option<BTreeSet<EnvName>>,
    #[serde(default, deserialize_with = "many")]
    pub(crate) allowed_domains: Option<Vec<String>>,
    #[schemars(extend("x-unlisted" = true))]
    pub(crate) memory_limit: Option<String>,
    pub(crate) resource_limits: Option<ResourceLimits>,
    /// As that of execute_code.
    pub(crate) workspace: Option<String>,
    /// As that of execute_code.
    #[serde(default, deserialize_with = "words")]
    #[schemars(with = "Option<String>", extend("enum" = BACKENDS, "x-unlisted" = true))]
    pub(crate) backend: Option<Backend>,
}
operation!(CreateSession => Created, "create_session", "Keep an interpreter alive", Sessions, Adds);

response!(Created {
    #[serde(flatten)]
    session: Session
});

/// List the live sessions of the namespace by their ids.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListSessions {}
operation!(ListSessions => Sessions, "list_sessions", "List sessions", Sessions, Reads);

response!(Sessions { sessions: Vec<Session> });

/// End a session; its variables and private files are lost.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TerminateSession {
    #[schemars(with = "String")]
    pub(crate) session_id: SessionId,
}
operation!(TerminateSession => Terminated, "terminate_session", "End a session", Sessions, Replaces);

response!(Terminated {
    killed: bool,
    existed: bool
});

/// Interrupt the call that runs in a session, as Ctrl-C does; the session and its state stay.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InterruptSession {
    #[schemars(with = "String")]
    pub(crate) session_id: SessionId,
}
operation!(InterruptSession => Interrupted, "interrupt_session", "Interrupt a session's call", Sessions, Adds);

response!(Interrupted { interrupted: bool });

/// Set a variable in a session, across languages: to data, or to the variable name of from_session.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BridgeData {
    #[serde(default, deserialize_with = "present")]
    #[schemars(extend("anyOf" = any()))]
    pub(crate) data: Option<Value>,
    #[schemars(with = "Option<String>")]
    pub(crate) from_session: Option<SessionId>,
    #[schemars(with = "Option<String>")]
    pub(crate) name: Option<EnvName>,
    /// Its name in to_session, if another.
    #[schemars(with = "Option<String>")]
    pub(crate) r#as: Option<EnvName>,
    #[schemars(with = "String")]
    pub(crate) to_session: SessionId,
}
operation!(BridgeData => Bridged, "bridge_data", "Give a session a value", Sessions, Adds);

response!(Bridged {
    to_session: String,
    name: String,
    bytes: u64
});
