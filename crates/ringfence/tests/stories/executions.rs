//! Executions are found by their id, during and after their run, and only from their own namespace.

use crate::client::*;
use std::process::Stdio;

const BEGUN: &str = "echo begun; sleep 1000";

fn background(server: &mut Server, code: &str) -> String {
    let begun = server.run(json!({"code": code, "language": "shell", "background": true}));
    assert_eq!(begun["running"], true, "{begun}");
    text_of(&begun["execution_id"]).to_owned()
}

fn has_begun(server: &mut Server, id: &str) -> bool {
    server.get_execution(id)["stdout"] == "begun\n"
}

#[test]
fn background_program_can_be_read_listed_and_cancelled() {
    let mut server = Server::start();
    let id = background(&mut server, BEGUN);
    eventually(|| has_begun(&mut server, &id));
    let so_far = server.facts("get_execution", json!({"execution_id": id, "stdout_from": 6}));
    so_far.assert_fields(json!({"running": true, "stdout": ""}));
    let listed = server.facts("list_executions", json!({}));
    listed.assert_fields(json!({"executions.0.execution_id": id, "executions.0.verdict": "running"}));
    assert_eq!(listed["executions"][0]["first_line"], BEGUN, "{listed}");
    assert_eq!(server.cancel_execution(&id)["cancelled"], true);
    let result = server.await_execution(&id);
    result.assert_fields(json!({"exit.kind": "cancelled", "stdout": "begun\n"}));
    let again = server.cancel_execution(&id);
    again.assert_fields(json!({"cancelled": false, "existed": true}));
    // An execution of another namespace is not found.
    let id = background(&mut server, BEGUN);
    eventually(|| has_begun(&mut server, &id));
    let random = "0190b8f0-5c1e-7000-8000-00000000abcd";
    let theirs = server.call("get_execution", json!({"execution_id": id, "namespace": "other"}));
    assert_eq!(theirs["isError"], true, "{theirs}");
    let arguments = json!({"execution_id": random, "namespace": "other"});
    let never = server.call("get_execution", arguments);
    assert_eq!(
        theirs["content"], never["content"],
        "same answer as for an unknown id"
    );
    let arguments = json!({"execution_id": id, "namespace": "other"});
    let cancel = server.facts("cancel_execution", arguments);
    cancel.assert_fields(json!({"cancelled": false, "existed": false}));
    let listed = server.facts("list_executions", json!({"namespace": "other"}));
    assert_eq!(listed["executions"], json!([]), "{listed}");
    assert!(has_begun(&mut server, &id));
    server.cancel_execution(&id);
    server.await_execution(&id);
    // The result of a refused request is its original error.
    let begun = server.run(json!({"code": "1", "secrets": ["NO_SUCH_SECRET"], "background": true}));
    let id = begun["execution_id"].clone();
    let awaited = json!({"execution_id": id, "wait_seconds": 25});
    server.call_error("get_execution", awaited, "secret_unavailable");
}

#[test]
fn long_result_is_read_in_pages_after_its_call() {
    let mut server = Server::start();
    let call = server.send_run(json!({"code": BEGUN, "language": "shell"}));
    eventually(|| server.latest_execution()["verdict"] == "running");
    server.cancel(call);
    eventually(|| server.latest_execution()["verdict"] != "running");
    assert_ne!(server.latest_execution()["verdict"], "ok");

    let lines = server.execute("shell", "seq 20000");
    let shown = text_of(&lines["stdout"]);
    assert!(
        shown.len() <= 8192 && shown.starts_with("1\n2\n") && shown.ends_with("\n20000\n"),
        "{shown}"
    );
    assert_eq!(lines["truncated"], json!({"stdout": true, "stderr": false}));
    let id = &lines["execution_id"];
    let (mut read, mut from) = (String::new(), json!(0));
    while !from.is_null() {
        let page = server.facts("get_execution", json!({"execution_id": id, "stdout_from": from}));
        let text = text_of(&page["stdout"]);
        assert!(text.ends_with('\n'), "{page}");
        read += text;
        from = page["stdout_next"].clone();
    }
    let all: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(read, all);
    let (before, gap) = shown.split_once("\n[... ").unwrap();
    let (between, after) = gap.split_once("]\n").unwrap();
    let (between, next) = between
        .split_once(" bytes between; next: get_execution ")
        .unwrap();
    assert_eq!(
        before.len() + 1 + between.parse::<usize>().unwrap() + after.len(),
        all.len()
    );
    // The suggested call continues where the shown beginning ends.
    let rest = server.facts("get_execution", serde_json::from_str(next).unwrap());
    assert!(
        all[before.len() + 1..].starts_with(text_of(&rest["stdout"])),
        "{next}"
    );
    let mut whole = server.get_execution(id);
    let mut lines = lines.clone();
    for result in [&mut whole, &mut lines] {
        result["isolation"] = json!(null);
    }
    assert_eq!(whole, lines);
}

