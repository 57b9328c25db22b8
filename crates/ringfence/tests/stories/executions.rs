//! What was run is there for whoever has its id: while it runs, after it, and for its own namespace alone.

use crate::client::*;
use std::process::Stdio;

const BEGUN: &str = "echo begun; sleep 1000";

fn background(server: &mut Server, code: &str) -> String {
    let begun = server.run(json!({"code": code, "language": "shell", "background": true}));
    assert_eq!(begun["running"], true, "{begun}");
    text_of(&begun["execution_id"]).to_owned()
}

fn has_begun(server: &mut Server, id: &str) -> bool {
    server.execution(id)["stdout"] == "begun\n"
}

#[test]
fn a_program_in_the_background_is_read_while_it_runs_listed_and_stopped() {
    let mut server = Server::start();
    let id = background(&mut server, BEGUN);
    eventually(|| has_begun(&mut server, &id));
    let so_far = server.facts("get_execution", json!({"execution_id": id, "stdout_from": 6}));
    so_far.shows(json!({"running": true, "stdout": ""}));
    let listed = server.facts("list_executions", json!({}));
    listed.shows(json!({"executions.0.execution_id": id, "executions.0.verdict": "running"}));
    assert_eq!(listed["executions"][0]["first_line"], BEGUN, "{listed}");
    assert_eq!(server.stop(&id)["cancelled"], true);
    let result = server.end_of(&id);
    result.shows(json!({"exit.kind": "cancelled", "stdout": "begun\n"}));
    let again = server.stop(&id);
    again.shows(json!({"cancelled": false, "existed": true}));
    // One of another namespace is not there.
    let id = background(&mut server, BEGUN);
    eventually(|| has_begun(&mut server, &id));
    let random = "0190b8f0-5c1e-7000-8000-00000000abcd";
    let theirs = server.call("get_execution", json!({"execution_id": id, "namespace": "other"}));
    assert_eq!(theirs["isError"], true, "{theirs}");
    let asked = json!({"execution_id": random, "namespace": "other"});
    let never = server.call("get_execution", asked);
    assert_eq!(theirs["content"], never["content"], "it is told apart from none");
    let asked = json!({"execution_id": id, "namespace": "other"});
    let cancel = server.facts("cancel_execution", asked);
    cancel.shows(json!({"cancelled": false, "existed": false}));
    let listed = server.facts("list_executions", json!({"namespace": "other"}));
    assert_eq!(listed["executions"], json!([]), "{listed}");
    assert!(has_begun(&mut server, &id));
    server.stop(&id);
    server.end_of(&id);
    // A refusal comes as it was.
    let begun = server.run(json!({"code": "1", "secrets": ["NO_SUCH_SECRET"], "background": true}));
    let id = begun["execution_id"].clone();
    let wish = json!({"execution_id": id, "wait_seconds": 25});
    server.refuses("get_execution", wish, "secret_unavailable");
}

#[test]
fn a_result_whose_call_was_cut_off_is_found_and_read_in_pages() {
    let mut server = Server::start();
    let call = server.send_run(json!({"code": BEGUN, "language": "shell"}));
    eventually(|| server.newest()["verdict"] == "running");
    server.cancel(call);
    eventually(|| server.newest()["verdict"] != "running");
    assert_ne!(server.newest()["verdict"], "ok");

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
    // The rest begins where the beginning ends.
    let rest = server.facts("get_execution", serde_json::from_str(next).unwrap());
    assert!(
        all[before.len() + 1..].starts_with(text_of(&rest["stdout"])),
        "{next}"
    );
    let mut whole = server.execution(id);
    let mut lines = lines.clone();
    for result in [&mut whole, &mut lines] {
        result["isolation"] = json!(null);
    }
    assert_eq!(whole, lines);
}

/// What stands behind `before` in the text of an answer, up to a blank.
fn behind(answer: &Value, before: &str) -> Value {
    let text = answer.text();
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("{text}"));
    json!(rest.split_whitespace().next())
}

#[test]
fn an_artifact_is_a_file_of_a_later_program_of_its_namespace() {
    let mut server = Server::start();
    let code = "seq 100000 > $'numbers\\nrefused: all'";
    let left = server.call("execute_code", json!({"code": code, "language": "shell"}));
    let uri = behind(&left, "\nartifact: ");
    assert!(!left.text().contains("\nrefused: "), "{left}");
    let id = behind(&left, "\nexecution_id: ");
    let listed = server.call("get_artifacts", json!({"request_id": id}));
    assert_eq!(behind(&listed, ""), uri, "{listed}");
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
}

