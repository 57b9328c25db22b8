//! Answers about files, snapshots and changes of workspaces.

use super::Rendered;
use crate::{sentence, terminal::neutral, time};
use ringfence_engine::{
    Base, Changed, CommittedChanges, Difference, FileFacts, HeldChanges, Lay, SnapshotFacts, SnapshotMade,
};
use ringfence_store::snapshots::Restored;
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path};

pub(crate) fn snapshots(listed: &[SnapshotFacts]) -> Rendered {
    let row = |one: &SnapshotFacts| {
        [
            one.snapshot_id.clone(),
            time::write_seconds(one.created_unix_ms / 1000),
            one.files.to_string(),
            one.size_bytes.to_string(),
            one.of.clone(),
            neutral::line(&one.description),
        ]
    };
    let columns = [
        ("SNAPSHOT", 36),
        ("TIME", 20),
        ("FILES", -6),
        ("BYTES", -12),
        ("WORKSPACE", 36),
        ("DESCRIPTION", 0),
    ];
    let text = match listed {
        [] => "no snapshots\n".to_owned(),
        listed => super::table(columns, listed.iter().map(row)),
    };
    let facts: Vec<Value> = listed.iter().map(snapshot).collect();
    Rendered::new(text, json!({"snapshots": facts}))
}

pub(crate) fn files(files: &[FileFacts]) -> Rendered {
    let line = |one: &FileFacts| {
        let end = if one.kind == "directory" { "/" } else { "" };
        let modified = time::write_milliseconds(u64::try_from(one.modified_unix_ms).unwrap_or(0));
        let path = neutral::line(&one.path);
        format!("{} {:>12} {modified} {path}{end}\n", one.mode, one.size_bytes)
    };
    let text: String = files.iter().map(line).collect();
    Rendered::new(text, json!({"files": files}))
}

fn snapshot(one: &SnapshotFacts) -> Value {
    json!({
        "snapshot_id": one.snapshot_id,
        "description": one.description,
        "created": time::write_seconds(one.created_unix_ms / 1000),
        "of": one.of,
        "files": one.files,
        "size_bytes": one.size_bytes,
    })
}

pub(crate) fn snapshot_made(made: &SnapshotMade) -> Rendered {
    let of = &made.snapshot;
    let mut text = format!(
        "snapshot {}: {} of {} bytes in all; it takes {} bytes of the store\n",
        of.snapshot_id,
        sentence::counted(of.files, "file"),
        of.size_bytes,
        made.stored_bytes
    );
    for left in &made.left_out {
        text += &format!("left out: {left}\n");
    }
    let mut facts = snapshot(&made.snapshot);
    facts["new_bytes"] = json!(made.new_bytes);
    facts["stored_bytes"] = json!(made.stored_bytes);
    facts["left_out"] = json!(made.left_out);
    facts["left_out_count"] = json!(made.left_out_count);
    Rendered { text, facts }
}

pub(crate) fn snapshot_restored(id: &str, restored: Restored) -> Rendered {
    let (written, deleted, unchanged) = (restored.written, restored.deleted, restored.unchanged);
    let text = format!(
        "the workspace is as in {id}: of its files and directories {written} were written back, {deleted} deleted, and \
         {unchanged} had not changed\n"
    );
    let facts = json!({"snapshot_id": id, "written": written, "deleted": deleted, "unchanged": unchanged});
    Rendered { text, facts }
}

pub(crate) fn difference(difference: &Difference) -> Rendered {
    let mut text = match &difference.base {
        Base::Snapshot(id) => format!("since the snapshot {id}\n"),
        Base::Directory => "compared with the directory below the overlay\n".to_owned(),
        Base::Nothing => "there is no snapshot to compare with: everything counts as added\n".to_owned(),
    };
    text += &changes(difference);
    Rendered::new(text, json!(difference))
}

