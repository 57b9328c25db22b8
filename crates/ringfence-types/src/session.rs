//! A session: the request for one, its state, and the reasons for its end.

use crate::{
    AllowedDomains, Backend, EnvName, EnvValue, Language, LimitsRequest, Namespace, RequestError,
    Requirement, WorkspaceSource, closed_words, words::text_word,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A session's id: a UUID in lower case, with dashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(String);

impl TryFrom<String> for SessionId {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let is_good = text.len() == 36
            && text.bytes().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
            });
        if is_good {
            Ok(Self(text))
        } else {
            Err("a session's id is a UUID of 36 characters".to_owned())
        }
    }
}

text_word!(SessionId);

/// A caller's request for a session. Construct with [`SessionRequest::new`] and fill in.
#[derive(Clone, Debug)]
pub struct SessionRequest {
    /// Language of the interpreter that stays alive.
    pub language: Language,
    /// Tenant.
    pub namespace: Namespace,
    /// Its environment, which is otherwise built from nothing.
    pub env: BTreeMap<EnvName, EnvValue>,
    /// Secrets of the namespace that it gets as environment variables.
    pub secrets: BTreeSet<EnvName>,
    /// Memory, processes, processor share and disk of the session; time and output of each call that sets none.
    pub limits: LimitsRequest,
    /// Idle time after which it ends.
    pub idle_ms: Option<u64>,
    /// The directory behind `/workspace`.
    pub workspace: WorkspaceSource,
    /// Packages that it can import from the beginning.
    pub packages: BTreeSet<Requirement>,
    /// Hosts that its calls may reach.
    pub allowed_domains: AllowedDomains,
    /// Backend of its sandbox; none: the operator's choice.
    pub backend: Option<Backend>,
}

impl SessionRequest {
    /// Creates a request with only a language.
    pub fn new(language: Language) -> Self {
        Self {
            language,
            namespace: Namespace::default_name(),
            env: BTreeMap::new(),
            secrets: BTreeSet::new(),
            limits: LimitsRequest::default(),
            idle_ms: None,
            workspace: WorkspaceSource::Private,
            packages: BTreeSet::new(),
            allowed_domains: AllowedDomains::Granted,
            backend: None,
        }
    }
}

/// An open session.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// Id of the session.
    pub session_id: SessionId,
    /// Tenant.
    pub namespace: String,
    /// Language of its interpreter.
    pub language: Language,
    /// Its current state.
    pub state: SessionState,
    /// Unix time of its creation.
    pub created_unix_ms: u64,
    /// Unix time of the last call's end, or of its creation.
    pub used_unix_ms: u64,
    /// Unix time at which it ends without use.
    pub idle_until_unix_ms: u64,
    /// Unix time at which it ends in any case.
    pub ends_unix_ms: u64,
    /// Calls so far.
    pub calls: u64,
    /// Calls waiting for their turn.
    pub waiting: usize,
    /// Tier of its isolation.
    pub tier: String,
    /// Memory of the session, in bytes.
    pub memory_bytes_max: u64,
    /// Default wall time of a call, in seconds.
    pub timeout_seconds: f64,
    /// `private`, `namespace`, or `directory:` with the mode of a host directory.
    pub workspace: String,
    /// Packages that were requested and that it has.
    pub packages: Vec<String>,
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// It waits for a call.
    Idle,
    /// A call runs.
    Busy,
}

closed_words!(SessionState: Idle = "idle", Busy = "busy");

/// The reason for which a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionEnd {
    /// It was ended on request.
    Terminated,
    /// It was not used for too long.
    Idle,
    /// It was as old as a session may become.
    Age,
    /// Its interpreter ended by itself: `exit()`, or a fault of its own.
    Exited,
    /// A signal ended its interpreter, as after a memory fault.
    Crashed,
    /// It needed more memory than it had.
    OutOfMemory,
    /// It passed another limit.
    Limit,
    /// A call was out of time, or cancelled, and its program could not be interrupted.
    Stuck,
    /// The server or its template ended.
    Server,
}

impl SessionEnd {
    /// Returns the predicate of a sentence about the session.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Terminated => "was terminated",
            Self::Idle => "was not used for too long",
            Self::Age => "was as old as a session may become",
            Self::Exited => "has ended because its interpreter exited",
            Self::Crashed => "has ended because a signal ended its interpreter",
            Self::OutOfMemory => "has ended because it was out of memory",
            Self::Limit => "has ended because it passed a limit",
            Self::Stuck => "was ended because a call could not be interrupted",
            Self::Server => "has ended with its server or its template",
        }
    }
}

closed_words!(SessionEnd: Terminated = "terminated", Idle = "idle", Age = "age", Exited = "exited", Crashed = "crashed",
    OutOfMemory = "out_of_memory", Limit = "limit", Stuck = "stuck", Server = "server");

/// Refuses an argument of a call that only the creation of a session takes.
pub(crate) fn set_at_creation(name: &str) -> RequestError {
    RequestError::invalid(
        format!("`{name}` belongs to the session and was set when it was created."),
        format!("Give `{name}` to `create_session`, or leave `session_id` out."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_id_is_a_lower_case_uuid() {
        assert!(
            "0190b8f0-5c1e-7000-8000-00000000abcd"
                .parse::<SessionId>()
                .is_ok()
        );
        for bad in [
            "",
            "0190B8F0-5c1e-7000-8000-00000000abcd",
            "0190b8f0-5c1e-7000-8000-00000000abc",
            "0190b8f005c1e-7000-8000-00000000abcd",
            "../../../../../../../../../../etc/pa",
            "0190b8f0-5c1e-7000-8000-00000000abcé",
        ] {
            assert!(bad.parse::<SessionId>().is_err(), "{bad}");
        }
    }
}
