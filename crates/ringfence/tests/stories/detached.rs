//! A call that takes long is answered before its client gives up, and its program runs on: what it prints, how it ends
//! and how it is stopped are there for later calls, and all of it is on record.

use crate::client::{
    Server, assert_contains, assert_facts, assert_gone, eventually, facts_of, json_of, list_of,
    processes_with, ringfence, said, serve_with, signal, start, status_of, stderr_of, text_of, within,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    io::Read as _,
    time::{Duration, Instant},
};

const AT_ONCE: &str = "calls: {detach_after_seconds: 0.3}";

/// A program that writes a word to each stream, waits for the file `go` in its namespace's workspace, and writes more.
fn waiting() -> Value {
    let code =
        "echo first; echo wrong >&2; until [ -e go ]; do sleep 0.02; done; echo last; echo again >&2; exit 3";
    json!({"code": code, "language": "shell", "workspace": "namespace"})
}

fn release(server: &mut Server) {
    server.succeeds("put_file", json!({"path": "go", "text": ""}));
}

#[track_caller]
fn detached(answer: &Value) -> String {
    assert_facts(answer, json!({"success": true, "running": true}));
    text_of(&answer["execution_id"]).to_owned()
}

/// What a detached call has told of both streams, and then what more comes, until it is this.
#[track_caller]
fn told_until(server: &mut Server, answer: &Value, wanted: [&str; 2]) {
    let mut told = [String::new(), String::new()];
    let mut facts = answer.clone();
    eventually(|| {
        for (told, name) in told.iter_mut().zip(["stdout", "stderr"]) {
            told.push_str(text_of(&facts[name]));
            assert_eq!(facts[format!("{name}_next")], json!(told.len()), "{facts}");
        }
        let is_all = told.iter().zip(wanted).all(|(told, wanted)| told == wanted);
        if !is_all {
            let asked = json!({
                "execution_id": answer["execution_id"], "stdout_from": told[0].len(), "stderr_from": told[1].len(),
            });
            facts = server.facts("get_execution", asked);
        }
        is_all
    });
}

/// What `get_execution` says at the end.
fn end_of(server: &mut Server, id: &str) -> Value {
    loop {
        let facts = server.facts("get_execution", json!({"execution_id": id, "wait_seconds": 25}));
        if facts["running"] != true {
            return facts;
        }
    }
}

fn has_ended(server: &mut Server) -> bool {
    server.child.try_wait().unwrap().is_some()
}

/// Records of executions with this outcome.
fn executions_on_record(outcome: &str) -> Vec<Value> {
    let words = [
        "audit",
        "list",
        "--action",
        "execution.",
        "--outcome",
        outcome,
        "--limit",
        "1000",
        "--json",
    ];
    let all = json_of(&said(&words));
    list_of(&all["records"]).to_vec()
}

/// Whatever was begun has ended.
#[track_caller]
fn assert_nothing_is_open_on_record() {
    for outcome in ["pending", "lost"] {
        assert_eq!(executions_on_record(outcome), Vec::<Value>::new(), "{outcome}");
    }
    assert!(said(&["audit", "verify"]).status.success());
}

#[test]
fn a_call_that_takes_long_is_detached_and_the_rest_is_read_from_where_it_was_told() {
    let mut server = Server::with(AT_ONCE);
    let answer = server.call("execute_code", waiting());
    let facts = facts_of(&answer);
    let id = detached(&facts);
    // The call that reads the rest stands in the answer.
    let text = text_of(&answer["content"][0]["text"]);
    assert_contains(text, ["running for ", &id, text_of(&facts["stdout"])]);
    let (_, next) = text.split_once("next: get_execution ").unwrap();
    let mut rest: Value = serde_json::from_str(next.trim()).unwrap();
    assert_facts(
        &rest,
        json!({
            "execution_id": id, "stdout_from": facts["stdout_next"], "stderr_from": facts["stderr_next"],
            "wait_seconds": 25,
        }),
    );
    told_until(&mut server, &facts, ["first\n", "wrong\n"]);
    (rest["stdout_from"], rest["stderr_from"]) = (json!(6), json!(6));
    assert_eq!(executions_on_record("pending").len(), 1, "the control");
    rest["wait_seconds"] = json!(0);
    let nothing_new = server.facts("get_execution", rest.clone());
    assert_facts(
        &nothing_new,
        json!({"running": true, "stdout": "", "stderr": "", "stdout_next": 6}),
    );
    release(&mut server);
    rest["wait_seconds"] = json!(25);
    let ended = server.call("get_execution", rest);
    assert_facts(
        &facts_of(&ended),
        json!({
            "running": false, "success": false, "exit_code": 3, "stdout": "last\n", "stderr": "again\n",
            "stdout_bytes": 11, "execution_id": id,
        }),
    );
    let text = text_of(&ended["content"][0]["text"]);
    assert_contains(text, ["failed with exit code 3", "last", "again"]);
    assert!(!text.contains("first"), "{text}");
    let one = server.facts("get_execution", json!({"execution_id": id, "stderr_from": 8}));
    assert_facts(&one, json!({"stderr": "ain\n", "stdout": null, "exit_code": 3}));
    let all = server.facts("get_execution", json!({"execution_id": id}));
    assert_facts(
        &all,
        json!({"stdout": "first\nlast\n", "stderr": "wrong\nagain\n", "exit_code": 3}),
    );
    assert_nothing_is_open_on_record();
}

