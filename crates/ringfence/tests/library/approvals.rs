//! Approvals decided by a program that embeds Ringfence.

use super::place::{Scene, soon};
use ringfence::{
    ErrorCode, ExecuteRequest, Namespace,
    approval::{Answer, DeniedBy, HostRequest, Scope, ScopeChoice, Verdict},
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

fn host_request(domain: &str) -> HostRequest {
    HostRequest {
        namespace: Namespace::default_name(),
        session: None,
        domain: domain.to_owned(),
        reason: "to test".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_callback_decides_and_a_panicking_one_denies() {
    let scene = Scene::new("callback");
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let builder = scene.builder().on_approval(move |request| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            assert_ne!(request.what, "panic.example.com", "as a callback may");
            match request.what.as_str() {
                "yes.example.com" => Answer::Approve(ScopeChoice::Once),
                "hour.example.com" => Answer::Approve(ScopeChoice::Namespace(Some(Duration::from_secs(60)))),
                "session.example.com" => Answer::Approve(ScopeChoice::Session),
                _ => Answer::Deny,
            }
        }
    });
    let sandbox = builder.build().await.unwrap();
    let verdict = async |domain: &str| sandbox.request_egress(host_request(domain)).await.unwrap();
    assert_eq!(
        verdict("yes.example.com").await.verdict,
        Verdict::Approved(Scope::Once)
    );
    let hour = verdict("hour.example.com").await;
    assert_eq!(hour.verdict, Verdict::Approved(Scope::Namespace));
    assert!(hour.expires_unix_ms.is_some());
    // `session.example.com` is denied, because the request has no session.
    for domain in ["no.example.com", "panic.example.com", "session.example.com"] {
        let denied = verdict(domain).await;
        assert_eq!(denied.verdict, Verdict::Denied(DeniedBy::Human), "{domain}");
        assert_eq!(denied.decided_by, "library callback");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 5);
    let refused = sandbox.request_egress(host_request("*")).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidArgument);
    sandbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedding_program_decides_requests_and_a_dropped_request_is_withdrawn() {
    let scene = Scene::new("answers");
    let sandbox = scene
        .builder()
        .set("approvals.timeout_seconds", "30")
        .build()
        .await
        .unwrap();
    let waiting = tokio::spawn({
        let sandbox = sandbox.clone();
        async move {
            sandbox
                .request_egress(host_request("a.example.com"))
                .await
                .unwrap()
        }
    });
    let mut watch = sandbox.approvals().watch();
    let mut pending = watch.pending();
    while pending.is_empty() {
        assert!(watch.changed().await);
        pending = watch.pending();
    }
    let yes = Answer::Approve(ScopeChoice::Once);
    let mut other = pending[0].clone();
    other.what = "b.example.com".to_owned();
    let refused = sandbox.approvals().decide(&other, yes).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::PolicyDenied);
    sandbox.approvals().decide(&pending[0], yes).await.unwrap();
    assert!(waiting.await.unwrap().is_approved());
    let late = sandbox
        .approvals()
        .decide(&pending[0], Answer::Deny)
        .await
        .unwrap_err();
    assert_eq!(late.code, ErrorCode::Conflict);

    let gives_up = sandbox.request_egress(host_request("c.example.com"));
    assert!(
        tokio::time::timeout(Duration::from_millis(200), gives_up)
            .await
            .is_err()
    );
    assert!(soon(|| watch.pending().is_empty()).await);
    assert!(sandbox.approvals().pending().await.unwrap().is_empty());
    sandbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_callback_decides_a_connection_held_for_approval() {
    let scene = Scene::new("tries");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = asked.clone();
    let builder = scene
        .builder()
        .set("egress.on_denied", "ask")
        .set("egress.ask_seconds", "30")
        .on_approval(move |request| {
            kept.lock().unwrap().push((request.what, request.execution_id));
            async { Answer::Deny }
        });
    let sandbox = builder.build().await.unwrap();
    // A refused connection gets a TLS alert.
    let code = "import socket\nassert socket.create_connection(('new.example', 443), timeout=40).recv(1) != b'\\x15'";
    let done = sandbox.execute(ExecuteRequest::python(code)).await.unwrap();
    assert!(!done.success);
    assert_eq!(
        done.denials[0].what,
        "No network access to new.example:443; asked, and denied by library callback"
    );
    let expect = [("new.example:443".to_owned(), Some(done.execution_id))];
    assert_eq!(*asked.lock().unwrap(), expect);
    sandbox.shutdown().await;
}
