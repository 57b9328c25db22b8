//! The secrets of a session: available to each of its calls, and redacted in all output.

use super::assert_result;
use crate::client::*;

const SECRET: &str = "hunter2-of-a-session-and-nobody-else";

fn server() -> Server {
    let mut command = serve_with("vault: {store: env}\n");
    command.env("RINGFENCE_SECRET_DEFAULT_KEY", SECRET);
    Server::from_command(command)
}

/// Asserts that a tool's answer does not contain the secret: as text, in hexadecimal or in base64.
#[track_caller]
fn assert_no_secret(answer: &Value) {
    let text = answer.to_string();
    let hex: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
    for form in [SECRET.to_owned(), hex, "aHVudGVyMi1vZi1hLXNlc3Npb24".to_owned()] {
        assert!(!text.contains(&form), "{text}");
    }
}

/// claim: [SES-7]
#[test]
fn no_output_channel_of_a_session_shows_its_secrets() {
    let mut server = server();
    let arguments = json!({"secrets": ["OTHER"]});
    server.call_error("create_session", arguments, "secret_unavailable");
    for language in ["python", "node", "shell"] {
        let id = server.create_session(json!({"language": language, "secrets": ["KEY"]}));
        let (length, print, fail, keep) = match language {
            "python" => (
                "import os, sys, base64; key = os.environ['KEY']; print(len(key))",
                "print(key, key.encode().hex(), base64.b64encode(key.encode()).decode()); print(key, file=sys.stderr)\n\
                 for part in (key[:9], key[9:]): print(part, end='', flush=True)\n[key, {key: 1}]",
                "raise ValueError(key)",
                "open('out.txt', 'w').write('the key is ' + key)",
            ),
            "node" => (
                "const key = process.env.KEY; console.log(key.length)",
                "console.log(key, Buffer.from(key).toString('hex'), Buffer.from(key).toString('base64')); console.error(key);\n\
                 process.stdout.write(key.slice(0, 9)); process.stdout.write(key.slice(9)); [key, { [key]: 1 }]",
                "throw new Error(key)",
                "require('fs').writeFileSync('out.txt', 'the key is ' + key)",
            ),
            _ => (
                "key=$KEY; echo ${#key}",
                "echo $key $(printf %s $key | od -An -tx1 | tr -d ' \\n') $(printf %s $key | base64 -w0); echo $key >&2; \
                 printf %s ${key:0:9}; printf %s ${key:9}",
                "$key",
                "echo the key is $key > out.txt",
            ),
        };
        let known = server.eval(&id, length);
        assert_eq!(
            known["stdout"],
            format!("{}\n", SECRET.len()),
            "the control, {language}: {known}"
        );
        for code in [print, fail, keep] {
            let answer = server.eval(&id, code);
            assert_no_secret(&answer);
            assert!(
                code == keep || answer.to_string().contains("***REDACTED***"),
                "{code}: {answer}"
            );
            if code == keep {
                let name = json!({"request_id": answer["execution_id"]});
                assert_no_secret(&server.facts("get_artifacts", name));
                let uri = &answer["artifacts"][0]["uri"];
                let read = server.read_resource(uri);
                assert_no_secret(&read);
                assert!(read.to_string().contains("the key is"), "{language}: {read}");
            }
        }
        let got = server.facts("get_file", json!({"session_id": id, "path": "out.txt"}));
        assert_no_secret(&got);
        got.assert_text("text", ["the key is"]);
        // A secret that is printed between two calls, or is a file's name, is redacted, too.
        if language == "shell" {
            server.eval(&id, "(until [ -e go ]; do :; done; echo $KEY; : > said) &");
            server.facts("put_file", json!({"session_id": id, "path": "go", "text": ""}));
            server.await_file(&id, "said");
            let answer = server.eval(&id, "true");
            assert_no_secret(&answer);
            assert_eq!(answer["stdout"], "***REDACTED***\n", "{answer}");
            assert_no_secret(&server.eval(&id, ": > $KEY"));
            assert_no_secret(&server.facts("list_files", json!({"session_id": id})));
        }
        assert_no_secret(&server.facts("list_sessions", json!({})));
        assert_no_secret(&server.facts("audit_execution", json!({"detail": true, "limit": 50})));
    }
}

