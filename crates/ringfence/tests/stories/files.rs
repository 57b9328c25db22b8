//! Files and snapshots of a workspace, through the tools.

use crate::client::*;
use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
    time::{Duration, Instant},
};

fn workspace() -> PathBuf {
    state_dir().join("workspaces/default")
}

impl Server {
    fn in_workspace(&mut self, code: &str) -> Value {
        self.execute_in_workspace(code)
    }
}

/// claim: [WS-3]
#[test]
fn file_is_put_used_by_a_program_and_read_back() {
    let mut server = Server::start();
    let put = server.call_ok("put_file", json!({"path": "data/in.csv", "text": "a,b\n1,2\n"}));
    put.assert_fields(json!({"size_bytes": 8}));
    let arguments = json!({"code": "rows = open('data/in.csv').read()\nopen('out.bin', 'wb').write(b'\\xff\\x00')\nrows"});
    let ran = server.facts("run_sandbox_code", arguments);
    assert_eq!(ran["result"], "a,b\n1,2\n", "{ran}");
    let got = server.facts("get_file", json!({"path": "out.bin"}));
    got.assert_fields(json!({"base64": "/wA=", "text": null}));
    let got = server.facts("get_file", json!({"path": "/workspace/data/in.csv"}));
    assert_eq!(got["text"], "a,b\n1,2\n", "{got}");
    let listed = server.facts("list_files", json!({}));
    let names = texts_of(&listed["files"], "path");
    assert_eq!(names, ["data", "data/in.csv", "out.bin"], "{listed}");
    assert_eq!(listed["files"][1]["sha256"], put["sha256"]);
    let written = server.in_workspace("stat -c %u data/in.csv; echo more >> data/in.csv");
    written.assert_fields(json!({"stdout": "1000\n", "success": true}));
    let below = server.facts("list_files", json!({"path": "data"}));
    assert_eq!(list_of(&below["files"]).len(), 1, "{below}");
    server.call_error("get_file", json!({"path": "gone"}), "not_found");
    server.call_error("get_file", json!({"path": "../x"}), "invalid_argument");
    let records = server.audit_records("file.put");
    assert_eq!(records[0]["details"]["path"], "data/in.csv", "{records:?}");
}

