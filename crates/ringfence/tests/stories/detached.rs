//! A call that takes long is answered before its client gives up, and its program runs on: what it prints, how it ends
//! and how it is stopped are there for later calls, and all of it is on record.

use crate::client::*;
use rustix::process::Signal;
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
    answer.shows(json!({"success": true, "running": true}));
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

fn has_ended(server: &mut Server) -> bool {
    server.child.try_wait().unwrap().is_some()
}

/// The first execution that `ringfence ps` shows; null while no server listens.
fn listed_by_operator() -> Value {
    json_of(&said(&["ps", "--json"]))["servers"][0]["executions"][0].clone()
}

/// Records of executions with this outcome.
fn executions_on_record(outcome: &str) -> Vec<Value> {
    let words = ["audit", "list", "--action", "execution.", "--limit", "1000"];
    let all = told_json(&[&words[..], &["--outcome", outcome]].concat());
    list_of(&all["records"]).to_vec()
}

/// Whatever was begun has ended.
#[track_caller]
fn assert_nothing_is_open_on_record() {
    for outcome in ["pending", "lost"] {
        assert_eq!(executions_on_record(outcome), Vec::<Value>::new(), "{outcome}");
    }
    told(&["audit", "verify"]);
}

#[test]
fn a_call_that_takes_long_is_detached_and_the_rest_is_read_from_where_it_was_told() {
    let mut server = Server::with(AT_ONCE);
    let answer = server.call("execute_code", waiting());
    let facts = answer.facts();
    let id = detached(&facts);
    // The call that reads the rest stands in the answer.
    let text = answer.text();
    assert_contains(text, ["running for ", &id, text_of(&facts["stdout"])]);
    let (_, next) = text.split_once("next: get_execution ").unwrap();
    let mut rest: Value = serde_json::from_str(next.trim()).unwrap();
    rest.shows(json!({
        "execution_id": id, "stdout_from": facts["stdout_next"], "stderr_from": facts["stderr_next"],
        "wait_seconds": 25,
    }));
    told_until(&mut server, &facts, ["first\n", "wrong\n"]);
    (rest["stdout_from"], rest["stderr_from"]) = (json!(6), json!(6));
    assert_eq!(executions_on_record("pending").len(), 1, "the control");
    rest["wait_seconds"] = json!(0);
    let nothing_new = server.facts("get_execution", rest.clone());
    nothing_new.shows(json!({"running": true, "stdout": "", "stderr": "", "stdout_next": 6}));
    release(&mut server);
    rest["wait_seconds"] = json!(25);
    let ended = server.call("get_execution", rest);
    ended.facts().shows(json!({
        "running": false, "success": false, "exit_code": 3, "stdout": "last\n", "stderr": "again\n",
        "stdout_bytes": 11, "execution_id": id,
    }));
    let text = ended.text();
    assert_contains(text, ["failed with exit code 3", "last", "again"]);
    assert!(!text.contains("first"), "{text}");
    let one = server.facts("get_execution", json!({"execution_id": id, "stderr_from": 8}));
    one.shows(json!({"stderr": "ain\n", "stdout": null, "exit_code": 3}));
    let all = server.execution(&id);
    all.shows(json!({"stdout": "first\nlast\n", "stderr": "wrong\nagain\n", "exit_code": 3}));
    assert_nothing_is_open_on_record();
}

#[test]
fn a_call_says_itself_when_it_is_detached_or_that_it_never_is() {
    let mut server = Server::with(AT_ONCE);
    let quick = json!({"code": "echo done", "language": "shell", "detach_after_seconds": 60});
    server
        .run(quick)
        .shows(json!({"stdout": "done\n", "running": null}));
    let mut patient = waiting();
    patient["detach_after_seconds"] = json!(0);
    let call = server.send_run(patient);
    eventually(|| server.newest()["duration_ms"].as_u64().unwrap() > 600);
    assert_eq!(server.newest()["verdict"], "running");
    release(&mut server);
    server
        .result(call)
        .shows(json!({"stdout": "first\nlast\n", "exit_code": 3}));

    let mut server = Server::start();
    let mut early = json!({"code": "echo begun; sleep 1000", "language": "shell", "detach_after": 0.2});
    let begun = Instant::now();
    let id = detached(&server.run(early.clone()));
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(server.stop(&id)["cancelled"], true);
    assert_eq!(server.end_of(&id)["exit"]["kind"], "cancelled");
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
    assert_eq!(server.run(asked)["exit"]["kind"], "timeout");
    for setting in [
        "detach_after_seconds: 7",
        "on_cancel: detach",
        "on_disconnect: detach",
    ] {
        let yaml = config(&format!("results: {{memory_mb: 0}}\ncalls: {{{setting}}}"));
        let refused = said(&["serve", "--config", &yaml]);
        assert!(!refused.status.success(), "{setting}");
        assert_contains(
            stderr_of(&refused),
            ["calls.", "config.yaml:2", "results.memory_mb = 0"],
        );
    }
}

