//! Code that is looked at before it runs, and the workers that look.

use crate::place::{Place, processes_with, soon};
use ringfence::{ErrorCode, ExecuteRequest, Profile, RequestError, Sandbox, Validate, Verdict};
use std::fs;

/// Processes of this place that look at code: a worker, and its fork while it has a question.
fn workers(place: &Place) -> Vec<u32> {
    let is_worker = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "ringfence-check")
    };
    let helper = place.directory.join("helper");
    let of_place = processes_with(helper.to_str().unwrap());
    of_place.into_iter().filter(is_worker).collect()
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

async fn strictly(sandbox: &Sandbox, code: &str) -> Result<String, RequestError> {
    let mut request = ExecuteRequest::python(code);
    request.validate = Validate::Strict;
    Ok(sandbox.execute(request).await?.stdout)
}

#[tokio::test(flavor = "multi_thread")]
async fn code_is_looked_at_when_that_is_asked_for_and_refused_when_it_is_asked_strictly() {
    let place = Place::new("checks");
    let sandbox = place.sandbox().await;
    let run = async |validate, code: &str| {
        let mut request = ExecuteRequest::python(code);
        request.validate = validate;
        sandbox.execute(request).await
    };
    let evil = "x = 1\nprint(eval('40 + 2'))\n";
    let off = run(Validate::Off, evil).await.unwrap();
    assert_eq!((off.stdout.as_str(), off.validation), ("42\n", None));
    let warned = run(Validate::Warn, evil).await.unwrap();
    assert_eq!(warned.stdout, "42\n");
    let found = warned.validation.unwrap();
    assert_eq!((found.verdict, found.issues[0].line), (Verdict::Pass, 2));
    let refused = run(Validate::Strict, evil).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::CodeRejected);
    assert!(refused.message.contains("line 2"), "{refused}");
    assert_eq!(refused.validation.unwrap().issues, found.issues);
    sandbox.shutdown().await;
}

/// claim: [CHK-4]
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_import_is_added_and_no_line_moves() {
    let place = Place::new("fixes");
    let sandbox = place.sandbox().await;
    let mut request = ExecuteRequest::python("print(json.dumps([1]))\nprint(math.floor(1.5))\n1 / 0\n");
    request.validate = Validate::Fix;
    let result = sandbox.execute(request).await.unwrap();
    assert_eq!(result.stdout, "[1]\n1\n");
    assert_eq!(result.error.unwrap().line, Some(3));
    let found = result.validation.unwrap();
    assert_eq!(found.verdict, Verdict::Fixed);
    assert_eq!(found.fixes_applied, ["import json", "import math"]);
    sandbox.shutdown().await;
}

/// claim: [CHK-4]
#[tokio::test(flavor = "multi_thread")]
async fn a_profile_is_held_by_the_check_and_by_the_hook() {
    let place = Place::new("profiles");
    let sandbox = place.sandbox().await;
    let run = async |validate, code: &str| {
        let mut request = ExecuteRequest::python(code);
        request.validate = validate;
        request.profile = Some(Profile::Basic);
        sandbox.execute(request).await
    };
    for code in [
        "import os",
        "import uuid\nuuid.os.getpid()",
        "from uuid import os",
    ] {
        let refused = run(Validate::Warn, code).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::CodeRejected, "{code}");
        let result = run(Validate::Off, code).await.unwrap();
        assert!(!result.success, "{code}");
        assert_eq!(result.security_events[0].rule, "blocked_import", "{code}");
    }
    let good = run(
        Validate::Warn,
        "import uuid, random\nprint(len(str(uuid.UUID(int=random.getrandbits(9)))))",
    );
    assert_eq!(good.await.unwrap().stdout, "36\n");
    sandbox.shutdown().await;
}

