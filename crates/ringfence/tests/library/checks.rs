//! Code that is looked at before it runs, and the workers that look.

use super::place::{Scene, soon};
use crate::client::*;
use ringfence::{
    CodeRequest, CsvQuestion, ErrorCode, ExecuteRequest, Fixing, InputFile, Language, Namespace, Profile,
    RequestError, Sandbox, SchemaChoice, SessionRequest, Validate, Verdict, audit::Query,
};
use rustix::process::Signal;

/// Processes of this place that look at code: a worker, and its fork while it has a question.
fn workers(place: &Scene) -> Vec<u32> {
    named(place, "ringfence-check")
}

fn advisers(place: &Scene) -> Vec<u32> {
    named(place, "ringfence-adv")
}

fn named(place: &Scene, name: &str) -> Vec<u32> {
    let mut found = place.processes();
    found.retain(|pid| name_of(*pid) == name);
    found
}

async fn strictly(sandbox: &Sandbox, code: &str) -> Result<String, RequestError> {
    let mut request = ExecuteRequest::python(code);
    request.validate = Validate::Strict;
    Ok(sandbox.execute(request).await?.stdout)
}

/// claim: [CHK-4]
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_import_is_added_and_no_line_moves() {
    let (_place, sandbox) = Scene::with_sandbox("fixes").await;
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
    let (_place, sandbox) = Scene::with_sandbox("profiles").await;
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

/// Each worker is killed as it is seen, the fork and the worker alike, the first and the one that takes its place.
async fn asked_and_killed(place: &Scene, sandbox: &Sandbox, code: &str) -> Result<String, RequestError> {
    let (sandbox, code) = (sandbox.clone(), code.to_owned());
    let asked = tokio::spawn(async move { strictly(&sandbox, &code).await });
    while !asked.is_finished() {
        // One may have ended by itself.
        workers(place)
            .into_iter()
            .for_each(|pid| signal(pid, Signal::KILL));
        tokio::task::yield_now().await;
    }
    asked.await.unwrap()
}

/// claim: [CHK-1]
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_costs_one_answer_at_most() {
    let (place, sandbox) = Scene::with_sandbox("workers").await;
    assert_eq!(strictly(&sandbox, "print(1)").await.unwrap(), "1\n");
    // One that waits.
    let waiting = workers(&place);
    assert_eq!(waiting.len(), 1);
    signal(waiting[0], Signal::KILL);
    assert!(soon(|| workers(&place).is_empty()).await);
    assert_eq!(strictly(&sandbox, "print(2)").await.unwrap(), "2\n");
    // One that has a question: a long text, so that it is met while it reads.
    let long = format!("x = [\n{}]\n", "    1,\n".repeat(140_000));
    let mut refused = None;
    for _ in 0..100 {
        // An answer is right, too: the machine was busy with others, and nobody killed them in time.
        refused = asked_and_killed(&place, &sandbox, &long).await.err();
        if refused.is_some() {
            break;
        }
    }
    let error = refused.expect("it was never killed while it read");
    assert_eq!(error.code, ErrorCode::CheckFailed, "{error}");
    assert_eq!(strictly(&sandbox, "print(3)").await.unwrap(), "3\n");
    sandbox.shutdown().await;
    assert!(soon(|| workers(&place).is_empty()).await);
}

/// claim: [CHK-2]
#[tokio::test(flavor = "multi_thread")]
async fn an_adviser_hears_one_namespace_and_decides_nothing() {
    let (place, sandbox) = Scene::with_sandbox("advisers").await;
    let advised = async |namespace: &str| {
        let mut request = ExecuteRequest::python("eval('1')");
        request.namespace = namespace.parse().unwrap();
        request.validate = Validate::Warn;
        let report = sandbox.execute(request).await.unwrap();
        assert!(report.validation.is_some_and(|found| !found.issues.is_empty()));
    };
    // A namespace that asks once costs a fork, and one that asks again has a worker of its own.
    advised("one").await;
    assert!(advisers(&place).is_empty());
    advised("one").await;
    assert!(soon(|| advisers(&place).len() == 1).await);
    let of_one = advisers(&place);
    for _ in 0..3 {
        advised("one").await;
    }
    assert_eq!(advisers(&place), of_one);
    // Another does not have that one, and what decides has none.
    advised("two").await;
    assert_eq!(strictly(&sandbox, "print(1)").await.unwrap(), "1\n");
    assert_eq!(advisers(&place), of_one);
    advised("two").await;
    assert!(soon(|| advisers(&place).len() == 2).await);
    // One that dies costs no answer, and has a successor.
    signal(of_one[0], Signal::KILL);
    assert!(soon(|| !advisers(&place).contains(&of_one[0])).await);
    advised("one").await; // which finds that it has died
    advised("one").await;
    assert!(soon(|| advisers(&place).len() == 2).await);
    sandbox.shutdown().await;
    assert!(soon(|| advisers(&place).is_empty()).await);
}

/// claim: [CHK-1]
#[tokio::test(flavor = "multi_thread")]
async fn text_that_no_parser_should_meet_is_a_typed_answer_in_bounded_time() {
    let (_place, sandbox) = Scene::with_sandbox("hostile").await;
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

/// Checks of a flood that end while another namespace waits for one: those that are in work when it asks, and those that
/// get another worker meanwhile. All 64 that wait would be before it in one line.
const CHECKED_MEANWHILE_MAX: usize = 8;

/// claim: [CHK-1]
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_floods_the_workers_makes_no_other_wait() {
    let (place, sandbox) = Scene::with_sandbox("fairness").await;
    let strictly = |namespace: &str, code: &str| {
        let mut request = ExecuteRequest::python(code);
        request.namespace = namespace.parse().unwrap();
        request.validate = Validate::Strict;
        let sandbox = sandbox.clone();
        async move { sandbox.execute(request).await }
    };
    // Each takes a worker long, and is refused, so that nothing of it runs.
    let slow = format!("{}eval('1')\n", "x = [1, 2, (3, 4)]\n".repeat(15_000));
    assert_eq!(strictly("quiet", "print(1)").await.unwrap().stdout, "1\n");
    assert_eq!(
        strictly("flood", &slow).await.unwrap_err().code,
        ErrorCode::CodeRejected
    );
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..80 {
        flood.spawn(strictly("flood", &slow));
    }
    assert!(soon(|| workers(&place).len() >= 2).await);
    let (mut asked, mut answers) = (0, Vec::new());
    while flood.len() > 20 {
        answers.extend(std::iter::from_fn(|| flood.try_join_next()));
        assert_eq!(strictly("quiet", "print(1)").await.unwrap().stdout, "1\n");
        // It waits for those that a worker has begun, and not for those that stand before it.
        let meanwhile: Vec<_> = std::iter::from_fn(|| flood.try_join_next()).collect();
        let codes = meanwhile
            .iter()
            .filter_map(|answer| answer.as_ref().ok()?.as_ref().err())
            .map(|error| error.code);
        let checked = codes.filter(|code| *code == ErrorCode::CodeRejected).count();
        assert!(
            checked <= CHECKED_MEANWHILE_MAX,
            "{checked} were checked before it"
        );
        asked += 1;
        answers.extend(meanwhile);
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
    eprintln!("asked {asked} times beside the flood, busy {busy}");
    sandbox.shutdown().await;
}

/// claim: [CHK-4]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_graver_is_judged_however_many_notes_stand_before_it() {
    let (_place, sandbox) = Scene::with_sandbox("many-notes").await;
    let notes = "    open('/tmp/x')\n".repeat(1100);
    let code = format!("import os\nif len('x') > 1:\n{notes}print('ran')\nos.system('true')\n");
    let refused = strictly(&sandbox, &code).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::CodeRejected, "{refused}");
    assert!(refused.message.contains("line 1104"), "{refused}");
    let found = refused.validation.unwrap();
    assert!(!found.valid && !found.validation.valid && !found.validation.errors.is_empty());
    assert!(found.issues_total > 1100 && found.issues.len() == 1000);
    // It is the notes that have no room in the list.
    let calm = code.replace("os.system('true')", "os.getpid()");
    assert_eq!(strictly(&sandbox, &calm).await.unwrap(), "ran\n");
    sandbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_even_looked_at_is_on_record() {
    let (_place, sandbox) = Scene::with_sandbox("refused-checks").await;
    let namespace = Namespace::default_name();
    let wish = |language, code: String, profile| CodeRequest {
        namespace: Namespace::default_name(),
        language,
        code,
        fixing: Fixing::No,
        profile,
        allowed_imports: None,
        beside: Vec::new(),
    };
    let too_long = sandbox.validate_code(wish(Language::Python, "#".repeat((1 << 20) + 1), None));
    assert!(too_long.await.is_err());
    let of_python = sandbox.validate_code(wish(Language::Node, "1".to_owned(), Some(Profile::Basic)));
    assert!(of_python.await.is_err());
    let unknown = SchemaChoice::Named("nobody's".to_owned());
    assert!(sandbox.validate_json(&namespace, unknown, "{}").await.is_err());
    let much = "a,b\n".repeat(5 << 20);
    let table = sandbox.validate_csv(&namespace, CsvQuestion::default(), &much);
    assert!(table.await.is_err());
    let page = sandbox.audit(Query::default()).await.unwrap();
    let of_checks = page
        .records
        .iter()
        .filter(|record| record.action.ends_with(".validated"));
    assert_eq!(of_checks.count(), 4, "{:?}", page.records);
    sandbox.shutdown().await;
}

/// claim: [CHK-3]
#[tokio::test(flavor = "multi_thread")]
async fn the_callers_own_modules_may_be_imported_and_are_held_to_the_profile() {
    let (_place, sandbox) = Scene::with_sandbox("own-modules").await;
    let run = async |files: &[(&str, &str)], code: &str| {
        let mut request = ExecuteRequest::python(code);
        request.profile = Some(Profile::Basic);
        request.validate = Validate::Warn;
        for (path, text) in files {
            request.files.push(InputFile {
                path: path.parse().unwrap(),
                bytes: text.as_bytes().to_vec(),
            });
        }
        sandbox.execute(request).await
    };
    let good = run(
        &[("helper.py", "def two(): return 2\n")],
        "import helper\nprint(helper.two())",
    );
    assert_eq!(good.await.unwrap().stdout, "2\n");
    let reaching = run(&[("helper.py", "import os\n")], "import helper\n")
        .await
        .unwrap();
    assert!(!reaching.success);
    assert_eq!(reaching.security_events[0].rule, "blocked_import");
    // In a session they may have been there before, and what is installed is not theirs.
    let wish = SessionRequest::new(Language::Python);
    let session = sandbox.create_session(wish).await.unwrap();
    let call = async |code: &str| {
        let mut request = ExecuteRequest::python(code);
        request.session = Some(session.session_id.clone());
        request.profile = Some(Profile::Basic);
        request.validate = Validate::Warn;
        sandbox.execute(request).await
    };
    let write = "open('mine.py', 'w').write('x = 3')";
    let mut free = ExecuteRequest::python(write);
    free.session = Some(session.session_id.clone());
    sandbox.execute(free).await.unwrap();
    assert_eq!(call("import mine\nprint(mine.x)").await.unwrap().stdout, "3\n");
    let installed = call("import pip").await.unwrap();
    assert_eq!(
        installed.security_events[0].rule, "blocked_import",
        "{installed:?}"
    );
    // None stands in for a module of the interpreter's.
    let posing = run(&[("os.py", "")], "import os\n").await.unwrap_err();
    assert_eq!(posing.code, ErrorCode::CodeRejected);
    sandbox.shutdown().await;
}
