//! `ringfence approvals watch`: shows each request as it arrives and, on a terminal, asks for the answer. It asks one
//! question at a time, and only an answer typed after the question counts.

use super::decide;
use crate::{
    cli::{CommandResult, Context, live, outcome::is_interactive},
    control::{self, News, Update},
    lock::lock,
    render,
    terminal::{Terminal, neutral},
    time,
};
use ringfence_engine::{Answer, ApprovalRequest, Scope, ScopeChoice};
use ringfence_types::{ErrorCode, RequestError};
use rustix::termios::{QueueSelector, tcflush};
use serde_json::json;
use std::{
    collections::{HashSet, VecDeque},
    io::{self, BufRead},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

const SCAN_INTERVAL: Duration = Duration::from_secs(1);
const WAITING_MAX: usize = 256;
/// An answer given sooner is ignored: the question cannot have been read so fast.
const TOO_SOON: Duration = Duration::from_millis(400);
/// Longest answer in bytes; the rest of the line is ignored.
const ANSWER_BYTES_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    Program,
    Person,
    Keyboard,
}

impl Reader {
    pub(super) fn at(terminal: Terminal) -> Self {
        match is_interactive(terminal) {
            true => Self::Keyboard,
            false => Self::Person,
        }
    }
}

pub(super) fn watch(context: &Context, server: Option<u32>, reader: Reader) -> CommandResult {
    let state_dir = context.state_dir()?;
    let runtime = live::runtime()?;
    let watched = runtime.block_on(follow(context.terminal, state_dir, server, reader));
    // A thread may still be reading a line.
    runtime.shutdown_background();
    watched.map(|()| ExitCode::SUCCESS)
}

async fn follow(
    terminal: Terminal,
    state_dir: PathBuf,
    server: Option<u32>,
    reader: Reader,
) -> Result<(), RequestError> {
    let (sender, mut received) = mpsc::channel(WAITING_MAX);
    let following = tokio::spawn(follow_servers(state_dir.clone(), server, sender));
    let mut lines = match reader {
        Reader::Keyboard => Some(read_lines()),
        Reader::Program | Reader::Person => None,
    };
    if reader != Reader::Program {
        terminal.dim("waiting for requests; Ctrl-C ends this");
    }
    let mut prompter = Prompter {
        terminal,
        state_dir,
        reader,
        waiting: VecDeque::new(),
        question: None,
    };
    loop {
        tokio::select! {
            news = received.recv() => match news {
                None => break,
                Some((_, Err(error))) => terminal.error(&error),
                Some((pid, Ok(news))) => prompter.receive(pid, news)?,
            },
            line = next(&mut lines) => match line {
                None => break,
                Some(line) => prompter.answer(&line).await,
            },
        }
        prompter.ask_next(&mut lines);
    }
    following.abort();
    Ok(())
}

async fn follow_servers(state_dir: PathBuf, server: Option<u32>, sender: mpsc::Sender<Update>) {
    let followed: Arc<Mutex<HashSet<u32>>> = Arc::default();
    loop {
        let pids = match control::servers(&state_dir, server).await {
            Ok(pids) => pids,
            Err(error) => {
                drop(sender.send((server.unwrap_or_default(), Err(error))).await);
                return;
            }
        };
        for pid in pids {
            if !lock(&followed).insert(pid) {
                continue;
            }
            let (state_dir, sender, followed) = (state_dir.clone(), sender.clone(), followed.clone());
            tokio::spawn(async move {
                follow_server(&state_dir, pid, &sender).await;
                // A later server may get the same process number.
                lock(&followed).remove(&pid);
            });
        }
        sleep(SCAN_INTERVAL).await;
    }
}

/// Follows a server until it ends, or the receiver is gone. A watch that fails is begun again; only its first error is
/// sent.
async fn follow_server(state_dir: &Path, pid: u32, sender: &mpsc::Sender<Update>) {
    let mut has_failed = false;
    while let Err(error) = control::watch(state_dir, pid, sender).await {
        let has_ended = error.code == ErrorCode::NotFound;
        if has_ended || (!has_failed && sender.send((pid, Err(error))).await.is_err()) {
            return;
        }
        has_failed = true;
        sleep(SCAN_INTERVAL).await;
    }
}

/// Reads lines of our standard input, in a thread that may block forever.
fn read_lines() -> mpsc::Receiver<String> {
    let (send, lines) = mpsc::channel(WAITING_MAX);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut line = Vec::new();
        while matches!(stdin.read_until(b'\n', &mut line), Ok(1..)) {
            line.truncate(ANSWER_BYTES_MAX);
            if send
                .blocking_send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                return;
            }
            line.clear();
        }
    });
    lines
}

