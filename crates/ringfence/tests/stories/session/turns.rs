//! Who uses a session, and when: one call at a time, in order, for its own namespace alone; and what is on record of it.

use super::{arguments, gives, of};
use crate::client::*;
use std::time::Duration;

/// Calls that may wait on one session.
const WAITING_MAX: usize = 32;

/// claim: [SES-5]
#[test]
fn calls_of_one_session_take_their_turns_in_order() {
    let mut server = Server::start();
    let id = server.create(json!({"language": "shell"}));
    let first = server.begun(&id, "n=0; echo begun; sleep 1000");
    let mut requests = vec![first];
    // All at once: nobody but the server keeps them in order.
    for number in 0..WAITING_MAX {
        requests.push(server.begin(&id, &format!("n=$((n + 1)); echo {number} $n"), json!({})));
    }
    eventually(|| server.listed(&id)["waiting"] == WAITING_MAX);
    let refused = server.eval(&id, "echo too many");
    assert_eq!(refused["code"], "busy", "{refused}");
    assert!(
        refused["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0),
        "{refused}"
    );
    server.send_call("interrupt_session", json!({"session_id": id}));
    let answers = server.await_all(&requests);
    assert_eq!(of(&answers, first)["exit_code"], 130, "{answers:?}");
    // Each has counted one further than the one before it.
    for (number, request) in requests.iter().skip(1).enumerate() {
        let answer = of(&answers, *request);
        assert_eq!(answer["stdout"], format!("{number} {}\n", number + 1), "{answer}");
    }
    // So have calls that are sent at once to an idle session.
    for _ in 0..20 {
        server.eval(&id, "n=0");
        let count = |number: u64| format!("n=$((n + 1)); echo {number} $n");
        let requests: Vec<u64> = (0..16)
            .map(|number| server.begin(&id, &count(number), json!({})))
            .collect();
        let answers = server.await_all(&requests);
        for (number, request) in requests.iter().enumerate() {
            let answer = of(&answers, *request);
            assert_eq!(answer["stdout"], format!("{number} {}\n", number + 1), "{answer}");
        }
    }
}

/// claim: [SES-5]
#[test]
fn a_call_that_waits_is_cancelled_without_a_trace_and_one_that_runs_leaves_the_state() {
    let mut server = Server::start();
    let id = server.create(json!({}));
    let running = server.begun(&id, "x = 5\nprint('begun', flush=True)\nwhile True: pass");
    let waiting = server.begin(&id, "x = 'changed'", json!({}));
    eventually(|| server.listed(&id)["waiting"] == 1);
    server.cancel(waiting);
    eventually(|| server.listed(&id)["waiting"] == 0);
    server.cancel(running);
    eventually(|| server.listed(&id)["state"] == "idle");
    gives(&server.eval(&id, "x"), &json!(5));
}

#[test]
fn a_busy_session_names_the_execution_that_runs_in_it() {
    let mut server = Server::start();
    let id = server.create(json!({"language": "shell"}));
    let running = server.begun(&id, "echo begun; sleep 1000");
    let execution = server.newest()["execution_id"].clone();
    let refused = server.refuses("list_files", json!({"session_id": id}), "busy");
    let next = format!("next: cancel_execution {{\"execution_id\": {execution}}}");
    assert!(text_of(&refused["hint"]).starts_with(&next), "{refused}");
    let cancelled = server.stop(&execution);
    assert_eq!(cancelled["cancelled"], true, "{cancelled}");
    let (answer, _) = server.await_answer(running);
    answer.shows(json!({"result.structuredContent.exit.kind": "cancelled"}));
    server.succeeds("list_files", json!({"session_id": id}));
}

/// claim: [SES-2]
#[test]
fn interrupts_at_many_moments_end_calls_and_no_session() {
    let mut server = Server::start();
    for (language, code) in [
        (
            "node",
            "{ const end = Date.now() + 1; while (Date.now() < end); }",
        ),
        ("python", "sum(range(30000))"),
        ("shell", "for i in {1..300}; do :; done"),
    ] {
        let id = server.create(json!({"language": language}));
        for round in 0..150 {
            let request = server.begin(&id, code, json!({}));
            // Sooner or later, from before the beginning of the call to after its end.
            std::thread::sleep(Duration::from_micros(20 * round));
            let interrupt = server.send_call("interrupt_session", json!({"session_id": id}));
            let answers = server.await_all(&[request, interrupt]);
            let ended = &of(&answers, request)["session_ended"];
            assert!(ended.is_null(), "{language}, round {round}: {ended}");
        }
        assert_eq!(server.listed(&id)["state"], "idle");
    }
}

#[test]
fn a_session_that_is_cancelled_while_it_is_made_is_not_left_behind() {
    let mut server = Server::start();
    let known = server.create(json!({}));
    for _ in 0..20 {
        let request = server.send_call("create_session", json!({"language": "shell"}));
        server.cancel(request);
    }
    let listed = |server: &mut Server| server.facts("list_sessions", json!({}))["sessions"].clone();
    eventually(|| listed(&mut server).as_array().is_some_and(|left| left.len() == 1));
    assert_eq!(listed(&mut server)[0]["session_id"], json!(known));
}

#[test]
fn a_client_that_vanishes_takes_its_sessions_with_it() {
    let mut server = Server::start();
    let idle = server.create(json!({"language": "shell"}));
    server.eval(&idle, "sleep 133.1662 &");
    let busy = server.create(json!({"language": "shell"}));
    server.begin(&busy, "sleep 133.1662", json!({}));
    eventually(|| processes_with("133.1662").len() == 2);
    server.leaves();
    assert_within_a_second(|| assert_gone("133.1662"));
}

/// claim: [SES-6]
#[test]
fn a_session_of_another_namespace_is_not_there() {
    let mut server = Server::start();
    let theirs = server.create(json!({"namespace": "theirs"}));
    let ended = server.create(json!({"namespace": "theirs"}));
    let asked = json!({"namespace": "theirs", "session_id": ended});
    server.facts("terminate_session", asked);
    let own = server.create(json!({}));
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
        let mut say = |id: &str| {
            let mut arguments = more.clone();
            arguments["session_id"] = json!(id);
            let mut refused = server.call(tool, arguments);
            assert_eq!(refused["isError"], true, "{tool} {id}: {refused}");
            let expect = json!({"structuredContent.code": "not_found"});
            assert_facts_of(format_args!("{tool} {id}"), &refused, expect);
            refused["structuredContent"]["execution_id"] = Value::Null;
            refused["_meta"]["io.ringfence/error"]["execution_id"] = Value::Null;
            refused.to_string().replace(id, "ID")
        };
        let of_nobody = say(&random);
        assert_eq!(say(&theirs), of_nobody, "{tool}");
        assert_eq!(say(&ended), of_nobody, "{tool}: one that has ended");
    }
    let mut end = |id: &str| server.facts("terminate_session", json!({"session_id": id}));
    let nobodys = end(&random);
    assert_eq!(nobodys["existed"], false, "{nobodys}");
    assert_eq!(end(&theirs), nobodys);
    assert_eq!(end(&ended), nobodys);
    for (from, to) in [(&theirs, &own), (&own, &theirs), (&random, &own), (&own, &random)] {
        let arguments = json!({"from_session": from, "to_session": to, "name": "x"});
        server.refuses("bridge_data", arguments, "not_found");
    }
    let listed = server.facts("list_sessions", json!({})).to_string();
    assert!(listed.contains(&own) && !listed.contains(&theirs), "{listed}");
    // The control: its own namespace finds it, and nothing has happened to it.
    let said = server.eval_with(&theirs, "6 * 7", json!({"namespace": "theirs"}));
    gives(&said, &json!(42));
}

