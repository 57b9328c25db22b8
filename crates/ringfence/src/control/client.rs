//! The command's end: finds the servers of a state directory, and asks all of them or the one that is meant.

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

/// How long a connection may take; the kernel's queue of one that lives is never full for long.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// What asks, on a connection whose answer is awaited, that its call be interrupted.
const INTERRUPT: &[u8] = b"\n";
/// What an answer begins with in memory.
const ANSWER_BYTES: usize = 8 << 10;

#[derive(Debug)]
pub(crate) struct ServerReply {
    pub(crate) pid: u32,
    pub(crate) answer: Result<Rendered, RequestError>,
}

/// Asks every server of this state directory, or the one with this process number.
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

/// Asks the only server, or the one with this process number.
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
        let mut talk = Talk::begin(server, written(request)?).await;
        let answer = timeout(PATIENCE, talk.next()).await;
        match answer.map_err(|_| unanswered(pid, &"its time was up"))?? {
            Response::Ok(shown) => Ok(shown),
            _ => Err(misunderstood(pid)),
        }
    };
    let answer = answer.await;
    ServerReply { pid, answer }
}

/// Asks the only server, or the one with this process number, something that takes time, and passes on what it says
/// before its answer. `give`: false if more is no longer wanted. `interrupt`: completes when the call is to be
/// interrupted; its end is waited for.
pub(crate) async fn follow_one(
    state_dir: &Path,
    only: Option<u32>,
    request: &Request,
    mut give: impl AsyncFnMut(Response) -> bool,
    interrupt: impl Future<Output = ()>,
) -> Result<(u32, Rendered), RequestError> {
    // Before the connection: a server that waits for a request hangs up after a while.
    let line = written(request)?;
    let server = find_one(state_dir, only).await?;
    let pid = server.pid;
    let mut talk = Talk::begin(server, line).await;
    let expects_news = matches!(request, Request::Egress { .. });
    let mut interrupt = pin!(interrupt);
    let mut is_interrupted = false;
    loop {
        let response = tokio::select! {
            response = talk.next() => response?,
            () = &mut interrupt, if !is_interrupted => {
                is_interrupted = true;
                talk.interrupt().await;
                continue;
            }
        };
        match response {
            Response::Ok(shown) => return Ok((pid, shown)),
            more if matches!(more, Response::News(_)) == expects_news => {
                if !give(more).await {
                    return Err(unanswered(pid, &"its output was wanted no more"));
                }
            }
            _ => return Err(misunderstood(pid)),
        }
    }
}

/// What a server tells of its requests, with its process number.
pub(crate) type Heard = (u32, Result<News, RequestError>);

/// Follows one server's requests for approval, until it stops or the receiver is gone.
pub(crate) async fn hear(state_dir: &Path, pid: u32, give: &mpsc::Sender<Heard>) -> Result<(), RequestError> {
    let server = find_one(state_dir, Some(pid)).await?;
    let mut talk = Talk::begin(server, written(&Request::ApprovalsWatch)?).await;
    loop {
        match talk.next().await {
            Ok(Response::News(news)) => {
                if give.send((pid, Ok(news))).await.is_err() {
                    return Ok(());
                }
            }
            Ok(Response::Ok(_)) => return Ok(()),
            Ok(_) => return Err(misunderstood(pid)),
            // A server that ends has nothing more to tell.
            Err(_) if talk.is_over => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// A request that a server answers, with as many lines before the answer as it likes.
struct Talk {
    pid: u32,
    from: BufReader<OwnedReadHalf>,
    to: OwnedWriteHalf,
    /// What has come of the next line.
    line: Vec<u8>,
    sent: io::Result<()>,
    is_over: bool,
}

impl Talk {
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

    /// What the server says next; a refusal is an error. Safe to cancel.
    async fn next(&mut self) -> Result<Response, RequestError> {
        let failed = |what: &dyn std::fmt::Display| unanswered(self.pid, what);
        let room = (ANSWER_BYTES_MAX - self.line.len().min(ANSWER_BYTES_MAX)) as u64;
        let read = (&mut self.from)
            .take(room)
            .read_until(b'\n', &mut self.line)
            .await;
        read.map_err(|error| failed(&error))?;
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            self.is_over = true;
            // One that refuses may answer and hang up before it has read everything.
            return Err(match &self.sent {
                Err(error) => failed(error),
                Ok(()) => failed(&"it hung up"),
            });
        }
        match serde_json::from_slice(&line) {
            Ok(Response::Error(error)) => Err(error),
            said => said.map_err(|_| misunderstood(self.pid)),
        }
    }

    /// One that has answered meanwhile listens no more.
    async fn interrupt(&mut self) {
        drop(self.to.write_all(INTERRUPT).await);
    }
}

/// The process numbers of the servers of this state directory, or of the one that is meant. None is no error.
pub(crate) async fn servers(state_dir: &Path, only: Option<u32>) -> Result<Vec<u32>, RequestError> {
    match find(state_dir, only).await {
        Ok(servers) => Ok(servers.into_iter().map(|server| server.pid).collect()),
        Err(error) if error.code == ErrorCode::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The request as its line, if that is not too long for a server.
fn written(request: &Request) -> Result<Zeroizing<Vec<u8>>, RequestError> {
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

fn misunderstood(pid: u32) -> RequestError {
    unanswered(pid, &"its answer is not understood")
}

fn unanswered(pid: u32, what: &dyn std::fmt::Display) -> RequestError {
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
            "Say which one is meant, with --server PID.",
        )),
    }
}

struct Server {
    pid: u32,
    stream: UnixStream,
}

/// At least one. Sockets of servers that are dead are removed on the way.
async fn find(state_dir: &Path, only: Option<u32>) -> Result<Vec<Server>, RequestError> {
    let unread = |error: io::Error| {
        RequestError::store_fault(
            format!(
                "the control sockets in {} cannot be used: {error}.",
                state_dir.display()
            ),
            "Run the command as the user who runs the server.",
        )
    };
    let mut servers = Vec::new();
    if let Some(place) = SocketDir::open(state_dir).map_err(unread)? {
        let pids = place.servers().map_err(unread)?;
        for pid in pids
            .into_iter()
            .filter(|pid| only.is_none_or(|only| only == *pid))
        {
            match connect(&place, pid).await {
                Ok(stream) => servers.push(Server { pid, stream }),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => place.remove(pid),
                // It has gone meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(unread(error)),
            }
        }
    }
    if servers.is_empty() {
        return Err(no_server(state_dir, only));
    }
    Ok(servers)
}

fn no_server(state_dir: &Path, only: Option<u32>) -> RequestError {
    let which = only.map_or_else(String::new, |pid| format!(" with the process number {pid}"));
    RequestError::not_found(
        format!(
            "no server{which} runs on the state directory {}.",
            state_dir.display()
        ),
        "An agent's client starts one, and so does `ringfence serve --transport http &`; RINGFENCE_STATE_DIR names \
         another directory.",
    )
}

async fn connect(place: &SocketDir, pid: u32) -> io::Result<UnixStream> {
    let stream = timeout(CONNECT_PATIENCE, UnixStream::connect(place.socket(pid))).await??;
    if stream.peer_cred()?.uid() != own_uid() {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    Ok(stream)
}
