//! The operator's log: JSON lines on stderr, or plain lines where that is a terminal. Each line passes the vault's
//! redactor as a whole before it is written, and so do panic messages.

use crate::{settings::LogLevel, terminal::neutral};
use jiff::Timestamp;
use ringfence_engine::LogRedactor;
use serde_json::json;
use std::{
    io::{self, IsTerminal, Write},
    panic::PanicHookInfo,
    sync::OnceLock,
};
use tracing_subscriber::{
    Layer, Registry,
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt,
    registry, reload,
    util::SubscriberInitExt,
};

/// A longer line is dropped, and a warning is written in its place.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Unset until the vault is open: before that there is nothing to redact.
static REDACTOR: OnceLock<LogRedactor> = OnceLock::new();

pub(crate) struct Log {
    targets: reload::Handle<Targets, Registry>,
}

impl Log {
    pub(crate) fn begin(level: LogLevel) -> Self {
        let (targets, handle) = reload::Layer::new(targets(level));
        let lines = fmt::layer().with_writer(Line::default);
        let lines = match io::stderr().is_terminal() {
            true => lines.with_ansi(false).with_target(false).boxed(),
            false => lines.json().boxed(),
        };
        // A second call could only come from a test in the same process.
        drop(registry().with(targets).with(lines).try_init());
        std::panic::set_hook(Box::new(|panic| write_line(panic_line(panic).as_bytes())));
        Self { targets: handle }
    }

    pub(crate) fn set_level(&self, level: LogLevel) {
        if let Err(error) = self.targets.reload(targets(level)) {
            tracing::error!(%error, "the level of the log was not changed");
        }
    }
}

/// Redacts the vault's values from now on. Only the first call in a process has an effect.
pub(crate) fn redact_with(redactor: LogRedactor) {
    drop(REDACTOR.set(redactor));
}

/// Limits the MCP library, which logs whole requests below `warn`, and `bollard` to `warn`.
fn targets(level: LogLevel) -> Targets {
    // Both types use the same words.
    let level: LevelFilter = level.as_str().parse().unwrap_or(LevelFilter::INFO);
    Targets::new()
        .with_default(level)
        .with_target("rmcp", level.min(LevelFilter::WARN))
        .with_target("bollard", level.min(LevelFilter::WARN))
}

/// Collects one line, and writes it when dropped.
#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // One byte above the limit marks a line as too long.
        let room = (LINE_BYTES_MAX + 1).saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        write_line(&self.bytes);
    }
}

/// Writes a line to stderr. An error is ignored: there is no other place to report it.
fn write_line(line: &[u8]) {
    let clean = clean(line, REDACTOR.get());
    let mut stderr = io::stderr().lock();
    let output = match stderr.is_terminal() {
        true => for_a_terminal(&clean).into_bytes(),
        false => clean,
    };
    drop(stderr.write_all(&output));
}

/// Formats one line so that nothing in it moves the cursor or begins another line.
fn for_a_terminal(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    neutral::line(text.trim_end_matches('\n')) + "\n"
}

/// Returns a line redacted, or a warning in place of one that is too long, with a line end.
fn clean(line: &[u8], redactor: Option<&LogRedactor>) -> Vec<u8> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut clean = match redactor {
        _ if line.len() > LINE_BYTES_MAX => entry(
            "WARN",
            format!("a line of more than {LINE_BYTES_MAX} bytes was left out"),
        )
        .into_bytes(),
        Some(redactor) => redactor.bytes(line),
        None => line.to_vec(),
    };
    clean.push(b'\n');
    clean
}

fn panic_line(panic: &PanicHookInfo<'_>) -> String {
    let place = panic
        .location()
        .map_or_else(String::new, |place| format!(" at {place}"));
    let mut message = panic.payload_as_str().unwrap_or("(no message)");
    if message.len() > LINE_BYTES_MAX / 8 {
        message = "(too long to be shown)";
    }
    entry("ERROR", format!("panic{place}: {message}"))
}

fn entry(level: &str, message: String) -> String {
    let fields = json!({"message": message});
    let line = json!({"timestamp": Timestamp::now().to_string(), "level": level, "fields": fields, "target": "ringfence"});
    line.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn message(line: &[u8]) -> String {
        let line: Value = serde_json::from_slice(line).unwrap();
        line["fields"]["message"].as_str().unwrap().to_owned()
    }

    #[test]
    fn pieces_of_a_line_are_written_as_one_line() {
        let mut line = Line::default();
        for piece in ["{\"a\":", "1}", "\n"] {
            line.write_all(piece.as_bytes()).unwrap();
        }
        assert_eq!(clean(&line.bytes, None), b"{\"a\":1}\n");
    }

    #[test]
    fn terminal_line_has_no_control_characters_and_one_line_end() {
        let line = for_a_terminal(b"INFO x\x1b[2J\x1b]0;title\x07 \r\nINFO forged\n");
        assert!(!line.contains(['\x1b', '\x07', '\r']), "{line:?}");
        assert_eq!(line.matches('\n').count(), 1, "{line:?}");
        assert!(line.contains("INFO forged"), "the control: {line:?}");
    }

    #[test]
    fn overlong_line_is_dropped_and_its_buffer_is_bounded() {
        let mut line = Line::default();
        for _ in 0..100 {
            line.write_all(&[b'x'; 4096]).unwrap();
        }
        assert_eq!(line.bytes.len(), LINE_BYTES_MAX + 1);
        assert!(message(&clean(&line.bytes, None)).contains("left out"));
        line.bytes.clear();
    }

    #[test]
    fn panic_message_is_logged_as_one_line() {
        let line = entry("ERROR", "panic: two\nlines".to_owned());
        assert!(!line.contains('\n') && message(line.as_bytes()) == "panic: two\nlines");
    }
}
