//! Answers about commands and files of the host, as text and as facts.

use super::Rendered;
use crate::{terminal::neutral, time};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ringfence_engine::{
    FileFacts, HostAccessList, HostEnding, HostEntry, HostFile, HostListing, HostRun, HostVerdict,
    HostWriting, HostWritten, ending_words,
};
use serde_json::{Value, json};
use std::path::Path;

/// The beginning and the end of a stream that is longer than `max` bytes, with the number of bytes left out between.
fn ends(bytes: &[u8], total: u64, max: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    if text.len() <= max && total <= bytes.len() as u64 {
        return text.into_owned();
    }
    let first = text.floor_char_boundary(max / 2);
    let last = text
        .floor_char_boundary(text.len().saturating_sub(max / 2))
        .max(first);
    let left = total.saturating_sub((first + text.len() - last) as u64);
    format!("{}\n[{left} bytes left out]\n{}", &text[..first], &text[last..])
}

pub(crate) fn host_run(run: &HostRun, text_max: usize) -> Rendered {
    let stdout = ends(&run.stdout, run.stdout_bytes, text_max);
    let stderr = ends(&run.stderr, run.stderr_bytes, text_max);
    let by = match (&run.rule, &run.approved_by) {
        (_, Some(caller)) => format!("approved by {caller}"),
        (Some(rule), None) => format!("rule {rule}"),
        (None, None) => String::new(),
    };
    let mut text = stdout.clone();
    for (name, part) in [
        ("stderr:\n", stderr.as_str()),
        ("", &format!("{} ({by})\n", ending_words(run.ending))),
    ] {
        if !part.is_empty() {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(name);
            text.push_str(part);
        }
    }
    let facts = json!({
        "success": run.ending == HostEnding::Code(0),
        "exit_code": match run.ending { HostEnding::Code(code) => json!(code), _ => Value::Null },
        "signal": match run.ending { HostEnding::Signal(signal) => json!(signal), _ => Value::Null },
        "timed_out": run.ending == HostEnding::Timeout,
        "out_of_memory": run.ending == HostEnding::OutOfMemory,
        "stdout": stdout, "stderr": stderr,
        "stdout_bytes": run.stdout_bytes, "stderr_bytes": run.stderr_bytes,
        "rule": run.rule, "approved_by": run.approved_by, "program": run.program,
        "duration_ms": time::in_milliseconds(run.duration),
    });
    Rendered::new(text, facts)
}

pub(crate) fn host_verdict(verdict: &HostVerdict) -> Rendered {
    let answer = match (verdict.allowed, verdict.may_be_approved) {
        (true, _) => "runs",
        (false, true) => "needs a person's approval",
        (false, false) => "refused",
    };
    let mut text = format!("{}: {answer}\n", verdict.words);
    let rule = verdict.rule.as_ref().map(|rule| format!("  rule: {rule}\n"));
    text.extend(rule);
    text += &format!("  why: {}\n", verdict.why);
    if let Some(program) = &verdict.program {
        text += &format!("  program: {}\n", program.display());
        text += &format!("  gets: {}\n", json!(verdict.arguments));
    }
    for line in &verdict.effect {
        text += &format!("  {line}\n");
    }
    let facts = json!({
        "command": verdict.words, "allowed": verdict.allowed, "rule": verdict.rule, "why": verdict.why,
        "may_be_approved": verdict.may_be_approved, "program": verdict.program, "arguments": verdict.arguments,
        "walls": verdict.effect,
    });
    Rendered::new(text, facts)
}

pub(crate) fn host_access(list: &HostAccessList) -> Rendered {
    let mut text = String::from("commands:\n");
    for (rule, form, _) in &list.rules {
        text += &format!("  {rule}: {form}\n");
    }
    text += "directories:\n";
    for (path, access) in &list.directories {
        text += &format!("  {}: {}\n", path.display(), access.join(", "));
    }
    if list.directories.is_empty() {
        text += "  none\n";
    }
    for (words, scope, left_ms) in &list.approved {
        text += &format!("approved ({scope}, {} s left): {words}\n", left_ms / 1000);
    }
    if !list.missing.is_empty() {
        text += &format!("this host lacks walls: {}\n", list.missing.join(", "));
    }
    let facts = json!({
        "rules": list.rules.iter().map(|(rule, form, why)| json!({"rule": rule, "form": form, "why": why})).collect::<Vec<_>>(),
        "directories": list.directories.iter().map(|(path, access)| json!({"path": path, "access": access})).collect::<Vec<_>>(),
        "approved": list.approved.iter().map(|(words, scope, left_ms)| json!({"command": words, "scope": scope, "left_ms": left_ms})).collect::<Vec<_>>(),
        "missing_walls": list.missing,
    });
    Rendered::new(text, facts)
}

pub(crate) fn host_file(file: &HostFile) -> Rendered {
    let text = std::str::from_utf8(&file.bytes).ok();
    let facts = json!({
        "path": file.path, "size_bytes": file.bytes.len(), "mode": format!("{:04o}", file.mode), "redacted": file.redacted,
        "content": text, "content_base64": text.is_none().then(|| STANDARD.encode(&file.bytes)),
    });
    let shown = text.map_or_else(
        || format!("{} bytes that are not text\n", file.bytes.len()),
        str::to_owned,
    );
    Rendered::new(shown, facts)
}

pub(crate) fn host_listing(path: &Path, listing: &HostListing) -> Rendered {
    let mut text = String::new();
    for entry in &listing.entries {
        text += &format!(
            "{:04o} {:>10} {:9} {}\n",
            entry.mode,
            entry.size_bytes,
            entry.kind,
            neutral::line(&entry.name)
        );
    }
    if listing.is_cut {
        text += "[there is more]\n";
    }
    let one = |entry: &HostEntry| {
        json!({
            "name": entry.name, "kind": entry.kind, "size_bytes": entry.size_bytes, "mode": format!("{:04o}", entry.mode),
            "modified_at": time::write_milliseconds(u64::try_from(entry.modified_unix).unwrap_or(0).saturating_mul(1000)),
        })
    };
    let entries: Vec<Value> = listing.entries.iter().map(one).collect();
    Rendered::new(
        text,
        json!({"path": path, "entries": entries, "cut": listing.is_cut}),
    )
}

pub(crate) fn host_written(written: &HostWritten, writing: HostWriting) -> Rendered {
    let what = match (writing, &written.undo_id) {
        (HostWriting::Preview, _) => "not written: this is what would change".to_owned(),
        (HostWriting::Now, Some(id)) => format!("written; `ringfence host undo {id}` takes it back"),
        (HostWriting::Now, None) => {
            "written; it holds a secret, so what it was before is not kept".to_owned()
        }
    };
    let facts = json!({
        "path": written.path, "written": writing == HostWriting::Now, "diff": written.diff, "undo_id": written.undo_id,
        "sha256": written.sha256,
    });
    Rendered::new(format!("{}{what}\n", written.diff), facts)
}

pub(crate) fn host_copied(source: &Path, facts: &FileFacts) -> Rendered {
    let text = format!(
        "{} in the namespace's workspace now has {} bytes\n",
        facts.path, facts.size_bytes
    );
    let facts = json!({
        "source": source, "destination": facts.path, "size_bytes": facts.size_bytes, "sha256": facts.sha256,
    });
    Rendered::new(text, facts)
}
