//! Parses a script into commands, in memory that grows with its length and on a stack of bounded depth.
//! After an error, parsing continues behind it. docs/adr/0008 says why this is not a library.

use super::{
    syntax::{Command, Fault, Pipeline, Script},
    variables::Variables,
};
use crate::lists::LISTS;
use std::ops::Range;

/// Maximum nesting of blocks and substitutions; scripts written by people stay below twenty.
const DEPTH_MAX: u32 = 64;
const FAULTS_MAX: usize = 20;
/// Maximum length of a word that is compared with reserved words.
const RESERVED_BYTES_MAX: usize = 512;
/// Words and signs that close or continue a construct.
const CLOSING: [&str; 10] = ["then", "elif", "else", "fi", "do", "done", "esac", "}", ")", ";;"];
const SIGNS: [&str; 6] = ["&&", "||", ";;&", ";;", ";&", "|&"];

pub(super) type Read<T> = Result<T, Fault>;

#[derive(Default)]
pub(super) struct Reader<'a> {
    text: &'a str,
    pub(super) at: usize,
    /// End of the part that is read now; the text may be longer.
    pub(super) end: usize,
    depth: u32,
    pub(super) script: Script<'a>,
    pub(super) variables: Variables,
    shell: u32,
    shells: u32,
    /// Here-documents that begin after the current line.
    pub(super) pending: Vec<PendingText>,
}

pub(super) struct PendingText {
    pub(super) command: usize,
    pub(super) redirection: usize,
    pub(super) delimiter: String,
    /// The operator and the delimiter.
    pub(super) announced: Range<usize>,
    /// True if the delimiter is quoted, so that nothing in the text is expanded.
    pub(super) literal: bool,
    /// True for `<<-`.
    pub(super) strips_tabs: bool,
}

/// Parses the script and collects the variables that it sets. Never fails: syntax errors are in [`Script::faults`].
pub(super) fn read<'a>(text: &'a str, variables: &mut Variables) -> Script<'a> {
    // Twice, because a function may precede the variables it uses; the second pass begins with the first's last values.
    read_once(text, variables);
    read_once(text, variables)
}

fn read_once<'a>(text: &'a str, variables: &mut Variables) -> Script<'a> {
    let mut reader = Reader {
        text,
        end: text.len(),
        variables: std::mem::take(variables),
        ..Reader::default()
    };
    while reader.at < reader.end && reader.script.faults.len() < FAULTS_MAX {
        let before = reader.at;
        let fault = match reader.list() {
            Ok(_) if reader.at >= reader.end => break,
            Ok(_) => reader.stray(),
            Err(fault) => fault,
        };
        let too_deep = fault.too_deep;
        reader.script.faults.push(fault);
        if too_deep {
            break;
        }
        reader.depth = 0;
        reader.shell = 0;
        reader.end = text.len();
        reader.skip_one(before);
    }
    let waiting = reader.pending.into_iter();
    reader.script.unclosed.extend(waiting.map(|text| text.announced));
    *variables = reader.variables;
    reader.script
}

pub(super) fn fault(range: Range<usize>, what: impl Into<String>) -> Fault {
    Fault {
        range,
        what: what.into(),
        too_deep: false,
    }
}

impl<'a> Reader<'a> {
    pub(super) fn byte(&self) -> Option<u8> {
        self.byte_at(0)
    }