#[test]
fn a_call_says_itself_when_it_is_detached_or_that_it_never_is() {
    let mut server = Server::with(AT_ONCE);
    let quick = json!({"code": "echo done", "language": "shell", "detach_after_seconds": 60});
    assert_facts(
        &server.facts("execute_code", quick),
        json!({"stdout": "done\n", "running": null}),
    );
    let mut patient = waiting();
    patient["detach_after_seconds"] = json!(0);
    let call = server.send_call("execute_code", patient);
    let listed = |server: &mut Server| server.facts("list_executions", json!({}))["executions"][0].clone();
    eventually(|| listed(&mut server)["duration_ms"].as_u64().unwrap() > 600);
    assert_eq!(listed(&mut server)["verdict"], "running");
    release(&mut server);
    assert_facts(
        &server.result(call),
        json!({"stdout": "first\nlast\n", "exit_code": 3}),
    );

    let mut server = Server::start();
    let mut early = json!({"code": "echo begun; sleep 1000", "language": "shell", "detach_after": 0.2});
    let begun = Instant::now();
    let id = detached(&server.facts("execute_code", early.clone()));
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(
        server.facts("cancel_execution", json!({"execution_id": id}))["cancelled"],
        true
    );
    assert_eq!(end_of(&mut server, &id)["exit"]["kind"], "cancelled");
    for (seconds, part) in [(-1.0, "outside 0..=86400"), (1e9, "outside 0..=86400")] {
        early["detach_after"] = json!(seconds);
        let refused = server.refuses("execute_code", early.clone(), "invalid_argument");
        assert_contains(text_of(&refused["message"]), [part]);
    }
    early["detach_after"] = json!(1);
    early["background"] = json!(true);
    server.refuses("execute_code", early, "invalid_argument");
    for seconds in [25.1, -0.1, f64::MAX] {
        let asked = json!({"execution_id": id, "wait_seconds": seconds});
        let refused = server.refuses("get_execution", asked, "invalid_argument");
        assert_contains(text_of(&refused["message"]), ["outside 0..=25"]);
    }
}

#[test]
fn a_server_that_keeps_no_results_detaches_no_call() {
    let mut server = Server::with("results: {memory_mb: 0}\nlimits: {timeout_seconds: 1}");
    let asked = json!({"code": "sleep 1000", "language": "shell", "detach_after_seconds": 0.1});
    let refused = server.refuses("execute_code", asked, "unsupported_argument");
    assert_contains(text_of(&refused["hint"]), ["results.memory_mb"]);
    let asked = json!({"code": "sleep 1000", "language": "shell", "detach_after_seconds": 0});
    assert_eq!(server.facts("execute_code", asked)["exit"]["kind"], "timeout");
    for setting in [
        "detach_after_seconds: 7",
        "on_cancel: detach",
        "on_disconnect: detach",
    ] {
        let yaml = format!("results: {{memory_mb: 0}}\ncalls: {{{setting}}}");
        let refused = serve_with(&yaml)
            .stderr(std::process::Stdio::piped())
            .output()
            .unwrap();
        let text = stderr_of(&refused);
        assert!(!refused.status.success(), "{setting}");
        assert_contains(&text, ["calls.", "config.yaml:2", "results.memory_mb = 0"]);
    }
}

