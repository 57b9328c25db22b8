//! Checks of code before it runs, and the worker processes that run them.

use super::place::{Scene, soon};
use crate::client::*;
use ringfence::{
    CodeRequest, CsvQuestion, ErrorCode, ExecuteRequest, Fixing, InputFile, Language, Namespace, Profile,
    RequestError, Sandbox, SchemaChoice, SessionRequest, Validate, Verdict, audit::Query,
};
use rustix::process::Signal;

/// Check processes of this scene: the worker, and its fork while it checks.
fn workers(scene: &Scene) -> Vec<u32> {
    processes_named(scene, "ringfence-check")
}

fn advisers(scene: &Scene) -> Vec<u32> {
    processes_named(scene, "ringfence-adv")
}

fn processes_named(scene: &Scene, name: &str) -> Vec<u32> {
    let mut found = scene.processes();
    found.retain(|pid| comm_of(*pid) == name);
    found
}

async fn run_strictly(sandbox: &Sandbox, code: &str) -> Result<String, RequestError> {
    let mut request = ExecuteRequest::python(code);
    request.validate = Validate::Strict;
    Ok(sandbox.execute(request).await?.stdout)
}

/// claim: [CHK-4]
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_import_is_added_and_no_line_moves() {
    let (_scene, sandbox) = Scene::with_sandbox("fixes").await;
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
async fn a_profile_is_enforced_by_the_check_and_by_the_import_hook() {
    let (_scene, sandbox) = Scene::with_sandbox("profiles").await;
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

/// Checks code while every worker is killed as soon as it is seen: the fork, the worker, and its replacement.
async fn check_while_killing_workers(
    scene: &Scene,
    sandbox: &Sandbox,
    code: &str,
) -> Result<String, RequestError> {
    let (sandbox, code) = (sandbox.clone(), code.to_owned());
    let asked = tokio::spawn(async move { run_strictly(&sandbox, &code).await });
    while !asked.is_finished() {
        // A worker may have ended by itself.
        workers(scene)
            .into_iter()
            .for_each(|pid| signal(pid, Signal::KILL));
        tokio::task::yield_now().await;
    }
    asked.await.unwrap()
}

/// claim: [CHK-1]
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_check_worker_costs_at_most_one_answer() {
    let (scene, sandbox) = Scene::with_sandbox("workers").await;
    assert_eq!(run_strictly(&sandbox, "print(1)").await.unwrap(), "1\n");
    // An idle worker.
    let waiting = workers(&scene);
    assert_eq!(waiting.len(), 1);
    signal(waiting[0], Signal::KILL);
    assert!(soon(|| workers(&scene).is_empty()).await);
    assert_eq!(run_strictly(&sandbox, "print(2)").await.unwrap(), "2\n");
    // A worker with a check: a long text, so that the kill hits it while it reads.
    let long = format!("x = [\n{}]\n", "    1,\n".repeat(140_000));
    let mut refused = None;
    for _ in 0..100 {
        // A result is correct, too: on a busy machine, the kill comes too late.
        refused = check_while_killing_workers(&scene, &sandbox, &long).await.err();
        if refused.is_some() {
            break;
        }
    }
    let error = refused.expect("no worker was killed while it read");
    assert_eq!(error.code, ErrorCode::CheckFailed, "{error}");
    assert_eq!(run_strictly(&sandbox, "print(3)").await.unwrap(), "3\n");
    sandbox.shutdown().await;
    assert!(soon(|| workers(&scene).is_empty()).await);
}

/// claim: [CHK-2]
#[tokio::test(flavor = "multi_thread")]
async fn an_adviser_serves_one_namespace_and_decides_nothing() {
    let (scene, sandbox) = Scene::with_sandbox("advisers").await;
    let advised = async |namespace: &str| {
        let mut request = ExecuteRequest::python("eval('1')");
        request.namespace = namespace.parse().unwrap();
        request.validate = Validate::Warn;
        let report = sandbox.execute(request).await.unwrap();
        assert!(report.validation.is_some_and(|found| !found.issues.is_empty()));
    };
    // The first check of a namespace costs a fork; from the second on, the namespace has an adviser of its own.
    advised("one").await;
    assert!(advisers(&scene).is_empty());
    advised("one").await;
    assert!(soon(|| advisers(&scene).len() == 1).await);
    let of_one = advisers(&scene);
    for _ in 0..3 {
        advised("one").await;
    }
    assert_eq!(advisers(&scene), of_one);
    // Another namespace does not get that adviser, and a strict check uses none.
    advised("two").await;
    assert_eq!(run_strictly(&sandbox, "print(1)").await.unwrap(), "1\n");
    assert_eq!(advisers(&scene), of_one);
    advised("two").await;
    assert!(soon(|| advisers(&scene).len() == 2).await);
    // A killed adviser costs no answer and is replaced.
    signal(of_one[0], Signal::KILL);
    assert!(soon(|| !advisers(&scene).contains(&of_one[0])).await);
    advised("one").await; // finds that the adviser has died
    advised("one").await;
    assert!(soon(|| advisers(&scene).len() == 2).await);
    sandbox.shutdown().await;
    assert!(soon(|| advisers(&scene).is_empty()).await);
}

/// claim: [CHK-1]
#[tokio::test(flavor = "multi_thread")]
async fn hostile_source_text_gets_a_typed_answer_in_bounded_time() {
    let (_scene, sandbox) = Scene::with_sandbox("hostile").await;
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
        match run_strictly(&sandbox, &code).await {
            Ok(_) => {}
            Err(error) => assert!(
                [ErrorCode::CodeRejected, ErrorCode::CheckFailed].contains(&error.code),
                "{error}"
            ),
        }
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(60));
    assert_eq!(run_strictly(&sandbox, "print(4)").await.unwrap(), "4\n");
    sandbox.shutdown().await;
}

/// Maximum number of checks of a flood that end while another namespace waits for one check: those in progress at its
/// request, and those that get another worker meanwhile. In a single queue, all 64 waiting checks would come first.
const CHECKED_MEANWHILE_MAX: usize = 8;

/// claim: [CHK-1]
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_checks_does_not_delay_other_namespaces() {
    let (scene, sandbox) = Scene::with_sandbox("fairness").await;
    let run_strictly = |namespace: &str, code: &str| {
        let mut request = ExecuteRequest::python(code);
        request.namespace = namespace.parse().unwrap();
        request.validate = Validate::Strict;
        let sandbox = sandbox.clone();
        async move { sandbox.execute(request).await }
    };
    // Each check takes long and is refused, so that none of the code runs.
    let slow = format!("{}eval('1')\n", "x = [1, 2, (3, 4)]\n".repeat(15_000));
    assert_eq!(run_strictly("quiet", "print(1)").await.unwrap().stdout, "1\n");
    assert_eq!(
        run_strictly("flood", &slow).await.unwrap_err().code,
        ErrorCode::CodeRejected
    );
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..80 {
        flood.spawn(run_strictly("flood", &slow));
    }
    assert!(soon(|| workers(&scene).len() >= 2).await);
    let (mut asked, mut answers) = (0, Vec::new());
    while flood.len() > 20 {
        answers.extend(std::iter::from_fn(|| flood.try_join_next()));
        assert_eq!(run_strictly("quiet", "print(1)").await.unwrap().stdout, "1\n");
        // The check waits for those in progress and not for those queued before it.
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
    eprintln!("{asked} checks during the flood, {busy} refused as busy");
    sandbox.shutdown().await;
}

/// claim: [CHK-4]
#[tokio::test(flavor = "multi_thread")]
async fn errors_are_judged_even_after_more_notes_than_the_list_holds() {
    let (_scene, sandbox) = Scene::with_sandbox("many-notes").await;
    let notes = "    open('/tmp/x')\n".repeat(1100);
    let code = format!("import os\nif len('x') > 1:\n{notes}print('ran')\nos.system('true')\n");
    let refused = run_strictly(&sandbox, &code).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::CodeRejected, "{refused}");
    assert!(refused.message.contains("line 1104"), "{refused}");
    let found = refused.validation.unwrap();
    assert!(!found.valid && !found.validation.valid && !found.validation.errors.is_empty());
    assert!(found.issues_total > 1100 && found.issues.len() == 1000);
    // Without the error, the code runs: only notes were left out of the list.
    let calm = code.replace("os.system('true')", "os.getpid()");
    assert_eq!(run_strictly(&sandbox, &calm).await.unwrap(), "ran\n");
    sandbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_refused_before_they_run_are_recorded() {
    let (_scene, sandbox) = Scene::with_sandbox("refused-checks").await;
    let namespace = Namespace::default_name();
    let code_request = |language, code: String, profile| CodeRequest {
        namespace: Namespace::default_name(),
        language,
        code,
        fixing: Fixing::No,
        profile,
        allowed_imports: None,
        beside: Vec::new(),
    };
    let too_long = sandbox.validate_code(code_request(Language::Python, "#".repeat((1 << 20) + 1), None));
    assert!(too_long.await.is_err());
    let of_python = sandbox.validate_code(code_request(Language::Node, "1".to_owned(), Some(Profile::Basic)));
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
async fn the_callers_own_modules_can_be_imported_and_are_bound_by_the_profile() {
    let (_scene, sandbox) = Scene::with_sandbox("own-modules").await;
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
    // In a session, modules from earlier calls are the caller's own, and installed packages are not.
    let session_request = SessionRequest::new(Language::Python);
    let session = sandbox.create_session(session_request).await.unwrap();
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
    // No module of the caller replaces a module of the interpreter.
    let posing = run(&[("os.py", "")], "import os\n").await.unwrap_err();
    assert_eq!(posing.code, ErrorCode::CodeRejected);
    sandbox.shutdown().await;
}
