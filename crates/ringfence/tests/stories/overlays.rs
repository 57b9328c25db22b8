//! Sessions with a host directory as an overlay: callers see the changes, and the operator commits them.

use crate::client::*;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Output, Stdio},
};

/// A directory with two files, a server that lists it as an overlay, and a session in it.
struct Scene {
    dir: TempDir,
    server: Server,
    id: String,
}

impl Scene {
    fn new(name: &str) -> Self {
        let dir = TempDir::new(name);
        dir.file("data/kept.txt", "old\n");
        dir.file("data/gone.txt", "there\n");
        let mut server = Server::with_config(&format!(
            "workspaces:\n  draft: {{path: {}, mode: overlay}}\n",
            dir.path("data")
        ));
        let arguments = json!({"language": "python", "workspace": "draft"});
        let id = server.create_session(arguments);
        Self { dir, server, id }
    }

    fn run(&mut self, code: &str) {
        self.server
            .eval(&self.id, code)
            .assert_fields(json!({"success": true}));
    }

    fn make_changes(&mut self) {
        self.run(
            "import os\nopen('kept.txt', 'w').write('new\\n')\nos.remove('gone.txt')\nos.makedirs('.git/hooks')\n\
             open('.git/hooks/pre-commit', 'w').write('#!/bin/sh\\n')",
        );
    }

    fn diff(&mut self, arguments: Value) -> Value {
        let mut arguments = arguments;
        arguments["session_id"] = json!(self.id);
        self.server.facts("diff_workspace", arguments)
    }

    fn session_command(&self, arguments: &[&str]) -> Output {
        run_cli(&[&["session"], arguments, &[self.id.as_str()]].concat())
    }

    /// Commits the changes of this token through the control socket, and returns the response.
    fn commit(&self, token: &str) -> Value {
        let params = json!({"session": self.id, "action": {"commit": {"token": token}}});
        self.server.control("session", &params)
    }

    fn host(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.dir.0.join("data").join(name)).ok()
    }

    fn is_untouched(&self) -> bool {
        self.host("kept.txt").as_deref() == Some("old\n")
            && self.host("gone.txt").is_some()
            && self.host(".git/hooks/pre-commit").is_none()
    }
}

fn paths<'a>(facts: &'a Value, group: &str) -> Vec<&'a str> {
    texts_of(&facts[group], "path")
}

/// claim: [WS-6]
#[test]
fn session_overlay_changes_are_shown_to_the_caller_and_committed_by_the_operator() {
    let mut scene = Scene::new("overlay-session");
    assert_eq!(scene.diff(json!({}))["changed"], json!([]));
    scene.make_changes();
    let seen = scene.diff(json!({}));
    assert_eq!(seen["base"], "directory", "{seen}");
    assert_eq!(paths(&seen, "changed"), ["kept.txt"]);
    assert_eq!(paths(&seen, "deleted"), ["gone.txt"]);
    assert_eq!(
        paths(&seen, "added"),
        [".git", ".git/hooks", ".git/hooks/pre-commit"]
    );
    seen.assert_text("changed.0.diff", ["-old\n+new"]);
    assert_ne!(seen["added"][2]["risks"], json!([]), "{seen}");
    let refused = scene.diff(json!({"snapshot_id": "0190b8f0-5c1e-7000-8000-00000000abcd"}));
    assert_eq!(refused["code"], "invalid_argument", "{refused}");

    let shown = scene.session_command(&["diff"]);
    let text = stdout_of(&shown);
    assert_contains(&text, ["changed kept.txt", "  ! "]);
    // Without a terminal there is no prompt.
    let unasked = scene.session_command(&["commit"]);
    assert!(!unasked.status.success(), "{unasked:?}");
    assert!(scene.is_untouched());
    let committed = scene.session_command(&["commit", "--yes", "--json"]);
    assert!(committed.status.success(), "{committed:?}");
    let facts = json_of(&committed);
    assert_eq!(paths(&facts, "changed"), ["kept.txt"]);
    facts.assert_fields(json!({"committed.deleted": 1}));
    assert_eq!(scene.host("kept.txt").as_deref(), Some("new\n"));
    assert_eq!(scene.host("gone.txt"), None);
    assert!(scene.host(".git/hooks/pre-commit").is_some());

    // The session continues, and has no changes until it makes new ones.
    let after = scene.diff(json!({}));
    after.assert_fields(json!({"added": [], "changed": [], "deleted": []}));
    let nothing = scene.session_command(&["commit"]);
    assert!(nothing.status.success(), "{nothing:?}");
    scene.run("assert open('kept.txt').read() == 'new\\n'\nopen('kept.txt', 'a').write('more\\n')");
    assert_eq!(paths(&scene.diff(json!({})), "changed"), ["kept.txt"]);
    let records = scene.server.audit_records("workspace.committed");
    assert_eq!(
        records.len(),
        2,
        "one before the commit, one with its outcome: {records:?}"
    );
    records[0].assert_fields(json!({"details.session": scene.id}));
}

