//! The operator's commands on the sessions of a server. An operator reaches those of every namespace.

use super::{
    Unanswered,
    wire::{Response, SessionAction, SessionCall, SessionOptions, SnapshotAction},
};
use crate::{
    embed::CancelOnDrop,
    render::{self, Rendered},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ringfence_engine::{BridgedValue, Caller, Engine, NamespaceAccess, Submission};
use ringfence_types::{
    AllowedDomains, ErrorCode, ExecuteRequest, Namespace, RequestError, Session, SessionId, SessionRequest,
    requirements,
};
use serde_json::json;
use tokio::{
    io::AsyncReadExt,
    net::unix::{ReadHalf, WriteHalf},
};

/// The largest file that fits into an answer, in base64.
const GET_BYTES_MAX: u64 = 40 << 20;

impl SessionOptions {
    fn request(self) -> Result<SessionRequest, RequestError> {
        let mut request = SessionRequest::new(self.language);
        request.namespace = self.namespace;
        request.env = self.env;
        request.secrets = self.secrets;
        request.limits = self.limits;
        request.idle_ms = self.idle_ms;
        request.workspace = self.workspace;
        request.packages = requirements(self.language, &self.packages)?;
        if !self.allow.is_empty() {
            request.allowed_domains = AllowedDomains::Operator(self.allow.into_iter().collect());
        }
        Ok(request)
    }
}

impl SessionCall {
    fn request(self, engine: &Engine) -> Result<ExecuteRequest, RequestError> {
        let (namespace, language) = engine.owner_of_session(&self.session)?;
        if let Some(other) = self.language.filter(|other| *other != language) {
            return Err(RequestError::invalid(
                format!(
                    "the script is {other}, but the session {} is {language}.",
                    self.session
                ),
                format!(
                    "Make a session for it with `ringfence session create --language {other}`, or run it without one."
                ),
            ));
        }
        let mut request = ExecuteRequest::new(language, self.code);
        request.namespace = namespace;
        request.session = Some(self.session);
        request.name = self.name;
        request.args = self.args;
        request.stdin = self.stdin.0;
        request.limits.timeout_ms = self.timeout_ms;
        Ok(request)
    }
}

pub(super) async fn perform(
    engine: &Engine,
    caller: &Caller,
    session: SessionId,
    action: SessionAction,
) -> Result<Rendered, RequestError> {
    let namespace = match (engine.owner_of_session(&session), &action) {
        (Ok((namespace, _)), _) => namespace,
        // A session that has ended counts as killed; one that never existed, as by a mistyped id, is an error.
        (Err(error), SessionAction::Kill) if error.code == ErrorCode::SessionEnded => {
            return Ok(render::terminated(Some(false)));
        }
        (Err(error), _) => return Err(error),
    };
    let access = engine.namespace(caller, &namespace);
    let held = async || access.held_changes(&session).await;
    let workspace = || access.workspace(Some(session.clone()));
    match action {
        SessionAction::Interrupt => {
            let interrupted = access.interrupt_session(&session).await?;
            let text = match interrupted {
                true => "interrupted\n",
                false => "nothing runs in the session\n",
            };
            Ok(Rendered::new(text, json!({"interrupted": interrupted})))
        }
        SessionAction::Kill => {
            let killed = access.terminate_session(&session).await?;
            Ok(render::terminated(Some(killed)))
        }
        SessionAction::Diff => Ok(render::held_changes(&held().await?)),
        SessionAction::Commit { token, conflicts } => {
            let held = held().await?;
            let directory = held.directory().to_owned();
            let committed = held.commit(caller, &token, conflicts).await?;
            Ok(render::committed(&directory, &committed))
        }
        SessionAction::Bridge {
            from,
            name,
            renamed,
            value,
        } => {
            let (source, name) = match (from, value) {
                (Some(session), None) => (BridgedValue::Variable { session, name }, renamed),
                (None, Some(value)) => (BridgedValue::Value(value), Some(renamed.unwrap_or(name))),
                _ => {
                    return Err(RequestError::invalid(
                        "a bridge needs either a value or another session.",
                        "See `ringfence bridge --help`.",
                    ));
                }
            };
            let bridged = access.bridge(source, &session, name).await?;
            Ok(render::bridged(&session, &bridged))
        }
        SessionAction::Snapshots(action) => snapshots(access, Some(session.clone()), action).await,
        SessionAction::Put { path, bytes } => {
            let put = workspace().put_file(&path, bytes.0).await?;
            let text = format!("{} has {} bytes now\n", put.path, put.size_bytes);
            Ok(Rendered::new(text, json!(put)))
        }
        SessionAction::Get { path } => {
            let (file, bytes) = workspace().with_bytes_max(GET_BYTES_MAX).get_file(&path).await?;
            let facts = json!({"file": file, "base64": STANDARD.encode(bytes)});
            Ok(Rendered::new("", facts))
        }
        SessionAction::Files { path } => Ok(render::files(&workspace().list_files(path.as_ref()).await?)),
    }
}

/// Performs an action on snapshots of the workspace that is kept for a namespace, or of that of one of its sessions.
pub(crate) async fn snapshots(
    access: NamespaceAccess<'_>,
    session: Option<SessionId>,
    action: SnapshotAction,
) -> Result<Rendered, RequestError> {
    let workspace = || access.workspace(session.clone());
    match action {
        SnapshotAction::Create { description } => {
            let made = workspace().save(description).await?;
            Ok(render::snapshot_made(&made))
        }
        SnapshotAction::List => {
            let mut listed = access.snapshots().await?;
            listed.retain(|one| session.as_ref().is_none_or(|session| one.of == session.as_str()));
            Ok(render::snapshots(&listed))
        }
        SnapshotAction::Restore { id } => {
            let restored = access.restore_snapshot(&id, session).await?;
            Ok(render::snapshot_restored(&id, restored))
        }
        SnapshotAction::Delete { .. } if session.is_some() => Err(RequestError::invalid(
            "a snapshot is its namespace's, also that of a session.",
            "Give --namespace, or neither.",
        )),
        SnapshotAction::Delete { id } => {
            access.delete_snapshot(&id).await?;
            let facts = json!({"snapshot_id": id, "deleted": true});
            Ok(Rendered::new("deleted\n", facts))
        }
        SnapshotAction::Compare { id } => Ok(render::difference(&workspace().diff(id.as_deref()).await?)),
    }
}

pub(super) async fn list(
    engine: &Engine,
    caller: &Caller,
    namespace: Option<Namespace>,
) -> Result<Rendered, RequestError> {
    let sessions = match namespace {
        Some(namespace) => engine.namespace(caller, &namespace).sessions().await?,
        None => engine.all_sessions(caller).await?,
    };
    Ok(render::sessions(&sessions))
}

/// Installs the session's packages, then creates it. A command that hangs up, or sends an interrupt, stops both.
pub(super) async fn create(
    engine: &Engine,
    caller: &Caller,
    options: SessionOptions,
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
) -> Result<Rendered, Unanswered> {
    let request = options.request()?;
    let namespace = request.namespace.clone();
    let made = unless_hung_up(from, make(engine, caller, request, to)).await?;
    // A command that has hung up by now would not learn of the session.
    if from.try_read(&mut [0]).is_ok() {
        let access = engine.namespace(caller, &namespace);
        drop(access.terminate_session(&made.session_id).await);
        return Err(None);
    }
    Ok(render::session(&made))
}

async fn make(
    engine: &Engine,
    caller: &Caller,
    request: SessionRequest,
    to: &mut WriteHalf<'_>,
) -> Result<Session, Unanswered> {
    if !request.packages.is_empty() {
        let access = engine.namespace(caller, &request.namespace);
        let mut installation = access.install(request.language, request.packages.clone(), None);
        let _cancel = CancelOnDrop(installation.canceller());
        while let Some(notice) = installation.next_output().await {
            Response::output(notice).send(to).await?;
        }
        installation.finish().await?;
    }
    Ok(engine.create_session(caller, request).await?)
}

/// Does the work, unless the command hangs up or sends a byte first.
pub(super) async fn unless_hung_up<T>(
    from: &mut ReadHalf<'_>,
    work: impl Future<Output = Result<T, Unanswered>>,
) -> Result<T, Unanswered> {
    let mut byte = [0];
    tokio::select! {
        biased;
        done = work => done,
        _ = from.read(&mut byte) => Err(None),
    }
}

/// Runs one call, and sends its output as it comes. A byte from the command interrupts it, and so does a hang-up.
pub(super) async fn exec(
    engine: &Engine,
    caller: &Caller,
    call: SessionCall,
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
) -> Result<Rendered, Unanswered> {
    let request = call.request(engine)?;
    let mut execution = engine.submit(Submission {
        live: true,
        ..Submission::new(caller.clone(), request)
    });
    let canceller = execution.canceller();
    let mut awaits_interrupt = true;
    loop {
        let mut byte = [0];
        tokio::select! {
            chunk = execution.next_output() => match chunk {
                None => break,
                Some(chunk) => {
                    if Response::output(chunk).send(to).await.is_err() {
                        canceller.cancel();
                        break;
                    }
                }
            },
            read = from.read(&mut byte), if awaits_interrupt => {
                canceller.cancel();
                // A command that has sent an interrupt still wants the remaining output.
                awaits_interrupt = false;
                if !matches!(read, Ok(1)) {
                    break;
                }
            }
        }
    }
    let mut result = execution.finish().await?;
    result.isolation.layers.clear();
    Ok(Rendered::new("", json!(result)))
}
