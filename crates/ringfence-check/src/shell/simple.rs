//! Reads simple commands: assignments, words, redirections, and the here-documents that follow the line.

use super::{
    reader::{PendingText, Read, Reader},
    syntax::{Assignment, Command, Redirection, ShellWord},
};

use regex::Regex;
use std::sync::LazyLock;

const DECLARING: [&str; 6] = ["declare", "typeset", "export", "readonly", "local", "alias"];

/// `2>`, `{log}>`, `<<`
static REDIRECTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^(?:[0-9]{1,60}|\{[A-Za-z_][A-Za-z0-9_]{0,59}\})?(<<<|<<-|<<|<&|<>|<|&>>|&>|>>|>&|>\||>)")
        .ok()
});
/// `name=`, `name+=`, `name[…]=`
static ASSIGNMENT: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^([A-Za-z_][A-Za-z0-9_]*)(?:\[(?:[^\[\]]|\[[^\[\]]*\])*\])?\+?=").ok());

impl<'a> Reader<'a> {
    /// Reads assignments, words and redirections up to an operator or the end of the line.
    pub(super) fn simple(&mut self) -> Read<()> {
        let start = self.at;
        // Commands in substitutions of its words precede it in the list.
        let mut command = self.empty_command(start);
        let texts = self.pending.len();
        loop {
            self.skip_blanks();
            if let Some(redirection) = self.redirection(command.redirections.len())? {
                command.redirections.push(redirection);
            } else if command.words.is_empty()
                && let Some(assignment) = self.assignment()?
            {
                command.assignments.push(assignment);
            } else if self.is_at("(") && command.words.len() == 1 && command.assignments.is_empty() {
                let name = self.slice(command.words[0].range.clone());
                self.parameters()?;
                return self.function_body(name, start);
            } else if let Some(word) = self.argument(&mut command)? {
                command.words.push(word);
            } else {
                break;
            }
            command.range.end = self.at;
        }
        if !command.range.is_empty() {
            self.push(command, texts);
        }
        Ok(())
    }

    fn argument(&mut self, command: &mut Command<'a>) -> Read<Option<ShellWord<'a>>> {
        let first = command.words.first().map(|word| self.slice(word.range.clone()));
        let at = self.at;
        if first.is_some_and(|word| DECLARING.contains(&word))
            && let Some(assignment) = self.assignment()?
        {
            command.assignments.push(assignment);
            return Ok(Some(ShellWord {
                range: at..self.at,
                ..ShellWord::default()
            }));
        }
        self.word()
    }

    fn assignment(&mut self) -> Read<Option<Assignment<'a>>> {
        let start = self.at;
        let text = self.slice(start..self.end);
        let found = ASSIGNMENT.as_ref().and_then(|sign| sign.captures(text));
        let Some((sign, [name])) = found.map(|found| found.extract()) else {
            return Ok(None);
        };
        self.at += sign.len();
        let plain = sign.len() == name.len() + 1 && self.byte() != Some(b'(');
        let value = match self.byte() {
            Some(b'(') => self.array()?,
            _ => self.word()?.unwrap_or_default(),
        };
        let known = plain.then(|| value.text());
        self.variables.set(name, known.into_iter().collect());
        Ok(Some(Assignment {
            range: start..self.at,
            name,
            value,
        }))
    }

    /// The name of a variable, which is not consumed.
    pub(super) fn variable(&self) -> &'a str {
        match self.byte() {
            Some(b'0'..=b'9') => "",
            _ => self.run(|byte| byte.is_ascii_alphanumeric() || byte == b'_'),
        }
    }

    /// Reads the words of an array into one word.
    fn array(&mut self) -> Read<ShellWord<'a>> {
        let opened = self.at;
        let mut all = ShellWord::default();
        self.at += 1;
        loop {
            self.skip_lines()?;
            match self.word()? {
                Some(word) => {
                    all.fields.extend(word.fields);
                    all.outputs.extend(word.outputs);
                }
                None => return self.expect_sign(")", opened).map(|()| all),
            }
        }
    }

    /// Reads a redirection, `[n]op word`, if there is one.
    pub(super) fn redirection(&mut self, index: usize) -> Read<Option<Redirection<'a>>> {
        let start = self.at;
        let text = self.slice(start..self.end);
        let found = REDIRECTION.as_ref().and_then(|sign| sign.captures(text));
        let Some((sign, [operator])) = found.map(|found| found.extract()) else {
            return Ok(None);
        };
        // `<(…)` is a word.
        if sign.len() == 1 && self.byte_at(1) == Some(b'(') {
            return Ok(None);
        }
        self.at += sign.len();
        self.skip_blanks();
        let target_at = self.at;
        let target = self.expect_word()?;
        if operator == "<<" || operator == "<<-" {
            let raw = self.slice(target_at..self.at);
            let is_quote = |letter: char| "'\"\\".contains(letter);
            self.pending.push(PendingText {
                command: usize::MAX,
                redirection: index,
                delimiter: raw.replace(is_quote, ""),
                announced: start..self.at,
                literal: raw.contains(is_quote),
                strips_tabs: operator == "<<-",
            });
        }
        Ok(Some(Redirection { operator, target }))
    }

    /// Reads the here-documents announced on the line before.
    pub(super) fn here_documents(&mut self) -> Read<()> {
        for pending in std::mem::take(&mut self.pending) {
            let start = self.at;
            let mut stop = self.end;
            let mut ended = false;
            while self.at < self.end && !ended {
                let line = self.run(|byte| byte != b'\n');
                let text = match pending.strips_tabs {
                    true => line.trim_start_matches('\t'),
                    false => line,
                };
                // bash takes a carriage return as part of the delimiter where the document is announced, too.
                ended = text.strip_suffix('\r').unwrap_or(text) == pending.delimiter;
                if ended {
                    stop = self.at;
                }
                self.at = (self.at + line.len() + 1).min(self.end);
            }
            if !ended {
                self.script.unclosed.push(pending.announced);
            }
            let target = match pending.literal {
                true => ShellWord::quoted(start..stop, self.slice(start..stop)),
                // bash parses it only when it runs the command.
                false => match self.part_of_text(start..stop) {
                    Err(fault) if fault.too_deep => return Err(fault),
                    Err(_) => ShellWord::quoted(start..stop, self.slice(start..stop)),
                    Ok(word) => word,
                },
            };
            let command = self.script.commands.get_mut(pending.command);
            let found = command.and_then(|command| command.redirections.get_mut(pending.redirection));
            if let Some(redirection) = found {
                redirection.target = target;
            }
        }
        Ok(())
    }
}
