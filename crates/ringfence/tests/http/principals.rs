//! Tokens: creation, the rights of their principals, and the limits of these rights.

use super::spawn_sleep;
use crate::client::*;
use std::{
    fs,
    io::Read,
    process::Command,
    time::{Duration, Instant},
};

/// Creates a token.
#[track_caller]
pub fn token(words: &[&str]) -> String {
    cli_stdout(&[&["token", "create"], words].concat())
        .trim()
        .to_owned()
}

/// claim: [HTTP-3]
#[test]
fn a_token_is_shown_once_and_only_its_digest_is_kept() {
    let made = run_cli(&[
        "token",
        "create",
        "team-a",
        "--namespace",
        "team-a,shared",
        "--toolsets",
        "execute",
        "--expires",
        "1h",
    ]);
    let text = stdout_of(&made);
    let token = text.trim();
    assert!(token.starts_with("rft_") && token.len() == 47, "{token}");
    assert_contains(stderr_of(&made), ["not shown again"]);
    let listed = cli_json(&["token", "list"]);
    listed.assert_fields(json!({"tokens.0.name": "team-a", "tokens.0.namespaces": ["team-a", "shared"]}));
    assert_contains(
        cli_stdout(&["token", "list"]),
        ["team-a caller namespaces=team-a,shared toolsets=execute, until "],
    );
    let files = files_below(&state_dir());
    assert!(files.iter().any(|(path, _)| path.ends_with("tokens.json")));
    let none: [std::path::PathBuf; 0] = [];
    assert_eq!(files_containing(&state_dir(), &token[4..]), none);
    for wrong in [
        vec!["token", "create", "team-a"],
        vec!["token", "create", "../x"],
        vec!["token", "create", "b", "--toolsets", "exekute"],
        vec!["token", "create", "b", "--namespace", "*,a"],
        vec!["token", "create", "b", "--expires", "soon"],
        vec!["token", "revoke", "nobody"],
    ] {
        assert!(!run_cli(&wrong).status.success(), "{wrong:?}");
    }
    cli_stdout(&["token", "revoke", "team-a"]);
    assert_contains(cli_stdout(&["token", "list"]), ["there are no tokens"]);
    self::token(&["anyone", "--namespace", "*"]);
    let listed = cli_json(&["token", "list"]);
    listed.assert_fields(json!({"tokens.0.namespaces": ["*"], "tokens.0.toolsets": ["all"]}));
}

/// claim: [HTTP-3]
#[test]
fn token_creation_and_revocation_are_recorded() {
    token(&["team-a", "--toolsets", "execute", "--role", "operator"]);
    cli_stdout(&["token", "revoke", "team-a"]);
    assert!(!run_cli(&["token", "revoke", "team-b"]).status.success());
    let exported = cli_stdout(&["audit", "export"]);
    let records = |action: &str| -> Vec<Value> {
        let records = exported
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        records
            .filter(|record| record["action"] == action)
            .map(|record| {
                json!([
                    record["outcome"],
                    record["details"]["name"],
                    record["details"]["role"]
                ])
            })
            .collect()
    };
    let created = ["pending", "ok"].map(|outcome| json!([outcome, "team-a", "operator"]));
    assert_eq!(records("token.created"), created);
    let revoked = [
        json!(["pending", "team-a", null]),
        json!(["ok", "team-a", null]),
        json!(["pending", "team-b", null]),
        json!(["failed", "team-b", null]),
    ];
    assert_eq!(records("token.revoked"), revoked);
    cli_stdout(&["audit", "verify"]);
}

