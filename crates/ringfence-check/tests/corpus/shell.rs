//! bash is the judge.

use super::{assert_sound, broken, has, print, texts, validation};
use ringfence_types::{Issue, Language, Severity};
use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

const FILES_MAX: usize = 500;

/// Does `bash -n` take it.
fn accepted(code: &str) -> bool {
    let mut bash = Command::new("bash")
        .args(["-n", "/dev/stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let written = bash.stdin.take().unwrap().write_all(code.as_bytes());
    let status = bash.wait().unwrap();
    // It may end before it has read everything.
    status.success() && written.is_ok()
}

fn scripts() -> Vec<(PathBuf, String)> {
    let roots = ["/etc", "/lib", "/usr"].map(PathBuf::from);
    let mut scripts = texts(&roots, &["sh", "bash"], FILES_MAX);
    // Scripts without an ending are programs and hooks of packages.
    let plain: Vec<(PathBuf, String)> = texts(
        &["/var/lib/dpkg/info"].map(PathBuf::from),
        &["postinst", "prerm", "preinst"],
        FILES_MAX,
    );
    scripts.extend(plain);
    scripts.retain(|(_, text)| text.len() < 256 * 1024);
    scripts.truncate(FILES_MAX);
    scripts
}

#[test]
fn no_script_that_bash_accepts_is_called_broken() {
    if !has("bash") {
        return;
    }
    let scripts = scripts();
    let (mut judged, mut unread, mut errors, mut warnings) = (0, 0, 0, 0);
    for (path, text) in &scripts {
        if !accepted(text) {
            continue;
        }
        judged += 1;
        let (name, found) = (path.display().to_string(), validation(Language::Shell, text));
        assert_sound(&name, &found);
        unread += usize::from(found.issues.iter().any(|issue| issue.rule == "shell.unparsed"));
        for issue in &found.issues {
            if issue.severity == Severity::Error || issue.rule == "shell.unparsed" {
                print(&name, issue);
            }
            errors += usize::from(issue.severity == Severity::Error);
        }
        let is_warning = |issue: &Issue| issue.severity == Severity::Warning;
        warnings += usize::from(found.issues.iter().any(is_warning));
    }
    eprintln!(
        "shell: {} scripts, {judged} accepted by bash, {unread} not read whole, {errors} errors, {warnings} with warnings",
        scripts.len()
    );
    assert!(unread * 50 <= judged, "{unread} of {judged} were not read whole");
    assert!(
        errors * 50 <= judged.max(50),
        "{errors} errors in {judged} scripts that come with the machine"
    );
}

/// Scripts with one word taken away: what bash refuses then is called broken here.
#[test]
fn scripts_that_were_broken_on_purpose_are_called_broken() {
    if !has("bash") {
        return;
    }
    let words = ["fi", "done", "esac", "}", "then", "do", "\"", "'", ")"];
    let (mut broken_ones, mut told, mut silent) = (0_u32, 0_u32, Vec::new());
    for (path, text) in scripts()
        .iter()
        .filter(|(_, text)| text.len() < 8192 && accepted(text))
        .take(60)
    {
        for word in words {
            let Some(at) = text.rfind(word) else {
                continue;
            };
            let mut code = text.clone();
            code.replace_range(at..at + word.len(), "");
            let name = format!("{} without {word} at {at}", path.display());
            let found = validation(Language::Shell, &code);
            if accepted(&code) {
                assert_sound(&name, &found);
                continue;
            }
            broken_ones += 1;
            match broken(&found).is_some() {
                true => told += 1,
                false => silent.push(name),
            }
        }
    }
    eprintln!("shell: {told} of {broken_ones} broken scripts are called broken");
    silent
        .iter()
        .take(20)
        .for_each(|script| eprintln!("not told: {script}"));
    assert!(told * 100 >= broken_ones * 95, "{told} of {broken_ones}");
}
