//! Answers of a server in two forms: text for a person and facts for a program. MCP tools and the control socket give
//! the same.

mod approvals;
pub(crate) mod diagnostics;
mod host;
pub(crate) mod web;
mod workspaces;

pub(crate) use approvals::{approval, approvals, decision, decision_facts, decision_words, host_decision};
pub(crate) use host::{
    host_access, host_copied, host_file, host_listing, host_run, host_verdict, host_written,
};
pub(crate) use workspaces::{
    committed, difference, files, held_changes, snapshot_made, snapshot_restored, snapshots,
};

use crate::{api::LIMIT_NAMES, terminal::neutral, time};
use ringfence_engine::{Bridged, Counts, ExecutionLine, Inspection, QueueState, Stats};
use ringfence_store::{
    audit::{Action, Actions, Page, Record},
    to_hex,
    vault::SecretEntry,
};
use ringfence_types::{EnvName, Limits, Namespace, Session, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Events in the text about a namespace, the latest first; the facts have all.
const EVENTS_SHOWN: usize = 10;

/// The same answer in both forms. Names in it may be untrusted.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rendered {
    pub(crate) text: String,
    pub(crate) facts: Value,
}

impl Rendered {
    pub(crate) fn new(text: impl Into<String>, facts: Value) -> Self {
        let text = text.into();
        Self { text, facts }
    }
}

pub(crate) fn stats(stats: &Stats) -> Rendered {
    let mut text = queue_line(&stats.queue);
    for warm in &stats.warm {
        let (language, memory_mb) = (warm.language, warm.memory_bytes >> 20);
        text += &format!("{language}: {} sandboxes ready, {memory_mb} MiB\n", warm.ready);
    }
    text += &format!(
        "sessions: {}; vault: {}; artifacts: {} KiB; server: {} MiB\n",
        stats.sessions,
        stats.vault,
        stats.artifacts_bytes >> 10,
        stats.memory_bytes >> 20
    );
    Rendered::new(text, json!(stats))
}

pub(crate) fn session(session: &Session) -> Rendered {
    Rendered::new(
        format!("session_id: {}\n{}", session.session_id, session_line(session)),
        json!(session),
    )
}

pub(crate) fn sessions(sessions: &[Session]) -> Rendered {
    let text = match sessions {
        [] => "no sessions\n".to_owned(),
        sessions => session_table(sessions),
    };
    Rendered::new(text, json!({"sessions": sessions}))
}

/// `killed` is absent if no session has this id.
pub(crate) fn terminated(killed: Option<bool>) -> Rendered {
    let text = match killed {
        Some(true) => "ended\n",
        Some(false) => "it had ended before\n",
        None => "there is no such session in this namespace\n",
    };
    let facts = json!({"killed": killed == Some(true), "existed": killed.is_some()});
    Rendered::new(text, facts)
}

pub(crate) fn bridged(to: &SessionId, bridged: &Bridged) -> Rendered {
    let (name, bytes) = (bridged.name.as_str(), bridged.bytes);
    let text = format!("{name} is now a variable of the session ({bytes} bytes)\n");
    let facts = json!({"to_session": to.as_str(), "name": name, "bytes": bytes});
    Rendered::new(text, facts)
}

