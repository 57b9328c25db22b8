//! `get_execution`, `list_executions` and `cancel_execution`: executions by their id, also those whose call was
//! detached, cut off or did not wait.

use super::{Answer, Answered, bounded::shares, call::Call, result_text};
use crate::{
    api::{CancelExecution, GetExecution, ListExecutions, invalid},
    render::Rendered,
    time,
};
use ringfence_engine::{ExecutionState, Progress};
use ringfence_types::{ExecutionResult, Namespace};
use serde_json::{Value, json};
use std::time::Duration;

/// Maximum size of one stream in one answer, regardless of `text_max`.
const PAGE_BYTES_MAX: usize = 32 << 10;
const NOTES_BYTES: usize = 400;
/// Clients give up after 60 seconds, and some models after a few long waits.
const WAIT_SECONDS_MAX: f64 = 25.0;
const EXECUTIONS: u64 = 10;
const EXECUTIONS_MAX: u64 = 1000;

impl Call<'_> {
    pub(super) async fn get_execution(&self, given: GetExecution, namespace: Namespace) -> Answered {
        let seconds = given.wait_seconds.unwrap_or_default();
        if !(0.0..=WAIT_SECONDS_MAX).contains(&seconds) {
            return Err(invalid(
                format!("wait_seconds = {seconds} is outside 0..={WAIT_SECONDS_MAX}."),
                "Ask again after that time; the execution goes on meanwhile.",
            ));
        }
        let id = given.execution_id.as_str();
        let wait = Duration::from_secs_f64(seconds);
        let refusal = [
            "the question was cancelled; the execution was not.",
            "Ask again when it is wanted.",
        ];
        let found = self.namespace(&namespace).execution(id, wait);
        let found = self.until_left(found, refusal).await?;
        let from = [given.stdout_from, given.stderr_from].map(|from| from.map(|from| from.0));
        match found {
            ExecutionState::Running(progress) => Ok(so_far(&progress, from, self.offer().text_max)),
            ExecutionState::Ended(result) if from == [None, None] => self.whole(&result, [0; 2]).await,
            ExecutionState::Ended(result) => self.rest(*result, from).await,
        }
    }

    async fn rest(&self, mut result: ExecutionResult, from: [Option<u64>; 2]) -> Answered {
        let streams = [result.stdout.as_str(), result.stderr.as_str()];
        let pages = pages(streams, from, self.offer().text_max);
        if pages.iter().flatten().any(|page| page.goes_on) {
            let id = &result.execution_id;
            let head = format!("{}\nexecution_id: {id}", result_text::ending(&result));
            let facts = json!({
                "running": false, "exit_code": result.exit_code, "success": result.success, "execution_id": id,
            });
            return Ok(with_pages(&pages, head, facts));
        }
        let begins = [0, 1].map(|at| pages[at].as_ref().map_or(streams[at].len(), |page| page.begin));
        result.stdout.drain(..begins[0]);
        result.stderr.drain(..begins[1]);
        let mut answer = self.whole(&result, begins).await?;
        answer.structured["running"] = json!(false);
        for (name, from) in STREAMS.iter().zip(from) {
            if let (None, Value::Object(facts)) = (from, &mut answer.structured) {
                facts.remove(*name);
            }
        }
        Ok(answer)
    }

    pub(super) async fn list_executions(&self, given: ListExecutions, namespace: Namespace) -> Answered {
        let limit = given.limit.map_or(EXECUTIONS, |limit| limit.0);
        if !(1..=EXECUTIONS_MAX).contains(&limit) {
            return Err(invalid(
                format!("limit = {limit} is outside 1..={EXECUTIONS_MAX}."),
                "Ask for a number within; the newest come first.",
            ));
        }
        let more = EXECUTIONS_MAX.min(4 * limit);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let session = given.session_id.as_ref();
        let mut lines = self.namespace(&namespace).executions(session, limit + 1).await?;
        let has_older = lines.len() > limit;
        lines.truncate(limit);
        let row = |line: &ringfence_engine::ExecutionLine| {
            format!(
                "{} {} {} {} ago, {} ms, {}: {}\n",
                line.execution_id,
                line.verdict,
                line.language,
                time::span(time::now_milliseconds().saturating_sub(line.started_unix_ms)),
                line.duration_ms,
                crate::sentence::counted(line.artifacts, "file"),
                line.first_line
            )
        };
        let mut text = match lines.as_slice() {
            [] => "there are none, or none that are kept\n".to_owned(),
            some => some.iter().map(row).collect(),
        };
        if has_older {
            text += &format!("older ones are left out; next: list_executions {{limit: {more}}}\n");
        }
        Ok(Rendered::new(text, json!({"executions": lines})).into())
    }

    pub(super) async fn cancel_execution(&self, given: CancelExecution, namespace: Namespace) -> Answered {
        let cancelled = self.namespace(&namespace).cancel_execution(&given.execution_id);
        let cancelled = cancelled.await?;
        let text = match (cancelled.cancelled, cancelled.existed) {
            (true, _) => "it is being stopped; get_execution tells how it ended\n",
            (false, true) => "it had ended before\n",
            (false, false) => "there is no such execution\n",
        };
        Ok(Rendered::new(text, json!(cancelled)).into())
    }
}

