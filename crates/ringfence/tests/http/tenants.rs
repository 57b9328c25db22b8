//! The tenant matrix: every tool and every resource, called by the principal that owns the objects and by another.

use super::principals::token;
use crate::client::*;

/// Part of the names of all objects of the first principal, which another may guess.
const CANARY: &str = "canary-of-alpha";
/// The contents, which no other principal ever sends.
const CONTENT: &str = "what-alpha-has-written";
const SECRET: &str = "CANARY_OF_ALPHA";

/// The objects of the first principal, and a session of the second.
struct Things {
    session: String,
    execution: String,
    running: String,
    snapshot: String,
    artifact: String,
    other_session: String,
}

impl Things {
    fn make(alpha: &mut HttpClient, beta: &mut HttpClient) -> Self {
        let mut made = |tool: &str, arguments: Value| {
            let facts = alpha.facts(tool, arguments);
            assert_eq!(facts["success"], true, "{tool}: {facts}");
            facts
        };
        let session = text_of(&made("create_session", json!({}))["session_id"]).to_owned();
        let keep =
            format!("import os\nword = '{CONTENT}'\nprint(word)\nopen('{CANARY}.txt', 'w').write(word)");
        made("execute_code", json!({"session_id": session, "code": keep}));
        made(
            "put_file",
            json!({"path": format!("{CANARY}.txt"), "text": CONTENT}),
        );
        let code = format!("print('{CONTENT}')\nopen('{CANARY}.out', 'w').write('{CONTENT}')");
        let left = made("execute_code", json!({"code": code}));
        let snapshot = made("create_state_snapshot", json!({"description": CONTENT}));
        let sleeping = json!({"language": "shell", "code": format!("echo {CONTENT}; sleep 300"), "background": true, "timeout_seconds": 400});
        let running = made("execute_code", sleeping);
        made(
            "request_egress",
            json!({"domain": format!("{CANARY}.example"), "wait_seconds": 0}),
        );
        let other = beta.facts("create_session", json!({}));
        Self {
            session,
            execution: text_of(&left["execution_id"]).to_owned(),
            running: text_of(&running["execution_id"]).to_owned(),
            snapshot: text_of(&snapshot["snapshot_id"]).to_owned(),
            artifact: text_of(&left["artifacts"][0]["uri"]).to_owned(),
            other_session: text_of(&other["session_id"]).to_owned(),
        }
    }

    fn ids(&self) -> [&str; 4] {
        [&self.session, &self.execution, &self.running, &self.snapshot]
    }

