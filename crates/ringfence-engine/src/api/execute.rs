//! Submitted requests, each in a task of the engine, so that a caller that disconnects loses nothing.

use super::Engine;
use crate::{
    caller::{Client, OutputChunk, Submission},
    error::{Result, task_died},
    execution::{ExecutionOutcome, Source, execute},
    overlay::HeldChanges,
    services::Services,
    store, warm,
};
use ringfence_types::ExecutionResult;
use std::{sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot, watch};

/// A submitted request. Its task belongs to the engine: dropping this loses nothing and stops nothing.
pub struct Execution {
    id: String,
    task: EngineTask<(ExecutionResult, Option<HeldChanges>)>,
}

/// A handle to a task of the engine.
pub struct EngineTask<T> {
    /// Live output, or notices of progress. The task waits for a slow reader.
    pub output: Option<mpsc::Receiver<OutputChunk>>,
    pub(super) answer: oneshot::Receiver<Result<T>>,
    pub(super) canceller: Canceller,
}

impl<T> EngineTask<T> {
    pub async fn next_output(&mut self) -> Option<OutputChunk> {
        match &mut self.output {
            Some(output) => output.recv().await,
            None => None,
        }
    }

    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    pub async fn finish(mut self) -> Result<T> {
        self.output = None;
        self.answer.await.unwrap_or_else(|_| Err(task_died()))
    }
}

#[derive(Clone)]
pub struct Canceller {
    cancel: watch::Sender<bool>,
}

type Answered = Result<(ExecutionResult, Option<HeldChanges>)>;

/// Maximum pieces of live output that wait for their reader; beyond that, the program waits.
const OUTPUT_CHUNKS_WAITING: usize = 16;

/// Delay of cleaning up and of making the next sandbox ready, so that the answer is sent first.
const AFTER_ANSWER: Duration = Duration::from_millis(1);

impl Engine {
    /// Accepts a request; refusals come out of [`Execution::finish`].
    pub fn submit(&self, mut submission: Submission) -> Execution {
        let id = uuid::Uuid::now_v7().to_string();
        let (cancel, cancelled) = watch::channel(false);
        let (answer, result) = oneshot::channel();
        let (sender, output) = submission
            .live
            .then(|| mpsc::channel(OUTPUT_CHUNKS_WAITING))
            .unzip();
        let client = Client {
            output: sender,
            cancelled,
        };
        let begun = self.services.executions.begin(&id, &submission, &cancel);
        let begun = begun.and_then(|()| source(&self.services, &mut submission));
        let open = OpenExecution {
            services: self.services.clone(),
            id: id.clone(),
        };
        tokio::spawn(async move {
            let services = open.services.clone();
            let executed = execute(&services, &open.id, submission, begun, client).await;
            let result = executed.as_ref().map(|done| &done.result);
            services.executions.end(&open.id, result);
            let id = open.id.clone();
            drop(open);
            conclude(&services, &id, executed, answer).await;
        });
        Execution {
            id,
            task: EngineTask {
                output,
                answer: result,
                canceller: Canceller { cancel },
            },
        }
    }
}

/// An execution that has not ended. If its task ends before it, as by a panic, it is lost.
struct OpenExecution {
    services: Arc<Services>,
    id: String,
}

impl Drop for OpenExecution {
    fn drop(&mut self) {
        self.services.executions.end(&self.id, Err(&task_died()));
        self.services.execution_ended.notify_waiters();
    }
}

/// Returns the source of the sandbox. Calls of one session take turns in the order of their submission.
fn source(services: &Services, submission: &mut Submission) -> Result<Source> {
    let request = &submission.request;
    match &request.session {
        Some(session) => {
            let session = services.sessions.find(&request.namespace, session)?;
            session.join_queue().map(Source::InSession)
        }
        None => Ok(Source::Fresh {
            artifacts_to: submission.artifacts_to.take(),
            holds_changes: submission.holds_changes,
        }),
    }
}

async fn conclude(
    services: &Arc<Services>,
    id: &str,
    executed: Result<ExecutionOutcome>,
    answer: oneshot::Sender<Answered>,
) {
    let (result, hold) = match executed {
        Ok(ExecutionOutcome {
            result,
            changes,
            hold,
            ..
        }) => (Ok((result, changes)), hold),
        Err(error) => (Err(error), None),
    };
    match &result {
        Ok((done, _)) => {
            tracing::info!(id = %id, language = %done.language, exit = ?done.exit.kind, ms = done.duration_ms, "execution")
        }
        Err(error) => tracing::info!(id = %id, code = %error.code, "refused"),
    }
    // The client may be gone; the run is complete in any case.
    drop(answer.send(result.map_err(|error| error.for_execution(id))));
    tokio::time::sleep(AFTER_ANSWER).await;
    drop(hold);
    warm::fill(&services.sandboxes);
    store::sweep_when_due(&services.artifacts);
    services.secrets.forget_old();
}

impl Execution {
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn canceller(&self) -> Canceller {
        self.task.canceller()
    }

    /// Waits for the next piece of live output; `None` when the program has ended.
    pub async fn next_output(&mut self) -> Option<OutputChunk> {
        self.task.next_output().await
    }

    /// Waits for the result. Live output that was not read is dropped.
    pub async fn finish(self) -> Result<ExecutionResult> {
        self.finish_with_changes().await.map(|(result, _)| result)
    }

    /// Waits for the result, with the changes to an overlay if the submission holds them.
    pub async fn finish_with_changes(self) -> Result<(ExecutionResult, Option<HeldChanges>)> {
        let done = self.task.finish().await;
        done.map_err(|error| error.for_execution(&self.id))
    }

    pub fn into_task(self) -> EngineTask<(ExecutionResult, Option<HeldChanges>)> {
        self.task
    }
}

impl Canceller {
    pub(crate) fn new(cancel: watch::Sender<bool>) -> Self {
        Self { cancel }
    }

    /// Stops the execution; its process tree ends within a second.
    pub fn cancel(&self) {
        self.cancel.send_replace(true);
    }
}
