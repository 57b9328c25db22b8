//! What a script did to an overlay: shown, flagged, and written to the host when a person has said so.

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

/// Paths below a directory, each with what it is and holds.
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

/// What the script of the example leaves when it is accepted.
fn expect_tidied(directory: &std::path::Path) {
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

fn committed_on_record() -> Value {
    told_json(&["audit", "list", "--action", "workspace.committed"])
}

/// claim: [FS-5] [WS-4]
#[test]
fn what_a_script_did_to_an_overlay_is_shown_with_flags_and_reaches_the_host_when_it_is_accepted() {
    let (dir, script) = project("accept");
    let overlay = format!("{}:overlay", dir.0.display());
    let before = tree(&dir.0);
    let run = |words: &[&str]| said(&[&["run", &script, "--workspace", &overlay], words].concat());
    for words in [&[][..], &["--discard"]] {
        let output = run(words);
        let told = stderr_of(&output);
        assert!(
            output.status.success() && output.stdout == b"tidied\n",
            "{output:?}"
        );
        assert_contains(
            &told,
            ["added .git/hooks/pre-commit", "  ! ", "added src/leave.py"],
        );
        assert_contains(&told, ["changed src/greet.py", "deleted notes.txt"]);
        assert_contains(
            &told,
            ["  -    return \"hello, \" + name\n  +    return f\"hello, {name}!\"\n"],
        );
        assert_eq!(told.contains("--commit"), words.is_empty(), "it says how: {told}");
        assert_eq!(tree(&dir.0), before, "nothing has reached the host");
    }
    let document = json_of(&run(&["--json"]));
    let changes = &document["changes"];
    assert_eq!(changes["committed"], json!(null), "{changes}");
    let hook = list_of(&changes["added"])
        .iter()
        .find(|one| one["path"] == ".git/hooks/pre-commit");
    assert_ne!(hook.unwrap()["risks"], json!([]), "{changes}");
    assert_eq!(tree(&dir.0), before, "nor now");
    let accepted = json_of(&run(&["--commit", "--json"]));
    assert_eq!(
        accepted["changes"]["token"], changes["token"],
        "the same script does the same"
    );
    let written = accepted["changes"]["committed"]["written"].as_u64();
    assert!(written.unwrap() >= 3, "{accepted}");
    expect_tidied(&dir.0);
    let audit = committed_on_record();
    audit.shows(json!({"records.0.outcome": "ok", "records.0.details.changes": changes["token"]}));
}

/// claim: [WS-4]
#[test]
fn a_script_that_fails_commits_nothing() {
    let dir = TempDir::new("stale");
    dir.file("a.txt", "one\n");
    let overlay = format!("{}:overlay", dir.0.display());
    let words = ["--workspace", &overlay, "--commit"];
    let failed = run_code("shell", "echo two > a.txt; exit 3", &words);
    assert_eq!(failed.status.code(), Some(3));
    assert_contains(stderr_of(&failed), ["nothing was written"]);
    assert_eq!(dir.read("a.txt"), "one\n");
    let refused = run_code("shell", "true", &["--commit"]);
    assert_contains(stderr_of(&refused), ["DIR:overlay"]);
}

/// claim: [WS-4]
#[test]
fn changes_that_were_not_all_shown_are_not_accepted() {
    let dir = TempDir::new("crowded");
    let overlay = format!("{}:overlay", dir.0.display());
    let run = |files: &str, wish: &[&str]| {
        let code = format!(
            "mkdir -p '!' .git/hooks; (cd '!'; touch $(seq {files})); printf '#!/bin/sh\\n' > .git/hooks/pre-commit; \
             chmod +x .git/hooks/pre-commit"
        );
        let output = run_code("shell", &code, &[&["--workspace", &overlay], wish].concat());
        (output.status.code(), stderr_of(&output))
    };
    let (code, told) = run("2100", &["--commit"]);
    assert_ne!(code, Some(0));
    assert!(told.contains("added .git/hooks/pre-commit\n  ! "), "{told}");
    assert!(told.contains("of the 2104 changes"), "{told}");
    let (code, told) = run("2100", &[]);
    assert_eq!(code, Some(0));
    assert!(told.contains("of the 2104 changes"), "{told}");
    assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 0, "nothing was written");
    assert_eq!(run("1900", &["--commit"]).0, Some(0));
    assert!(dir.0.join("!/1900").exists());
    // Neither do large files hide what a small one has, nor is it accepted when it is too large to be shown.
    let run = |flagged: &str| {
        let code = format!(
            "for i in 1 2 3; do yes 'x y z' | head -c 900000 > \"!notes$i.txt\"; done; \
             {{ echo 'all: ; evil'; yes '# x' | head -c {flagged}; }} > Makefile; ln -s ../../out link"
        );
        let output = run_code("shell", &code, &["--workspace", &overlay, "--commit"]);
        (output.status.code(), stderr_of(&output))
    };
    let (code, told) = run("600000");
    assert_ne!(code, Some(0));
    assert!(told.contains("may later run 1 of the files"), "{told}");
    assert!(!dir.0.join("Makefile").exists());
    let (code, told) = run("100");
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("  +all: ; evil\n"), "{told}");
    assert_contains(&told, ["added link -> ../../out\n  ! link.outside"]);
}