pub(crate) fn held_changes(held: &HeldChanges) -> Rendered {
    let mut facts = json!(held.difference());
    if let Some(facts) = facts.as_object_mut() {
        // The base is always the directory itself.
        facts.remove("base");
        facts.insert("token".to_owned(), json!(held.token()));
        facts.insert("directory".to_owned(), json!(held.directory()));
    }
    Rendered::new(changes(held.difference()), facts)
}

pub(crate) fn committed(directory: &Path, committed: &CommittedChanges) -> Rendered {
    let mut text = format!(
        "{} written and {} deleted in {}\n",
        committed.written,
        committed.deleted,
        directory.display()
    );
    for (why, paths) in [
        ("not written, because it is not a plain file", &committed.skipped),
        ("not deleted, because something is in it", &committed.kept),
    ] {
        for path in paths {
            text += &format!("{why}: {}\n", path.escape_debug());
        }
    }
    for path in &committed.conflicts {
        text += &format!("conflict, changed on the host meanwhile and left as it is there: {path}\n");
    }
    Rendered::new(text, json!(committed))
}

fn changes(difference: &Difference) -> String {
    let groups = [
        ("added", &difference.added),
        ("changed", &difference.changed),
        ("deleted", &difference.deleted),
    ];
    let mut text = String::new();
    let mut histories: BTreeMap<&str, (&Changed, usize)> = BTreeMap::new();
    for (word, changed) in groups {
        for one in changed {
            match history(one) {
                Some(repository) => histories.entry(repository).or_insert((one, 0)).1 += 1,
                None => text += &entry(word, one),
            }
        }
    }
    for (repository, (one, count)) in &histories {
        let paths = sentence::counted(*count, "path");
        text += &format!("history of {}: {paths}\n", repository.escape_debug());
        text += &risks(one);
    }
    if difference.is_empty() {
        text += "nothing has changed\n";
    }
    if difference.truncated {
        text += "and more\n";
    }
    if !difference.is_empty() {
        let flagged = groups.iter().flat_map(|(_, changed)| changed.iter());
        text += &format!(
            "{} changed, {} added, {} deleted; {} flagged\n",
            difference.changed.len(),
            difference.added.len(),
            difference.deleted.len(),
            flagged
                .filter(|one| !one.risks.is_empty() && history(one).is_none())
                .count()
                + histories.len()
        );
    }
    text
}

/// Returns the repository if Git writes this path at commits, and never runs or obeys it: summarised per repository.
fn history(one: &Changed) -> Option<&str> {
    const PARTS: [&str; 9] = [
        "",
        "objects",
        "refs",
        "logs",
        "index",
        "HEAD",
        "ORIG_HEAD",
        "COMMIT_EDITMSG",
        "packed-refs",
    ];
    let at = if one.path.starts_with(".git") {
        0
    } else {
        one.path.find("/.git")? + 1
    };
    let (repository, below) = one.path.split_at_checked(at + ".git".len())?;
    let part = match below.strip_prefix('/') {
        Some(below) => below.split('/').next().unwrap_or_default(),
        None if below.is_empty() => "",
        None => return None,
    };
    let flagged = one.risks.iter().all(|risk| risk.rule == "git.directory");
    // A file `.git` points to the repository, so it is not plain.
    let plain = |lay: &Option<Lay>| {
        let is_plain = |lay: &Lay| lay.kind == "directory" || lay.kind == "file" && !part.is_empty();
        lay.as_ref().is_none_or(is_plain)
    };
    (PARTS.contains(&part) && flagged && plain(&one.before) && plain(&one.after)).then_some(repository)
}

fn risks(one: &Changed) -> String {
    let lines = one.risks.iter();
    lines
        .map(|risk| format!("  ! {}: {}\n", risk.rule, risk.what))
        .collect()
}

