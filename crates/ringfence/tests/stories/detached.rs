//! Long calls are answered before the client gives up, and their programs run on. Later calls get the output and the
//! result, and can cancel the program; each execution is on record.

use crate::client::*;
use rustix::process::Signal;
use std::{
    collections::BTreeSet,
    fs,
    io::Read as _,
    time::{Duration, Instant},
};

const DETACH_SOON: &str = "calls: {detach_after_seconds: 0.3}";

/// A program that writes a word to each stream, waits for the file `go` in its namespace's workspace, and writes more.
fn waiting() -> Value {
    let code =
        "echo first; echo wrong >&2; until [ -e go ]; do sleep 0.02; done; echo last; echo again >&2; exit 3";
    json!({"code": code, "language": "shell", "workspace": "namespace"})
}

fn release(server: &mut Server) {
    server.call_ok("put_file", json!({"path": "go", "text": ""}));
}

#[track_caller]
fn detached(answer: &Value) -> String {
    answer.assert_fields(json!({"success": true, "running": true}));
    text_of(&answer["execution_id"]).to_owned()
}

/// Reads both streams of a detached call, beginning with its own answer, until they equal the expected texts.
#[track_caller]
fn read_streams_until(server: &mut Server, answer: &Value, wanted: [&str; 2]) {
    let mut streams = [String::new(), String::new()];
    let mut facts = answer.clone();
    eventually(|| {
        for (read, name) in streams.iter_mut().zip(["stdout", "stderr"]) {
            read.push_str(text_of(&facts[name]));
            assert_eq!(facts[format!("{name}_next")], json!(read.len()), "{facts}");
        }
        let is_all = streams.iter().zip(wanted).all(|(read, wanted)| read == wanted);
        if !is_all {
            let arguments = json!({
                "execution_id": answer["execution_id"], "stdout_from": streams[0].len(), "stderr_from": streams[1].len(),
            });
            facts = server.facts("get_execution", arguments);
        }
        is_all
    });
}

fn has_ended(server: &mut Server) -> bool {
    server.child.try_wait().unwrap().is_some()
}

/// The first execution in `ringfence ps`; null while no server listens.
fn first_in_ps() -> Value {
    json_of(&run_cli(&["ps", "--json"]))["servers"][0]["executions"][0].clone()
}

/// Audit records of executions with this outcome.
fn executions_on_record(outcome: &str) -> Vec<Value> {
    let arguments = ["audit", "list", "--action", "execution.", "--limit", "1000"];
    let all = cli_json(&[&arguments[..], &["--outcome", outcome]].concat());
    list_of(&all["records"]).to_vec()
}

/// Asserts that every recorded execution has ended.
#[track_caller]
fn assert_no_open_executions_on_record() {
    for outcome in ["pending", "lost"] {
        assert_eq!(executions_on_record(outcome), Vec::<Value>::new(), "{outcome}");
    }
    cli_stdout(&["audit", "verify"]);
}

#[test]
fn long_call_is_detached_and_get_execution_continues_its_output() {
    let mut server = Server::with_config(DETACH_SOON);
    let answer = server.call("execute_code", waiting());
    let facts = answer.facts();
    let id = detached(&facts);
    // The answer contains the call that reads the rest.
    let text = answer.text();
    assert_contains(text, ["running for ", &id, text_of(&facts["stdout"])]);
    let (_, next) = text.split_once("next: get_execution ").unwrap();
    let mut rest: Value = serde_json::from_str(next.trim()).unwrap();
    rest.assert_fields(json!({
        "execution_id": id, "stdout_from": facts["stdout_next"], "stderr_from": facts["stderr_next"],
        "wait_seconds": 25,
    }));
    read_streams_until(&mut server, &facts, ["first\n", "wrong\n"]);
    (rest["stdout_from"], rest["stderr_from"]) = (json!(6), json!(6));
    assert_eq!(executions_on_record("pending").len(), 1, "the control");
    rest["wait_seconds"] = json!(0);
    let nothing_new = server.facts("get_execution", rest.clone());
    nothing_new.assert_fields(json!({"running": true, "stdout": "", "stderr": "", "stdout_next": 6}));
    release(&mut server);
    rest["wait_seconds"] = json!(25);
    let ended = server.call("get_execution", rest);
    ended.facts().assert_fields(json!({
        "running": false, "success": false, "exit_code": 3, "stdout": "last\n", "stderr": "again\n",
        "stdout_bytes": 11, "execution_id": id,
    }));
    let text = ended.text();
    assert_contains(text, ["failed with exit code 3", "last", "again"]);
    assert!(!text.contains("first"), "{text}");
    let one = server.facts("get_execution", json!({"execution_id": id, "stderr_from": 8}));
    one.assert_fields(json!({"stderr": "ain\n", "stdout": null, "exit_code": 3}));
    let all = server.get_execution(&id);
    all.assert_fields(json!({"stdout": "first\nlast\n", "stderr": "wrong\nagain\n", "exit_code": 3}));
    assert_no_open_executions_on_record();
}

