//! The text of a result, for a model: at most `text_max` bytes, and each fact once. The structured result has more, but
//! its streams are bounded, too, because some clients give it to a model; `get_execution` reads the rest.

use super::{
    Offer,
    bounded::{beginning, cut, ends, shares},
    traceback,
    validate::name_of,
};
use crate::settings::Toolset;
use ringfence_types::{ExecutionResult, ExitKind, ProgramError, Severity};

const STDOUT: &str = "stdout";
const STDERR: &str = "stderr";
/// Artifacts that an answer lists; `get_artifacts` has all.
pub(super) const ARTIFACTS_LISTED: usize = 10;
const LINE_BYTES_MAX: usize = 300;
/// Minimum room for a program's output, even if the rest is long.
const OUTPUT_BYTES_MIN: usize = 512;
const GAP_BYTES_MAX: usize = 160;
/// Room for the notes about omitted parts, between their ends and below them.
const NOTES_BYTES: usize = 800;
/// A longer repr is cut where it is made.
const REPR_BYTES_MAX: usize = 64 << 10;

/// Renders a result. `from`: offsets at which its streams begin, if earlier answers had the output before them.
pub(super) fn render(result: &ExecutionResult, from: [usize; 2], offer: &Offer) -> String {
    let text_max = offer.text_max;
    let head = head(result);
    let error = error(result);
    let tail = tail(result, offer);
    let stderr = stderr(result);
    let value = result.result_repr.as_deref().unwrap_or_default();
    let room = text_max
        .saturating_sub(head.len() + tail.len() + NOTES_BYTES)
        .max(OUTPUT_BYTES_MIN);
    let [out_room, err_room, value_room, error_room] = shares(
        [result.stdout.len(), stderr.len(), value.len(), error.len()],
        room,
    );
    let mut text = head;
    text += &stream(result, STDOUT, &result.stdout, from[0], out_room);
    text += &stream(result, STDERR, &stderr, from[1], err_room);
    if from == [0; 2] && is_uncaptured(result) {
        let (stdout, stderr) = (result.stdout_bytes, result.stderr_bytes);
        text += &format!("\n[stdout has {stdout} bytes and stderr {stderr}, and neither is kept]");
    }
    if result.result_repr.is_some() {
        text += &format!("\n\nresult: {}{}", cut(value, value_room), value_note(result));
    }
    if !error.is_empty() {
        text += &format!("\n\nerror: {}", cut(error.trim_start(), error_room));
    }
    text += &tail;
    beginning(&text, text_max.max(OUTPUT_BYTES_MIN)).to_owned()
}

/// Returns true if output was counted and not kept, as with `capture_output: false`.
fn is_uncaptured(result: &ExecutionResult) -> bool {
    let is_kept = !result.stdout.is_empty() || !result.stderr.is_empty();
    let is_cut = result.truncated.stdout || result.truncated.stderr;
    !is_kept && !is_cut && result.stdout_bytes + result.stderr_bytes > 0
}

fn head(result: &ExecutionResult) -> String {
    let mut text = format!(
        "{}, isolation {}\nexecution_id: {}",
        ending(result),
        result.isolation.tier,
        result.execution_id
    );
    match &result.session_ended {
        Some(end) => {
            text += &format!("\nthe session has ended: {end}");
            // The hint of a denial may name it already.
            let mut denials = result.denials.iter();
            if !denials.any(|denial| denial.hint.contains("create_session")) {
                text += "\nnext: create_session makes another";
            }
        }
        None if result.session_id.is_some() && !result.success => {
            text += "\nthe session and its state are kept";
        }
        None => {}
    }
    text
}

pub(super) fn ending(result: &ExecutionResult) -> String {
    format!(
        "{} {} after {:.0} ms",
        result.language,
        end(result),
        result.duration_ms
    )
}

