//! The toolset `snapshots`: a workspace saved, put back, and compared with what it was.

use super::{
    Answer,
    arguments::{Name, invalid},
    files::{self, SESSION},
    observe::{Answered, Call, Object, answer},
};
use crate::shown;
use ringfence_types::RequestError;
use serde_json::json;

pub(super) const DESCRIPTION: Name = ("description", &[]);
pub(super) const SNAPSHOT: Name = ("snapshot_id", &[]);

impl Call<'_> {
    pub(super) async fn create_snapshot(&self, arguments: Object) -> Answered {
        let (mut arguments, namespace) = self.open(arguments, &[DESCRIPTION, SESSION])?;
        let whose = files::whose(&mut arguments)?;
        let description = arguments.text(DESCRIPTION)?.unwrap_or_default();
        let made = self
            .engine()
            .create_snapshot(self.caller(), &namespace, &whose, description);
        Ok(answer(shown::snapshot_made(&made.await?)))
    }

    pub(super) async fn restore_snapshot(&self, arguments: Object) -> Answered {
        let (mut arguments, namespace) = self.open(arguments, &[SNAPSHOT, SESSION])?;
        let into = files::session(&mut arguments)?;
        let id = arguments.text(SNAPSHOT)?.ok_or_else(no_snapshot)?;
        let restored = self
            .engine()
            .restore_snapshot(self.caller(), &namespace, &id, into);
        Ok(answer(shown::snapshot_restored(&id, restored.await?)))
    }

    pub(super) async fn list_snapshots(&self, arguments: Object) -> Answered {
        let (_, namespace) = self.open(arguments, &[])?;
        let listed = self.engine().snapshots(self.caller(), &namespace).await?;
        Ok(answer(shown::snapshots(&listed)))
    }

    pub(super) async fn diff(&self, arguments: Object) -> Answered {
        let (mut arguments, namespace) = self.open(arguments, &[SNAPSHOT, SESSION])?;
        let whose = files::whose(&mut arguments)?;
        let base = arguments.text(SNAPSHOT)?;
        let difference = self
            .engine()
            .diff_workspace(self.caller(), &namespace, &whose, base.as_deref());
        Ok(answer(shown::difference(&difference.await?)))
    }

    pub(super) async fn delete_snapshot(&self, arguments: Object) -> Answered {
        let (mut arguments, namespace) = self.open(arguments, &[SNAPSHOT])?;
        let id = arguments.text(SNAPSHOT)?.ok_or_else(no_snapshot)?;
        self.engine()
            .delete_snapshot(self.caller(), &namespace, &id)
            .await?;
        Ok(Answer::plain(
            "deleted\n".to_owned(),
            json!({"success": true, "snapshot_id": id}),
        ))
    }
}

fn no_snapshot() -> RequestError {
    invalid(
        "`snapshot_id` is missing.".to_owned(),
        "`list_state_snapshots` has them.",
    )
}
