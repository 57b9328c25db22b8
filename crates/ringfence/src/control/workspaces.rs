//! What the operator's commands do with the files of a session: look at them, copy them, save them and put them back.

use super::wire::{Bytes, Request};
use crate::render::{self, Rendered};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ringfence_engine::{Caller, Engine, WorkspaceAccess};
use ringfence_types::{RequestError, SessionId};
use serde_json::json;

/// The largest file that an answer has room for, in base64.
const GET_BYTES_MAX: u64 = 40 << 20;

pub(super) async fn perform(
    engine: &Engine,
    caller: &Caller,
    request: Request,
) -> Result<Rendered, RequestError> {
    match request {
        Request::SessionSnapshot { session, description } => {
            let made = of(engine, caller, session)?.create_snapshot(description);
            Ok(render::snapshot_made(&made.await?))
        }
        Request::SessionSnapshots { session } => {
            let (namespace, _) = engine.whose(&session)?;
            let mut listed = engine.snapshots(caller, &namespace).await?;
            listed.retain(|one| one.of == session.as_str());
            Ok(render::snapshots(&listed))
        }
        Request::SessionRestore { session, snapshot } => {
            let (namespace, _) = engine.whose(&session)?;
            let restored = engine.restore_snapshot(caller, &namespace, &snapshot, Some(session));
            Ok(render::snapshot_restored(&snapshot, restored.await?))
        }
        Request::SessionCompare { session, snapshot } => {
            let compared = of(engine, caller, session)?.diff(snapshot.as_deref());
            Ok(render::difference(&compared.await?))
        }
        Request::SessionPut {
            session,
            path,
            bytes: Bytes(bytes),
        } => {
            let put = of(engine, caller, session)?.put_file(&path, bytes).await?;
            let text = format!("{} has {} bytes now\n", put.path, put.size_bytes);
            Ok(Rendered::new(text, json!(put)))
        }
        Request::SessionGet { session, path } => {
            let got = of(engine, caller, session)?.get_file(&path, GET_BYTES_MAX);
            let (file, bytes) = got.await?;
            let facts = json!({"file": file, "base64": STANDARD.encode(bytes)});
            Ok(Rendered::new("", facts))
        }
        Request::SessionFiles { session, path } => {
            let files = of(engine, caller, session)?.list_files(path.as_ref()).await?;
            Ok(render::files(&files))
        }
        other => Err(RequestError::invalid(
            format!("`{}` is asked for in another way.", other.method()),
            "Use the `ringfence` command of the server's version.",
        )),
    }
}

fn of<'a>(
    engine: &'a Engine,
    caller: &'a Caller,
    session: SessionId,
) -> Result<WorkspaceAccess<'a>, RequestError> {
    let (namespace, _) = engine.whose(&session)?;
    Ok(engine.workspace(caller, &namespace, Some(session)))
}