fn end(result: &ExecutionResult) -> String {
    match result.exit.kind {
        ExitKind::Code if result.success => "finished".to_owned(),
        ExitKind::Code => format!("failed with exit code {}", result.exit_code),
        ExitKind::Signal => format!("ended by signal {}", result.exit.signal.unwrap_or_default()),
        ExitKind::Timeout => "stopped: out of time".to_owned(),
        ExitKind::OutOfMemory => "stopped: out of memory".to_owned(),
        ExitKind::Limit => format!(
            "stopped: limit {}",
            result.exit.limit.as_deref().unwrap_or("passed")
        ),
        ExitKind::Cancelled => "cancelled".to_owned(),
    }
}

/// Renders a stream: its beginning and its end, with the number of bytes between, and a note if not all of it is kept.
fn stream(result: &ExecutionResult, name: &str, shown_text: &str, from: usize, room: usize) -> String {
    let (written, is_cut, total) = match name {
        STDOUT => (&result.stdout, result.truncated.stdout, result.stdout_bytes),
        _ => (&result.stderr, result.truncated.stderr, result.stderr_bytes),
    };
    let mut text = String::new();
    if !shown_text.is_empty() {
        text += &format!("\n\n{name}:\n");
        match ends(shown_text, room) {
            None => text += shown_text.trim_end_matches('\n'),
            Some((first, last)) => {
                let between = shown_text.len() - first.len() - last.len();
                // Folded text has other offsets.
                let is_as_written = shown_text.len() == written.len();
                let from = from + if is_as_written { first.len() } else { 0 };
                text += first.trim_end_matches('\n');
                text += &gap(between, &result.execution_id, name, from);
                text += last.trim_end_matches('\n');
            }
        }
    }
    if is_cut {
        let kept = from + written.len();
        text += &format!("\n[{name} has {total} bytes, of which the first {kept} are kept]");
    }
    text
}

fn gap(between: usize, id: &str, stream: &str, from: usize) -> String {
    format!(
        "\n[... {between} bytes between; next: get_execution {{\"execution_id\": \"{id}\", \"{stream}_from\": {from}}}]\n"
    )
}

/// Cuts a stream that is longer than `text_max` to both its ends; `from`: offsets at which the streams begin.
pub(super) fn bound(result: &mut ExecutionResult, from: [usize; 2], text_max: usize) {
    let truncated = &mut result.truncated;
    for (name, stream, from, is_cut) in [
        (STDOUT, &mut result.stdout, from[0], &mut truncated.stdout),
        (STDERR, &mut result.stderr, from[1], &mut truncated.stderr),
    ] {
        if stream.len() > text_max
            && let Some((first, last)) = ends(stream, text_max.saturating_sub(GAP_BYTES_MAX))
        {
            let between = stream.len() - first.len() - last.len();
            let gap = gap(between, &result.execution_id, name, from + first.len());
            let first = first.strip_suffix('\n').unwrap_or(first);
            *stream = format!("{first}{gap}{last}");
            *is_cut = true;
        }
    }
}

/// Returns standard error without the traceback at its end, which is rendered as the error.
fn stderr(result: &ExecutionResult) -> String {
    let before = traceback_in(result).map(|(before, _)| before);
    traceback::folded(before.unwrap_or(&result.stderr))
}

fn traceback_in(result: &ExecutionResult) -> Option<(&str, &str)> {
    let traceback = result.error.as_ref()?.traceback.trim_end();
    let before = result.stderr.trim_end().strip_suffix(traceback)?;
    (!traceback.is_empty()).then_some((before, traceback))
}

/// Returns the traceback if there is one, else the error in a line; nothing if standard error has it.
fn error(result: &ExecutionResult) -> String {
    let Some(error) = &result.error else {
        return String::new();
    };
    match traceback_in(result) {
        Some((_, traceback)) => traceback::folded(traceback).trim_end().to_owned(),
        None if result.stderr.contains(&error.to_string()) => String::new(),
        None => in_a_line(error),
    }
}

/// Returns the error with its line, unless the message has the line already, as that of some Python errors.
fn in_a_line(error: &ProgramError) -> String {
    let line = error
        .line
        .filter(|line| !error.message.contains(&format!(", line {line})")))
        .map_or_else(String::new, |line| format!(" (line {line})"));
    format!("{error}{line}")
}

