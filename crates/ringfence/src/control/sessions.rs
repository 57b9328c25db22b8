//! What the operator's commands do with the sessions of a server. An operator reaches those of every namespace.

use super::{
    IDLE,
    wire::{Answer, Bytes, Request},
    workspaces,
};
use crate::shown::{self, Shown};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ringfence_engine::{
    Caller, Conflicts, Engine, Gift, OutputChunk, OutputStream, PackageWish, Stdin, Submission,
};
use ringfence_types::{
    Argument, EnvName, EnvValue, ErrorCode, ExecuteRequest, Language, LimitsRequest, Namespace, RequestError,
    ScriptName, SessionId, SessionRequest, WorkspaceSource, requirements,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{collections::BTreeMap, io};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{ReadHalf, WriteHalf},
    },
    time::timeout,
};

/// A session that the operator wants.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wish {
    pub(crate) namespace: Namespace,
    pub(crate) language: Language,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) secrets: Vec<String>,
    pub(crate) limits: LimitsRequest,
    pub(crate) idle_ms: Option<u64>,
    pub(crate) workspace: WorkspaceSource,
    pub(crate) packages: Vec<String>,
}

/// A call that the operator makes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Call {
    pub(crate) session: SessionId,
    pub(crate) code: String,
    /// What its name or its first line says that it is written in.
    pub(crate) language: Option<Language>,
    pub(crate) name: Option<ScriptName>,
    pub(crate) args: Vec<String>,
    pub(crate) stdin: Bytes,
    pub(crate) timeout_ms: Option<u64>,
}

fn invalid(reason: String) -> RequestError {
    RequestError::invalid(format!("{reason}."), "See `ringfence session --help`.")
}

impl Wish {
    fn request(self) -> Result<SessionRequest, RequestError> {
        let mut request = SessionRequest::new(self.language);
        request.namespace = self.namespace;
        let variable =
            |(name, value): (String, String)| Ok((EnvName::try_from(name)?, EnvValue::try_from(value)?));
        request.env = self
            .env
            .into_iter()
            .map(variable)
            .collect::<Result<_, _>>()
            .map_err(invalid)?;
        let names = self.secrets.into_iter().map(EnvName::try_from);
        request.secrets = names.collect::<Result<_, _>>().map_err(invalid)?;
        request.limits = self.limits;
        request.idle_ms = self.idle_ms;
        request.workspace = self.workspace;
        request.packages = requirements(self.language, &self.packages)?;
        Ok(request)
    }
}

impl Call {
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
        let words = self.args.into_iter().map(Argument::try_from);
        request.args = words.collect::<Result<_, _>>().map_err(invalid)?;
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
) -> Result<Shown, RequestError> {
    match request {
        Request::SessionList { namespace } => list(engine, caller, namespace).await,
        Request::SessionInterrupt { session } => interrupt(engine, caller, &session).await,
        Request::SessionKill { session } => kill(engine, caller, &session).await,
        Request::SessionDiff { session } => {
            let (namespace, _) = engine.whose(&session)?;
            let held = engine.held_changes(caller, &namespace, &session).await?;
            Ok(shown::held_changes(&held))
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
            Ok(shown::committed(&directory, &committed))
        }
        Request::SessionBridge {
            from,
            to,
            name,
            renamed,
            value,
        } => bridge(engine, caller, (from, to), (name, renamed), value).await,
        of_its_workspace => workspaces::perform(engine, caller, of_its_workspace).await,
    }
}

async fn list(engine: &Engine, caller: &Caller, namespace: Option<Namespace>) -> Result<Shown, RequestError> {
    let sessions = match namespace {
        Some(namespace) => engine.sessions(caller, &namespace).await?,
        None => engine.all_sessions(caller).await?,
    };
    Ok(shown::sessions(&sessions))
}

async fn interrupt(engine: &Engine, caller: &Caller, id: &SessionId) -> Result<Shown, RequestError> {
    let (namespace, _) = engine.whose(id)?;
    let interrupted = engine.interrupt_session(caller, &namespace, id).await?;
    Ok(Shown {
        text: if interrupted {
            "interrupted\n"
        } else {
            "nothing runs in it\n"
        }
        .to_owned(),
        facts: json!({"interrupted": interrupted}),
    })
}

