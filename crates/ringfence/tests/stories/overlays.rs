//! Sessions that see a directory of the host through an overlay: a caller looks, and the operator decides.

use crate::client::*;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Output, Stdio},
};

/// A directory with two files, a server that lists it, and a session that works in it.
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
        let mut server = Server::with(&format!(
            "workspaces:\n  draft: {{path: {}, mode: overlay}}\n",
            dir.path("data")
        ));
        let wish = json!({"language": "python", "workspace": "draft"});
        let id = server.create(wish);
        Self { dir, server, id }
    }

    fn runs(&mut self, code: &str) {
        self.server.eval(&self.id, code).shows(json!({"success": true}));
    }

    fn changes(&mut self) {
        self.runs(
            "import os\nopen('kept.txt', 'w').write('new\\n')\nos.remove('gone.txt')\nos.makedirs('.git/hooks')\n\
             open('.git/hooks/pre-commit', 'w').write('#!/bin/sh\\n')",
        );
    }

    fn seen(&mut self, arguments: Value) -> Value {
        let mut arguments = arguments;
        arguments["session_id"] = json!(self.id);
        self.server.facts("diff_workspace", arguments)
    }

    fn told(&self, words: &[&str]) -> Output {
        said(&[&["session"], words, &[self.id.as_str()]].concat())
    }

    /// What the control socket answers to one request.
    fn commit_of(&self, token: &str) -> Value {
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
fn what_a_session_did_to_an_overlay_is_shown_to_its_caller_and_committed_by_the_operator() {
    let mut scene = Scene::new("overlay-session");
    assert_eq!(scene.seen(json!({}))["changed"], json!([]));
    scene.changes();
    let seen = scene.seen(json!({}));
    assert_eq!(seen["base"], "directory", "{seen}");
    assert_eq!(paths(&seen, "changed"), ["kept.txt"]);
    assert_eq!(paths(&seen, "deleted"), ["gone.txt"]);
    assert_eq!(
        paths(&seen, "added"),
        [".git", ".git/hooks", ".git/hooks/pre-commit"]
    );
    seen.says("changed.0.diff", ["-old\n+new"]);
    assert_ne!(seen["added"][2]["risks"], json!([]), "{seen}");
    let refused = scene.seen(json!({"snapshot_id": "0190b8f0-5c1e-7000-8000-00000000abcd"}));
    assert_eq!(refused["code"], "invalid_argument", "{refused}");

    let shown = scene.told(&["diff"]);
    let text = stdout_of(&shown);
    assert_contains(&text, ["changed kept.txt", "  ! "]);
    // Nobody is there to answer.
    let unasked = scene.told(&["commit"]);
    assert!(!unasked.status.success(), "{unasked:?}");
    assert!(scene.is_untouched());
    let committed = scene.told(&["commit", "--yes", "--json"]);
    assert!(committed.status.success(), "{committed:?}");
    let facts = json_of(&committed);
    assert_eq!(paths(&facts, "changed"), ["kept.txt"]);
    facts.shows(json!({"committed.deleted": 1}));
    assert_eq!(scene.host("kept.txt").as_deref(), Some("new\n"));
    assert_eq!(scene.host("gone.txt"), None);
    assert!(scene.host(".git/hooks/pre-commit").is_some());

    // The session goes on, and nothing differs until it changes something again.
    let after = scene.seen(json!({}));
    after.shows(json!({"added": [], "changed": [], "deleted": []}));
    let nothing = scene.told(&["commit"]);
    assert!(nothing.status.success(), "{nothing:?}");
    scene.runs("assert open('kept.txt').read() == 'new\\n'\nopen('kept.txt', 'a').write('more\\n')");
    assert_eq!(paths(&scene.seen(json!({})), "changed"), ["kept.txt"]);
    let records = scene.server.records("workspace.committed");
    assert_eq!(records.len(), 2, "announced, and what became of it: {records:?}");
    records[0].shows(json!({"details.session": scene.id}));
}

/// claim: [WS-6]
#[test]
fn changes_of_a_session_that_nobody_was_shown_are_not_committed() {
    let mut scene = Scene::new("overlay-stale");
    scene.changes();
    let facts = json_of(&scene.told(&["diff", "--json"]));
    let token = text_of(&facts["token"]);
    for other in ["", "00", &"0".repeat(token.len())] {
        let refused = scene.commit_of(other);
        assert_eq!(refused["error"]["code"], "policy_denied", "{refused}");
    }
    scene.runs("open('.git/hooks/pre-commit', 'a').write('echo planted\\n')");
    let refused = scene.commit_of(token);
    assert_eq!(refused["error"]["code"], "policy_denied", "{refused}");
    assert!(scene.is_untouched());
    // What the host has changed meanwhile is not overwritten by what was shown before.
    let facts = json_of(&scene.told(&["diff", "--json"]));
    scene.dir.file("data/kept.txt", "by the host\n");
    let refused = scene.commit_of(text_of(&facts["token"]));
    assert!(refused["error"]["code"].is_string(), "{refused}");
    assert_eq!(scene.host("kept.txt").as_deref(), Some("by the host\n"));
    assert!(scene.host("gone.txt").is_some());
}

/// claim: [WS-6]
#[test]
fn no_caller_commits_and_a_session_without_an_overlay_has_nothing_to_commit() {
    let mut scene = Scene::new("overlay-none");
    let tools = scene.server.ask("tools/list", json!({})).to_string();
    assert!(tools.contains("diff_workspace") && !tools.contains("commit_workspace"));
    scene.changes();
    let other = json!({"session_id": scene.id, "namespace": "other"});
    scene.server.refuses("diff_workspace", other, "not_found");
    scene.id = scene.server.create(json!({"language": "shell"}));
    for words in [&["diff"][..], &["commit", "--yes"]] {
        let refused = scene.told(words);
        assert!(!refused.status.success(), "{refused:?}");
        assert_contains(stderr_of(&refused), ["no overlay"]);
    }
    assert!(scene.is_untouched());
}

/// claim: [WS-6]
#[test]
fn what_the_host_has_changed_since_a_session_began_is_told_and_not_written_over_unasked() {
    let mut scene = Scene::new("overlay-conflict");
    scene.dir.file("data/kept.txt", "by the host\n");
    scene.dir.file("data/own.txt", "by the host\n");
    scene.runs("open('kept.txt', 'w').write('new\\n')\nopen('own.txt', 'w').write('new\\n')\nopen('free.txt', 'w').write('new\\n')");
    let seen = scene.seen(json!({}));
    assert_eq!(seen["conflicts"], json!(["kept.txt", "own.txt"]), "{seen}");
    let refused = scene.told(&["commit", "--yes"]);
    assert!(!refused.status.success());
    assert_contains(stderr_of(&refused), ["kept.txt, own.txt"]);
    let facts = json_of(&scene.told(&["diff", "--json"]));
    let unasked = scene.commit_of(text_of(&facts["token"]));
    assert_eq!(unasked["error"]["code"], "conflict", "{unasked}");
    assert_eq!(scene.host("kept.txt").as_deref(), Some("by the host\n"));
    assert_eq!(scene.host("free.txt"), None);
    let accepted = scene.told(&["commit", "--yes", "--overwrite"]);
    assert!(accepted.status.success(), "{accepted:?}");
    for name in ["kept.txt", "own.txt", "free.txt"] {
        assert_eq!(scene.host(name).as_deref(), Some("new\n"), "{name}");
    }
    // What a commit has written is not the host's doing.
    scene.runs("for name in ('kept.txt', 'free.txt'):\n    open(name, 'a').write('more\\n')");
    assert_eq!(scene.seen(json!({}))["conflicts"], json!([]));
    assert!(scene.told(&["commit", "--yes"]).status.success());
    assert_eq!(scene.host("kept.txt").as_deref(), Some("new\nmore\n"));
}

/// claim: [WS-4]
#[test]
fn what_the_host_has_changed_while_a_script_ran_is_told_and_not_written_over_unasked() {
    let dir = TempDir::new("overlay-meanwhile");
    let code = "echo ready; read line; echo sandbox >> notes.txt; rm gone.txt; echo sandbox > new.txt\n";
    let script = dir.file("edit.sh", code);
    let overlay = format!("{}/proj:overlay", dir.0.display());
    let run = |words: &[&str]| {
        for name in ["notes.txt", "gone.txt"] {
            dir.file(&format!("proj/{name}"), "first\n");
        }
        let mut command = ringfence(&[&["run", &script, "--workspace", &overlay], words].concat());
        let mut child = start(command.stdin(Stdio::piped()));
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
    let (success, told) = run(&["--commit"]);
    assert!(!success, "{told}");
    assert_contains(&told, ["gone.txt, new.txt, notes.txt", "--overwrite"]);
    for name in ["notes.txt", "gone.txt", "new.txt"] {
        assert_eq!(host(name).as_deref(), Some("HOST\n"), "{name}: {told}");
    }
    fs::remove_file(dir.0.join("proj/new.txt")).unwrap();
    let (success, told) = run(&["--commit", "--overwrite"]);
    assert!(success, "{told}");
    assert_eq!(host("notes.txt").as_deref(), Some("HOST\nsandbox\n"));
    assert_eq!(
        (host("gone.txt"), host("new.txt").as_deref()),
        (None, Some("sandbox\n"))
    );
}
