//! Requests, answers and the clock.

use super::{queue::Enqueued, state::End, *};
use crate::{
    caller::Caller,
    error::Result,
    events::{Bus, Hears},
    log_redactor::LogRedactor,
    record::Record,
    settings::OnFailure,
};
use ringfence_store::{
    Signer,
    audit::{Audit, Durability, Page, Query, Storage},
    vault::{Vault, VaultSettings},
};
use ringfence_types::ErrorCode;
use serde_json::Value;
use std::sync::Arc;

struct Scene {
    approvals: Arc<Approvals>,
    bus: Bus,
    record: Record,
}

fn scene_with(timeout: Duration) -> Scene {
    let signer = Signer::in_memory().unwrap();
    let audit = Audit::open(Storage::Memory, Durability::Process, signer, "test".to_owned()).unwrap();
    let record = Record::new(audit, OnFailure::Deny);
    let vault = Arc::new(Vault::open(VaultSettings::Memory).unwrap());
    let settings = ApprovalSettings {
        timeout,
        namespace_max: Duration::from_secs(3600),
    };
    let bus = Bus::new();
    let redactor = LogRedactor::new(&vault);
    let approvals = Arc::new(Approvals::new(settings, bus.clone(), record.clone(), redactor));
    Scene {
        approvals,
        bus,
        record,
    }
}

fn scene() -> Scene {
    scene_with(Duration::from_secs(120))
}

fn session() -> SessionId {
    "0190b8f0-5c1e-7000-8000-00000000abcd".parse().unwrap()
}

fn ask_for(domain: &str) -> Ask {
    Ask {
        subject: Subject::Egress(crate::egress_rule(domain).unwrap()),
        namespace: Namespace::default_name(),
        session: None,
        execution: None,
        caller: Caller::new("test"),
        reason: "to read the documentation".to_owned(),
        patience: None,
    }
}

fn person() -> Caller {
    Caller::new("a person")
}

const ONCE: Answer = Answer::Approve(ScopeChoice::Once);

impl Scene {
    async fn ask(&self, ask: Ask) -> Waiting {
        self.approvals.ask(ask).await.unwrap()
    }

    async fn answer(&self, waiting: &Waiting, answer: Answer) -> Result<Decision> {
        let request = waiting.request().unwrap();
        let digest = request.digest();
        self.approvals
            .decide(&request.id, &digest, answer, &person())
            .await
    }

    fn records(&self, action: &str) -> Vec<(String, Value)> {
        let Page { records, .. } = self.record.audit.query(&Query::default()).unwrap();
        let of_action = records.into_iter().filter(|record| record.action == action);
        of_action
            .map(|record| (record.outcome, serde_json::from_str(&record.details).unwrap()))
            .collect()
    }

    fn rules(&self, session: Option<&SessionId>) -> Vec<String> {
        let rules = self
            .approvals
            .store
            .rules_for(&Namespace::default_name(), session);
        rules.iter().map(ToString::to_string).collect()
    }

    fn once(&self, session: Option<&SessionId>) -> Vec<String> {
        let store = &self.approvals.store;
        let taken = store.take_once(&Namespace::default_name(), session);
        let rules = taken.rules();
        taken.use_up();
        rules.iter().map(ToString::to_string).collect()
    }
}

