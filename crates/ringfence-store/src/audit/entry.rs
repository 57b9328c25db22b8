//! What a caller hands in to be recorded, and the closed lists of words for it.

use super::AuditError;
use serde_json::{Map, Value};
use std::{fmt, str::FromStr};

/// The longest namespace, caller, execution id or server id, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 512;
/// The longest JSON text of the details, in bytes.
pub(super) const DETAILS_BYTES_MAX: usize = 64 << 10;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $count:literal: $($(#[$word_doc:meta])* $word:ident = $text:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$word_doc])* $word,)*
        }

        impl $name {
            /// Every one of them.
            pub const ALL: [Self; $count] = [$(Self::$word),*];

            /// The word as stored.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$word => $text,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;
            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                Self::ALL.into_iter().find(|word| word.as_str() == text).ok_or_else(|| UnknownWord::new(text))
            }
        }
    };
}

words! {
    /// What was done.
    Action, 30:
    /// A server began to serve.
    ServerStarted = "server.started",
    /// A server ended in order.
    ServerStopped = "server.stopped",
    /// A program is about to run.
    ExecutionStarted = "execution.started",
    /// A program ended by itself with success.
    ExecutionCompleted = "execution.completed",
    /// A program failed.
    ExecutionFailed = "execution.failed",
    /// A program was ended by its time limit.
    ExecutionTimeout = "execution.timeout",
    /// A program was not run.
    ExecutionRefused = "execution.refused",
    /// A session was made.
    SessionCreated = "session.created",
    /// A session has ended.
    SessionKilled = "session.killed",
    /// A value was taken from one session into another.
    SessionBridged = "session.bridged",
    /// A secret was read.
    VaultAccessed = "vault.accessed",
    /// A secret was made, replaced or removed.
    VaultChanged = "vault.changed",
    /// A namespace's limits were changed.
    LimitsChanged = "limits.changed",
    /// The configuration was changed.
    ConfigChanged = "config.changed",
    /// An artifact was read.
    ArtifactRead = "artifact.read",
    /// Packages were downloaded and installed.
    PackageInstalled = "package.installed",
    /// A file was written into a workspace.
    FilePut = "file.put",
    /// A file of a workspace was read.
    FileRead = "file.read",
    /// A workspace was saved.
    SnapshotCreated = "snapshot.created",
    /// A saved workspace took the place of what was there.
    SnapshotRestored = "snapshot.restored",
    /// A saved workspace was deleted.
    SnapshotDeleted = "snapshot.deleted",
    /// What a program did to a directory of the host was accepted.
    WorkspaceCommitted = "workspace.committed",
    /// A person was asked, or was to be.
    ApprovalRequested = "approval.requested",
    /// A person has answered, or nobody has.
    ApprovalDecided = "approval.decided",
    /// Code was looked at without running it.
    CodeValidated = "code.validated",
    /// Data were held against a schema.
    DataValidated = "data.validated",
    /// A tool of the server was called.
    ToolCalled = "tool.called",
    /// A chain begins, or goes on after a break; the details give the reason.
    AuditBegan = "audit.began",
    /// Records were moved into a closed segment.
    AuditArchived = "audit.archived",
    /// A closed segment was removed, because it was too old or all were too large.
    AuditRemoved = "audit.removed",
}

words! {
    /// How it went.
    Outcome, 5:
    /// It was done.
    Ok = "ok",
    /// It was tried and failed.
    Failed = "failed",
    /// It was not allowed.
    Denied = "denied",
    /// It was started and has not ended.
    Pending = "pending",
    /// It was started by a server that has died since.
    Lost = "lost",
}

/// A word outside a closed list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord(String);

impl UnknownWord {
    pub(super) fn new(text: &str) -> Self {
        Self(text.chars().take(80).collect())
    }
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no word of the audit record", self.0)
    }
}

impl std::error::Error for UnknownWord {}

/// One action to record. Never put code, output or secrets into `details`.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What was done.
    pub action: Action,
    /// How it went.
    pub outcome: Outcome,
    /// The tenant; 512 bytes at most.
    pub namespace: String,
    /// The execution, if there is one; 512 bytes at most.
    pub execution_id: Option<String>,
    /// Who asked for it; 512 bytes at most.
    pub caller: String,
    /// The rest; 64 KiB of JSON text at most.
    pub details: Map<String, Value>,
}

/// Where an entry has come to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Its number in the chain.
    pub seq: u64,
    /// Its hash.
    pub hash: [u8; 32],
}

/// An entry that fits, with its details as the text that is stored.
#[derive(Debug)]
pub(super) struct Fitted {
    pub(super) action: Action,
    pub(super) outcome: Outcome,
    pub(super) namespace: String,
    pub(super) execution_id: Option<String>,
    pub(super) caller: String,
    pub(super) details: String,
}

impl Entry {
    pub(super) fn fitted(self) -> Result<Fitted, AuditError> {
        within("namespace", &self.namespace, NAME_BYTES_MAX)?;
        within(
            "execution_id",
            self.execution_id.as_deref().unwrap_or(""),
            NAME_BYTES_MAX,
        )?;
        within("caller", &self.caller, NAME_BYTES_MAX)?;
        let details = Value::Object(self.details).to_string();
        within("details", &details, DETAILS_BYTES_MAX)?;
        Ok(Fitted {
            action: self.action,
            outcome: self.outcome,
            namespace: self.namespace,
            execution_id: self.execution_id,
            caller: self.caller,
            details,
        })
    }
}

/// Refuses a text that is too long, and says by how much.
pub(super) fn within(field: &'static str, text: &str, bytes_max: usize) -> Result<(), AuditError> {
    if text.len() <= bytes_max {
        return Ok(());
    }
    Err(AuditError::TooLarge {
        field,
        bytes: text.len(),
        bytes_max,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_as_written() {
        for action in Action::ALL {
            assert_eq!(action.as_str().parse(), Ok(action));
        }
        for outcome in Outcome::ALL {
            assert_eq!(outcome.as_str().parse(), Ok(outcome));
        }
        assert!("execution.begun".parse::<Action>().is_err());
        assert!("".parse::<Outcome>().is_err());
    }

    #[test]
    fn an_entry_of_exactly_the_limit_fits_and_one_byte_more_does_not() {
        let entry = |caller: usize, details: usize| Entry {
            action: Action::ToolCalled,
            outcome: Outcome::Ok,
            namespace: "default".to_owned(),
            execution_id: None,
            caller: "c".repeat(caller),
            details: Map::from_iter([("k".to_owned(), Value::from("d".repeat(details)))]),
        };
        let around = r#"{"k":""}"#.len();
        assert!(entry(512, DETAILS_BYTES_MAX - around).fitted().is_ok());
        let refused = entry(513, 0).fitted().unwrap_err();
        assert!(matches!(
            refused,
            AuditError::TooLarge {
                field: "caller",
                bytes: 513,
                bytes_max: 512
            }
        ));
        let refused = entry(1, DETAILS_BYTES_MAX - around + 1).fitted().unwrap_err();
        assert!(matches!(refused, AuditError::TooLarge { field: "details", .. }));
    }
}
