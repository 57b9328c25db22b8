//! Executions as tasks (the tasks extension of revision 2026-07-28). A call that would be answered before its program
//! has ended is answered with a task, whose id is that of the execution: a task has what `get_execution` has. Only a
//! request that declares the extension is answered like this; other clients take the answer for an empty result.

use super::{Answer, call::Call, hints, refusal, service::Server};
use crate::{
    api::{self, Operation as _},
    settings::Toolset,
    time,
};
use ringfence_engine::{Engine, ExecutionState, ExecutionTimes};
use ringfence_types::{ErrorCode, ExitKind, Namespace, RequestError};
use rmcp::{
    ErrorData, RoleServer,
    model::{
        CallToolRequestParams, CallToolResult, ClientCapabilities, CreateTaskResult, DetailedTask,
        GetTaskResult, ProtocolVersion, Task, TaskPayload, TaskStatus,
    },
    service::RequestContext,
};
use serde_json::Value;
use std::time::Duration;

/// Bounds of the poll interval, which is a tenth of the time that the program has run.
const POLL_MS: std::ops::RangeInclusive<u64> = 500..=5000;

/// Returns true if the request declares the tasks extension, and a revision that has it.
pub(super) fn are_supported(context: &RequestContext<RoleServer>) -> bool {
    let (meta, newest) = (&context.meta, ProtocolVersion::V_2026_07_28);
    let is_complete = meta.protocol_version().is_some_and(|version| version >= newest);
    is_complete
        && meta
            .client_capabilities()
            .is_some_and(|able| able.supports_tasks())
}

impl Call<'_> {
    /// Returns the answer for a program that runs on, as a task if the client supports them and results are kept.
    pub(super) fn running(&self, mut answer: Answer, namespace: &Namespace, id: &str) -> Answer {
        if self.offer().calls.keep_results && are_supported(self.context) {
            let times = self.unrecorded().execution_times(namespace, id).ok();
            let task = times.map(|times| task(id, TaskStatus::Working, &times));
            answer.task = task.map(|task| Box::new(CreateTaskResult::new(task)));
        }
        answer
    }
}

impl Server {
    pub(super) async fn detailed_task(
        &self,
        id: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let (engine, namespace) = self.engine_of_task(id, context).await?;
        let request = CallToolRequestParams::new(api::GetExecution::NAME);
        let call = Call::new(self, &engine, context, &request, api::GetExecution::NAME);
        let access = engine.namespace(call.caller(), &namespace);
        let payload = match access.execution(id, Duration::ZERO).await {
            Ok(ExecutionState::Running(_)) => TaskPayload::Working,
            Ok(ExecutionState::Ended(result)) if result.exit.kind == ExitKind::Cancelled => {
                TaskPayload::Cancelled
            }
            // A program that failed has run: its task is completed.
            Ok(ExecutionState::Ended(result)) => {
                let answer = call.whole(&result, [0; 2]).await;
                completed(&answer.map_err(|error| internal(&error))?.into_result())?
            }
            // The refusal with which the request was answered: the program never ran.
            Err(error) if error.execution_id.as_deref() == Some(id) => {
                completed(&refusal(&hints::of_error(error, self.offer()), ""))?
            }
            Err(error) if error.code == ErrorCode::NotFound => return Err(unknown()),
            Err(error) => return Err(internal(&error)),
        };
        let times = engine.execution_times(&namespace, id).map_err(|_| unknown())?;
        let mut task = task(id, payload.status(), &times);
        task.status_message = match &payload {
            TaskPayload::Working => {
                Some("The program runs; get_execution tells what it has printed.".to_owned())
            }
            TaskPayload::Cancelled => {
                Some("It was stopped; get_execution tells what it had printed.".to_owned())
            }
            _ => None,
        };
        Ok(GetTaskResult::new(DetailedTask::new(task, payload)))
    }

    /// Returns the engine, and the namespace of the execution, which must be one of this client's.
    pub(super) async fn engine_of_task(
        &self,
        id: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<(Engine, Namespace), ErrorData> {
        if !are_supported(context) {
            let needed = ClientCapabilities::builder().enable_tasks().build();
            return Err(ErrorData::missing_required_client_capability(needed));
        }
        let engine = self.engine().await.map_err(|error| internal(&error))?;
        let owner = engine.owner_of(id).ok();
        let owner = owner.filter(|owner| {
            self.offer().has(Toolset::Execute) && self.offer().namespaces.has(owner.as_str())
        });
        Ok((engine, owner.ok_or_else(unknown)?))
    }
}

fn completed(result: &CallToolResult) -> Result<TaskPayload, ErrorData> {
    match serde_json::to_value(result) {
        Ok(Value::Object(result)) => Ok(TaskPayload::Completed { result }),
        _ => Err(ErrorData::internal_error("the result cannot be written.", None)),
    }
}

fn task(id: &str, status: TaskStatus, times: &ExecutionTimes) -> Task {
    let kept_ms = u64::try_from(times.keep.as_millis()).unwrap_or(u64::MAX);
    let (begun, lasted) = (times.started_unix_ms, times.duration_ms);
    let task = Task::new(
        id,
        status,
        time::write_milliseconds(begun),
        time::write_milliseconds(begun.saturating_add(lasted)),
    );
    task.with_ttl_ms(lasted.saturating_add(kept_ms))
        .with_poll_interval_ms((lasted / 10).clamp(*POLL_MS.start(), *POLL_MS.end()))
}

/// The error for an unknown task, and for a task of another client.
fn unknown() -> ErrorData {
    ErrorData::invalid_params("there is no such task, or its result is no longer kept.", None)
}

pub(super) fn internal(error: &RequestError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), serde_json::to_value(error).ok())
}
