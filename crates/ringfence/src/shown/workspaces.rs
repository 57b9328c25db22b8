//! What there is to tell of saved workspaces.

use super::Shown;
use crate::moment;
use ringfence_engine::{
    Base, Changed, CommittedChanges, Difference, FileFacts, HeldChanges, Lay, SnapshotFacts, SnapshotMade,
    SnapshotRestored,
};
use serde_json::{Value, json};
use std::path::Path;

pub(crate) fn snapshots(listed: &[SnapshotFacts]) -> Shown {
    let line = |one: &SnapshotFacts| {
        format!(
            "{} {} {} files, {} bytes of {}: {}\n",
            one.snapshot_id,
            moment::write_seconds(one.created_unix_ms / 1000),
            one.files,
            one.size_bytes,
            one.of,
            one.description
        )
    };
    let mut text: String = listed.iter().map(line).collect();
    if text.is_empty() {
        text = "there is no snapshot\n".to_owned();
    }
    Shown {
        text,
        facts: json!({"snapshots": listed.iter().map(snapshot).collect::<Vec<_>>()}),
    }
}

/// What is in a workspace.
pub(crate) fn files(files: &[FileFacts]) -> Shown {
    let line = |one: &FileFacts| {
        let end = if one.kind == "directory" { "/" } else { "" };
        let modified = moment::write_milliseconds(u64::try_from(one.modified_unix_ms).unwrap_or(0));
        let path = one.path.replace('\n', "\u{240a}");
        format!("{} {:>12} {modified} {path}{end}\n", one.mode, one.size_bytes)
    };
    Shown {
        text: files.iter().map(line).collect(),
        facts: json!({"files": files}),
    }
}

fn snapshot(one: &SnapshotFacts) -> Value {
    json!({
        "snapshot_id": one.snapshot_id,
        "description": one.description,
        "created": moment::write_seconds(one.created_unix_ms / 1000),
        "of": one.of,
        "files": one.files,
        "size_bytes": one.size_bytes,
    })
}

pub(crate) fn snapshot_made(made: &SnapshotMade) -> Shown {
    let SnapshotFacts {
        snapshot_id,
        files,
        size_bytes,
        ..
    } = &made.snapshot;
    let mut text = format!(
        "snapshot {snapshot_id}: {files} files, {size_bytes} bytes, of which {} are new and take {}\n",
        made.new_bytes, made.stored_bytes
    );
    for left in &made.left_out {
        text += &format!("left out: {left}\n");
    }
    let mut facts = snapshot(&made.snapshot);
    facts["new_bytes"] = json!(made.new_bytes);
    facts["stored_bytes"] = json!(made.stored_bytes);
    facts["left_out"] = json!(made.left_out);
    facts["left_out_count"] = json!(made.left_out_count);
    Shown { text, facts }
}

pub(crate) fn snapshot_restored(id: &str, restored: SnapshotRestored) -> Shown {
    let SnapshotRestored {
        written,
        deleted,
        unchanged,
    } = restored;
    Shown {
        text: format!("restored {id}: {written} written, {deleted} deleted, {unchanged} unchanged\n"),
        facts: json!({"snapshot_id": id, "written": written, "deleted": deleted, "unchanged": unchanged}),
    }
}

pub(crate) fn difference(difference: &Difference) -> Shown {
    let mut text = match &difference.base {
        Base::Snapshot(id) => format!("since the snapshot {id}\n"),
        Base::Directory => "beside the directory below the overlay\n".to_owned(),
        Base::Nothing => "there is no snapshot to compare with: everything counts as added\n".to_owned(),
    };
    text += &changes(difference);
    Shown {
        text,
        facts: json!(difference),
    }
}

/// What has been done to an overlay, with the token by which it is accepted.
pub(crate) fn held_changes(held: &HeldChanges) -> Shown {
    let mut facts = json!(held.difference());
    if let Some(facts) = facts.as_object_mut() {
        // They are compared with the directory itself.
        facts.remove("base");
        facts.insert("token".to_owned(), json!(held.token()));
        facts.insert("directory".to_owned(), json!(held.directory()));
    }
    Shown {
        text: changes(held.difference()),
        facts,
    }
}

/// What of it the host has now.
pub(crate) fn committed(directory: &Path, committed: &CommittedChanges) -> Shown {
    let mut text = format!(
        "{} written and {} deleted in {}\n",
        committed.written,
        committed.deleted,
        directory.display()
    );
    for path in &committed.skipped {
        text += &format!("not written, because it is no plain file: {path}\n");
    }
    for path in &committed.kept {
        text += &format!("not deleted, because something is in it: {path}\n");
    }
    Shown {
        text,
        facts: json!(committed),
    }
}

/// What differs, for a person: each path with its flags, then what changed in it.
fn changes(difference: &Difference) -> String {
    let groups = [
        ("added", &difference.added),
        ("changed", &difference.changed),
        ("deleted", &difference.deleted),
    ];
    let mut text = String::new();
    for (word, changed) in groups {
        for one in changed {
            text += &entry(word, one);
        }
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
            flagged.filter(|one| !one.risks.is_empty()).count()
        );
    }
    text
}

fn entry(word: &str, one: &Changed) -> String {
    // As in the header of a difference: a name shows neither as two lines nor as another name.
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
    for risk in &one.risks {
        text += &format!("  ! {}: {}\n", risk.rule, risk.what);
    }
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

    #[test]
    fn a_name_is_shown_with_what_nobody_would_see_of_it() {
        let shown = |path: &str, kind, target: Option<&str>| {
            let lay = Lay {
                kind,
                size_bytes: 0,
                mode: "0644".to_owned(),
                sha256: None,
                target: target.map(str::to_owned),
            };
            let changed = Changed {
                path: path.to_owned(),
                before: None,
                after: Some(lay),
                diff: None,
                risks: Vec::new(),
            };
            entry("added", &changed)
        };
        assert_eq!(shown("plain é.txt", "file", None), "added plain é.txt\n");
        assert_eq!(
            shown("Make\u{200b}file\u{e0041}\nx", "file", None),
            "added Make\\u{200b}file\\u{e0041}\\nx\n"
        );
        assert_eq!(shown("d", "directory", None), "added d (directory)\n");
        assert_eq!(
            shown("l", "link", Some("../\u{200b}x")),
            "added l -> ../\\u{200b}x\n"
        );
    }

    #[test]
    fn a_link_that_points_elsewhere_now_shows_both_places() {
        let lay = |target: &str| {
            Some(Lay {
                kind: "link",
                size_bytes: 1,
                mode: "0777".to_owned(),
                sha256: None,
                target: Some(target.to_owned()),
            })
        };
        let changed = Changed {
            path: "l".to_owned(),
            before: lay("old"),
            after: lay("/etc"),
            diff: None,
            risks: Vec::new(),
        };
        assert_eq!(entry("changed", &changed), "changed l -> /etc (was -> old)\n");
    }
}