#[test]
fn a_call_of_a_session_is_detached_and_the_next_has_its_turn_after_it() {
    let mut server = Server::with(AT_ONCE);
    let session = server.create(json!({"language": "shell", "workspace": "namespace"}));
    let code = "x=1; echo begun; until [ -e go ]; do sleep 0.02; done; x=2";
    let id = detached(&server.eval(&session, code));
    let next = json!({"code": "echo $x", "session_id": session, "detach_after_seconds": 0});
    let next = server.send_run(next);
    // One that waits for its turn is detached as well.
    let waits = json!({"code": "echo then", "session_id": session});
    let waits = detached(&server.run(waits));
    for (id, stdout) in [(&id, "begun\n"), (&waits, "")] {
        let so_far = server.execution(id);
        assert_eq!(so_far["running"], true, "{so_far}");
        told_until(&mut server, &so_far, [stdout, ""]);
    }
    release(&mut server);
    server
        .end_of(&id)
        .shows(json!({"success": true, "session_id": session}));
    server.result(next).shows(json!({"stdout": "2\n"}));
    server
        .end_of(&waits)
        .shows(json!({"stdout": "then\n", "session_id": session}));

    // What is interrupted keeps its session.
    let id = detached(&server.eval(&session, "while :; do sleep 0.02; done"));
    assert_eq!(server.interrupt(&session)["interrupted"], true);
    assert_eq!(server.end_of(&id)["success"], false);
    let kept = server.eval(&session, "echo $x");
    assert_eq!(kept["stdout"], "2\n", "{kept}");
    assert_nothing_is_open_on_record();
}

#[test]
fn a_cancelled_call_is_detached_where_the_operator_says_so() {
    let mut server = Server::with("calls: {on_cancel: detach}");
    let call = server.send_run(waiting());
    eventually(|| server.newest()["verdict"] == "running");
    server.cancel(call);
    let id = server.newest()["execution_id"].clone();
    release(&mut server);
    let result = server.end_of(text_of(&id));
    result.shows(json!({"stdout": "first\nlast\n", "exit.kind": "code", "exit_code": 3}));
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
    server.send_run(asked);
    eventually(|| listed_by_operator()["verdict"] == "running");
    let id = text_of(&listed_by_operator()["execution_id"]).to_owned();
    eventually(|| said(&["logs", &id]).stdout == b"first\n");
    server.hang_up();
    // The operator still reaches it, and lets it go on.
    let mut follower = start(&mut ringfence(&["logs", "-f", &id]));
    let mut followed = follower.stdout.take().unwrap();
    let mut first = [0; 6];
    followed.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"first\n");
    assert!(!has_ended(&mut server));
    fs::write(state_dir().join("workspaces/default/go"), "").unwrap();
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
    server.run(json!({"code": "sleep 151.7172", "language": "shell", "background": true}));
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
            ids.insert(detached(&server.run(asked)));
        }
    }
    eventually(|| processes_with("161.8033").len() >= 9);
    assert_eq!(executions_on_record("pending").len(), 9, "the control");
    signal(server.child.id(), Signal::TERM);
    assert_gone("161.8033");
    eventually(|| has_ended(&mut server));
    assert_nothing_is_open_on_record();
    let ended = executions_on_record("failed");
    let ended = ended
        .iter()
        .map(|record| text_of(&record["execution_id"]).to_owned());
    assert_eq!(ended.collect::<BTreeSet<_>>(), ids);
}

#[test]
fn a_caller_who_asks_for_progress_hears_something_while_nothing_is_printed() {
    let mut server = Server::start();
    let code = "echo begun; until [ -e go ]; do sleep 0.05; done; echo last";
    let arguments = json!({"code": code, "language": "shell", "workspace": "namespace"});
    let call = server.send_watched(arguments);
    let mut told = Vec::new();
    let is_beat = |one: &Value| text_of(&one["message"]).contains("nothing new");
    while !told.iter().any(is_beat) {
        let message = server.hear("notifications/progress");
        assert_eq!(
            message["params"]["progressToken"],
            progress_token(call),
            "{message}"
        );
        told.push(message["params"].clone());
    }
    let beat = told.last().unwrap()["progress"].as_f64().unwrap();
    assert!(beat >= 15.0, "{told:?}");
    let put = server.send_call("put_file", json!({"path": "go", "text": ""}));
    let (answer, rest) = server.await_answer(call);
    assert_eq!(server.result(put)["success"], true);
    answer["result"].facts().shows(json!({"stdout": "begun\nlast\n"}));
    told.extend(rest.iter().map(|one| one["params"].clone()));
    let values: Vec<f64> = told.iter().map(|one| one["progress"].as_f64().unwrap()).collect();
    assert!(
        values.is_sorted_by(|one, next| one < next) && values.len() >= 3,
        "{values:?}"
    );
    // One without a token hears nothing.
    let call = server.send_run(json!({"code": "echo 1", "language": "shell"}));
    assert_eq!(server.await_answer(call).1, Vec::<Value>::new());
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
            assert!(answer.text().len() <= 1024, "{answer}");
            detached(&answer.facts())
        })
        .collect();
    let is_full = |id: &String| said(&["logs", id]).stdout.len() > 1 << 20;
    // What can be read while it runs has its end, and offsets past all bounds are none.
    for id in &ids {
        eventually(|| is_full(id));
        for from in [json!(0), json!(1_u64 << 20), json!(9_007_199_254_740_991_u64)] {
            let asked = json!({"execution_id": id, "stdout_from": from, "stderr_from": from});
            let answer = server.call("get_execution", asked);
            assert!(answer.text().len() <= 1024, "{answer}");
            assert!(answer["structuredContent"]["stdout_next"].as_u64().unwrap() <= 4 << 20);
        }
    }
    // 2 streams of 1 MiB, and as much again that is kept for the result, for each of three.
    let resident = status_of(server.child.id(), "VmRSS");
    assert!(resident < 200 << 10, "{resident} KiB");
    for id in &ids {
        server.stop(id);
        let result = server.end_of(id);
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
    server.send_watched(json!({"code": "yes | head -c 300000000; sleep 1", "language": "shell"}));
    eventually(|| listed_by_operator()["verdict"] == "ok");
    server.leaves();
    assert_nothing_is_open_on_record();
}

