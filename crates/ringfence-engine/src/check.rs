//! Looks at code and data before anything runs. A stranger's text is parsed by a worker of our own in a jail, which is
//! kept and answers each question in a fork (`ringfence_jail::worker`): one that dies, or takes too long, costs one
//! error and one worker. An adviser is a worker that answers by itself, for one namespace and where answers decide
//! nothing, because a fork costs more than most answers.

use crate::{
    admission::{Demand, Queue},
    backend::Events,
    error::{Result, busy, denial},
    language::Checks,
    policy::Grant,
    runtimes,
    sandbox::{NO_BLOBS, Sandboxes},
    streams::Attached,
    sync::lock,
};
use ringfence_check::{Answer, CodeAnswer, CodeQuestion, Question};
use ringfence_jail::worker::{self, is_unread};
use ringfence_types::{
    Denial, ErrorCode, Namespace, RequestError, Rules, Severity, Validate, Validation, WorkspaceSource,
};
use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, OnceLock, Weak},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::pipe,
    sync::watch,
    time::timeout,
};

pub(crate) const CHECK: &str = "check";
pub(crate) const ADVISE: &str = "advise";

const AT_ONCE_MAX: usize = 4;
/// Questions at once, and of one namespace.
const ASKING_MAX: usize = 256;
const ASKING_MAX_OF_ONE: usize = 64;
const RETRY_AFTER_MS: u64 = 250;
/// For a worker to start, which on a busy host waits for its turn often.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// For a worker that is free, and then for one answer; a longer text has more.
const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_BYTES: u64 = 4 << 20;
const ANSWER_BYTES_MAX: u32 = 32 << 20;
/// A worker is let go when it has answered so often, or is so old, whatever its forks may have done to it.
const ANSWERS_MAX: u32 = 10_000;
const AGE_MAX: Duration = Duration::from_secs(1800);
/// An adviser, which has read what it was asked, goes sooner.
const ADVICE_MAX: u32 = 1000;
/// Advisers that wait; one more takes the place of the one that has waited longest.
const ADVISERS_MAX: usize = 8;
/// Namespaces that are remembered to have asked.
const ADVISED_MAX: usize = 64;
/// Longer texts, by which an adviser would grow, are read by a fork.
const ADVICE_BYTES_MAX: usize = 64 << 10;

/// The workers that wait for a question; none any more after the end.
pub(crate) struct Checkers {
    idle: Mutex<Option<Vec<Checker>>>,
    /// Bounds the questions, waiting or not.
    questions: Queue,
    workers: Queue,
    /// Namespaces that asked for advice, the last one last. One that asks again gets an adviser.
    advised: Mutex<Vec<(Namespace, Weak<()>)>>,
    python: OnceLock<Option<(u8, u8)>>,
    sandboxes: Arc<Sandboxes>,
}

/// A namespace that has an adviser, as long as this is there.
struct Advised {
    namespace: Namespace,
    _token: Arc<()>,
}

