//! Executions as tasks in revision 2026-07-28.

use super::principals::token;
use crate::client::*;

const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Sends a stateless request whose client declares the tasks extension.
fn ask(client: &mut HttpClient, method: &str, params: Value) -> Value {
    client.rpc_stateless_with(json!({"extensions": {TASKS: {}}}), method, params)
}

fn begin(client: &mut HttpClient, arguments: Value) -> String {
    let begun = ask(
        client,
        "tools/call",
        json!({"name": "execute_code", "arguments": arguments}),
    );
    begun.assert_fields(json!({"result.resultType": "task", "result.status": "working"}));
    text_of(&begun["result"]["taskId"]).to_owned()
}

/// Waits until the task has ended and returns it.
fn ended(client: &mut HttpClient, id: &str) -> Value {
    let mut task = Value::Null;
    eventually(|| {
        task = ask(client, "tasks/get", json!({"taskId": id}))["result"].clone();
        task["status"] != "working"
    });
    assert_eq!(task["resultType"], "complete", "{task}");
    task
}

#[test]
fn a_detached_call_is_a_task_with_the_id_of_its_execution() {
    let server = HttpServer::start(&[]);
    let mut client = server.client();
    let code =
        json!({"language": "shell", "code": "echo first; sleep 1; echo last", "detach_after_seconds": 0.2});
    let id = begin(&mut client, code.clone());
    let task = ended(&mut client, &id);
    task.assert_fields(json!({"status": "completed", "result.structuredContent.stdout": "first\nlast\n"}));
    assert_eq!(task["result"]["structuredContent"]["execution_id"], id.as_str());
    assert!(
        task["ttlMs"].is_u64() && task["pollIntervalMs"].is_u64(),
        "{task}"
    );
    assert!(
        text_of(&task["createdAt"]) < text_of(&task["lastUpdatedAt"]),
        "{task}"
    );
    let params = json!({"name": "get_execution", "arguments": {"execution_id": id}});
    let same = ask(&mut client, "tools/call", params)["result"].clone();
    assert_eq!(same["structuredContent"]["stdout"], "first\nlast\n", "{same}");
    // A short call is answered as usual.
    let params = json!({"name": "execute_code", "arguments": {"code": "print(1)"}});
    let soon = ask(&mut client, "tools/call", params)["result"].clone();
    soon.assert_fields(json!({"resultType": "complete", "structuredContent.stdout": "1\n"}));
    // A client that does not declare tasks gets the answer of a detached call.
    let params = json!({"name": "execute_code", "arguments": code});
    let plain = client.rpc_stateless("tools/call", params)["result"].clone();
    assert_eq!(plain["structuredContent"]["running"], true, "{plain}");
}

#[test]
fn failures_and_refusals_complete_their_tasks_and_cancellation_does_not() {
    let server = HttpServer::start(&[]);
    let mut client = server.client();
    let id = begin(
        &mut client,
        json!({"code": "raise SystemExit(3)", "background": true}),
    );
    let task = ended(&mut client, &id);
    task.assert_fields(json!({"status": "completed", "result.isError": false}));
    assert_eq!(task["result"]["structuredContent"]["exit_code"], 3, "{task}");
    let id = begin(
        &mut client,
        json!({"code": "1", "background": true, "resource_limits": {"max_ram_mb": 999_999}}),
    );
    let task = ended(&mut client, &id);
    task.assert_fields(json!({"status": "completed", "result.isError": true}));
    let id = begin(
        &mut client,
        json!({"language": "shell", "code": "sleep 447.213", "background": true}),
    );
    eventually(|| !processes_with("447.213").is_empty());
    for _ in 0..2 {
        let said = ask(&mut client, "tasks/cancel", json!({"taskId": id}));
        assert_eq!(said["result"]["resultType"], "complete", "{said}");
    }
    assert_processes_end("447.213");
    let task = ended(&mut client, &id);
    assert_eq!(task["status"], "cancelled", "{task}");
    assert!(task.get("result").is_none(), "{task}");
}

/// claim: [HTTP-6]
#[test]
fn a_task_of_another_principal_looks_like_one_that_never_existed() {
    let [own, other] = ["own", "other"].map(|name| token(&[name]));
    let server = HttpServer::with_env([("RINGFENCE_TOOLSETS", "execute,observe")]);
    let [mut owner, mut thief] = [own, other].map(|token| server.client_with(&token));
    let id = begin(
        &mut owner,
        json!({"language": "shell", "code": "sleep 5.0990; echo kept", "background": true}),
    );
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let mut refused = |id: &str| {
            let params = json!({"taskId": id, "inputResponses": {}});
            let mut error = ask(&mut thief, method, params)["error"].clone();
            assert_eq!(error["code"], -32602, "{method}: {error}");
            error.take()
        };
        assert_eq!(
            refused(&id),
            refused("01a20080-6a8c-73bf-a9e9-0b9a29a0b8f0"),
            "{method}"
        );
    }
    let undeclared = owner.rpc_stateless("tasks/get", json!({"taskId": id}));
    assert_eq!(undeclared["error"]["code"], -32021, "{undeclared}");
    owner.initialize();
    let of_session = owner.rpc("tasks/get", json!({"taskId": id}));
    assert!(of_session["error"].is_object(), "{of_session}");
    owner.session = None;
    assert_eq!(
        ended(&mut owner, &id)["result"]["structuredContent"]["stdout"],
        "kept\n"
    );
}