/// claim: [WS-6]
#[test]
fn session_changes_not_shown_are_not_committed() {
    let mut scene = Scene::new("overlay-stale");
    scene.make_changes();
    let facts = json_of(&scene.session_command(&["diff", "--json"]));
    let token = text_of(&facts["token"]);
    for other in ["", "00", &"0".repeat(token.len())] {
        let refused = scene.commit(other);
        assert_eq!(refused["error"]["code"], "policy_denied", "{refused}");
    }
    scene.run("open('.git/hooks/pre-commit', 'a').write('echo planted\\n')");
    let refused = scene.commit(token);
    assert_eq!(refused["error"]["code"], "policy_denied", "{refused}");
    assert!(scene.is_untouched());
    // A commit of changes shown earlier does not overwrite a later change by the host.
    let facts = json_of(&scene.session_command(&["diff", "--json"]));
    scene.dir.file("data/kept.txt", "by the host\n");
    let refused = scene.commit(text_of(&facts["token"]));
    assert!(refused["error"]["code"].is_string(), "{refused}");
    assert_eq!(scene.host("kept.txt").as_deref(), Some("by the host\n"));
    assert!(scene.host("gone.txt").is_some());
}

/// claim: [WS-6]
#[test]
fn callers_cannot_commit_and_sessions_without_an_overlay_are_refused() {
    let mut scene = Scene::new("overlay-none");
    let tools = scene.server.rpc("tools/list", json!({})).to_string();
    assert!(tools.contains("diff_workspace") && !tools.contains("commit_workspace"));
    scene.make_changes();
    let other = json!({"session_id": scene.id, "namespace": "other"});
    scene.server.call_error("diff_workspace", other, "not_found");
    scene.id = scene.server.create_session(json!({"language": "shell"}));
    for arguments in [&["diff"][..], &["commit", "--yes"]] {
        let refused = scene.session_command(arguments);
        assert!(!refused.status.success(), "{refused:?}");
        assert_contains(stderr_of(&refused), ["no overlay"]);
    }
    assert!(scene.is_untouched());
}

/// claim: [WS-6]
#[test]
fn host_changes_since_session_start_are_conflicts_and_not_overwritten() {
    let mut scene = Scene::new("overlay-conflict");
    scene.dir.file("data/kept.txt", "by the host\n");
    scene.dir.file("data/own.txt", "by the host\n");
    scene.run("open('kept.txt', 'w').write('new\\n')\nopen('own.txt', 'w').write('new\\n')\nopen('free.txt', 'w').write('new\\n')");
    let seen = scene.diff(json!({}));
    assert_eq!(seen["conflicts"], json!(["kept.txt", "own.txt"]), "{seen}");
    let refused = scene.session_command(&["commit", "--yes"]);
    assert!(!refused.status.success());
    assert_contains(stderr_of(&refused), ["kept.txt, own.txt"]);
    let facts = json_of(&scene.session_command(&["diff", "--json"]));
    let unasked = scene.commit(text_of(&facts["token"]));
    assert_eq!(unasked["error"]["code"], "conflict", "{unasked}");
    assert_eq!(scene.host("kept.txt").as_deref(), Some("by the host\n"));
    assert_eq!(scene.host("free.txt"), None);
    let accepted = scene.session_command(&["commit", "--yes", "--overwrite"]);
    assert!(accepted.status.success(), "{accepted:?}");
    for name in ["kept.txt", "own.txt", "free.txt"] {
        assert_eq!(scene.host(name).as_deref(), Some("new\n"), "{name}");
    }
    // Files written by a commit are not conflicts.
    scene.run("for name in ('kept.txt', 'free.txt'):\n    open(name, 'a').write('more\\n')");
    assert_eq!(scene.diff(json!({}))["conflicts"], json!([]));
    assert!(scene.session_command(&["commit", "--yes"]).status.success());
    assert_eq!(scene.host("kept.txt").as_deref(), Some("new\nmore\n"));
}

/// claim: [WS-4]
#[test]
fn host_changes_during_a_run_are_conflicts_and_not_overwritten() {
    let dir = TempDir::new("overlay-meanwhile");
    let code = "echo ready; read line; echo sandbox >> notes.txt; rm gone.txt; echo sandbox > new.txt\n";
    let script = dir.file("edit.sh", code);
    let overlay = format!("{}/proj:overlay", dir.0.display());
    let run = |arguments: &[&str]| {
        for name in ["notes.txt", "gone.txt"] {
            dir.file(&format!("proj/{name}"), "first\n");
        }
        let mut command = ringfence(&[&["run", &script, "--workspace", &overlay], arguments].concat());
        let mut child = spawn_piped(command.stdin(Stdio::piped()));
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        for name in ["notes.txt", "gone.txt", "new.txt"] {
            dir.file(&format!("proj/{name}"), "HOST\n");
        }
        child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.success(), stderr_of(&output))
    };
    let host = |name: &str| fs::read_to_string(dir.0.join("proj").join(name)).ok();
    let (success, stderr) = run(&["--commit"]);
    assert!(!success, "{stderr}");
    assert_contains(&stderr, ["gone.txt, new.txt, notes.txt", "--overwrite"]);
    for name in ["notes.txt", "gone.txt", "new.txt"] {
        assert_eq!(host(name).as_deref(), Some("HOST\n"), "{name}: {stderr}");
    }
    fs::remove_file(dir.0.join("proj/new.txt")).unwrap();
    let (success, stderr) = run(&["--commit", "--overwrite"]);
    assert!(success, "{stderr}");
    assert_eq!(host("notes.txt").as_deref(), Some("HOST\nsandbox\n"));
    assert_eq!(
        (host("gone.txt"), host("new.txt").as_deref()),
        (None, Some("sandbox\n"))
    );
}
