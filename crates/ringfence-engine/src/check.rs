//! Looks at code and data before anything runs. A stranger's text is parsed by a worker of our own in a jail, which is
//! kept and answers each question in a fork (`ringfence_jail::worker`): one that dies, or takes too long, costs one
//! error and one worker.

use crate::{
    admission::{Demand, Queue},
    backend::{Events, Parts},
    error::{busy, denial},
    language::Checks,
    policy::Grant,
    runtimes,
    sandbox::{NO_BLOBS, Sandboxes},
    streams::Attached,
    sync::lock,
};
use ringfence_check::{Answer, CodeAnswer, CodeQuestion, Question};
use ringfence_jail::worker;
use ringfence_types::{
    Denial, ErrorCode, Namespace, RequestError, Rules, Severity, Validate, Validation, WorkspaceSource,
};
use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::pipe,
    sync::watch,
    time::timeout,
};

pub(crate) const CHECK: &str = "check";

const AT_ONCE_MAX: usize = 4;
/// Questions at once, and of one namespace.
const ASKING_MAX: usize = 256;
const ASKING_MAX_OF_ONE: usize = 64;
const RETRY_AFTER_MS: u64 = 250;
/// For a worker that is free, and then for one answer; a longer text has more.
const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_BYTES: u64 = 4 << 20;
const ANSWER_BYTES_MAX: u32 = 32 << 20;
/// A worker is let go when it has answered so often, or is so old, whatever its forks may have done to it.
const ANSWERS_MAX: u32 = 10_000;
const AGE_MAX: Duration = Duration::from_secs(1800);

/// The workers that wait for a question; none any more after the end.
pub(crate) struct Checkers {
    idle: Mutex<Option<Vec<Checker>>>,
    /// Bounds the questions, waiting or not.
    questions: Queue,
    workers: Queue,
    python: OnceLock<Option<(u8, u8)>>,
    sandboxes: Arc<Sandboxes>,
}

/// One worker. Dropped, it is ended.
struct Checker {
    _events: Events,
    questions: pipe::Sender,
    answers: pipe::Receiver,
    /// Its other output, which is not read; it ends before this is full.
    _stderr: OwnedFd,
    born: Instant,
    answered: u32,
    /// It was given a whole question, and has not answered.
    is_asked: bool,
}

impl Checkers {
    pub(crate) fn new(sandboxes: Arc<Sandboxes>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = processors.clamp(2, AT_ONCE_MAX);
        Self {
            idle: Mutex::new(Some(Vec::new())),
            questions: Queue::of_places(ASKING_MAX, ASKING_MAX_OF_ONE, 0),
            workers: Queue::of_places(workers, workers - 1, ASKING_MAX),
            python: OnceLock::new(),
            sandboxes,
        }
    }
}

impl Checkers {
    fn take(&self) -> Result<Option<Checker>, RequestError> {
        match &mut *lock(&self.idle) {
            Some(idle) => Ok(idle.pop()),
            None => Err(failed("Ringfence has been shut down here")),
        }
    }

    fn put_back(&self, checker: Checker) {
        if checker.answered < ANSWERS_MAX
            && checker.born.elapsed() < AGE_MAX
            && let Some(idle) = &mut *lock(&self.idle)
        {
            idle.push(checker);
        }
    }

    /// Lets those go that wait, and keeps none any more.
    pub(crate) fn close(&self) {
        *lock(&self.idle) = None;
    }
}

impl Checker {
    async fn start(sandboxes: &Sandboxes) -> Result<Self, RequestError> {
        let id = uuid::Uuid::now_v7().to_string();
        let plan = sandboxes.plan_of_worker(&id, CHECK)?;
        let place = sandboxes.native.place(Arc::new(plan), None)?;
        let claim = sandboxes.claim_of_kept_worker(2 * AGE_MAX);
        let (_cancel, mut cancelled) = watch::channel(false);
        let started = place.claim(&claim, NO_BLOBS, &mut cancelled).await;
        let started = started.map_err(|failed| failed.error)?;
        let Parts {
            events,
            stdin,
            stdout,
            stderr,
            ..
        } = started.into_parts();
        let connect = |error| crate::backend::fault("connect a worker", &error);
        Ok(Self {
            _events: events,
            questions: pipe::Sender::from_owned_fd(stdin).map_err(connect)?,
            answers: pipe::Receiver::from_owned_fd(stdout).map_err(connect)?,
            _stderr: stderr,
            born: Instant::now(),
            answered: 0,
            is_asked: false,
        })
    }