    /// Returns calls of a tool that would reach the objects if they existed for the caller.
    fn calls(&self, tool: &str) -> Vec<Value> {
        let (session, execution, snapshot) = (&self.session, &self.execution, &self.snapshot);
        let path = format!("{CANARY}.txt");
        match tool {
            "execute_code" => vec![
                json!({"code": "print(word)", "session_id": session}),
                json!({"code": "print(open('x').read())", "files": [{"path": "x", "artifact": self.artifact}]}),
                json!({"code": format!("print(open('{CANARY}.txt').read())"), "workspace": "namespace"}),
                json!({"code": format!("import os; print(os.environ['{SECRET}'])"), "secrets": [SECRET]}),
            ],
            "run_sandbox_code" => vec![json!({"code": "print(1)"})],
            "get_execution" => vec![
                json!({"execution_id": execution}),
                json!({"execution_id": self.running, "stdout_from": 0}),
            ],
            "list_executions" => vec![json!({}), json!({"session_id": session})],
            "cancel_execution" => vec![json!({"execution_id": self.running})],
            "validate_code" => vec![json!({"code": "print(1)"})],
            "install_package" => {
                vec![json!({"packages": ["ringfence-does-not-exist"], "session_id": session})]
            }
            "create_session" => vec![json!({"workspace": "namespace"})],
            "interrupt_session" | "terminate_session" => vec![json!({"session_id": session})],
            "bridge_data" => vec![
                json!({"from_session": session, "name": "word", "to_session": self.other_session}),
                json!({"data": "mine", "name": "word", "to_session": session}),
            ],
            "put_file" => vec![json!({"path": "a.txt", "text": "mine", "session_id": session})],
            "edit_file" => vec![
                json!({"path": path, "old": "alpha", "new": "mine"}),
                json!({"path": path, "old": "alpha", "new": "mine", "session_id": session}),
            ],
            "get_file" => vec![
                json!({"path": path}),
                json!({"path": path, "session_id": session}),
            ],
            "list_files" => vec![json!({}), json!({"session_id": session})],
            "create_state_snapshot" => vec![json!({"session_id": session})],
            "restore_state_snapshot" => vec![
                json!({"snapshot_id": snapshot}),
                json!({"snapshot_id": snapshot, "session_id": session}),
            ],
            "delete_state_snapshot" => vec![json!({"snapshot_id": snapshot})],
            "diff_workspace" => vec![json!({"snapshot_id": snapshot}), json!({"session_id": session})],
            "validate_json_data" => vec![json!({"schema_name_or_dict": {}, "data": 1})],
            "validate_csv_data" => vec![json!({"csv_content": "a,b\n1,2\n"})],
            "get_artifacts" => vec![json!({"request_id": execution})],
            "set_resource_limits" => vec![json!({"max_processes": 17})],
            "audit_execution" => vec![json!({"detail": true, "limit": 1000})],
            "vault_delete" => vec![json!({"key": SECRET})],
            "request_egress" => vec![
                json!({"domain": format!("{CANARY}.example"), "wait_seconds": 0}),
                json!({"domain": "b.example", "session_id": session, "wait_seconds": 0}),
            ],
            // No page or search of the other principal is cached for this one, and a private address is refused.
            "web_search" => vec![json!({"query": CANARY})],
            "fetch_webpage" | "browser_fetch" => vec![json!({"url": "http://127.0.0.1:1/"})],
            "list_runtimes"
            | "get_sandbox_info"
            | "list_sessions"
            | "list_state_snapshots"
            | "inspect_state"
            | "vault_list" => vec![json!({})],
            // Refused to a caller that is limited to some namespaces.
            "sandbox_stats" | "get_sandbox_metrics" => vec![json!({})],
            other => panic!("the matrix lacks {other}: add calls that could reach foreign objects"),
        }
    }

    /// Returns the words of the first principal in an answer that the caller has not sent itself before.
    fn leaks(&self, sent: &str, answer: &Value) -> Vec<String> {
        let answer = answer.to_string();
        let words = self.ids().into_iter().chain([CANARY, SECRET, CONTENT]);
        let is_leaked = |word: &&str| answer.contains(word) && !sent.contains(word);
        words.filter(is_leaked).map(str::to_owned).collect()
    }
}

fn outcome(answer: &Value) -> String {
    let facts = answer["result"].facts();
    match (answer["error"]["message"].as_str(), facts["code"].as_str()) {
        (Some(_), _) => "unknown".to_owned(),
        (_, Some(code)) => code.to_owned(),
        _ => "its own".to_owned(),
    }
}

/// claim: [HTTP-6]
#[test]
fn no_tool_or_resource_reveals_anything_of_another_principal() {
    let (first, second) = (token(&["alpha"]), token(&["beta"]));
    let everything = token(&["everything", "--namespace", "*", "--role", "operator"]);
    let mut server = HttpServer::start(&[]);
    let place = server.child.id().to_string();
    let add = ringfence(&["vault", "add", SECRET, "--namespace", "alpha", "--server", &place]);
    let mut alpha = server.initialized_client_with(&first);
    let mut beta = server.initialized_client_with(&second);
    eventually(|| server.ready());
    let added = run_with_stdin(add, "the value of the canary of alpha");
    assert!(added.status.success(), "{added:?}");
    let things = Things::make(&mut alpha, &mut beta);
    let all = server
        .initialized_client_with(&everything)
        .rpc("tools/list", json!({}));
    let (mut count, mut leaks, mut sent) = (0, Vec::new(), String::new());
    println!(
        "{:<24} {:<18} of its own namespace | of that of the other",
        "tool", "principal"
    );
    for tool in texts_of(&all["result"]["tools"], "name") {
        let mut outcomes = Vec::new();
        for call in things.calls(tool) {
            for namespace in [None, Some("alpha")] {
                let mut arguments = call.clone();
                if let Some(namespace) = namespace {
                    arguments["namespace"] = json!(namespace);
                }
                let answer = beta.rpc("tools/call", json!({"name": tool, "arguments": arguments}));
                let outcome = outcome(&answer);
                if namespace.is_some() {
                    assert!(
                        ["policy_denied", "unknown"].contains(&outcome.as_str()),
                        "{tool} {arguments}: {answer}"
                    );
                }
                sent += &arguments.to_string();
                for leak in things.leaks(&sent, &answer) {
                    leaks.push(format!("{tool} {arguments} reveals {leak}"));
                }
                outcomes.push(outcome);
                count += 1;
            }
        }
        println!("{tool:<24} {:<18} {}", "beta", outcomes.join(", "));
    }
    assert_prompts_use_the_own_namespace(&mut beta);
    leaks.extend(leaks_of_resources(&mut beta, &things, &mut sent));
    leaks.extend(leaks_to_a_new_principal(
        &mut server.initialized_client_with(&token(&["gamma"])),
        &things,
    ));
    println!(
        "{count} calls by another principal, and the resources: {} leaks",
        leaks.len()
    );
    assert!(leaks.is_empty(), "{leaks:#?}");
    assert_owner_sees_everything(&mut alpha, &things);
    assert!(server.child.try_wait().unwrap().is_none());
}

