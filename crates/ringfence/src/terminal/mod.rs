//! The only place that prints. Our own text may be coloured; untrusted bytes are neutralised for a terminal.

pub(crate) mod neutral;

use crate::{
    render::diagnostics::{Style, StyledText},
    sentence::without_numbers,
    settings::Environment,
    utf8::Decoder,
};
use ringfence_types::RequestError;
use rustix::io::Errno;
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use tokio::io::{AsyncWrite, AsyncWriteExt};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    out: Reader,
    err: Reader,
    has_colours: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Person,
    Program,
}

const RESET: &str = "\x1b[0m";

fn colour(style: Style) -> Option<&'static str> {
    match style {
        Style::Plain => None,
        Style::Error | Style::Removed => Some("\x1b[1;31m"),
        Style::Warning => Some("\x1b[1;33m"),
        Style::Info => Some("\x1b[36m"),
        Style::Good | Style::Added => Some("\x1b[32m"),
        Style::Guide => Some("\x1b[2m"),
    }
}

impl Reader {
    fn of(stream: &impl IsTerminal) -> Self {
        if stream.is_terminal() {
            Self::Person
        } else {
            Self::Program
        }
    }
}

impl Terminal {
    pub(crate) fn new(environment: &Environment) -> Self {
        Self {
            out: Reader::of(&io::stdout()),
            err: Reader::of(&io::stderr()),
            has_colours: !environment.no_colour(),
        }
    }

    fn paint(self, reader: Reader, style: Style, text: &str) -> String {
        match colour(style) {
            Some(colour) if reader == Reader::Person && self.has_colours => format!("{colour}{text}{RESET}"),
            _ => text.to_owned(),
        }
    }

    pub(crate) fn mark(self, style: Style, text: &str) -> String {
        self.paint(self.out, style, text)
    }