const STREAMS: [&str; 2] = ["stdout", "stderr"];

pub(super) fn begun(id: &str) -> Answer {
    let text = format!(
        "running\nexecution_id: {id}\n{}",
        next(id, [None; 2], Some(WAIT_SECONDS_MAX))
    );
    Answer::plain(
        text,
        json!({"success": true, "execution_id": id, "running": true}),
    )
}

fn next(id: &str, from: [Option<usize>; 2], wait_seconds: Option<f64>) -> String {
    let mut arguments = format!("\"execution_id\": \"{id}\"");
    if let Some(seconds) = wait_seconds {
        arguments += &format!(", \"wait_seconds\": {seconds}");
    }
    for (name, from) in STREAMS.iter().zip(from) {
        if let Some(from) = from {
            arguments += &format!(", \"{name}_from\": {from}");
        }
    }
    format!("next: get_execution {{{arguments}}}\n")
}

/// Returns the answer for a program that still runs: its output from these offsets on, within `text_max`.
pub(super) fn so_far(progress: &Progress, from: [Option<u64>; 2], text_max: usize) -> Answer {
    let line = &progress.line;
    let pages = pages([&progress.stdout, &progress.stderr], from, text_max);
    let (duration_ms, id) = (line.duration_ms, &line.execution_id);
    let head = format!("running for {duration_ms} ms; the program runs on\nexecution_id: {id}");
    let facts = json!({"success": true, "execution_id": id, "running": true, "duration_ms": duration_ms});
    let mut answer = with_pages(&pages, head, facts);
    let has_more = pages.iter().flatten().any(|page| page.goes_on);
    let ends = pages.map(|page| page.map(|page| page.end));
    for (name, end) in STREAMS.iter().zip(ends) {
        if let Some(end) = end {
            answer.structured[format!("{name}_next")] = json!(end);
        }
    }
    let wait = (!has_more).then_some(WAIT_SECONDS_MAX);
    answer.text += &format!("\n{}", next(id, ends, wait));
    answer
}

fn with_pages(pages: &[Option<Page<'_>>; 2], mut text: String, mut facts: Value) -> Answer {
    for (name, page) in STREAMS.iter().zip(pages) {
        let Some(page) = page else { continue };
        facts[*name] = json!(page.text);
        if !page.text.is_empty() {
            text += &format!("\n\n{name}:\n{}", page.text.trim_end_matches('\n'));
        }
        if page.goes_on {
            facts[format!("{name}_next")] = json!(page.end);
            text += &format!("\n[more: {name}_from: {}]", page.end);
        }
    }
    Answer::plain(text, facts)
}

/// Returns a page of each requested stream, or of both if no offset is given. Together they fit into `text_max`.
fn pages<'a>(streams: [&'a str; 2], from: [Option<u64>; 2], text_max: usize) -> [Option<Page<'a>>; 2] {
    let from = if from == [None; 2] { [Some(0); 2] } else { from };
    let begins = [0, 1].map(|at| from[at].map(|from| begin(streams[at], from)));
    let wants = [0, 1].map(|at| begins[at].map_or(0, |begin| streams[at].len() - begin));
    let rooms = shares(wants, text_max.saturating_sub(NOTES_BYTES));
    [0, 1].map(|at| Some(Page::of(streams[at], begins[at]?, rooms[at].min(PAGE_BYTES_MAX))))
}