async fn next(lines: &mut Option<mpsc::Receiver<String>>) -> Option<String> {
    match lines {
        Some(lines) => lines.recv().await,
        None => std::future::pending().await,
    }
}

struct Prompter {
    terminal: Terminal,
    state_dir: PathBuf,
    reader: Reader,
    waiting: VecDeque<(u32, ApprovalRequest)>,
    question: Option<Question>,
}

struct Question {
    pid: u32,
    request: ApprovalRequest,
    since: Instant,
}

impl Prompter {
    fn receive(&mut self, pid: u32, news: News) -> Result<(), RequestError> {
        let printed = match (self.reader, &news) {
            (Reader::Program, _) => self.terminal.print_json(&json!({"pid": pid, "news": news})),
            (Reader::Person, News::Asked(request)) => self.terminal.print(&neutral::text(&format!(
                "{}\n",
                render::approval(request, time::now_milliseconds())
            ))),
            (Reader::Person, News::Decided { .. }) => self.terminal.print(&format!("{}\n", news_line(&news))),
            (Reader::Keyboard, _) => Ok(()),
        };
        super::printed(printed)?;
        if self.reader != Reader::Keyboard {
            return Ok(());
        }
        match news {
            News::Asked(request) => self.waiting.push_back((pid, *request)),
            News::Decided { ref id, .. } => {
                self.waiting
                    .retain(|(of, request)| *of != pid || request.id != *id);
                let is_it = |question: &Question| question.pid == pid && question.request.id == *id;
                if self.question.as_ref().is_some_and(is_it) {
                    self.question = None;
                    self.terminal.note("");
                    self.terminal.dim(&news_line(&news));
                }
            }
        }
        Ok(())
    }

    /// Asks the next question if none is open. Input typed before it is discarded.
    fn ask_next(&mut self, lines: &mut Option<mpsc::Receiver<String>>) {
        if self.question.is_some() {
            return;
        }
        let Some((pid, request)) = self.waiting.pop_front() else {
            return;
        };
        let shown = render::approval(&request, time::now_milliseconds());
        self.terminal
            .note(&format!("\n{}", neutral::text(&shown).trim_end()));
        if let Err(error) = tcflush(io::stdin(), QueueSelector::IFlush) {
            tracing::debug!(%error, "input typed before the question cannot be discarded");
        }
        if let Some(lines) = lines {
            while lines.try_recv().is_ok() {}
        }
        drop(self.terminal.ask(&prompt(&request)));
        self.question = Some(Question {
            pid,
            request,
            since: Instant::now(),
        });
    }

    async fn answer(&mut self, line: &str) {
        let Some(question) = self.question.take() else {
            return;
        };
        let answer = parse_answer(line, &question.request);
        let (Some(answer), true) = (answer, question.since.elapsed() >= TOO_SOON) else {
            drop(self.terminal.ask(&prompt(&question.request)));
            self.question = Some(question);
            return;
        };
        match decide(&self.state_dir, question.pid, &question.request, answer).await {
            Ok(shown) => self.terminal.dim(shown.text.trim_end()),
            Err(error) => {
                self.terminal.error(&error);
                // Otherwise the request may still wait: it is asked again, after those that wait already.
                if !matches!(error.code, ErrorCode::NotFound | ErrorCode::Conflict) {
                    self.waiting.push_back((question.pid, question.request));
                }
            }
        }
    }
}

fn prompt(request: &ApprovalRequest) -> String {
    let wider = [
        (Scope::Session, ", s: for the session"),
        (Scope::Namespace, ", a: for the whole namespace"),
    ];
    let offered = wider.iter().filter(|(scope, _)| request.scopes.contains(scope));
    let words: String = offered.map(|(_, words)| *words).collect();
    format!("allow it? [y: once{words}, N: no] ")
}

/// Parses an answer. None if it is not one, and the question is asked again.
fn parse_answer(line: &str, request: &ApprovalRequest) -> Option<Answer> {
    let has = |scope| request.scopes.contains(&scope);
    let scope = match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" | "once" => ScopeChoice::Once,
        "s" | "session" if has(Scope::Session) => ScopeChoice::Session,
        "a" | "all" | "namespace" if has(Scope::Namespace) => ScopeChoice::Namespace(None),
        "" | "n" | "no" | "deny" => return Some(Answer::Deny),
        _ => return None,
    };
    Some(Answer::Approve(scope))
}

fn news_line(news: &News) -> String {
    match news {
        News::Asked(request) => format!("{} is asked", request.id),
        News::Decided {
            id,
            approved,
            decided_by,
        } => {
            let how = match approved {
                Some(true) => "approved",
                Some(false) => "denied",
                None => "decided",
            };
            let by = decided_by.as_ref().map(|by| format!(" by {}", neutral::line(by)));
            format!("{id} is {how}{}", by.unwrap_or_default())
        }
    }
}
