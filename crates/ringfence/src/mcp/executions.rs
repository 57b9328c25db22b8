//! `get_execution`, `list_executions` and `cancel_execution`: executions by their id, also those whose call was
//! cut off or did not wait.

use super::{Answer, Answered, call::Call};
use crate::{
    api::{CancelExecution, GetExecution, ListExecutions, invalid},
    render::Rendered,
    time,
};
use ringfence_engine::{ExecutionState, Progress};
use ringfence_types::{ErrorCode, ExecutionResult, Namespace, RequestError};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Of one stream in one answer, whatever `text_max` says.
const PAGE_BYTES_MAX: usize = 32 << 10;
/// Clients give up after 60.
const WAIT_SECONDS_MAX: f64 = 50.0;
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
        let (engine, id) = (self.engine(), given.execution_id.as_str());
        let wait = Duration::from_secs_f64(seconds);
        let found = tokio::select! {
            found = engine.execution(self.caller(), &namespace, id, wait) => found?,
            () = self.hung_up() => return Err(RequestError::new(
                ErrorCode::Cancelled,
                "the question was cancelled; the execution was not.",
                "Ask again when it is wanted.",
            )),
        };
        let from = [given.stdout_from, given.stderr_from].map(|from| from.map(|from| from.0));
        let room = self.offer().text_max.min(PAGE_BYTES_MAX);
        match found {
            ExecutionState::Running(progress) => Ok(so_far(&progress, from, room)),
            ExecutionState::Ended(result) if from == [None, None] => self.whole(&result).await,
            ExecutionState::Ended(result) => Ok(pages_of(&result, from, room)),
        }
    }

    pub(super) async fn list_executions(&self, given: ListExecutions, namespace: Namespace) -> Answered {
        let limit = given.limit.map_or(EXECUTIONS, |limit| limit.0);
        if !(1..=EXECUTIONS_MAX).contains(&limit) {
            return Err(invalid(
                format!("limit = {limit} is outside 1..={EXECUTIONS_MAX}."),
                "Ask for fewer.",
            ));
        }
        let more = EXECUTIONS_MAX.min(4 * limit);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let session = given.session_id.as_ref();
        let engine = self.engine();
        let mut lines = engine
            .executions(self.caller(), &namespace, session, limit + 1)
            .await?;
        let has_older = lines.len() > limit;
        lines.truncate(limit);
        let row = |line: &ringfence_engine::ExecutionLine| {
            format!(
                "{} {} {} {} ago, {} ms, {} files: {}\n",
                line.execution_id,
                line.verdict,
                line.language,
                time::span(time::now_milliseconds().saturating_sub(line.started_unix_ms)),
                line.duration_ms,
                line.artifacts,
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
        Ok(Answer::from(Rendered {
            text,
            facts: json!({"executions": lines}),
        }))
    }

    pub(super) async fn cancel_execution(&self, given: CancelExecution, namespace: Namespace) -> Answered {
        let engine = self.engine();
        let cancelled = engine.cancel_execution(self.caller(), &namespace, &given.execution_id);
        let cancelled = cancelled.await?;
        let text = match (cancelled.cancelled, cancelled.existed) {
            (true, _) => "it is being stopped; get_execution tells how it ended\n",
            (false, true) => "it had ended before\n",
            (false, false) => "there is no such execution\n",
        };
        Ok(Answer::from(Rendered {
            text: text.to_owned(),
            facts: json!(cancelled),
        }))
    }
}

/// The answer of a program that runs by itself.
pub(super) fn begun(id: &str) -> Answer {
    let text = format!("running\nexecution_id: {id}\n{}", next(id));
    Answer::plain(
        text,
        json!({"success": true, "execution_id": id, "running": true}),
    )
}

fn next(id: &str) -> String {
    format!("next: get_execution {{\"execution_id\": \"{id}\", \"wait_seconds\": 50}}\n")
}

fn so_far(progress: &Progress, from: [Option<u64>; 2], room: usize) -> Answer {
    let line = &progress.line;
    let (mut text, mut facts) = (
        format!(
            "running for {} ms\nexecution_id: {}",
            line.duration_ms, line.execution_id
        ),
        Map::new(),
    );
    for (name, stream, from) in [
        ("stdout", &progress.stdout, from[0]),
        ("stderr", &progress.stderr, from[1]),
    ] {
        let page = Page::of(stream, from.unwrap_or_default(), room);
        page.tell(name, &mut text, &mut facts);
        facts.insert(format!("{name}_next"), json!(page.end));
    }
    text += &format!("\n{}", next(&line.execution_id));
    facts.insert("running".to_owned(), json!(true));
    facts.insert("duration_ms".to_owned(), json!(line.duration_ms));
    told(&line.execution_id, text, facts)
}

fn pages_of(result: &ExecutionResult, from: [Option<u64>; 2], room: usize) -> Answer {
    let (mut text, mut facts) = (format!("execution_id: {}", result.execution_id), Map::new());
    for (name, stream, from) in [
        ("stdout", &result.stdout, from[0]),
        ("stderr", &result.stderr, from[1]),
    ] {
        if let Some(from) = from {
            Page::of(stream, from, room).tell(name, &mut text, &mut facts);
        }
    }
    facts.insert("running".to_owned(), json!(false));
    told(&result.execution_id, text, facts)
}

fn told(id: &str, text: String, mut facts: Map<String, Value>) -> Answer {
    facts.insert("success".to_owned(), json!(true));
    facts.insert("execution_id".to_owned(), json!(id));
    Answer::plain(text, Value::Object(facts))
}

#[derive(Debug, PartialEq, Eq)]
struct Page<'a> {
    text: &'a str,
    end: usize,
    goes_on: bool,
}

impl<'a> Page<'a> {
    /// It ends at the end of a line where it has one and something follows.
    fn of(stream: &'a str, from: u64, room: usize) -> Self {
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(stream.len());
        let rest = &stream[stream.floor_char_boundary(from)..];
        let room = rest.floor_char_boundary(room);
        let text = match rest[..room].rfind('\n') {
            Some(line) if room < rest.len() => &rest[..=line],
            _ => &rest[..room],
        };
        Self {
            text,
            end: stream.len() - rest.len() + text.len(),
            goes_on: text.len() < rest.len(),
        }
    }

    fn tell(&self, name: &str, text: &mut String, facts: &mut Map<String, Value>) {
        facts.insert(name.to_owned(), json!(self.text));
        if !self.text.is_empty() {
            *text += &format!("\n\n{name}:\n{}", self.text.trim_end_matches('\n'));
        }
        if self.goes_on {
            facts.insert(format!("{name}_next"), json!(self.end));
            *text += &format!("\n[more: {name}_from: {}]", self.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_end_at_a_line_and_lose_nothing() {
        let stream: String = (0..20_000).map(|number| format!("é{number}\n")).collect();
        let (mut read, mut from) = (String::new(), 0);
        loop {
            let page = Page::of(&stream, from as u64, PAGE_BYTES_MAX);
            assert!(page.text.len() <= PAGE_BYTES_MAX && page.text.ends_with('\n'));
            read += page.text;
            from = page.end;
            if !page.goes_on {
                break;
            }
        }
        assert_eq!(read, stream);
        assert_eq!(
            Page::of("é", 1, PAGE_BYTES_MAX).text,
            "é",
            "a half character is none"
        );
        let past = Page::of("x", u64::MAX, PAGE_BYTES_MAX);
        assert_eq!((past.text, past.end, past.goes_on), ("", 1, false));
        assert_eq!(Page::of("xyz", 0, 2).end, 2);
    }
}
