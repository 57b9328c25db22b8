//! Approval by a person of destinations that no rule allows, while the program's connection waits. A question belongs
//! to one run, or to one call of a session, and ends with it; between its calls a session asks no person.

use super::{Egress, EgressRedactor, LeasePolicy, RuleSource};
use crate::{
    approval::{self, Ask, DeniedBy, Scope, Subject},
    caller::{OutputChunk, Requester},
    policy::reach::PACKAGE_INDEXES,
    settings::OnDenied,
    sync::lock,
};
use ringfence_egress::{ApprovalFuture, ApprovalHook, Destination, NotApproved, Rule, Verdict};
use ringfence_types::AllowedDomains;
use std::{
    collections::HashMap,
    ops::Deref,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};
use tokio::{sync::watch, task::JoinSet};

/// Maximum destinations (host and port) that a run or a call asks about, each once.
const QUESTIONS_MAX: usize = 8;
/// Maximum pending questions: half of a namespace's maximum, so that one sandbox does not use all.
const OPEN_MAX: usize = 4;

pub(super) struct ApprovalScope {
    egress: Weak<Egress>,
    policy: Arc<LeasePolicy>,
    redactor: EgressRedactor,
    open: Mutex<Option<OpenQuestions>>,
}

type Answered = Result<(), NotApproved>;

/// The questions of the current run or call; outside one there are none.
struct OpenQuestions {
    by: Requester,
    patience: Duration,
    questions: HashMap<Destination, watch::Receiver<Option<Answered>>>,
    /// Tasks of pending questions. Dropping them withdraws the questions.
    waiting: JoinSet<()>,
}

impl ApprovalScope {
    pub(super) fn new(egress: &Arc<Egress>, lease: &Arc<LeasePolicy>, redactor: EgressRedactor) -> Arc<Self> {
        Arc::new(Self {
            egress: Arc::downgrade(egress),
            policy: lease.clone(),
            redactor,
            open: Mutex::new(None),
        })
    }

    pub(super) fn begin(&self, by: Requester, patience: Duration) {
        *lock(&self.open) = Some(OpenQuestions {
            by,
            patience,
            questions: HashMap::new(),
            waiting: JoinSet::new(),
        });
    }

    /// Withdraws the pending questions, and asks no more.
    pub(super) fn end(&self) {
        drop(lock(&self.open).take());
    }

    /// Returns the answer to come for a destination, about which a person is asked once.
    fn question(
        self: &Arc<Self>,
        to: &Destination,
    ) -> Result<watch::Receiver<Option<Answered>>, NotApproved> {
        let mut open = lock(&self.open);
        let Some(open) = &mut *open else {
            return Err(not_asked("no call of the session is running"));
        };
        if let Some(known) = open.questions.get(to) {
            return Ok(known.clone());
        }
        if self.redactor.redacts(&to.host.to_string()) {
            return Err(not_asked("the name holds a secret"));
        }
        if open.questions.len() >= QUESTIONS_MAX {
            let why = format!("this run has asked {QUESTIONS_MAX} times already");
            return Err(not_asked(&why));
        }
        while open.waiting.try_join_next().is_some() {}
        if open.waiting.len() >= OPEN_MAX {
            let why = format!("{OPEN_MAX} questions of this run wait already");
            return Err(not_asked(&why));
        }
        let rule: Rule = to.to_string().parse().map_err(|_| not_asked("not a host"))?;
        let (sender, receiver) = watch::channel(None);
        let (scope, by, patience) = (self.clone(), open.by.clone(), open.patience);
        open.waiting.spawn(async move {
            let answered = scope.ask_person(by, rule, patience).await;
            sender.send_replace(Some(answered));
        });
        open.questions.insert(to.clone(), receiver.clone());
        Ok(receiver)
    }

