//! Secrets through the command line: their sources, and that none is shown, stored in plain text or left in memory.

use super::record::{SECRET, reachable_server, reachable_server_with, run_with_input};
use crate::client::*;
use std::{fs, io::Write, process::Stdio};

/// claim: [SEC-5]
#[test]
fn secret_from_stdin_reaches_only_the_run() {
    let mut server = reachable_server();
    let added = run_with_input(&["vault", "add", "TOKEN"], &format!("{SECRET}\n"));
    assert!(added.status.success(), "{added:?}");
    assert_eq!(stdout_of(&added), "added TOKEN in default\n");
    let code = "import os\nprint(len(os.environ['TOKEN']), os.environ['TOKEN'])";
    let done = server.run(json!({"code": code, "secrets": ["TOKEN"]}));
    let printed = text_of(&done["stdout"]);
    assert_eq!(printed, format!("{} ***REDACTED***\n", SECRET.len()), "{done}");
    let listed = cli_json(&["vault", "list"]);
    let entry = &listed["servers"][0]["secrets"][0];
    entry.assert_fields(json!({"key": "TOKEN", "bytes": SECRET.len()}));
    assert!(!listed.to_string().contains(SECRET));
    assert_eq!(
        cli_stdout(&["vault", "list", "--namespace", "other"]),
        "other has no secrets\n"
    );
    assert!(
        stdout_of(&run_with_input(&["vault", "add", "TOKEN", "--ttl", "2h"], SECRET)).starts_with("replaced")
    );
    assert!(cli_stdout(&["vault", "list"]).contains(", until 2"));
    assert_eq!(
        cli_stdout(&["vault", "delete", "TOKEN"]),
        "deleted TOKEN from default\n"
    );
    assert_eq!(
        cli_stdout(&["vault", "delete", "TOKEN"]),
        "default has no TOKEN\n"
    );
    let arguments = json!({"code": code, "secrets": ["TOKEN"]});
    server.call_error("execute_code", arguments, "secret_unavailable");
    let changes = cli_json(&["audit", "list", "--action", "vault.changed"]);
    let changes = list_of(&changes["records"]);
    assert_eq!(changes.len(), 8, "two for each of two values and two deletions");
    assert!(changes.iter().all(|change| change["caller"] == "cli"));
    // Newest first: the second deletion found nothing.
    let deleted = changes.iter().map(|change| &change["details"]["deleted"]);
    let deleted: Vec<_> = deleted.filter(|deleted| !deleted.is_null()).collect();
    assert_eq!(deleted, [&json!(false), &json!(true)]);
    drop(server);
    let record = fs::read(state_dir().join("record/audit.db")).unwrap();
    assert!(!contains_text(&record, SECRET));
}

/// claim: [SEC-2]
#[test]
fn replaced_secret_is_redacted_by_its_new_value() {
    let mut server = reachable_server();
    let code = "import os\nprint(os.environ['TOKEN'])";
    for round in 0..5 {
        let value = format!("{SECRET}-of-round-{round}");
        assert!(
            run_with_input(&["vault", "add", "TOKEN"], &value)
                .status
                .success()
        );
        for _ in 0..2 {
            let done = server.run(json!({"code": code, "secrets": ["TOKEN"]}));
            assert_eq!(done["stdout"], "***REDACTED***\n", "{done}");
        }
    }
}

/// claim: [SEC-5]
#[test]
fn secret_value_on_the_command_line_is_refused_and_not_repeated() {
    let output = cli_exits_with(&["vault", "add", &format!("TOKEN={SECRET}")], 2);
    assert_contains(stderr_of(&output), ["every process of this host"]);
    assert_lacks(both_streams_of(&output), [SECRET]);
}

/// Types the keys at the prompt for the value; returns the terminal's output and the exit status.
fn type_value(arguments: &[&str], keys: &[u8]) -> (String, Option<i32>) {
    let mut terminal = Terminal::with_stdout(&ringfence(arguments));
    let mut seen = terminal.read_until("value of TOKEN: ");
    terminal.type_keys(keys);
    let status = terminal.status();
    assert!(terminal.is_echoing(), "the echo stayed off");
    seen += &terminal.read_to_end();
    (seen, status)
}

#[test]
fn typed_secret_is_not_echoed_and_echo_is_restored() {
    let mut server = reachable_server();
    let (seen, status) = type_value(&["vault", "add", "TOKEN"], format!("{SECRET}\n").as_bytes());
    assert_eq!(status, Some(0), "{seen}");
    assert!(seen.contains("added TOKEN") && !seen.contains(SECRET), "{seen}");
    let code = "import os\nprint(len(os.environ['TOKEN']))";
    let done = server.run(json!({"code": code, "secrets": ["TOKEN"]}));
    assert_eq!(done["stdout"], format!("{}\n", SECRET.len()));
    let (seen, status) = type_value(&["vault", "add", "TOKEN"], b"half a val\x03");
    assert_eq!(status, Some(2));
    assert_contains(&seen, ["no value was given"]);
    assert_lacks(&seen, ["half"]);
    // The terminal truncates a line that is too long; a truncated secret must not be stored.
    let long = [vec![b'x'; 5000], b"\n".to_vec()].concat();
    let (seen, status) = type_value(&["vault", "add", "TOKEN"], &long);
    assert_eq!(status, Some(2), "{seen}");
    assert!(seen.contains("at most 4095 bytes"), "{seen}");
    // A secret too short to be redacted is stored with a warning.
    let added = run_with_input(&["vault", "add", "PIN"], "123\n");
    assert!(added.status.success());
    assert_contains(stderr_of(&added), ["warning: PIN has fewer than"]);
}