#[tokio::test]
async fn approval_reaches_the_waiter_and_leaves_a_rule_of_its_scope() {
    let scene = scene();
    let mut waiting = scene.ask(ask_for("api.example.com")).await;
    let answered = scene.answer(&waiting, ONCE).await.unwrap();
    assert_eq!(waiting.decided().await, answered);
    assert_eq!(
        (answered.scope(), answered.decided_by.as_str()),
        (Some(Scope::Once), "a person")
    );
    assert!(scene.rules(None).is_empty());
    let refused = scene.approvals.store.take_once(&Namespace::default_name(), None);
    assert!(scene.once(None).is_empty(), "another run has it");
    drop(refused);
    assert_eq!(
        scene.once(None),
        ["api.example.com"],
        "a run that did not start leaves it"
    );
    assert!(scene.once(None).is_empty(), "it is for one run only");

    let of_session = Ask {
        session: Some(session()),
        ..ask_for("b.example.com:8443")
    };
    let waiting = scene.ask(of_session).await;
    scene
        .answer(&waiting, Answer::Approve(ScopeChoice::Session))
        .await
        .unwrap();
    assert_eq!(scene.rules(Some(&session())), ["b.example.com:8443"]);
    assert!(scene.rules(None).is_empty());
    let once = Ask {
        session: Some(session()),
        ..ask_for("once.example.com")
    };
    let store = &scene.approvals.store;
    assert!(store.apply(&once, &answered));
    let refused = store.take_once(&Namespace::default_name(), Some(&session()));
    assert_eq!(refused.rules().len(), 1);
    let mut changes = scene.approvals.store.changes();
    changes.mark_unchanged();
    scene.approvals.forget_session(&session());
    assert!(changes.has_changed().unwrap() && scene.rules(Some(&session())).is_empty());
    drop(refused);
    assert!(scene.once(Some(&session())).is_empty(), "the session has ended");

    let waiting = scene.ask(ask_for("c.example.com")).await;
    let hour = Answer::Approve(ScopeChoice::Namespace(None));
    let answered = scene.answer(&waiting, hour).await.unwrap();
    assert!(answered.expires_unix_ms.is_some());
    assert_eq!(scene.rules(Some(&session())), ["c.example.com"]);
    let elsewhere = Namespace::try_from("other".to_owned()).unwrap();
    assert!(scene.approvals.store.rules_for(&elsewhere, None).is_empty());

    let decided = scene.records("approval.decided");
    assert_eq!(decided.len(), 3);
    assert_eq!(
        (decided[0].0.as_str(), &decided[0].1["scope"]),
        ("ok", &"once".into())
    );
    let requested = scene.records("approval.requested");
    assert_eq!(requested[0].1["what"], "api.example.com");
    assert_eq!(requested[0].1["digest"], decided[0].1["digest"]);
}

#[tokio::test]
async fn temporary_approval_ends_by_itself_and_notifies() {
    let scene = scene();
    let waiting = scene.ask(ask_for("a.example.com")).await;
    let short = Answer::Approve(ScopeChoice::Namespace(Some(Duration::from_millis(150))));
    scene.answer(&waiting, short).await.unwrap();
    let mut changes = scene.approvals.store.changes();
    changes.mark_unchanged();
    assert_eq!(scene.rules(None), ["a.example.com"]);
    tokio::time::timeout(Duration::from_secs(10), changes.changed())
        .await
        .unwrap()
        .unwrap();
    assert!(scene.rules(None).is_empty());
}

/// claim: [APR-3]
#[tokio::test]
async fn unanswered_request_is_denied_at_its_timeout() {
    let scene = scene_with(Duration::from_millis(100));
    let mut waiting = scene.ask(ask_for("a.example.com")).await;
    let decision = waiting.decided().await;
    assert_eq!(decision.verdict, Verdict::Denied(DeniedBy::Timeout));
    let late = scene.answer(&waiting, ONCE).await.unwrap_err();
    assert_eq!(late.code, ErrorCode::Conflict, "{late}");
    assert!(late.message.contains("its time was up"), "{late}");
    assert!(scene.rules(None).is_empty() && scene.once(None).is_empty());
    let decided = scene.records("approval.decided");
    assert_eq!(decided[0].0, "denied");
    assert_eq!(decided[0].1["why"], "timeout");
}

