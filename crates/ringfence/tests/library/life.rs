//! Start and end of sandboxes: several at once, concurrent runs, and no leftovers.

use super::place::{Scene, exists, shell, soon};
use crate::client::*;
use ringfence::{ErrorCode, ExecuteRequest, ExitKind, Hears, Sandbox};
use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

/// A shell program that prints `up` and then runs for an hour under this name.
fn for_an_hour(name: &str) -> ExecuteRequest {
    ExecuteRequest::shell(format!("echo up; exec -a {name} sleep 3600"))
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sandboxes_in_one_process_are_independent() {
    let (one, other) = (Scene::new("one"), Scene::new("other"));
    let (first, second) = (one.sandbox().await, other.sandbox().await);
    let (a, b) = tokio::join!(
        first.execute(ExecuteRequest::python("print('one')")),
        second.execute(ExecuteRequest::python("print('other')"))
    );
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!((a.stdout.as_str(), b.stdout.as_str()), ("one\n", "other\n"));
    assert_ne!(first.public_key(), second.public_key());
    drop(first);
    let again = second.execute(ExecuteRequest::python("print('still')")).await;
    assert_eq!(again.unwrap().stdout, "still\n");
    let of_first = ringfence::audit::Query {
        execution_id: Some(a.execution_id),
        ..Default::default()
    };
    assert!(second.audit(of_first).await.unwrap().records.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_last_clone_kills_running_programs_and_leaves_no_process() {
    let (scene, sandbox) = Scene::with_sandbox("drop").await;
    let name = format!("sleeper-drop-{}", std::process::id());
    let mut execution = sandbox.start(for_an_hour(&name));
    assert!(execution.next_output().await.is_some());
    let runs = soon(|| !processes_with(&name).is_empty());
    assert!(runs.await, "the control");
    let of_ringfence = scene.processes();
    assert!(of_ringfence.len() >= 2, "the control: helper and supervisor");

    let clone = sandbox.clone();
    drop(sandbox);
    assert_eq!(shell(&clone, "echo alive").await, "alive\n");
    drop(clone);

    assert!(soon(|| processes_with(&name).is_empty()).await);
    assert!(
        soon(|| of_ringfence.iter().all(|pid| !exists(*pid))).await,
        "no zombie either"
    );
    // It was cancelled, or ended with its helper before the cancellation was reported; either way, it has ended.
    let ended = tokio::time::timeout(Duration::from_secs(10), execution.finish())
        .await
        .unwrap();
    match ended {
        Ok(result) => assert_eq!(result.exit.kind, ExitKind::Cancelled),
        Err(error) => assert_eq!(error.code, ErrorCode::SandboxFault),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_waits_for_programs_to_end_and_refuses_later_calls() {
    let (scene, sandbox) = Scene::with_sandbox("shutdown").await;
    sandbox.warm_up();
    let name = format!("sleeper-shutdown-{}", std::process::id());
    let mut execution = sandbox.start(for_an_hour(&name));
    assert!(execution.next_output().await.is_some());
    let clone = sandbox.clone();
    sandbox.shutdown().await;
    assert!(processes_with(&name).is_empty() && scene.processes().is_empty());

    let error = clone
        .execute(ExecuteRequest::shell("echo late"))
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::SandboxFault);
    assert!(error.message.contains("shut down"), "{error}");
    assert!(scene.processes().is_empty(), "no second helper");
    clone.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_at_once_each_get_their_own_result() {
    let scene = Scene::new("many");
    let sandbox = scene.builder().concurrency(4).waiting(64).build().await.unwrap();
    let runs = (0..40).map(|number| {
        let sandbox = sandbox.clone();
        tokio::spawn(async move {
            let code = format!("echo {number}");
            (number, sandbox.execute(ExecuteRequest::shell(code)).await)
        })
    });
    for run in runs.collect::<Vec<_>>() {
        let (number, result) = run.await.unwrap();
        assert_eq!(result.unwrap().stdout, format!("{number}\n"));
    }
    sandbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_an_execution_future_cancels_the_program() {
    let (_scene, sandbox) = Scene::with_sandbox("timeout").await;
    let mut events = sandbox.events(Hears::Everything);
    let name = format!("sleeper-timeout-{}", std::process::id());
    let mut waited = Box::pin(sandbox.execute(for_an_hour(&name)));
    let is_up = async {
        while let Some(event) = events.next().await {
            if event.kind.name() == "execution.output" {
                return;
            }
        }
    };
    tokio::select! {
        ended = &mut waited => panic!("{ended:?}"),
        () = is_up => {}
    }
    let runs = soon(|| !processes_with(&name).is_empty());
    assert!(runs.await, "the control");
    drop(waited);
    assert!(soon(|| processes_with(&name).is_empty()).await);
    sandbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_can_be_started_from_a_thread_without_a_runtime() {
    let (_scene, sandbox) = Scene::with_sandbox("thread").await;
    let of_thread = sandbox.clone();
    let started = std::thread::spawn(move || of_thread.start(ExecuteRequest::shell("echo thread")));
    let result = started.join().unwrap().finish().await.unwrap();
    assert_eq!(result.stdout, "thread\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_input_is_copied_to_the_program() {
    let (_scene, sandbox) = Scene::with_sandbox("stdin").await;
    let request = ExecuteRequest::shell("read line; echo got $line");
    let execution = sandbox.start_with_stdin(request, &b"a line\n"[..]);
    assert_eq!(execution.finish().await.unwrap().stdout, "got a line\n");
}

#[test]
fn building_without_a_runtime_is_an_error_and_not_a_panic() {
    let scene = Scene::new("no-runtime");
    let mut building = pin!(scene.builder().build());
    let Poll::Ready(Err(error)) = building.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it waits for something");
    };
    assert!(error.message.contains("no Tokio runtime"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_helper_binary_is_rejected_when_the_sandbox_is_built() {
    for binary in ["/bin/true", "/nonexistent/ringfence"] {
        let scene = Scene::new("no-helper");
        let error = scene.builder().helper(binary).build().await.unwrap_err();
        assert_eq!(error.code, ErrorCode::SandboxFault, "{binary}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_build_leaves_no_process() {
    let scene = Scene::new("given-up");
    let mut given_up = 0;
    for ms in [1, 2, 4, 8, 16, 32] {
        let built = tokio::time::timeout(Duration::from_millis(ms), scene.builder().build()).await;
        given_up += usize::from(built.is_err());
    }
    assert!(given_up > 0, "the control: a build takes more than a millisecond");
    assert!(soon(|| scene.processes().is_empty()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn children_of_the_embedding_program_inherit_no_descriptor_of_the_sandbox() {
    let (_scene, sandbox) = Scene::with_sandbox("inherit").await;
    let mut execution = sandbox.start(ExecuteRequest::shell("echo up; exec sleep 3600"));
    assert!(execution.next_output().await.is_some());
    let own = std::fs::read_dir("/proc/self/fd").unwrap().count();
    #[expect(clippy::disallowed_methods, reason = "the program's own child")]
    let child = std::process::Command::new("ls")
        .args(["-l", "/proc/self/fd"])
        .output()
        .unwrap();
    let listed = String::from_utf8(child.stdout).unwrap();
    assert!(own > 10, "the control: there is something to inherit");
    for kind in ["socket:", "memfd:", "audit.db", "signing.key"] {
        assert!(!listed.contains(kind), "{listed}");
    }
    sandbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_after_the_end_of_the_runtime_fails_and_does_not_hang() {
    let scene = Scene::new("runtime");
    let builder = scene.builder();
    let builder = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(builder.build()).unwrap()
    });
    let sandbox: Sandbox = builder.join().unwrap();
    let refused = sandbox.execute(ExecuteRequest::shell("echo x"));
    let refused = tokio::time::timeout(Duration::from_secs(10), refused)
        .await
        .unwrap();
    assert_eq!(refused.unwrap_err().code, ErrorCode::SandboxFault);
}
