//! JSON Schemas of the tools for files and snapshots.

use super::{
    Offer,
    schemas::{Property, flag, input, list, or_null, record, said, string, whole},
};
use serde_json::{Value, json};

/// The argument by which a program's workspace is named.
pub(super) fn workspace() -> Property {
    (
        "workspace",
        "private: an empty directory, gone afterwards. namespace: one that is kept between calls. Or the name of a directory that the operator has listed.",
        json!({"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$", "default": "private"}),
    )
}

fn session() -> Property {
    (
        "session_id",
        "The session whose workspace is meant. Left out: the workspace that is kept for the namespace.",
        json!({"type": "string", "minLength": 36, "maxLength": 36}),
    )
}

fn path(about: &'static str) -> Property {
    (
        "path",
        about,
        json!({"type": "string", "minLength": 1, "maxLength": 1024}),
    )
}

fn snapshot() -> Property {
    (
        "snapshot_id",
        "As create_state_snapshot and list_state_snapshots give it.",
        json!({"type": "string", "maxLength": 64}),
    )
}

fn archive(about: &'static str) -> Property {
    ("archive", about, json!({"type": "boolean", "default": false}))
}

/// Input of `put_file`. One of text and base64 is required, and a path unless it is an archive; the schema says it in words.
pub(super) fn put_file(offer: &Offer) -> Value {
    let fields = vec![
        path(
            "Below the workspace, as data/in.csv. With archive: the directory, which need not be there; left out or `.`: the workspace itself.",
        ),
        (
            "text",
            "Content of a text file. Give either text or base64.",
            string(),
        ),
        (
            "base64",
            "Content of any other file, in standard base64.",
            string(),
        ),
        archive(
            "base64 is a tar archive, plain or in gzip: its files and directories are unpacked below path, all or none. Links, devices, names that lead elsewhere and names that meet are refused; at most 10,000 entries and 256 MiB.",
        ),
        session(),
    ];
    input(offer, fields, &[])
}

/// Output of `put_file`.
pub(super) fn file_put() -> Value {
    record(json!({
        "success": flag(), "path": string(),
        "files": said("Written.", whole()),
        "size_bytes": said("Of all of them.", whole()),
        "sha256": said("Of what was sent.", string()),
    }))
}

/// Input of `get_file`.
pub(super) fn get_file(offer: &Offer) -> Value {
    input(
        offer,
        vec![
            path(
                "Below the workspace, as data/out.csv. With archive: the directory; left out or `.`: the workspace itself.",
            ),
            archive(
                "path is a directory, which comes as a tar archive in base64. A secret in a file is replaced there; links, special files and names with a secret are left out.",
            ),
            session(),
        ],
        &[],
    )
}

/// Output of `get_file`.
pub(super) fn file_got() -> Value {
    record(json!({
        "success": flag(), "path": string(), "size_bytes": whole(), "sha256": string(),
        "mode": said("Null for an archive.", or_null(string())),
        "modified_unix_ms": said("Null for an archive.", or_null(json!({"type": "integer"}))),
        "text": said("The content, where it is UTF-8.", or_null(string())),
        "base64": said("The content of any other file, or the archive.", or_null(string())),
        "left_out": said("What an archive does not have; the first twenty.", list(string())),
        "left_out_count": whole(),
    }))
}

/// Input of `list_files`.
pub(super) fn list_files(offer: &Offer) -> Value {
    let below = path("A directory below the workspace. Left out: all of it.");
    input(offer, vec![below, session()], &[])
}

/// Output of `list_files`.
pub(super) fn files() -> Value {
    let one = record(json!({
        "path": string(),
        "kind": json!({"enum": ["file", "directory", "link", "other"]}),
        "size_bytes": whole(),
        "mode": string(),
        "modified_unix_ms": json!({"type": "integer"}),
        "sha256": said("Of a plain file; null past 256 MiB of them.", or_null(string())),
    }));
    record(json!({"success": flag(), "files": list(one)}))
}

