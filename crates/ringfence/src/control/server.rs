//! The server end: one request and one answer for each connection, which is then closed.

use super::{
    ANSWER_BYTES_MAX, CONNECTIONS_MAX, IDLE, REQUEST_BYTES_MAX, Unanswered, approvals, executions, own_uid,
    sessions::{self, unless_hung_up},
    socket_dir::SocketDir,
    wire::{Request, Response},
};
use crate::render::{self, Change, Rendered};
use ringfence_engine::{Caller, Engine, EngineSettings, Hears, OnDenied};
use ringfence_types::{Limits, Namespace, RequestError};
use std::{fs, io, os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    task::{AbortHandle, JoinSet},
    time::timeout,
};
use tokio_util::task::TaskTracker;
use zeroize::Zeroizing;

const CALLER: &str = "cli";
/// Pause after a failed accept: descriptors may be used up for a while, and a retry at once would use up the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Initial capacity for a request: a secret of the maximum length fits.
const LINE_BYTES: usize = 1 << 20;
const PIECE_BYTES: usize = 1 << 20;

pub(crate) struct Socket {
    socket_dir: SocketDir,
    accept_task: AbortHandle,
    answers: TaskTracker,
}

impl Socket {
    /// Completes when each command that awaits an answer has it. Commands that only watch await none.
    pub(crate) async fn answered(&self) {
        self.answers.close();
        self.answers.wait().await;
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.accept_task.abort();
        self.socket_dir.remove(std::process::id());
    }
}

pub(crate) async fn open(state_dir: &Path, engine: Engine) -> io::Result<Socket> {
    let (socket_dir, listener) = listen(state_dir).await?;
    let answers = TaskTracker::new();
    let accept_task = tokio::spawn(accept_connections(listener, engine, answers.clone())).abort_handle();
    Ok(Socket {
        socket_dir,
        accept_task,
        answers,
    })
}

/// Opens the socket of a single run, if the policy lets a person approve what its program tries. If that fails, the run
/// goes on, and its requests are denied.
pub(crate) async fn open_for_approvals(settings: &EngineSettings, engine: &Engine) -> Option<Socket> {
    if settings.policy.egress.on_denied == OnDenied::Deny {
        return None;
    }
    let opened = open(&settings.state_dir, engine.clone()).await;
    let log_error =
        |error| tracing::error!(%error, "NO CONTROL SOCKET: the requests of this run cannot be answered");
    opened.map_err(log_error).ok()
}

/// Listens, and only then gives the socket its name, so that a named socket which refuses belongs to a dead server.
async fn listen(state_dir: &Path) -> io::Result<(SocketDir, UnixListener)> {
    let socket_dir = SocketDir::make(state_dir)?;
    socket_dir.sweep_unfinished()?;
    let pid = std::process::id();
    for other in socket_dir.servers()? {
        if is_dead(&socket_dir, other).await {
            socket_dir.remove(other);
        }
    }
    let unfinished = socket_dir.unfinished(pid);
    let listener = UnixListener::bind(&unfinished)?;
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o600))?;
    let name = socket_dir.socket(pid);
    if name.exists() {
        // A server of another PID namespace shares the directory.
        fs::remove_file(&unfinished)?;
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("a server with the process number {pid} listens there"),
        ));
    }
    fs::rename(&unfinished, &name)?;
    Ok((socket_dir, listener))
}

