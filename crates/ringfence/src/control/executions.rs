//! What the operator's commands see of executions, and how they stop one; and what happens in a server, told to its
//! operator: what is remembered, and what comes. An operator reaches the executions of every namespace.

use super::{Unanswered, wire::Response};
use crate::render::{self, Rendered};
use ringfence_engine::{Caller, Engine, Event, ExecutionState, Hears, OutputChunk, OutputStream};
use ringfence_types::{ErrorCode, Namespace, RequestError};
use serde_json::json;
use std::time::Duration;
use tokio::{
    net::unix::WriteHalf,
    sync::{Semaphore, SemaphorePermit},
};

/// A piece of output, which is longer as base64.
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

/// Its output, and then whether it runs and how it ended. With `places` it is followed to its end.
pub(super) async fn logs(
    engine: &Engine,
    caller: &Caller,
    id: &str,
    places: Option<&Semaphore>,
    to: &mut WriteHalf<'_>,
) -> Result<Rendered, Unanswered> {
    let _place = places.map(place).transpose()?;
    // Followed before it is looked at: what ends meanwhile is told from what is kept.
    let (namespace, mut following) = engine.follow_execution(id)?;
    let access = engine.namespace(caller, &namespace);
    let look = async || access.execution(id, Duration::ZERO).await;
    let mut given = [0; 2];
    let mut found = look().await;
    if places.is_some() && matches!(found, Ok(ExecutionState::Running(_))) {
        while let Some(chunk) = following.next().await {
            given[usize::from(chunk.stream == OutputStream::Stderr)] += chunk.bytes.len();
            Response::output(chunk).send(to).await?;
        }
        found = look().await;
    }
    let (streams, running, exit_code) = match found? {
        ExecutionState::Running(progress) => ([progress.stdout, progress.stderr], true, None),
        ExecutionState::Ended(result) => ([result.stdout, result.stderr], false, Some(result.exit_code)),
    };
    for (at, stream) in [(0, OutputStream::Stdout), (1, OutputStream::Stderr)] {
        // Of a stream that is too long to be followed to its end, what has not been told: where it is not UTF-8, some
        // of it comes twice, since what is kept is text.
        let rest = streams[at].as_bytes().get(given[at]..).unwrap_or_default();
        for bytes in rest.chunks(PIECE_BYTES) {
            let bytes = bytes.to_vec();
            Response::output(OutputChunk { stream, bytes }).send(to).await?;
        }
    }
    let facts =
        json!({"execution_id": id, "namespace": namespace, "running": running, "exit_code": exit_code});
    Ok(Rendered::new("", facts))
}

/// Each event is a line of JSON. Without `hears` only those that are remembered.
pub(super) async fn events(
    engine: &Engine,
    caller: &Caller,
    hears: Option<Hears>,
    places: &Semaphore,
    to: &mut WriteHalf<'_>,
) -> Result<Rendered, Unanswered> {
    let _place = place(places)?;
    engine.note_call(caller, "", "events").await?;
    let events = hears.map(|hears| engine.subscribe(hears));
    let recent = engine.recent_events();
    let last = recent.last().map_or(0, |event| event.number);
    for event in &recent {
        write(to, event).await?;
    }
    if let Some(mut events) = events {
        while let Some(event) = events.next().await {
            if event.number > last {
                write(to, &event).await?;
            }
        }
    }
    Ok(Rendered::new("", json!({})))
}

/// One of those of commands that watch.
pub(super) fn place(places: &Semaphore) -> Result<SemaphorePermit<'_>, RequestError> {
    let message = "too many commands watch this server already.";
    let none = |_| RequestError::new(ErrorCode::Busy, message, "End one of them.");
    places.try_acquire().map_err(none)
}

async fn write(to: &mut WriteHalf<'_>, event: &Event) -> Result<(), Unanswered> {
    let mut bytes = serde_json::to_vec(event).map_err(|_| None)?;
    bytes.push(b'\n');
    let stream = OutputStream::Stdout;
    Response::output(OutputChunk { stream, bytes }).send(to).await
}
