//! Checks code and data before anything runs. Untrusted text is parsed by a worker in a jail, which answers each
//! question in a fork (`ringfence_jail::worker`): one that dies or takes too long costs one error and one worker. An
//! adviser answers without a fork, which costs more than most answers: for one namespace, where answers decide nothing.

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

const WORKERS_MAX: usize = 4;
/// Maximum concurrent questions of all namespaces, and of one.
const QUESTIONS_MAX: usize = 256;
const QUESTIONS_MAX_PER_NAMESPACE: usize = 64;
const RETRY_AFTER_MS: u64 = 250;
/// Maximum time for the start of a worker, which on a busy host often waits for a processor.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum wait for a free worker, and then for one answer; longer for a longer text.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a question for each further [`PATIENCE`] of its answer.
const PATIENCE_BYTES: u64 = 4 << 20;
const ANSWER_BYTES_MAX: u32 = 32 << 20;
/// Maximum answers and age of a worker, as a bound on what its forks may have done to it.
const ANSWERS_MAX: u32 = 10_000;
const AGE_MAX: Duration = Duration::from_secs(1800);
/// Maximum answers of an adviser: fewer, because it reads the questions itself.
const ADVICE_MAX: u32 = 1000;
/// Maximum idle advisers; a further one replaces the one that has been idle for longest.
const ADVISERS_MAX: usize = 8;
/// Maximum namespaces remembered for having asked for advice.
const ADVISED_MAX: usize = 64;
/// Maximum bytes of a text for an adviser; a longer one, which would make it grow, is read in a fork.
const ADVICE_BYTES_MAX: usize = 64 << 10;

/// The idle workers (none after closing), and the limits of their use.
pub(crate) struct Checkers {
    idle: Mutex<Option<Vec<Checker>>>,
    /// Bounds the questions, waiting or being answered.
    questions: Queue,
    workers: Queue,
    /// Namespaces that asked for advice, in the order of their first question. One that asks again gets an adviser.
    advised: Mutex<Vec<(Namespace, Weak<()>)>>,
    python: OnceLock<Option<(u8, u8)>>,
    sandboxes: Arc<Sandboxes>,
}

/// Marks that a namespace has an adviser, as long as this exists.
struct AdviserSlot {
    namespace: Namespace,
    _token: Arc<()>,
}

/// A worker. Dropping it ends it.
struct Checker {
    /// None: its answers may decide.
    adviser_of: Option<AdviserSlot>,
    _events: Events,
    questions: pipe::Sender,
    answers: pipe::Receiver,
    /// Its standard error, which is not read; the worker ends before the pipe is full.
    _stderr: OwnedFd,
    started_at: Instant,
    answered: u32,
    /// True: a whole question was written, and is not answered.
    has_question: bool,
}

impl Checkers {
    pub(crate) fn new(sandboxes: Arc<Sandboxes>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = processors.clamp(2, WORKERS_MAX);
        Self {
            idle: Mutex::new(Some(Vec::new())),
            questions: Queue::of_places(QUESTIONS_MAX, QUESTIONS_MAX_PER_NAMESPACE, 0),
            workers: Queue::of_places(workers, workers - 1, QUESTIONS_MAX),
            advised: Mutex::new(Vec::new()),
            python: OnceLock::new(),
            sandboxes,
        }
    }

    /// Takes an idle worker: an adviser of this namespace, or with `None` one whose answers may decide.
    fn take(&self, adviser_of: Option<&Namespace>) -> Result<Option<Checker>> {
        let mut idle = lock(&self.idle);
        let idle = idle
            .as_mut()
            .ok_or_else(|| failed("Ringfence has been shut down here"))?;
        let at = idle
            .iter()
            .rposition(|checker| checker.adviser_of.as_ref().map(|slot| &slot.namespace) == adviser_of);
        Ok(at.map(|at| idle.remove(at)))
    }

    fn put_back(&self, checker: Checker) {
        let answers_max = match checker.adviser_of {
            Some(_) => ADVICE_MAX,
            None => ANSWERS_MAX,
        };
        if checker.answered < answers_max
            && checker.started_at.elapsed() < AGE_MAX
            && let Some(idle) = &mut *lock(&self.idle)
        {
            idle.push(checker);
            let mut advisers = (0..idle.len()).rev().filter(|at| idle[*at].adviser_of.is_some());
            if let Some(too_many) = advisers.nth(ADVISERS_MAX) {
                idle.remove(too_many);
            }
        }
    }

