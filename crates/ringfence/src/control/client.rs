//! The client end: finds the servers of a state directory, and sends a request to all of them or to a selected one.

use super::{
    ANSWER_BYTES_MAX, PATIENCE, REQUEST_BYTES_MAX, own_uid,
    socket_dir::SocketDir,
    wire::{News, Request, Response},
};
use crate::render::Rendered;
use ringfence_types::{ErrorCode, RequestError};
use std::{io, path::Path, pin::pin, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    time::timeout,
};
use zeroize::Zeroizing;

/// Time limit for connecting; the kernel's queue of a live server is never full for long.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Sent while an answer is awaited, to have the call interrupted.
const INTERRUPT: &[u8] = b"\n";
const ANSWER_BYTES: usize = 8 << 10;

#[derive(Debug)]
pub(crate) struct ServerReply {
    pub(crate) pid: u32,
    pub(crate) answer: Result<Rendered, RequestError>,
}

/// Sends a request to every server of this state directory, or to the one with this process id.
pub(crate) async fn ask_all(
    state_dir: &Path,
    only: Option<u32>,
    request: &Request,
) -> Result<Vec<ServerReply>, RequestError> {
    let mut answers = Vec::new();
    for server in find(state_dir, only).await? {
        answers.push(ask(server, request).await);
    }
    Ok(answers)
}

/// Sends a request to the only server, or to the one with this process id.
pub(crate) async fn ask_one(
    state_dir: &Path,
    only: Option<u32>,
    request: &Request,
) -> Result<ServerReply, RequestError> {
    Ok(ask(find_one(state_dir, only).await?, request).await)
}

async fn ask(server: Server, request: &Request) -> ServerReply {
    let pid = server.pid;
    let answer = async {
        let mut call = ServerCall::begin(server, request_line(request)?).await;
        let answer = timeout(PATIENCE, call.next()).await;
        match answer.map_err(|_| no_answer(pid, &"it took too long"))?? {
            Response::Ok(rendered) => Ok(rendered),
            _ => Err(unreadable_answer(pid)),
        }
    };
    let answer = answer.await;
    ServerReply { pid, answer }
}

/// Sends a request that takes time to one server, like [`ask_one`], and passes on the responses before its answer.
/// `give` returns false if no more are wanted. When `interrupt` completes, the call is interrupted, and its end
/// awaited.
pub(crate) async fn follow_one(
    state_dir: &Path,
    only: Option<u32>,
    request: &Request,
    mut give: impl AsyncFnMut(Response) -> bool,
    interrupt: impl Future<Output = ()>,
) -> Result<(u32, Rendered), RequestError> {
    // Before connecting: a server that waits for a request hangs up after a while.
    let line = request_line(request)?;
    let server = find_one(state_dir, only).await?;
    let pid = server.pid;
    let mut call = ServerCall::begin(server, line).await;
    let expects_news = matches!(request, Request::Egress { .. });
    let mut interrupt = pin!(interrupt);
    let mut is_interrupted = false;
    loop {
        let response = tokio::select! {
            response = call.next() => response?,
            () = &mut interrupt, if !is_interrupted => {
                is_interrupted = true;
                call.interrupt().await;
                continue;
            }
        };
        match response {
            Response::Ok(rendered) => return Ok((pid, rendered)),
            more if matches!(more, Response::News(_)) == expects_news => {
                if !give(more).await {
                    return Err(no_answer(pid, &"its output is no longer wanted"));
                }
            }
            _ => return Err(unreadable_answer(pid)),
        }
    }
}

/// The process id of a server, and a change of its requests for approval.
pub(crate) type Update = (u32, Result<News, RequestError>);