/// Waits until this Unix time, in which the runtime's clock stands still, as while a machine sleeps.
async fn wait_without_timers(until_unix_ms: u64) {
    // Tasks begin their waits before.
    tokio::task::yield_now().await;
    tokio::time::pause();
    while crate::events::now_ms() < until_unix_ms {
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn approval_ends_at_its_time_even_if_the_machine_slept() {
    let scene = scene();
    let waiting = scene.ask(ask_for("a.example.com")).await;
    let short = Answer::Approve(ScopeChoice::Namespace(Some(Duration::from_millis(300))));
    let decision = scene.answer(&waiting, short).await.unwrap();
    wait_without_timers(decision.expires_unix_ms.unwrap()).await;
    assert!(scene.rules(None).is_empty());
}

#[tokio::test]
async fn end_is_reached_by_either_clock() {
    let (now, now_unix_ms) = (tokio::time::Instant::now(), crate::events::now_ms());
    let hour = Duration::from_secs(3600);
    for end in [
        End(now + hour, now_unix_ms + 20),
        End(now + Duration::from_millis(20), now_unix_ms + 3_600_000),
    ] {
        tokio::time::timeout(Duration::from_secs(20), end.reached())
            .await
            .unwrap();
    }
    assert!(End(now + hour, now_unix_ms + 60_000).left() <= Duration::from_secs(60));
    assert!(End(now + hour, now_unix_ms + 7_200_000).left() <= hour);
    // Unix time is read again before the timer ends: time may pass without it.
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    let mut waiting = std::pin::pin!(End(started + hour, now_unix_ms + 7_200_000).reached());
    let mut wakes = 0;
    std::future::poll_fn(|context| {
        wakes += 1;
        waiting.as_mut().poll(context)
    })
    .await;
    assert!(wakes > 700, "{wakes}");
}

/// claim: [APR-3]
#[tokio::test]
async fn answer_after_the_shown_time_counts_for_nothing_even_if_the_machine_slept() {
    let scene = scene_with(Duration::from_secs(2));
    let mut waiting = scene.ask(ask_for("a.example.com")).await;
    wait_without_timers(waiting.request().unwrap().expires_unix_ms).await;
    let late = scene.answer(&waiting, ONCE).await.unwrap_err();
    assert!(late.message.contains("its time was up"), "{late}");
    assert_eq!(late.code, ErrorCode::Conflict);
    assert!(scene.once(None).is_empty());
    // The timer has as long again: it is denied before that.
    tokio::time::resume();
    let decided = tokio::time::timeout(Duration::from_secs(1), waiting.decided()).await;
    assert_eq!(decided.unwrap().verdict, Verdict::Denied(DeniedBy::Timeout));
}

#[tokio::test]
async fn request_of_a_run_has_its_own_timeout_within_the_operators() {
    let scene = scene_with(Duration::from_secs(2));
    let of_a_run = |seconds: u64| Ask {
        execution: Some("0190b8f0-5c1e-7000-8000-000000000001".to_owned()),
        reason: String::new(),
        patience: Some(Duration::from_secs(seconds)),
        ..ask_for(&format!("h{seconds}.example.com:443"))
    };
    let last_line = |waiting: &Waiting| waiting.request().unwrap().lines.last().unwrap().clone();
    let long = scene.ask(of_a_run(60)).await;
    assert_eq!(last_line(&long), "Without an answer it is denied after 2 s.");
    let mut short = scene.ask(of_a_run(1)).await;
    assert_eq!(last_line(&short), "Without an answer it is denied after 1 s.");
    let request = short.request().unwrap().clone();
    assert!(request.expires_unix_ms - request.since_unix_ms == 1000);
    assert!(request.lines[0].contains("tries to reach") && !request.lines.join("").contains("reason"));
    let decision = short.decided().await;
    assert_eq!(decision.verdict, Verdict::Denied(DeniedBy::Timeout));
    assert!(long.decision().is_none(), "the other still waits");
    // The short request was not answered: the next connection is denied at once, but a model may ask again.
    let again = scene.ask(of_a_run(1)).await.decision().unwrap();
    assert_eq!(again.verdict, Verdict::Denied(DeniedBy::Lately));
    let of_a_model = scene.ask(ask_for("h1.example.com:443")).await;
    assert!(of_a_model.decision().is_none() && of_a_model.request().is_some());
    // A waiting run uses its approval itself; nothing is left for another.
    scene.answer(&long, ONCE).await.unwrap();
    assert!(scene.rules(None).is_empty() && scene.once(None).is_empty());
}

/// claim: [APR-2]
#[tokio::test]
async fn answer_with_a_wrong_digest_is_refused_and_decides_nothing() {
    let scene = scene();
    let waiting = scene.ask(ask_for("good.example.com")).await;
    let other = scene.ask(ask_for("evil.example.com")).await;
    let (request, other) = (waiting.request().unwrap(), other.request().unwrap());
    let mut changed = request.clone();
    changed.what = "evil.example.com".to_owned();
    let mut reworded = request.clone();
    reworded.reason = "another".to_owned();
    let mut relined = request.clone();
    relined.lines[1] = "  host: evil.example.com".to_owned();
    for digest in [
        other.digest(),
        changed.digest(),
        reworded.digest(),
        relined.digest(),
        String::new(),
    ] {
        assert_ne!(digest, request.digest());
        let refused = scene
            .approvals
            .decide(&request.id, &digest, ONCE, &person())
            .await;
        assert_eq!(refused.unwrap_err().code, ErrorCode::PolicyDenied);
    }
    assert!(waiting.decision().is_none() && scene.once(None).is_empty());
    let unknown = scene
        .approvals
        .decide("00000000", &request.digest(), ONCE, &person())
        .await;
    assert_eq!(unknown.unwrap_err().code, ErrorCode::NotFound);
    assert!(scene.answer(&waiting, ONCE).await.is_ok());
}

/// claim: [APR-4]
#[tokio::test]
async fn first_of_two_simultaneous_answers_counts_and_the_second_gets_a_conflict() {
    let scene = scene();
    let mut waiting = scene.ask(ask_for("a.example.com")).await;
    let (yes, no) = tokio::join!(scene.answer(&waiting, ONCE), scene.answer(&waiting, Answer::Deny));
    let (counted, refused) = match (yes, no) {
        (Ok(counted), Err(refused)) | (Err(refused), Ok(counted)) => (counted, refused),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused.code, ErrorCode::Conflict, "{refused}");
    assert_eq!(waiting.decided().await, counted);
    assert_eq!(scene.records("approval.decided").len(), 1);
    let third = scene.answer(&waiting, ONCE).await.unwrap_err();
    assert!(third.message.contains("decided already"), "{third}");
}

#[tokio::test]
async fn equal_requests_share_one_question_and_its_answer() {
    let scene = scene();
    let mut first = scene.ask(ask_for("a.example.com")).await;
    let reworded = Ask {
        reason: "other words".to_owned(),
        ..ask_for("A.example.com")
    };
    let mut second = scene.ask(reworded).await;
    assert!(first.is_first() && !second.is_first());
    assert_eq!(first.request(), second.request());
    let elsewhere = Ask {
        namespace: Namespace::try_from("other".to_owned()).unwrap(),
        ..ask_for("a.example.com")
    };
    let third = scene.ask(elsewhere).await;
    let of_session = Ask {
        session: Some(session()),
        ..ask_for("a.example.com")
    };
    let fourth = scene.ask(of_session).await;
    assert!(third.is_first() && fourth.is_first());
    assert_eq!(scene.approvals.pending().len(), 3);
    scene.answer(&first, ONCE).await.unwrap();
    assert_eq!(first.decided().await, second.decided().await);
    assert!(third.decision().is_none());
}

#[tokio::test]
async fn approved_or_recently_denied_requests_are_not_asked_again() {
    let scene = scene();
    let waiting = scene.ask(ask_for("a.example.com")).await;
    let hour = Answer::Approve(ScopeChoice::Namespace(None));
    scene.answer(&waiting, hour).await.unwrap();
    let again = scene.ask(ask_for("a.example.com:443")).await;
    assert!(again.request().is_none() && again.decision().unwrap().is_approved());

    let waiting = scene.ask(ask_for("b.example.com")).await;
    scene.answer(&waiting, Answer::Deny).await.unwrap();
    let again = scene.ask(ask_for("b.example.com")).await;
    let lately = again.decision().unwrap();
    assert_eq!(lately.verdict, Verdict::Denied(DeniedBy::Lately));
    assert!(lately.decided_by.contains("a moment ago"));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    assert!(scene.ask(ask_for("b.example.com")).await.decision().is_none());
}

/// claim: [APR-5]
#[tokio::test]
async fn number_of_approval_requests_is_bounded() {
    let scene = scene();
    let mut waiting = Vec::new();
    for number in 0..8 {
        waiting.push(scene.ask(ask_for(&format!("h{number}.example.com"))).await);
    }
    let refused = scene
        .approvals
        .ask(ask_for("more.example.com"))
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::Busy, "{refused}");
    waiting.clear();
    assert!(scene.approvals.pending().is_empty());
    for number in 8..10 {
        drop(scene.ask(ask_for(&format!("h{number}.example.com"))).await);
    }
    let refused = scene
        .approvals
        .ask(ask_for("more.example.com"))
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::Busy, "{refused}");
    assert!(
        refused.retry_after_ms.is_some_and(|ms| ms <= 60_000),
        "{refused:?}"
    );
    let elsewhere = Ask {
        namespace: Namespace::try_from("other".to_owned()).unwrap(),
        ..ask_for("more.example.com")
    };
    assert!(scene.approvals.ask(elsewhere).await.is_ok());
    for number in 0..100 {
        let of_many = Ask {
            namespace: Namespace::try_from(format!("n{number}")).unwrap(),
            ..ask_for("x.example.com")
        };
        drop(scene.approvals.ask(of_many).await);
    }
    let one_more = Ask {
        namespace: Namespace::try_from("one-more".to_owned()).unwrap(),
        ..ask_for("x.example.com")
    };
    assert_eq!(
        scene.approvals.ask(one_more).await.unwrap_err().code,
        ErrorCode::Busy
    );
    let denied = scene.records("approval.requested");
    assert!(
        denied
            .iter()
            .any(|(outcome, details)| outcome == "denied" && details["code"] == "busy")
    );
}