#[test]
fn a_call_of_a_session_is_detached_and_the_next_has_its_turn_after_it() {
    let mut server = Server::with(AT_ONCE);
    let session = server.create(json!({"language": "shell", "workspace": "namespace"}));
    let code = "x=1; echo begun; until [ -e go ]; do sleep 0.02; done; x=2";
    let id = detached(&server.facts("execute_code", json!({"code": code, "session_id": session})));
    let next = json!({"code": "echo $x", "session_id": session, "detach_after_seconds": 0});
    let next = server.send_call("execute_code", next);
    // One that waits for its turn is detached as well.
    let waits = json!({"code": "echo then", "session_id": session});
    let waits = detached(&server.facts("execute_code", waits));
    for (id, stdout) in [(&id, "begun\n"), (&waits, "")] {
        let so_far = server.facts("get_execution", json!({"execution_id": id}));
        assert_eq!(so_far["running"], true, "{so_far}");
        told_until(&mut server, &so_far, [stdout, ""]);
    }
    release(&mut server);
    assert_facts(
        &end_of(&mut server, &id),
        json!({"success": true, "session_id": session}),
    );
    assert_facts(&server.result(next), json!({"stdout": "2\n"}));
    assert_facts(
        &end_of(&mut server, &waits),
        json!({"stdout": "then\n", "session_id": session}),
    );

    // What is interrupted keeps its session.
    let endless = json!({"code": "while :; do sleep 0.02; done", "session_id": session});
    let id = detached(&server.facts("execute_code", endless));
    assert_eq!(
        server.facts("interrupt_session", json!({"session_id": session}))["interrupted"],
        true
    );
    assert_eq!(end_of(&mut server, &id)["success"], false);
    let kept = server.facts("execute_code", json!({"code": "echo $x", "session_id": session}));
    assert_eq!(kept["stdout"], "2\n", "{kept}");
    assert_nothing_is_open_on_record();
}

#[test]
fn a_cancelled_call_is_detached_where_the_operator_says_so() {
    let mut server = Server::with("calls: {on_cancel: detach}");
    let call = server.send_call("execute_code", waiting());
    let listed = |server: &mut Server| server.facts("list_executions", json!({}))["executions"][0].clone();
    eventually(|| listed(&mut server)["verdict"] == "running");
    server.cancel(call);
    let id = listed(&mut server)["execution_id"].clone();
    release(&mut server);
    let result = end_of(&mut server, text_of(&id));
    assert_facts(
        &result,
        json!({"stdout": "first\nlast\n", "exit.kind": "code", "exit_code": 3}),
    );
    assert_nothing_is_open_on_record();
}

#[test]
fn programs_of_a_client_that_is_gone_run_to_their_end_where_the_operator_says_so() {
    let mut server = Server::with("calls: {on_disconnect: detach}");
    let mut asked = waiting();
    asked["code"] = json!(format!(
        "{}; echo kept > left.txt",
        text_of(&asked["code"]).replace("; exit 3", "")
    ));
    server.send_call("execute_code", asked);
    let running = || {
        let listed = json_of(&said(&["ps", "--json"]));
        listed["servers"][0]["executions"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    eventually(|| running().first().is_some_and(|one| one["verdict"] == "running"));
    let id = text_of(&running()[0]["execution_id"]).to_owned();
    eventually(|| said(&["logs", &id]).stdout == b"first\n");
    server.hang_up();
    // The operator still reaches it, and lets it go on.
    let mut follower = start(&mut ringfence(&["logs", "-f", &id]));
    let mut followed = follower.stdout.take().unwrap();
    let mut first = [0; 6];
    followed.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"first\n");
    assert!(!has_ended(&mut server));
    fs::write(crate::client::state_dir().join("workspaces/default/go"), "").unwrap();
    let mut rest = String::new();
    followed.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "last\n");
    assert!(follower.wait().unwrap().success());
    eventually(|| has_ended(&mut server));
    assert!(server.child.wait().unwrap().success());
    assert_eq!(executions_on_record("ok").len(), 1);
    assert_nothing_is_open_on_record();
}

