//! Compares syntax findings with `bash -n`, on the scripts of this machine.

use super::{assert_sound, broken, is_installed, print, texts, validation};
use ringfence_types::{Issue, Language, Severity};
use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

const FILES_MAX: usize = 500;

/// True if `bash -n` accepts the code.
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
    // bash may exit before it has read everything.
    status.success() && written.is_ok()
}

fn scripts() -> Vec<(PathBuf, String)> {
    let roots = ["/etc", "/lib", "/usr"].map(PathBuf::from);
    let mut scripts = texts(&roots, &["sh", "bash"], FILES_MAX);
    // Maintainer scripts of packages.
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
fn scripts_accepted_by_bash_have_no_syntax_error() {
    if !is_installed("bash") {
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

/// Removes one word from scripts; at least 95 % of those that bash then refuses have a syntax error here, too.
#[test]
fn scripts_broken_on_purpose_have_a_syntax_error() {
    if !is_installed("bash") {
        return;
    }
    let words = ["fi", "done", "esac", "}", "then", "do", "\"", "'", ")"];
    let (mut refused, mut reported, mut silent) = (0_u32, 0_u32, Vec::new());
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
            refused += 1;
            match broken(&found).is_some() {
                true => reported += 1,
                false => silent.push(name),
            }
        }
    }
    eprintln!("shell: {reported} of {refused} broken scripts have a syntax error");
    silent
        .iter()
        .take(20)
        .for_each(|script| eprintln!("not reported: {script}"));
    assert!(reported * 100 >= refused * 95, "{reported} of {refused}");
}
