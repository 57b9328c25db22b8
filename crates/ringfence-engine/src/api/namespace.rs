//! One namespace, for a caller who asks for something of it, and what its operations have in common.

use super::Engine;
use crate::{
    caller::Caller,
    error::Result,
    record::{Note, outcome_of},
    services::Services,
};
use ringfence_redact::Redactor;
use ringfence_store::audit::{Action, Outcome};
use ringfence_types::Namespace;
use serde_json::{Value, json};
use std::{fmt, sync::Arc};

/// A namespace, and who asks for something of it.
#[derive(Clone, Copy)]
pub struct NamespaceAccess<'a> {
    pub(super) services: &'a Arc<Services>,
    pub(super) caller: &'a Caller,
    pub(super) namespace: &'a Namespace,
}

impl fmt::Debug for NamespaceAccess<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("NamespaceAccess");
        shown.field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Engine {
    pub fn namespace<'a>(&'a self, caller: &'a Caller, namespace: &'a Namespace) -> NamespaceAccess<'a> {
        NamespaceAccess {
            services: &self.services,
            caller,
            namespace,
        }
    }
}

impl<'a> NamespaceAccess<'a> {
    /// Without the secrets of the namespace.
    pub(super) async fn redactor(&self) -> Result<Redactor> {
        self.services.secrets.redactor_of_all(self.namespace, &[]).await
    }

    pub(super) fn note(&self, action: Action, details: Value) -> Note<'a> {
        Note::of(self.caller, self.namespace, action, details)
    }

    /// Puts on record what was done.
    pub(super) async fn done(&self, action: Action, outcome: Outcome, details: Value) -> Result<()> {
        let note = self.note(action, details).ended(outcome);
        self.services.record.note(note).await.map(drop)
    }

    /// A call that changes nothing, on record before it is answered.
    pub(super) async fn called(&self, tool: &str) -> Result<()> {
        self.done(Action::ToolCalled, Outcome::Ok, json!({"tool": tool}))
            .await
    }

    /// Something that was read, on record before it is answered.
    pub(super) async fn read<T>(&self, action: Action, details: Value, read: Result<T>) -> Result<T> {
        self.done(action, outcome_of(&read), details).await?;
        read
    }

    /// A change, on record before it is made, and after, with its outcome.
    pub(super) async fn change<T>(
        &self,
        action: Action,
        details: Value,
        act: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let note = self.note(action, details);
        self.services.record.around(note, act, |_, _| ()).await
    }
}
