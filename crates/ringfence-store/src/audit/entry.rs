//! What a caller hands in to be recorded, and the closed lists of words for it.

use super::AuditError;
use ringfence_types::closed_words;
use serde_json::{Map, Value};

/// The longest namespace, caller, execution id or server id, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 512;
pub(super) const DETAILS_BYTES_MAX: usize = 64 << 10;

closed_words! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Action {
        ServerStarted = "server.started",
        ServerStopped = "server.stopped",
        ExecutionStarted = "execution.started",
        ExecutionCompleted = "execution.completed",
        ExecutionFailed = "execution.failed",
        ExecutionTimeout = "execution.timeout",
        ExecutionRefused = "execution.refused",
        SessionCreated = "session.created",
        SessionKilled = "session.killed",
        SessionBridged = "session.bridged",
        VaultAccessed = "vault.accessed",
        VaultChanged = "vault.changed",
        LimitsChanged = "limits.changed",
        ConfigChanged = "config.changed",
        ArtifactRead = "artifact.read",
        PackageInstalled = "package.installed",
        FilePut = "file.put",
        FileRead = "file.read",
        SnapshotCreated = "snapshot.created",
        SnapshotRestored = "snapshot.restored",
        SnapshotDeleted = "snapshot.deleted",
        WorkspaceCommitted = "workspace.committed",
        ApprovalRequested = "approval.requested",
        ApprovalDecided = "approval.decided",
        HostExecuted = "host.executed",
        HostRead = "host.read",
        HostWritten = "host.written",
        CodeValidated = "code.validated",
        DataValidated = "data.validated",
        ToolCalled = "tool.called",
        TokenCreated = "token.created",
        TokenRevoked = "token.revoked",
        WebSearched = "web.searched",
        WebFetched = "web.fetched",
        WebBrowsed = "web.browsed",
        /// A chain begins, or goes on after a break; the details give the reason.
        AuditBegan = "audit.began",
        AuditArchived = "audit.archived",
        AuditRemoved = "audit.removed",
    }
}

closed_words! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Outcome {
        Ok = "ok",
        Failed = "failed",
        Denied = "denied",
        Pending = "pending",
        /// It was started by a server that has died since.
        Lost = "lost",
    }
}

/// One action to record. Never put code, output or secrets into `details`.
#[derive(Clone, Debug)]
pub struct Entry {
    pub action: Action,
    pub outcome: Outcome,
    /// 512 bytes at most, as are the next two.
    pub namespace: String,
    pub execution_id: Option<String>,
    pub caller: String,
    /// 64 KiB of JSON text at most.
    pub details: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub seq: u64,
    pub hash: [u8; 32],
}

/// An entry that fits, with its details as the text that is stored.
#[derive(Debug)]
pub(super) struct Fitted {
    pub(super) entry: Entry,
    pub(super) details: String,
}

impl Fitted {
    /// What the record says of itself.
    pub(super) fn of_record(action: Action, namespace: &str, details: Value) -> Self {
        let entry = Entry {
            action,
            outcome: Outcome::Ok,
            namespace: namespace.to_owned(),
            execution_id: None,
            caller: "ringfence".to_owned(),
            details: Map::new(),
        };
        let details = details.to_string();
        Self { entry, details }
    }
}

impl Entry {
    pub(super) fn fitted(mut self) -> Result<Fitted, AuditError> {
        within("namespace", &self.namespace, NAME_BYTES_MAX)?;
        let execution_id = self.execution_id.as_deref().unwrap_or_default();
        within("execution_id", execution_id, NAME_BYTES_MAX)?;
        within("caller", &self.caller, NAME_BYTES_MAX)?;
        let details = Value::Object(std::mem::take(&mut self.details)).to_string();
        within("details", &details, DETAILS_BYTES_MAX)?;
        let entry = self;
        Ok(Fitted { entry, details })
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
        for &action in Action::ALL {
            assert_eq!(action.as_str().parse(), Ok(action));
        }
        for &outcome in Outcome::ALL {
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
