//! Changes of a script to an overlay: shown, flagged with risks, and written to the host when a person accepts them.

use crate::client::*;
use std::{fs, os::unix::fs::PermissionsExt};

fn project(name: &str) -> (TempDir, String) {
    let dir = TempDir::new(name);
    let from = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/project");
    for file in ["README.md", "notes.txt", "tidy.sh", "src/greet.py"] {
        dir.file(file, &fs::read_to_string(from.join(file)).unwrap());
    }
    let script = dir.path("tidy.sh");
    (dir, script)
}

/// Paths below a directory; files with their mode and content.
fn tree(directory: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(next).unwrap().flatten() {
            let (path, metadata) = (entry.path(), entry.metadata().unwrap());
            let name = path.strip_prefix(directory).unwrap().display().to_string();
            if metadata.is_dir() {
                found.push(format!("{name}/"));
                waiting.push(path);
            } else {
                let mode = metadata.permissions().mode() & 0o777;
                found.push(format!("{name} {mode:o} {}", fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// Asserts that the changes of the example's script are in the directory.
fn assert_tidied(directory: &std::path::Path) {
    let after = tree(directory).join("\n");
    assert_contains(
        &after,
        [
            "src/leave.py 644 \"\"\"Says goodbye.\"\"\"\n",
            ".git/hooks/pre-commit 755 ",
        ],
    );
    assert_lacks(&after, ["\nnotes.txt "]);
}

fn commit_records() -> Value {
    cli_json(&["audit", "list", "--action", "workspace.committed"])
}

/// claim: [FS-5] [WS-4]
#[test]
fn overlay_changes_are_shown_with_risks_and_reach_the_host_on_commit() {
    let (dir, script) = project("accept");
    let overlay = format!("{}:overlay", dir.0.display());
    let before = tree(&dir.0);
    let run = |arguments: &[&str]| run_cli(&[&["run", &script, "--workspace", &overlay], arguments].concat());
    for arguments in [&[][..], &["--discard"]] {
        let output = run(arguments);
        let stderr = stderr_of(&output);
        assert!(
            output.status.success() && output.stdout == b"tidied\n",
            "{output:?}"
        );
        assert_contains(
            &stderr,
            ["added .git/hooks/pre-commit", "  ! ", "added src/leave.py"],
        );
        assert_contains(&stderr, ["changed src/greet.py", "deleted notes.txt"]);
        assert_contains(
            &stderr,
            ["  -    return \"hello, \" + name\n  +    return f\"hello, {name}!\"\n"],
        );
        assert_eq!(
            stderr.contains("--commit"),
            arguments.is_empty(),
            "the hint: {stderr}"
        );
        assert_eq!(tree(&dir.0), before, "the host is unchanged");
    }
    let document = json_of(&run(&["--json"]));
    let changes = &document["changes"];
    assert_eq!(changes["committed"], json!(null), "{changes}");
    let hook = list_of(&changes["added"])
        .iter()
        .find(|one| one["path"] == ".git/hooks/pre-commit");
    assert_ne!(hook.unwrap()["risks"], json!([]), "{changes}");
    assert_eq!(tree(&dir.0), before, "the host is still unchanged");
    let accepted = json_of(&run(&["--commit", "--json"]));
    assert_eq!(
        accepted["changes"]["token"], changes["token"],
        "the same script does the same"
    );
    let written = accepted["changes"]["committed"]["written"].as_u64();
    assert!(written.unwrap() >= 3, "{accepted}");
    assert_tidied(&dir.0);
    let audit = commit_records();
    audit.assert_fields(json!({"records.0.outcome": "ok", "records.0.details.changes": changes["token"]}));
}

/// claim: [WS-4]
#[test]
fn failed_script_commits_nothing() {
    let dir = TempDir::new("stale");
    dir.file("a.txt", "one\n");
    let overlay = format!("{}:overlay", dir.0.display());
    let arguments = ["--workspace", &overlay, "--commit"];
    let failed = run_code("shell", "echo two > a.txt; exit 3", &arguments);
    assert_eq!(failed.status.code(), Some(3));
    assert_contains(stderr_of(&failed), ["nothing was written"]);
    assert_eq!(dir.read("a.txt"), "one\n");
    let refused = run_code("shell", "true", &["--commit"]);
    assert_contains(stderr_of(&refused), ["DIR:overlay"]);
}

/// claim: [WS-4]
#[test]
fn changes_not_shown_in_full_are_not_committed() {
    let dir = TempDir::new("crowded");
    let overlay = format!("{}:overlay", dir.0.display());
    let run = |files: &str, options: &[&str]| {
        let code = format!(
            "mkdir -p '!' .git/hooks; (cd '!'; touch $(seq {files})); printf '#!/bin/sh\\n' > .git/hooks/pre-commit; \
             chmod +x .git/hooks/pre-commit"
        );
        let output = run_code("shell", &code, &[&["--workspace", &overlay], options].concat());
        (output.status.code(), stderr_of(&output))
    };
    let (code, stderr) = run("2100", &["--commit"]);
    assert_ne!(code, Some(0));
    assert!(stderr.contains("added .git/hooks/pre-commit\n  ! "), "{stderr}");
    assert!(stderr.contains("of the 2104 changes"), "{stderr}");
    let (code, stderr) = run("2100", &[]);
    assert_eq!(code, Some(0));
    assert!(stderr.contains("of the 2104 changes"), "{stderr}");
    assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 0, "nothing was written");
    assert_eq!(run("1900", &["--commit"]).0, Some(0));
    assert!(dir.0.join("!/1900").exists());
    // Large files do not hide a small flagged one, and a flagged file too large to be shown is not committed.
    let run = |flagged: &str| {
        let code = format!(
            "for i in 1 2 3; do yes 'x y z' | head -c 900000 > \"!notes$i.txt\"; done; \
             {{ echo 'all: ; evil'; yes '# x' | head -c {flagged}; }} > Makefile; ln -s ../../out link"
        );
        let output = run_code("shell", &code, &["--workspace", &overlay, "--commit"]);
        (output.status.code(), stderr_of(&output))
    };
    let (code, stderr) = run("600000");
    assert_ne!(code, Some(0));
    assert!(stderr.contains("may later run 1 of the files"), "{stderr}");
    assert!(!dir.0.join("Makefile").exists());
    let (code, stderr) = run("100");
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("  +all: ; evil\n"), "{stderr}");
    assert_contains(&stderr, ["added link -> ../../out\n  ! link.outside"]);
}

/// claim: [WS-4]
#[test]
fn run_with_undeterminable_changes_keeps_its_result_and_commits_nothing() {
    let dir = TempDir::new("untold");
    let overlay = format!("{}:overlay", dir.0.display());
    // Deeper than changes are listed.
    let code = "echo done; for i in $(seq 140); do mkdir d; cd d; done";
    let document = run_json("shell", code, &["--workspace", &overlay]);
    assert_eq!(document["stdout"], "done\n", "{document}");
    let rules = texts_of(&document["denials"], "rule");
    assert!(rules.contains(&"workspace.changes_untold"), "{document}");
    let output = run_code("shell", code, &["--workspace", &overlay, "--commit"]);
    assert_ne!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stdout, b"done\n");
    assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 0);
    // A directory that is too deep before the run is refused before it.
    let deep = std::iter::repeat_n("d", 140).collect::<std::path::PathBuf>();
    fs::create_dir_all(dir.0.join(deep)).unwrap();
    let output = run_code("shell", "echo ran", &["--workspace", &overlay]);
    assert!(output.stdout.is_empty(), "{output:?}");
    assert_contains(stderr_of(&output), ["could not be determined"]);
}

/// claim: [WS-4]
#[test]
fn hostile_overlay_content_is_safe_to_show_and_commit() {
    let dir = TempDir::new("hostile");
    let outside = TempDir::new("hostile-outside");
    outside.file("canary", "canary");
    dir.file("file", "x\n");
    let overlay = format!("{}:overlay", dir.0.display());
    let code = format!(
        "printf '\\033]0;owned\\007\\033[2Jred\\n' > file; touch $'na\\033[31mme\\nadded fake'; mkfifo pipe; ln -s {0} out; \
         echo x > out/new 2>/dev/null; cp /bin/true setuid; chmod 4755 setuid; mkdir shut; touch shut/in; chmod 0 shut",
        outside.0.display()
    );
    let arguments = ["--workspace", &overlay, "--commit"];
    let stderr = stderr_of(&run_code("shell", &(code + "; true"), &arguments));
    assert!(
        !stderr.contains('\u{1b}') && !stderr.contains('\u{7}'),
        "{stderr}"
    );
    assert!(
        !stderr.lines().any(|line| line.starts_with("added fake")),
        "{stderr}"
    );
    assert_eq!(fs::read_dir(&outside.0).unwrap().count(), 1, "{stderr}");
    let modes =
        |name: &str| fs::symlink_metadata(dir.0.join(name)).map(|found| found.permissions().mode() & 0o7000);
    assert!(modes("setuid").map_or(true, |bits| bits == 0), "{stderr}");
    assert!(modes("pipe").is_err(), "{stderr}");
    fs::set_permissions(dir.0.join("shut"), fs::Permissions::from_mode(0o700)).unwrap_or_default();
}

/// claim: [WS-4]
#[test]
fn commit_prompt_defaults_to_no() {
    let (dir, script) = project("asked");
    let overlay = format!("{}:overlay", dir.0.display());
    let before = tree(&dir.0);
    let answer = |answer: &str| {
        let mut terminal = Terminal::new(&ringfence(&["run", &script, "--workspace", &overlay]));
        let prompt = terminal.read_until("[y/N]");
        terminal.type_keys(answer.as_bytes());
        assert_eq!(terminal.status(), Some(0), "{prompt}");
        assert!(prompt.contains("\u{1b}[32m  +"), "colours: {prompt}");
    };
    answer("\n");
    answer("what?\n");
    assert_eq!(tree(&dir.0), before);
    answer("y\n");
    assert!(dir.0.join("src/leave.py").exists() && !dir.0.join("notes.txt").exists());
}
