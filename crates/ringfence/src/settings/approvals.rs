//! What the settings of approvals mean.

use super::keys::Effective;
use ringfence_engine::ApprovalSettings;
use std::time::Duration;

pub(super) fn meant(settings: &Effective) -> ApprovalSettings {
    ApprovalSettings {
        timeout: Duration::from_secs(settings.approvals_timeout_seconds.value.get()),
        namespace_max: Duration::from_secs(60 * settings.approvals_max_namespace_minutes.value.get()),
    }
}