/// claim: [SES-7]
#[test]
fn bridge_carries_values_without_the_secrets_of_their_session() {
    let mut server = server();
    let from = server.create_session(json!({"secrets": ["KEY"]}));
    let to = server.create_session(json!({"language": "node"}));
    server.eval(
        &from,
        "import os; key = {'of': 'KEY', 'is': os.environ['KEY']}; bad = {os.environ['KEY']: object()}",
    );
    let moved = json!({"from_session": from, "to_session": to, "name": "key"});
    let result = server.call("bridge_data", moved);
    assert_no_secret(&result);
    assert_eq!(result["structuredContent"]["success"], true, "{result}");
    // This session has no secrets to redact, and would print the value.
    assert_result(&server.eval(&to, "key.of"), &json!("KEY"));
    let code = format!(
        "key.is.includes([...'{}'].reverse().join(''))",
        SECRET.chars().rev().collect::<String>()
    );
    assert_result(&server.eval(&to, &code), &json!(false));
    let arguments = json!({"from_session": from, "to_session": to, "name": "bad"});
    let refused = server.call("bridge_data", arguments);
    assert_eq!(refused["isError"], true, "{refused}");
    assert_no_secret(&refused);
}

/// claim: [SES-7]
#[test]
fn bridge_redacts_secrets_of_the_namespace_and_keeps_other_values() {
    let mut server = server();
    let from = server.create_session(json!({}));
    let to = server.create_session(json!({}));
    let code = format!(
        "is_ = '{}'[::-1]; key = {{'is': is_, 'split': is_[:9] + '\\n' + is_[9:]}}; other = {{'z': 1, 'a': 2.5}}",
        SECRET.chars().rev().collect::<String>()
    );
    server.eval(&from, &code);
    for name in ["key", "other"] {
        let moved = json!({"from_session": from, "to_session": to, "name": name});
        let result = server.call("bridge_data", moved);
        assert_eq!(result["structuredContent"]["success"], true, "{result}");
    }
    let length = "***REDACTED***".len();
    assert_result(
        &server.eval(&to, "[len(text) for text in key.values()]"),
        &json!([length, length]),
    );
    assert_result(&server.eval(&to, "list(other)"), &json!(["z", "a"]));
}

/// claim: [SES-7]
#[test]
fn secret_that_an_earlier_program_left_is_redacted_for_one_without_it() {
    let mut server = server();
    let keep = "import os; open('left', 'w').write('left: ' + os.environ['KEY'])";
    let with_key = |more: Value| {
        let mut all = json!({"code": keep, "secrets": ["KEY"], "workspace": "namespace"});
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        all
    };
    assert_eq!(server.run(with_key(json!({})))["success"], true);
    // The length shows that the value itself is there.
    let read = "text = open('left').read(); print(len(text), text); text";
    let shown = format!("{} left: ***REDACTED***\n", SECRET.len() + 6);
    let assert_redacted = |answer: &Value| {
        assert_no_secret(answer);
        assert_eq!(answer["stdout"], shown, "{answer}");
    };
    assert_redacted(&server.run(json!({"code": read, "workspace": "namespace"})));
    let id = server.create_session(json!({"workspace": "namespace"}));
    assert_redacted(&server.eval(&id, read));
    server.eval(&id, "bad = {open('left').read(): object()}");
    let bad = json!({"from_session": id, "to_session": id, "name": "bad"});
    let refused = server.call("bridge_data", bad);
    assert!(
        refused["isError"] == true && refused.to_string().contains("REDACTED"),
        "{refused}"
    );
    assert_no_secret(&refused);
    // Through a snapshot into a private workspace.
    let from = server.create_session(json!({"secrets": ["KEY"]}));
    server.eval(&from, keep);
    let made = server.facts("create_state_snapshot", json!({"session_id": from}));
    let into = server.create_session(json!({}));
    let restore = json!({"snapshot_id": made["snapshot_id"], "session_id": into});
    assert_eq!(server.facts("restore_state_snapshot", restore)["success"], true);
    assert_redacted(&server.eval(&into, read));
}
