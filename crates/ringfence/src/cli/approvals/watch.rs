//! `ringfence approvals watch`: shows each request as it comes and, on a terminal, asks for the answer. One
//! question is put at a time, and only an answer that was typed after it counts.

use super::decide;
use crate::{
    cli::{CommandResult, Context, live, outcome::has_answers},
    control::{self, Heard, News},
    lock::lock,
    render,
    terminal::{Terminal, neutral},
    time,
};
use ringfence_engine::{Answer, ApprovalRequest, Scope, ScopeChoice};
use ringfence_types::RequestError;
use rustix::termios::{QueueSelector, tcflush};
use serde_json::json;
use std::{
    collections::{HashSet, VecDeque},
    io::{self, BufRead},
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

/// How often servers are looked for that have started meanwhile.
const LOOK: Duration = Duration::from_secs(1);
/// News and lines that wait to be dealt with.
const WAITING_MAX: usize = 256;
/// An answer that comes sooner was meant for something else: a question cannot be read so fast.
const TOO_SOON: Duration = Duration::from_millis(400);
/// Of an answer; the rest of the line is ignored.
const ANSWER_BYTES_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    Program,
    Person,
    Keyboard,
}

impl Reader {
    /// Who reads what is no JSON.
    pub(super) fn at(terminal: Terminal) -> Self {
        match has_answers(terminal) {
            true => Self::Keyboard,
            false => Self::Person,
        }
    }
}

pub(super) fn watch(context: &Context, server: Option<u32>, reader: Reader) -> CommandResult {
    let state_dir = context.state_dir()?;
    let runtime = live::runtime()?;
    let watched = runtime.block_on(follow(context.terminal, state_dir, server, reader));
    // A thread may still wait for a line.
    runtime.shutdown_background();
    watched.map(|()| ExitCode::SUCCESS)
}

async fn follow(
    terminal: Terminal,
    state_dir: PathBuf,
    server: Option<u32>,
    reader: Reader,
) -> Result<(), RequestError> {
    let (tell, mut told) = mpsc::channel(WAITING_MAX);
    let looking = tokio::spawn(look(state_dir.clone(), server, tell));
    let mut lines = match reader {
        Reader::Keyboard => Some(typed()),
        Reader::Program | Reader::Person => None,
    };
    if reader != Reader::Program {
        terminal.dim("waiting for requests; Ctrl-C ends this");
    }
    let mut desk = Prompter {
        terminal,
        state_dir,
        reader,
        waiting: VecDeque::new(),
        question: None,
    };
    loop {
        tokio::select! {
            told = told.recv() => match told {
                None => break,
                Some((_, Err(error))) => terminal.error(&error),
                Some((pid, Ok(news))) => desk.hear(pid, news)?,
            },
            line = next(&mut lines) => match line {
                None => break,
                Some(line) => desk.answer(&line).await,
            },
        }
        desk.put(&mut lines);
    }
    looking.abort();
    Ok(())
}

/// Follows every server, and those that start later.
async fn look(state_dir: PathBuf, server: Option<u32>, tell: mpsc::Sender<Heard>) {
    let followed: Arc<Mutex<HashSet<u32>>> = Arc::default();
    loop {
        let pids = match control::servers(&state_dir, server).await {
            Ok(pids) => pids,
            Err(error) => {
                drop(tell.send((server.unwrap_or_default(), Err(error))).await);
                return;
            }
        };
        for pid in pids {
            if !lock(&followed).insert(pid) {
                continue;
            }
            let (state_dir, tell, followed) = (state_dir.clone(), tell.clone(), followed.clone());
            tokio::spawn(async move {
                match control::hear(&state_dir, pid, &tell).await {
                    // It has ended; another may have its number.
                    Ok(()) => drop(lock(&followed).remove(&pid)),
                    Err(error) => drop(tell.send((pid, Err(error))).await),
                }
            });
        }
        sleep(LOOK).await;
    }
}

/// Lines of our standard input, in a thread that may wait for ever.
fn typed() -> mpsc::Receiver<String> {
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
    fn hear(&mut self, pid: u32, news: News) -> Result<(), RequestError> {
        let printed = match (self.reader, &news) {
            (Reader::Program, _) => self.terminal.print_json(&json!({"pid": pid, "news": news})),
            (Reader::Person, News::Asked(request)) => self.terminal.print(&neutral::text(&format!(
                "{}\n",
                render::approval(request, time::now_milliseconds())
            ))),
            (Reader::Person, News::Decided { .. }) => self.terminal.print(&format!("{}\n", words(&news))),
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
                    self.terminal.dim(&words(&news));
                }
            }
        }
        Ok(())
    }

    /// Puts the next question, where none is open. What was typed before it is no answer to it.
    fn put(&mut self, lines: &mut Option<mpsc::Receiver<String>>) {
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
            tracing::debug!(%error, "what was typed before cannot be dropped");
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
        let answer = understood(line, &question.request);
        let (Some(answer), true) = (answer, question.since.elapsed() >= TOO_SOON) else {
            drop(self.terminal.ask(&prompt(&question.request)));
            self.question = Some(question);
            return;
        };
        match decide(&self.state_dir, question.pid, &question.request, answer).await {
            Ok(shown) => self.terminal.dim(shown.text.trim_end()),
            Err(error) => self.terminal.error(&error),
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

/// None: it is no answer, and the question is put again.
fn understood(line: &str, request: &ApprovalRequest) -> Option<Answer> {
    let has = |scope| request.scopes.contains(&scope);
    let wish = match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" | "once" => ScopeChoice::Once,
        "s" | "session" if has(Scope::Session) => ScopeChoice::Session,
        "a" | "all" | "namespace" if has(Scope::Namespace) => ScopeChoice::Namespace(None),
        "" | "n" | "no" | "deny" => return Some(Answer::Deny),
        _ => return None,
    };
    Some(Answer::Approve(wish))
}

fn words(news: &News) -> String {
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
