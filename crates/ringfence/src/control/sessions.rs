//! What the operator's commands do with the sessions of a server. An operator reaches those of every namespace.

use super::{
    Failure,
    wire::{Request, Response, SessionCall, SessionOptions},
    workspaces,
};
use crate::render::{self, Rendered};
use ringfence_engine::{BridgeTarget, BridgedValue, Caller, Conflicts, Engine, PackageRequest, Submission};
use ringfence_types::{
    AllowedDomains, EnvName, ErrorCode, ExecuteRequest, Namespace, RequestError, SessionId, SessionRequest,
    requirements,
};
use serde_json::json;
use tokio::{
    io::AsyncReadExt,
    net::{UnixStream, unix::ReadHalf},
};

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
        let (namespace, language) = engine.whose(&self.session)?;
        if let Some(other) = self.language.filter(|other| *other != language) {
            return Err(RequestError::invalid(
                format!(
                    "the script is {other}, and the session {} speaks {language}.",
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

/// Everything but a call and a creation, which have answers of several lines.
pub(super) async fn perform(
    engine: &Engine,
    caller: &Caller,
    request: Request,
) -> Result<Rendered, RequestError> {
    match request {
        Request::SessionList { namespace } => list(engine, caller, namespace).await,
        Request::SessionInterrupt { session } => interrupt(engine, caller, &session).await,
        Request::SessionKill { session } => kill(engine, caller, &session).await,
        Request::SessionDiff { session } => {
            let (namespace, _) = engine.whose(&session)?;
            let held = engine.held_changes(caller, &namespace, &session).await?;
            Ok(render::held_changes(&held))
        }
        Request::SessionCommit {
            session,
            token,
            overwrite,
        } => {
            let conflicts = if overwrite {
                Conflicts::Overwrite
            } else {
                Conflicts::Refuse
            };
            let (namespace, _) = engine.whose(&session)?;
            let held = engine.held_changes(caller, &namespace, &session).await?;
            let directory = held.directory().to_owned();
            let committed = held.commit(caller, &token, conflicts).await?;
            Ok(render::committed(&directory, &committed))
        }
        Request::SessionBridge {
            from,
            to,
            name,
            renamed,
            value,
        } => {
            let (gift, target) = match (from, value) {
                (Some(session), None) => (BridgedValue::Variable { session, name }, renamed),
                (None, Some(value)) => (BridgedValue::Value(value), Some(renamed.unwrap_or(name))),
                _ => {
                    return Err(RequestError::invalid(
                        "a bridge needs either a value or another session.",
                        "See `ringfence bridge --help`.",
                    ));
                }
            };
            bridge(engine, caller, gift, &to, target).await
        }
        of_its_workspace => workspaces::perform(engine, caller, of_its_workspace).await,
    }
}

async fn list(
    engine: &Engine,
    caller: &Caller,
    namespace: Option<Namespace>,
) -> Result<Rendered, RequestError> {
    let sessions = match namespace {
        Some(namespace) => engine.sessions(caller, &namespace).await?,
        None => engine.all_sessions(caller).await?,
    };
    Ok(render::sessions(&sessions))
}

async fn interrupt(engine: &Engine, caller: &Caller, id: &SessionId) -> Result<Rendered, RequestError> {
    let (namespace, _) = engine.whose(id)?;
    let interrupted = engine.interrupt_session(caller, &namespace, id).await?;
    let text = match interrupted {
        true => "interrupted\n",
        false => "nothing runs in the session\n",
    };
    Ok(Rendered::new(text, json!({"interrupted": interrupted})))
}

/// One that has ended is as good as killed; one that was never there is an error, as a mistyped name is.
async fn kill(engine: &Engine, caller: &Caller, id: &SessionId) -> Result<Rendered, RequestError> {
    let killed = match engine.whose(id) {
        Ok((namespace, _)) => engine.terminate_session(caller, &namespace, id).await?,
        Err(error) if error.code == ErrorCode::SessionEnded => false,
        Err(error) => return Err(error),
    };
    Ok(render::terminated(Some(killed)))
}

async fn bridge(
    engine: &Engine,
    caller: &Caller,
    gift: BridgedValue,
    to: &SessionId,
    target: Option<EnvName>,
) -> Result<Rendered, RequestError> {
    let (namespace, _) = engine.whose(to)?;
    let target = BridgeTarget {
        session: to,
        name: target,
    };
    let bridged = engine.bridge(caller, &namespace, gift, target).await?;
    Ok(render::bridged(to, &bridged))
}

/// A session, after the packages that it is to have. A command that goes away stops both.
pub(super) async fn create(
    engine: &Engine,
    caller: &Caller,
    options: SessionOptions,
    stream: &mut UnixStream,
) -> Result<Rendered, Failure> {
    let request = options.request()?;
    let namespace = request.namespace.clone();
    let (mut from, mut to) = stream.split();
    if !request.packages.is_empty() {
        let mut installation = engine.install(PackageRequest {
            caller: caller.clone(),
            namespace: namespace.clone(),
            language: request.language,
            packages: request.packages.clone(),
            session: None,
        });
        let canceller = installation.canceller();
        loop {
            tokio::select! {
                notice = installation.next_output() => match notice {
                    None => break,
                    Some(chunk) => Response::output(chunk).send(&mut to).await?,
                },
                () = hung_up(&mut from) => {
                    canceller.cancel();
                    return Err(Failure::hung_up());
                }
            }
        }
        installation.finish().await?;
    }
    let made = tokio::select! {
        made = engine.create_session(caller, request) => made,
        () = hung_up(&mut from) => return Err(Failure::hung_up()),
    };
    // One that has gone by now would not know of it.
    if let Ok(session) = &made
        && stream.try_read(&mut [0]).is_ok()
    {
        drop(
            engine
                .terminate_session(caller, &namespace, &session.session_id)
                .await,
        );
        return Err(Failure::hung_up());
    }
    Ok(render::session(&made?))
}

/// The command has nothing more to say, or asks that what it waits for be interrupted: to whom a creation is the same.
async fn hung_up(from: &mut ReadHalf<'_>) {
    let mut nothing = [0];
    drop(from.read(&mut nothing).await);
}

/// One call. Its output is written as it comes; a byte of the command interrupts it, and so does one that goes away.
pub(super) async fn exec(
    engine: &Engine,
    caller: &Caller,
    call: SessionCall,
    stream: &mut UnixStream,
) -> Result<Rendered, Failure> {
    let request = call.request(engine)?;
    let mut execution = engine.submit(Submission {
        live: true,
        ..Submission::new(caller.clone(), request)
    });
    let canceller = execution.canceller();
    let (mut from, mut to) = stream.split();
    let mut is_followed = true;
    loop {
        let mut byte = [0];
        tokio::select! {
            chunk = execution.next_output() => match chunk {
                None => break,
                Some(chunk) => {
                    if Response::output(chunk).send(&mut to).await.is_err() {
                        canceller.cancel();
                        break;
                    }
                }
            },
            read = from.read(&mut byte), if is_followed => {
                canceller.cancel();
                // What it still has to say is wanted by one who has asked.
                is_followed = false;
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