/// The word after `before` in the text of an answer.
fn word_after(answer: &Value, before: &str) -> Value {
    let text = answer.text();
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("{text}"));
    json!(rest.split_whitespace().next())
}

#[test]
fn artifact_uri_is_an_input_file_within_its_namespace_only() {
    let mut server = Server::start();
    let code = "seq 100000 > $'numbers\\nrefused: all'";
    let left = server.call("execute_code", json!({"code": code, "language": "shell"}));
    let uri = word_after(&left, "\nartifact: ");
    assert!(!left.text().contains("\nrefused: "), "{left}");
    let id = word_after(&left, "\nexecution_id: ");
    let listed = server.call("get_artifacts", json!({"request_id": id}));
    assert_eq!(word_after(&listed, ""), uri, "{listed}");
    let mut again = |namespace: &str, uri: &Value| {
        let files = json!([{"path": "in/numbers.txt", "artifact": uri}, {"path": "b", "text": "x"}]);
        let code = "wc -l < in/numbers.txt; cat b";
        server.run(json!({"code": code, "language": "shell", "files": files, "namespace": namespace}))
    };
    let done = again("default", &uri);
    assert_eq!(done["stdout"], "100000\nx", "{done}");
    for uri in [&uri, &json!("sandbox://status"), &json!("file:///etc/passwd")] {
        let refused = again("other", uri);
        assert_eq!(refused["code"], "not_found", "{refused}");
    }
    let refused = again("default", &json!("numbers.txt"));
    let hint = text_of(&refused["hint"]);
    assert!(hint.contains("get_artifacts {\"request_id\""), "{refused}");
    let large = json!({"code": "head -c 40M /dev/zero > zeros", "language": "shell"});
    let large = word_after(&server.call("execute_code", large), "\nartifact: ");
    let files = json!([{"path": "a", "artifact": large}, {"path": "b", "artifact": large}]);
    let refused = server.run(json!({"code": "1", "files": files}));
    assert_contains(
        refused.to_string(),
        ["larger than the 25165824 bytes", "of one call"],
    );
}

#[test]
fn ps_logs_and_cancel_reach_every_namespace() {
    let mut server = Server::start();
    let code = "echo begun; echo wrong >&2; sleep 1000";
    let arguments = json!({"code": code, "language": "shell", "background": true, "namespace": "other"});
    let id = text_of(&server.run(arguments)["execution_id"]).to_owned();
    let listed = || json_of(&run_cli(&["ps", "--json"]))["servers"][0]["executions"][0].clone();
    eventually(|| listed()["execution_id"] == json!(id));
    listed().assert_fields(json!({"verdict": "running", "namespace": "other"}));
    let table = cli_stdout(&["ps"]);
    assert!(table.starts_with("EXECUTION "), "{table}");
    assert_contains(&table, [&id, code]);
    assert_eq!(
        cli_json(&["ps", "--namespace", "default"])["servers"][0]["executions"],
        json!([])
    );

    // `logs` prints the output so far; `logs -f` continues to the end.
    eventually(|| run_cli(&["logs", &id]).stdout == b"begun\n");
    assert_eq!(run_cli(&["logs", &id]).stderr, b"wrong\n");
    assert_eq!(cli_json(&["logs", &id])["running"], true);
    let follower = spawn_piped(&mut ringfence(&["logs", "-f", &id]));
    assert_eq!(cli_stdout(&["cancel", &id]), "it is being stopped\n");
    let followed = follower.wait_with_output().unwrap();
    assert!(followed.status.success(), "{followed:?}");
    assert_eq!(
        (stdout_of(&followed), stderr_of(&followed)),
        ("begun\n".into(), "wrong\n".into())
    );
    let ended = cli_json(&["logs", "--follow", &id]);
    ended.assert_fields(json!({"running": false, "stdout": "begun\n"}));
    assert_eq!(listed()["verdict"], "cancelled");
    assert_eq!(cli_json(&["cancel", &id])["cancelled"], false);

    for command in [["logs", "0190b8f0"], ["cancel", "0190b8f0"]] {
        assert_contains(cli_error(&command, 125), ["ringfence ps"]);
    }
}

