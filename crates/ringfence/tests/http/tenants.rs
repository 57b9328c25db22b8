//! The tenant matrix: every tool and every resource, by the principal whose things they are and by another.

use super::principals::token;
use crate::client::*;

/// In the names of everything that belongs to the first principal, which another may guess.
const CANARY: &str = "canary-of-alpha";
/// In the contents, which no other ever says.
const CONTENT: &str = "what-alpha-has-written";
const SECRET: &str = "CANARY_OF_ALPHA";

/// What belongs to the first principal, and a session of the second.
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

    /// Calls of a tool that would reach what there is, if it existed for the caller.
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
            // No page and no search of the other is kept for this one, and an inner address is refused.
            "web_search" => vec![json!({"query": CANARY})],
            "fetch_webpage" | "browser_fetch" => vec![json!({"url": "http://127.0.0.1:1/"})],
            "list_runtimes"
            | "get_sandbox_info"
            | "list_sessions"
            | "list_state_snapshots"
            | "inspect_state"
            | "vault_list" => vec![json!({})],
            // Not for a caller with namespaces of its own.
            "sandbox_stats" | "get_sandbox_metrics" => vec![json!({})],
            other => panic!("the matrix does not know {other}: say what it could reach"),
        }
    }

    /// What an answer tells of the first principal, beside what the one who asks has said before.
    fn leaks(&self, asked: &str, answer: &Value) -> Vec<String> {
        let answer = answer.to_string();
        let words = self.ids().into_iter().chain([CANARY, SECRET, CONTENT]);
        let is_told = |word: &&str| answer.contains(word) && !asked.contains(word);
        words.filter(is_told).map(str::to_owned).collect()
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
fn nothing_of_one_principal_exists_for_another() {
    let (first, second) = (token(&["alpha"]), token(&["beta"]));
    let everything = token(&["everything", "--namespace", "*", "--role", "operator"]);
    let mut server = HttpServer::start(&[]);
    let place = server.child.id().to_string();
    let add = ringfence(&["vault", "add", SECRET, "--namespace", "alpha", "--server", &place]);
    let mut alpha = server.client_of(&first);
    let mut beta = server.client_of(&second);
    eventually(|| server.ready());
    let added = feed(add, "the value of the canary of alpha");
    assert!(added.status.success(), "{added:?}");
    let things = Things::make(&mut alpha, &mut beta);
    let all = server.client_of(&everything).ask("tools/list", json!({}));
    let (mut count, mut leaks, mut asked) = (0, Vec::new(), String::new());
    println!(
        "{:<24} {:<18} of its own namespace | of that of the other",
        "tool", "principal"
    );
    for tool in texts_of(&all["result"]["tools"], "name") {
        let mut told = Vec::new();
        for call in things.calls(tool) {
            for namespace in [None, Some("alpha")] {
                let mut arguments = call.clone();
                if let Some(namespace) = namespace {
                    arguments["namespace"] = json!(namespace);
                }
                let answer = beta.ask("tools/call", json!({"name": tool, "arguments": arguments}));
                let outcome = outcome(&answer);
                if namespace.is_some() {
                    assert!(
                        ["policy_denied", "unknown"].contains(&outcome.as_str()),
                        "{tool} {arguments}: {answer}"
                    );
                }
                asked += &arguments.to_string();
                for leak in things.leaks(&asked, &answer) {
                    leaks.push(format!("{tool} {arguments} tells {leak}"));
                }
                told.push(outcome);
                count += 1;
            }
        }
        println!("{tool:<24} {:<18} {}", "beta", told.join(", "));
    }
    prompts_are_of_the_own_namespace(&mut beta);
    leaks.extend(leaks_of_resources(&mut beta, &things, &mut asked));
    leaks.extend(leaks_to_a_silent_one(
        &mut server.client_of(&token(&["gamma"])),
        &things,
    ));
    println!(
        "{count} calls by another principal, and the resources: {} leaks",
        leaks.len()
    );
    assert!(leaks.is_empty(), "{leaks:#?}");
    everything_is_as_it_was(&mut alpha, &things);
    assert!(server.child.try_wait().unwrap().is_none());
}

/// What a prompt looks at and leaves on record is the principal's own; its narrowed limit tells which was asked.
fn prompts_are_of_the_own_namespace(beta: &mut HttpClient) {
    let prompt = beta.prompt("generate_secure_script", json!({"task": "print one"}));
    assert!(prompt.to_string().contains("max_processes 17"), "{prompt}");
    let arguments = json!({"error": "python.syntax", "data": "print(", "language": "python"});
    let prompt = beta.prompt("diagnose_validation_error", arguments);
    assert!(prompt["result"].is_object(), "{prompt}");
    let records = beta
        .call("audit_execution", json!({"detail": true, "limit": 1000}))
        .to_string();
    assert_contains(&records, ["prompt generate_secure_script", "prompt diagnose"]);
}

/// One that has said nothing hears nothing either.
fn leaks_to_a_silent_one(gamma: &mut HttpClient, things: &Things) -> Vec<String> {
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
        let answer = gamma.ask("tools/call", json!({"name": tool, "arguments": {}}));
        assert!(
            ["its own", "not_found"].contains(&outcome(&answer).as_str()),
            "{tool}: {answer}"
        );
        println!("{tool:<24} {:<18} its own", "gamma");
        leaks.extend(
            things
                .leaks("", &answer)
                .into_iter()
                .map(|leak| format!("{tool} tells gamma {leak}")),
        );
    }
    for uri in ["sandbox://logs", "sandbox://audit"] {
        let answer = gamma.read(uri);
        assert!(answer["result"].is_object(), "{uri}: {answer}");
        leaks.extend(
            things
                .leaks("", &answer)
                .into_iter()
                .map(|leak| format!("{uri} tells gamma {leak}")),
        );
    }
    leaks
}

fn leaks_of_resources(beta: &mut HttpClient, things: &Things, asked: &mut String) -> Vec<String> {
    let listed = beta.ask("resources/list", json!({}));
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
        let answer = beta.read(&uri);
        *asked += &uri;
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
        for leak in things.leaks(asked, &answer) {
            leaks.push(format!("{uri} tells {leak}"));
        }
    }
    leaks
}

/// The positive control: the first principal sees it all, unchanged.
fn everything_is_as_it_was(alpha: &mut HttpClient, things: &Things) {
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
        let answer = alpha.read(uri).to_string();
        assert!(answer.contains(expect), "{uri}: {answer}");
    }
}

/// claim: [HTTP-6]
#[test]
fn events_of_one_principal_are_not_heard_by_another() {
    let (first, second) = (token(&["alpha"]), token(&["beta"]));
    let server = HttpServer::start(&[]);
    let [mut alpha, mut beta] = [&first, &second].map(|token| server.client_of(token));
    let [mut heard_by_alpha, mut heard_by_beta] = [&mut alpha, &mut beta].map(|client| {
        client.ask("logging/setLevel", json!({"level": "debug"}));
        client.listen()
    });
    let code = format!("print('{CANARY}')");
    let done = alpha.run(json!({"code": code}));
    heard_by_alpha.until(text_of(&done["execution_id"]));
    heard_by_alpha.until("execution.completed");
    let own = beta.run(json!({"code": "print('own')"}));
    heard_by_beta.until(text_of(&own["execution_id"]));
    heard_by_beta.until("execution.completed");
    for word in [CANARY, "alpha", text_of(&done["execution_id"])] {
        assert!(
            !heard_by_beta.text.contains(word),
            "{word}: {}",
            heard_by_beta.text
        );
    }
}