#[test]
fn a_server_that_outlives_its_client_is_stopped_by_a_signal() {
    let mut server = Server::with("calls: {on_disconnect: detach}");
    let asked = json!({"code": "sleep 151.7172", "language": "shell", "background": true});
    server.facts("execute_code", asked);
    eventually(|| !processes_with("151.7172").is_empty());
    server.hang_up();
    assert!(!within(Duration::from_millis(1500), || has_ended(&mut server)));
    signal(server.child.id(), Signal::TERM);
    assert_gone("151.7172");
    eventually(|| has_ended(&mut server));
    assert_nothing_is_open_on_record();
}

/// claim: [RES-11]
#[test]
fn detached_programs_end_with_their_server_and_none_of_them_is_lost_on_record() {
    let mut server = Server::with("calls: {detach_after_seconds: 0.05}");
    let mut ids = BTreeSet::new();
    for code in [
        "sleep 161.8033",
        "yes 161.8033",
        "trap '' TERM INT; sleep 161.8033",
    ] {
        for number in 0..3 {
            // Busy processors delay only namespaces that run something.
            let namespace = format!("n{number}-{}", code.len());
            let asked = json!({"code": code, "language": "shell", "namespace": namespace});
            ids.insert(detached(&server.facts("execute_code", asked)));
        }
    }
    eventually(|| processes_with("161.8033").len() >= 9);
    assert_eq!(executions_on_record("pending").len(), 9, "the control");
    signal(server.child.id(), Signal::TERM);
    assert_gone("161.8033");
    eventually(|| has_ended(&mut server));
    assert_nothing_is_open_on_record();
    let ended = executions_on_record("failed");
    let ended: BTreeSet<String> = ended
        .iter()
        .map(|record| text_of(&record["execution_id"]).to_owned())
        .collect();
    assert_eq!(ended, ids);
}

#[test]
fn a_caller_who_asks_for_progress_hears_something_while_nothing_is_printed() {
    let mut server = Server::start();
    let code = "echo begun; until [ -e go ]; do sleep 0.05; done; echo last";
    let arguments = json!({"code": code, "language": "shell", "workspace": "namespace"});
    let params = json!({"name": "execute_code", "arguments": arguments, "_meta": {"progressToken": 7}});
    let call = server.send("tools/call", params);
    let mut told = Vec::new();
    while !told
        .iter()
        .any(|one: &Value| text_of(&one["message"]).contains("nothing new"))
    {
        let message = server.hear("notifications/progress");
        assert_eq!(message["params"]["progressToken"], 7, "{message}");
        told.push(message["params"].clone());
    }
    let beat = told.last().unwrap()["progress"].as_f64().unwrap();
    assert!(beat >= 15.0, "{told:?}");
    let put = server.send_call("put_file", json!({"path": "go", "text": ""}));
    let (answer, rest) = server.await_answer(call);
    assert_eq!(server.result(put)["success"], true);
    assert_facts(&facts_of(&answer["result"]), json!({"stdout": "begun\nlast\n"}));
    told.extend(rest.iter().map(|one| one["params"].clone()));
    let values: Vec<f64> = told.iter().map(|one| one["progress"].as_f64().unwrap()).collect();
    assert!(
        values.is_sorted_by(|one, next| one < next) && values.len() >= 3,
        "{values:?}"
    );
    // One without a token hears nothing.
    let (_, quiet) = {
        let call = server.send_call("execute_code", json!({"code": "echo 1", "language": "shell"}));
        server.await_answer(call)
    };
    assert_eq!(quiet, Vec::<Value>::new());
}

