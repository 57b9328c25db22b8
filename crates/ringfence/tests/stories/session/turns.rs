//! Use of a session: one call at a time, in order, from its own namespace only; and its audit records.

use super::{answer_to, arguments, assert_result};
use crate::client::*;
use rustix::process::Signal;
use std::{fs, time::Duration};

/// Maximum waiting calls of one session.
const WAITING_MAX: usize = 32;

/// claim: [SES-5]
#[test]
fn calls_of_one_session_run_in_order() {
    let mut server = Server::start();
    let id = server.create_session(json!({"language": "shell"}));
    let first = server.send_eval_until_begun(&id, "n=0; echo begun; sleep 1000");
    let mut requests = vec![first];
    // Sent at once: only the server keeps them in order.
    for number in 0..WAITING_MAX {
        requests.push(server.send_eval(&id, &format!("n=$((n + 1)); echo {number} $n"), json!({})));
    }
    eventually(|| server.listed(&id)["waiting"] == WAITING_MAX);
    let refused = server.eval(&id, "echo too many");
    assert_eq!(refused["code"], "busy", "{refused}");
    assert!(
        refused["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0),
        "{refused}"
    );
    server.send_call("interrupt_session", json!({"session_id": id}));
    let answers = server.await_responses(&requests);
    assert_eq!(answer_to(&answers, first)["exit_code"], 130, "{answers:?}");
    // Each counted one more than the call before it.
    for (number, request) in requests.iter().skip(1).enumerate() {
        let answer = answer_to(&answers, *request);
        assert_eq!(answer["stdout"], format!("{number} {}\n", number + 1), "{answer}");
    }
    // The same for calls sent at once to an idle session.
    for _ in 0..20 {
        server.eval(&id, "n=0");
        let count = |number: u64| format!("n=$((n + 1)); echo {number} $n");
        let requests: Vec<u64> = (0..16)
            .map(|number| server.send_eval(&id, &count(number), json!({})))
            .collect();
        let answers = server.await_responses(&requests);
        for (number, request) in requests.iter().enumerate() {
            let answer = answer_to(&answers, *request);
            assert_eq!(answer["stdout"], format!("{number} {}\n", number + 1), "{answer}");
        }
    }
}

/// claim: [SES-5]
#[test]
fn cancelled_waiting_call_never_runs_and_cancelled_running_call_keeps_the_state() {
    let mut server = Server::start();
    let id = server.create_session(json!({}));
    let running = server.send_eval_until_begun(&id, "x = 5\nprint('begun', flush=True)\nwhile True: pass");
    let waiting = server.send_eval(&id, "x = 'changed'", json!({}));
    eventually(|| server.listed(&id)["waiting"] == 1);
    server.cancel(waiting);
    eventually(|| server.listed(&id)["waiting"] == 0);
    server.cancel(running);
    eventually(|| server.listed(&id)["state"] == "idle");
    assert_result(&server.eval(&id, "x"), &json!(5));
}

#[test]
fn busy_error_names_the_running_execution() {
    let mut server = Server::start();
    let id = server.create_session(json!({"language": "shell"}));
    let running = server.send_eval_until_begun(&id, "echo begun; sleep 1000");
    let execution = server.latest_execution()["execution_id"].clone();
    let refused = server.call_error("list_files", json!({"session_id": id}), "busy");
    let next = format!("next: cancel_execution {{\"execution_id\": {execution}}}");
    assert!(text_of(&refused["hint"]).starts_with(&next), "{refused}");
    let cancelled = server.cancel_execution(&execution);
    assert_eq!(cancelled["cancelled"], true, "{cancelled}");
    let (answer, _) = server.await_response(running);
    answer.assert_fields(json!({"result.structuredContent.exit.kind": "cancelled"}));
    server.call_ok("list_files", json!({"session_id": id}));
}

/// claim: [SES-2]
#[test]
fn interrupts_at_many_moments_end_no_session() {
    let mut server = Server::start();
    for (language, code) in [
        (
            "node",
            "{ const end = Date.now() + 1; while (Date.now() < end); }",
        ),
        ("python", "sum(range(30000))"),
        ("shell", "for i in {1..300}; do :; done"),
    ] {
        let id = server.create_session(json!({"language": language}));
        for round in 0..150 {
            let request = server.send_eval(&id, code, json!({}));
            // At moments from before the start of the call to after its end.
            std::thread::sleep(Duration::from_micros(20 * round));
            let interrupt = server.send_call("interrupt_session", json!({"session_id": id}));
            let answers = server.await_responses(&[request, interrupt]);
            let ended = &answer_to(&answers, request)["session_ended"];
            assert!(ended.is_null(), "{language}, round {round}: {ended}");
        }
        assert_eq!(server.listed(&id)["state"], "idle");
    }
}

/// A call is over once pid 1, which is late here, has sent its interrupts.
///
/// claim: [SES-2]
#[test]
fn late_interrupt_does_not_reach_the_next_call() {
    let mut server = Server::start();
    let id = server.create_session(json!({"language": "shell", "workspace": "namespace"}));
    let place = state_dir().join("workspaces/default");
    let first = server.send_eval_until_begun(&id, "echo begun; while [ ! -e go ]; do :; done");
    let mut inits = descendants(server.child.id());
    inits.retain(|pid| comm_of(*pid) == "ringfence-init");
    inits.iter().for_each(|pid| signal(*pid, Signal::STOP));
    let interrupt = server.send_call("interrupt_session", json!({"session_id": id}));
    server.await_responses(&[interrupt]);
    fs::write(place.join("go"), "").unwrap();
    let second = server.send_eval(
        &id,
        ": > next; for i in {1..500000}; do :; done; echo two",
        json!({}),
    );
    let is_next = || place.join("next").exists();
    becomes_true_within(Duration::from_millis(300), is_next);
    inits.iter().for_each(|pid| signal(*pid, Signal::CONT));
    let answers = server.await_responses(&[first, second]);
    assert_eq!(answer_to(&answers, first)["exit_code"], 0, "{answers:?}");
    assert_eq!(answer_to(&answers, second)["stdout"], "two\n", "{answers:?}");
}

#[test]
fn session_cancelled_during_its_creation_is_removed() {
    let mut server = Server::start();
    let known = server.create_session(json!({}));
    for _ in 0..20 {
        let request = server.send_call("create_session", json!({"language": "shell"}));
        server.cancel(request);
    }
    let listed = |server: &mut Server| server.facts("list_sessions", json!({}))["sessions"].clone();
    eventually(|| listed(&mut server).as_array().is_some_and(|left| left.len() == 1));
    assert_eq!(listed(&mut server)[0]["session_id"], json!(known));
}

#[test]
fn disconnect_ends_the_sessions_of_the_client() {
    let mut server = Server::start();
    let idle = server.create_session(json!({"language": "shell"}));
    server.eval(&idle, "sleep 133.1662 &");
    let busy = server.create_session(json!({"language": "shell"}));
    server.send_eval(&busy, "sleep 133.1662", json!({}));
    eventually(|| processes_with("133.1662").len() == 2);
    server.shut_down();
    assert_within_a_second(|| assert_processes_end("133.1662"));
}

/// claim: [SES-6]
#[test]
fn session_is_not_found_from_another_namespace() {
    let mut server = Server::start();
    let theirs = server.create_session(json!({"namespace": "theirs"}));
    let ended = server.create_session(json!({"namespace": "theirs"}));
    let terminate = json!({"namespace": "theirs", "session_id": ended});
    server.facts("terminate_session", terminate);
    let own = server.create_session(json!({}));
    let random = "0190b8f0-5c1e-7000-8000-00000000abcd".to_owned();
    for (tool, more) in [
        ("execute_code", json!({"code": "1"})),
        ("execute_code", json!({"code": "1", "language": "python"})),
        ("execute_code", json!({"code": "1", "language": "shell"})),
        ("interrupt_session", json!({})),
        (
            "install_package",
            json!({"language": "python", "packages": ["six"]}),
        ),
        ("put_file", json!({"path": "a", "text": "x"})),
        ("get_file", json!({"path": "a"})),
        ("edit_file", json!({"path": "a", "old": "x", "new": "y"})),
        ("list_files", json!({})),
        ("create_state_snapshot", json!({})),
        ("diff_workspace", json!({})),
    ] {
        let mut error_of = |id: &str| {
            let mut arguments = more.clone();
            arguments["session_id"] = json!(id);
            let mut refused = server.call(tool, arguments);
            assert_eq!(refused["isError"], true, "{tool} {id}: {refused}");
            let expect = json!({"structuredContent.code": "not_found"});
            assert_fields_of(format_args!("{tool} {id}"), &refused, expect);
            refused["structuredContent"]["execution_id"] = Value::Null;
            refused["_meta"]["io.ringfence/error"]["execution_id"] = Value::Null;
            refused.to_string().replace(id, "ID")
        };
        let of_unknown = error_of(&random);
        assert_eq!(error_of(&theirs), of_unknown, "{tool}");
        assert_eq!(error_of(&ended), of_unknown, "{tool}: one that has ended");
    }
    let mut end = |id: &str| server.facts("terminate_session", json!({"session_id": id}));
    let of_unknown = end(&random);
    assert_eq!(of_unknown["existed"], false, "{of_unknown}");
    assert_eq!(end(&theirs), of_unknown);
    assert_eq!(end(&ended), of_unknown);
    for (from, to) in [(&theirs, &own), (&own, &theirs), (&random, &own), (&own, &random)] {
        let arguments = json!({"from_session": from, "to_session": to, "name": "x"});
        server.call_error("bridge_data", arguments, "not_found");
    }
    let listed = server.facts("list_sessions", json!({})).to_string();
    assert!(listed.contains(&own) && !listed.contains(&theirs), "{listed}");
    // The control: its own namespace finds it unchanged.
    let answer = server.eval_with(&theirs, "6 * 7", json!({"namespace": "theirs"}));
    assert_result(&answer, &json!(42));
}

#[test]
fn session_level_arguments_are_refused_in_a_call() {
    let mut server = Server::start();
    let id = server.create_session(json!({}));
    for (name, value) in [
        ("secrets", json!(["KEY"])),
        ("workspace", json!("namespace")),
        ("memory_limit", json!("64m")),
        ("resource_limits", json!({"max_ram_mb": 64})),
        ("resource_limits", json!({"max_processes": 3})),
        ("resource_limits", json!({"max_disk_mb": 3})),
        ("language", json!("node")),
    ] {
        let refused = server.eval_with(&id, "1", json!({name: value}));
        assert_eq!(refused["code"], "invalid_argument", "{name}: {refused}");
        let message = text_of(&refused["message"]);
        let shown = value
            .as_object()
            .and_then(|limits| limits.keys().next())
            .map_or(name, String::as_str);
        let same = match name {
            "memory_limit" => "max_ram_mb",
            "language" => "is python, not node",
            _ => shown,
        };
        assert!(message.contains(same), "{name}: {refused}");
    }
    for bad in ["", "x", "../../etc/passwd", &id.to_uppercase()] {
        let refused = server.eval(bad, "1");
        assert_eq!(refused["code"], "invalid_argument", "{bad}: {refused}");
    }
    assert_result(&server.eval(&id, "1"), &json!(1));
}

#[test]
fn call_has_its_own_cpu_limit() {
    let mut server = Server::start();
    let id = server.create_session(json!({"resource_limits": {"max_cpu_cores": 1}}));
    let burn = "import time\nwall, cpu = time.monotonic(), time.process_time()\nwhile time.process_time() - cpu < .3: pass\n\
        round((time.process_time() - cpu) / (time.monotonic() - wall), 2)";
    let tight = server.eval_with(&id, burn, json!({"resource_limits": {"max_cpu_cores": 0.2}}));
    if tight["code"] == "unsupported_argument" {
        // This host has no cgroup to set the limit in, and the caller was told so.
        tight.assert_text("message", ["cgroup"]);
        return;
    }
    let share = tight["result"].as_f64().unwrap_or_else(|| panic!("{tight}"));
    assert!(share < 0.4, "{share}");
    let raised = server.eval_with(&id, burn, json!({"resource_limits": {"max_cpu_cores": 2}}));
    let expect = json!({"code": "invalid_argument"});
    assert_fields_of("more than the session's", &raised, expect);
}

#[test]
fn session_events_are_recorded_and_notified() {
    let mut server = Server::with_config("");
    server.rpc("logging/setLevel", json!({"level": "info"}));
    let create = server.send_call("create_session", json!({"language": "shell"}));
    let (made, mut messages) = server.await_response(create);
    let id = text_of(&made["result"]["structuredContent"]["session_id"]).to_owned();
    let run = server.send_run(arguments(&id, "echo x", json!({})));
    let (ran, before) = server.await_response(run);
    messages.extend(before);
    let end = server.send_call("terminate_session", json!({"session_id": id}));
    messages.extend(server.await_response(end).1);
    let is = |message: &Value, event: &str| {
        let data = &message["params"]["data"];
        data["event"] == event && data["session_id"] == json!(id)
    };
    let has = |messages: &[Value], event: &str| messages.iter().any(|message| is(message, event));
    // Notifications are not ordered with responses: the last may arrive after the response.
    let count = server.send_call("list_sessions", json!({}));
    messages.extend(server.await_response(count).1);
    assert!(has(&messages, "session.created"), "{messages:?}");
    while !has(&messages, "session.killed") {
        messages.push(server.receive());
    }
    let killed = messages.iter().find(|message| is(message, "session.killed"));
    killed
        .unwrap()
        .assert_fields(json!({"params.data.reason": "terminated"}));
    for action in ["session.created", "session.killed"] {
        let records = server.audit_records(action);
        let is_of = |record: &Value| record["details"]["session"] == json!(id);
        assert!(records.iter().all(is_of), "{action}: {records:?}");
        assert!(!records.is_empty(), "{action}");
    }
    let executed = ran["result"]["structuredContent"]["execution_id"].clone();
    let all = server.facts("audit_execution", json!({"limit": 50, "detail": true}));
    let mut of_call = list_of(&all["records"])
        .iter()
        .filter(|record| record["execution_id"] == executed);
    let names = |record: &Value| record["request"]["session"] == json!(id) || record["session"] == json!(id);
    assert!(of_call.any(|record| names(&record["details"])), "{all}");
}
