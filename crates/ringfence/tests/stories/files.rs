//! Files of a workspace, and its snapshots, through the tools.

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
    fn kept(&mut self, code: &str) -> Value {
        self.in_workspace(code)
    }
}

/// claim: [WS-3]
#[test]
fn a_file_is_put_used_by_a_program_and_read_back() {
    let mut server = Server::start();
    let put = server.succeeds("put_file", json!({"path": "data/in.csv", "text": "a,b\n1,2\n"}));
    put.shows(json!({"size_bytes": 8}));
    let asked = json!({"code": "rows = open('data/in.csv').read()\nopen('out.bin', 'wb').write(b'\\xff\\x00')\nrows"});
    let ran = server.facts("run_sandbox_code", asked);
    assert_eq!(ran["result"], "a,b\n1,2\n", "{ran}");
    let got = server.facts("get_file", json!({"path": "out.bin"}));
    got.shows(json!({"base64": "/wA=", "text": null}));
    let got = server.facts("get_file", json!({"path": "/workspace/data/in.csv"}));
    assert_eq!(got["text"], "a,b\n1,2\n", "{got}");
    let listed = server.facts("list_files", json!({}));
    let names = texts_of(&listed["files"], "path");
    assert_eq!(names, ["data", "data/in.csv", "out.bin"], "{listed}");
    assert_eq!(listed["files"][1]["sha256"], put["sha256"]);
    let written = server.kept("stat -c %u data/in.csv; echo more >> data/in.csv");
    written.shows(json!({"stdout": "1000\n", "success": true}));
    let below = server.facts("list_files", json!({"path": "data"}));
    assert_eq!(list_of(&below["files"]).len(), 1, "{below}");
    server.refuses("get_file", json!({"path": "gone"}), "not_found");
    server.refuses("get_file", json!({"path": "../x"}), "invalid_argument");
    let records = server.records("file.put");
    assert_eq!(records[0]["details"]["path"], "data/in.csv", "{records:?}");
}

/// claim: [WS-3]
#[test]
fn what_a_program_lays_in_wait_is_neither_followed_nor_waited_for() {
    let mut server = Server::start();
    let outside = state_dir().join("outside");
    server.kept("ln -s /etc/passwd passwd; ln -s / root; mkfifo fifo; ln -s loop loop; mkdir d; chmod 0 d");
    fs::write(&outside, "canary").unwrap();
    fs::hard_link(&outside, workspace().join("hard")).unwrap();
    symlink(&outside, workspace().join("link")).unwrap();
    assert_eq!(
        fs::read_to_string(workspace().join("link")).unwrap(),
        "canary",
        "it can be reached"
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
    server.succeeds("list_files", json!({}));
}

/// claim: [WS-3]
#[test]
fn names_that_another_system_would_read_otherwise_stay_names() {
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
        server.succeeds("put_file", json!({"path": path, "text": "x"}));
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
        let wish = json!({"path": path, "text": "x"});
        server.refuses("put_file", wish, "invalid_argument");
    }
    assert_eq!(
        fs::read_dir(state_dir().join("workspaces")).unwrap().count(),
        3,
        "the workspace and its two locks"
    );
}

/// The limit is lower now than it was: a session and a snapshot are refused, smaller files let out.
#[test]
fn a_workspace_and_its_snapshots_keep_to_a_limit_that_was_lowered() {
    let mut wide = Server::start();
    wide.succeeds("put_file", json!({"path": "a", "text": "x".repeat(5 << 20)}));
    let made = wide.succeeds("create_state_snapshot", json!({}));
    drop(wide);
    let mut server = Server::with("limits: {disk_mb: 2}\n");
    let session = json!({"language": "shell", "workspace": "namespace"});
    server.refuses("create_session", session.clone(), "policy_denied");
    server.succeeds("put_file", json!({"path": "a", "text": "small"}));
    server.succeeds("create_session", session);
    let text = "x".repeat(1 << 20);
    server.succeeds("put_file", json!({"path": "b", "text": text}));
    let more = json!({"path": "c", "text": text + "y"});
    server.refuses("put_file", more, "policy_denied");
    assert!(!workspace().join("c").exists());
    server.kept("rm a");
    let restore = json!({"snapshot_id": made["snapshot_id"]});
    server.refuses("restore_state_snapshot", restore, "policy_denied");
    assert!(!workspace().join("a").exists());
}

