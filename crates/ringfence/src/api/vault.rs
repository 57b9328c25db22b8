//! The toolsets `vault` and `egress`: what a person has given, or is asked for.

use super::{Object, operation, read::Whole, response};
use ringfence_types::{EnvName, SessionId};
use schemars::JsonSchema;
use serde::Deserialize;

/// List the names of this namespace's secrets, never their values. To use one, name it in secrets of execute_code; a
/// person adds one with `ringfence vault add`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VaultList {}
operation!(VaultList => Secrets, "vault_list", "List secrets", Vault, Reads);

response!(Secrets { namespace: String, vault: String, secrets: Vec<Object> });

/// Delete a secret; a person has to enter it again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VaultDelete {
    #[schemars(with = "String")]
    pub(crate) key: EnvName,
}
operation!(VaultDelete => Forgotten, "vault_delete", "Delete a secret", Vault, Replaces);

response!(Forgotten { existed: bool });

/// Ask a person to let programs reach a host. If the answer is pending, call again; if it is no, work around it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestEgress {
    /// Such as example.com:8443.
    #[serde(alias = "host")]
    pub(crate) domain: String,
    /// One sentence for the person.
    #[serde(alias = "justification")]
    pub(crate) reason: Option<String>,
    #[schemars(with = "Option<String>")]
    pub(crate) session_id: Option<SessionId>,
    /// At most 50.
    pub(crate) wait_seconds: Option<Whole>,
}
operation!(RequestEgress => Decided, "request_egress", "Ask to reach a host", Egress, Reaches);

response!(Decided {
    domain: String,
    approved: bool,
    scope: Option<String>,
    /// Not answered yet.
    pending: bool,
    decided_by: Option<String>,
    expires_at: Option<String>,
});