/// One worker. Dropped, it is ended.
struct Checker {
    advises: Option<Advised>,
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
            advised: Mutex::new(Vec::new()),
            python: OnceLock::new(),
            sandboxes,
        }
    }

    /// One that waits: an adviser of this namespace, or one whose answers decide.
    fn take(&self, advises: Option<&Namespace>) -> Result<Option<Checker>> {
        let mut idle = lock(&self.idle);
        let idle = idle
            .as_mut()
            .ok_or_else(|| failed("Ringfence has been shut down here"))?;
        let at = idle
            .iter()
            .rposition(|checker| checker.advises.as_ref().map(|advised| &advised.namespace) == advises);
        Ok(at.map(|at| idle.remove(at)))
    }

    fn put_back(&self, checker: Checker) {
        let answers_max = match checker.advises {
            Some(_) => ADVICE_MAX,
            None => ANSWERS_MAX,
        };
        if checker.answered < answers_max
            && checker.born.elapsed() < AGE_MAX
            && let Some(idle) = &mut *lock(&self.idle)
        {
            idle.push(checker);
            let mut advisers = (0..idle.len()).rev().filter(|at| idle[*at].advises.is_some());
            if let Some(too_many) = advisers.nth(ADVISERS_MAX) {
                idle.remove(too_many);
            }
        }
    }

    /// The adviser of a namespace, if one waits; else one is started for the questions to come.
    fn take_adviser(self: &Arc<Self>, namespace: &Namespace) -> Result<Option<Checker>> {
        let adviser = self.take(Some(namespace))?;
        if adviser.is_none()
            && let Some(advised) = self.wants_adviser(namespace)
        {
            let checkers = self.clone();
            tokio::spawn(async move { checkers.keep_ready(Some(advised)).await });
        }
        Ok(adviser)
    }

    /// A namespace asks for advice: shall it have an adviser of its own. It has none that starts, or is busy.
    fn wants_adviser(&self, namespace: &Namespace) -> Option<Advised> {
        let mut advised = lock(&self.advised);
        let Some(at) = advised.iter().position(|(known, _)| known == namespace) else {
            if advised.len() == ADVISED_MAX {
                advised.remove(0);
            }
            advised.push((namespace.clone(), Weak::new()));
            return None;
        };
        let (_, has) = &mut advised[at];
        if has.strong_count() > 0 {
            return None;
        }
        let token = Arc::new(());
        *has = Arc::downgrade(&token);
        Some(Advised {
            namespace: namespace.clone(),
            _token: token,
        })
    }

    /// Lets those go that wait, and keeps none any more.
    pub(crate) fn close(&self) {
        *lock(&self.idle) = None;
    }

    /// The version of Python whose syntax code is held against.
    pub(crate) fn python(&self) -> Option<(u8, u8)> {
        let find = || runtimes::python_version(&self.sandboxes.runtimes);
        *self.python.get_or_init(find)
    }

    /// Starts a worker, so that the first question does not wait for one.
    pub(crate) async fn warm_up(&self) {
        self.keep_ready(None).await;
    }

    async fn keep_ready(&self, advises: Option<Advised>) {
        match Checker::start(&self.sandboxes, advises).await {
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
    ) -> Result<Answer> {
        self.ask_first(|| Ok(None), namespace, question, body).await
    }

    /// Asks the worker that `first` gives, and otherwise one whose answers decide.
    async fn ask_first(
        &self,
        first: impl FnOnce() -> Result<Option<Checker>>,
        namespace: &Namespace,
        question: &Question,
        body: &[u8],
    ) -> Result<Answer> {
        let head = serde_json::to_vec(question).map_err(|error| failed(&error.to_string()))?;
        let frame = worker::question(&head, body).map_err(|error| failed(&error.to_string()))?;
        let permit = async |queue: &Queue, patience| {
            let permit = queue.permit(namespace, Demand::default(), patience).await;
            permit.map_err(|_| crowded())
        };
        let _question = permit(&self.questions, Duration::ZERO).await?;
        let _worker = permit(&self.workers, PATIENCE).await?;
        let patience = PATIENCE * u32::try_from(1 + frame.len() as u64 / PATIENCE_BYTES).unwrap_or(u32::MAX);
        let mut kept = first()?;
        let (checker, answer) = loop {
            // One that has waited may have ended meanwhile. No other is given a question that somebody has taken.
            let waiting = match kept.take() {
                None => self.take(None)?,
                adviser => adviser,
            };
            let (mut checker, is_new) = match waiting {
                Some(kept) => (kept, false),
                None => (Checker::start(&self.sandboxes, None).await?, true),
            };
            let Ok(asked) = timeout(patience, checker.ask(&frame)).await else {
                let seconds = patience.as_secs();
                return Err(failed(&format!("its parser took longer than {seconds} s")));
            };
            match asked {
                Ok(answer) => break (checker, answer),
                // One that has ended takes no question, or leaves it in the pipe.
                Err(_) if is_new || checker.is_asked && !is_unread(checker.questions.as_fd(), &frame) => {
                    return Err(failed(ENDED));
                }
                Err(error) => tracing::debug!(%error, "a worker that checks code has ended"),
            }
        };
        self.put_back(checker);
        match serde_json::from_slice(&answer) {
            Ok(Answer::Refused { message, hint }) => Err(RequestError::invalid(message, hint)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(failed(&format!("its parser answered nonsense: {error}"))),
        }
    }

    /// What is to be said of code, where it decides nothing.
    async fn advise(
        self: &Arc<Self>,
        namespace: &Namespace,
        question: CodeQuestion,
        code: &[u8],
    ) -> Result<CodeAnswer> {
        let first = || match code.len() {
            ..=ADVICE_BYTES_MAX => self.take_adviser(namespace),
            _ => Ok(None),
        };
        let question = Question::Code(question);
        of_code(self.ask_first(first, namespace, &question, code).await?)
    }

    pub(crate) async fn code(
        &self,
        namespace: &Namespace,
        question: CodeQuestion,
        code: &[u8],
    ) -> Result<CodeAnswer> {
        of_code(self.ask(namespace, &Question::Code(question), code).await?)
    }

    /// Checks the code of a request where that is asked for, and waits for the answer where it decides about the run.
    pub(crate) async fn check(self: &Arc<Self>, grant: &Grant, text: Text) -> Result<PendingCheck> {
        let (request, rules) = (&grant.request, &grant.rules);
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
                tokio::spawn(async move { checkers.advise(&namespace, question, text.as_bytes()).await });
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

impl Checker {
    /// Waits until it is ready for questions.
    async fn start(sandboxes: &Sandboxes, advises: Option<Advised>) -> Result<Self> {
        let started = timeout(START_PATIENCE, Self::begin(sandboxes, advises)).await;
        started.unwrap_or_else(|_| {
            let seconds = START_PATIENCE.as_secs();
            Err(busy(
                format!("its parser could not be started within {seconds} s."),
                "Send it again when the host is less busy.",
                RETRY_AFTER_MS,
            ))
        })
    }

    async fn begin(sandboxes: &Sandboxes, advises: Option<Advised>) -> Result<Self> {
        let id = uuid::Uuid::now_v7().to_string();
        let name = if advises.is_some() { ADVISE } else { CHECK };
        let plan = sandboxes.plan_of_worker(&id, name)?;
        let sandbox = sandboxes.native.spawn(Arc::new(plan), None)?;
        let claim = sandboxes.claim_of_kept_worker(2 * AGE_MAX);
        let (_cancel, mut cancelled) = watch::channel(false);
        let started = sandbox.claim(&claim, NO_BLOBS, &mut cancelled).await?;
        let sandbox = started.sandbox;
        let connect = |error| crate::backend::fault("connect a worker", &error);
        let mut answers = pipe::Receiver::from_owned_fd(sandbox.stdout).map_err(connect)?;
        let ready = answers.read_exact(&mut [0; worker::READY.len()]).await;
        ready.map_err(|_| failed(ENDED))?;
        Ok(Self {
            advises,
            _events: sandbox.events,
            questions: pipe::Sender::from_owned_fd(sandbox.stdin).map_err(connect)?,
            answers,
            _stderr: sandbox.stderr,
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
}

const ENDED: &str = "it ended its parser";

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

fn of_code(answer: Answer) -> Result<CodeAnswer> {
    match answer {
        Answer::Code(answer) => Ok(*answer),
        _ => Err(nonsense()),
    }
}

/// Whether it is a program by itself, or goes on where others have ended.
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
    Coming(Attached<Result<CodeAnswer>>),
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

fn judge(found: &Validation, validate: Validate, rules: &Rules) -> Result<()> {
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