async fn is_dead(socket_dir: &SocketDir, pid: u32) -> bool {
    let connected = UnixStream::connect(socket_dir.socket(pid)).await;
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

async fn accept_connections(listener: UnixListener, engine: Engine, answers: TaskTracker) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let watchers = Arc::new(Semaphore::new(approvals::WATCHERS_MAX));
    let mut calls = JoinSet::new();
    while let Ok(permit) = permits.clone().acquire_owned().await {
        while calls.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let (engine, watchers, answers) = (engine.clone(), watchers.clone(), answers.clone());
                calls.spawn(async move {
                    if let Err(error) = serve(stream, &engine, &watchers, &answers).await {
                        tracing::debug!(%error, "a control connection ended early");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a control connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(
    mut stream: UnixStream,
    engine: &Engine,
    watchers: &Semaphore,
    answers: &TaskTracker,
) -> io::Result<()> {
    let caller = &Caller::new(CALLER);
    let request = accept(&mut stream).await?;
    let only_watches = matches!(request, Ok(Request::Events { .. } | Request::ApprovalsWatch));
    let _answer = (!only_watches).then(|| answers.token());
    let answer = match request {
        Ok(request) => answer(engine, caller, request, &mut stream, watchers).await,
        Err(error) => Err(Some(error)),
    };
    let answer = match answer {
        Ok(rendered) => Ok(rendered),
        Err(Some(refused)) => Err(refused),
        Err(None) => return Err(io::Error::other("the command has hung up")),
    };
    let line = answer_line(answer);
    for piece in line.chunks(PIECE_BYTES) {
        timeout(IDLE, stream.write_all(piece)).await??;
    }
    timeout(IDLE, stream.shutdown()).await?
}

async fn answer(
    engine: &Engine,
    caller: &Caller,
    request: Request,
    stream: &mut UnixStream,
    watchers: &Semaphore,
) -> Result<Rendered, Unanswered> {
    let (mut from, mut to) = stream.split();
    let (from, to) = (&mut from, &mut to);
    match request {
        Request::SessionExec { call } => sessions::exec(engine, caller, *call, from, to).await,
        Request::SessionCreate { options } => sessions::create(engine, caller, *options, from, to).await,
        Request::Egress { wish } => {
            unless_hung_up(from, approvals::request_egress(engine, caller, wish, to)).await
        }
        Request::Events { follow, output } => {
            let filter = match output {
                true => Hears::Everything,
                false => Hears::AllButOutput,
            };
            let events = executions::events(engine, caller, follow.then_some(filter), watchers, to);
            unless_hung_up(from, events).await
        }
        Request::Logs { execution, follow } => {
            let logs = executions::logs(engine, caller, &execution, follow.then_some(watchers), to);
            unless_hung_up(from, logs).await
        }
        Request::ApprovalsWatch => unless_hung_up(from, approvals::watch(engine, caller, watchers, to)).await,
        request => perform(engine, caller, request).await.map_err(Some),
    }
}

/// Reads a request of the same user. The received line is wiped before the request is carried out.
async fn accept(stream: &mut UnixStream) -> io::Result<Result<Request, RequestError>> {
    let uid = stream.peer_cred()?.uid();
    // A request that is refused is read, too: closing a socket with unread data would lose the answer.
    let line = timeout(IDLE, read_line(stream)).await??;
    if uid != own_uid() {
        tracing::warn!(uid, "another user was refused at the control socket");
        return Ok(Err(RequestError::denied(
            "the control socket is another user's.",
            "Run the command as the user who runs the server.",
        )));
    }
    Ok(match line.strip_suffix(b"\n") {
        Some(line) => Request::read(line),
        None => Err(RequestError::invalid(
            format!("the request is not one line of at most {REQUEST_BYTES_MAX} bytes."),
            "Use the `ringfence` command of the server's version.",
        )),
    })
}

/// Reads up to the end of the line, the end of the input, or the limit. A buffer that is too small is copied to a
/// larger one and wiped: one that grows by itself leaves copies behind.
async fn read_line(stream: &mut UnixStream) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut line = Zeroizing::new(Vec::with_capacity(LINE_BYTES));
    while line.len() < REQUEST_BYTES_MAX && line.last() != Some(&b'\n') {
        if line.len() == line.capacity() {
            let mut larger = Zeroizing::new(Vec::with_capacity((line.len() * 4).min(REQUEST_BYTES_MAX)));
            larger.extend_from_slice(&line);
            line = larger;
        }
        let room = line.capacity().min(REQUEST_BYTES_MAX) - line.len();
        if (&mut *stream).take(room as u64).read_buf(&mut *line).await? == 0 {
            break;
        }
    }
    Ok(line)
}

fn answer_line(answer: Result<Rendered, RequestError>) -> Vec<u8> {
    let line = |answer: &Response| serde_json::to_vec(answer).unwrap_or_default();
    let mut bytes = line(&answer.map_or_else(Response::Error, Response::Ok));
    if bytes.is_empty() || bytes.len() >= ANSWER_BYTES_MAX {
        bytes = line(&Response::Error(RequestError::invalid(
            format!("the answer would have more than {ANSWER_BYTES_MAX} bytes."),
            "Ask for less.",
        )));
    }
    bytes.push(b'\n');
    bytes
}

/// Performs a request. Each one is recorded: changes by the engine itself, queries that it does not record here.
pub(crate) async fn perform(
    engine: &Engine,
    caller: &Caller,
    request: Request,
) -> Result<Rendered, RequestError> {
    let method = request.method();
    let note = async |namespace: &str| engine.note_call(caller, namespace, method).await;
    match request {
        Request::Stats => note("").await.map(|()| render::stats(&engine.stats())),
        Request::Queue => note("").await.map(|()| render::queue(&engine.stats().queue)),
        Request::Inspect { namespace } => {
            note(namespace.as_str()).await?;
            Ok(render::inspection(&engine.inspect(&namespace)?))
        }
        Request::LimitsGet { namespace } => note(namespace.as_str())
            .await
            .map(|()| limits(engine, &namespace)),
        Request::LimitsSet {
            namespace,
            limits: given,
        } => {
            engine.namespace(caller, &namespace).set_limits(&given).await?;
            Ok(limits(engine, &namespace))
        }
        Request::LimitsRestore { namespace } => {
            engine.namespace(caller, &namespace).restore_limits().await?;
            Ok(limits(engine, &namespace))
        }
        Request::VaultList { namespace } => {
            let secrets = engine.namespace(caller, &namespace).secrets().await?;
            Ok(render::secrets(&namespace, engine.stats().vault, &secrets))
        }
        Request::VaultPut {
            namespace,
            key,
            value,
            ttl_seconds,
        } => {
            let ttl = ttl_seconds.map(Duration::from_secs);
            let access = engine.namespace(caller, &namespace);
            let replaced = access.put_secret(&key, value.0, ttl).await?;
            let change = if replaced { Change::Replaced } else { Change::Added };
            Ok(render::change(&namespace, &key, change))
        }
        Request::VaultDelete { namespace, key } => {
            let existed = engine.namespace(caller, &namespace).delete_secret(&key).await?;
            let change = if existed { Change::Deleted } else { Change::None };
            Ok(render::change(&namespace, &key, change))
        }
        Request::Audit { query } => {
            let page = engine.audit(caller, query.query()?).await?;
            Ok(render::records_in_commands(&page))
        }
        Request::ApprovalsList => Ok(render::approvals(&engine.approvals(caller).await?)),
        Request::ApprovalsDecide { id, digest, answer } => {
            let decision = engine.decide_approval(caller, &id, &digest, answer).await?;
            Ok(render::decision(&id, &decision))
        }
        Request::ExecutionsList { namespace, limit } => {
            executions::list(engine, caller, namespace, limit).await
        }
        Request::ExecutionsCancel { execution } => executions::cancel(engine, caller, &execution).await,
        Request::SessionList { namespace } => sessions::list(engine, caller, namespace).await,
        Request::Session { session, action } => sessions::perform(engine, caller, session, action).await,
        _ => Err(RequestError::invalid(
            format!("`{method}` is asked for in another way."),
            "Use the `ringfence` command of the server's version.",
        )),
    }
}

fn limits(engine: &Engine, namespace: &Namespace) -> Rendered {
    let (defaults, caps): (Limits, Limits) = engine.limits_of(namespace);
    render::limits(namespace, &defaults, &caps)
}

#[cfg(test)]
mod tests {
    use super::{super::socket_dir::tests::State, *};
    use serde_json::json;

    #[tokio::test]
    async fn socket_path_may_exceed_the_address_limit_and_has_mode_0600() {
        let state = State::new("deep");
        assert!(state.0.as_os_str().len() > 2 * 108);
        let (socket_dir, listener) = listen(&state.0).await.unwrap();
        let socket = socket_dir.socket(std::process::id());
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
        let (connected, accepted) = tokio::join!(UnixStream::connect(&socket), listener.accept());
        assert_eq!(connected.unwrap().peer_cred().unwrap().uid(), own_uid());
        drop(accepted.unwrap());
    }

    #[tokio::test]
    async fn dead_sockets_are_removed_and_a_live_one_with_our_pid_is_kept() {
        let state = State::new("dead");
        let (socket_dir, listener) = listen(&state.0).await.unwrap();
        let own = std::process::id();
        fs::rename(socket_dir.socket(own), socket_dir.socket(own + 1)).unwrap();
        let (_, second) = listen(&state.0).await.unwrap();
        assert_eq!(socket_dir.servers().unwrap(), [own, own + 1]);
        let refused = listen(&state.0).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        drop(second);
        let (_, third) = listen(&state.0).await.unwrap();
        assert_eq!(socket_dir.servers().unwrap(), [own]);
        drop(third);
    }

    #[test]
    fn overlong_answer_becomes_a_refusal() {
        let long = Rendered {
            text: "x".repeat(ANSWER_BYTES_MAX),
            facts: json!(null),
        };
        let line = answer_line(Ok(long));
        assert!(line.len() < 1000 && line.starts_with(b"{\"error\":") && line.ends_with(b"\n"));
    }
}