/// claim: [RES-11]
#[test]
fn a_detached_program_that_floods_is_told_within_bounds_and_fills_no_memory() {
    let mut server = Server::with("calls: {detach_after_seconds: 0.3}\ntext_max: 1024");
    let flood =
        "head -c 5 /dev/zero; (yes wrong >&2 &); while :; do printf 'é\\0\\377'; printf '%*s\\n' 5000; done";
    let ids: Vec<String> = (0..3)
        .map(|_| {
            let answer = server.call("execute_code", json!({"code": flood, "language": "shell"}));
            assert!(text_of(&answer["content"][0]["text"]).len() <= 1024, "{answer}");
            detached(&facts_of(&answer))
        })
        .collect();
    let is_full = |id: &String| said(&["logs", id]).stdout.len() > 1 << 20;
    // What can be read while it runs has its end, and offsets past all bounds are none.
    for id in &ids {
        eventually(|| is_full(id));
        for from in [json!(0), json!(1_u64 << 20), json!(9_007_199_254_740_991_u64)] {
            let asked = json!({"execution_id": id, "stdout_from": from, "stderr_from": from});
            let answer = server.call("get_execution", asked);
            assert!(text_of(&answer["content"][0]["text"]).len() <= 1024, "{answer}");
            assert!(answer["structuredContent"]["stdout_next"].as_u64().unwrap() <= 4 << 20);
        }
    }
    // 2 streams of 1 MiB, and as much again that is kept for the result, for each of three.
    let resident = status_of(server.child.id(), "VmRSS");
    assert!(resident < 200 << 10, "{resident} KiB");
    for id in &ids {
        server.facts("cancel_execution", json!({"execution_id": id}));
        let result = end_of(&mut server, id);
        assert_eq!(result["exit"]["kind"], "cancelled", "{result}");
        // From page to page nothing is lost or told twice.
        let (mut read, mut from) = (String::new(), json!(0));
        while !from.is_null() && read.len() < 20_000 {
            let page = server.facts("get_execution", json!({"execution_id": id, "stdout_from": from}));
            read += text_of(&page["stdout"]);
            from = page["stdout_next"].clone();
        }
        let line = format!("é\0\u{fffd}{}\n", " ".repeat(5000));
        let expect = format!("{}{}", "\0".repeat(5), line.repeat(5));
        assert!(expect.starts_with(&read[..20_000]));
    }
}

/// claim: [RES-11]
#[test]
fn a_client_that_does_not_read_holds_no_detached_program_up() {
    let mut server = Server::with(AT_ONCE);
    let arguments = json!({"code": "yes | head -c 300000000; sleep 1", "language": "shell"});
    let params = json!({"name": "execute_code", "arguments": arguments, "_meta": {"progressToken": 1}});
    server.send("tools/call", params);
    let verdict = || {
        let listed = json_of(&said(&["ps", "--json"]));
        listed["servers"][0]["executions"][0]["verdict"].clone()
    };
    eventually(|| verdict() == "ok");
    server.leaves();
    assert_nothing_is_open_on_record();
}

/// claim: [RES-11]
#[test]
fn of_output_that_is_too_long_to_be_kept_the_beginning_is() {
    let mut server = Server::with("results: {memory_mb: 1}");
    let asked = json!({"code": "yes | head -c 900000", "language": "shell"});
    let id = server.facts("execute_code", asked)["execution_id"].clone();
    let kept = (1 << 20) / 8;
    let asked = json!({"execution_id": id, "stdout_from": kept - 100});
    let rest = server.facts("get_execution", asked);
    assert_facts(
        &rest,
        json!({"stdout": "y\n".repeat(50), "stdout_next": null, "stdout_bytes": 900_000, "truncated.stdout": true}),
    );
    let text = server.call("get_execution", json!({"execution_id": id}));
    let note = format!("[stdout has 900000 bytes, of which the first {kept} are kept]");
    assert_contains(text_of(&text["content"][0]["text"]), [&note]);
}

#[test]
fn what_was_told_of_a_character_cut_in_two_is_told_once() {
    let mut server = Server::with(AT_ONCE);
    let code = "printf 'a\\303'; until [ -e go ]; do sleep 0.02; done; printf '\\251z'";
    let asked = json!({"code": code, "language": "shell", "workspace": "namespace"});
    let begun = server.facts("execute_code", asked);
    let id = detached(&begun);
    told_until(&mut server, &begun, ["a", ""]);
    release(&mut server);
    let rest = json!({"execution_id": id, "stdout_from": 1, "wait_seconds": 25});
    assert_facts(
        &server.facts("get_execution", rest),
        json!({"stdout": "éz", "running": false}),
    );
}

/// claim: [RES-11]
#[test]
fn a_detached_execution_is_not_there_for_another_namespace() {
    let mut server = Server::with(AT_ONCE);
    let id = detached(&server.facts("execute_code", waiting()));
    let asked = json!({"execution_id": id, "namespace": "other", "wait_seconds": 25, "stdout_from": 0});
    let begun = Instant::now();
    server.refuses("get_execution", asked, "not_found");
    assert!(begun.elapsed() < Duration::from_secs(10), "it waits for nothing");
    let cancel = server.facts(
        "cancel_execution",
        json!({"execution_id": id, "namespace": "other"}),
    );
    assert_facts(&cancel, json!({"cancelled": false, "existed": false}));
    release(&mut server);
    assert_eq!(end_of(&mut server, &id)["exit_code"], 3);
    server.refuses(
        "get_execution",
        json!({"execution_id": id, "namespace": "other"}),
        "not_found",
    );
}