#[test]
fn history_answers_are_short_by_default() {
    let mut server = Server::start();
    let id = server.execute("shell", "true")["execution_id"].clone();
    for _ in 0..30 {
        server.facts("list_executions", json!({}));
    }
    let none = server.call_ok("get_artifacts", json!({"execution_id": id}));
    none.assert_fields(json!({"artifacts": []}));
    let short = server.call("audit_execution", json!({"limit": 10}));
    let text = short.text();
    assert!(
        text.len() < 2048 && text.contains(" tool.called ok list_executions -\n"),
        "{text}"
    );
    let records = list_of(&short["structuredContent"]["records"]);
    assert!(short["structuredContent"].to_string().len() < 2048, "{short}");
    assert!(
        records.len() == 10 && records.iter().all(|record| record.get("details").is_none()),
        "{short}"
    );
    for _ in 0..30 {
        server.facts("list_executions", json!({}));
    }
    let default = server.facts("audit_execution", json!({}));
    assert_eq!(list_of(&default["records"]).len(), 50);
    assert!(default.to_string().len() < 50 * 205, "{default}");
    let arguments = json!({"detail": true, "limit": 100, "action": "execution."});
    let all = server.facts("audit_execution", arguments);
    all.assert_fields(json!({"records.0.execution_id": id, "records.0.details.exit_code": 0}));
}

#[test]
fn logs_follow_reads_a_long_stream_while_another_server_runs() {
    let mut server = Server::start();
    let _other = Server::start();
    let arguments = json!({
        "code": "seq 300000; sleep 1000", "language": "shell", "background": true,
        "resource_limits": {"max_output_bytes": 4_000_000},
    });
    let begun = server.run(arguments);
    let id = text_of(&begun["execution_id"]).to_owned();
    assert!(
        becomes_true_within(PATIENCE, || run_cli(&["logs", &id]).stdout.len() == 1 << 20),
        "{begun}"
    );
    let mut cancel = ringfence(&["cancel", &id]).stdout(Stdio::null()).spawn().unwrap();
    let followed = run_cli(&["logs", "-f", &id]);
    assert!(cancel.wait().unwrap().success() && followed.status.success());
    let expect: String = (1..=300_000).map(|number| format!("{number}\n")).collect();
    assert!(
        followed.stdout == expect.as_bytes(),
        "{} bytes",
        followed.stdout.len()
    );
}

#[test]
fn each_output_page_has_the_outcome_of_its_program() {
    let mut server = Server::start();
    for (status, success) in [(0, true), (3, false)] {
        let result = server.execute("shell", &format!("seq 20000; exit {status}"));
        for from in [0, 100_000, u64::MAX] {
            let arguments = json!({"execution_id": result["execution_id"], "stdout_from": from});
            let page = server.facts("get_execution", arguments);
            page.assert_fields(json!({"success": success, "exit_code": status, "running": false}));
        }
    }
}

#[test]
fn integer_beyond_64_bits_is_returned_as_decimal_text() {
    let code = "[2**64 + 1, -2**63 - 1, 2**64 - 1, -2**63, 0.5, {'a': 10**30}]";
    let expect = json!([
        "18446744073709551617",
        "-9223372036854775809",
        u64::MAX,
        i64::MIN,
        0.5,
        {"a": "1000000000000000000000000000000"}
    ]);
    let mut server = Server::start();
    assert_eq!(server.execute("python", code)["result"], expect);
    let session = server.create_session(json!({}));
    let answer = server.eval(&session, code);
    assert_eq!(answer["result"], expect, "{answer}");
    // Decimal text is longer than a rounded number: a value that no longer fits is left out, never rounded.
    let long = run_json("python", "[10**20] * 45000", &[]);
    long.assert_fields(json!({"success": true, "result": null}));
}

#[test]
fn structured_content_is_bounded_and_marked_as_truncated() {
    let mut server = Server::start();
    let size = |facts: &Value| facts.to_string().len();
    let small = server.execute("python", "list(range(100))");
    assert_eq!(list_of(&small["result"]).len(), 100);
    assert_eq!(small["truncated"], Value::Null, "{small}");
    let large = server.execute("python", "list(range(100000))");
    large.assert_fields(json!({"result": null, "truncated.result": true}));
    let code =
        "import os\nfor i in range(40): open(f'{i}', 'wb').write(os.urandom(20000))\n{'a': 'x' * 50000}";
    let files = server.execute("python", code);
    files.assert_fields(json!({"truncated.artifacts": true, "artifacts_total": 40}));
    let id = files["execution_id"].clone();
    let wrong = json!(vec!["x".repeat(300); 2000]).to_string();
    let arguments = json!({"data": wrong, "schema_name_or_dict": {"items": {"type": "integer"}}});
    let report = server.facts("validate_json_data", arguments);
    report.assert_fields(json!({"errors_total": 2000, "truncated.errors": true}));
    for facts in [&large, &files, &report] {
        assert!(size(facts) < 4 * 8192, "{} bytes", size(facts));
    }
    // The other artifacts are listed in pages.
    let (mut names, mut from) = (Vec::new(), json!(0));
    while !from.is_null() {
        let page = server.facts("get_artifacts", json!({"request_id": id, "from": from}));
        assert!(size(&page) < 2 * 8192, "{page}");
        names.extend(
            list_of(&page["artifacts"])
                .iter()
                .map(|one| one["name"].to_string()),
        );
        from = page["next_from"].clone();
    }
    names.dedup();
    assert_eq!(names.len(), 40);
}