#[test]
fn what_belongs_to_a_session_is_refused_in_a_call_by_name() {
    let mut server = Server::start();
    let id = server.create(json!({}));
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
        let told = text_of(&refused["message"]);
        let shown = value
            .as_object()
            .and_then(|limits| limits.keys().next())
            .map_or(name, String::as_str);
        let same = match name {
            "memory_limit" => "max_ram_mb",
            "language" => "speaks python",
            _ => shown,
        };
        assert!(told.contains(same), "{name}: {refused}");
    }
    for bad in ["", "x", "../../etc/passwd", &id.to_uppercase()] {
        let refused = server.eval(bad, "1");
        assert_eq!(refused["code"], "invalid_argument", "{bad}: {refused}");
    }
    gives(&server.eval(&id, "1"), &json!(1));
}

#[test]
fn a_call_has_a_share_of_the_processors_of_its_own() {
    let mut server = Server::start();
    let id = server.create(json!({"resource_limits": {"max_cpu_cores": 1}}));
    let burn = "import time\nwall, cpu = time.monotonic(), time.process_time()\nwhile time.process_time() - cpu < .3: pass\n\
        round((time.process_time() - cpu) / (time.monotonic() - wall), 2)";
    let tight = server.eval_with(&id, burn, json!({"resource_limits": {"max_cpu_cores": 0.2}}));
    if tight["code"] == "unsupported_argument" {
        // This host has no cgroup that could be told; whoever asked for it has been.
        tight.says("message", ["cgroup"]);
        return;
    }
    let share = tight["result"].as_f64().unwrap_or_else(|| panic!("{tight}"));
    assert!(share < 0.4, "{share}");
    let raised = server.eval_with(&id, burn, json!({"resource_limits": {"max_cpu_cores": 2}}));
    let expect = json!({"code": "invalid_argument"});
    assert_facts_of("more than the session's", &raised, expect);
}

