//! Asks a person about what a program tries and no rule allows, while its connection waits. A question belongs to one
//! run, or to one call of a session, and ends with it; between its calls a session asks no person.

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

/// A run, or a call, asks about so many different hosts and ports: each once, whatever the answer.
const QUESTIONS_MAX: usize = 8;
/// Questions that wait for an answer at once: half of what a namespace may have, so that one sandbox does not take all.
const OPEN_MAX: usize = 4;

pub(super) struct ApprovalScope {
    egress: Weak<Egress>,
    terms: Arc<LeasePolicy>,
    redactor: EgressRedactor,
    round: Mutex<Option<OpenQuestions>>,
}

type Answered = Result<(), NotApproved>;

/// The questions of the run, or the call, that goes on.
struct OpenQuestions {
    by: Requester,
    patience: Duration,
    questions: HashMap<Destination, watch::Receiver<Option<Answered>>>,
    /// Those that wait. Dropped, they are withdrawn.
    waiting: JoinSet<()>,
}

impl ApprovalScope {
    pub(super) fn new(egress: &Arc<Egress>, terms: &Arc<LeasePolicy>, redactor: EgressRedactor) -> Arc<Self> {
        Arc::new(Self {
            egress: Arc::downgrade(egress),
            terms: terms.clone(),
            redactor,
            round: Mutex::new(None),
        })
    }

    pub(super) fn begin(&self, by: Requester, patience: Duration) {
        *lock(&self.round) = Some(OpenQuestions {
            by,
            patience,
            questions: HashMap::new(),
            waiting: JoinSet::new(),
        });
    }

    /// What waits is withdrawn, and nothing is approved any more.
    pub(super) fn end(&self) {
        drop(lock(&self.round).take());
    }

    /// The answer to this question, which is put once.
    fn question(
        self: &Arc<Self>,
        to: &Destination,
    ) -> Result<watch::Receiver<Option<Answered>>, NotApproved> {
        let mut round = lock(&self.round);
        let Some(round) = &mut *round else {
            return Err(not_asked("no call of the session goes on"));
        };
        if let Some(known) = round.questions.get(to) {
            return Ok(known.clone());
        }
        if self.redactor.hides(&to.host.to_string()) {
            return Err(not_asked("the name holds a secret"));
        }
        if round.questions.len() >= QUESTIONS_MAX {
            let why = format!("this run has asked {QUESTIONS_MAX} times already");
            return Err(not_asked(&why));
        }
        while round.waiting.try_join_next().is_some() {}
        if round.waiting.len() >= OPEN_MAX {
            let why = format!("{OPEN_MAX} questions of this run wait already");
            return Err(not_asked(&why));
        }
        let rule: Rule = to.to_string().parse().map_err(|_| not_asked("it is no host"))?;
        let (tell, told) = watch::channel(None);
        let (asking, by, patience) = (self.clone(), round.by.clone(), round.patience);
        round.waiting.spawn(async move {
            let answered = asking.put(by, rule, patience).await;
            tell.send_replace(Some(answered));
        });
        round.questions.insert(to.clone(), told.clone());
        Ok(told)
    }

    /// Asks a person, and gives the answer its effect.
    async fn put(&self, by: Requester, rule: Rule, patience: Duration) -> Answered {
        let ask = Ask {
            subject: Subject::Egress(rule.clone()),
            namespace: self.terms.namespace.clone(),
            session: self.terms.session.clone(),
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
                "the program waits for somebody to allow {rule}: `ringfence approvals approve {}` (within {} s)\n",
                request.id,
                patience.as_secs()
            );
            // A client that is too slow to read of it is not waited for.
            drop(output.try_send(OutputChunk::notice(&text)));
        }
        let decision = waiting.decided().await;
        let egress = self.egress.upgrade().ok_or_else(stopping)?;
        match decision.verdict {
            approval::Verdict::Approved(Scope::Once) => self.give(by.execution_id.as_deref(), rule)?,
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

    /// The run has it, if that still goes on.
    fn give(&self, execution: Option<&str>, rule: Rule) -> Answered {
        let round = lock(&self.round);
        let is_other = |round: &OpenQuestions| round.by.execution_id.as_deref() != execution;
        if round.as_ref().is_none_or(is_other) {
            return Err(NotApproved("approved, too late".to_owned()));
        }
        lock(&self.terms.own).once.push(rule);
        Ok(())
    }
}

/// While it is held, a person may be asked.
pub(super) struct Open(pub(super) Arc<ApprovalScope>);

impl Deref for Open {
    type Target = ApprovalScope;
    fn deref(&self) -> &ApprovalScope {
        &self.0
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.end();
    }
}

pub(super) struct AskHook(pub(super) Arc<ApprovalScope>);

impl ApprovalHook for AskHook {
    fn are_open(&self) -> bool {
        let Some(egress) = self.0.egress.upgrade() else {
            return false;
        };
        let policy = egress.policy.current();
        lock(&self.0.round).is_some() && matches!(self.0.terms.source.of(&policy).on_denied, OnDenied::Ask(_))
    }

    fn hint(&self, to: &Destination) -> Option<String> {
        let name = to.host.name();
        if self.0.terms.source == RuleSource::Web {
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
        let terms = &self.0.terms;
        let is_narrowed = matches!(terms.asked, AllowedDomains::Only(_)) || lock(&terms.own).named.is_some();
        let host = to.to_string();
        let host = match to.port {
            80 | 443 => name.as_str(),
            _ => &host,
        };
        let given = || egress.granted(RuleSource::Programs, &terms.namespace, terms.session.as_ref());
        is_narrowed.then(|| match given().verdict(name, to.port) {
            Verdict::Denied(_) => {
                format!("Call `request_egress {{domain: \"{host}\"}}`, then add it to `allowed_domains`.")
            }
            _ => format!("Add `{host}` to `allowed_domains`."),
        })
    }

    fn ask(&self, to: Destination) -> ApprovalFuture {
        let told = self.0.question(&to);
        Box::pin(async move {
            let mut told = told?;
            let answered = told.wait_for(Option::is_some).await;
            // Its task is gone: the run has ended.
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