/// claim: [WS-4]
#[test]
fn a_run_whose_changes_cannot_be_told_has_its_result_and_commits_nothing() {
    let dir = TempDir::new("untold");
    let overlay = format!("{}:overlay", dir.0.display());
    // Deeper than anybody looks.
    let code = "echo done; for i in $(seq 140); do mkdir d; cd d; done";
    let document = run_json("shell", code, &["--workspace", &overlay]);
    assert_eq!(document["stdout"], "done\n", "{document}");
    let rules = texts_of(&document["denials"], "rule");
    assert!(rules.contains(&"workspace.changes_untold"), "{document}");
    let output = run_code("shell", code, &["--workspace", &overlay, "--commit"]);
    assert_ne!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stdout, b"done\n");
    assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 0);
    // What is there before is looked at before.
    let deep = std::iter::repeat_n("d", 140).collect::<std::path::PathBuf>();
    fs::create_dir_all(dir.0.join(deep)).unwrap();
    let output = run_code("shell", "echo ran", &["--workspace", &overlay]);
    assert!(output.stdout.is_empty(), "{output:?}");
    assert_contains(stderr_of(&output), ["could not be told"]);
}

/// claim: [WS-4]
#[test]
fn what_a_hostile_script_leaves_in_an_overlay_is_harmless_to_look_at_and_to_accept() {
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
    let words = ["--workspace", &overlay, "--commit"];
    let told = stderr_of(&run_code("shell", &(code + "; true"), &words));
    assert!(!told.contains('\u{1b}') && !told.contains('\u{7}'), "{told}");
    assert!(!told.lines().any(|line| line.starts_with("added fake")), "{told}");
    assert_eq!(fs::read_dir(&outside.0).unwrap().count(), 1, "{told}");
    let modes =
        |name: &str| fs::symlink_metadata(dir.0.join(name)).map(|found| found.permissions().mode() & 0o7000);
    assert!(modes("setuid").map_or(true, |bits| bits == 0), "{told}");
    assert!(modes("pipe").is_err(), "{told}");
    fs::set_permissions(dir.0.join("shut"), fs::Permissions::from_mode(0o700)).unwrap_or_default();
}

/// claim: [WS-4]
#[test]
fn a_person_is_asked_and_a_line_break_means_no() {
    let (dir, script) = project("asked");
    let overlay = format!("{}:overlay", dir.0.display());
    let before = tree(&dir.0);
    let answer = |answer: &str| {
        let mut terminal = Terminal::new(&ringfence(&["run", &script, "--workspace", &overlay]));
        let told = terminal.sees("[y/N]");
        terminal.types(answer.as_bytes());
        assert_eq!(terminal.status(), Some(0), "{told}");
        assert!(told.contains("\u{1b}[32m  +"), "colours: {told}");
    };
    answer("\n");
    answer("what?\n");
    assert_eq!(tree(&dir.0), before);
    answer("y\n");
    assert!(dir.0.join("src/leave.py").exists() && !dir.0.join("notes.txt").exists());
}