/// claim: [HTTP-4]
#[test]
fn a_request_without_a_valid_token_gets_only_a_challenge() {
    let good = token(&["team"]);
    let old = token(&["old", "--expires", "1s"]);
    let server = HttpServer::start(&[]);
    let status_of = |token: Option<&str>| {
        let mut client = server.client();
        client.token = token.map(str::to_owned);
        let reply = client.send_initialize(&json!({}));
        let challenge = reply.header("www-authenticate").map(str::to_owned);
        (reply.status, challenge, reply.body)
    };
    assert_eq!(status_of(Some(&good)).0, 200, "the control");
    let (status, challenge, body) = status_of(None);
    assert_eq!(
        (status, challenge.as_deref()),
        (401, Some(r#"Bearer realm="ringfence""#)),
        "{body}"
    );
    eventually(|| status_of(Some(&old)).0 == 401);
    let mut wrong = good.clone();
    wrong.pop();
    for bad in [&wrong, "x", &format!("{good}A"), &good.to_uppercase()] {
        let (status, challenge, body) = status_of(Some(bad));
        assert_eq!(status, 401);
        assert_contains(challenge.unwrap(), [r#"error="invalid_token""#]);
        assert!(!body.contains(bad), "{body}");
    }
    let client = server.client();
    for headers in [
        vec![("Authorization", format!("Basic {good}"))],
        vec![
            ("Authorization", format!("Bearer {good}")),
            ("Authorization", format!("Bearer {good}")),
        ],
    ] {
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        assert_eq!(client.post(&headers, &json!({})).status, 401, "{headers:?}");
    }
    let queried = client.request("POST", &format!("/mcp?access_token={good}"), &[], "{}");
    assert_eq!(queried.status, 400, "{queried:?}");
    assert!(!queried.body.contains(&good));
    for method in ["GET", "DELETE", "PUT", "OPTIONS"] {
        assert_eq!(client.request(method, "/mcp", &[], "").status, 401, "{method}");
    }
    assert_eq!(client.get("/healthz").status, 200, "which says nothing");
}

/// claim: [HTTP-5]
#[test]
fn a_revoked_token_is_refused_at_once_and_its_calls_end() {
    let (gone, stays) = (token(&["gone"]), token(&["stays"]));
    let server = HttpServer::start(&[]);
    let mut other = server.initialized_client_with(&stays);
    let mut client = server.initialized_client_with(&gone);
    assert!(client.rpc("ping", json!({}))["result"].is_object());
    let mut stream = client.open("/mcp");
    let running = spawn_sleep(&client, "223.606");
    cli_stdout(&["token", "revoke", "gone"]);
    let revoked = Instant::now();
    assert_eq!(client.rpc_reply("ping", json!({})).status, 401);
    let mut rest = Vec::new();
    drop(stream.read_to_end(&mut rest));
    drop(running.join().unwrap());
    assert_processes_end("223.606");
    assert!(
        revoked.elapsed() < Duration::from_secs(10),
        "{:?}",
        revoked.elapsed()
    );
    assert!(other.rpc("ping", json!({}))["result"].is_object(), "others stay");
}

#[test]
fn a_principal_gets_the_tools_and_the_rate_of_its_token() {
    let narrow = token(&["narrow", "--toolsets", "vault,execute", "--rate", "6"]);
    let server = HttpServer::start(&["--toolsets", "execute,sessions"]);
    let mut client = server.initialized_client_with(&narrow);
    let tools = client.rpc("tools/list", json!({}))["result"]["tools"].clone();
    let names = texts_of(&tools, "name");
    assert!(names.contains(&"execute_code"));
    assert!(
        !names.contains(&"vault_list") && !names.contains(&"create_session"),
        "{names:?}"
    );
    let refused = client.rpc("tools/call", json!({"name": "create_session", "arguments": {}}));
    refused.assert_text("error.message", ["not offered to you"]);
    let limited = (0..10)
        .map(|_| client.rpc_reply("ping", json!({})))
        .find(|reply| reply.status == 429);
    let limited = limited.unwrap();
    assert!(limited.header("retry-after").is_some(), "{limited:?}");
    let mut wide = server.initialized_client_with(&token(&["wide", "--namespace", "*"]));
    for _ in 0..20 {
        assert!(wide.rpc("ping", json!({}))["result"].is_object());
    }
    let anywhere = wide.run(json!({"code": "print(1)", "namespace": "anywhere"}));
    assert_eq!(anywhere["stdout"], "1\n");
}

#[test]
fn a_principal_has_its_own_limits_and_detach_time() {
    let small = token(&[
        "small",
        "--ram-mb",
        "64",
        "--timeout",
        "30",
        "--processes",
        "8",
        "--detach-after",
        "0.2",
    ]);
    let usual = token(&["usual"]);
    assert_contains(
        cli_stdout(&["token", "list"]),
        [
            "small caller namespaces=small toolsets=all, calls are detached after 0.2 s, max_processes 8, max_ram_mb 64, timeout_ms 30000,",
        ],
    );
    let server = HttpServer::start(&[]);
    let mut client = server.initialized_client_with(&small);
    let listed = client.rpc("tools/list", json!({}))["result"]["tools"].clone();
    let execute = list_of(&listed)
        .iter()
        .find(|tool| tool["name"] == "execute_code");
    assert_eq!(
        execute.unwrap()["inputSchema"]["properties"]["timeout_seconds"]["maximum"],
        30
    );
    let info = client.facts("get_sandbox_info", json!({}));
    assert_eq!(info["resource_limits"]["max_ram_mb"], 64, "{info}");
    let more = client.run(json!({"code": "1", "resource_limits": {"max_ram_mb": 65}}));
    assert_eq!(more["code"], "policy_denied", "{more}");
    let more = client.run(json!({"code": "1", "resource_limits": {"max_disk_mb": 100}}));
    assert_eq!(
        more["code"], "invalid_argument",
        "it would raise the memory: {more}"
    );
    let hog = json!({"code": "x = bytearray(200 << 20)", "detach_after_seconds": 0});
    let hog = client.run(hog);
    assert_eq!(hog["success"], false, "{hog}");
    let slow = json!({"language": "shell", "code": "sleep 1; echo done"});
    assert_eq!(client.run(slow.clone())["running"], true);
    let more = json!({"resource_limits": {"max_processes": 9}});
    client.call_error("create_session", more, "policy_denied");
    let session = client.create_session(json!({}));
    let inside = json!({"session_id": session, "code": "print(1)", "detach_after_seconds": 0});
    assert_eq!(client.run(inside)["stdout"], "1\n");
    let shown = client.facts("set_resource_limits", json!({"max_output_bytes": 1_000_000}));
    assert_eq!(shown["limits"]["defaults"]["max_ram_mb"], 64, "{shown}");
    let prompt = client.get_prompt("generate_secure_script", json!({"task": "x"}));
    assert_contains(prompt.to_string(), ["max_ram_mb 64"]);
    let mut client = server.initialized_client_with(&usual);
    assert_eq!(client.run(slow)["stdout"], "done\n", "the control");
    let hog = client.run(json!({"code": "x = bytearray(200 << 20)"}));
    assert_eq!(hog["success"], true, "the control: {hog}");
}

#[test]
fn a_session_of_another_principal_gives_no_larger_limits() {
    let small = token(&["small", "--ram-mb", "64"]);
    let usual = token(&["usual", "--namespace", "small"]);
    let server = HttpServer::start(&[]);
    let mut client = server.initialized_client_with(&usual);
    let session = client.create_session(json!({"namespace": "small"}));
    let inside = json!({"namespace": "small", "session_id": session, "code": "1"});
    let done = client.run(inside.clone());
    assert_eq!(done["success"], true, "the control: {done}");
    let mut narrow = server.initialized_client_with(&small);
    let refused = narrow.run(inside);
    assert_eq!(refused["code"], "policy_denied", "{refused}");
    let given = json!({"namespace": "small", "to_session": session, "name": "v", "data": 1});
    narrow.call_error("bridge_data", given.clone(), "policy_denied");
    assert_eq!(client.facts("bridge_data", given)["success"], true, "the control");
}

#[test]
fn a_bridge_takes_no_longer_than_the_timeout_of_its_principal() {
    let hasty = token(&["hasty", "--timeout", "1"]);
    let server = HttpServer::start(&[]);
    let mut usual = server.initialized_client_with(&token(&["usual", "--namespace", "hasty"]));
    let node = usual.create_session(json!({"namespace": "hasty", "language": "node"}));
    let code = "Object.defineProperty(globalThis, 'v', { get() { for (;;); } }); var w = 1";
    let slow = json!({"namespace": "hasty", "session_id": node, "code": code});
    assert_eq!(usual.run(slow)["success"], true);
    let mut client = server.initialized_client_with(&hasty);
    let mut carried = |name: &str| {
        client.facts(
            "bridge_data",
            json!({"from_session": node, "to_session": node, "name": name, "as": "x"}),
        )
    };
    assert_eq!(carried("w")["success"], true, "the control");
    let refused = carried("v").to_string();
    assert!(refused.contains("needs more than 1 s"), "{refused}");
}

#[test]
fn a_token_is_read_from_a_file_and_from_one_source_only() {
    let scratch = TempDir::new("token-file");
    let file = scratch.file("token", "0123456789abcdef0123456789abcdef\n");
    let serve = || {
        let mut command = ringfence(&["serve", "--transport", "http", "--listen", "0.0.0.0:0"]);
        command.env("RINGFENCE_HTTP_TOKEN_FILE", &file);
        command
    };
    let server = HttpServer::from_command(serve());
    let mut client = server.client();
    client.address = format!("127.0.0.1:{}", server.address.rsplit(':').next().unwrap());
    assert_eq!(client.send_initialize(&json!({})).status, 401);
    client.token = Some("0123456789abcdef0123456789abcdef".to_owned());
    client.initialize();
    drop(server);
    let both = serve()
        .env("SANDBOX_API_TOKEN", "0123456789abcdef0123456789abcdef")
        .output()
        .unwrap();
    assert_contains(stderr_of(&both), ["SANDBOX_API_TOKEN is set, too"]);
    let refused = |why: &str| {
        let output = serve().output().unwrap();
        assert!(!output.status.success());
        assert_contains(stderr_of(&output), ["http.token_file", why]);
    };
    for short in ["no token", ""] {
        fs::write(&file, short).unwrap();
        refused("less than 16 characters");
    }
    fs::write(&file, "0123456789abcdef0123456789abcdef\nand a note\n").unwrap();
    let mode = |mode| set_mode(&file, mode);
    for writable in [0o620, 0o602] {
        mode(writable);
        refused("may write to it");
    }
    mode(0o444);
    drop(HttpServer::from_command(serve()));
    fs::remove_file(&file).unwrap();
    let made = Command::new("mkfifo").arg(&file).status().unwrap();
    assert!(made.success());
    refused("it is not a regular file");
}

#[test]
fn a_token_is_revoked_even_if_the_record_cannot_be_written() {
    let own = token(&["own"]);
    let server = HttpServer::start(&[]);
    drop(server.initialized_client_with(&own));
    let scratch = TempDir::new("no-record");
    let not_a_directory = scratch.file("file", "");
    let unwritable = |words: &[&str]| {
        let mut command = ringfence(words);
        command.env("RINGFENCE_AUDIT_PATH", format!("{not_a_directory}/audit.db"));
        command.output().unwrap()
    };
    let made = unwritable(&["token", "create", "more"]);
    assert!(!made.status.success(), "the control: {made:?}");
    let revoked = unwritable(&["token", "revoke", "own"]);
    assert!(revoked.status.success(), "{revoked:?}");
    assert_eq!(stdout_of(&revoked), "revoked\n");
    assert_contains(stderr_of(&revoked), ["revoked, and not on record: "]);
    let client = server.client_with(&own);
    assert_eq!(client.send_initialize(&json!({})).status, 401);
}

#[test]
fn token_limits_out_of_range_are_refused() {
    for words in [
        ["--cpus", "nan"],
        ["--cpus", "inf"],
        ["--cpus", "0"],
        ["--cpus=-1", "--json"],
        ["--timeout", "0.0004"],
        ["--timeout", "0.05"],
        ["--ram-mb", "8"],
        ["--detach-after", "0.0004"],
        ["--detach-after", "86401"],
        ["--detach-after", "nan"],
    ] {
        let made = run_cli(&["token", "create", "own", words[0], words[1]]);
        assert!(!made.status.success(), "{words:?}: {made:?}");
    }
    token(&["own", "--cpus", "0.5", "--detach-after", "0.001"]);
}

/// claim: [HTTP-6]
#[test]
fn a_session_of_another_principal_looks_like_one_that_never_existed() {
    let (first, second) = (token(&["first"]), token(&["second"]));
    let server = HttpServer::start(&[]);
    let mut own = server.initialized_client_with(&first);
    let mut thief = server.client_with(&second);
    let mut ask = |session: Option<String>| {
        thief.session = session;
        let reply = thief.rpc_reply("tools/list", json!({}));
        (reply.status, reply.body)
    };
    let stolen = ask(own.session.clone());
    let invented = ask(Some("00000000-0000-4000-8000-000000000000".to_owned()));
    assert_eq!(stolen, invented);
    assert_eq!(stolen.0, 404);
    thief.session = own.session.clone();
    let id = own.session.clone().unwrap();
    let deleted = thief.request("DELETE", "/mcp", &[("Mcp-Session-Id", &id)], "");
    assert_eq!(deleted.status, 404, "{deleted:?}");
    assert!(own.rpc("ping", json!({}))["result"].is_object());
    let streamed = thief.request(
        "GET",
        "/mcp",
        &[("Mcp-Session-Id", &id), ("Accept", "text/event-stream")],
        "",
    );
    assert_eq!(streamed.status, 404, "{streamed:?}");
}

/// claim: [HTTP-8]
#[test]
fn only_an_operators_client_is_asked_for_approvals() {
    let asked = |role: &str| {
        let token = token(&[&format!("by-{role}"), "--role", role]);
        let server = HttpServer::start(&[]);
        let mut client = server.client_with(&token);
        client.initialize_with(&json!({"elicitation": {}}));
        let arguments = json!({"domain": "wanted.example", "reason": "to read", "wait_seconds": 2});
        let reply = client.rpc_reply(
            "tools/call",
            json!({"name": "request_egress", "arguments": arguments}),
        );
        let is_question = |message: &Value| message["method"] == "elicitation/create";
        reply.messages().iter().any(is_question)
    };
    assert!(asked("operator"), "the control");
    assert!(!asked("caller"));
}

#[test]
fn a_question_stays_open_when_its_stateless_call_or_its_session_has_ended() {
    let server = HttpServer::start(&[]);
    let mut client = server.client();
    let wanted = |domain: &str| {
        let arguments = json!({"domain": domain, "reason": "to read", "wait_seconds": 0});
        json!({"name": "request_egress", "arguments": arguments})
    };
    let answer = client.rpc_stateless("tools/call", wanted("a.example"));
    assert_eq!(answer["result"].facts()["pending"], true, "{answer}");
    // The client that could answer is gone before it does.
    client.initialize_with(&json!({"elicitation": {}}));
    client.rpc_reply("tools/call", wanted("b.example"));
    client.delete();
    let pending = || cli_json(&["approvals", "list"]).to_string();
    assert_contains(pending(), ["a.example", "b.example"]);
}

/// claim: [HOST-7]
#[test]
fn a_token_has_host_tools_only_if_it_names_the_toolset() {
    let (named, silent) = (token(&["named", "--toolsets", "host"]), token(&["silent"]));
    let operator = token(&["operator", "--role", "operator"]);
    let server = HttpServer::with_env([("SANDBOXMCP_HOST_ACCESS", "on")]);
    for (token, has) in [(named, true), (silent, false), (operator, false)] {
        let mut client = server.initialized_client_with(&token);
        let listed = client.rpc("tools/list", json!({}))["result"]["tools"].clone();
        assert_eq!(texts_of(&listed, "name").contains(&"host_exec"), has, "{listed}");
        let called = client.call("host_exec", json!({"command": "uname"})).to_string();
        assert_eq!(called.contains("Linux"), has, "{called}");
    }
}
