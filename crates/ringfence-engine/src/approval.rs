//! Approval by a person, who sees the exact request, through a channel that programs and models lack: the client's
//! dialogue, the operator's command, or the embedding program's callback. Without an approval in time, it is denied.

mod notes;
mod queue;
mod shown;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use queue::Approvals;
pub use queue::{ApprovalWatch, Waiting};
pub(crate) use store::TakenOnce;
pub use words::{Answer, ApprovalRequest, Decision, DeniedBy, Scope, ScopeChoice, Verdict};

use crate::{caller::Caller, error::Result, settings::ApprovalSettings};
use ringfence_egress::Rule;
use ringfence_types::{Namespace, RequestError, SessionId};
use std::{fmt, time::Duration};

/// Maximum characters of a reason. A longer one is refused, not cut: a request is always shown complete.
pub const REASON_CHARS_MAX: usize = 500;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Egress(Rule),
    Command(Box<CommandSubject>),
}

/// One exact command: a different word, program, directory, named file or principal makes a different command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandSubject {
    /// The words, each escaped for display.
    pub(crate) words: String,
    /// The same without the vault's secrets, as recorded.
    pub(crate) recorded: String,
    pub(crate) program: String,
    /// Device and inode of the program.
    pub(crate) identity: (u64, u64),
    pub(crate) directory: Option<String>,
    pub(crate) directory_identity: Option<(u64, u64)>,
    /// Files named by its words, each with its digest.
    pub(crate) files: Vec<String>,
    /// The reason why no rule allows it.
    pub(crate) missing_rule: String,
    /// Its possible effects, one per line.
    pub(crate) effect: Vec<String>,
    /// True: it may be approved for a period, not only for one run.
    pub(crate) may_last: bool,
    pub(crate) principal: String,
}

impl Subject {
    /// Returns the subject as recorded and as published in events.
    pub(crate) fn recorded(&self) -> String {
        match self {
            Self::Egress(rule) => rule.to_string(),
            Self::Command(command) => command.recorded.clone(),
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Egress(_) => "egress",
            Self::Command(_) => "host",
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Egress(rule) => rule.fmt(f),
            Self::Command(command) => f.write_str(&command.words),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) subject: Subject,
    pub(crate) namespace: Namespace,
    /// The only session that it is for; none: the whole namespace.
    pub(crate) session: Option<SessionId>,
    /// The id of a run that waits for the answer.
    pub(crate) execution: Option<String>,
    pub(crate) caller: Caller,
    pub(crate) reason: String,
    /// The patience of a waiting connection, at most the timeout of the settings; none: that timeout.
    pub(crate) patience: Option<Duration>,
}

impl Ask {
    fn check(&self) -> Result<()> {
        if self.reason.chars().count() <= REASON_CHARS_MAX {
            return Ok(());
        }
        Err(RequestError::invalid(
            format!("the reason has more than {REASON_CHARS_MAX} characters."),
            "A person reads it before the answer: keep it short.",
        ))
    }

    fn timeout(&self, settings: &ApprovalSettings) -> Duration {
        self.patience
            .map_or(settings.timeout, |patience| patience.min(settings.timeout))
    }

    /// Returns true if both share one answer. The reason does not count: a reworded request is not a new one.
    fn is_same_as(&self, other: &Self) -> bool {
        self.subject == other.subject
            && self.namespace == other.namespace
            && self.session == other.session
            && self.execution == other.execution
    }

    fn scopes(&self) -> Vec<Scope> {
        let (session, namespace) = match &self.subject {
            Subject::Command(command) => (false, command.may_last),
            Subject::Egress(_) => (self.session.is_some(), true),
        };
        let lasting = [
            session.then_some(Scope::Session),
            namespace.then_some(Scope::Namespace),
        ];
        [Scope::Once]
            .into_iter()
            .chain(lasting.into_iter().flatten())
            .collect()
    }
}