#[test]
fn an_operator_lists_follows_and_cancels_programs_of_every_namespace() {
    let mut server = Server::start();
    let code = "echo begun; echo wrong >&2; sleep 1000";
    let asked = json!({"code": code, "language": "shell", "background": true, "namespace": "other"});
    let id = text_of(&server.run(asked)["execution_id"]).to_owned();
    let listed = || json_of(&said(&["ps", "--json"]))["servers"][0]["executions"][0].clone();
    eventually(|| listed()["execution_id"] == json!(id));
    listed().shows(json!({"verdict": "running", "namespace": "other"}));
    let table = told(&["ps"]);
    assert!(table.starts_with("EXECUTION "), "{table}");
    assert_contains(&table, [&id, code]);
    assert_eq!(
        told_json(&["ps", "--namespace", "default"])["servers"][0]["executions"],
        json!([])
    );

    // What it has written so far comes without an end; what is followed comes with it.
    eventually(|| said(&["logs", &id]).stdout == b"begun\n");
    assert_eq!(said(&["logs", &id]).stderr, b"wrong\n");
    assert_eq!(told_json(&["logs", &id])["running"], true);
    let follower = start(&mut ringfence(&["logs", "-f", &id]));
    assert_eq!(told(&["cancel", &id]), "it is being stopped\n");
    let followed = follower.wait_with_output().unwrap();
    assert!(followed.status.success(), "{followed:?}");
    assert_eq!(
        (stdout_of(&followed), stderr_of(&followed)),
        ("begun\n".into(), "wrong\n".into())
    );
    let ended = told_json(&["logs", "--follow", &id]);
    ended.shows(json!({"running": false, "stdout": "begun\n"}));
    assert_eq!(listed()["verdict"], "cancelled");
    assert_eq!(told_json(&["cancel", &id])["cancelled"], false);

    for words in [["logs", "0190b8f0"], ["cancel", "0190b8f0"]] {
        assert_contains(refused(&words, 125), ["ringfence ps"]);
    }
}

#[test]
fn what_looks_back_is_short_until_more_is_asked_for() {
    let mut server = Server::start();
    let id = server.execute("shell", "true")["execution_id"].clone();
    for _ in 0..30 {
        server.facts("list_executions", json!({}));
    }
    let none = server.succeeds("get_artifacts", json!({"execution_id": id}));
    none.shows(json!({"artifacts": []}));
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
    let asked = json!({"detail": true, "limit": 100, "action": "execution."});
    let all = server.facts("audit_execution", asked);
    all.shows(json!({"records.0.execution_id": id, "records.0.details.exit_code": 0}));
}

#[test]
fn a_long_stream_is_followed_to_its_end_beside_another_server() {
    let mut server = Server::start();
    let _other = Server::start();
    let asked = json!({
        "code": "seq 300000; sleep 1000", "language": "shell", "background": true,
        "resource_limits": {"max_output_bytes": 4_000_000},
    });
    let begun = server.run(asked);
    let id = text_of(&begun["execution_id"]).to_owned();
    assert!(
        within(PATIENCE, || said(&["logs", &id]).stdout.len() == 1 << 20),
        "{begun}"
    );
    let mut cancel = ringfence(&["cancel", &id]).stdout(Stdio::null()).spawn().unwrap();
    let followed = said(&["logs", "-f", &id]);
    assert!(cancel.wait().unwrap().success() && followed.status.success());
    let expect: String = (1..=300_000).map(|number| format!("{number}\n")).collect();
    assert!(
        followed.stdout == expect.as_bytes(),
        "{} bytes",
        followed.stdout.len()
    );
}

#[test]
fn what_became_of_a_program_is_said_with_each_page_of_its_output() {
    let mut server = Server::start();
    for (status, success) in [(0, true), (3, false)] {
        let result = server.execute("shell", &format!("seq 20000; exit {status}"));
        for from in [0, 100_000, u64::MAX] {
            let asked = json!({"execution_id": result["execution_id"], "stdout_from": from});
            let page = server.facts("get_execution", asked);
            page.shows(json!({"success": success, "exit_code": status, "running": false}));
        }
    }
}

