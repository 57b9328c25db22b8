//! The toolset `snapshots`: a workspace saved, put back, and compared with what it was.

use super::{Answer, Answered, call::Call};
use crate::{
    api::{
        CreateStateSnapshot, DeleteStateSnapshot, DiffWorkspace, ListStateSnapshots, RestoreStateSnapshot,
    },
    render::{self, Rendered},
};
use ringfence_types::Namespace;
use serde_json::json;

impl Call<'_> {
    pub(super) async fn create_snapshot(&self, given: CreateStateSnapshot, namespace: Namespace) -> Answered {
        let description = given.description.unwrap_or_default();
        let workspace = self.workspace(&namespace, given.session_id);
        let made = workspace.create_snapshot(description);
        Ok(Answer::from(render::snapshot_made(&made.await?)))
    }

    pub(super) async fn restore_snapshot(
        &self,
        given: RestoreStateSnapshot,
        namespace: Namespace,
    ) -> Answered {
        let id = given.snapshot_id;
        let restored = self
            .engine()
            .restore_snapshot(self.caller(), &namespace, &id, given.session_id);
        Ok(Answer::from(render::snapshot_restored(&id, restored.await?)))
    }

    pub(super) async fn list_snapshots(&self, _: ListStateSnapshots, namespace: Namespace) -> Answered {
        let listed = self.engine().snapshots(self.caller(), &namespace).await?;
        Ok(Answer::from(render::snapshots(&listed)))
    }

    pub(super) async fn diff(&self, given: DiffWorkspace, namespace: Namespace) -> Answered {
        let workspace = self.workspace(&namespace, given.session_id);
        let difference = workspace.diff(given.snapshot_id.as_deref());
        Ok(Answer::from(render::difference(&difference.await?)))
    }

    pub(super) async fn delete_snapshot(&self, given: DeleteStateSnapshot, namespace: Namespace) -> Answered {
        let id = given.snapshot_id;
        self.engine()
            .delete_snapshot(self.caller(), &namespace, &id)
            .await?;
        Ok(Rendered::new("deleted\n", json!({"snapshot_id": id})).into())
    }
}
