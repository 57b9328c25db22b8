//! What a request for approval, an answer to it and a decision are.

use ringfence_store::to_hex;
use ringfence_types::closed_words;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// What somebody is asked. It never changes while it is pending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRequest {
    /// Eight hexadecimal digits.
    pub id: String,
    /// `egress` or `host`.
    pub kind: String,
    /// What exactly is asked for: of `egress`, the rule; of `host`, the command, each word escaped.
    pub what: String,
    /// Whose programs would have it.
    pub namespace: String,
    pub session_id: Option<String>,
    pub execution_id: Option<String>,
    /// Who asks, as it calls itself.
    pub caller: String,
    /// The asker's own words, as they came: hostile. [`ApprovalRequest::lines`] has them escaped.
    pub reason: String,
    pub scopes: Vec<Scope>,
    pub since_unix_ms: u64,
    /// When it is denied. Unix time.
    pub expires_unix_ms: u64,
    /// All of it for a person to read: each a line without control characters, and complete.
    pub lines: Vec<String>,
}

impl ApprovalRequest {
    /// Names exactly this request: SHA-256 of all that stands in it, in lower-case hexadecimal digits. A decision
    /// names by it what was seen.
    pub fn digest(&self) -> String {
        // Fields of a struct are always written in the order of their declaration.
        let canonical = Canonical {
            version: 1,
            request: self,
        };
        let canonical = serde_json::to_vec(&canonical).unwrap_or_default();
        to_hex(&Sha256::digest(&canonical))
    }
}

/// What an approval is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One run: the one that waits, else the next.
    Once,
    /// The session that it is asked for, until its end.
    Session,
    /// Every run of the namespace, for a time.
    Namespace,
}

closed_words!(Scope: Once = "once", Session = "session", Namespace = "namespace");

/// What an approval is to be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeChoice {
    /// One run.
    Once,
    /// The session.
    Session,
    /// The namespace, for so long; none: as long as the operator's settings allow.
    Namespace(Option<Duration>),
}

impl ScopeChoice {
    pub(super) fn scope(self) -> Scope {
        match self {
            Self::Once => Scope::Once,
            Self::Session => Scope::Session,
            Self::Namespace(_) => Scope::Namespace,
        }
    }
}

/// What somebody says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Approve(ScopeChoice),
    Deny,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    /// The channel and the person; without an answer, why there was none.
    pub decided_by: String,
    /// When an approval ends that is for a time. Unix time.
    pub expires_unix_ms: Option<u64>,
}

impl Decision {
    /// Whether it may be done.
    pub fn is_approved(&self) -> bool {
        matches!(self.verdict, Verdict::Approved(_))
    }

    /// What it was approved for.
    pub fn scope(&self) -> Option<Scope> {
        match self.verdict {
            Verdict::Approved(scope) => Some(scope),
            Verdict::Denied(_) => None,
        }
    }

    pub(super) fn new(verdict: Verdict, decided_by: &str) -> Self {
        Self {
            verdict,
            decided_by: decided_by.to_owned(),
            expires_unix_ms: None,
        }
    }

    /// The operator has allowed it beforehand, to all of the namespace.
    pub(crate) fn by_configuration() -> Self {
        Self::new(
            Verdict::Approved(Scope::Namespace),
            "the operator's configuration",
        )
    }

    pub(super) fn denied(why: DeniedBy) -> Self {
        Self::new(Verdict::Denied(why), why.words())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Approved(Scope),
    Denied(DeniedBy),
}

/// Why it is a no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeniedBy {
    /// A person said so.
    Human,
    /// No answer came in time.
    Timeout,
    /// Its requester is gone, or the server stops.
    Gone,
    /// An equal request was denied a moment ago.
    Lately,
    /// An approval could not be put on record, or there is no room for it.
    Limit,
}

impl DeniedBy {
    fn words(self) -> &'static str {
        match self {
            Self::Human => "a person",
            Self::Timeout => "no one: its time was up",
            Self::Gone => "no one: it was withdrawn",
            Self::Lately => "no one: asked and denied a moment ago",
            Self::Limit => "no one: the approval could not be kept",
        }
    }
}

closed_words!(DeniedBy: Human = "human", Timeout = "timeout", Gone = "gone", Lately = "lately", Limit = "limit");

/// What the digest is over, in this order.
#[derive(Serialize)]
struct Canonical<'a> {
    version: u8,
    request: &'a ApprovalRequest,
}