fn value_note(result: &ExecutionResult) -> &'static str {
    match (&result.result, &result.result_repr) {
        (_, Some(repr)) if repr.len() >= REPR_BYTES_MAX - 4 => {
            "\n[the beginning of its repr, which is longer; next: print a part, or write it to a file]"
        }
        (None, Some(_)) => " [its repr: it is not JSON, or longer than 1 MiB as JSON]",
        _ => "",
    }
}

fn tail(result: &ExecutionResult, offer: &Offer) -> String {
    let mut text = String::new();
    if result.error.as_ref().is_some_and(ProgramError::is_missing_module) {
        text += "\nnext: name the package that has it in `packages`";
    }
    for denial in &result.denials {
        let (kind, rule) = match denial.rule.strip_prefix("limit.") {
            Some(limit) => ("limit reached", limit),
            None if denial.layer == "workspace" => ("not kept", denial.rule.as_str()),
            None => ("refused", denial.rule.as_str()),
        };
        text += &format!("\n{kind}: {rule}: {}", denial.what);
        let next = denial.hint.strip_prefix("next: ").unwrap_or(&denial.hint);
        if !next.is_empty() {
            text += &format!("\nnext: {next}");
        }
    }
    // Below the refusals, so that long names displace nothing else.
    text + &artifacts(result, offer) + &advice(result)
}

fn artifacts(result: &ExecutionResult, offer: &Offer) -> String {
    let mut text = String::new();
    for artifact in result.artifacts.iter().take(ARTIFACTS_LISTED) {
        text += &format!(
            "\nartifact: {} ({}, {} bytes)",
            artifact.uri.as_deref().unwrap_or(&artifact.name),
            artifact.mime,
            artifact.size_bytes
        );
    }
    let more = result.artifacts.len().saturating_sub(ARTIFACTS_LISTED);
    if more > 0 {
        text += &format!("\nand {more} more artifacts, {} in all", result.artifacts.len());
        if offer.has(Toolset::Observe) {
            text += &format!(
                "; next: get_artifacts {{\"request_id\": \"{}\"}} lists all",
                result.execution_id
            );
        }
    }
    text
}

/// Returns the findings about the code in one line: `validate_code` lists all.
fn advice(result: &ExecutionResult) -> String {
    let Some(found) = &result.validation else {
        return String::new();
    };
    let mut text = String::new();
    if !found.fixes_applied.is_empty() {
        text += &format!("\nadded to the code: {}", found.fixes_applied.join("; "));
    }
    // The error that ended the program is part of the text already.
    let error_line = result.error.as_ref().and_then(|error| error.line);
    let mut issues = found.issues.iter().filter(|issue| {
        issue.severity >= Severity::Warning
            && !(issue.severity == Severity::Error && error_line == Some(issue.line))
    });
    if let Some(first) = issues.next() {
        let more = match issues.count() {
            0 => String::new(),
            more => format!("; {more} more"),
        };
        text += &format!(
            "\nadvice: {}:{}: {}{more} (validate_code tells each)",
            name_of(result.language),
            first.line,
            beginning(&first.message, LINE_BYTES_MAX)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_line_has_its_line_number_once() {
        let check = |kind: &str, message: &str, line: Option<u32>, expect: &str| {
            let error = ProgramError {
                kind: kind.to_owned(),
                message: message.to_owned(),
                traceback: String::new(),
                line,
            };
            assert_eq!(in_a_line(&error), expect);
        };
        check("ValueError", "no", Some(3), "ValueError: no (line 3)");
        check("ValueError", "no", None, "ValueError: no");
        check("KeyboardInterrupt", "", Some(1), "KeyboardInterrupt (line 1)");
        let with_line = "invalid syntax (call-7.py, line 1)";
        check(
            "SyntaxError",
            with_line,
            Some(1),
            "SyntaxError: invalid syntax (call-7.py, line 1)",
        );
        let twice = "KeyError: invalid syntax (call-7.py, line 1) (line 12)";
        check("KeyError", with_line, Some(12), twice);
    }

    #[test]
    fn small_parts_leave_their_share_to_others() {
        assert_eq!(shares([10, 0, 5000, 5000], 1010), [10, 0, 500, 500]);
        assert_eq!(shares([1, 2, 3], 100), [1, 2, 3]);
    }
}