#[test]
fn an_integer_beyond_64_bits_is_told_as_its_digits() {
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
    let session = server.create(json!({}));
    let told = server.eval(&session, code);
    assert_eq!(told["result"], expect, "{told}");
    // Digits are longer than a rounded number would be: what no longer fits is left out, never rounded.
    let long = run_json("python", "[10**20] * 45000", &[]);
    long.shows(json!({"success": true, "result": null}));
}

#[test]
fn what_a_structured_answer_repeats_has_a_bound_and_is_said_to_be_cut() {
    let mut server = Server::start();
    let size = |facts: &Value| facts.to_string().len();
    let small = server.execute("python", "list(range(100))");
    assert_eq!(list_of(&small["result"]).len(), 100);
    assert_eq!(small["truncated"], Value::Null, "{small}");
    let large = server.execute("python", "list(range(100000))");
    large.shows(json!({"result": null, "truncated.result": true}));
    let code =
        "import os\nfor i in range(40): open(f'{i}', 'wb').write(os.urandom(20000))\n{'a': 'x' * 50000}";
    let files = server.execute("python", code);
    files.shows(json!({"truncated.artifacts": true, "artifacts_total": 40}));
    let id = files["execution_id"].clone();
    let wrong = json!(vec!["x".repeat(300); 2000]).to_string();
    let asked = json!({"data": wrong, "schema_name_or_dict": {"items": {"type": "integer"}}});
    let report = server.facts("validate_json_data", asked);
    report.shows(json!({"errors_total": 2000, "truncated.errors": true}));
    for facts in [&large, &files, &report] {
        assert!(size(facts) < 4 * 8192, "{} bytes", size(facts));
    }
    // The rest of the files is told in pages.
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
fn output_that_is_not_wanted_is_counted_and_no_limit_is_blamed() {
    let mut server = Server::start();
    let asked = |captured: bool| json!({"code": "print('x' * 2000000)", "capture_output": captured});
    let answer = server.call("execute_code", asked(false));
    let facts = &answer["structuredContent"];
    facts.shows(json!({"stdout": "", "stdout_bytes": 2_000_001, "denials": []}));
    assert_contains(
        answer.text(),
        ["[stdout has 2000001 bytes and stderr 0, and neither is kept]"],
    );
    let kept = server.run(asked(true));
    assert_eq!(kept["denials"][0]["rule"], "limit.output", "{kept}");
}

#[test]
fn a_request_of_a_wrong_form_is_told_what_is_wrong_with_it() {
    let mut server = Server::start();
    let mut check = |method: &str, params: Value, code: i32, part: &str| {
        let error = server.ask(method, params)["error"].clone();
        assert_eq!(error["code"], code, "{method}: {error}");
        error.says("message", [part]);
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
    // Of no namespace, as every call whose tool is not known.
    let record = told_json(&["audit", "list", "--action", "tool.called"]);
    let refused = list_of(&record["records"]).iter();
    let refused = refused.filter(|record| record["details"]["code"] == "invalid_argument");
    assert!(refused.count() >= 6, "the calls are on record");
}

#[test]
fn a_hint_names_what_its_reader_has() {
    let code = "import urllib.request\nurllib.request.urlopen('http://example.com')";
    let hint = |facts: &Value| text_of(&facts["denials"][0]["hint"]).to_owned();
    let told = hint(&Server::start().execute("python", code));
    assert_contains(told, ["`request_egress {domain: \"example.com\"}`"]);
    let mut few = Server::start_with(&["--toolsets", "execute"]);
    let told = hint(&few.execute("python", code));
    assert_eq!(
        told,
        "`request_egress` is for this, and not offered to you; ask the operator."
    );
    let asked = json!({"name": "create_session", "arguments": {}});
    let absent = few.ask("tools/call", asked);
    absent.says("error.message", ["not offered to you", "`sessions`"]);
    let told = run_json("python", code, &[]);
    assert_contains(hint(&told), ["`run --allow example.com`"]);
    let told = run_json(
        "python",
        "import time\nwhile True: time.sleep(1)",
        &["--timeout", "1"],
    );
    assert_eq!(hint(&told), "Use --timeout 2.");
}