    /// Prints text of our own on stdout. A closed pipe is not an error.
    pub(crate) fn print(self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        quiet(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
    }

    /// Wraps text for stdout to the width of a person's terminal, at least 40 columns. Continuation lines are indented.
    pub(crate) fn wrapped(self, text: &str) -> String {
        let columns = rustix::termios::tcgetwinsize(io::stdout()).map_or(u16::MAX, |size| size.ws_col);
        wrapped(text, columns.max(40).into())
    }

    /// Prints an untrusted value on stdout: for a program unchanged, for a person neutralised, `bytes_max` at most.
    pub(crate) fn print_value(self, value: &str, bytes_max: usize) -> io::Result<()> {
        if self.out == Reader::Program {
            return self.print(value);
        }
        if value.len() <= bytes_max {
            return self.print(&neutral::text(value));
        }
        let shown = &value[..value.floor_char_boundary(bytes_max)];
        self.print(&neutral::text(shown))?;
        self.print(&format!("\n[{} of {} bytes shown]\n", shown.len(), value.len()))
    }

    /// Prints bytes on stdout: unchanged for a program, neutralised for a person.
    pub(crate) fn print_bytes(self, bytes: &[u8]) -> io::Result<()> {
        write_bytes(io::stdout().lock(), self.out, bytes)
    }

    /// The same on stderr.
    pub(crate) fn note_bytes(self, bytes: &[u8]) -> io::Result<()> {
        write_bytes(io::stderr().lock(), self.err, bytes)
    }

    pub(crate) fn print_json(self, document: &impl Serialize) -> io::Result<()> {
        self.print(&self.json(document)?)
    }

    pub(crate) fn json(self, document: &impl Serialize) -> io::Result<String> {
        let text = if self.out == Reader::Person {
            neutral::json(&serde_json::to_string_pretty(document)?)
        } else {
            serde_json::to_string(document)?
        };
        Ok(text + "\n")
    }

    /// Prints what cannot be shown again. An error, also of a closed pipe or a full disk, means that it may be lost.
    pub(crate) fn print_once(self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        match rustix::fs::fsync(&out) {
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => Err(error.into()),
            // A pipe or a terminal has no disk.
            _ => Ok(()),
        }
    }

    pub(crate) fn error(self, error: &RequestError) {
        self.error_with_hint(&error.message, &error.hint);
    }

    pub(crate) fn error_with_hint(self, message: &str, hint: &str) {
        let (error, next) = (self.err("error", Style::Error), self.err("hint", Style::Info));
        // Indented, so that no untrusted line looks like one of ours.
        let message = without_numbers(message);
        let message: Vec<String> = message.lines().map(neutral::line).collect();
        self.note_text(&format!(
            "{error}: {}\n{next}: {}\n",
            message.join("\n  "),
            neutral::line(hint)
        ));
    }

    pub(crate) fn note(self, text: &str) {
        self.note_text(&format!("{text}\n"));
    }

    pub(crate) fn dim(self, text: &str) {
        self.note_text(&format!("{}\n", self.err(&neutral::line(text), Style::Guide)));
    }

    /// Prints an installer's output, each line like `dim`.
    pub(crate) fn notices(self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines.for_each(|line| self.dim(line));
    }

    /// Prints changes on stderr, neutralised: paths and texts are untrusted.
    pub(crate) fn difference(self, text: &str) {
        self.note_text(&self.painted_difference(self.err, text));
    }

    pub(crate) fn print_difference(self, text: &str) -> io::Result<()> {
        self.print(&self.painted_difference(self.out, text))
    }

    /// Colours changes: lines of a unified difference are indented by two spaces, risks begin with `!`.
    fn painted_difference(self, reader: Reader, text: &str) -> String {
        let painted = |line: &str| {
            let style = match line.get(..3) {
                Some("  +") => Style::Added,
                Some("  -" | "  !") => Style::Removed,
                Some("  @") => Style::Info,
                _ => Style::Plain,
            };
            self.paint(reader, style, &neutral::line(line)) + "\n"
        };
        text.lines().map(painted).collect()
    }

    pub(crate) fn print_styled(self, text: &StyledText) -> io::Result<()> {
        self.print(&self.painted(self.out, text))
    }

    pub(crate) fn note_styled(self, text: &StyledText) {
        self.note_text(&self.painted(self.err, text));
    }

    fn painted(self, reader: Reader, text: &StyledText) -> String {
        let paint = |(style, text)| self.paint(reader, style, text);
        text.pieces().map(paint).collect()
    }

    pub(crate) fn ask(self, text: &str) -> io::Result<()> {
        io::stderr().lock().write_all(neutral::line(text).as_bytes())
    }

    pub(crate) fn has_person(self) -> bool {
        self.err == Reader::Person
    }

    /// Replaces the line of progress on stderr, which only a person sees. Empty text clears it.
    pub(crate) fn progress(self, text: &str) {
        if self.err == Reader::Person {
            self.note_text(&format!("\r\x1b[K{text}"));
        }
    }

    pub(crate) fn json_lines(self) -> JsonLines<io::StdoutLock<'static>> {
        JsonLines {
            sink: io::stdout().lock(),
            reader: self.out,
        }
    }

    fn err(self, text: &str, style: Style) -> String {
        self.paint(self.err, style, text)
    }

    fn note_text(self, text: &str) {
        // A closed stderr cannot be reported anywhere else.
        drop(io::stderr().lock().write_all(text.as_bytes()));
    }

    pub(crate) fn guest(self, raw: Raw) -> (GuestStream<tokio::io::Stdout>, GuestStream<tokio::io::Stderr>) {
        let neutral = |to: Reader| (to == Reader::Person && raw == Raw::Neutralised).then(Decoder::default);
        (
            GuestStream {
                sink: tokio::io::stdout(),
                neutral: neutral(self.out),
            },
            GuestStream {
                sink: tokio::io::stderr(),
                neutral: neutral(self.err),
            },
        )
    }
}

/// A stream of JSON lines, neutralised for a person.
pub(crate) struct JsonLines<W> {
    sink: W,
    reader: Reader,
}

