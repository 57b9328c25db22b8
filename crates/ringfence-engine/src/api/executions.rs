//! Executions by their id.

use super::{Engine, NamespaceAccess};
use crate::{
    caller::Caller,
    error::Result,
    executions::{
        Cancelled, Entry, ExecutionLine, ExecutionState, ExecutionTimes, Following, Progress, not_there,
    },
    services::Services,
    store,
};
use ringfence_types::{Namespace, SessionId};
use std::{cmp::Reverse, collections::HashMap, time::Duration};

impl NamespaceAccess<'_> {
    /// One of its executions, after it has ended or `wait` is over. A refusal comes as it was.
    pub async fn execution(self, id: &str, wait: Duration) -> Result<ExecutionState> {
        self.called("get_execution").await?;
        let executions = &self.services.executions;
        let mut ended = executions.state().find(self.namespace, id)?.has_ended.subscribe();
        // After that the answer is what there is so far.
        drop(tokio::time::timeout(wait, ended.wait_for(|ended| *ended)).await);
        self.execution_now(id).await
    }

    /// The same at once and not on record, for the call that began it.
    pub async fn execution_now(self, id: &str) -> Result<ExecutionState> {
        let redactor = self.redactor().await?;
        let state = self.services.executions.state();
        let entry = state.find(self.namespace, id)?;
        let Some(kept) = &entry.kept else {
            let [stdout, stderr] = entry.so_far.texts();
            let line = entry.line(id, &redactor);
            return Ok(ExecutionState::Running(Progress { line, stdout, stderr }));
        };
        let json = kept.result.clone()?;
        drop(state);
        let result = serde_json::from_slice(&json).map_err(store::fault)?;
        Ok(ExecutionState::Ended(Box::new(result)))
    }

    /// Its executions, or those of one of its sessions: those that run, and then the latest first.
    pub async fn executions(self, session: Option<&SessionId>, limit: usize) -> Result<Vec<ExecutionLine>> {
        self.called("list_executions").await?;
        let is_meant = |entry: &Entry| {
            entry.namespace == *self.namespace
                && session.is_none_or(|session| entry.session.as_ref() == Some(session))
        };
        lines(self.services, [self.namespace.clone()], limit, is_meant).await
    }

    pub async fn cancel_execution(self, id: &str) -> Result<Cancelled> {
        self.called("cancel_execution").await?;
        let state = self.services.executions.state();
        let entry = state.find(self.namespace, id).ok();
        let running = entry.filter(|entry| entry.kept.is_none());
        if let Some(running) = running {
            running.cancel.send_replace(true);
        }
        Ok(Cancelled {
            cancelled: running.is_some(),
            existed: entry.is_some(),
        })
    }
}

impl Engine {
    /// The times of an execution of this namespace; not on record.
    pub fn execution_times(&self, namespace: &Namespace, id: &str) -> Result<ExecutionTimes> {
        self.services.executions.times(namespace, id)
    }

    /// Lists the executions of all namespaces. For the operator alone.
    pub async fn all_executions(&self, caller: &Caller, limit: usize) -> Result<Vec<ExecutionLine>> {
        self.note_call(caller, "", "list_executions").await?;
        let namespaces = self.services.executions.state().namespaces();
        lines(&self.services, namespaces, limit, |_| true).await
    }

    /// Whose execution it is. For the operator alone.
    pub fn owner_of(&self, id: &str) -> Result<Namespace> {
        self.follow_execution(id).map(|(owner, _)| owner)
    }

    /// Whose execution it is, and its output as it comes. For the operator alone, and not on record:
    /// [`NamespaceAccess::execution`] is.
    pub fn follow_execution(&self, id: &str) -> Result<(Namespace, Following)> {
        let state = self.services.executions.state();
        let entry = state.get(id).ok_or_else(not_there)?;
        let following = Following {
            so_far: entry.so_far.clone(),
            given: [0; 2],
            has_ended: entry.has_ended.subscribe(),
        };
        Ok((entry.namespace.clone(), following))
    }
}

/// Without the secrets of their namespaces.
async fn lines(
    services: &Services,
    namespaces: impl IntoIterator<Item = Namespace>,
    limit: usize,
    is_meant: impl Fn(&Entry) -> bool,
) -> Result<Vec<ExecutionLine>> {
    let mut redactors = HashMap::new();
    for namespace in namespaces {
        let redactor = services.secrets.redactor_of_all(&namespace, &[]).await?;
        redactors.insert(namespace, redactor);
    }
    let state = services.executions.state();
    let mut meant: Vec<_> = state
        .entries
        .iter()
        .filter(|(_, entry)| !entry.is_ours && is_meant(entry))
        .collect();
    // Ids are in the order of time, as the engine makes them.
    meant.sort_unstable_by_key(|(id, entry)| (entry.kept.is_some(), Reverse(id.as_str())));
    let line = |(id, entry): (&String, &Entry)| Some(entry.line(id, redactors.get(&entry.namespace)?));
    Ok(meant.into_iter().filter_map(line).take(limit).collect())
}