#[test]
fn detach_after_seconds_overrides_the_configuration() {
    let mut server = Server::with_config(DETACH_SOON);
    let quick = json!({"code": "echo done", "language": "shell", "detach_after_seconds": 60});
    server
        .run(quick)
        .assert_fields(json!({"stdout": "done\n", "running": null}));
    let mut patient = waiting();
    patient["detach_after_seconds"] = json!(0);
    let call = server.send_run(patient);
    eventually(|| server.latest_execution()["duration_ms"].as_u64().unwrap() > 600);
    assert_eq!(server.latest_execution()["verdict"], "running");
    release(&mut server);
    server
        .result(call)
        .assert_fields(json!({"stdout": "first\nlast\n", "exit_code": 3}));

    let mut server = Server::start();
    let mut early = json!({"code": "echo begun; sleep 1000", "language": "shell", "detach_after": 0.2});
    let begun = Instant::now();
    let id = detached(&server.run(early.clone()));
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(server.cancel_execution(&id)["cancelled"], true);
    assert_eq!(server.await_execution(&id)["exit"]["kind"], "cancelled");
    for (seconds, part) in [(-1.0, "outside 0..=86400"), (1e9, "outside 0..=86400")] {
        early["detach_after"] = json!(seconds);
        let refused = server.call_error("execute_code", early.clone(), "invalid_argument");
        assert_contains(text_of(&refused["message"]), [part]);
    }
    early["detach_after"] = json!(1);
    early["background"] = json!(true);
    server.call_error("execute_code", early, "invalid_argument");
    for seconds in [25.1, -0.1, f64::MAX] {
        let arguments = json!({"execution_id": id, "wait_seconds": seconds});
        let refused = server.call_error("get_execution", arguments, "invalid_argument");
        assert_contains(text_of(&refused["message"]), ["outside 0..=25"]);
    }
}

#[test]
fn server_without_kept_results_refuses_to_detach() {
    let mut server = Server::with_config("results: {memory_mb: 0}\nlimits: {timeout_seconds: 1}");
    for (argument, value) in [("detach_after_seconds", json!(0.1)), ("background", json!(true))] {
        let mut arguments = json!({"code": "sleep 1000", "language": "shell"});
        arguments[argument] = value;
        let refused = server.call_error("execute_code", arguments, "unsupported_argument");
        assert_contains(text_of(&refused["hint"]), ["results.memory_mb"]);
    }
    let arguments = json!({"code": "sleep 1000", "language": "shell", "detach_after_seconds": 0});
    assert_eq!(server.run(arguments)["exit"]["kind"], "timeout");
    for setting in [
        "detach_after_seconds: 7",
        "on_cancel: detach",
        "on_disconnect: detach",
    ] {
        let yaml = config(&format!("results: {{memory_mb: 0}}\ncalls: {{{setting}}}"));
        let refused = run_cli(&["serve", "--config", &yaml]);
        assert!(!refused.status.success(), "{setting}");
        assert_contains(
            stderr_of(&refused),
            ["calls.", "config.yaml:2", "results.memory_mb = 0"],
        );
    }
}

#[test]
fn detached_session_call_keeps_its_turn() {
    let mut server = Server::with_config(DETACH_SOON);
    let session = server.create_session(json!({"language": "shell", "workspace": "namespace"}));
    let code = "x=1; echo begun; until [ -e go ]; do sleep 0.02; done; x=2";
    let id = detached(&server.eval(&session, code));
    let next = json!({"code": "echo $x", "session_id": session, "detach_after_seconds": 0});
    let next = server.send_run(next);
    // A call that waits for its turn is detached as well.
    let waits = json!({"code": "echo then", "session_id": session});
    let waits = detached(&server.run(waits));
    for (id, stdout) in [(&id, "begun\n"), (&waits, "")] {
        let so_far = server.get_execution(id);
        assert_eq!(so_far["running"], true, "{so_far}");
        read_streams_until(&mut server, &so_far, [stdout, ""]);
    }
    release(&mut server);
    server
        .await_execution(&id)
        .assert_fields(json!({"success": true, "session_id": session}));
    server.result(next).assert_fields(json!({"stdout": "2\n"}));
    server
        .await_execution(&waits)
        .assert_fields(json!({"stdout": "then\n", "session_id": session}));

    // An interrupt keeps the session.
    let id = detached(&server.eval(&session, "while :; do sleep 0.02; done"));
    assert_eq!(server.interrupt(&session)["interrupted"], true);
    assert_eq!(server.await_execution(&id)["success"], false);
    let kept = server.eval(&session, "echo $x");
    assert_eq!(kept["stdout"], "2\n", "{kept}");
    assert_no_open_executions_on_record();
}

