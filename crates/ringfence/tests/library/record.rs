//! Events, secrets, artifacts and the audit record, and the separation of namespaces.

use super::place::Scene;
use ringfence::{
    ErrorCode, EventKind, ExecuteRequest, Hears, LimitsRequest, Namespace, artifact,
    audit::{Actions, Query},
};
use std::time::Duration;

const SECRET: &str = "correct-horse-battery-staple";

fn of(namespace: &Namespace, mut request: ExecuteRequest) -> ExecuteRequest {
    request.namespace = namespace.clone();
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn events_arrive_in_order_and_end_with_the_sandbox() {
    let (_scene, sandbox) = Scene::with_sandbox("events").await;
    let mut events = sandbox.events(Hears::Everything);
    let result = sandbox.execute(ExecuteRequest::shell("echo out")).await.unwrap();
    drop(sandbox);
    let mut names = Vec::new();
    let until_the_end = async {
        while let Some(event) = events.next().await {
            assert_eq!(event.execution_id.as_ref(), Some(&result.execution_id));
            if let EventKind::ExecutionOutput { text, .. } = &event.kind {
                assert_eq!(text, "out\n");
            }
            names.push(event.kind.name());
        }
    };
    tokio::time::timeout(Duration::from_secs(10), until_the_end)
        .await
        .unwrap();
    assert_eq!(
        names,
        ["execution.started", "execution.output", "execution.completed"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_usable_and_redacted_in_the_result() {
    let (_scene, sandbox) = Scene::with_sandbox("secret").await;
    let namespace = Namespace::default_name();
    let secrets = sandbox.secrets(&namespace);
    assert!(!secrets.put("KEY", SECRET.to_owned(), None).await.unwrap());
    assert!(secrets.put("KEY", SECRET.to_owned(), None).await.unwrap());
    let code = "import os\nk = os.environ['KEY']\nopen('k', 'w').write(k)\nprint(len(k), k)\nk[::-1]";
    let mut request = ExecuteRequest::python(code);
    request.secrets.insert("KEY".parse().unwrap());
    let result = sandbox.execute(request.clone()).await.unwrap();
    assert_eq!(result.stdout, format!("{} ***REDACTED***\n", SECRET.len()));
    let everything = serde_json::to_string(&result).unwrap();
    let reversed: String = SECRET.chars().rev().collect();
    assert!(
        !everything.contains(SECRET) && !everything.contains(&reversed),
        "{everything}"
    );

    for bad in ["", "a\0b"] {
        let error = secrets.put("KEY", bad.to_owned(), None).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArgument);
    }
    assert_eq!(
        secrets.put("no name", "x".into(), None).await.unwrap_err().code,
        ErrorCode::InvalidArgument
    );
    assert!(secrets.delete("KEY").await.unwrap() && !secrets.delete("KEY").await.unwrap());
    assert_eq!(
        sandbox.execute(request).await.unwrap_err().code,
        ErrorCode::SecretUnavailable
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_has_no_artifact_secret_or_limit_of_another() {
    let (_scene, sandbox) = Scene::with_sandbox("namespaces").await;
    let (blue, red): (Namespace, Namespace) = ("blue".parse().unwrap(), "red".parse().unwrap());
    sandbox
        .secrets(&blue)
        .put("KEY", SECRET.to_owned(), None)
        .await
        .unwrap();
    let code = "echo ours > file";
    let result = sandbox
        .execute(of(&blue, ExecuteRequest::shell(code)))
        .await
        .unwrap();

    let own = sandbox.artifacts(&blue, &result.execution_id);
    let manifest = own.manifest().await.unwrap();
    artifact::verify_manifest(&manifest, Some(&sandbox.public_key())).unwrap();
    let content = own.read("file").await.unwrap();
    assert_eq!(content, b"ours\n");
    artifact::verify(
        &result.artifacts[0],
        &result.execution_id,
        &*content,
        &sandbox.public_key(),
    )
    .unwrap();

    let theirs = sandbox.artifacts(&red, &result.execution_id);
    assert_eq!(theirs.manifest().await.unwrap_err().code, ErrorCode::NotFound);
    assert_eq!(theirs.read("file").await.unwrap_err().code, ErrorCode::NotFound);
    assert!(sandbox.secrets(&red).list().await.unwrap().is_empty());
    let mut request = of(&red, ExecuteRequest::shell("env"));
    request.secrets.insert("KEY".parse().unwrap());
    assert_eq!(
        sandbox.execute(request).await.unwrap_err().code,
        ErrorCode::SecretUnavailable
    );

    let less = LimitsRequest {
        max_processes: Some(8),
        ..LimitsRequest::default()
    };
    let before = sandbox.limits(&blue);
    sandbox.narrow_limits(&red, &less).await.unwrap();
    assert_eq!(
        (sandbox.limits(&red).1.processes, sandbox.limits(&blue)),
        (8, before)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_and_the_counts_have_every_run_and_the_record_names_its_caller() {
    let scene = Scene::new("record");
    let sandbox = scene.builder().caller("billing\nserver").build().await.unwrap();
    let good = sandbox.execute(ExecuteRequest::shell("true")).await.unwrap();
    let bad = sandbox.execute(ExecuteRequest::shell("exit 3")).await.unwrap();
    let query = Query {
        actions: Some("execution.".parse::<Actions>().unwrap()),
        ..Query::default()
    };
    let page = sandbox.audit(query.clone()).await.unwrap();
    let actions: Vec<_> = page
        .records
        .iter()
        .map(|record| (record.action.as_str(), record.execution_id.clone().unwrap()))
        .collect();
    let expect = [
        ("execution.started", good.execution_id.clone()),
        ("execution.completed", good.execution_id),
        ("execution.started", bad.execution_id.clone()),
        ("execution.failed", bad.execution_id),
    ];
    assert_eq!(actions, expect);
    assert!(
        page.records
            .iter()
            .all(|record| record.caller == "billing?server")
    );
    let counted: u64 = sandbox.counts().executions["shell"].values().sum();
    assert_eq!(counted, 2);
    assert_eq!(sandbox.stats().queue.running, 0);

    // The next sandbox on this directory continues the record.
    sandbox.shutdown().await;
    let next = scene.sandbox().await;
    assert_eq!(next.audit(query).await.unwrap().records.len(), 4);
}

/// Many more concurrent calls than the queue of the record's writer holds: each is answered, and each started one has
/// one end.
///
/// claim: [REC-6]
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_concurrent_calls_are_answered_and_every_started_one_has_an_end() {
    const CALLS: usize = 12_000;
    let scene = Scene::new("flood");
    let sandbox = scene.builder().concurrency(2).waiting(8).build().await.unwrap();
    let run = |namespace: &str| {
        let (sandbox, mut request) = (sandbox.clone(), ExecuteRequest::shell("true"));
        request.namespace = Namespace::try_from(namespace.to_owned()).unwrap();
        tokio::spawn(async move { sandbox.execute(request).await })
    };
    let calls: Vec<_> = (0..CALLS).map(|_| run("flood")).collect();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap());
    }
    let mut done: u64 = 0;
    for answer in answers {
        match answer {
            Ok(result) => done += u64::from(result.success),
            Err(error) => {
                assert_eq!(error.code, ErrorCode::Busy, "{error:?}");
                assert!(error.retry_after_ms.is_some(), "{error:?}");
            }
        }
    }
    assert!(done > 0);
    // The flood does not affect another namespace.
    assert!(run("quiet").await.unwrap().unwrap().success);
    // The record counts the refusals that it does not list.
    sandbox.shutdown().await;
    let next = scene.sandbox().await;
    let (mut begun, mut ended, mut refused, mut counted) = (0, 0, 0, 0);
    let mut query = Some(Query {
        limit: 10_000,
        ..Query::default()
    });
    while let Some(current) = query {
        let page = next.audit(current).await.unwrap();
        for record in page.records {
            let details: serde_json::Value = serde_json::from_str(&record.details).unwrap();
            counted += details["refusals_counted"].as_u64().unwrap_or(0);
            match record.action.as_str() {
                "execution.started" => begun += 1,
                "execution.refused" => refused += 1,
                action if action.starts_with("execution.") => ended += 1,
                _ => {}
            }
        }
        query = page.next;
    }
    assert_eq!((begun, ended), (done + 1, done + 1));
    assert!(refused <= 1000, "{refused}");
    // Calls that find the queue full are refused before there is anything to record.
    assert!(refused + counted + done <= CALLS as u64);
    assert!(counted > 0);
}