#[test]
fn what_happens_to_a_session_is_on_record_and_told() {
    let mut server = Server::with("");
    server.ask("logging/setLevel", json!({"level": "info"}));
    let create = server.send_call("create_session", json!({"language": "shell"}));
    let (made, mut told) = server.await_answer(create);
    let id = text_of(&made["result"]["structuredContent"]["session_id"]).to_owned();
    let run = server.send_run(arguments(&id, "echo x", json!({})));
    let (said, before) = server.await_answer(run);
    told.extend(before);
    let end = server.send_call("terminate_session", json!({"session_id": id}));
    told.extend(server.await_answer(end).1);
    let is = |message: &Value, event: &str| {
        let data = &message["params"]["data"];
        data["event"] == event && data["session_id"] == json!(id)
    };
    let has = |told: &[Value], event: &str| told.iter().any(|message| is(message, event));
    // Messages go their own way, so that the last may come after the answer.
    let count = server.send_call("list_sessions", json!({}));
    told.extend(server.await_answer(count).1);
    assert!(has(&told, "session.created"), "{told:?}");
    while !has(&told, "session.killed") {
        told.push(server.receive());
    }
    let killed = told.iter().find(|message| is(message, "session.killed"));
    killed.unwrap().shows(json!({"params.data.reason": "terminated"}));
    for action in ["session.created", "session.killed"] {
        let records = server.records(action);
        let is_of = |record: &Value| record["details"]["session"] == json!(id);
        assert!(records.iter().all(is_of), "{action}: {records:?}");
        assert!(!records.is_empty(), "{action}");
    }
    let executed = said["result"]["structuredContent"]["execution_id"].clone();
    let all = server.facts("audit_execution", json!({"limit": 50, "detail": true}));
    let mut of_call = list_of(&all["records"])
        .iter()
        .filter(|record| record["execution_id"] == executed);
    let names = |record: &Value| record["request"]["session"] == json!(id) || record["session"] == json!(id);
    assert!(of_call.any(|record| names(&record["details"])), "{all}");
}
