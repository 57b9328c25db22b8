//! `ringfence events`: what happens in a server, told to its operator: what is remembered, and what comes.

use super::{Failure, wire::Response};
use crate::render::Rendered;
use ringfence_engine::{Caller, Engine, Event, Hears, OutputChunk, OutputStream};
use ringfence_types::{ErrorCode, RequestError};
use serde_json::json;
use std::io;
use tokio::{net::unix::WriteHalf, sync::Semaphore};

/// Each event is a line of JSON. Without `hears` only those that are remembered.
pub(super) async fn tell(
    engine: &Engine,
    caller: &Caller,
    hears: Option<Hears>,
    places: &Semaphore,
    to: &mut WriteHalf<'_>,
) -> Result<Rendered, Failure> {
    let Ok(_place) = places.try_acquire() else {
        return Err(too_many().into());
    };
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

pub(super) fn too_many() -> RequestError {
    let message = "too many commands watch this server already.";
    RequestError::new(ErrorCode::Busy, message, "End one of them.")
}

async fn write(to: &mut WriteHalf<'_>, event: &Event) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(event)?;
    bytes.push(b'\n');
    let stream = OutputStream::Stdout;
    Response::output(OutputChunk { stream, bytes }).send(to).await
}
