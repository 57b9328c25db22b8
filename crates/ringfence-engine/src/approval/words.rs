//! The public types of approval: request, answer and decision.

use ringfence_store::to_hex;
use ringfence_types::closed_words;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// A request for approval as a person sees it. It does not change while it is pending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRequest {
    /// Eight hexadecimal digits.
    pub id: String,
    /// `egress` or `host`.
    pub kind: String,
    /// The exact subject: of `egress`, the rule; of `host`, the command, each word escaped.
    pub what: String,
    pub namespace: String,
    pub session_id: Option<String>,
    pub execution_id: Option<String>,
    /// The caller, as it calls itself.
    pub caller: String,
    /// The caller's own words, unescaped: hostile. [`ApprovalRequest::lines`] has them escaped.
    pub reason: String,
    pub scopes: Vec<Scope>,
    pub since_unix_ms: u64,
    /// Time of denial without an answer. Unix time.
    pub expires_unix_ms: u64,
    /// The complete request as text for a person: lines without control characters.
    pub lines: Vec<String>,
}

impl ApprovalRequest {
    /// Identifies this request: SHA-256 over all fields, in lower-case hex. A decision names by it the request seen.
    pub fn digest(&self) -> String {
        // The fields of a struct are always serialized in the order of their declaration.
        let canonical = Canonical {
            version: 1,
            request: self,
        };
        let canonical = serde_json::to_vec(&canonical).unwrap_or_default();
        to_hex(&Sha256::digest(&canonical))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One run: the waiting one, otherwise the next.
    Once,
    /// The session named in the request, until its end.
    Session,
    /// Every run of the namespace, for a period.
    Namespace,
}

closed_words!(Scope: Once = "once", Session = "session", Namespace = "namespace");

/// The scope chosen in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeChoice {
    Once,
    Session,
    /// The namespace, for this time; none: for as long as the operator's settings allow.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Approve(ScopeChoice),
    Deny,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    /// The channel and the person; without an answer, the reason why there was none.
    pub decided_by: String,
    /// The expiry of an approval for a period. Unix time.
    pub expires_unix_ms: Option<u64>,
}

impl Decision {
    pub fn is_approved(&self) -> bool {
        matches!(self.verdict, Verdict::Approved(_))
    }

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

    /// The decision for what the configuration already allows to the whole namespace.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeniedBy {
    Human,
    /// No answer came in time.
    Timeout,
    /// Its requester is gone, or the server stops.
    Gone,
    /// An equal request was denied a moment ago.
    Lately,
    /// The approval could not be recorded, or a limit is reached.
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

/// The input of the digest, in this order.
#[derive(Serialize)]
struct Canonical<'a> {
    version: u8,
    request: &'a ApprovalRequest,
}
