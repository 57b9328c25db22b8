//! Secrets by way of the command line: where they come from, and that none is shown, kept or left.

use super::record::{SECRET, fed, ready, ready_with};
use crate::client::*;
use std::{fs, io::Write, process::Stdio};

/// claim: [SEC-5]
#[test]
fn a_secret_goes_from_standard_input_to_a_run_and_nowhere_else() {
    let mut server = ready();
    let added = fed(&["vault", "add", "TOKEN"], &format!("{SECRET}\n"));
    assert!(added.status.success(), "{added:?}");
    assert_eq!(stdout_of(&added), "added TOKEN in default\n");
    let code = "import os\nprint(len(os.environ['TOKEN']), os.environ['TOKEN'])";
    let done = server.run(json!({"code": code, "secrets": ["TOKEN"]}));
    let printed = text_of(&done["stdout"]);
    assert_eq!(printed, format!("{} ***REDACTED***\n", SECRET.len()), "{done}");
    let listed = told_json(&["vault", "list"]);
    let entry = &listed["servers"][0]["secrets"][0];
    entry.shows(json!({"key": "TOKEN", "bytes": SECRET.len()}));
    assert!(!listed.to_string().contains(SECRET));
    assert_eq!(
        told(&["vault", "list", "--namespace", "other"]),
        "other has no secrets\n"
    );
    assert!(stdout_of(&fed(&["vault", "add", "TOKEN", "--ttl", "2h"], SECRET)).starts_with("replaced"));
    assert!(told(&["vault", "list"]).contains(", until 2"));
    assert_eq!(
        told(&["vault", "delete", "TOKEN"]),
        "deleted TOKEN from default\n"
    );
    assert_eq!(told(&["vault", "delete", "TOKEN"]), "default has no TOKEN\n");
    let wish = json!({"code": code, "secrets": ["TOKEN"]});
    server.refuses("execute_code", wish, "secret_unavailable");
    let changes = told_json(&["audit", "list", "--action", "vault.changed"]);
    let changes = list_of(&changes["records"]);
    assert_eq!(changes.len(), 8, "two for each of two values and two deletions");
    assert!(changes.iter().all(|change| change["caller"] == "cli"));
    // Newest first: the second deletion found nothing.
    let deleted = changes.iter().map(|change| &change["details"]["deleted"]);
    let deleted: Vec<_> = deleted.filter(|deleted| !deleted.is_null()).collect();
    assert_eq!(deleted, [&json!(false), &json!(true)]);
    drop(server);
    let record = fs::read(state_dir().join("record/audit.db")).unwrap();
    assert!(!holds(&record, SECRET));
}

/// claim: [SEC-2]
#[test]
fn a_secret_that_was_replaced_is_taken_out_as_it_is_now() {
    let mut server = ready();
    let code = "import os\nprint(os.environ['TOKEN'])";
    for round in 0..5 {
        let value = format!("{SECRET}-of-round-{round}");
        assert!(fed(&["vault", "add", "TOKEN"], &value).status.success());
        for _ in 0..2 {
            let done = server.run(json!({"code": code, "secrets": ["TOKEN"]}));
            assert_eq!(done["stdout"], "***REDACTED***\n", "{done}");
        }
    }
}

/// claim: [SEC-5]
#[test]
fn a_value_on_the_command_line_is_refused_and_not_repeated() {
    let told = ended_with(&["vault", "add", &format!("TOKEN={SECRET}")], 2);
    assert_contains(stderr_of(&told), ["every process of this host"]);
    assert_lacks(all_of(&told), [SECRET]);
}

/// What a person at a terminal sees while they type this, and how the command ends.
fn typed(words: &[&str], keys: &[u8]) -> (String, Option<i32>) {
    let mut terminal = Terminal::showing_all(&ringfence(words));
    let mut seen = terminal.sees("value of TOKEN: ");
    terminal.types(keys);
    let status = terminal.status();
    assert!(terminal.echoes(), "the echo stayed off");
    seen += &terminal.rest();
    (seen, status)
}

#[test]
fn a_value_that_is_typed_is_not_shown_and_the_echo_comes_back() {
    let mut server = ready();
    let (seen, status) = typed(&["vault", "add", "TOKEN"], format!("{SECRET}\n").as_bytes());
    assert_eq!(status, Some(0), "{seen}");
    assert!(seen.contains("added TOKEN") && !seen.contains(SECRET), "{seen}");
    let code = "import os\nprint(len(os.environ['TOKEN']))";
    let done = server.run(json!({"code": code, "secrets": ["TOKEN"]}));
    assert_eq!(done["stdout"], format!("{}\n", SECRET.len()));
    let (seen, status) = typed(&["vault", "add", "TOKEN"], b"half a val\x03");
    assert_eq!(status, Some(2));
    assert_contains(&seen, ["no value was given"]);
    assert_lacks(&seen, ["half"]);
    // The terminal drops the end of a line that is too long; a secret that lost its end must not be kept.
    let long = [vec![b'x'; 5000], b"\n".to_vec()].concat();
    let (seen, status) = typed(&["vault", "add", "TOKEN"], &long);
    assert_eq!(status, Some(2), "{seen}");
    assert!(seen.contains("at most 4095 bytes"), "{seen}");
    // One that is too short to be found is kept with a warning.
    let added = fed(&["vault", "add", "PIN"], "123\n");
    assert!(added.status.success());
    assert_contains(stderr_of(&added), ["warning: PIN has fewer than"]);
}

