//! State between programs: sessions, workspaces and snapshots, which other namespaces cannot see.

use super::place::{Scene, soon};
use ringfence::{
    Base, BridgedValue, ErrorCode, ExecuteRequest, Language, Namespace, RequestError, Sandbox, Session,
    SessionRequest, WorkspacePath, WorkspaceSource, requirements,
};
use std::time::Duration;

async fn run(sandbox: &Sandbox, session: &Session, code: &str) -> Result<String, RequestError> {
    let mut request = ExecuteRequest::new(session.language, code);
    request.session = Some(session.session_id.clone());
    Ok(sandbox.execute(request).await?.stdout)
}

fn at(path: &str) -> WorkspacePath {
    path.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_gets_all_output() {
    let (_scene, sandbox) = Scene::with_sandbox("slow").await;
    let request = SessionRequest::new(Language::Python);
    let python = sandbox.create_session(request).await.unwrap();
    for _ in 0..5 {
        let code =
            "import sys\nfor n in range(2000):\n    sys.stdout.write('x' * 999 + '\\n'); sys.stdout.flush()";
        let mut request = ExecuteRequest::new(python.language, code);
        request.session = Some(python.session_id.clone());
        let mut execution = sandbox.start(request);
        let mut bytes = 0;
        while let Some(chunk) = execution.next_output().await {
            bytes += chunk.bytes.len();
            tokio::time::sleep(Duration::from_millis(2)).await; // a slow reader
        }
        assert_eq!(bytes, 2_000_000);
        assert!(execution.finish().await.unwrap().success);
    }
    sandbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_keeps_its_state_and_can_be_interrupted_and_terminated() {
    let (scene, sandbox) = Scene::with_sandbox("session").await;
    let namespace = Namespace::default_name();
    let request = SessionRequest::new(Language::Python);
    let python = sandbox.create_session(request).await.unwrap();
    let id = &python.session_id;
    run(&sandbox, &python, "x = 41").await.unwrap();
    let sessions = sandbox.sessions(&namespace);
    assert!(!sessions.interrupt(id).await.unwrap(), "nothing runs");
    let endless = tokio::spawn({
        let (sandbox, python) = (sandbox.clone(), python.clone());
        async move { run(&sandbox, &python, "while True: pass").await }
    });
    let interrupted = tokio::time::timeout(Duration::from_secs(10), async {
        while !sessions.interrupt(id).await.unwrap() {
            tokio::task::yield_now().await;
        }
        endless.await.unwrap()
    });
    interrupted.await.unwrap().unwrap();
    assert_eq!(run(&sandbox, &python, "print(x + 1)").await.unwrap(), "42\n");

    let shell = sandbox
        .create_session(SessionRequest::new(Language::Shell))
        .await
        .unwrap();
    let value = BridgedValue::Value(serde_json::json!("from outside"));
    let given = sessions.bridge(value, &shell.session_id, Some("word".parse().unwrap()));
    assert_eq!(given.await.unwrap().name.as_str(), "word");
    assert_eq!(
        run(&sandbox, &shell, "echo $word").await.unwrap(),
        "from outside\n"
    );

    let other: Namespace = "other".parse().unwrap();
    let absent = sandbox.sessions(&other).terminate(id).await.unwrap_err();
    assert_eq!(absent.code, ErrorCode::NotFound);
    assert_eq!(sessions.list().await.unwrap().len(), 2);
    assert!(sessions.terminate(id).await.unwrap());
    assert!(!sessions.terminate(id).await.unwrap(), "it had ended before");
    let ended = run(&sandbox, &python, "x").await.unwrap_err();
    assert_eq!(ended.code, ErrorCode::SessionEnded);
    // The other session ends with the sandbox.
    drop(sandbox);
    assert!(soon(|| scene.processes().is_empty()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn workspace_files_are_put_read_saved_compared_and_restored() {
    let (_scene, sandbox) = Scene::with_sandbox("files").await;
    let namespace = Namespace::default_name();
    let workspace = sandbox.workspace(&namespace, None);
    let put = workspace
        .put_file(&at("data/in.csv"), b"a,b\n".to_vec())
        .await
        .unwrap();
    let (got, bytes) = workspace.get_file(&at("data/in.csv")).await.unwrap();
    assert_eq!((got.sha256, bytes.as_slice()), (put.sha256, &b"a,b\n"[..]));
    let saved = workspace.save("before".to_owned()).await.unwrap().snapshot;
    let mut ruin = ExecuteRequest::shell("cat data/in.csv; rm data/in.csv; echo new > new");
    ruin.workspace = WorkspaceSource::Namespace;
    assert_eq!(sandbox.execute(ruin).await.unwrap().stdout, "a,b\n");

    let difference = workspace.diff(None).await.unwrap();
    assert_eq!(difference.base, Base::Snapshot(saved.snapshot_id.clone()));
    assert_eq!(difference.added[0].path, "new");
    assert_eq!(difference.deleted[0].path, "data/in.csv");
    let snapshots = sandbox.snapshots(&namespace);
    let restored = snapshots.restore(&saved.snapshot_id, None).await.unwrap();
    assert_eq!(restored.deleted, 1);
    assert!(workspace.diff(None).await.unwrap().is_empty());

    let archive = workspace.get_directory(Some(at("data"))).await.unwrap();
    assert_eq!((archive.entries, archive.left_out_count), (1, 0));
    let copied = workspace
        .put_directory(Some(at("copy")), archive.tar)
        .await
        .unwrap();
    assert_eq!((copied.files, copied.size_bytes), (1, 4));
    let listed = workspace.list_files(Some(&at("copy"))).await.unwrap();
    assert_eq!(listed[0].path, "copy/in.csv");

    let other: Namespace = "other".parse().unwrap();
    assert!(
        sandbox
            .workspace(&other, None)
            .list_files(None)
            .await
            .unwrap()
            .is_empty()
    );
    let absent = sandbox
        .snapshots(&other)
        .delete(&saved.snapshot_id)
        .await
        .unwrap_err();
    assert_eq!(absent.code, ErrorCode::NotFound);
    snapshots.delete(&saved.snapshot_id).await.unwrap();
    assert!(snapshots.list().await.unwrap().is_empty());
    sandbox.shutdown().await;
}

#[test]
fn a_session_lives_on_the_runtime_of_its_sandbox_and_not_of_its_caller() {
    let scene = Scene::new("session-runtime");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let sandbox = runtime.block_on(scene.sandbox());
    let short = tokio::runtime::Runtime::new().unwrap();
    let made = short.block_on(sandbox.create_session(SessionRequest::new(Language::Shell)));
    let session = made.unwrap();
    drop(short);
    runtime.block_on(async {
        assert_eq!(run(&sandbox, &session, "echo alive").await.unwrap(), "alive\n");
        sandbox.shutdown().await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_that_the_operator_does_not_allow_is_not_installed() {
    let scene = Scene::new("packages");
    let config = scene
        .directory
        .file("config.yaml", "packages: {allow: [numpy]}\n");
    let sandbox = scene.builder().yaml(config).build().await.unwrap();
    let wanted = requirements(Language::Python, &["left-pad".to_owned()]).unwrap();
    let namespace = Namespace::default_name();
    let refused = sandbox.install(&namespace, Language::Python, wanted, None);
    assert_eq!(refused.await.unwrap_err().code, ErrorCode::PolicyDenied);
    sandbox.shutdown().await;
}
