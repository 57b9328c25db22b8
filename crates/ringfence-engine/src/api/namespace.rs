//! Access of a caller to one namespace, and what its operations have in common.

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

#[derive(Clone, Copy)]
pub struct NamespaceAccess<'a> {
    pub(super) services: &'a Arc<Services>,
    pub(super) caller: &'a Caller,
    pub(super) namespace: &'a Namespace,
}

impl fmt::Debug for NamespaceAccess<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("NamespaceAccess");
        debug.field("namespace", &self.namespace).finish_non_exhaustive()
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
    pub(super) async fn redactor(&self) -> Result<Redactor> {
        self.services.secrets.redactor_of_all(self.namespace, &[]).await
    }

    pub(super) fn note(&self, action: Action, details: Value) -> Note<'a> {
        Note::of(self.caller, self.namespace, action, details)
    }

    /// Records an action with its outcome.
    pub(super) async fn done(&self, action: Action, outcome: Outcome, details: Value) -> Result<()> {
        let note = self.note(action, details).ended(outcome);
        self.services.record.note(note).await.map(drop)
    }

    /// Records a call that changes nothing, before it is answered.
    pub(super) async fn called(&self, tool: &str) -> Result<()> {
        self.done(Action::ToolCalled, Outcome::Ok, json!({"tool": tool}))
            .await
    }

    /// Records a read, before it is answered.
    pub(super) async fn read<T>(&self, action: Action, details: Value, read: Result<T>) -> Result<T> {
        self.done(action, outcome_of(&read), details).await?;
        read
    }

    /// Makes a change, recorded before it is made, and after it, with its outcome.
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
