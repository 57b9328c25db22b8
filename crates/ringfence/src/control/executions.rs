//! The operator's commands on executions: listing, cancelling, output; and on events of a server, recent and future. An
//! operator reaches the executions of every namespace.

use super::{Unanswered, wire::Response};
use crate::render::{self, Rendered};
use ringfence_engine::{Caller, Engine, ExecutionState, Hears, OutputChunk, OutputStream};
use ringfence_types::{ErrorCode, Namespace, RequestError};
use serde::Serialize;
use serde_json::json;
use std::time::Duration;
use tokio::{
    net::unix::WriteHalf,
    sync::{Semaphore, SemaphorePermit},
};

const PIECE_BYTES: usize = 1 << 20;

pub(super) async fn list(
    engine: &Engine,
    caller: &Caller,
    namespace: Option<Namespace>,
    limit: usize,
) -> Result<Rendered, RequestError> {
    let lines = match namespace {
        Some(namespace) => {
            let access = engine.namespace(caller, &namespace);
            access.executions(None, limit).await?
        }
        None => engine.all_executions(caller, limit).await?,
    };
    Ok(render::executions(&lines))
}

pub(super) async fn cancel(engine: &Engine, caller: &Caller, id: &str) -> Result<Rendered, RequestError> {
    let namespace = engine.owner_of(id)?;
    let cancelled = engine.namespace(caller, &namespace).cancel_execution(id).await?;
    let text = match cancelled.cancelled {
        true => "it is being stopped\n",
        false => "it had ended before\n",
    };
    Ok(Rendered::new(text, json!(cancelled)))
}

/// Sends the output of an execution, and replies whether it runs and how it ended. With `permits`: once it has ended.
pub(super) async fn logs(
    engine: &Engine,
    caller: &Caller,
    id: &str,
    permits: Option<&Semaphore>,
    to: &mut WriteHalf<'_>,
) -> Result<Rendered, Unanswered> {
    let _permit = permits.map(watch_permit).transpose()?;
    // Followed before its state is read: if it ends in between, its kept output is sent.
    let (namespace, mut following) = engine.follow_execution(id)?;
    let access = engine.namespace(caller, &namespace);
    let read = async || access.execution(id, Duration::ZERO).await;
    let mut sent = [0; 2];
    let mut state = read().await;
    if permits.is_some() && matches!(state, Ok(ExecutionState::Running(_))) {
        while let Some(chunk) = following.next().await {
            sent[usize::from(chunk.stream == OutputStream::Stderr)] += chunk.bytes.len();
            Response::output(chunk).send(to).await?;
        }
        state = read().await;
    }
    let (streams, running, exit_code) = match state? {
        ExecutionState::Running(progress) => ([progress.stdout, progress.stderr], true, None),
        ExecutionState::Ended(result) => ([result.stdout, result.stderr], false, Some(result.exit_code)),
    };
    for (at, stream) in [(0, OutputStream::Stdout), (1, OutputStream::Stderr)] {
        // The part that was not sent, of a stream too long to be followed to its end. Where it is not UTF-8, some of it
        // is sent twice, since text is kept.
        let rest = streams[at].as_bytes().get(sent[at]..).unwrap_or_default();
        for bytes in rest.chunks(PIECE_BYTES) {
            let bytes = bytes.to_vec();
            Response::output(OutputChunk { stream, bytes }).send(to).await?;
        }
    }
    let facts =
        json!({"execution_id": id, "namespace": namespace, "running": running, "exit_code": exit_code});
    Ok(Rendered::new("", facts))
}

/// Sends each event as a line of JSON. Without `filter`, sends only the recent ones.
pub(super) async fn events(
    engine: &Engine,
    caller: &Caller,
    filter: Option<Hears>,
    permits: &Semaphore,
    to: &mut WriteHalf<'_>,
) -> Result<Rendered, Unanswered> {
    let _permit = watch_permit(permits)?;
    engine.note_call(caller, "", "events").await?;
    let events = filter.map(|filter| engine.subscribe(filter));
    let recent = engine.recent_events();
    let last = recent.last().map_or(0, |event| event.number);
    for event in &recent {
        write(to, event).await?;
    }
    if let Some(mut events) = events {
        while let Some(event) = events.next().await {
            let missed = events.missed();
            if missed > 0 {
                write(to, &json!({"event": "events.missed", "count": missed})).await?;
            }
            if event.number > last {
                write(to, &event).await?;
            }
        }
    }
    Ok(Rendered::new("", json!({})))
}

pub(super) fn watch_permit(permits: &Semaphore) -> Result<SemaphorePermit<'_>, RequestError> {
    let message = "too many commands watch this server already.";
    let none = |_| RequestError::new(ErrorCode::Busy, message, "End one of them.");
    permits.try_acquire().map_err(none)
}

async fn write(to: &mut WriteHalf<'_>, event: &impl Serialize) -> Result<(), Unanswered> {
    let mut bytes = serde_json::to_vec(event).map_err(|_| None)?;
    bytes.push(b'\n');
    let stream = OutputStream::Stdout;
    Response::output(OutputChunk { stream, bytes }).send(to).await
}
