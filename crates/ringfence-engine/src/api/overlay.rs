//! Changes that sessions keep in their overlays.

use super::NamespaceAccess;
use crate::{
    error::Result,
    overlay::{ChangeOrigin, HeldChanges, OverlayLayers},
    services::Services,
    store::fault,
};
use ringfence_types::{Namespace, RequestError, SessionId};

impl NamespaceAccess<'_> {
    /// Returns the changes of a session to the directory below its overlay. Until they are dropped or committed, no
    /// call of it runs; after a commit, its own layer equals the directory. For the operator alone: no tool commits.
    pub async fn held_changes(self, id: &SessionId) -> Result<HeldChanges> {
        self.called("diff_workspace").await?;
        let held = of_session(self.services, self.namespace, id).await?;
        held.ok_or_else(|| {
            RequestError::invalid(
                "the session's workspace is no overlay: its changes are already in place.",
                "`ringfence session create --workspace DIR:overlay` makes one that keeps them.",
            )
        })
    }
}

/// Reads the changes of a session, in its turn. `None`: its workspace is not an overlay.
pub(crate) async fn of_session(
    services: &Services,
    namespace: &Namespace,
    id: &SessionId,
) -> Result<Option<HeldChanges>> {
    let session = services.sessions.find(namespace, id)?;
    let Some(lower) = session.lower.clone() else {
        return Ok(None);
    };
    let turn = session.turn_soon().await?;
    let upper = session.dirs.changes.try_clone();
    let upper = upper.map_err(fault)?;
    let of = ChangeOrigin::Session(id.clone());
    let redactor = session.redactor(&services.secrets).await?;
    let layers = OverlayLayers { lower, upper };
    let mut held = HeldChanges::read(&services.record, namespace, of, layers, redactor).await?;
    held.turn = Some(Box::new(turn));
    Ok(Some(held))
}
