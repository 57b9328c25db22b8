//! The secrets of a session: known to every one of its calls, and seen by nobody.

use super::gives;
use crate::client::*;

const SECRET: &str = "hunter2-of-a-session-and-nobody-else";

fn server() -> Server {
    let mut command = serve_with("vault: {store: env}\n");
    command.env("RINGFENCE_SECRET_DEFAULT_KEY", SECRET);
    Server::of(command)
}

/// Nothing of what a tool has said holds the secret, in any form of it that is looked for.
#[track_caller]
fn clean(said: &Value) {
    let text = said.to_string();
    let hex: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
    for form in [SECRET.to_owned(), hex, "aHVudGVyMi1vZi1hLXNlc3Npb24".to_owned()] {
        assert!(!text.contains(&form), "{text}");
    }
}

/// claim: [SES-7]
#[test]
fn no_way_out_of_a_session_shows_its_secrets() {
    let mut server = server();
    let wish = json!({"secrets": ["OTHER"]});
    server.refuses("create_session", wish, "secret_unavailable");
    for language in ["python", "node", "shell"] {
        let id = server.create(json!({"language": language, "secrets": ["KEY"]}));
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
            let said = server.eval(&id, code);
            clean(&said);
            assert!(
                code == keep || said.to_string().contains("***REDACTED***"),
                "{code}: {said}"
            );
            if code == keep {
                let name = json!({"request_id": said["execution_id"]});
                clean(&server.facts("get_artifacts", name));
                let uri = &said["artifacts"][0]["uri"];
                let read = server.read(uri);
                clean(&read);
                assert!(read.to_string().contains("the key is"), "{language}: {read}");
            }
        }
        let got = server.facts("get_file", json!({"session_id": id, "path": "out.txt"}));
        clean(&got);
        got.says("text", ["the key is"]);
        // A secret that is said between two calls, or in a file's name, is the session's all the same.
        if language == "shell" {
            server.eval(&id, "(until [ -e go ]; do :; done; echo $KEY; : > said) &");
            server.facts("put_file", json!({"session_id": id, "path": "go", "text": ""}));
            server.await_file(&id, "said");
            let said = server.eval(&id, "true");
            clean(&said);
            assert_eq!(said["stdout"], "***REDACTED***\n", "{said}");
            clean(&server.eval(&id, ": > $KEY"));
            clean(&server.facts("list_files", json!({"session_id": id})));
        }
        clean(&server.facts("list_sessions", json!({})));
        clean(&server.facts("audit_execution", json!({"detail": true, "limit": 50})));
    }
}

/// claim: [SES-7]
#[test]
fn a_bridge_carries_values_and_leaves_the_secrets_of_their_session_behind() {
    let mut server = server();
    let from = server.create(json!({"secrets": ["KEY"]}));
    let to = server.create(json!({"language": "node"}));
    server.eval(
        &from,
        "import os; key = {'of': 'KEY', 'is': os.environ['KEY']}; bad = {os.environ['KEY']: object()}",
    );
    let moved = json!({"from_session": from, "to_session": to, "name": "key"});
    let said = server.call("bridge_data", moved);
    clean(&said);
    assert_eq!(said["structuredContent"]["success"], true, "{said}");
    // This session knows of no secret, and would print it.
    gives(&server.eval(&to, "key.of"), &json!("KEY"));
    let code = format!(
        "key.is.includes([...'{}'].reverse().join(''))",
        SECRET.chars().rev().collect::<String>()
    );
    gives(&server.eval(&to, &code), &json!(false));
    let asked = json!({"from_session": from, "to_session": to, "name": "bad"});
    let refused = server.call("bridge_data", asked);
    assert_eq!(refused["isError"], true, "{refused}");
    clean(&refused);
}