#[test]
fn uncaptured_output_is_counted_without_a_limit_denial() {
    let mut server = Server::start();
    let arguments = |captured: bool| json!({"code": "print('x' * 2000000)", "capture_output": captured});
    let answer = server.call("execute_code", arguments(false));
    let facts = &answer["structuredContent"];
    facts.assert_fields(json!({"stdout": "", "stdout_bytes": 2_000_001, "denials": []}));
    assert_contains(
        answer.text(),
        ["[stdout has 2000001 bytes and stderr 0, and neither is kept]"],
    );
    let kept = server.run(arguments(true));
    assert_eq!(kept["denials"][0]["rule"], "limit.output", "{kept}");
}

#[test]
fn malformed_request_gets_an_error_that_names_the_fault() {
    let mut server = Server::start();
    let mut check = |method: &str, params: Value, code: i32, part: &str| {
        let error = server.rpc(method, params)["error"].clone();
        assert_eq!(error["code"], code, "{method}: {error}");
        error.assert_text("message", [part]);
        assert!(!error.to_string().contains("s3cret"), "{error}");
    };
    let call = "tools/call";
    check(
        call,
        json!({"name": "execute_code", "arguments": ["s3cret"]}),
        -32602,
        "`arguments` is a list",
    );
    check(
        call,
        json!({"name": "execute_code", "arguments": "s3cret"}),
        -32602,
        "`arguments` is a text",
    );
    check(call, json!({"arguments": {}}), -32602, "`params` has no `name`");
    check(call, json!({"name": 5}), -32602, "`name` is a number");
    check(call, json!(["s3cret"]), -32602, "`params` is not an object");
    check("tools/list", json!({"_meta": "s3cret"}), -32602, "`_meta`");
    check("resources/read", json!({}), -32602, "`uri`");
    check(
        "logging/setLevel",
        json!({"level": "s3cret"}),
        -32602,
        "`level` is not one of debug",
    );
    check("no/such", json!({}), -32601, "there is no method `no/such`");
    // The calls are recorded without a namespace, like every call of an unknown tool.
    let record = cli_json(&["audit", "list", "--action", "tool.called"]);
    let refused = list_of(&record["records"]).iter();
    let refused = refused.filter(|record| record["details"]["code"] == "invalid_argument");
    assert!(refused.count() >= 6, "the calls are on record");
}

#[test]
fn hint_names_only_tools_and_flags_of_its_reader() {
    let code = "import urllib.request\nurllib.request.urlopen('http://example.com')";
    let hint = |facts: &Value| text_of(&facts["denials"][0]["hint"]).to_owned();
    let shown = hint(&Server::start().execute("python", code));
    assert_contains(shown, ["`request_egress {domain: \"example.com\"}`"]);
    let mut few = Server::start_with(&["--toolsets", "execute"]);
    let shown = hint(&few.execute("python", code));
    assert_eq!(
        shown,
        "`request_egress` is for this, and not offered to you; ask the operator."
    );
    let params = json!({"name": "create_session", "arguments": {}});
    let absent = few.rpc("tools/call", params);
    absent.assert_text("error.message", ["not offered to you", "`sessions`"]);
    let shown = run_json("python", code, &[]);
    assert_contains(hint(&shown), ["`run --allow example.com`"]);
    let shown = run_json(
        "python",
        "import time\nwhile True: time.sleep(1)",
        &["--timeout", "1"],
    );
    assert_eq!(hint(&shown), "Use --timeout 2.");
}

#[test]
fn language_refused_by_the_rate_limit_is_available_later() {
    let mut server = Server::with_env([
        ("RINGFENCE_QUEUE_RATE_PER_MINUTE", "20"),
        ("RINGFENCE_QUEUE_RATE_BURST", "1"),
    ]);
    server.run(json!({"code": "1"}));
    let is_available = |runtime: &Value| runtime["available"] == true;
    assert!(!server.runtimes().iter().all(is_available));
    eventually(|| server.runtimes().iter().all(is_available));
}