#[tokio::test]
async fn request_without_waiters_is_withdrawn_and_one_with_a_waiter_stays() {
    let scene = scene();
    let mut events = scene.bus.subscribe(Hears::AllButOutput);
    let first = scene.ask(ask_for("a.example.com")).await;
    let mut second = scene.ask(ask_for("a.example.com")).await;
    drop(first);
    assert!(second.decision().is_none());
    assert_eq!(scene.approvals.pending().len(), 1);
    scene.answer(&second, ONCE).await.unwrap();
    assert!(second.decided().await.is_approved());

    let alone = scene.ask(ask_for("b.example.com")).await;
    let request = alone.request().unwrap().clone();
    drop(alone);
    assert!(scene.approvals.pending().is_empty());
    let late = scene
        .approvals
        .decide(&request.id, &request.digest(), ONCE, &person())
        .await;
    assert_eq!(late.unwrap_err().code, ErrorCode::Conflict);
    // No person denied it, so it may be asked again.
    assert!(scene.ask(ask_for("b.example.com")).await.decision().is_none());
    let mut names = Vec::new();
    for _ in 0..6 {
        names.push(events.next().await.unwrap().kind.name());
    }
    assert_eq!(
        names,
        [
            "approval.requested",
            "egress.requested",
            "approval.decided",
            "egress.approved",
            "approval.requested",
            "egress.requested"
        ]
    );
}