    async fn ask_person(&self, by: Requester, rule: Rule, patience: Duration) -> Answered {
        let ask = Ask {
            subject: Subject::Egress(rule.clone()),
            namespace: self.policy.namespace.clone(),
            session: self.policy.session.clone(),
            execution: by.execution_id.clone(),
            caller: by.caller,
            reason: String::new(),
            patience: Some(patience),
        };
        let approvals = self.egress.upgrade().ok_or_else(stopping)?.approvals.clone();
        let asked = approvals.ask(ask).await;
        let mut waiting = asked.map_err(|error| not_asked(error.message.trim_end_matches('.')))?;
        if let (Some(output), Some(request)) = (&by.client.output, waiting.request()) {
            let text = format!(
                "the program waits for a person to allow {rule}: `ringfence approvals approve {}` (within {} s)\n",
                request.id,
                patience.as_secs()
            );
            // The notice is dropped if the client reads too slowly.
            drop(output.try_send(OutputChunk::notice(&text)));
        }
        let decision = waiting.decided().await;
        let egress = self.egress.upgrade().ok_or_else(stopping)?;
        match decision.verdict {
            approval::Verdict::Approved(Scope::Once) => self.allow_once(by.execution_id.as_deref(), rule)?,
            approval::Verdict::Approved(_) => {}
            approval::Verdict::Denied(why) => {
                return Err(NotApproved(match why {
                    DeniedBy::Human => format!("asked, and denied by {}", decision.decided_by),
                    DeniedBy::Timeout => {
                        format!("asked, and not answered within {} s", patience.as_secs())
                    }
                    DeniedBy::Lately => "not asked: it was denied a moment ago".to_owned(),
                    DeniedBy::Gone => "asked, and withdrawn".to_owned(),
                    DeniedBy::Limit => "asked, and the approval could not be kept".to_owned(),
                }));
            }
        }
        egress.refresh();
        Ok(())
    }

    /// Adds a rule for the run that asked, if it is still in progress.
    fn allow_once(&self, execution: Option<&str>, rule: Rule) -> Answered {
        let open = lock(&self.open);
        let is_other = |open: &OpenQuestions| open.by.execution_id.as_deref() != execution;
        if open.as_ref().is_none_or(is_other) {
            return Err(NotApproved("approved, too late".to_owned()));
        }
        lock(&self.policy.overrides).once.push(rule);
        Ok(())
    }
}

/// Ends the questions of a scope when it is dropped.
pub(super) struct ApprovalScopeGuard(pub(super) Arc<ApprovalScope>);

impl Deref for ApprovalScopeGuard {
    type Target = ApprovalScope;
    fn deref(&self) -> &ApprovalScope {
        &self.0
    }
}

impl Drop for ApprovalScopeGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

pub(super) struct AskHook(pub(super) Arc<ApprovalScope>);

impl ApprovalHook for AskHook {
    fn is_available(&self) -> bool {
        let Some(egress) = self.0.egress.upgrade() else {
            return false;
        };
        let policy = egress.policy.current();
        lock(&self.0.open).is_some() && matches!(self.0.policy.source.of(&policy).on_denied, OnDenied::Ask(_))
    }

    fn hint(&self, to: &Destination) -> Option<String> {
        let name = to.host.name();
        if self.0.policy.source == RuleSource::Web {
            let Some(name) = name else {
                return Some(format!("Have the operator add `{to}` to `web.allow`."));
            };
            if name.is_local() {
                let port = to.port;
                return Some(format!(
                    "For a service of this host write `127.0.0.1:{port}`, and have the operator add that to `web.allow`."
                ));
            }
            return Some(format!(
                "Call `request_egress {{domain: \"{to}\"}}`; or have the operator add `{to}` to `web.allow`."
            ));
        }
        let name = name?;
        if PACKAGE_INDEXES.contains(&name.as_str()) {
            return Some(
                "Name packages in `packages`, or have them with `install_package`: pip and npm of a program reach no index."
                    .to_owned(),
            );
        }
        let egress = self.0.egress.upgrade()?;
        let policy = &self.0.policy;
        let names_hosts = matches!(policy.requested, AllowedDomains::Only(_));
        let is_narrowed = names_hosts || lock(&policy.overrides).named.is_some();
        let host = to.to_string();
        let host = match to.port {
            80 | 443 => name.as_str(),
            _ => &host,
        };
        let given = || egress.granted(RuleSource::Programs, &policy.namespace, policy.session.as_ref());
        is_narrowed.then(|| match given().verdict(name, to.port) {
            Verdict::Denied(_) => {
                format!("Call `request_egress {{domain: \"{host}\"}}`, then add it to `allowed_domains`.")
            }
            _ => format!("Add `{host}` to `allowed_domains`."),
        })
    }

    fn ask(&self, to: Destination) -> ApprovalFuture {
        let receiver = self.0.question(&to);
        Box::pin(async move {
            let mut receiver = receiver?;
            let answered = receiver.wait_for(Option::is_some).await;
            // The task is gone: the run has ended.
            let answered = answered.map_err(|_| stopping())?;
            answered.clone().unwrap_or_else(|| Err(stopping()))
        })
    }
}

fn not_asked(why: &str) -> NotApproved {
    NotApproved(format!("not asked: {why}"))
}

fn stopping() -> NotApproved {
    NotApproved("asked, and withdrawn".to_owned())
}
