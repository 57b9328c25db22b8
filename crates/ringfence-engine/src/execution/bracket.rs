//! The audit bracket around an execution: one entry before anything runs, and one before its result leaves.

use super::{
    outcome::{ExecutionOutcome, PhaseTimer},
    pipeline,
    states::{ExecutionContext, Source},
};
use crate::{
    caller::{Client, ENGINE_CALLER, Submission},
    error::{Result, denial},
    events::{Ended, EventKind},
    record::{AuditScope, Written},
    services::Services,
};
use ringfence_store::audit::Action;
use ringfence_types::{Denial, ExitKind, Language, Namespace, Phases, ResourceUsage};
use std::sync::Arc;

/// Runs one execution. `source` of a session's call is its place in the session's queue.
pub(crate) async fn execute(
    services: &Arc<Services>,
    id: &str,
    submission: Submission,
    source: Result<Source>,
    client: Client,
) -> Result<ExecutionOutcome> {
    let announced = Announced {
        services,
        id,
        namespace: submission.request.namespace.clone(),
        language: submission.request.language,
        is_ours: submission.caller == ENGINE_CALLER,
        timer: PhaseTimer::start(),
    };
    let Submission {
        request,
        stdin,
        caller,
        ..
    } = submission;
    let done = match services
        .record
        .open(Action::ExecutionStarted, id, &caller, &request)
    {
        Ok(scope) => {
            announced.begin();
            let context = ExecutionContext {
                services,
                scope: &scope,
                client,
            };
            let done = match source {
                Ok(source) => pipeline::run(context, source, request, stdin, announced.timer).await,
                Err(error) => Err(error),
            };
            close(services, scope, done).await
        }
        Err(error) => Err(error),
    };
    announced.end(&done);
    done
}

/// Closes the audit scope. Without a closing entry no result leaves.
async fn close(
    services: &Arc<Services>,
    scope: AuditScope,
    mut done: Result<ExecutionOutcome>,
) -> Result<ExecutionOutcome> {
    let id = scope.id().to_owned();
    let closed = scope.close(done.as_ref().map(ExecutionOutcome::closing)).await;
    if let (Ok(executed), Ok(Written::No)) = (&mut done, &closed) {
        executed.result.security_events.push(not_on_record());
    }
    if closed.is_err() {
        withdraw(services, id).await;
    }
    closed.and(done)
}

/// Withdraws the files of a run whose end is not on record.
async fn withdraw(services: &Arc<Services>, id: String) {
    let (store, execution) = (services.artifacts.clone(), id.clone());
    let withdrawn = tokio::task::spawn_blocking(move || store.withdraw(&execution)).await;
    if !matches!(withdrawn, Ok(Ok(_))) {
        tracing::error!(%id, "the files of a run whose end is not on record could not be withdrawn");
    }
}

fn not_on_record() -> Denial {
    let what = "this run is not on the audit record, which could not be written";
    let hint = "The operator chose `audit.on_failure: warn`; the server's log says why it failed.";
    denial("audit.not_recorded", "audit", what, hint)
}

struct Announced<'a> {
    services: &'a Services,
    id: &'a str,
    namespace: Namespace,
    language: Language,
    /// True for the engine's own runs, which are not published.
    is_ours: bool,
    timer: PhaseTimer,
}

impl Announced<'_> {
    fn publish(&self, kind: EventKind) {
        let bus = &self.services.telemetry.bus;
        bus.publish(&self.namespace, Some(self.id), kind);
    }

    fn begin(&self) {
        if !self.is_ours {
            let language = self.language;
            self.publish(EventKind::ExecutionStarted { language });
        }
    }

    fn end(&self, done: &Result<ExecutionOutcome>) {
        if self.is_ours {
            return;
        }
        let metrics = &self.services.telemetry.metrics;
        let mut ended = Ended {
            language: self.language,
            exit: None,
            exit_code: None,
            refused: done.as_ref().err().map(|error| error.code.as_str()),
            duration_ms: self.timer.total(),
            // Unknown for a refusal.
            phases: Phases::default(),
            resource_usage: ResourceUsage::default(),
        };
        if let Ok(ExecutionOutcome {
            result, redactions, ..
        }) = done
        {
            ended.exit = Some(result.exit.kind);
            ended.exit_code = Some(result.exit_code);
            ended.duration_ms = result.duration_ms;
            ended.phases = result.phases;
            ended.resource_usage = result.resource_usage;
            metrics.count_redactions(*redactions);
            if let Some(limit) = &result.exit.limit {
                let limit = limit.clone();
                self.publish(EventKind::ResourceExceeded { limit });
            }
            metrics.count_result(result);
        }
        metrics.count_end(&ended);
        self.publish(match done {
            Ok(done) if done.result.exit.kind == ExitKind::Timeout => EventKind::ExecutionTimeout(ended),
            Ok(done) if done.result.success => EventKind::ExecutionCompleted(ended),
            _ => EventKind::ExecutionFailed(ended),
        });
    }
}