    /// Its answer to a question. After an error it is good for nothing.
    async fn ask(&mut self, question: &[u8]) -> io::Result<Vec<u8>> {
        self.questions.write_all(question).await?;
        self.is_asked = true;
        let mut length = [0; 4];
        self.answers.read_exact(&mut length).await?;
        let length = u32::from_be_bytes(length);
        if length > ANSWER_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "its answer is too long",
            ));
        }
        let mut answer = vec![0; usize::try_from(length).unwrap_or_default()];
        self.answers.read_exact(&mut answer).await?;
        self.answered += 1;
        self.is_asked = false;
        Ok(answer)
    }

    /// After an error: had it ended before it read a byte. One that has ended takes no question, or leaves it in the
    /// pipe.
    fn has_taken_nothing(&self, question: &[u8]) -> bool {
        !self.is_asked || worker::is_unread(self.questions.as_fd(), question)
    }
}

fn crowded() -> RequestError {
    busy(
        "it could not be checked: other texts are being checked, and it takes too long.",
        "Send it again later, and fewer at once.",
        RETRY_AFTER_MS,
    )
}

fn failed(what: &str) -> RequestError {
    RequestError::new(
        ErrorCode::CheckFailed,
        format!("it could not be checked: {what}."),
        "Send less at once, and nothing that is nested very deeply.",
    )
}

pub(crate) fn nonsense() -> RequestError {
    failed("its parser answered another question")
}

/// Is it a program by itself, or does it go on where others have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    Program,
    Call,
}

/// What is known of a request's code before it runs.
pub(crate) struct PendingCheck {
    pub(crate) checks: Option<Checks>,
    findings: Findings,
}

enum Findings {
    Unasked,
    /// They are told, and decide nothing: the program need not wait for them.
    Coming(Attached<Result<CodeAnswer, RequestError>>),
    Here(Box<Validation>),
}

fn checks(rules: &Rules, patches: Vec<(String, String)>) -> Option<Checks> {
    let imports = rules.imports.as_ref();
    let imports = imports.map(|modules| modules.iter().map(|module| module.as_str().to_owned()).collect());
    (rules.restrict() || !patches.is_empty()).then(|| Checks {
        imports,
        patches,
        profile: rules.profile.as_str(),
    })
}

fn judge(found: &Validation, validate: Validate, rules: &Rules) -> Result<(), RequestError> {
    let bar = match validate {
        Validate::Strict => Severity::Warning,
        // What does not parse is the interpreter's to judge, unless there is something that it may not import.
        _ if rules.restrict() => Severity::Error,
        _ => return Ok(()),
    };
    let mut refused = found.issues.iter().filter(|issue| issue.severity >= bar);
    let Some(first) = refused.next() else {
        return Ok(());
    };
    let more = match refused.count() {
        0 => String::new(),
        count => format!(" (and {count} more)"),
    };
    let what = format!("line {}: {} [{}]{more}", first.line, first.message, first.rule);
    Err(rejected(found, &what, &first.hint))
}

fn rejected(found: &Validation, what: &str, hint: &str) -> RequestError {
    let mut error = RequestError::new(
        ErrorCode::CodeRejected,
        format!("the code was refused before it ran: {what}."),
        hint,
    );
    error.validation = Some(Box::new(found.clone().rejected()));
    error
}

impl PendingCheck {
    /// What was found, at the latest now; or why it is not known. Of the imports that were missing those are told that
    /// were added, under these names: others stood there already, or failed.
    pub(crate) async fn findings(self, patched: &[String]) -> (Option<Validation>, Option<Denial>) {
        let found = match self.findings {
            Findings::Unasked => return (None, None),
            Findings::Here(mut found) => {
                let patches = self.checks.into_iter().flat_map(|checks| checks.patches);
                let added = patches.filter(|(name, _)| patched.contains(name));
                found.fixes_applied = added.map(|(_, statement)| statement).collect();
                return (Some(*found), None);
            }
            Findings::Coming(mut coming) => (&mut coming.0).await,
        };
        match found {
            Ok(Ok(answer)) => (Some(answer.validation), None),
            Ok(Err(error)) => (None, Some(unchecked(&error.message))),
            Err(error) => (None, Some(unchecked(&error.to_string()))),
        }
    }
}

fn unchecked(why: &str) -> Denial {
    let what = format!("the program ran and its code was not looked at: {why}");
    let hint = "The kernel's walls do not depend on it; `validate: \"strict\"` runs nothing that could not be checked.";
    denial("check.failed", "check", what, hint)
}

