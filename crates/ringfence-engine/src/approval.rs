//! Asking a person. What a program or a model may not have by itself is asked for here, shown exactly as it is, and
//! decided through a channel that neither of them has: the client's own dialogue, the operator's command, the callback
//! of the program that embeds us. Everything that is not a yes in time is a no.

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
pub use words::{Answer, ApprovalRequest, Decision, DeniedBy, Scope, ScopeChoice, Verdict};

use crate::{caller::Caller, error::Result, settings::ApprovalSettings};
use ringfence_egress::Rule;
use ringfence_types::{Namespace, RequestError, SessionId};
use std::{fmt, time::Duration};

/// The longest reason, in characters. One that is longer is refused: what is shown is complete.
pub const REASON_CHARS_MAX: usize = 500;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Egress(Rule),
    Command(Box<CommandSubject>),
}

/// A command exactly: another word, program, directory or principal is another command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandSubject {
    /// Each word, escaped for a person.
    pub(crate) words: String,
    /// The same without secrets of the vault, as it stands on record.
    pub(crate) recorded: String,
    pub(crate) program: String,
    /// Its device and inode.
    pub(crate) identity: (u64, u64),
    pub(crate) directory: Option<String>,
    /// Which directory that is: device and inode.
    pub(crate) directory_identity: Option<(u64, u64)>,
    /// Files that its words name, each with its digest.
    pub(crate) files: Vec<String>,
    /// Why no rule lets it through.
    pub(crate) missing_rule: String,
    /// What it can do, a line each.
    pub(crate) effect: Vec<String>,
    /// Whether it may be approved for a time.
    pub(crate) may_last: bool,
    pub(crate) principal: String,
}

impl Subject {
    /// What is asked for, as it stands on record and is told in events.
    pub(crate) fn recorded(&self) -> String {
        match self {
            Self::Egress(rule) => rule.to_string(),
            Self::Command(command) => command.recorded.clone(),
        }
    }

    /// The kind of request, as it stands on record.
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
    /// Where it is for one session alone.
    pub(crate) session: Option<SessionId>,
    /// Where a run that is under way waits for the answer.
    pub(crate) execution: Option<String>,
    pub(crate) caller: Caller,
    pub(crate) reason: String,
    /// Where a program waits that does not wait for long; else as long as the settings say.
    pub(crate) patience: Option<Duration>,
}

impl Ask {
    fn check(&self) -> Result<()> {
        if self.reason.chars().count() <= REASON_CHARS_MAX {
            return Ok(());
        }
        Err(RequestError::invalid(
            format!("the reason has more than {REASON_CHARS_MAX} characters."),
            "A person reads it before the answer: say it shortly.",
        ))
    }

    fn timeout(&self, settings: &ApprovalSettings) -> Duration {
        self.patience
            .map_or(settings.timeout, |patience| patience.min(settings.timeout))
    }

    /// Whether the second waits for the answer to the first. The reason does not count: other words do not make
    /// another question.
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