/// One that has ended is as good as killed; one that was never there is an error, as a mistyped name is.
async fn kill(engine: &Engine, caller: &Caller, id: &SessionId) -> Result<Shown, RequestError> {
    let killed = match engine.whose(id) {
        Ok((namespace, _)) => engine.terminate_session(caller, &namespace, id).await?,
        Err(error) if error.code == ErrorCode::SessionEnded => false,
        Err(error) => return Err(error),
    };
    Ok(shown::terminated(Some(killed)))
}

async fn bridge(
    engine: &Engine,
    caller: &Caller,
    (from, to): (Option<SessionId>, SessionId),
    (name, renamed): (String, Option<String>),
    value: Option<Value>,
) -> Result<Shown, RequestError> {
    let (namespace, _) = engine.whose(&to)?;
    let name = EnvName::try_from(name).map_err(invalid)?;
    let renamed = renamed.map(EnvName::try_from).transpose().map_err(invalid)?;
    let (gift, target) = match (from, value) {
        (Some(session), None) => (Gift::Variable { session, name }, renamed),
        (None, Some(value)) => (Gift::Value(value), Some(renamed.unwrap_or(name))),
        _ => return Err(invalid("either a value or another session is wanted".to_owned())),
    };
    let bridged = engine.bridge(caller, &namespace, gift, &to, target).await?;
    Ok(Shown {
        text: format!(
            "{} is a variable of the session now ({} bytes)\n",
            bridged.name.as_str(),
            bridged.bytes
        ),
        facts: json!({"to_session": to.as_str(), "name": bridged.name.as_str(), "bytes": bridged.bytes}),
    })
}

/// A session, after the packages that it is to have. A command that goes away stops both.
pub(super) async fn create(
    engine: &Engine,
    caller: &Caller,
    wish: Wish,
    stream: &mut UnixStream,
) -> io::Result<Result<Shown, RequestError>> {
    let request = match wish.request() {
        Ok(request) => request,
        Err(error) => return Ok(Err(error)),
    };
    let namespace = request.namespace.clone();
    let (mut from, mut to) = stream.split();
    if !request.packages.is_empty() {
        // They are its own installation, whose lines the command shows.
        let mut installation = engine.install(PackageWish {
            caller: caller.clone(),
            namespace: namespace.clone(),
            language: request.language,
            packages: request.packages.clone(),
            session: None,
        });
        let canceller = installation.canceller();
        loop {
            tokio::select! {
                notice = installation.next_notice() => match notice {
                    None => break,
                    Some(chunk) => write_piece(&mut to, &chunk).await?,
                },
                () = hung_up(&mut from) => {
                    canceller.cancel();
                    return Err(io::Error::from(io::ErrorKind::BrokenPipe));
                }
            }
        }
        if let Err(error) = installation.finish().await {
            return Ok(Err(error));
        }
    }
    let made = tokio::select! {
        made = engine.create_session(caller, request) => made,
        () = hung_up(&mut from) => return Err(io::Error::from(io::ErrorKind::BrokenPipe)),
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
        return Err(io::Error::from(io::ErrorKind::BrokenPipe));
    }
    Ok(made.map(|session| shown::session(&session)))
}

/// The command has nothing more to say, or asks that what it waits for be interrupted: to whom a creation is the same.
async fn hung_up(from: &mut ReadHalf<'_>) {
    let mut nothing = [0];
    drop(from.read(&mut nothing).await);
}

async fn write_piece(to: &mut WriteHalf<'_>, chunk: &OutputChunk) -> io::Result<()> {
    let piece = Answer::Output {
        stderr: chunk.stream != OutputStream::Stdout,
        bytes: STANDARD.encode(&chunk.bytes),
    };
    let mut line = serde_json::to_vec(&piece)?;
    line.push(b'\n');
    timeout(IDLE, to.write_all(&line)).await?
}

/// One call. Its output is written as it comes; a byte of the command interrupts it, and so does one that goes away.
pub(super) async fn exec(
    engine: &Engine,
    caller: &Caller,
    call: Call,
    stream: &mut UnixStream,
) -> io::Result<Result<Shown, RequestError>> {
    let request = match call.request(engine) {
        Ok(request) => request,
        Err(error) => return Ok(Err(error)),
    };
    let mut execution = engine.submit(Submission {
        request,
        stdin: Stdin::FromRequest,
        live: true,
        holds_changes: false,
        artifacts_to: None,
        caller: caller.clone(),
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
                    if write_piece(&mut to, &chunk).await.is_err() {
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
    Ok(execution.finish().await.map(|result| Shown {
        text: String::new(),
        facts: json!(result),
    }))
}