    pub(super) fn byte_at(&self, ahead: usize) -> Option<u8> {
        self.rest().get(ahead).copied()
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at.min(self.end)..self.end]
    }

    pub(super) fn is_at(&self, text: &str) -> bool {
        self.rest().starts_with(text.as_bytes())
    }

    pub(super) fn slice(&self, range: Range<usize>) -> &'a str {
        self.text.get(range).unwrap_or_default()
    }

    /// Returns the text from here on whose bytes fit, without consuming it.
    pub(super) fn run(&self, fits: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.iter().position(|byte| !fits(*byte));
        self.slice(self.at..self.at + length.unwrap_or(rest.len()))
    }

    pub(super) fn sign(&mut self, signs: &[&'static str]) -> Option<&'static str> {
        let sign = signs.iter().find(|sign| self.is_at(sign))?;
        self.at += sign.len();
        Some(sign)
    }

    /// The operator at this position, or else the character.
    fn operator(&self) -> &'a str {
        let sign = SIGNS.iter().find(|sign| self.is_at(sign));
        let length = sign.map_or(self.letter().len(), |sign| sign.len());
        self.slice(self.at..self.at + length)
    }

    pub(super) fn stray(&self) -> Fault {
        let word = match self.peek_word() {
            "" => self.operator(),
            word => word,
        };
        let what = match word {
            "" => "the script ends where a command has to follow".to_owned(),
            "\n" => "the line ends where a command has to follow".to_owned(),
            word => format!("`{word}` cannot stand here"),
        };
        fault(self.at..(self.at + word.len().max(1)).min(self.end), what)
    }

    /// Continues after the word or sign at which a fault is noticed.
    fn skip_one(&mut self, before: usize) {
        if self.at > before && self.byte() == Some(b'\n') {
            return;
        }
        self.at += match self.peek_word().len() {
            0 => self.operator().len().max(1),
            word => word,
        };
    }

    pub(super) fn skip_blanks(&mut self) {
        loop {
            match self.byte() {
                Some(b' ' | b'\t') => self.at += 1,
                Some(b'\r') => {
                    if matches!(self.byte_at(1), None | Some(b'\n')) {
                        let first = self.script.carriage_return.get_or_insert(self.at);
                        *first = self.at.min(*first);
                    }
                    self.at += 1;
                }
                Some(b'\\') if self.byte_at(1) == Some(b'\n') => self.at += 2,
                _ => return,
            }
        }
    }

    /// Skips blanks, comments and line ends, and reads the here-documents that begin after them.
    pub(super) fn skip_lines(&mut self) -> Read<()> {
        loop {
            self.skip_blanks();
            if self.byte() == Some(b'#') {
                self.at += self.run(|byte| byte != b'\n').len();
            }
            if self.byte() != Some(b'\n') {
                return Ok(());
            }
            self.at += 1;
            self.here_documents()?;
        }
    }

    /// The letters up to a blank or operator, perhaps a reserved word; empty if it is too long or has quoting or `$`.
    pub(super) fn peek_word(&self) -> &'a str {
        let rest = self.rest();
        let longest = &rest[..rest.len().min(RESERVED_BYTES_MAX)];
        let quote = |byte: u8| b"'\"\\$`".contains(&byte);
        match longest.iter().position(|byte| ends_word(*byte) || quote(*byte)) {
            Some(length) if quote(longest[length]) => "",
            Some(length) => self.slice(self.at..self.at + length),
            None if longest.len() == rest.len() => self.slice(self.at..self.end),
            None => "",
        }
    }

    pub(super) fn take(&mut self, word: &str) -> bool {
        let there = self.peek_word() == word;
        if there {
            self.at += word.len();
        }
        there
    }

    /// Reads one level deeper; a fault if that is too deep.
    pub(super) fn within<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        if self.depth >= DEPTH_MAX {
            let what = format!("commands are nested more than {DEPTH_MAX} levels deep");
            return Err(Fault {
                too_deep: true,
                ..fault(self.at..self.end, what)
            });
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Reads commands in a subshell, up to a closing sign; returns their range.
    pub(super) fn subshell(&mut self, close: &str, opened: usize) -> Read<Range<usize>> {
        let outer = self.shell;
        self.shells += 1;
        self.shell = self.shells;
        let first = self.script.commands.len();
        let result = self.within(|reader| {
            reader.list()?;
            reader.expect_sign(close, opened)
        });
        self.shell = outer;
        result.map(|()| first..self.script.commands.len())
    }

    pub(super) fn expect_sign(&mut self, sign: &str, opened: usize) -> Read<()> {
        self.skip_lines()?;
        if self.is_at(sign) {
            self.at += sign.len();
            return Ok(());
        }
        Err(match self.at >= self.end {
            true => fault(opened..opened + 1, format!("what is opened here has no `{sign}`")),
            false => self.stray(),
        })
    }

    pub(super) fn expect(&mut self, words: &[&'static str], opened: &Range<usize>) -> Read<&'static str> {
        self.skip_lines()?;
        if let Some(word) = words.iter().find(|word| self.take(word)) {
            return Ok(word);
        }
        let (opener, closer) = (self.slice(opened.clone()), words.last().unwrap_or(&""));
        Err(match self.at >= self.end {
            true => fault(opened.clone(), format!("`{opener}` has no `{closer}`")),
            false => self.stray(),
        })
    }

    /// Reads at least one command, then one of the words.
    pub(super) fn until(&mut self, words: &[&'static str], opened: &Range<usize>) -> Read<&'static str> {
        let is_empty = !self.list()?;
        // At the end of the text, the fault names what was opened.
        if is_empty && self.at < self.end {
            return Err(self.stray());
        }
        self.expect(words, opened)
    }

    /// Reads commands up to a closing word or sign, or to the end; returns true if there are any.
    pub(super) fn list(&mut self) -> Read<bool> {
        let mut is_any = false;
        loop {
            self.skip_lines()?;
            if self.at >= self.end || self.closes() {
                return Ok(is_any);
            }
            is_any = true;
            let first = self.script.commands.len();
            self.and_or()?;
            self.skip_blanks();
            match self.byte() {
                Some(b'\n' | b'#') | None => {}
                Some(_) if self.closes() => return Ok(true),
                Some(b';') => self.at += 1,
                Some(b'&') => {
                    self.at += 1;
                    let commands = &mut self.script.commands[first..];
                    commands.iter_mut().for_each(|command| command.background = true);
                }
                Some(_) => return Err(self.stray()),
            }
        }
    }

    pub(super) fn closes(&self) -> bool {
        match self.byte() {
            Some(b')') => true,
            Some(b';') => matches!(self.byte_at(1), Some(b';' | b'&')),
            _ => CLOSING.contains(&self.peek_word()),
        }
    }

    fn and_or(&mut self) -> Read<()> {
        loop {
            self.pipeline()?;
            self.skip_blanks();
            if self.sign(&["&&", "||"]).is_none() {
                return Ok(());
            }
            self.script.decisions += 1;
            self.skip_lines()?;
        }
    }

    fn pipeline(&mut self) -> Read<()> {
        let start = self.at;
        let mut stages = Vec::new();
        let mut negated = false;
        while self.take("!") {
            negated = true;
            self.skip_blanks();
        }
        loop {
            let first = self.script.commands.len();
            let before = self.at;
            self.command()?;
            if self.at == before && !negated {
                return Err(self.stray());
            }
            stages.push(first..self.script.commands.len());
            self.skip_blanks();
            if self.byte() != Some(b'|') || self.byte_at(1) == Some(b'|') {
                break;
            }
            self.sign(&["|&", "|"]);
            self.skip_lines()?;
            negated = false;
        }
        if stages.len() > 1 {
            let range = start..self.at;
            self.script.pipelines.push(Pipeline { range, stages });
        }
        Ok(())
    }

    pub(super) fn redirections_after(&mut self, start: usize) -> Read<()> {
        let mut command = self.empty_command(start);
        let texts = self.pending.len();
        self.skip_blanks();
        while let Some(redirection) = self.redirection(command.redirections.len())? {
            command.redirections.push(redirection);
            self.skip_blanks();
        }
        if !command.redirections.is_empty() {
            self.push(command, texts);
        }
        Ok(())
    }

    /// Adds a command to the list, and its index to its pending here-documents.
    pub(super) fn push(&mut self, command: Command<'a>, texts: usize) {
        let mut fields = command.words.iter().flat_map(|word| &word.fields);
        let name = fields.next();
        if name.is_some_and(|name| LISTS.setters.contains(name.as_str())) {
            fields.for_each(|name| self.variables.set(name, Vec::new()));
        }
        let index = self.script.commands.len();
        for pending in self.pending.iter_mut().skip(texts) {
            pending.command = pending.command.min(index);
        }
        self.script.commands.push(command);
    }

    pub(super) fn empty_command(&self, start: usize) -> Command<'a> {
        Command {
            range: start..self.at,
            shell: self.shell,
            ..Command::default()
        }
    }
}

/// True for a blank or an operator character, which are not part of a word.
pub(super) fn ends_word(byte: u8) -> bool {
    b" \t\r\n|&;()<>".contains(&byte)
}