/// Checks that a prompt uses and records the namespace of its principal; the narrowed limit identifies the namespace.
fn assert_prompts_use_the_own_namespace(beta: &mut HttpClient) {
    let prompt = beta.get_prompt("generate_secure_script", json!({"task": "print one"}));
    assert!(prompt.to_string().contains("max_processes 17"), "{prompt}");
    let arguments = json!({"error": "python.syntax", "data": "print(", "language": "python"});
    let prompt = beta.get_prompt("diagnose_validation_error", arguments);
    assert!(prompt["result"].is_object(), "{prompt}");
    let records = beta
        .call("audit_execution", json!({"detail": true, "limit": 1000}))
        .to_string();
    assert_contains(&records, ["prompt generate_secure_script", "prompt diagnose"]);
}

/// Returns the leaks to a principal that has sent no words of the first one.
fn leaks_to_a_new_principal(gamma: &mut HttpClient, things: &Things) -> Vec<String> {
    let mut leaks = Vec::new();
    for tool in [
        "list_executions",
        "list_sessions",
        "list_files",
        "list_state_snapshots",
        "inspect_state",
        "audit_execution",
        "vault_list",
    ] {
        let answer = gamma.rpc("tools/call", json!({"name": tool, "arguments": {}}));
        assert!(
            ["its own", "not_found"].contains(&outcome(&answer).as_str()),
            "{tool}: {answer}"
        );
        println!("{tool:<24} {:<18} its own", "gamma");
        leaks.extend(
            things
                .leaks("", &answer)
                .into_iter()
                .map(|leak| format!("{tool} reveals to gamma {leak}")),
        );
    }
    for uri in ["sandbox://logs", "sandbox://audit"] {
        let answer = gamma.read_resource(uri);
        assert!(answer["result"].is_object(), "{uri}: {answer}");
        leaks.extend(
            things
                .leaks("", &answer)
                .into_iter()
                .map(|leak| format!("{uri} reveals to gamma {leak}")),
        );
    }
    leaks
}

fn leaks_of_resources(beta: &mut HttpClient, things: &Things, sent: &mut String) -> Vec<String> {
    let listed = beta.rpc("resources/list", json!({}));
    let own = texts_of(&listed["result"]["resources"], "uri")
        .into_iter()
        .map(str::to_owned);
    let mut uris: Vec<String> = own.collect();
    assert!(
        !uris.contains(&"sandbox://status".to_owned()),
        "figures of the whole server: {uris:?}"
    );
    let bare = things.artifact.split('?').next().unwrap().to_owned();
    uris.extend([
        "sandbox://status".to_owned(),
        "sandbox://audit?namespace=alpha".to_owned(),
        "sandbox://logs?namespace=alpha".to_owned(),
        things.artifact.clone(),
        format!("{bare}?namespace=beta"),
        bare,
        format!("sandbox://snapshots/{}", things.snapshot),
        format!("sandbox://snapshots/{}?namespace=alpha", things.snapshot),
        format!("sandbox://snapshots/{}?namespace=beta", things.snapshot),
    ]);
    let mut leaks = Vec::new();
    for uri in uris {
        let answer = beta.read_resource(&uri);
        *sent += &uri;
        let outcome = if answer["error"].is_object() {
            "unknown"
        } else {
            "its own"
        };
        println!(
            "{:<80} beta {outcome}",
            uri.replace(&things.execution, "EXECUTION")
                .replace(&things.snapshot, "SNAPSHOT")
        );
        assert!(!uri.contains("alpha") || outcome == "unknown", "{uri}: {answer}");
        for leak in things.leaks(sent, &answer) {
            leaks.push(format!("{uri} reveals {leak}"));
        }
    }
    leaks
}