/// claim: [WS-3]
#[test]
fn planted_links_and_fifos_are_not_followed_and_do_not_block() {
    let mut server = Server::start();
    let outside = state_dir().join("outside");
    server.in_workspace(
        "ln -s /etc/passwd passwd; ln -s / root; mkfifo fifo; ln -s loop loop; mkdir d; chmod 0 d",
    );
    fs::write(&outside, "canary").unwrap();
    fs::hard_link(&outside, workspace().join("hard")).unwrap();
    symlink(&outside, workspace().join("link")).unwrap();
    assert_eq!(
        fs::read_to_string(workspace().join("link")).unwrap(),
        "canary",
        "the control: the host follows the link"
    );
    let begun = Instant::now();
    for path in [
        "passwd",
        "root/etc/passwd",
        "fifo",
        "hard",
        "link",
        "loop",
        "d/x",
        "fifo/x",
    ] {
        let got = server.call("get_file", json!({"path": path}));
        assert_eq!(got["isError"], true, "{path}: {got}");
        assert!(
            !got.to_string().contains("root:x") && !got.to_string().contains("canary"),
            "{path}: {got}"
        );
        if path != "d/x" {
            let put = server.call("put_file", json!({"path": path, "text": "x"}));
            assert_eq!(put["isError"], true, "{path}: {put}");
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(fs::read_to_string(&outside).unwrap(), "canary");
    server.call_ok("list_files", json!({}));
}

/// claim: [WS-3]
#[test]
fn names_special_on_other_systems_are_plain_file_names() {
    let mut server = Server::start();
    for path in [
        "..\\..\\x",
        "C:\\x",
        "%2e%2e%2fx",
        "~root",
        "a\u{202e}b",
        ".git /config",
        "CON",
        "x:stream",
    ] {
        server.call_ok("put_file", json!({"path": path, "text": "x"}));
        assert!(workspace().join(path).is_file(), "{path}");
    }
    for path in [
        "a/../../x",
        "/etc/x",
        "a\0b",
        "",
        ".",
        "a//b",
        "./a",
        "/workspace/../x",
        &"x/".repeat(40),
    ] {
        let arguments = json!({"path": path, "text": "x"});
        server.call_error("put_file", arguments, "invalid_argument");
    }
    assert_eq!(
        fs::read_dir(state_dir().join("workspaces")).unwrap().count(),
        4,
        "the workspace and its three locks"
    );
}

/// A workspace over a limit that was lowered: sessions and restores are refused, smaller files are accepted.
#[test]
fn lowered_disk_limit_applies_to_workspaces_and_snapshots() {
    let mut wide = Server::start();
    wide.call_ok("put_file", json!({"path": "a", "text": "x".repeat(5 << 20)}));
    let made = wide.call_ok("create_state_snapshot", json!({}));
    drop(wide);
    let mut server = Server::with_config("limits: {disk_mb: 2}\n");
    let session = json!({"language": "shell", "workspace": "namespace"});
    server.call_error("create_session", session.clone(), "policy_denied");
    server.call_ok("put_file", json!({"path": "a", "text": "small"}));
    server.call_ok("create_session", session);
    let text = "x".repeat(1 << 20);
    server.call_ok("put_file", json!({"path": "b", "text": text}));
    let more = json!({"path": "c", "text": text + "y"});
    server.call_error("put_file", more, "policy_denied");
    assert!(!workspace().join("c").exists());
    server.in_workspace("rm a");
    let restore = json!({"snapshot_id": made["snapshot_id"]});
    server.call_error("restore_state_snapshot", restore, "policy_denied");
    assert!(!workspace().join("a").exists());
}

/// claim: [SEC-2]
#[test]
fn multiline_secret_is_redacted_in_every_diff_line() {
    let pem = "-----BEGIN KEY-----\nK3yIIEvQIBADANBgk\nK3yiG9w0BAQEFAASC\n-----END KEY-----";
    let mut command = serve_with("vault: {store: env}\n");
    command.env("RINGFENCE_SECRET_DEFAULT_PEM", pem);
    let mut server = Server::from_command(command);
    // The control: in a namespace without the secret the text is shown.
    for (namespace, is_shown) in [("default", false), ("team-b", true)] {
        for port in [1, 2] {
            let text = format!("{pem}\nport = {port}\n");
            server.call_ok(
                "put_file",
                json!({"path": "conf", "text": text, "namespace": namespace}),
            );
            let answer = server
                .call_ok("diff_workspace", json!({"namespace": namespace}))
                .to_string();
            assert!(answer.contains(&format!("+port = {port}")), "{answer}");
            assert_eq!(answer.contains("K3y"), is_shown, "{answer}");
            server.call_ok("create_state_snapshot", json!({"namespace": namespace}));
        }
    }
}

/// claim: [SNAP-1]
#[test]
fn damaged_workspace_is_diffed_and_restored_from_a_snapshot() {
    let mut server = Server::start();
    server.in_workspace("mkdir -p d/empty; echo one > a.txt; echo two > d/b.txt; ln -s a.txt link; chmod 600 a.txt; touch -d 2001-02-03 a.txt");
    let made = server.call_ok("create_state_snapshot", json!({"description": "before"}));
    made.assert_fields(json!({"files": 2}));
    let id = text_of(&made["snapshot_id"]).to_owned();
    server.in_workspace(
        "rm -r d link; echo changed > a.txt; mkdir -p .git/hooks; printf '#!/bin/sh\\n' > .git/hooks/pre-commit; \
         chmod +x .git/hooks/pre-commit",
    );
    let difference = server.facts("diff_workspace", json!({}));
    let paths = |group: &str| -> Vec<String> {
        let all = difference[group].as_array().unwrap().iter();
        all.map(|one| text_of(&one["path"]).to_owned()).collect()
    };
    assert_eq!(difference["base"], json!(id), "{difference}");
    assert_eq!(paths("changed"), ["a.txt"]);
    assert_eq!(paths("deleted"), ["d", "d/b.txt", "d/empty", "link"]);
    assert_eq!(paths("added"), [".git", ".git/hooks", ".git/hooks/pre-commit"]);
    difference.assert_text("changed.0.diff", ["-one\n+changed"]);
    assert_ne!(difference["added"][2]["risks"], json!([]), "{difference}");
    server.call_ok("restore_state_snapshot", json!({"snapshot_id": id}));
    let found = server.in_workspace("find . | sort; cat a.txt d/b.txt; readlink link; stat -c '%a %y' a.txt");
    let out = text_of(&found["stdout"]);
    assert!(
        out.starts_with(".\n./a.txt\n./d\n./d/b.txt\n./d/empty\n./link\none\ntwo\na.txt\n600 2001-02-03"),
        "{out}"
    );
    let nothing = server.facts("diff_workspace", json!({"snapshot_id": id}));
    nothing.assert_fields(json!({"added": [], "changed": [], "deleted": []}));
    let listed = server.facts("list_state_snapshots", json!({}));
    assert_eq!(listed["snapshots"][0]["description"], "before", "{listed}");
    let read = server.read_resource(format!("sandbox://snapshots/{id}"));
    let text = text_of(&read["result"]["contents"][0]["text"]);
    let document: Value = serde_json::from_str(text).unwrap();
    assert_eq!(document["files"]["d/b.txt"]["content"], "two\n", "{document}");
    server.call_ok("delete_state_snapshot", json!({"snapshot_id": id}));
    let arguments = json!({"snapshot_id": id});
    server.call_error("restore_state_snapshot", arguments, "not_found");
    for action in ["snapshot.created", "snapshot.restored", "snapshot.deleted"] {
        let audit = server.facts("audit_execution", json!({"action": action, "detail": true}));
        assert_fields_of(action, &audit, json!({"records.0.details.snapshot": id}));
    }
}

/// claim: [SNAP-1]
#[test]
fn workspace_with_a_changed_directory_mode_is_used_and_restored() {
    let mut server = Server::start();
    server.in_workspace("echo one > a.txt");
    let made = server.facts("create_state_snapshot", json!({}));
    for mode in ["755", "777", "1777", "500", "0"] {
        let mode_now = || fs::metadata(workspace()).unwrap().permissions().mode() & 0o7777;
        // The result of this run is not asserted: one that hides its files from an ordinary user is over its limit.
        server.in_workspace(&format!("rm a.txt; chmod {mode} ."));
        assert_eq!(mode_now(), u32::from_str_radix(mode, 8).unwrap(), "the control");
        let arguments = json!({"snapshot_id": made["snapshot_id"]});
        let restored = server.facts("restore_state_snapshot", arguments);
        assert_fields_of(mode, &restored, json!({"success": true, "written": 1}));
        assert_eq!(mode_now(), 0o700, "{mode}");
        server.in_workspace(&format!("chmod {mode} ."));
        let listed = server.facts("list_files", json!({}));
        assert_eq!(listed["files"][0]["path"], "a.txt", "{mode}: {listed}");
        server.in_workspace(&format!("chmod {mode} ."));
        assert_eq!(server.in_workspace("cat a.txt")["stdout"], "one\n", "{mode}");
    }
    // The same for the workspace of a session; a restore also restores its mode.
    let made = server.facts("create_session", json!({"language": "shell"}));
    let session = json!(made["session_id"]);
    let mut run = |tool: &str, mut call_arguments: Value| {
        call_arguments["session_id"] = session.clone();
        let answer = server.facts(tool, call_arguments);
        assert_ne!(answer["success"], false, "{tool}: {answer}");
        answer
    };
    run("execute_code", json!({"code": "echo one > a.txt; chmod 750 ."}));
    let saved = run("create_state_snapshot", json!({}));
    for mode in ["0", "500", "1777"] {
        run(
            "execute_code",
            json!({"code": format!("rm -f a.txt; chmod {mode} .")}),
        );
        run("list_files", json!({}));
        run("execute_code", json!({"code": format!("chmod {mode} .")}));
        run(
            "restore_state_snapshot",
            json!({"snapshot_id": saved["snapshot_id"]}),
        );
        let found = run("execute_code", json!({"code": "stat -c %a .; cat a.txt"}));
        assert_eq!(found["stdout"], "750\none\n", "{mode}: {found}");
    }
}

#[test]
fn directory_closed_by_chmod_is_written_or_refused_with_a_hint() {
    let mut server = Server::start();
    let session = server.create_session(json!({"language": "shell"}));
    server.eval(&session, "mkdir -p d/e; chmod 0 d/e d");
    for (session, prepared) in [(json!(session), true), (Value::Null, false)] {
        if !prepared {
            server.in_workspace("mkdir -p d/e; chmod 0 d/e d");
        }
        let put = json!({"session_id": session, "path": "d/e/x", "text": "x"});
        let put = server.facts("put_file", put);
        let is_refused =
            put["code"] == "policy_denied" && put["hint"].as_str().is_some_and(|hint| hint.contains("chmod"));
        assert!(put["success"] == true || is_refused, "{put}");
    }
}

/// claim: [SNAP-2]
#[test]
fn snapshot_is_not_found_from_another_namespace() {
    let mut server = Server::start();
    let arguments = json!({"path": "a", "text": "x", "namespace": "theirs"});
    server.facts("put_file", arguments);
    let made = server.facts("create_state_snapshot", json!({"namespace": "theirs"}));
    let id = made["snapshot_id"].clone();
    for tool in [
        "restore_state_snapshot",
        "delete_state_snapshot",
        "diff_workspace",
    ] {
        for id in [
            id.clone(),
            json!("no-such"),
            json!("../../x"),
            json!("01a1ff50-58f1-722a-bd4c-5f2b5ca3fdcb"),
        ] {
            let refused = server.call_error(tool, json!({"snapshot_id": id}), "not_found");
            assert!(!refused.to_string().contains("theirs"), "{refused}");
        }
    }
    let uri = format!("sandbox://snapshots/{}", id.as_str().unwrap());
    assert!(server.read_resource(&uri)["error"].is_object());
    let arguments = json!({"snapshot_id": id, "namespace": "theirs"});
    server.call_ok("diff_workspace", arguments);
    assert_eq!(
        server.facts("list_state_snapshots", json!({}))["snapshots"],
        json!([])
    );
}

/// claim: [SNAP-3]
#[test]
fn restore_waits_for_earlier_runs_in_the_workspace_and_later_ones_for_it() {
    let mut server = Server::start();
    server.facts("put_file", json!({"path": "a", "text": "old"}));
    let made = server.facts("create_state_snapshot", json!({}));
    let call = |code: &str| json!({"name": "execute_code", "arguments": {"code": code, "language": "shell", "workspace": "namespace"}});
    let runs = server.send(
        "tools/call",
        call("touch ready; until [ -e go ]; do read -t 0.05 < /dev/zero || :; done; cat a"),
    );
    eventually(|| workspace().join("ready").exists());
    let arguments = json!({"snapshot_id": made["snapshot_id"]});
    let restores = server.send_call("restore_state_snapshot", arguments);
    let gate = fs::File::open(workspace().with_file_name(".default.gate")).unwrap();
    eventually(|| {
        let is_open = gate.try_lock_shared().is_ok();
        gate.unlock().unwrap();
        !is_open
    });
    let later = server.send("tools/call", call("[ -e ready ] || echo restored"));
    server.facts("sandbox_stats", json!({}));
    assert!(workspace().join("ready").exists(), "nothing is restored yet");
    fs::write(workspace().join("go"), "").unwrap();
    let (first, before) = server.await_response(runs);
    assert!(before.is_empty(), "the run ends first: {before:?}");
    assert_eq!(first["result"]["structuredContent"]["stdout"], "old", "{first}");
    let (restored, _) = server.await_response(restores);
    restored.assert_fields(json!({"result.structuredContent.success": true}));
    assert_eq!(server.result(later)["stdout"], "restored\n");
    assert!(!workspace().join("ready").exists() && !workspace().join("go").exists());
}

/// claim: [SNAP-4]
#[test]
fn server_killed_during_a_restore_leaves_the_old_or_new_state() {
    let mut server = Server::start();
    server.in_workspace("for i in $(seq 300); do echo new > f$i; done");
    let made = server.facts("create_state_snapshot", json!({}));
    for turn in 0..6u32 {
        server.in_workspace("rm -f *; for i in $(seq 300); do echo old > g$i; done");
        let arguments = json!({"snapshot_id": made["snapshot_id"]});
        server.send_call("restore_state_snapshot", arguments);
        // At different moments of the restore.
        std::thread::sleep(Duration::from_millis(u64::from(4 * turn * turn)));
        server.kill();
        server = Server::start();
        let found =
            server.in_workspace("ls | sed 's/[0-9]*//g' | sort | uniq -c | tr -s ' '; cat * | sort -u");
        let out = text_of(&found["stdout"]);
        assert!(
            [" 300 f\nnew\n", " 300 g\nold\n"].contains(&out),
            "{turn}: {found}"
        );
    }
}

/// claim: [SNAP-5]
#[test]
fn tampered_snapshot_is_refused_and_changes_nothing() {
    let mut server = Server::start();
    server.in_workspace("head -c 100000 /dev/urandom > a");
    let made = server.facts("create_state_snapshot", json!({}));
    let packs = state_dir().join("record/snapshots/namespaces/default/packs");
    let pack = fs::read_dir(&packs).unwrap().flatten().next().unwrap().path();
    let mut bytes = fs::read(&pack).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    set_mode(&pack, 0o600);
    fs::write(&pack, bytes).unwrap();
    server.facts("put_file", json!({"path": "a", "text": "later"}));
    let arguments = json!({"snapshot_id": made["snapshot_id"]});
    server.call_error("restore_state_snapshot", arguments, "store_fault");
    assert_eq!(server.facts("get_file", json!({"path": "a"}))["text"], "later");
}

#[test]
fn snapshots_of_all_namespaces_share_a_limit() {
    let mut server = Server::with_config("snapshots: {total_mb: 1}\n");
    let mut saves = |namespace: &str| {
        let fills = "head -c 700000 /dev/urandom > noise";
        let arguments =
            json!({"code": fills, "language": "shell", "workspace": "namespace", "namespace": namespace});
        server.run(arguments);
        server.facts("create_state_snapshot", json!({"namespace": namespace}))
    };
    assert_eq!(saves("one")["success"], true);
    let refused = saves("two");
    assert_eq!(refused["code"], "policy_denied", "{refused}");
    refused.assert_text("hint", ["snapshots.total_mb"]);
}

#[test]
fn edit_file_replaces_a_unique_text_and_cannot_probe_for_secrets() {
    let state = TempDir::new("edit");
    let config = state.file("ringfence.yaml", "vault: {store: env}\n");
    let mut command = ringfence(&["serve", "--config", &config]);
    command.env("RINGFENCE_SECRET_DEFAULT_KEY", "hunter2-hunter2-hunter2");
    let mut server = Server::from_command(command);
    let text = "#!/bin/sh\na=1\n  b=1\na=1\n";
    server.facts("put_file", json!({"path": "edited.sh", "text": text}));
    server.in_workspace("chmod 755 edited.sh");
    let mut edit = |old: &str, new: &str, all: bool| {
        server.facts(
            "edit_file",
            json!({"path": "edited.sh", "old": old, "new": new, "all": all}),
        )
    };
    let several = edit("a=1", "a=2", false);
    assert_eq!(several["code"], "invalid_argument", "{several}");
    several.assert_text("message", ["4: a=1"]);
    let near = edit("\tb=1", "b=2", false);
    assert_eq!(near["code"], "not_found", "{near}");
    near.assert_text("message", ["3:   b=1"]);
    assert_eq!(edit("a=1", "echo $0", true)["replaced"], 2);
    let edited = edit("  b=1\n", "", false);
    assert_eq!(edited["replaced"], 1, "{edited}");
    let got = server.facts("get_file", json!({"path": "edited.sh"}));
    got.assert_fields(json!({"text": "#!/bin/sh\necho $0\necho $0\n", "sha256": edited["sha256"]}));
    assert_eq!(got["mode"], "0755", "an edit keeps the mode");

    let arguments = json!({"path": "key.txt", "text": "key=hunter2-hunter2-hunter2\n"});
    server.facts("put_file", arguments);
    for guess in ["key=hunter2", "key=hunter3", "hunter2-hunter2-hunter2"] {
        let edit = json!({"path": "key.txt", "old": guess, "new": "x"});
        let refused = server.call_error("edit_file", edit, "policy_denied");
        assert!(!refused.to_string().contains("hunter"), "{refused}");
    }
    server.in_workspace("rm edited.sh key.txt");
}