#[tokio::test]
async fn request_is_opened_by_its_first_caller_if_that_is_there() {
    let scene = scene();
    let Enqueued::New(first, question) = scene.approvals.enqueue(&ask_for("a.example.com")) else {
        panic!("it is the first request");
    };
    let mut second = std::pin::pin!(scene.ask(ask_for("a.example.com")));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(second.as_mut().poll(&mut context).is_pending());
    let first = scene.approvals.open(first, &question);
    let second = second.await;
    assert!(first.is_first() && !second.is_first());
}

/// Shares a request with a caller that is lost before the request is on record. Returns the other waiter.
async fn waiter_whose_opener_is_lost(scene: &Scene) -> Waiting {
    let Enqueued::New(opener, _) = scene.approvals.enqueue(&ask_for("a.example.com")) else {
        panic!("it is the first request");
    };
    let other = scene.ask(ask_for("a.example.com"));
    let other = tokio::time::timeout(Duration::from_secs(20), other);
    let (waiting, ()) = tokio::join!(other, async { drop(opener) });
    waiting.unwrap()
}

#[tokio::test]
async fn request_stays_open_for_a_waiter_if_its_first_caller_is_lost() {
    let scene = scene();
    let mut waiting = waiter_whose_opener_is_lost(&scene).await;
    assert!(waiting.is_first(), "its owner has a person asked");
    assert_eq!(scene.approvals.pending().len(), 1);
    let (_, details) = &scene.records("approval.requested")[0];
    assert_eq!(details["joined"], waiting.request().unwrap().id);
    assert_eq!(details["reason"], "to read the documentation");
    let answered = scene.answer(&waiting, ONCE).await.unwrap();
    assert_eq!(waiting.decided().await, answered);

    let scene = scene_with(Duration::from_millis(1));
    let mut waiting = waiter_whose_opener_is_lost(&scene).await;
    let decided = tokio::time::timeout(Duration::from_secs(20), waiting.decided()).await;
    assert_eq!(decided.unwrap().verdict, Verdict::Denied(DeniedBy::Timeout));
}