/// Wherever in its life a program is detached or stopped: it has one end, which is found and on record.
///
/// claim: [RES-11]
#[test]
fn detaching_and_cancelling_race_the_end_of_a_program() {
    const ROUNDS: u32 = 60;
    let mut server = Server::start();
    let (mut whole, mut apart, mut stopped) = (0, 0, 0);
    for round in 0..ROUNDS {
        let code = format!("echo {round}");
        // Around the time that such a program takes.
        let after = 0.0005 * f64::from(round % 20 + 1);
        let asked = json!({"code": code, "language": "shell", "detach_after_seconds": after});
        let answer = server.facts("execute_code", asked);
        let result = if answer["running"] == true {
            apart += 1;
            end_of(&mut server, text_of(&answer["execution_id"]))
        } else {
            whole += 1;
            answer
        };
        assert_facts(
            &result,
            json!({"success": true, "stdout": format!("{round}\n"), "exit_code": 0}),
        );
        let asked = json!({"code": code, "language": "shell", "background": true});
        let id = text_of(&server.facts("execute_code", asked)["execution_id"]).to_owned();
        std::thread::sleep(Duration::from_micros(u64::from(round % 20) * 500));
        let cancelled = server.facts("cancel_execution", json!({"execution_id": id}));
        assert_eq!(cancelled["existed"], true);
        let result = end_of(&mut server, &id);
        if result["success"] == true {
            assert_eq!(result["stdout"], format!("{round}\n"));
        } else {
            // A request that has not begun is refused instead.
            stopped += 1;
            assert!(
                result["exit"]["kind"] == "cancelled" || result["code"] == "cancelled",
                "{result}"
            );
            assert_eq!(cancelled["cancelled"], true, "{result}");
        }
    }
    println!("{whole} answered whole, {apart} detached, {stopped} stopped before their end");
    assert!(whole + apart == ROUNDS && apart > 0 && stopped > 0);
    server.leaves();
    assert_nothing_is_open_on_record();
}

/// claim: [RES-11]
#[test]
fn a_client_that_detaches_ten_thousand_calls_is_bounded_and_keeps_nobody_out() {
    const CALLS: usize = 10_000;
    let mut server = Server::with(
        "calls: {detach_after_seconds: 0.001}\nresults: {memory_mb: 1}\nqueue: {concurrency: 8, waiting: 32}",
    );
    let (mut running, mut busy, mut sent) = (0, 0, 0);
    // No more at once than a client has on its way.
    while sent < CALLS {
        let asked = json!({"code": "sleep 171.1828", "language": "shell"});
        let ids: Vec<u64> = (0..100)
            .map(|_| server.send_call("execute_code", asked.clone()))
            .collect();
        for (_, facts) in server.await_all(&ids) {
            match text_of(facts.get("code").unwrap_or(&json!(""))) {
                "busy" => busy += 1,
                "" => {
                    detached(&facts);
                    running += 1;
                }
                _ => panic!("{facts}"),
            }
        }
        sent += 100;
    }
    println!("{running} detached, {busy} busy");
    assert!(running >= 8 && running + busy == CALLS);
    assert!(processes_with("171.1828").len() <= 8 * 3);
    let listed = server.facts("list_executions", json!({"limit": 1000}));
    let listed = list_of(&listed["executions"]).len();
    assert!(listed <= 1000, "{listed}");
    let kept = json_of(&said(&["ps", "-n", "20000", "--json"]));
    let kept = list_of(&kept["servers"][0]["executions"]).len();
    assert!(kept <= 1024 + 40, "a result takes 1 KiB or more: {kept}");
    let resident = status_of(server.child.id(), "VmRSS");
    assert!(resident < 300 << 10, "{resident} KiB");
    // Another namespace has a place.
    let asked =
        json!({"code": "echo here", "language": "shell", "namespace": "other", "detach_after_seconds": 0});
    assert_eq!(server.facts("execute_code", asked)["stdout"], "here\n");
    server.leaves();
    assert_gone("171.1828");
    assert_nothing_is_open_on_record();
}