impl<W: Write> Write for JsonLines<W> {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match self.reader {
            Reader::Program => self.sink.write_all(lines)?,
            Reader::Person => {
                let text = String::from_utf8_lossy(lines);
                self.sink.write_all(neutral::json(&text).as_bytes())?;
            }
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

fn write_bytes(mut to: impl Write, reader: Reader, bytes: &[u8]) -> io::Result<()> {
    let written = match reader {
        Reader::Program => to.write_all(bytes),
        Reader::Person => to.write_all(neutral::text(&String::from_utf8_lossy(bytes)).as_bytes()),
    };
    quiet(written.and_then(|()| to.flush()))
}

fn wrapped(text: &str, columns: usize) -> String {
    let options = textwrap::Options::new(columns)
        .subsequent_indent("      ")
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    let line = |line| textwrap::fill(line, &options) + "\n";
    text.lines().map(line).collect()
}

/// Ignores a broken pipe: a closed reader is not an error.
pub(crate) fn quiet(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    /// Unchanged, as the user asked.
    AsWritten,
    Neutralised,
}

impl From<bool> for Raw {
    fn from(is_raw: bool) -> Self {
        match is_raw {
            true => Self::AsWritten,
            false => Self::Neutralised,
        }
    }
}

/// One of our own streams, for a program's output.
pub(crate) struct GuestStream<W> {
    sink: W,
    /// Decoder of a neutralised stream: a character may be split between two writes.
    neutral: Option<Decoder>,
}

impl<W: AsyncWrite + Unpin> GuestStream<W> {
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.neutral {
            None => self.sink.write_all(bytes).await?,
            Some(decoder) => {
                let text = neutral::text(&decoder.push(bytes));
                self.sink.write_all(text.as_bytes()).await?;
            }
        }
        self.sink.flush().await
    }

    /// Writes the replacement of an incomplete character at the end, and flushes.
    pub(crate) async fn end(&mut self) -> io::Result<()> {
        if let Some(decoder) = &mut self.neutral {
            self.sink.write_all(decoder.end().as_bytes()).await?;
        }
        self.sink.flush().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn output_is_raw_on_a_pipe_and_neutralised_on_a_terminal() {
        let hostile = b"a\x1b]0;owned\x07b\xff";
        let mut pipe = GuestStream {
            sink: Vec::new(),
            neutral: None,
        };
        pipe.write(hostile).await.unwrap();
        pipe.end().await.unwrap();
        assert_eq!(pipe.sink, hostile);
        let mut terminal = GuestStream {
            sink: Vec::new(),
            neutral: Some(Decoder::default()),
        };
        terminal.write(hostile).await.unwrap();
        terminal.end().await.unwrap();
        assert!(!terminal.sink.contains(&0x1b) && !terminal.sink.contains(&0x07));
    }

    #[test]
    fn json_lines_are_neutralised_for_a_person_and_unchanged_for_a_program() {
        let line = "{\"caller\":\"a\u{9b}31m\u{202e}\"}\n";
        let shown = |reader| {
            let mut lines = JsonLines {
                sink: Vec::new(),
                reader,
            };
            lines.write_all(line.as_bytes()).unwrap();
            String::from_utf8(lines.sink).unwrap()
        };
        assert_eq!(shown(Reader::Program), line);
        assert_eq!(shown(Reader::Person), "{\"caller\":\"a\\u009b31m\\u202e\"}\n");
    }

    #[test]
    fn bytes_are_unchanged_for_a_program_and_neutralised_for_a_person() {
        let shown = |reader| {
            let mut shown = Vec::new();
            write_bytes(&mut shown, reader, b"\x1b[2J\xff\0").unwrap();
            shown
        };
        assert_eq!(shown(Reader::Program), b"\x1b[2J\xff\0");
        assert_eq!(shown(Reader::Person), "␛[2J\u{fffd}␀".as_bytes());
    }

    #[test]
    fn long_line_wraps_between_words() {
        let text = "rules:\n  ls: ls [-l] [--full-time] [--all]\n";
        let narrow = "rules:\n  ls: ls [-l]\n      [--full-time]\n      [--all]\n";
        assert_eq!(wrapped(text, 18), narrow);
        assert_eq!(wrapped(text, 80), text);
    }

    #[test]
    fn colours_require_a_terminal_and_no_opt_out() {
        let shown = |out, has_colours| {
            let terminal = Terminal {
                out,
                err: Reader::Program,
                has_colours,
            };
            terminal.mark(Style::Good, "x")
        };
        assert_eq!(shown(Reader::Person, false), "x");
        assert_eq!(shown(Reader::Program, true), "x");
        assert!(shown(Reader::Person, true).contains('\x1b'));
    }
}