#[tokio::test]
async fn approval_of_a_waiting_run_leaves_no_rule_behind() {
    let scene = scene();
    let held = Ask {
        execution: Some("0190b8f0-5c1e-7000-8000-000000000001".to_owned()),
        ..ask_for("a.example.com")
    };
    let waiting = scene.ask(held).await;
    assert!(
        waiting
            .request()
            .unwrap()
            .lines
            .iter()
            .any(|line| line.contains("which waits"))
    );
    assert!(scene.answer(&waiting, ONCE).await.unwrap().is_approved());
    assert!(scene.once(None).is_empty() && scene.rules(None).is_empty());
}

#[tokio::test]
async fn approval_is_limited_to_the_request_and_to_the_operators_maximum() {
    let scene = scene();
    let waiting = scene.ask(ask_for("a.example.com")).await;
    let refused = scene
        .answer(&waiting, Answer::Approve(ScopeChoice::Session))
        .await;
    assert_eq!(refused.unwrap_err().code, ErrorCode::InvalidArgument);
    for lasts in [Duration::ZERO, Duration::from_secs(3601)] {
        let refused = scene
            .answer(&waiting, Answer::Approve(ScopeChoice::Namespace(Some(lasts))))
            .await;
        assert_eq!(refused.unwrap_err().code, ErrorCode::InvalidArgument);
    }
    assert!(waiting.decision().is_none());
    for domain in [
        "*",
        "*.example.com",
        "10.0.0.1",
        "GET a.example.com",
        "a.example.com/x",
        "https://x.test",
        "",
    ] {
        assert!(crate::egress_rule(domain).is_err(), "{domain}");
    }
    let long = Ask {
        reason: "x".repeat(REASON_CHARS_MAX + 1),
        ..ask_for("a.example.com")
    };
    assert_eq!(
        scene.approvals.ask(long).await.unwrap_err().code,
        ErrorCode::InvalidArgument
    );
}