/// A table with titles and columns of these widths. A negative width right-aligns the column.
pub(crate) fn table<const N: usize>(
    columns: [(&str, i8); N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let line = |cells: [String; N]| {
        let cells = cells.into_iter().zip(columns).map(|(cell, (_, columns))| {
            let width = usize::from(columns.unsigned_abs());
            match columns {
                ..0 => format!("{cell:>width$}"),
                0.. => format!("{cell:<width$}"),
            }
        });
        cells.collect::<Vec<_>>().join("  ") + "\n"
    };
    let titles = columns.map(|(title, _)| title.to_owned());
    [titles].into_iter().chain(rows).map(line).collect()
}

fn session_table(sessions: &[Session]) -> String {
    let now = time::now_milliseconds();
    let age = |since_ms: u64| time::span(now.saturating_sub(since_ms));
    let row = |session: &Session| {
        [
            session.session_id.as_str().to_owned(),
            session.language.to_string(),
            session.state.to_string(),
            age(session.created_unix_ms),
            age(session.used_unix_ms),
            session.calls.to_string(),
            format!("{} MiB", session.memory_bytes_max >> 20),
            session.workspace.clone(),
            session.namespace.clone(),
        ]
    };
    let columns = [
        ("SESSION", 36),
        ("LANGUAGE", 10),
        ("STATE", 5),
        ("AGE", -4),
        ("IDLE", -4),
        ("CALLS", -5),
        ("MEM MAX", -8),
        ("WORKSPACE", 17),
        ("NAMESPACE", 0),
    ];
    table(columns, sessions.iter().map(row))
}

pub(crate) fn executions(lines: &[ExecutionLine]) -> Rendered {
    let now = time::now_milliseconds();
    let row = |line: &ExecutionLine| {
        [
            line.execution_id.clone(),
            line.verdict.to_owned(),
            line.language.to_string(),
            time::span(now.saturating_sub(line.started_unix_ms)),
            duration(line.duration_ms),
            line.artifacts.to_string(),
            line.namespace.to_string(),
            neutral::line(&line.first_line),
        ]
    };
    let columns = [
        ("EXECUTION", 36),
        ("STATE", 13),
        ("LANGUAGE", 10),
        ("AGE", -4),
        ("TOOK", -6),
        ("FILES", -5),
        ("NAMESPACE", 12),
        ("FIRST LINE", 0),
    ];
    let text = match lines {
        [] => "no executions, or none that are kept\n".to_owned(),
        lines => table(columns, lines.iter().map(row)),
    };
    Rendered::new(text, json!({"executions": lines}))
}

fn duration(milliseconds: u64) -> String {
    match milliseconds {
        short @ 0..10_000 => format!("{short}ms"),
        long => time::span(long),
    }
}

fn session_line(session: &Session) -> String {
    format!(
        "{} {} {}, {} calls, ends in {} if it is not used, isolation {}\n",
        session.session_id,
        session.language,
        session.state,
        session.calls,
        time::span(1000 * time::seconds_left(session.idle_until_unix_ms)),
        session.tier,
    )
}

pub(crate) fn queue(queue: &QueueState) -> Rendered {
    let mut text = queue_line(queue);
    for line in &queue.lines {
        text += &format!("{}: {} waiting\n", line.namespace, line.waiting);
    }
    Rendered::new(text, json!(queue))
}

fn queue_line(queue: &QueueState) -> String {
    format!(
        "running {} of {} with {} of {} MiB of memory, waiting {} of {}, rejected {}\n",
        queue.running,
        queue.concurrency,
        queue.memory_mb,
        queue.memory_mb_max,
        queue.waiting,
        queue.waiting_max,
        queue.refused
    )
}

pub(crate) fn counts(counts: &Counts) -> Rendered {
    let mut text = format!("up for {:.0} s\n", counts.uptime_seconds);
    for (language, outcomes) in &counts.executions {
        let outcomes = outcomes
            .iter()
            .map(|(outcome, count)| format!("{count} {outcome}"));
        let outcomes: Vec<String> = outcomes.collect();
        text += &format!("{language}: {}\n", outcomes.join(", "));
    }
    for (language, duration) in &counts.duration_ms {
        text += &format!(
            "{language}: p50 {:.1} ms, p90 {:.1} ms, p99 {:.1} ms of the last {}\n",
            duration.p50, duration.p90, duration.p99, duration.count
        );
    }
    for (language, peak) in &counts.memory_peak_bytes {
        let mebibytes = |bytes: f64| bytes / 1_048_576.0;
        text += &format!(
            "{language}: most memory p50 {:.0} MiB, p99 {:.0} MiB\n",
            mebibytes(peak.p50),
            mebibytes(peak.p99)
        );
    }
    for (tool, of) in &counts.tools {
        text += &format!(
            "{tool}: {} calls, {} errors, p50 {:.1} ms, p99 {:.1} ms\n",
            of.calls, of.errors, of.duration_ms.p50, of.duration_ms.p99
        );
    }
    for (code, count) in &counts.refusals {
        text += &format!("refused, {code}: {count}\n");
    }
    text += &format!(
        "processor time of programs: {:.1} s; secrets taken out: {}\n",
        counts.cpu_seconds, counts.redactions
    );
    Rendered::new(text, json!(counts))
}

pub(crate) fn inspection(state: &Inspection) -> Rendered {
    let mut text = format!(
        "{}: {} running, {} waiting\n",
        state.namespace,
        state.running.len(),
        state.waiting
    );
    for run in &state.running {
        text += &format!("{} {} for {} ms\n", run.execution_id, run.language, run.for_ms);
    }
    text.extend(state.sessions.iter().map(session_line));
    text += &limits_text(&state.defaults, &state.caps);
    if !state.approved.is_empty() {
        text += &format!("approved hosts: {}\n", state.approved.join(", "));
    }
    if !state.secrets.is_empty() {
        text += &format!("secrets: {}\n", state.secrets.join(", "));
    }
    for event in state.recent.iter().rev().take(EVENTS_SHOWN) {
        let id = event.execution_id.as_deref().unwrap_or("-");
        let time = time::write_milliseconds(event.time_ms);
        text += &format!("{time} {} {id}\n", event.kind.name());
    }
    let mut facts = json!(state);
    facts["limits"] = limits_facts(&state.defaults, &state.caps);
    Rendered { text, facts }
}

pub(crate) fn limits(namespace: &Namespace, defaults: &Limits, caps: &Limits) -> Rendered {
    let facts = json!({"namespace": namespace, "limits": limits_facts(defaults, caps)});
    Rendered::new(limits_text(defaults, caps), facts)
}

pub(crate) fn limits_facts(defaults: &Limits, caps: &Limits) -> Value {
    json!({"defaults": in_words(defaults), "caps": in_words(caps)})
}

pub(crate) fn limits_text(defaults: &Limits, caps: &Limits) -> String {
    let (defaults, caps) = (in_words(defaults), in_words(caps));
    let line = |name: &&str| format!("{name}: {} (at most {})\n", defaults[name], caps[name]);
    LIMIT_NAMES.iter().map(line).collect()
}

#[expect(clippy::cast_precision_loss, reason = "days in milliseconds")]
pub(crate) fn in_words(limits: &Limits) -> Value {
    const MEBIBYTE: u64 = 1 << 20;
    json!({
        "max_ram_mb": limits.memory_bytes / MEBIBYTE,
        "max_cpu_cores": f64::from(limits.cpu_millicores) / 1000.0,
        "timeout_seconds": limits.timeout_ms as f64 / 1000.0,
        "max_processes": limits.processes,
        "max_output_bytes": limits.output_bytes,
        "max_disk_mb": limits.disk_bytes / MEBIBYTE,
    })
}

pub(crate) fn secrets(namespace: &Namespace, vault: &str, entries: &[SecretEntry]) -> Rendered {
    let line = |entry: &SecretEntry| {
        let until = entry.expires_unix_s.map(time::write_seconds);
        let until = until.map_or_else(String::new, |time| format!(", until {time}"));
        format!("{} ({} bytes{until})\n", entry.key.as_str(), entry.bytes)
    };
    let mut text: String = entries.iter().map(line).collect();
    if text.is_empty() {
        text = format!("{namespace} has no secrets\n");
    }
    let entries: Vec<Value> = entries.iter().map(secret).collect();
    let facts = json!({"namespace": namespace, "vault": vault, "secrets": entries});
    Rendered::new(text, facts)
}

fn secret(entry: &SecretEntry) -> Value {
    json!({
        "key": entry.key.as_str(),
        "bytes": entry.bytes,
        "created": entry.created_unix_s.map(time::write_seconds),
        "expires": entry.expires_unix_s.map(time::write_seconds),
        "redactable": entry.bytes >= ringfence_engine::SHORTEST_SECRET,
    })
}

pub(crate) fn records(page: &Page) -> Rendered {
    let records: Vec<Value> = page.records.iter().map(record).collect();
    page_of(page, record_table(&page.records), records)
}

pub(crate) fn records_in_commands(page: &Page) -> Rendered {
    let mut rendered = records(page);
    if let Some(next) = rendered.facts["next_before"].as_u64() {
        rendered.text += &format!("older: --before {next}\n");
    }
    rendered
}

pub(crate) fn records_in_short(page: &Page) -> Rendered {
    let mut lines = "SEQ TIME ACTION OUTCOME TOOL EXECUTION\n".to_owned();
    let mut records = Vec::new();
    for record in &page.records {
        let time = time::write_seconds(u64::try_from(record.time_us / 1_000_000).unwrap_or_default());
        let details: Value = serde_json::from_str(&record.details).unwrap_or_default();
        let (tool, execution) = (details["tool"].as_str(), record.execution_id.as_deref());
        let words = [
            &record.action,
            &record.outcome,
            tool.unwrap_or_default(),
            execution.unwrap_or_default(),
        ];
        lines += &format!("{} {time} {}\n", record.seq, words.map(word).join(" "));
        records.push(json!({
            "seq": record.seq, "time": time, "action": record.action, "outcome": record.outcome, "tool": tool,
            "execution_id": execution,
        }));
    }
    page_of(page, lines, records)
}

fn page_of(page: &Page, lines: String, records: Vec<Value>) -> Rendered {
    let next = page.next.as_ref().and_then(|next| next.before_seq);
    let mut text = match records.as_slice() {
        [] => "there are no such records\n".to_owned(),
        _ => lines,
    };
    for file in &page.damaged {
        text += &format!("damaged, and not all of it is shown: {}\n", neutral::line(file));
    }
    Rendered::new(text, json!({"records": records, "next_before": next}))
}

/// A table with one line per record, also if a client's name contains line breaks.
fn record_table(records: &[Record]) -> String {
    let row = |record: &Record| {
        [
            record.seq.to_string(),
            time::write(record.time_us),
            word(&record.action),
            word(&record.outcome),
            word(&record.namespace),
            word(record.execution_id.as_deref().unwrap_or_default()),
            word(&record.caller),
            details(&record.details),
        ]
    };
    let columns = [
        ("SEQ", -5),
        ("TIME", 24),
        ("ACTION", 19),
        ("OUTCOME", 7),
        ("NAMESPACE", 12),
        ("EXECUTION", 36),
        ("CALLER", 16),
        ("DETAILS", 0),
    ];
    table(columns, records.iter().map(row))
}

/// An untrusted name as one word: quoted and escaped if it would look like several words.
fn word(name: &str) -> String {
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\');
    match name {
        "" => "-".to_owned(),
        name if name.chars().all(plain) => name.to_owned(),
        name => format!("{name:?}"),
    }
}

/// Details as words `name=value`, without the limits of a run, which the facts have.
fn details(text: &str) -> String {
    let Ok(Value::Object(mut details)) = serde_json::from_str(text) else {
        return neutral::line(text);
    };
    details.remove("limits");
    let words = details.iter().map(|(name, value)| match value {
        Value::String(text) => format!("{name}={}", word(text)),
        value => format!("{name}={value}"),
    });
    neutral::line(&words.collect::<Vec<_>>().join(" "))
}

pub(crate) fn record(record: &Record) -> Value {
    json!({
        "seq": record.seq,
        "time": time::write(record.time_us),
        "action": record.action,
        "outcome": record.outcome,
        "namespace": record.namespace,
        "execution_id": record.execution_id,
        "caller": record.caller,
        "details": serde_json::from_str(&record.details).unwrap_or(Value::Null),
        "hash": to_hex(&record.hash),
    })
}

pub(crate) fn action(text: &str) -> Result<Actions, String> {
    // A group may be named with or without its final dot.
    text.parse().or_else(|_| format!("{text}.").parse()).map_err(|_| {
        let names = Action::ALL.iter().map(|action| action.as_str());
        let near = ringfence_types::nearest::suggestion(text, names.clone());
        let shown: String = text.chars().take(64).collect();
        format!(
            "`{shown}` is not an action of the record.{near} Known: {}",
            names.collect::<Vec<_>>().join(", ")
        )
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Replaced,
    Deleted,
    None,
}

pub(crate) fn change(namespace: &Namespace, key: &EnvName, change: Change) -> Rendered {
    let key = key.as_str();
    let (word, text) = match change {
        Change::Added => ("added", format!("added {key} in {namespace}\n")),
        Change::Replaced => ("replaced", format!("replaced {key} in {namespace}\n")),
        Change::Deleted => ("deleted", format!("deleted {key} from {namespace}\n")),
        Change::None => ("none", format!("{namespace} has no {key}\n")),
    };
    Rendered::new(text, json!({"namespace": namespace, "key": key, "change": word}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_record_is_one_line_and_each_name_one_word() {
        let record = Record {
            seq: 7,
            time_us: 0,
            server_id: "s".to_owned(),
            action: "tool.called".to_owned(),
            outcome: "ok".to_owned(),
            namespace: String::new(),
            execution_id: None,
            caller: "a\n8 1970-01-01 \u{1b}[2K\u{202e}ok".to_owned(),
            details: "{\"x\":1}\nforged".to_owned(),
            prev_hash: [0; 32],
            hash: [0; 32],
            signature: [0; 64],
        };
        let table = record_table(&[record]);
        let (head, line) = table.split_once('\n').unwrap();
        assert_eq!(line.matches('\n').count(), 1, "{line:?}");
        assert!(
            line.ends_with("  \"a\\n8 1970-01-01 \\u{1b}[2K\\u{202e}ok\"  {\"x\":1}\u{240a}forged\n"),
            "{line}"
        );
        for (title, cell) in [("ACTION", "tool.called"), ("OUTCOME", "ok"), ("CALLER", "\"a")] {
            assert_eq!(head.find(title), line.find(cell), "{table}");
        }
        assert_eq!([word("cli"), word("mcp record 1")], ["cli", "\"mcp record 1\""]);
        let stored = r#"{"exit":"code","limits":{"processes":64},"n":[{"a":1}],"tool":"x\ny exit=0"}"#;
        assert_eq!(details(stored), r#"exit=code n=[{"a":1}] tool="x\ny exit=0""#);
    }
}