    /// Takes the adviser of a namespace if it is idle; otherwise starts one for later questions.
    fn take_adviser(self: &Arc<Self>, namespace: &Namespace) -> Result<Option<Checker>> {
        let adviser = self.take(Some(namespace))?;
        if adviser.is_none()
            && let Some(slot) = self.reserve_adviser(namespace)
        {
            let checkers = self.clone();
            tokio::spawn(async move { checkers.keep_ready(Some(slot)).await });
        }
        Ok(adviser)
    }

    /// Reserves an adviser for a namespace that has asked before. `None`: it has not, or has one starting or busy.
    fn reserve_adviser(&self, namespace: &Namespace) -> Option<AdviserSlot> {
        let mut advised = lock(&self.advised);
        let Some(at) = advised.iter().position(|(known, _)| known == namespace) else {
            if advised.len() == ADVISED_MAX {
                advised.remove(0);
            }
            advised.push((namespace.clone(), Weak::new()));
            return None;
        };
        let (_, token_of) = &mut advised[at];
        if token_of.strong_count() > 0 {
            return None;
        }
        let token = Arc::new(());
        *token_of = Arc::downgrade(&token);
        Some(AdviserSlot {
            namespace: namespace.clone(),
            _token: token,
        })
    }

    /// Ends the idle workers, and keeps none from now on.
    pub(crate) fn close(&self) {
        *lock(&self.idle) = None;
    }

    /// Returns the version of Python against whose syntax code is checked.
    pub(crate) fn python(&self) -> Option<(u8, u8)> {
        let find = || runtimes::python_version(&self.sandboxes.runtimes);
        *self.python.get_or_init(find)
    }

    /// Starts a worker, so that the first question does not wait for one.
    pub(crate) async fn warm_up(&self) {
        self.keep_ready(None).await;
    }

    async fn keep_ready(&self, adviser_of: Option<AdviserSlot>) {
        match Checker::start(&self.sandboxes, adviser_of).await {
            Ok(checker) => self.put_back(checker),
            Err(error) => tracing::warn!(%error, "no worker that checks code could be kept ready"),
        }
    }

    /// Returns a worker's answer to a question; it is as hostile as the question.
    pub(crate) async fn ask(
        &self,
        namespace: &Namespace,
        question: &Question,
        body: &[u8],
    ) -> Result<Answer> {
        self.ask_first(|| Ok(None), namespace, question, body).await
    }

