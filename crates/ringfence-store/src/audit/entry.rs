//! Entries to record, and their closed lists of words.

use super::AuditError;
use ringfence_types::closed_words;
use serde_json::{Map, Value};

/// Maximum length of a namespace, caller, execution id or server id, in bytes.
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
        /// A chain begins, or continues after a break; the details give the reason.
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
    /// At most 512 bytes, as are the next two.
    pub namespace: String,
    pub execution_id: Option<String>,
    pub caller: String,
    /// At most 64 KiB of JSON text.
    pub details: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub seq: u64,
    pub hash: [u8; 32],
}

/// An entry within the limits, with its details as the text to store.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) entry: Entry,
    pub(super) details: String,
}

impl Encoded {
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
    pub(super) fn encoded(mut self) -> Result<Encoded, AuditError> {
        within("namespace", &self.namespace, NAME_BYTES_MAX)?;
        let execution_id = self.execution_id.as_deref().unwrap_or_default();
        within("execution_id", execution_id, NAME_BYTES_MAX)?;
        within("caller", &self.caller, NAME_BYTES_MAX)?;
        let details = Value::Object(std::mem::take(&mut self.details)).to_string();
        within("details", &details, DETAILS_BYTES_MAX)?;
        let entry = self;
        Ok(Encoded { entry, details })
    }
}

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
    fn action_and_outcome_words_round_trip() {
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
    fn entry_at_the_size_limit_is_accepted_and_one_byte_more_is_refused() {
        let entry = |caller: usize, details: usize| Entry {
            action: Action::ToolCalled,
            outcome: Outcome::Ok,
            namespace: "default".to_owned(),
            execution_id: None,
            caller: "c".repeat(caller),
            details: Map::from_iter([("k".to_owned(), Value::from("d".repeat(details)))]),
        };
        let around = r#"{"k":""}"#.len();
        assert!(entry(512, DETAILS_BYTES_MAX - around).encoded().is_ok());
        let refused = entry(513, 0).encoded().unwrap_err();
        assert!(matches!(
            refused,
            AuditError::TooLarge {
                field: "caller",
                bytes: 513,
                bytes_max: 512
            }
        ));
        let refused = entry(1, DETAILS_BYTES_MAX - around + 1).encoded().unwrap_err();
        assert!(matches!(refused, AuditError::TooLarge { field: "details", .. }));
    }
}