/// Input of `create_state_snapshot`.
pub(super) fn create_snapshot(offer: &Offer) -> Value {
    let description = (
        "description",
        "What it is, for whoever looks for it later.",
        json!({"type": "string", "maxLength": 1024, "default": ""}),
    );
    input(offer, vec![description, session()], &[])
}

fn snapshot_fields() -> Value {
    json!({
        "snapshot_id": string(),
        "description": string(),
        "created": string(),
        "of": said("namespace, or the session whose workspace it was.", string()),
        "files": whole(),
        "size_bytes": whole(),
    })
}

/// Output of `create_state_snapshot`.
pub(super) fn snapshot_made() -> Value {
    let mut fields = snapshot_fields();
    fields["success"] = flag();
    fields["new_bytes"] = said("That no other snapshot had.", whole());
    fields["stored_bytes"] = said("What that takes on the disk.", whole());
    fields["left_out"] = said(
        "Sockets, devices and unreadable files; a restore removes them.",
        list(string()),
    );
    fields["left_out_count"] = whole();
    record(fields)
}

/// Input of `restore_state_snapshot`.
pub(super) fn restore_snapshot(offer: &Offer) -> Value {
    let into = (
        "session_id",
        "Put it into this session's workspace instead of the one that it was taken from.",
        json!({"type": "string", "minLength": 36, "maxLength": 36}),
    );
    input(offer, vec![snapshot(), into], &["snapshot_id"])
}

/// Output of `restore_state_snapshot`.
pub(super) fn snapshot_restored() -> Value {
    record(json!({
        "success": flag(), "snapshot_id": string(), "written": whole(), "deleted": whole(), "unchanged": whole(),
    }))
}

/// Output of `list_state_snapshots`.
pub(super) fn snapshots() -> Value {
    record(json!({"success": flag(), "snapshots": list(record(snapshot_fields()))}))
}

/// Input of `delete_state_snapshot`.
pub(super) fn delete_snapshot(offer: &Offer) -> Value {
    input(offer, vec![snapshot()], &["snapshot_id"])
}

/// Output of `delete_state_snapshot`.
pub(super) fn snapshot_deleted() -> Value {
    record(json!({"success": flag(), "snapshot_id": string()}))
}

/// Input of `diff_workspace`.
pub(super) fn diff(offer: &Offer) -> Value {
    let base = (
        "snapshot_id",
        "The state that it is compared with. Left out: the latest snapshot of this workspace, or, of a session that works in an overlay, the directory below it.",
        json!({"type": "string", "maxLength": 64}),
    );
    input(offer, vec![base, session()], &[])
}

/// Output of `diff_workspace`.
pub(super) fn difference() -> Value {
    let risk = record(json!({"rule": string(), "what": string()}));
    let side = or_null(record(json!({
        "kind": string(), "size_bytes": whole(), "mode": string(), "sha256": or_null(string()),
        "target": said("Where a link leads.", or_null(string())),
    })));
    let one = record(json!({
        "path": string(),
        "before": side,
        "after": side,
        "diff": said("Unified; null for what is no text, or too much.", or_null(string())),
        "risks": said("Why the host may run it later.", list(risk)),
    }));
    record(json!({
        "success": flag(),
        "base": said("The snapshot, or `directory` for what is below an overlay; null: there is none, and everything counts as added.", or_null(string())),
        "added": list(one.clone()),
        "changed": list(one.clone()),
        "deleted": list(one),
        "conflicts": said("Paths that the host, too, has changed since the program began; a commit would write over that.", list(string())),
        "truncated": said("There was more than fits.", flag()),
    }))
}

/// Input of `run_sandbox_code`.
pub(super) fn run_sandbox_code(offer: &Offer) -> Value {
    let code = json!({"type": "string", "minLength": 1, "maxLength": ringfence_types::CODE_BYTES_MAX});
    let mut seconds = super::schemas::seconds(offer);
    seconds["default"] = json!(super::run_sandbox_code::TIMEOUT_SECONDS);
    let fields = vec![
        ("code", "The complete Python program.", code),
        ("timeout_sec", "Wall-clock limit in seconds.", seconds),
    ];
    input(offer, fields, &["code"])
}