/// The positive control: the first principal still sees all its objects, unchanged.
fn assert_owner_sees_everything(alpha: &mut HttpClient, things: &Things) {
    let said = |alpha: &mut HttpClient, tool: &str, arguments: Value| alpha.call(tool, arguments).to_string();
    let path = format!("{CANARY}.txt");
    for (tool, arguments, expect) in [
        (
            "execute_code",
            json!({"code": "print(word)", "session_id": things.session}),
            CONTENT,
        ),
        (
            "get_execution",
            json!({"execution_id": things.execution}),
            CONTENT,
        ),
        (
            "get_execution",
            json!({"execution_id": things.running, "stdout_from": 0}),
            "\"running\":true",
        ),
        ("list_executions", json!({}), &things.running),
        ("list_sessions", json!({}), &things.session),
        ("get_file", json!({"path": path}), CONTENT),
        (
            "get_file",
            json!({"path": path, "session_id": things.session}),
            CONTENT,
        ),
        ("list_state_snapshots", json!({}), &things.snapshot),
        ("get_artifacts", json!({"request_id": things.execution}), CANARY),
        ("vault_list", json!({}), SECRET),
        ("inspect_state", json!({}), &things.session),
        (
            "audit_execution",
            json!({"detail": true, "limit": 1000}),
            "principal alpha, mcp story 1",
        ),
        (
            "cancel_execution",
            json!({"execution_id": things.running}),
            "\"cancelled\":true",
        ),
        (
            "delete_state_snapshot",
            json!({"snapshot_id": things.snapshot}),
            "true",
        ),
        ("vault_delete", json!({"key": SECRET}), "\"existed\":true"),
        ("terminate_session", json!({"session_id": things.session}), "true"),
    ] {
        let answer = said(alpha, tool, arguments);
        assert!(answer.contains(expect), "{tool}: {expect} is not in {answer}");
        println!("{tool:<24} {:<18} sees it", "alpha");
    }
    let limits = alpha.facts("inspect_state", json!({}));
    assert_eq!(limits["is_narrowed"], false, "{limits}");
    for (uri, expect) in [
        (things.artifact.as_str(), CONTENT),
        ("sandbox://audit", "principal alpha"),
        ("sandbox://logs", &things.execution),
    ] {
        let answer = alpha.read_resource(uri).to_string();
        assert!(answer.contains(expect), "{uri}: {answer}");
    }
}

/// claim: [HTTP-6]
#[test]
fn events_of_one_principal_are_not_sent_to_another() {
    let (first, second) = (token(&["alpha"]), token(&["beta"]));
    let server = HttpServer::start(&[]);
    let [mut alpha, mut beta] = [&first, &second].map(|token| server.initialized_client_with(token));
    let [mut events_of_alpha, mut events_of_beta] = [&mut alpha, &mut beta].map(|client| {
        client.rpc("logging/setLevel", json!({"level": "debug"}));
        client.open_events()
    });
    let code = format!("print('{CANARY}')");
    let done = alpha.run(json!({"code": code}));
    events_of_alpha.read_until(text_of(&done["execution_id"]));
    events_of_alpha.read_until("execution.completed");
    let own = beta.run(json!({"code": "print('own')"}));
    events_of_beta.read_until(text_of(&own["execution_id"]));
    events_of_beta.read_until("execution.completed");
    for word in [CANARY, "alpha", text_of(&done["execution_id"])] {
        assert!(
            !events_of_beta.text.contains(word),
            "{word}: {}",
            events_of_beta.text
        );
    }
}