/// claim: [SEC-2]
#[test]
fn a_secret_of_several_lines_is_in_no_line_of_a_difference() {
    let pem = "-----BEGIN KEY-----\nK3yIIEvQIBADANBgk\nK3yiG9w0BAQEFAASC\n-----END KEY-----";
    let mut command = serve_with("vault: {store: env}\n");
    command.env("RINGFENCE_SECRET_DEFAULT_PEM", pem);
    let mut server = Server::of(command);
    // In a namespace without the secret it is there: the control.
    for (namespace, is_there) in [("default", false), ("team-b", true)] {
        for port in [1, 2] {
            let text = format!("{pem}\nport = {port}\n");
            server.succeeds(
                "put_file",
                json!({"path": "conf", "text": text, "namespace": namespace}),
            );
            let told = server
                .succeeds("diff_workspace", json!({"namespace": namespace}))
                .to_string();
            assert!(told.contains(&format!("+port = {port}")), "{told}");
            assert_eq!(told.contains("K3y"), is_there, "{told}");
            server.succeeds("create_state_snapshot", json!({"namespace": namespace}));
        }
    }
}

/// claim: [SNAP-1]
#[test]
fn a_ruined_workspace_is_put_back_and_told_what_had_become_of_it() {
    let mut server = Server::start();
    server.kept("mkdir -p d/empty; echo one > a.txt; echo two > d/b.txt; ln -s a.txt link; chmod 600 a.txt; touch -d 2001-02-03 a.txt");
    let made = server.succeeds("create_state_snapshot", json!({"description": "before"}));
    made.shows(json!({"files": 2}));
    let id = text_of(&made["snapshot_id"]).to_owned();
    server.kept(
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
    difference.says("changed.0.diff", ["-one\n+changed"]);
    assert_ne!(difference["added"][2]["risks"], json!([]), "{difference}");
    server.succeeds("restore_state_snapshot", json!({"snapshot_id": id}));
    let found = server.kept("find . | sort; cat a.txt d/b.txt; readlink link; stat -c '%a %y' a.txt");
    let out = text_of(&found["stdout"]);
    assert!(
        out.starts_with(".\n./a.txt\n./d\n./d/b.txt\n./d/empty\n./link\none\ntwo\na.txt\n600 2001-02-03"),
        "{out}"
    );
    let nothing = server.facts("diff_workspace", json!({"snapshot_id": id}));
    nothing.shows(json!({"added": [], "changed": [], "deleted": []}));
    let listed = server.facts("list_state_snapshots", json!({}));
    assert_eq!(listed["snapshots"][0]["description"], "before", "{listed}");
    let read = server.read(format!("sandbox://snapshots/{id}"));
    let text = text_of(&read["result"]["contents"][0]["text"]);
    let document: Value = serde_json::from_str(text).unwrap();
    assert_eq!(document["files"]["d/b.txt"]["content"], "two\n", "{document}");
    server.succeeds("delete_state_snapshot", json!({"snapshot_id": id}));
    let wish = json!({"snapshot_id": id});
    server.refuses("restore_state_snapshot", wish, "not_found");
    for action in ["snapshot.created", "snapshot.restored", "snapshot.deleted"] {
        let audit = server.facts("audit_execution", json!({"action": action, "detail": true}));
        assert_facts_of(action, &audit, json!({"records.0.details.snapshot": id}));
    }
}

/// claim: [SNAP-1]
#[test]
fn a_workspace_whose_own_mode_a_program_ruined_is_used_and_restored() {
    let mut server = Server::start();
    server.kept("echo one > a.txt");
    let made = server.facts("create_state_snapshot", json!({}));
    for mode in ["755", "777", "1777", "500", "0"] {
        let mode_now = || fs::metadata(workspace()).unwrap().permissions().mode() & 0o7777;
        // Whatever becomes of this run: one that hides its files from an ordinary user is over its limit.
        server.kept(&format!("rm a.txt; chmod {mode} ."));
        assert_eq!(mode_now(), u32::from_str_radix(mode, 8).unwrap(), "the control");
        let asked = json!({"snapshot_id": made["snapshot_id"]});
        let restored = server.facts("restore_state_snapshot", asked);
        assert_facts_of(mode, &restored, json!({"success": true, "written": 1}));
        assert_eq!(mode_now(), 0o700, "{mode}");
        server.kept(&format!("chmod {mode} ."));
        let listed = server.facts("list_files", json!({}));
        assert_eq!(listed["files"][0]["path"], "a.txt", "{mode}: {listed}");
        server.kept(&format!("chmod {mode} ."));
        assert_eq!(server.kept("cat a.txt")["stdout"], "one\n", "{mode}");
    }
    // So is the workspace of a session, whose mode comes back with it.
    let made = server.facts("create_session", json!({"language": "shell"}));
    let session = json!(made["session_id"]);
    let mut run = |tool: &str, mut words: Value| {
        words["session_id"] = session.clone();
        let answer = server.facts(tool, words);
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
fn a_directory_that_a_program_closed_is_written_to_or_refused_with_a_way_on() {
    let mut server = Server::start();
    let session = server.create(json!({"language": "shell"}));
    server.eval(&session, "mkdir -p d/e; chmod 0 d/e d");
    for (session, prepared) in [(json!(session), true), (Value::Null, false)] {
        if !prepared {
            server.kept("mkdir -p d/e; chmod 0 d/e d");
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
fn another_namespaces_snapshot_is_not_there() {
    let mut server = Server::start();
    let asked = json!({"path": "a", "text": "x", "namespace": "theirs"});
    server.facts("put_file", asked);
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
            let refused = server.refuses(tool, json!({"snapshot_id": id}), "not_found");
            assert!(!refused.to_string().contains("theirs"), "{refused}");
        }
    }
    let uri = format!("sandbox://snapshots/{}", id.as_str().unwrap());
    assert!(server.read(&uri)["error"].is_object());
    let asked = json!({"snapshot_id": id, "namespace": "theirs"});
    server.succeeds("diff_workspace", asked);
    assert_eq!(
        server.facts("list_state_snapshots", json!({}))["snapshots"],
        json!([])
    );
}

/// claim: [SNAP-3]
#[test]
fn a_restore_waits_for_those_who_are_in_the_workspace() {
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
    server.facts("sandbox_stats", json!({}));
    assert!(workspace().join("ready").exists(), "nothing is restored yet");
    fs::write(workspace().join("go"), "").unwrap();
    let (first, before) = server.await_answer(runs);
    assert!(before.is_empty(), "the run ends first: {before:?}");
    assert_eq!(first["result"]["structuredContent"]["stdout"], "old", "{first}");
    let (restored, _) = server.await_answer(restores);
    restored.shows(json!({"result.structuredContent.success": true}));
    assert!(!workspace().join("ready").exists() && !workspace().join("go").exists());
}

/// claim: [SNAP-4]
#[test]
fn a_server_that_is_killed_in_the_middle_of_a_restore_leaves_the_old_or_the_new_state() {
    let mut server = Server::start();
    server.kept("for i in $(seq 300); do echo new > f$i; done");
    let made = server.facts("create_state_snapshot", json!({}));
    for turn in 0..6u32 {
        server.kept("rm -f *; for i in $(seq 300); do echo old > g$i; done");
        let arguments = json!({"snapshot_id": made["snapshot_id"]});
        server.send_call("restore_state_snapshot", arguments);
        // Anywhere on its way.
        std::thread::sleep(Duration::from_millis(u64::from(4 * turn * turn)));
        server.kill();
        server = Server::start();
        let found = server.kept("ls | sed 's/[0-9]*//g' | sort | uniq -c | tr -s ' '; cat * | sort -u");
        let out = text_of(&found["stdout"]);
        assert!(
            [" 300 f\nnew\n", " 300 g\nold\n"].contains(&out),
            "{turn}: {found}"
        );
    }
}

/// claim: [SNAP-5]
#[test]
fn a_snapshot_that_was_tampered_with_is_refused_and_changes_nothing() {
    let mut server = Server::start();
    server.kept("head -c 100000 /dev/urandom > a");
    let made = server.facts("create_state_snapshot", json!({}));
    let packs = state_dir().join("record/snapshots/namespaces/default/packs");
    let pack = fs::read_dir(&packs).unwrap().flatten().next().unwrap().path();
    let mut bytes = fs::read(&pack).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    set_mode(&pack, 0o600);
    fs::write(&pack, bytes).unwrap();
    server.facts("put_file", json!({"path": "a", "text": "later"}));
    let wish = json!({"snapshot_id": made["snapshot_id"]});
    server.refuses("restore_state_snapshot", wish, "store_fault");
    assert_eq!(server.facts("get_file", json!({"path": "a"}))["text"], "later");
}

#[test]
fn the_snapshots_of_all_namespaces_together_have_a_limit() {
    let mut server = Server::with("snapshots: {total_mb: 1}\n");
    let mut saves = |namespace: &str| {
        let fills = "head -c 700000 /dev/urandom > noise";
        let asked =
            json!({"code": fills, "language": "shell", "workspace": "namespace", "namespace": namespace});
        server.run(asked);
        server.facts("create_state_snapshot", json!({"namespace": namespace}))
    };
    assert_eq!(saves("one")["success"], true);
    let refused = saves("two");
    assert_eq!(refused["code"], "policy_denied", "{refused}");
    refused.says("hint", ["snapshots.total_mb"]);
}

#[test]
fn a_text_in_a_file_is_replaced_where_it_is_once_and_secrets_are_not_looked_for() {
    let state = TempDir::new("edit");
    let config = state.file("ringfence.yaml", "vault: {store: env}\n");
    let mut command = ringfence(&["serve", "--config", &config]);
    command.env("RINGFENCE_SECRET_DEFAULT_KEY", "hunter2-hunter2-hunter2");
    let mut server = Server::of(command);
    let text = "#!/bin/sh\na=1\n  b=1\na=1\n";
    server.facts("put_file", json!({"path": "edited.sh", "text": text}));
    server.kept("chmod 755 edited.sh");
    let mut edit = |old: &str, new: &str, all: bool| {
        server.facts(
            "edit_file",
            json!({"path": "edited.sh", "old": old, "new": new, "all": all}),
        )
    };
    let several = edit("a=1", "a=2", false);
    assert_eq!(several["code"], "invalid_argument", "{several}");
    several.says("message", ["4: a=1"]);
    let near = edit("\tb=1", "b=2", false);
    assert_eq!(near["code"], "not_found", "{near}");
    near.says("message", ["3:   b=1"]);
    assert_eq!(edit("a=1", "echo $0", true)["replaced"], 2);
    let edited = edit("  b=1\n", "", false);
    assert_eq!(edited["replaced"], 1, "{edited}");
    let got = server.facts("get_file", json!({"path": "edited.sh"}));
    got.shows(json!({"text": "#!/bin/sh\necho $0\necho $0\n", "sha256": edited["sha256"]}));
    assert_eq!(got["mode"], "0755", "an edit keeps what may be run");

    let asked = json!({"path": "key.txt", "text": "key=hunter2-hunter2-hunter2\n"});
    server.facts("put_file", asked);
    for guess in ["key=hunter2", "key=hunter3", "hunter2-hunter2-hunter2"] {
        let edit = json!({"path": "key.txt", "old": guess, "new": "x"});
        let refused = server.refuses("edit_file", edit, "policy_denied");
        assert!(!refused.to_string().contains("hunter"), "{refused}");
    }
    server.kept("rm edited.sh key.txt");
}