fn entry(word: &str, one: &Changed) -> String {
    // Escaped as in the header of a difference, so that a name is one line and does not look like another name.
    let mut text = format!("{word} {}", one.path.escape_debug());
    let target = |lay: &Option<Lay>| lay.as_ref().and_then(|lay| lay.target.clone());
    let (was, is) = (target(&one.before), target(&one.after));
    if let Some(shown) = is.as_ref().or(was.as_ref()) {
        text += &format!(" -> {}", shown.escape_debug());
    }
    match (&one.before, &one.after) {
        (Some(before), Some(after)) if before.kind != after.kind => {
            text += &format!(" ({} is a {} now)", before.kind, after.kind);
        }
        (Some(_), Some(_)) if let (Some(was), Some(_)) = (&was, &is) => {
            text += &format!(" (was -> {})", was.escape_debug());
        }
        (Some(before), Some(after)) if before.mode != after.mode => {
            text += &format!(" (mode {} is {} now)", before.mode, after.mode);
        }
        (None, Some(lay)) | (Some(lay), None) if !matches!(lay.kind, "file" | "link") => {
            text += &format!(" ({})", lay.kind)
        }
        _ => {}
    }
    text.push('\n');
    text += &risks(one);
    if let Some(diff) = &one.diff {
        for line in diff.lines() {
            text += &format!("  {line}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_engine::RiskFacts;

    fn lay(kind: &'static str, target: Option<&str>) -> Option<Lay> {
        Some(Lay {
            kind,
            size_bytes: 0,
            mode: "0644".to_owned(),
            sha256: None,
            target: target.map(str::to_owned),
        })
    }

    fn changed(path: &str, before: Option<Lay>, after: Option<Lay>) -> Changed {
        Changed {
            path: path.to_owned(),
            before,
            after,
            diff: None,
            risks: Vec::new(),
        }
    }

    #[test]
    fn invisible_characters_of_a_path_are_escaped() {
        let check = |path: &str, kind, target: Option<&str>, expect: &str| {
            let added = changed(path, None, lay(kind, target));
            assert_eq!(entry("added", &added), expect);
        };
        check("plain é.txt", "file", None, "added plain é.txt\n");
        let hidden = "Make\u{200b}file\u{e0041}\nx";
        check(hidden, "file", None, "added Make\\u{200b}file\\u{e0041}\\nx\n");
        check("d", "directory", None, "added d (directory)\n");
        check("l", "link", Some("../\u{200b}x"), "added l -> ../\\u{200b}x\n");
    }

    #[test]
    fn git_history_is_summarised_once_and_hooks_are_listed() {
        let flagged = |path: &str, kind| Changed {
            risks: vec![RiskFacts {
                rule: "git.directory",
                what: "Git obeys it.",
            }],
            ..changed(path, None, lay(kind, None))
        };
        let mut added = vec![
            flagged("a/.git", "directory"),
            flagged("a/.git/hooks/post-commit", "file"),
        ];
        for part in [
            "objects/ab/cd",
            "refs/heads/main",
            "logs/HEAD",
            "index",
            "HEAD",
            "COMMIT_EDITMSG",
        ] {
            added.push(flagged(&format!("a/.git/{part}"), "file"));
        }
        added.push(flagged("a/.git/HEAD", "link"));
        added.push(flagged("a/.gitx/HEAD", "file"));
        let text = changes(&Difference {
            base: Base::Directory,
            conflicts: Vec::new(),
            added,
            changed: Vec::new(),
            deleted: Vec::new(),
            truncated: false,
        });
        let flag = "  ! git.directory: Git obeys it.\n";
        assert_eq!(
            text,
            format!(
                "added a/.git/hooks/post-commit\n{flag}added a/.git/HEAD\n{flag}added a/.gitx/HEAD\n{flag}\
                 history of a/.git: 7 paths\n{flag}0 changed, 10 added, 0 deleted; 4 flagged\n"
            )
        );
    }

    #[test]
    fn retargeted_symlink_shows_both_targets() {
        let moved = changed("l", lay("link", Some("old")), lay("link", Some("/etc")));
        assert_eq!(entry("changed", &moved), "changed l -> /etc (was -> old)\n");
    }
}