#[test]
fn a_file_vault_needs_no_server_and_a_server_sees_what_was_added() {
    let stored = |words: &[&str]| {
        let mut command = ringfence(words);
        command.env("RINGFENCE_VAULT_STORE", "file");
        command
    };
    let told_stored = |words: &[&str]| stdout_of(&succeeded(stored(words)));
    assert_eq!(told_stored(&["vault", "list"]), "default has no secrets\n");
    assert!(!state_dir().exists(), "looking made something");
    let files = TempDir::new("vault-file");
    let file = files.file("value", &format!("{SECRET}\n"));
    let added = told_stored(&["vault", "add", "TOKEN", "--file", &file]);
    assert_eq!(added, "added TOKEN in default\n");
    let config = files.file("config.yaml", "vault:\n  store: file\n");
    let mut server = ready_with(&["--config", &config]);
    let ask = |server: &mut Server, name: &str| {
        let code = format!("import os\nprint(os.environ['{name}'])");
        let done = server.run(json!({"code": code, "secrets": [name]}));
        done["stdout"].clone()
    };
    assert_eq!(ask(&mut server, "TOKEN"), "***REDACTED***\n");
    let added = feed(stored(&["vault", "add", "LATE"]), "another-long-value");
    assert!(added.status.success(), "{added:?}");
    assert_eq!(ask(&mut server, "LATE"), "***REDACTED***\n");
    // by way of the server, too
    let pid = server.child.id().to_string();
    assert!(told_stored(&["vault", "delete", "LATE", "--server", &pid]).starts_with("deleted"));
    let listed = format!("TOKEN ({} bytes)\n", SECRET.len());
    assert_eq!(told_stored(&["vault", "list"]), listed);
    let vault = fs::read(state_dir().join("record/vault")).unwrap();
    assert!(!holds(&vault, SECRET));
    drop(server);
    let records = told_json(&["audit", "list", "--action", "vault.changed"]);
    assert_eq!(list_of(&records["records"]).len(), 6, "{records}");
    assert!(told(&["audit", "verify"]).starts_with("intact"));
}

#[test]
fn a_vault_of_variables_is_not_changed() {
    for words in [&["vault", "add", "KEY"][..], &["vault", "delete", "KEY"]] {
        let output = ringfence(words)
            .env("RINGFENCE_VAULT_STORE", "env")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert_contains(stderr_of(&output), ["cannot be changed"]);
    }
}

/// Between them stands what JSON writes as escapes.
const HALVES: [&str; 2] = ["left-of-4711", "right-of-0815"];

/// Whether any part of the value is in what a process can write to, as it is or as digits.
fn holds_a_half(pid: u32) -> bool {
    let memory = memory_of(pid);
    let digits = HALVES.map(|half| half.bytes().map(|byte| format!("{byte:02x}")).collect::<String>());
    let forms = HALVES.into_iter().chain(digits.iter().map(String::as_str));
    let forms: Vec<&[u8]> = forms.map(str::as_bytes).collect();
    (0..memory.len()).any(|at| forms.iter().any(|form| memory[at..].starts_with(form)))
}

/// Of the processes below this one, the program with this name holds the value, and none of ours.
fn assert_only_in_the_program(above: u32, what: &str) {
    let named = |name: &str| {
        let mut found = descendants(above);
        found.retain(|pid| name_of(*pid) == name);
        found
    };
    eventually(|| named("has-it").into_iter().any(holds_a_half));
    for name in ["ringfence-help", "ringfence-super", "ringfence-init"] {
        // One that has ended meanwhile has no memory.
        let mut ours = named(name);
        ours.retain(|pid| memory_of(*pid).len() > 64 << 10);
        assert!(!ours.is_empty(), "{what}: no {name} can be looked at");
        for pid in ours {
            // It wipes its own after it has started the program.
            eventually(|| !holds_a_half(pid));
        }
    }
}

/// claim: [SEC-7]
#[test]
fn what_a_claim_brings_is_in_the_memory_of_its_program_and_of_no_process_of_ours() {
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
            eventually(|| !descendants(above).iter().any(|pid| name_of(*pid) == "has-it"));
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