#[test]
fn on_cancel_detach_keeps_a_cancelled_call_running() {
    let mut server = Server::with_config("calls: {on_cancel: detach}");
    let call = server.send_run(waiting());
    eventually(|| server.latest_execution()["verdict"] == "running");
    server.cancel(call);
    let id = server.latest_execution()["execution_id"].clone();
    release(&mut server);
    let result = server.await_execution(text_of(&id));
    result.assert_fields(json!({"stdout": "first\nlast\n", "exit.kind": "code", "exit_code": 3}));
    assert_no_open_executions_on_record();
}

#[test]
fn on_disconnect_detach_lets_programs_finish() {
    let mut server = Server::with_config("calls: {on_disconnect: detach}");
    let mut arguments = waiting();
    arguments["code"] = json!(format!(
        "{}; echo kept > left.txt",
        text_of(&arguments["code"]).replace("; exit 3", "")
    ));
    server.send_run(arguments);
    eventually(|| first_in_ps()["verdict"] == "running");
    let id = text_of(&first_in_ps()["execution_id"]).to_owned();
    eventually(|| run_cli(&["logs", &id]).stdout == b"first\n");
    server.close_stdin();
    // The operator can still follow the program and release it.
    let mut follower = spawn_piped(&mut ringfence(&["logs", "-f", &id]));
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
    assert_no_open_executions_on_record();
}

#[test]
fn server_that_outlives_its_client_stops_on_sigterm() {
    let mut server = Server::with_config("calls: {on_disconnect: detach}");
    server.run(json!({"code": "sleep 151.7172", "language": "shell", "background": true}));
    eventually(|| !processes_with("151.7172").is_empty());
    server.close_stdin();
    assert!(!becomes_true_within(Duration::from_millis(1500), || has_ended(
        &mut server
    )));
    signal(server.child.id(), Signal::TERM);
    assert_processes_end("151.7172");
    eventually(|| has_ended(&mut server));
    assert_no_open_executions_on_record();
}

/// claim: [RES-11]
#[test]
fn detached_programs_end_with_their_server_and_are_on_record() {
    let mut server = Server::with_config("calls: {detach_after_seconds: 0.05}");
    let mut ids = BTreeSet::new();
    for code in [
        "sleep 161.8033",
        "yes 161.8033",
        "trap '' TERM INT; sleep 161.8033",
    ] {
        for number in 0..3 {
            // One namespace each: on busy processors only namespaces that already run something are delayed.
            let namespace = format!("n{number}-{}", code.len());
            let arguments = json!({"code": code, "language": "shell", "namespace": namespace});
            ids.insert(detached(&server.run(arguments)));
        }
    }
    eventually(|| processes_with("161.8033").len() >= 9);
    assert_eq!(executions_on_record("pending").len(), 9, "the control");
    signal(server.child.id(), Signal::TERM);
    assert_processes_end("161.8033");
    eventually(|| has_ended(&mut server));
    assert_no_open_executions_on_record();
    let ended = executions_on_record("failed");
    let ended = ended
        .iter()
        .map(|record| text_of(&record["execution_id"]).to_owned());
    assert_eq!(ended.collect::<BTreeSet<_>>(), ids);
}