/// claim: [CHK-1]
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_costs_one_answer_at_most() {
    let place = Place::new("workers");
    let sandbox = place.sandbox().await;
    assert_eq!(strictly(&sandbox, "print(1)").await.unwrap(), "1\n");
    // One that waits.
    let waiting = workers(&place);
    assert_eq!(waiting.len(), 1);
    kill(waiting[0]);
    assert!(soon(|| workers(&place).is_empty()).await);
    assert_eq!(strictly(&sandbox, "print(2)").await.unwrap(), "2\n");
    // One that has a question: a long text, so that it is met while it reads.
    let long = format!("x = [\n{}]\n", "    1,\n".repeat(140_000));
    let asked = tokio::spawn({
        let (sandbox, long) = (sandbox.clone(), long.clone());
        async move { strictly(&sandbox, &long).await }
    });
    // Each is killed as it is seen, the fork and the worker alike, the first and the one that takes its place.
    let mut killed = 0;
    while !asked.is_finished() && killed < 100 {
        for pid in workers(&place) {
            let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            killed += u32::from(rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok());
        }
        tokio::task::yield_now().await;
    }
    let error = asked.await.unwrap().unwrap_err();
    assert_eq!(error.code, ErrorCode::CheckFailed, "{error}");
    assert_eq!(strictly(&sandbox, "print(3)").await.unwrap(), "3\n");
    sandbox.shutdown().await;
    assert!(soon(|| workers(&place).is_empty()).await);
}

/// claim: [CHK-1]
#[tokio::test(flavor = "multi_thread")]
async fn text_that_no_parser_should_meet_is_a_typed_answer_in_bounded_time() {
    let place = Place::new("hostile");
    let sandbox = place.sandbox().await;
    let begun = std::time::Instant::now();
    for code in [
        "(".repeat(500_000),
        format!("x = {}1{}", "[".repeat(100_000), "]".repeat(100_000)),
        format!("x = {}1", "-".repeat(900_000)),
        format!("x = {}", "1 + ".repeat(200_000) + "1"),
        "f'{".repeat(50_000),
        "if x:\n".to_owned()
            + &(1..900)
                .map(|depth| " ".repeat(depth) + "if x:\n")
                .collect::<String>(),
        "\u{202e}x = 1".to_owned(),
    ] {
        match strictly(&sandbox, &code).await {
            Ok(_) => {}
            Err(error) => assert!(
                [ErrorCode::CodeRejected, ErrorCode::CheckFailed].contains(&error.code),
                "{error}"
            ),
        }
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(60));
    assert_eq!(strictly(&sandbox, "print(4)").await.unwrap(), "4\n");
    sandbox.shutdown().await;
}

/// claim: [CHK-1]
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_floods_the_workers_makes_no_other_wait() {
    let place = Place::new("fairness");
    let sandbox = place.sandbox().await;
    let strictly = |namespace: &str, code: &str| {
        let mut request = ExecuteRequest::python(code);
        request.namespace = namespace.parse().unwrap();
        request.validate = Validate::Strict;
        let sandbox = sandbox.clone();
        async move { sandbox.execute(request).await }
    };
    // Each takes a worker long, and is refused, so that nothing of it runs.
    let slow = format!("{}eval('1')\n", "x = [1, 2, (3, 4)]\n".repeat(50_000));
    assert_eq!(strictly("quiet", "print(1)").await.unwrap().stdout, "1\n");
    let begun = std::time::Instant::now();
    assert_eq!(
        strictly("flood", &slow).await.unwrap_err().code,
        ErrorCode::CodeRejected
    );
    let alone = begun.elapsed();
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..80 {
        flood.spawn(strictly("flood", &slow));
    }
    assert!(soon(|| workers(&place).len() >= 2).await);
    let (mut asked, mut answers) = (0, Vec::new());
    while flood.len() > 20 {
        let begun = std::time::Instant::now();
        assert_eq!(strictly("quiet", "print(1)").await.unwrap().stdout, "1\n");
        assert!(
            begun.elapsed() < alone * 3,
            "{:?}, and {alone:?} alone",
            begun.elapsed()
        );
        asked += 1;
        answers.extend(std::iter::from_fn(|| flood.try_join_next()));
    }
    assert!(asked > 0);
    while let Some(answer) = flood.join_next().await {
        answers.push(answer);
    }
    let codes = answers
        .into_iter()
        .map(|answer| answer.unwrap().unwrap_err().code);
    let (busy, refused): (Vec<_>, Vec<_>) = codes.partition(|code| *code == ErrorCode::Busy);
    assert!(
        refused.iter().all(|code| *code == ErrorCode::CodeRejected),
        "{refused:?}"
    );
    assert!(busy.len() >= 80 - 64, "no more than 64 of a namespace ask");
    let busy = busy.len();
    eprintln!("asked {asked} times beside the flood, alone {alone:?}, busy {busy}");
    sandbox.shutdown().await;
}
