//! Executions by their id.

use super::{Engine, NamespaceAccess};
use crate::{
    caller::Caller,
    error::Result,
    executions::{
        Cancelled, Entry, ExecutionLine, ExecutionState, ExecutionTimes, Following, Progress, not_found,
    },
    services::Services,
    store,
};
use ringfence_types::{Namespace, SessionId};
use std::{cmp::Reverse, collections::HashMap, time::Duration};

impl NamespaceAccess<'_> {
    /// Returns an execution after its end or after `wait`. A refused execution returns its error.
    pub async fn execution(self, id: &str, wait: Duration) -> Result<ExecutionState> {
        self.called("get_execution").await?;
        let executions = &self.services.executions;
        let mut ended = executions.state().find(self.namespace, id)?.has_ended.subscribe();
        drop(tokio::time::timeout(wait, ended.wait_for(|ended| *ended)).await);
        self.execution_now(id).await
    }

    /// Returns an execution at once, without a record, for the call that started it.
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

    /// Lists the executions of the namespace or of one of its sessions: running ones first, then the latest.
    pub async fn executions(self, session: Option<&SessionId>, limit: usize) -> Result<Vec<ExecutionLine>> {
        self.called("list_executions").await?;
        let matches = |entry: &Entry| {
            entry.namespace == *self.namespace
                && session.is_none_or(|session| entry.session.as_ref() == Some(session))
        };
        lines(self.services, [self.namespace.clone()], limit, matches).await
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
    /// Returns the times of an execution of this namespace, without a record.
    pub fn execution_times(&self, namespace: &Namespace, id: &str) -> Result<ExecutionTimes> {
        self.services.executions.times(namespace, id)
    }

    /// Lists the executions of all namespaces. For the operator alone.
    pub async fn all_executions(&self, caller: &Caller, limit: usize) -> Result<Vec<ExecutionLine>> {
        self.note_call(caller, "", "list_executions").await?;
        let namespaces = self.services.executions.state().namespaces();
        lines(&self.services, namespaces, limit, |_| true).await
    }

    /// Returns the namespace of an execution. For the operator alone.
    pub fn owner_of(&self, id: &str) -> Result<Namespace> {
        self.follow_execution(id).map(|(owner, _)| owner)
    }

    /// Like [`Engine::owner_of`], with the output as it comes. Without a record, unlike [`NamespaceAccess::execution`].
    pub fn follow_execution(&self, id: &str) -> Result<(Namespace, Following)> {
        let state = self.services.executions.state();
        let entry = state.get(id).ok_or_else(not_found)?;
        let following = Following {
            so_far: entry.so_far.clone(),
            given: [0; 2],
            has_ended: entry.has_ended.subscribe(),
        };
        Ok((entry.namespace.clone(), following))
    }
}

/// Lists matching executions, without the secrets of their namespaces.
async fn lines(
    services: &Services,
    namespaces: impl IntoIterator<Item = Namespace>,
    limit: usize,
    matches: impl Fn(&Entry) -> bool,
) -> Result<Vec<ExecutionLine>> {
    let mut redactors = HashMap::new();
    for namespace in namespaces {
        let redactor = services.secrets.redactor_of_all(&namespace, &[]).await?;
        redactors.insert(namespace, redactor);
    }
    let state = services.executions.state();
    let mut matching: Vec<_> = state
        .entries
        .iter()
        .filter(|(_, entry)| !entry.is_ours && matches(entry))
        .collect();
    // Ids are UUIDv7, and so in the order of time.
    matching.sort_unstable_by_key(|(id, entry)| (entry.kept.is_some(), Reverse(id.as_str())));
    let line = |(id, entry): (&String, &Entry)| Some(entry.line(id, redactors.get(&entry.namespace)?));
    Ok(matching.into_iter().filter_map(line).take(limit).collect())
}
