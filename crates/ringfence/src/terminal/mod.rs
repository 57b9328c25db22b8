//! The only place that prints. Our own words may be coloured; a stranger's bytes reach a terminal neutralised.

pub(crate) mod neutral;

use crate::{
    render::diagnostics::{Style, StyledText},
    settings::Environment,
    utf8::Decoder,
};
use ringfence_types::RequestError;
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use tokio::io::{AsyncWrite, AsyncWriteExt};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    out: End,
    err: End,
    has_colours: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
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

impl End {
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
            out: End::of(&io::stdout()),
            err: End::of(&io::stderr()),
            has_colours: !environment.no_colour(),
        }
    }

    fn paint(self, end: End, style: Style, text: &str) -> String {
        match colour(style) {
            Some(colour) if end == End::Person && self.has_colours => format!("{colour}{text}{RESET}"),
            _ => text.to_owned(),
        }
    }

    pub(crate) fn mark(self, style: Style, text: &str) -> String {
        self.paint(self.out, style, text)
    }

    /// Text of our own on stdout.
    pub(crate) fn print(self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        quiet(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
    }

    /// Text for stdout, in lines that fit a person's terminal. What is too long goes on below, indented.
    pub(crate) fn wrapped(self, text: &str) -> String {
        let columns = rustix::termios::tcgetwinsize(io::stdout()).map_or(u16::MAX, |size| size.ws_col);
        wrapped(text, columns.max(40).into())
    }

    /// A stranger's value on stdout: all of it for a program, and so many harmless bytes for a person.
    pub(crate) fn print_value(self, value: &str, bytes_max: usize) -> io::Result<()> {
        if self.out == End::Program {
            return self.print(value);
        }
        if value.len() <= bytes_max {
            return self.print(&neutral::text(value));
        }
        let shown = &value[..value.floor_char_boundary(bytes_max)];
        self.print(&neutral::text(shown))?;
        self.print(&format!("\n[{} of {} bytes shown]\n", shown.len(), value.len()))
    }

    /// A file's bytes on stdout, as they are for a program and harmless for a person.
    pub(crate) fn print_bytes(self, bytes: &[u8]) -> io::Result<()> {
        if self.out == End::Person {
            return self.print(&neutral::text(&String::from_utf8_lossy(bytes)));
        }
        let mut out = io::stdout().lock();
        quiet(out.write_all(bytes).and_then(|()| out.flush()))
    }

    /// One JSON document on stdout, laid out for a person when one is looking.
    pub(crate) fn print_json(self, document: &impl Serialize) -> io::Result<()> {
        let text = if self.out == End::Person {
            neutral::json(&serde_json::to_string_pretty(document)?)
        } else {
            serde_json::to_string(document)?
        };
        self.print(&(text + "\n"))
    }

    /// `error: ...` and `hint: ...` on stderr.
    pub(crate) fn error(self, error: &RequestError) {
        self.complain(&error.message, &error.hint);
    }

    pub(crate) fn complain(self, message: &str, hint: &str) {
        let (error, next) = (self.err("error", Style::Error), self.err("hint", Style::Info));
        // Indented, no line of a stranger's looks like one of ours.
        let message: Vec<String> = message.lines().map(neutral::line).collect();
        self.note_text(&format!(
            "{error}: {}\n{next}: {}\n",
            message.join("\n  "),
            neutral::line(hint)
        ));
    }

    /// Lines of our own on stderr.
    pub(crate) fn note(self, text: &str) {
        self.note_text(&format!("{text}\n"));
    }

    /// One unobtrusive line on stderr that may hold a stranger's words.
    pub(crate) fn dim(self, text: &str) {
        self.note_text(&format!("{}\n", self.err(&neutral::line(text), Style::Guide)));
    }

    /// What an installer says, a line at a time.
    pub(crate) fn notices(self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines.for_each(|line| self.dim(line));
    }

    /// What has changed, on stderr: paths and texts are a stranger's.
    pub(crate) fn difference(self, text: &str) {
        self.note_text(&self.painted_difference(self.err, text));
    }

    pub(crate) fn print_difference(self, text: &str) -> io::Result<()> {
        self.print(&self.painted_difference(self.out, text))
    }

    /// Lines of a unified difference are indented; flags begin with `!`.
    fn painted_difference(self, end: End, text: &str) -> String {
        let painted = |line: &str| {
            let style = match line.get(..3) {
                Some("  +") => Style::Added,
                Some("  -" | "  !") => Style::Removed,
                Some("  @") => Style::Info,
                _ => Style::Plain,
            };
            self.paint(end, style, &neutral::line(line)) + "\n"
        };
        text.lines().map(painted).collect()
    }

    pub(crate) fn print_painting(self, painting: &StyledText) -> io::Result<()> {
        self.print(&self.painted(self.out, painting))
    }

    pub(crate) fn note_painting(self, painting: &StyledText) {
        self.note_text(&self.painted(self.err, painting));
    }

    fn painted(self, end: End, painting: &StyledText) -> String {
        let pieces = painting.pieces();
        pieces.map(|(style, text)| self.paint(end, style, text)).collect()
    }

    /// Asks about something that may hold a stranger's words.
    pub(crate) fn ask(self, text: &str) -> io::Result<()> {
        io::stderr().lock().write_all(neutral::line(text).as_bytes())
    }

    pub(crate) fn has_person(self) -> bool {
        self.err == End::Person
    }

    /// How far long work is, in place of what was said before; nothing: it is over. Only a person is told.
    pub(crate) fn progress(self, text: &str) {
        if self.err == End::Person {
            self.note_text(&format!("\r\x1b[K{text}"));
        }
    }

    /// Stdout, for JSON that is written a whole line at a time.
    pub(crate) fn json_lines(self) -> JsonLines<io::StdoutLock<'static>> {
        JsonLines {
            sink: io::stdout().lock(),
            end: self.out,
        }
    }

    fn err(self, text: &str, style: Style) -> String {
        self.paint(self.err, style, text)
    }

    fn note_text(self, text: &str) {
        // There is no other place to report that stderr is gone.
        drop(io::stderr().lock().write_all(text.as_bytes()));
    }

    pub(crate) fn guest(self, raw: Raw) -> (GuestStream<tokio::io::Stdout>, GuestStream<tokio::io::Stderr>) {
        let neutral = |end: End| (end == End::Person && raw == Raw::Neutralised).then(Decoder::default);
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

/// A stream of lines of JSON. A person sees them harmless.
pub(crate) struct JsonLines<W> {
    sink: W,
    end: End,
}

impl<W: Write> Write for JsonLines<W> {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match self.end {
            End::Program => self.sink.write_all(lines)?,
            End::Person => {
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

fn wrapped(text: &str, columns: usize) -> String {
    let options = textwrap::Options::new(columns)
        .subsequent_indent("      ")
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    let line = |line| textwrap::fill(line, &options) + "\n";
    text.lines().map(line).collect()
}

/// A reader who has left is no error.
pub(crate) fn quiet(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    /// As they are: the user asked for it.
    AsWritten,
    Neutralised,
}

impl From<bool> for Raw {
    /// Of the flag `--raw`.
    fn from(is_raw: bool) -> Self {
        match is_raw {
            true => Self::AsWritten,
            false => Self::Neutralised,
        }
    }
}

/// One of our streams, carrying a program's bytes.
pub(crate) struct GuestStream<W> {
    sink: W,
    /// Of a stream whose text is made harmless: a character may be cut anywhere between two writes.
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

    /// What an unfinished character at the end becomes.
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
    async fn a_pipe_gets_the_bytes_and_a_terminal_gets_them_harmless() {
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
    fn lines_of_json_are_harmless_for_a_person_and_untouched_for_a_program() {
        let line = "{\"caller\":\"a\u{9b}31m\u{202e}\"}\n";
        let shown = |end| {
            let mut lines = JsonLines {
                sink: Vec::new(),
                end,
            };
            lines.write_all(line.as_bytes()).unwrap();
            String::from_utf8(lines.sink).unwrap()
        };
        assert_eq!(shown(End::Program), line);
        assert_eq!(shown(End::Person), "{\"caller\":\"a\\u009b31m\\u202e\"}\n");
    }

    #[test]
    fn a_long_line_goes_on_below_and_no_word_is_cut() {
        let text = "rules:\n  ls: ls [-l] [--full-time] [--all]\n";
        let narrow = "rules:\n  ls: ls [-l]\n      [--full-time]\n      [--all]\n";
        assert_eq!(wrapped(text, 18), narrow);
        assert_eq!(wrapped(text, 80), text);
    }

    #[test]
    fn colours_need_a_terminal_and_a_user_who_wants_them() {
        let shown = |out, has_colours| {
            let terminal = Terminal {
                out,
                err: End::Program,
                has_colours,
            };
            terminal.mark(Style::Good, "x")
        };
        assert_eq!(shown(End::Person, false), "x");
        assert_eq!(shown(End::Program, true), "x");
        assert!(shown(End::Person, true).contains('\x1b'));
    }
}