#[test]
fn file_vault_needs_no_server_and_a_server_sees_its_changes() {
    let stored = |arguments: &[&str]| {
        let mut command = ringfence(arguments);
        command.env("RINGFENCE_VAULT_STORE", "file");
        command
    };
    let told_stored = |arguments: &[&str]| stdout_of(&run_successfully(stored(arguments)));
    assert_eq!(told_stored(&["vault", "list"]), "default has no secrets\n");
    assert!(!state_dir().exists(), "a query created the state directory");
    let files = TempDir::new("vault-file");
    let file = files.file("value", &format!("{SECRET}\n"));
    let added = told_stored(&["vault", "add", "TOKEN", "--file", &file]);
    assert_eq!(added, "added TOKEN in default\n");
    let config = files.file("config.yaml", "vault:\n  store: file\n");
    let mut server = reachable_server_with(&["--config", &config]);
    let ask = |server: &mut Server, name: &str| {
        let code = format!("import os\nprint(os.environ['{name}'])");
        let done = server.run(json!({"code": code, "secrets": [name]}));
        done["stdout"].clone()
    };
    assert_eq!(ask(&mut server, "TOKEN"), "***REDACTED***\n");
    let added = run_with_stdin(stored(&["vault", "add", "LATE"]), "another-long-value");
    assert!(added.status.success(), "{added:?}");
    assert_eq!(ask(&mut server, "LATE"), "***REDACTED***\n");
    // through the server, too
    let pid = server.child.id().to_string();
    assert!(told_stored(&["vault", "delete", "LATE", "--server", &pid]).starts_with("deleted"));
    let listed = format!("TOKEN ({} bytes)\n", SECRET.len());
    assert_eq!(told_stored(&["vault", "list"]), listed);
    let vault = fs::read(state_dir().join("record/vault")).unwrap();
    assert!(!contains_text(&vault, SECRET));
    drop(server);
    let records = cli_json(&["audit", "list", "--action", "vault.changed"]);
    assert_eq!(list_of(&records["records"]).len(), 6, "{records}");
    assert!(cli_stdout(&["audit", "verify"]).starts_with("intact"));
}

#[test]
fn env_vault_is_read_only() {
    for arguments in [&["vault", "add", "KEY"][..], &["vault", "delete", "KEY"]] {
        let output = ringfence(arguments)
            .env("RINGFENCE_VAULT_STORE", "env")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert_contains(stderr_of(&output), ["cannot be changed"]);
    }
}

/// The halves of a value; JSON escapes the characters between them.
const HALVES: [&str; 2] = ["left-of-4711", "right-of-0815"];

/// True if a half of the value is in the writable memory of a process, as text or hexadecimal.
fn has_half_in_memory(pid: u32) -> bool {
    let memory = writable_memory_of(pid);
    let digits = HALVES.map(|half| half.bytes().map(|byte| format!("{byte:02x}")).collect::<String>());
    let forms = HALVES.into_iter().chain(digits.iter().map(String::as_str));
    let forms: Vec<&[u8]> = forms.map(str::as_bytes).collect();
    (0..memory.len()).any(|at| forms.iter().any(|form| memory[at..].starts_with(form)))
}

/// Asserts that below this process the program named `has-it` has the value in memory, and no process of Ringfence.
fn assert_only_in_the_program(above: u32, what: &str) {
    let named = |name: &str| {
        let mut found = descendants(above);
        found.retain(|pid| comm_of(*pid) == name);
        found
    };
    eventually(|| named("has-it").into_iter().any(has_half_in_memory));
    for name in ["ringfence-help", "ringfence-super", "ringfence-init"] {
        // A process that has ended has no memory.
        let mut ours = named(name);
        ours.retain(|pid| writable_memory_of(*pid).len() > 64 << 10);
        assert!(!ours.is_empty(), "{what}: no {name} with readable memory");
        for pid in ours {
            // It wipes its copy after it has started the program.
            eventually(|| !has_half_in_memory(pid));
        }
    }
}

/// claim: [SEC-7]
#[test]
fn env_value_of_a_claim_is_in_no_memory_but_its_programs() {
    if !is_root() {
        return;
    }
    let value = HALVES.join("\"\\\n\t");
    let programs = [
        (
            "python",
            "import ctypes, time\nctypes.CDLL(None).prctl(15, b'has-it')\ntime.sleep(60)",
        ),
        ("shell", "cp /bin/sleep has-it && ./has-it 60"),
    ];
    let assert_in_server = |mut server: Server, what: &str| {
        for (language, code) in programs {
            let id = server.send_run(json!({"language": language, "code": code, "env": {"TOKEN": value}}));
            let above = server.child.id();
            assert_only_in_the_program(above, &format!("{language}, {what}"));
            server.cancel(id);
            eventually(|| !descendants(above).iter().any(|pid| comm_of(*pid) == "has-it"));
        }
    };
    assert_in_server(Server::start(), "by root");
    for (yaml, what) in [
        ("", "by an ordinary user"),
        ("floor: landlock\n", "by an ordinary user in the tier landlock"),
    ] {
        if let Some(nobody) = Nobody::new(yaml) {
            assert_in_server(nobody.serve(), what);
        }
    }
    for (language, code) in programs {
        let mut command = ringfence(&["run", "-", "--language", language, "--secret", "TOKEN"]);
        command
            .env("RINGFENCE_VAULT_STORE", "env")
            .env("RINGFENCE_SECRET_DEFAULT_TOKEN", &value)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let mut run = command.spawn().unwrap();
        run.stdin.take().unwrap().write_all(code.as_bytes()).unwrap();
        assert_only_in_the_program(run.id(), &format!("{language} of a run"));
        run.kill().unwrap();
        run.wait().unwrap();
    }
}
