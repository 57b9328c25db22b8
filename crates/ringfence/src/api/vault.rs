//! The toolsets `vault` and `egress`: secrets that a person has added, and hosts that a person is asked for.

use super::{Object, operations, read::Whole};
use ringfence_types::{EnvName, SessionId};

operations! {
    /// List the names of this namespace's secrets, never their values. To use one, name it in secrets of execute_code;
    /// a person adds one with `ringfence vault add`.
    "vault_list" "List secrets" Vault Reads
    VaultList {} -> Secrets { namespace: String, vault: String, secrets: Vec<Object> }

    /// Delete a secret; a person has to enter it again.
    "vault_delete" "Delete a secret" Vault Replaces
    VaultDelete {
        key: EnvName,
    } -> Forgotten { existed: bool }

    /// Ask a person to let programs reach a host. If the answer is pending, call again; if it is no, work around it.
    "request_egress" "Ask to reach a host" Egress Reaches
    RequestEgress {
        /// Such as example.com:8443.
        #[serde(alias = "host")]
        domain: String,
        /// One sentence for the person.
        #[serde(alias = "justification")]
        reason: Option<String>,
        session_id: Option<SessionId>,
        /// At most 50.
        wait_seconds: Option<Whole>,
    } -> Decided {
        domain: String,
        approved: bool,
        scope: Option<String>,
        /// Not answered yet.
        pending: bool,
        decided_by: Option<String>,
        expires_at: Option<String>,
    }
}