#[test]
fn silent_program_sends_progress_heartbeats() {
    let mut server = Server::start();
    let code = "echo begun; until [ -e go ]; do sleep 0.05; done; echo last";
    let arguments = json!({"code": code, "language": "shell", "workspace": "namespace"});
    let call = server.send_run_with_progress(arguments);
    let mut notifications = Vec::new();
    let is_beat = |one: &Value| text_of(&one["message"]).contains("nothing new");
    while !notifications.iter().any(is_beat) {
        let message = server.receive_method("notifications/progress");
        assert_eq!(
            message["params"]["progressToken"],
            progress_token(call),
            "{message}"
        );
        notifications.push(message["params"].clone());
    }
    let beat = notifications.last().unwrap()["progress"].as_f64().unwrap();
    assert!(beat >= 15.0, "{notifications:?}");
    let put = server.send_call("put_file", json!({"path": "go", "text": ""}));
    let (answer, rest) = server.await_response(call);
    assert_eq!(server.result(put)["success"], true);
    answer["result"]
        .facts()
        .assert_fields(json!({"stdout": "begun\nlast\n"}));
    notifications.extend(rest.iter().map(|one| one["params"].clone()));
    let values: Vec<f64> = notifications
        .iter()
        .map(|one| one["progress"].as_f64().unwrap())
        .collect();
    assert!(
        values.is_sorted_by(|one, next| one < next) && values.len() >= 3,
        "{values:?}"
    );
    // A call without a token gets no notifications.
    let call = server.send_run(json!({"code": "echo 1", "language": "shell"}));
    assert_eq!(server.await_response(call).1, Vec::<Value>::new());
}