impl Checkers {
    /// The version of Python whose syntax code is held against.
    pub(crate) fn python(&self) -> Option<(u8, u8)> {
        let find = || runtimes::python_version(&self.sandboxes.runtimes);
        *self.python.get_or_init(find)
    }

    /// Starts a worker, so that the first question does not wait for one.
    pub(crate) async fn warm_up(&self) {
        match Checker::start(&self.sandboxes).await {
            Ok(checker) => self.put_back(checker),
            Err(error) => tracing::warn!(%error, "no worker that checks code could be kept ready"),
        }
    }

    /// What a worker says to a question; it is as hostile as the question.
    pub(crate) async fn ask(
        &self,
        namespace: &Namespace,
        question: &Question,
        body: &[u8],
    ) -> Result<Answer, RequestError> {
        let head = serde_json::to_vec(question).map_err(|error| failed(&error.to_string()))?;
        let frame = worker::question(&head, body).map_err(|error| failed(&error.to_string()))?;
        let permit = async |queue: &Queue, patience| {
            let permit = queue.permit(namespace, Demand::default(), patience).await;
            permit.map_err(|_| crowded())
        };
        let _question = permit(&self.questions, Duration::ZERO).await?;
        let _worker = permit(&self.workers, PATIENCE).await?;
        let patience = PATIENCE * u32::try_from(1 + frame.len() as u64 / PATIENCE_BYTES).unwrap_or(u32::MAX);
        let asked = async {
            loop {
                // One that has waited may have ended meanwhile. No other is given a question that somebody has taken.
                let (mut checker, is_new) = match self.take()? {
                    Some(kept) => (kept, false),
                    None => (Checker::start(&self.sandboxes).await?, true),
                };
                match checker.ask(&frame).await {
                    Ok(answer) => return Ok((checker, answer)),
                    Err(_) if is_new || !checker.has_taken_nothing(&frame) => {
                        return Err(failed("it ended its parser"));
                    }
                    Err(error) => tracing::debug!(%error, "a worker that checks code has ended"),
                }
            }
        };
        let Ok(asked) = timeout(patience, asked).await else {
            return Err(failed(&format!(
                "its parser took longer than {} s",
                patience.as_secs()
            )));
        };
        let (checker, answer) = asked?;
        self.put_back(checker);
        match serde_json::from_slice(&answer) {
            Ok(Answer::Refused { message, hint }) => Err(RequestError::invalid(message, hint)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(failed(&format!("its parser answered nonsense: {error}"))),
        }
    }

    pub(crate) async fn code(
        &self,
        namespace: &Namespace,
        question: CodeQuestion,
        code: &[u8],
    ) -> Result<CodeAnswer, RequestError> {
        match self.ask(namespace, &Question::Code(question), code).await? {
            Answer::Code(answer) => Ok(*answer),
            _ => Err(nonsense()),
        }
    }

    /// Checks the code of a request where that is asked for, and waits for the answer where it decides about the run.
    pub(crate) async fn check(
        self: &Arc<Self>,
        grant: &Grant,
        text: Text,
    ) -> Result<PendingCheck, RequestError> {
        let (request, rules) = (grant.request(), grant.rules());
        if request.validate == Validate::Off {
            return Ok(PendingCheck {
                checks: checks(rules, Vec::new()),
                findings: Findings::Unasked,
            });
        }
        let question = CodeQuestion {
            language: request.language,
            rules: rules.clone(),
            auto_fix: request.validate == Validate::Fix,
            is_fragment: text == Text::Call,
            has_workspace: text == Text::Call || request.workspace != WorkspaceSource::Private,
            python: self.python(),
            known_imports: self.sandboxes.policy.current().check.known_imports.clone(),
            local_modules: BTreeSet::new(), // they are among those that may be imported
        };
        if request.validate == Validate::Warn && !rules.restrict() {
            let (checkers, namespace, text) = (self.clone(), request.namespace.clone(), request.code.clone());
            let coming =
                tokio::spawn(async move { checkers.code(&namespace, question, text.as_bytes()).await });
            return Ok(PendingCheck {
                checks: None,
                findings: Findings::Coming(Attached(coming)),
            });
        }
        let answer = self
            .code(&request.namespace, question, request.code.as_bytes())
            .await?;
        judge(&answer.validation, request.validate, rules)?;
        let patches = answer.patches.into_iter();
        Ok(PendingCheck {
            checks: checks(
                rules,
                patches.map(|patch| (patch.name, patch.statement)).collect(),
            ),
            findings: Findings::Here(Box::new(answer.validation)),
        })
    }
}
