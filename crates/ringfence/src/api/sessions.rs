//! The interpreters of the toolset `sessions`.

use super::{
    ResourceLimits,
    data::any,
    operations,
    read::{Many, OneOf, present},
};
use ringfence_types::{Backend, EnvName, EnvValue, Language, Session, SessionId};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

operations! {
    /// Start an interpreter that keeps variables, imports and files between calls of execute_code with its session_id.
    /// A call that times out does not end it; being idle for too long does.
    "create_session" "Keep an interpreter alive" Sessions Starts
    CreateSession {
        language: Option<OneOf<Language>>,
        #[serde(alias = "timeout", alias = "timeout_sec")]
        timeout_seconds: Option<f64>,
        #[serde(alias = "idle_timeout")]
        idle_timeout_seconds: Option<f64>,
        packages: Option<Many<Vec<String>>>,
        /// Environment variables of all its calls.
        #[serde(alias = "env_vars")]
        #[schemars(extend("x-unlisted" = true))]
        env: Option<BTreeMap<EnvName, EnvValue>>,
        secrets: Option<Many<BTreeSet<EnvName>>>,
        allowed_domains: Option<Many<Vec<String>>>,
        /// Such as 512m or 1g.
        #[schemars(extend("x-unlisted" = true))]
        memory_limit: Option<String>,
        resource_limits: Option<ResourceLimits>,
        /// As that of execute_code.
        workspace: Option<String>,
        /// As that of execute_code.
        #[schemars(extend("x-unlisted" = true))]
        backend: Option<OneOf<Backend>>,
    } -> Created {
        #[serde(flatten)]
        session: Session,
    }

    /// List the live sessions of the namespace by their ids.
    "list_sessions" "List sessions" Sessions Reads
    ListSessions {} -> Sessions { sessions: Vec<Session> }

    /// End a session; its variables and private files are lost.
    "terminate_session" "End a session" Sessions Replaces
    TerminateSession {
        session_id: SessionId,
    } -> Terminated { killed: bool, existed: bool }

    /// Interrupt the call that runs in a session, as Ctrl-C does; the session and its state stay.
    "interrupt_session" "Interrupt a session's call" Sessions Edits
    InterruptSession {
        session_id: SessionId,
    } -> Interrupted { interrupted: bool }

    /// Set a variable in a session, across languages: to data, or to the variable name of from_session.
    "bridge_data" "Give a session a value" Sessions Replaces
    BridgeData {
        #[serde(default, deserialize_with = "present")]
        #[schemars(extend("anyOf" = any()))]
        data: Option<Value>,
        from_session: Option<SessionId>,
        name: Option<EnvName>,
        /// Its name in to_session, if another.
        r#as: Option<EnvName>,
        to_session: SessionId,
    } -> Bridged { to_session: String, name: String, bytes: u64 }
}