    /// Asks the worker that `first` returns, otherwise one whose answers may decide.
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
            permit.map_err(|_| too_busy())
        };
        let _question = permit(&self.questions, Duration::ZERO).await?;
        let _worker = permit(&self.workers, PATIENCE).await?;
        let patience = PATIENCE * u32::try_from(1 + frame.len() as u64 / PATIENCE_BYTES).unwrap_or(u32::MAX);
        let mut kept = first()?;
        let (checker, answer) = loop {
            // An idle worker may have ended meanwhile. A question that a worker has read is not given to another.
            let idle = match kept.take() {
                None => self.take(None)?,
                adviser => adviser,
            };
            let (mut checker, is_new) = match idle {
                Some(kept) => (kept, false),
                None => (Checker::start(&self.sandboxes, None).await?, true),
            };
            let Ok(answered) = timeout(patience, checker.ask(&frame)).await else {
                let seconds = patience.as_secs();
                return Err(failed(&format!("its parser took longer than {seconds} s")));
            };
            match answered {
                Ok(answer) => break (checker, answer),
                // A worker that had ended accepts no question, or leaves it unread in the pipe.
                Err(_) if is_new || checker.has_question && !is_unread(checker.questions.as_fd(), &frame) => {
                    return Err(failed(ENDED));
                }
                Err(error) => tracing::debug!(%error, "a worker that checks code has ended"),
            }
        };
        self.put_back(checker);
        match serde_json::from_slice(&answer) {
            Ok(Answer::Refused { message, hint }) => Err(RequestError::invalid(message, hint)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(failed(&format!("its parser sent an invalid answer: {error}"))),
        }
    }

    /// Checks code where the answer decides nothing.
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

    /// Checks the code of a request if that is requested; waits for the answer only if it decides about the run.
    pub(crate) async fn check(self: &Arc<Self>, grant: &Grant, text: Text) -> Result<PendingCheck> {
        let (request, rules) = (&grant.request, &grant.rules);
        if request.validate == Validate::Off {
            return Ok(PendingCheck {
                checks: checks(rules, Vec::new()),
                findings: Findings::NotRequested,
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
            local_modules: BTreeSet::new(), // already among the modules that may be imported
        };
        if request.validate == Validate::Warn && !rules.restrict() {
            let (checkers, namespace, text) = (self.clone(), request.namespace.clone(), request.code.clone());
            let pending =
                tokio::spawn(async move { checkers.advise(&namespace, question, text.as_bytes()).await });
            return Ok(PendingCheck {
                checks: None,
                findings: Findings::Pending(Attached(pending)),
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
            findings: Findings::Ready(Box::new(answer.validation)),
        })
    }
}

impl Checker {
    async fn start(sandboxes: &Sandboxes, adviser_of: Option<AdviserSlot>) -> Result<Self> {
        let started = timeout(START_PATIENCE, Self::begin(sandboxes, adviser_of)).await;
        started.unwrap_or_else(|_| {
            let seconds = START_PATIENCE.as_secs();
            Err(busy(
                format!("its parser could not be started within {seconds} s."),
                "Send it again when the host is less busy.",
                RETRY_AFTER_MS,
            ))
        })
    }

    async fn begin(sandboxes: &Sandboxes, adviser_of: Option<AdviserSlot>) -> Result<Self> {
        let id = uuid::Uuid::now_v7().to_string();
        let name = if adviser_of.is_some() { ADVISE } else { CHECK };
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
            adviser_of,
            _events: sandbox.events,
            questions: pipe::Sender::from_owned_fd(sandbox.stdin).map_err(connect)?,
            answers,
            _stderr: sandbox.stderr,
            started_at: Instant::now(),
            answered: 0,
            has_question: false,
        })
    }

    /// Returns its answer to a question. After an error the worker is not used again.
    async fn ask(&mut self, question: &[u8]) -> io::Result<Vec<u8>> {
        self.questions.write_all(question).await?;
        self.has_question = true;
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
        self.has_question = false;
        Ok(answer)
    }
}

const ENDED: &str = "it ended its parser";

fn too_busy() -> RequestError {
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

pub(crate) fn unexpected_answer() -> RequestError {
    failed("its parser answered another question")
}

fn of_code(answer: Answer) -> Result<CodeAnswer> {
    match answer {
        Answer::Code(answer) => Ok(*answer),
        _ => Err(unexpected_answer()),
    }
}

/// The kind of code: a whole program, or a call in a session that continues earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    Program,
    Call,
}

pub(crate) struct PendingCheck {
    pub(crate) checks: Option<Checks>,
    findings: Findings,
}

enum Findings {
    NotRequested,
    /// The findings are only reported and decide nothing: the program does not wait for them.
    Pending(Attached<Result<CodeAnswer>>),
    Ready(Box<Validation>),
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
    let threshold = match validate {
        Validate::Strict => Severity::Warning,
        // Code that does not parse is left to the interpreter, unless rules restrict the code.
        _ if rules.restrict() => Severity::Error,
        _ => return Ok(()),
    };
    let mut refused = found.issues.iter().filter(|issue| issue.severity >= threshold);
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
    /// Waits for the findings. Only missing imports in `patched` are reported as added: others existed, or failed.
    pub(crate) async fn findings(self, patched: &[String]) -> (Option<Validation>, Option<Denial>) {
        let found = match self.findings {
            Findings::NotRequested => return (None, None),
            Findings::Ready(mut found) => {
                let patches = self.checks.into_iter().flat_map(|checks| checks.patches);
                let added = patches.filter(|(name, _)| patched.contains(name));
                found.fixes_applied = added.map(|(_, statement)| statement).collect();
                return (Some(*found), None);
            }
            Findings::Pending(mut pending) => (&mut pending.0).await,
        };
        match found {
            Ok(Ok(answer)) => (Some(answer.validation), None),
            Ok(Err(error)) => (None, Some(unchecked(&error.message))),
            Err(error) => (None, Some(unchecked(&error.to_string()))),
        }
    }
}

fn unchecked(why: &str) -> Denial {
    let what = format!("the program ran and its code was not checked: {why}");
    let hint = "The kernel's walls do not depend on it; `validate: \"strict\"` runs nothing that could not be checked.";
    denial("check.failed", "check", what, hint)
}