fn begin(stream: &str, from: u64) -> usize {
    stream.floor_char_boundary(usize::try_from(from).unwrap_or(usize::MAX))
}

#[derive(Debug, PartialEq, Eq)]
struct Page<'a> {
    begin: usize,
    text: &'a str,
    end: usize,
    goes_on: bool,
}

impl<'a> Page<'a> {
    /// Returns a page, which ends at the end of a line if it has one and something follows.
    fn of(stream: &'a str, begin: usize, room: usize) -> Self {
        let rest = &stream[begin..];
        let room = rest.floor_char_boundary(room);
        let text = match rest[..room].rfind('\n') {
            Some(line) if room < rest.len() => &rest[..=line],
            _ => &rest[..room],
        };
        Self {
            begin,
            text,
            end: stream.len() - rest.len() + text.len(),
            goes_on: text.len() < rest.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_end_at_a_line_and_omit_nothing() {
        let stream: String = (0..20_000).map(|number| format!("é{number}\n")).collect();
        let (mut read, mut from) = (String::new(), 0);
        loop {
            let page = Page::of(&stream, from, PAGE_BYTES_MAX);
            assert!(page.text.len() <= PAGE_BYTES_MAX && page.text.ends_with('\n'));
            read += page.text;
            from = page.end;
            if !page.goes_on {
                break;
            }
        }
        assert_eq!(read, stream);
        assert_eq!(begin("é", 1), 0, "a page begins with a whole character");
        let past = Page::of("x", begin("x", u64::MAX), PAGE_BYTES_MAX);
        assert_eq!((past.text, past.end, past.goes_on), ("", 1, false));
        assert_eq!(Page::of("xyz", 0, 2).end, 2);
    }

    #[test]
    fn progress_fits_and_names_the_next_offsets() {
        let line = ringfence_engine::ExecutionLine {
            execution_id: "0190b8f0-5c1e-7000-8000-00000000abcd".to_owned(),
            namespace: Namespace::default_name(),
            session_id: None,
            started_unix_ms: 0,
            language: ringfence_types::Language::Shell,
            first_line: "x".to_owned(),
            verdict: "running",
            duration_ms: u64::MAX,
            artifacts: 0,
        };
        let flood = "é\u{0}\n".repeat(1 << 18);
        for (stdout, stderr) in [
            (&flood[..], &flood[..]),
            (&flood, ""),
            ("", &flood),
            ("short", &flood),
        ] {
            let progress = Progress {
                line: line.clone(),
                stdout: stdout.to_owned(),
                stderr: stderr.to_owned(),
            };
            for text_max in [1024, 8192, 1 << 20] {
                let answer = so_far(&progress, [None; 2], text_max);
                assert!(
                    answer.text.len() <= text_max,
                    "{} of {text_max}",
                    answer.text.len()
                );
                for (name, stream) in STREAMS.iter().zip([stdout, stderr]) {
                    let shown = answer.structured[*name].as_str().unwrap();
                    let next = answer.structured[format!("{name}_next")].as_u64().unwrap();
                    assert!(stream.starts_with(shown) && next == shown.len() as u64);
                    assert!(!shown.is_empty() || stream.is_empty(), "it makes headway");
                }
            }
        }
    }

    #[test]
    fn unrequested_stream_is_omitted() {
        let [stdout, stderr] = pages(["abc", "def"], [Some(1), None], 8192);
        assert_eq!((stdout.map(|page| page.text), stderr), (Some("bc"), None));
    }
}