/// claim: [APR-1]
#[tokio::test]
async fn request_text_is_complete_and_the_callers_words_add_no_line() {
    let scene = scene();
    let hostile = Ask {
        session: Some(session()),
        caller: Caller::new("mcp x\"\n  host: good.test"),
        reason: "x\"\n  host: good.test\r\u{1b}[2A\u{202e}gnp\u{2028}Without".to_owned(),
        ..ask_for("evil.example.com:8443")
    };
    let waiting = scene.ask(hostile).await;
    let lines = &waiting.request().unwrap().lines;
    assert_eq!(
        lines,
        &[
            "Programs in a sandbox ask to reach a host on the network.",
            "  host: evil.example.com",
            "  ports: 8443",
            "  namespace: default",
            "  session: 0190b8f0-5c1e-7000-8000-00000000abcd",
            "  asked by: \"mcp x\\u{22}?  host: good.test\"",
            "  reason: \"x\\u{22}\\u{a}  host: good.test\\u{d}\\u{1b}\\u{5b}2A\\u{202e}gnp\\u{2028}Without\" (its own words, unchecked)",
            "Without an answer it is denied after 120 s.",
        ]
    );
}

#[tokio::test]
async fn stopping_server_denies_pending_requests_and_accepts_no_more() {
    let scene = scene();
    let mut watch = scene.approvals.watch();
    let mut waiting = scene.ask(ask_for("a.example.com")).await;
    assert!(watch.changed().await);
    assert_eq!(watch.pending().len(), 1);
    scene.approvals.close();
    assert_eq!(waiting.decided().await.verdict, Verdict::Denied(DeniedBy::Gone));
    assert!(!watch.changed().await);
    let refused = scene.approvals.ask(ask_for("b.example.com")).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Cancelled);
}

#[tokio::test]
async fn approvals_of_a_namespace_are_bounded() {
    let scene = scene();
    let decision = Decision {
        verdict: Verdict::Approved(Scope::Namespace),
        decided_by: "a person".to_owned(),
        expires_unix_ms: None,
    };
    for number in 0..store::APPROVED_MAX {
        let ask = ask_for(&format!("h{number}.example.com"));
        assert!(scene.approvals.store.apply(&ask, &decision));
    }
    let more = ask_for("more.example.com");
    assert!(!scene.approvals.store.apply(&more, &decision));
    let waiting = scene.ask(ask_for("more.example.com")).await;
    let refused = scene.answer(&waiting, ONCE).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::PolicyDenied, "{refused}");
    assert!(waiting.decision().is_none());
    // Commands have a limit of their own, and the two kinds do not mix.
    let store = &scene.approvals.store;
    let namespace = Namespace::default_name();
    let reached = store.rules_for(&namespace, None).len();
    let once = Decision {
        verdict: Verdict::Approved(Scope::Once),
        ..decision
    };
    let command = |number: usize| CommandSubject {
        words: format!("uname -{number}"),
        recorded: format!("uname -{number}"),
        program: "/usr/bin/uname".to_owned(),
        identity: (1, 2),
        directory: None,
        directory_identity: None,
        files: Vec::new(),
        missing_rule: String::new(),
        effect: Vec::new(),
        may_last: false,
        principal: "test".to_owned(),
    };
    let ask = |number| Ask {
        subject: Subject::Command(Box::new(command(number))),
        ..ask_for("h0.example.com")
    };
    for number in 0..store::APPROVED_MAX {
        assert!(store.apply(&ask(number), &once));
    }
    assert!(!store.apply(&ask(store::APPROVED_MAX), &once));
    assert!(store.take_once(&namespace, None).rules().is_empty());
    assert_eq!(store.rules_for(&namespace, None).len(), reached);
    assert!(store.take_command(&namespace, &command(7)).is_some());
    assert!(
        store.take_command(&namespace, &command(7)).is_none(),
        "it was for one run only"
    );
}