/// claim: [RES-11]
#[test]
fn of_output_that_is_too_long_to_be_kept_the_beginning_is() {
    let mut server = Server::with("results: {memory_mb: 1}");
    let asked = json!({"code": "yes | head -c 900000", "language": "shell"});
    let id = server.run(asked)["execution_id"].clone();
    let kept = (1 << 20) / 8;
    let asked = json!({"execution_id": id, "stdout_from": kept - 100});
    let rest = server.facts("get_execution", asked);
    rest.shows(json!({"stdout": "y\n".repeat(50), "stdout_next": null, "stdout_bytes": 900_000, "truncated.stdout": true}));
    let text = server.call("get_execution", json!({"execution_id": id}));
    let note = format!("[stdout has 900000 bytes, of which the first {kept} are kept]");
    assert_contains(text.text(), [&note]);
}

#[test]
fn what_was_told_of_a_character_cut_in_two_is_told_once() {
    let mut server = Server::with(AT_ONCE);
    let code = "printf 'a\\303'; until [ -e go ]; do sleep 0.02; done; printf '\\251z'";
    let begun = server.in_workspace(code);
    let id = detached(&begun);
    told_until(&mut server, &begun, ["a", ""]);
    release(&mut server);
    let rest = json!({"execution_id": id, "stdout_from": 1, "wait_seconds": 25});
    server
        .facts("get_execution", rest)
        .shows(json!({"stdout": "éz", "running": false}));
}

/// claim: [RES-11]
#[test]
fn a_detached_execution_is_not_there_for_another_namespace() {
    let mut server = Server::with(AT_ONCE);
    let id = detached(&server.run(waiting()));
    let asked = json!({"execution_id": id, "namespace": "other", "wait_seconds": 25, "stdout_from": 0});
    let begun = Instant::now();
    server.refuses("get_execution", asked, "not_found");
    assert!(begun.elapsed() < Duration::from_secs(10), "it waits for nothing");
    let of_other = json!({"execution_id": id, "namespace": "other"});
    let cancel = server.facts("cancel_execution", of_other.clone());
    cancel.shows(json!({"cancelled": false, "existed": false}));
    release(&mut server);
    assert_eq!(server.end_of(&id)["exit_code"], 3);
    server.refuses("get_execution", of_other, "not_found");
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
        let answer = server.run(asked);
        let result = if answer["running"] == true {
            apart += 1;
            server.end_of(text_of(&answer["execution_id"]))
        } else {
            whole += 1;
            answer
        };
        result.shows(json!({"success": true, "stdout": format!("{round}\n"), "exit_code": 0}));
        let asked = json!({"code": code, "language": "shell", "background": true});
        let id = text_of(&server.run(asked)["execution_id"]).to_owned();
        std::thread::sleep(Duration::from_micros(u64::from(round % 20) * 500));
        let cancelled = server.stop(&id);
        assert_eq!(cancelled["existed"], true);
        let result = server.end_of(&id);
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
        let ids: Vec<u64> = (0..100).map(|_| server.send_run(asked.clone())).collect();
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
    let kept = told_json(&["ps", "-n", "20000"]);
    let kept = list_of(&kept["servers"][0]["executions"]).len();
    assert!(kept <= 1024 + 40, "a result takes 1 KiB or more: {kept}");
    let resident = status_of(server.child.id(), "VmRSS");
    assert!(resident < 300 << 10, "{resident} KiB");
    // Another namespace has a place.
    let asked =
        json!({"code": "echo here", "language": "shell", "namespace": "other", "detach_after_seconds": 0});
    assert_eq!(server.run(asked)["stdout"], "here\n");
    server.leaves();
    assert_gone("171.1828");
    assert_nothing_is_open_on_record();
}