/// claim: [RES-11]
#[test]
fn output_flood_of_a_detached_program_is_bounded_in_answers_and_memory() {
    let mut server = Server::with_config("calls: {detach_after_seconds: 0.3}\ntext_max: 1024");
    let flood =
        "head -c 5 /dev/zero; (yes wrong >&2 &); while :; do printf 'é\\0\\377'; printf '%*s\\n' 5000; done";
    let ids: Vec<String> = (0..3)
        .map(|_| {
            let answer = server.call("execute_code", json!({"code": flood, "language": "shell"}));
            assert!(answer.text().len() <= 1024, "{answer}");
            detached(&answer.facts())
        })
        .collect();
    let is_full = |id: &String| run_cli(&["logs", id]).stdout.len() > 1 << 20;
    // Output that can be read during the run is bounded, also with offsets past all bounds.
    for id in &ids {
        eventually(|| is_full(id));
        for from in [json!(0), json!(1_u64 << 20), json!(9_007_199_254_740_991_u64)] {
            let arguments = json!({"execution_id": id, "stdout_from": from, "stderr_from": from});
            let answer = server.call("get_execution", arguments);
            assert!(answer.text().len() <= 1024, "{answer}");
            assert!(answer["structuredContent"]["stdout_next"].as_u64().unwrap() <= 4 << 20);
        }
    }
    // 2 streams of 1 MiB, and as much again kept for the result, for each of three.
    let resident = proc_status_kib(server.child.id(), "VmRSS");
    assert!(resident < 200 << 10, "{resident} KiB");
    for id in &ids {
        server.cancel_execution(id);
        let result = server.await_execution(id);
        assert_eq!(result["exit"]["kind"], "cancelled", "{result}");
        // The pages neither lose nor repeat output.
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
fn client_that_does_not_read_does_not_block_a_detached_program() {
    let mut server = Server::with_config(DETACH_SOON);
    server.send_run_with_progress(json!({"code": "yes | head -c 300000000; sleep 1", "language": "shell"}));
    eventually(|| first_in_ps()["verdict"] == "ok");
    server.shut_down();
    assert_no_open_executions_on_record();
}

/// claim: [RES-11]
#[test]
fn only_the_beginning_of_too_long_output_is_kept() {
    let mut server = Server::with_config("results: {memory_mb: 1}");
    let arguments = json!({"code": "yes | head -c 900000", "language": "shell"});
    let id = server.run(arguments)["execution_id"].clone();
    let kept = (1 << 20) / 8;
    let arguments = json!({"execution_id": id, "stdout_from": kept - 100});
    let rest = server.facts("get_execution", arguments);
    rest.assert_fields(json!({"stdout": "y\n".repeat(50), "stdout_next": null, "stdout_bytes": 900_000, "truncated.stdout": true}));
    let text = server.call("get_execution", json!({"execution_id": id}));
    let note = format!("[stdout has 900000 bytes, of which the first {kept} are kept]");
    assert_contains(text.text(), [&note]);
}

#[test]
fn character_split_across_reads_is_reported_once() {
    let mut server = Server::with_config(DETACH_SOON);
    let code = "printf 'a\\303'; until [ -e go ]; do sleep 0.02; done; printf '\\251z'";
    let begun = server.execute_in_workspace(code);
    let id = detached(&begun);
    read_streams_until(&mut server, &begun, ["a", ""]);
    release(&mut server);
    let rest = json!({"execution_id": id, "stdout_from": 1, "wait_seconds": 25});
    server
        .facts("get_execution", rest)
        .assert_fields(json!({"stdout": "éz", "running": false}));
}

/// claim: [RES-11]
#[test]
fn detached_execution_is_not_found_from_another_namespace() {
    let mut server = Server::with_config(DETACH_SOON);
    let id = detached(&server.run(waiting()));
    let arguments = json!({"execution_id": id, "namespace": "other", "wait_seconds": 25, "stdout_from": 0});
    let begun = Instant::now();
    server.call_error("get_execution", arguments, "not_found");
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "not_found is answered without waiting"
    );
    let of_other = json!({"execution_id": id, "namespace": "other"});
    let cancel = server.facts("cancel_execution", of_other.clone());
    cancel.assert_fields(json!({"cancelled": false, "existed": false}));
    release(&mut server);
    assert_eq!(server.await_execution(&id)["exit_code"], 3);
    server.call_error("get_execution", of_other, "not_found");
}

/// At any moment of its life a program may be detached or cancelled: it has one result, which is found and on record.
///
/// claim: [RES-11]
#[test]
fn detach_or_cancel_racing_with_the_end_gives_one_recorded_outcome() {
    const ROUNDS: u32 = 60;
    let mut server = Server::start();
    let (mut answered, mut detached_count, mut cancelled_count) = (0, 0, 0);
    for round in 0..ROUNDS {
        let code = format!("echo {round}");
        // About as long as such a program takes.
        let after = 0.0005 * f64::from(round % 20 + 1);
        let arguments = json!({"code": code, "language": "shell", "detach_after_seconds": after});
        let answer = server.run(arguments);
        let result = if answer["running"] == true {
            detached_count += 1;
            server.await_execution(text_of(&answer["execution_id"]))
        } else {
            answered += 1;
            answer
        };
        result.assert_fields(json!({"success": true, "stdout": format!("{round}\n"), "exit_code": 0}));
        let arguments = json!({"code": code, "language": "shell", "background": true});
        let id = text_of(&server.run(arguments)["execution_id"]).to_owned();
        std::thread::sleep(Duration::from_micros(u64::from(round % 20) * 500));
        let cancelled = server.cancel_execution(&id);
        assert_eq!(cancelled["existed"], true);
        let result = server.await_execution(&id);
        if result["success"] == true {
            assert_eq!(result["stdout"], format!("{round}\n"));
        } else {
            // A request that has not begun has the error `cancelled` instead.
            cancelled_count += 1;
            assert!(
                result["exit"]["kind"] == "cancelled" || result["code"] == "cancelled",
                "{result}"
            );
            assert_eq!(cancelled["cancelled"], true, "{result}");
        }
    }
    println!(
        "{answered} answered whole, {detached_count} detached, {cancelled_count} cancelled before their end"
    );
    assert!(answered + detached_count == ROUNDS && detached_count > 0 && cancelled_count > 0);
    server.shut_down();
    assert_no_open_executions_on_record();
}

/// claim: [RES-11]
#[test]
fn ten_thousand_detached_calls_are_bounded_and_do_not_block_other_namespaces() {
    const CALLS: usize = 10_000;
    let mut server = Server::with_config(
        "calls: {detach_after_seconds: 0.001}\nresults: {memory_mb: 1}\nqueue: {concurrency: 8, waiting: 32}",
    );
    let (mut running, mut busy, mut sent) = (0, 0, 0);
    // In batches of 100, as a client has only so many calls in flight.
    while sent < CALLS {
        let arguments = json!({"code": "sleep 171.1828", "language": "shell"});
        let ids: Vec<u64> = (0..100).map(|_| server.send_run(arguments.clone())).collect();
        for (_, facts) in server.await_responses(&ids) {
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
    let kept = cli_json(&["ps", "-n", "20000"]);
    let kept = list_of(&kept["servers"][0]["executions"]).len();
    assert!(kept <= 1024 + 40, "a result takes 1 KiB or more: {kept}");
    let resident = proc_status_kib(server.child.id(), "VmRSS");
    assert!(resident < 300 << 10, "{resident} KiB");
    // A call of another namespace runs.
    let arguments =
        json!({"code": "echo here", "language": "shell", "namespace": "other", "detach_after_seconds": 0});
    assert_eq!(server.run(arguments)["stdout"], "here\n");
    server.shut_down();
    assert_processes_end("171.1828");
    assert_no_open_executions_on_record();
}