/// Follows one server's requests for approval, until it stops or the receiver is gone.
pub(crate) async fn watch(state_dir: &Path, pid: u32, to: &mpsc::Sender<Update>) -> Result<(), RequestError> {
    let server = find_one(state_dir, Some(pid)).await?;
    let mut call = ServerCall::begin(server, request_line(&Request::ApprovalsWatch)?).await;
    loop {
        match call.next().await {
            Ok(Response::News(news)) => {
                if to.send((pid, Ok(news))).await.is_err() {
                    return Ok(());
                }
            }
            Ok(Response::Ok(_)) => return Ok(()),
            Ok(_) => return Err(unreadable_answer(pid)),
            // The server has ended: no more requests come.
            Err(_) if call.is_over => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

struct ServerCall {
    pid: u32,
    from: BufReader<OwnedReadHalf>,
    to: OwnedWriteHalf,
    /// The received part of the next line.
    line: Vec<u8>,
    sent: io::Result<()>,
    is_over: bool,
}

impl ServerCall {
    async fn begin(Server { pid, stream }: Server, request: Zeroizing<Vec<u8>>) -> Self {
        let (from, mut to) = stream.into_split();
        Self {
            pid,
            sent: to.write_all(&request).await,
            from: BufReader::new(from),
            to,
            line: Vec::with_capacity(ANSWER_BYTES),
            is_over: false,
        }
    }

    /// Returns the next response; a refusal is an error. Cancel-safe.
    async fn next(&mut self) -> Result<Response, RequestError> {
        let failed = |what: &dyn std::fmt::Display| no_answer(self.pid, what);
        let room = (ANSWER_BYTES_MAX - self.line.len().min(ANSWER_BYTES_MAX)) as u64;
        let mut from = (&mut self.from).take(room);
        let read = from.read_until(b'\n', &mut self.line).await;
        read.map_err(|error| failed(&error))?;
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            self.is_over = true;
            // A server that refuses may answer and hang up before it has read everything.
            return Err(match &self.sent {
                Err(error) => failed(error),
                Ok(()) => failed(&"it hung up"),
            });
        }
        match serde_json::from_slice(&line) {
            Ok(Response::Error(error)) => Err(error),
            response => response.map_err(|_| unreadable_answer(self.pid)),
        }
    }

    /// Has the call interrupted. An error is ignored: the server may have answered and closed meanwhile.
    async fn interrupt(&mut self) {
        drop(self.to.write_all(INTERRUPT).await);
    }
}

/// Returns the process ids of the servers of this state directory, or of the selected one. None is not an error.
pub(crate) async fn servers(state_dir: &Path, only: Option<u32>) -> Result<Vec<u32>, RequestError> {
    match find(state_dir, only).await {
        Ok(servers) => Ok(servers.into_iter().map(|server| server.pid).collect()),
        Err(error) if error.code == ErrorCode::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Returns the request as its line, unless that is too long for a server.
fn request_line(request: &Request) -> Result<Zeroizing<Vec<u8>>, RequestError> {
    let line = request.write().map_err(|error| {
        RequestError::fault(format!("the request cannot be written: {error}."), "Report this.")
    })?;
    if line.len() > REQUEST_BYTES_MAX {
        return Err(RequestError::invalid(
            format!(
                "the request has {} bytes, and a server takes {REQUEST_BYTES_MAX}.",
                line.len()
            ),
            "Send less at once.",
        ));
    }
    Ok(line)
}

fn unreadable_answer(pid: u32) -> RequestError {
    no_answer(pid, &"its answer is not understood")
}

fn no_answer(pid: u32, what: &dyn std::fmt::Display) -> RequestError {
    RequestError::store_fault(
        format!("the server {pid} did not answer: {what}."),
        "Look at its log, and whether it is of this version.",
    )
}

pub(crate) async fn expect_one(state_dir: &Path, only: Option<u32>) -> Result<u32, RequestError> {
    find_one(state_dir, only).await.map(|server| server.pid)
}

async fn find_one(state_dir: &Path, only: Option<u32>) -> Result<Server, RequestError> {
    let mut servers = find(state_dir, only).await?;
    let pids: Vec<String> = servers.iter().map(|server| server.pid.to_string()).collect();
    match servers.pop() {
        Some(server) if servers.is_empty() => Ok(server),
        _ => Err(RequestError::invalid(
            format!("several servers run: {}.", pids.join(", ")),
            "Name one with --server PID.",
        )),
    }
}

struct Server {
    pid: u32,
    stream: UnixStream,
}

/// Returns at least one server. Sockets of dead servers are removed on the way.
async fn find(state_dir: &Path, only: Option<u32>) -> Result<Vec<Server>, RequestError> {
    let unusable = |error: io::Error| {
        RequestError::store_fault(
            format!(
                "the control sockets in {} cannot be used: {error}.",
                state_dir.display()
            ),
            "Run the command as the user who runs the server, on its state directory (RINGFENCE_STATE_DIR).",
        )
    };
    let mut servers = Vec::new();
    if let Some(socket_dir) = SocketDir::open(state_dir).map_err(unusable)? {
        let pids = socket_dir.servers().map_err(unusable)?;
        for pid in pids
            .into_iter()
            .filter(|pid| only.is_none_or(|only| only == *pid))
        {
            match connect(&socket_dir, pid).await {
                Ok(stream) => servers.push(Server { pid, stream }),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => socket_dir.remove(pid),
                // The server has ended meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(unusable(error)),
            }
        }
    }
    if servers.is_empty() {
        return Err(no_server(state_dir, only));
    }
    Ok(servers)
}

fn no_server(state_dir: &Path, only: Option<u32>) -> RequestError {
    let directory = state_dir.display();
    if let Some(pid) = only {
        return RequestError::not_found(
            format!("no server with the process number {pid} runs on the state directory {directory}."),
            "`ringfence stats --json` shows the process number (`pid`) of each server.",
        );
    }
    RequestError::not_found(
        format!("no server runs on the state directory {directory}."),
        "An agent's client starts one, and so does `ringfence serve --transport http &`; RINGFENCE_STATE_DIR names \
         another directory.",
    )
}

async fn connect(socket_dir: &SocketDir, pid: u32) -> io::Result<UnixStream> {
    let stream = timeout(CONNECT_PATIENCE, UnixStream::connect(socket_dir.socket(pid))).await??;
    if stream.peer_cred()?.uid() != own_uid() {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    Ok(stream)
}
