//! The server's end: one request and one answer for each connection, and then it is closed.

use super::{
    ANSWER_BYTES_MAX, CONNECTIONS_MAX, IDLE, REQUEST_BYTES_MAX, Unanswered, approvals, executions, own_uid,
    sessions::{self, unless_left},
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
/// Descriptors may be used up for a while; asking again at once would only take the processor, too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What a request begins with in memory: a secret of the greatest length fits.
const LINE_BYTES: usize = 1 << 20;
const PIECE_BYTES: usize = 1 << 20;

/// A socket that is listened at, until this is dropped.
pub(crate) struct Socket {
    place: SocketDir,
    attending: AbortHandle,
    answers: TaskTracker,
}

impl Socket {
    /// Completes when each command that asked something has its answer. Those that only watch have none to come.
    pub(crate) async fn answered(&self) {
        self.answers.close();
        self.answers.wait().await;
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.attending.abort();
        self.place.remove(std::process::id());
    }
}

pub(crate) async fn open(state_dir: &Path, engine: Engine) -> io::Result<Socket> {
    let (place, listener) = listen(state_dir).await?;
    let answers = TaskTracker::new();
    let attending = tokio::spawn(attend(listener, engine, answers.clone())).abort_handle();
    Ok(Socket {
        place,
        attending,
        answers,
    })
}

/// The same for a run by itself, where a person may be asked about what its program tries. One that cannot be reached
/// runs all the same, and what it asks is denied.
pub(crate) async fn open_for_questions(settings: &EngineSettings, engine: &Engine) -> Option<Socket> {
    if settings.policy.egress.on_denied == OnDenied::Deny {
        return None;
    }
    let opened = open(&settings.state_dir, engine.clone()).await;
    let told =
        |error| tracing::error!(%error, "NO CONTROL SOCKET: the requests of this run cannot be answered");
    opened.map_err(told).ok()
}

/// The socket gets its name when somebody listens at it, so that one which refuses is a dead server's.
async fn listen(state_dir: &Path) -> io::Result<(SocketDir, UnixListener)> {
    let place = SocketDir::make(state_dir)?;
    place.sweep_unfinished()?;
    let pid = std::process::id();
    for other in place.servers()? {
        if is_dead(&place, other).await {
            place.remove(other);
        }
    }
    let unfinished = place.unfinished(pid);
    let listener = UnixListener::bind(&unfinished)?;
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o600))?;
    let name = place.socket(pid);
    if name.exists() {
        // Of another process namespace, which shares the directory with us.
        fs::remove_file(&unfinished)?;
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("a server with the process number {pid} listens there"),
        ));
    }
    fs::rename(&unfinished, &name)?;
    Ok((place, listener))
}

async fn is_dead(place: &SocketDir, pid: u32) -> bool {
    let connected = UnixStream::connect(place.socket(pid)).await;
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

async fn attend(listener: UnixListener, engine: Engine, answers: TaskTracker) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let watching = Arc::new(Semaphore::new(approvals::WATCHING_MAX));
    let mut calls = JoinSet::new();
    while let Ok(place) = places.clone().acquire_owned().await {
        while calls.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let (engine, watching, answers) = (engine.clone(), watching.clone(), answers.clone());
                calls.spawn(async move {
                    if let Err(error) = serve(stream, &engine, &watching, &answers).await {
                        tracing::debug!(%error, "a control connection ended early");
                    }
                    drop(place);
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
    watching: &Semaphore,
    answers: &TaskTracker,
) -> io::Result<()> {
    let caller = &Caller::new(CALLER);
    let request = accept(&mut stream).await?;
    let only_watches = matches!(request, Ok(Request::Events { .. } | Request::ApprovalsWatch));
    let _answer = (!only_watches).then(|| answers.token());
    let answer = match request {
        Ok(request) => answer(engine, caller, request, &mut stream, watching).await,
        Err(error) => Err(Some(error)),
    };
    let answer = match answer {
        Ok(shown) => Ok(shown),
        Err(Some(refused)) => Err(refused),
        Err(None) => return Err(io::Error::other("the command has hung up")),
    };
    let line = written(answer);
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
    watching: &Semaphore,
) -> Result<Rendered, Unanswered> {
    let (mut from, mut to) = stream.split();
    let (from, to) = (&mut from, &mut to);
    match request {
        Request::SessionExec { call } => sessions::exec(engine, caller, *call, from, to).await,
        Request::SessionCreate { options } => sessions::create(engine, caller, *options, from, to).await,
        Request::Egress { wish } => {
            unless_left(from, approvals::request_egress(engine, caller, wish, to)).await
        }
        Request::Events { follow, output } => {
            let hears = match output {
                true => Hears::Everything,
                false => Hears::AllButOutput,
            };
            let told = executions::events(engine, caller, follow.then_some(hears), watching, to);
            unless_left(from, told).await
        }
        Request::Logs { execution, follow } => {
            let told = executions::logs(engine, caller, &execution, follow.then_some(watching), to);
            unless_left(from, told).await
        }
        Request::ApprovalsWatch => unless_left(from, approvals::watch(engine, caller, watching, to)).await,
        request => perform(engine, caller, request).await.map_err(Some),
    }
}

/// A request of the same user. What was sent is wiped before anything is done with it.
async fn accept(stream: &mut UnixStream) -> io::Result<Result<Request, RequestError>> {
    let uid = stream.peer_cred()?.uid();
    // Read also what is refused: a socket that is closed with something unread takes the answer with it.
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

/// Up to the end of the line, the end of what is sent, or the limit. A buffer that is too small is wiped when a larger
/// one has its contents: one that grows by itself leaves copies behind.
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

fn written(answer: Result<Rendered, RequestError>) -> Vec<u8> {
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

/// Each question and each change goes on record: changes by the engine itself, questions here.
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
            limits: wish,
        } => {
            engine.namespace(caller, &namespace).set_limits(&wish).await?;
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
    async fn a_socket_lies_deeper_than_an_address_can_name_and_is_closed_to_others() {
        let state = State::new("deep");
        assert!(state.0.as_os_str().len() > 2 * 108);
        let (place, listener) = listen(&state.0).await.unwrap();
        let socket = place.socket(std::process::id());
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
        let (connected, accepted) = tokio::join!(UnixStream::connect(&socket), listener.accept());
        assert_eq!(connected.unwrap().peer_cred().unwrap().uid(), own_uid());
        drop(accepted.unwrap());
    }

    #[tokio::test]
    async fn the_sockets_of_dead_servers_go_and_one_that_lives_under_our_number_stays() {
        let state = State::new("dead");
        let (place, listener) = listen(&state.0).await.unwrap();
        let own = std::process::id();
        fs::rename(place.socket(own), place.socket(own + 1)).unwrap();
        let (_, second) = listen(&state.0).await.unwrap();
        assert_eq!(place.servers().unwrap(), [own, own + 1]);
        let refused = listen(&state.0).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        drop(second);
        let (_, third) = listen(&state.0).await.unwrap();
        assert_eq!(place.servers().unwrap(), [own]);
        drop(third);
    }

    #[test]
    fn an_answer_that_is_too_long_becomes_a_refusal() {
        let long = Rendered {
            text: "x".repeat(ANSWER_BYTES_MAX),
            facts: json!(null),
        };
        let line = written(Ok(long));
        assert!(line.len() < 1000 && line.starts_with(b"{\"error\":") && line.ends_with(b"\n"));
    }
}
