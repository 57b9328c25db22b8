//! Reads compound commands: blocks, branches, loops, tests and functions.

use super::{
    reader::{Read, Reader, ends_word, fault},
    syntax::{Function, ShellWord},
    word::Within,
};
use std::ops::Range;

const OPENING: [&str; 8] = ["if", "while", "until", "for", "select", "case", "{", "[["];

impl<'a> Reader<'a> {
    pub(super) fn command(&mut self) -> Read<()> {
        let start = self.at;
        if self.byte() == Some(b'(') {
            self.parenthesis()?;
            return self.redirections_after(start);
        }
        match self.peek_word() {
            word if OPENING.contains(&word) => {
                self.within(|reader| reader.compound(word))?;
                self.redirections_after(start)
            }
            "function" => self.function(),
            "time" => {
                self.at += "time".len();
                self.skip_blanks();
                self.take("-p");
                self.skip_blanks();
                match self.byte() {
                    None | Some(b'\n' | b';' | b'&' | b'|' | b')') => Ok(()),
                    _ => self.within(Self::command),
                }
            }
            "coproc" => self.coprocess(),
            _ if self.closes() => Err(self.stray()),
            _ => self.simple(),
        }
    }

    fn coprocess(&mut self) -> Read<()> {
        self.at += "coproc".len();
        self.skip_blanks();
        let named = self.at;
        // `coproc NAME { … }`
        self.at += self.peek_word().len();
        self.skip_blanks();
        if !OPENING.contains(&self.peek_word()) && self.byte() != Some(b'(') {
            self.at = named;
        }
        self.within(Self::command)
    }

    /// Reads `( list )` or `(( arithmetic ))`.
    fn parenthesis(&mut self) -> Read<()> {
        let start = self.at;
        if self.byte_at(1) == Some(b'(')
            && let Some(after) = self.arithmetic_end(self.at + 1)
        {
            self.at = after;
            return Ok(());
        }
        self.at += 1;
        self.skip_lines()?;
        match self.byte() {
            Some(b')') => Err(self.stray()),
            _ => self.subshell(")", start).map(drop),
        }
    }

    fn compound(&mut self, word: &'a str) -> Read<()> {
        let opened = self.at..self.at + word.len();
        self.at = opened.end;
        match word {
            "{" => self.until(&["}"], &opened).map(drop),
            "[[" => self.test(opened),
            "case" => self.case(&opened),
            "if" => {
                let mut end = "elif";
                while end == "elif" {
                    self.script.decisions += 1;
                    self.until(&["then"], &opened)?;
                    end = self.until(&["elif", "else", "fi"], &opened)?;
                }
                match end {
                    "else" => self.until(&["fi"], &opened).map(drop),
                    _ => Ok(()),
                }
            }
            "while" | "until" => {
                self.script.decisions += 1;
                self.until(&["do"], &opened)?;
                self.body(&opened)
            }
            _ => self.for_loop(&opened),
        }
    }

    /// Reads the body of a loop, up to `done`.
    fn body(&mut self, opened: &Range<usize>) -> Read<()> {
        let first = self.script.commands.len();
        self.until(&["done"], opened)?;
        self.script.loops.push(first..self.script.commands.len());
        Ok(())
    }

    fn for_loop(&mut self, opened: &Range<usize>) -> Read<()> {
        self.script.decisions += 1;
        self.skip_blanks();
        if self.is_at("((") {
            let unclosed = fault(self.at..self.at + 2, "`((` has no `))`");
            self.at = self.arithmetic_end(self.at + 1).ok_or(unclosed)?;
        } else {
            let name = self.expect_word()?.text();
            let mut values = Vec::new();
            self.skip_lines()?;
            if self.take("in") {
                self.skip_blanks();
                while let Some(value) = self.word()? {
                    values.extend(value.fields);
                    self.skip_blanks();
                }
            }
            self.variables.set(&name, values);
        }
        self.skip_blanks();
        self.sign(&[";"]);
        self.skip_lines()?;
        if self.peek_word() == "{" {
            return self.compound("{");
        }
        self.expect(&["do"], opened)?;
        self.body(opened)
    }

    pub(super) fn expect_word(&mut self) -> Read<ShellWord<'a>> {
        let word = self.word()?;
        word.ok_or_else(|| self.stray())
    }

    fn case(&mut self, opened: &Range<usize>) -> Read<()> {
        self.skip_blanks();
        self.expect_word()?;
        self.expect(&["in"], opened)?;
        loop {
            self.skip_lines()?;
            if self.at >= self.end || self.peek_word() == "esac" {
                return self.expect(&["esac"], opened).map(drop);
            }
            self.case_item(opened)?;
        }
    }

    fn case_item(&mut self, opened: &Range<usize>) -> Read<()> {
        self.script.decisions += 1;
        self.sign(&["("]);
        loop {
            self.skip_blanks();
            self.expect_word()?;
            self.skip_blanks();
            match self.byte() {
                Some(b'|') => self.at += 1,
                Some(b')') => break,
                None => return self.expect(&["esac"], opened).map(drop),
                Some(_) => return Err(self.stray()),
            }
        }
        self.at += 1;
        self.list()?;
        self.skip_lines()?;
        let ends = self.sign(&[";;&", ";;", ";&"]).is_some();
        match ends || self.peek_word() == "esac" || self.at >= self.end {
            true => Ok(()),
            false => Err(self.stray()),
        }
    }

    /// Reads `[[ … ]]`.
    fn test(&mut self, opened: Range<usize>) -> Read<()> {
        loop {
            self.skip_lines()?;
            if self.take("]]") {
                return Ok(());
            }
            match self.byte() {
                None => return Err(fault(opened, "`[[` has no `]]`")),
                Some(b'(' | b')' | b'<' | b'>' | b'!') => self.at += 1,
                Some(b'&' | b'|') if self.sign(&["&&", "||"]).is_some() => self.script.decisions += 1,
                Some(_) if self.take("=~") => {
                    self.skip_blanks();
                    self.pattern()?;
                }
                Some(_) => drop(self.expect_word()?),
            }
        }
    }

    fn function(&mut self) -> Read<()> {
        let start = self.at;
        self.at += "function".len();
        self.skip_blanks();
        let name = self.peek_word();
        if name.is_empty() {
            self.at = start;
            return self.simple();
        }
        self.at += name.len();
        self.skip_blanks();
        if self.byte() == Some(b'(') {
            self.parameters()?;
        }
        self.function_body(name, start)
    }

    /// Reads `()` after the name of a function.
    pub(super) fn parameters(&mut self) -> Read<()> {
        let opened = self.at;
        self.at += 1;
        self.skip_blanks();
        if self.sign(&[")"]).is_some() {
            return Ok(());
        }
        self.at = opened;
        Err(self.stray())
    }

    pub(super) fn function_body(&mut self, name: &'a str, start: usize) -> Read<()> {
        self.skip_lines()?;
        let first = self.script.commands.len();
        if self.byte() != Some(b'(') && !OPENING.contains(&self.peek_word()) {
            return Err(match self.at >= self.end {
                true => fault(start..start + name.len(), format!("`{name}()` has no body")),
                false => self.stray(),
            });
        }
        self.within(Self::command)?;
        self.script.functions.push(Function {
            name,
            range: start..self.at,
            commands: first..self.script.commands.len(),
        });
        Ok(())
    }

    /// Returns the position after the parenthesis that closes the one at `from`; quoted text is skipped.
    pub(super) fn parenthesis_end(&self, from: usize) -> Option<usize> {
        let bytes = self.slice(0..self.end).as_bytes();
        let mut depth = 0_usize;
        let mut at = from;
        while at < bytes.len() {
            match bytes[at] {
                b'\\' => at += 1,
                quote @ (b'\'' | b'"') => {
                    at += 1;
                    while at < bytes.len() && bytes[at] != quote {
                        at += if bytes[at] == b'\\' && quote == b'"' { 2 } else { 1 };
                    }
                }
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            at += 1;
            if depth == 0 {
                return Some(at);
            }
        }
        None
    }

    /// Returns the position after `))`, if `from`, the second of `((`, is closed by the first of `))`.
    pub(super) fn arithmetic_end(&self, from: usize) -> Option<usize> {
        let after = self.parenthesis_end(from)?;
        self.slice(after..self.end).starts_with(')').then_some(after + 1)
    }

    /// Reads the regular expression after `=~`.
    fn pattern(&mut self) -> Read<()> {
        let mut depth = 0_usize;
        while let Some(byte) = self.byte() {
            match byte {
                b'(' => depth += 1,
                b')' if depth > 0 => depth -= 1,
                _ if depth == 0 && ends_word(byte) && !b"|<>&;".contains(&byte) => break,
                b'\'' | b'"' | b'\\' | b'$' | b'`' => {
                    self.piece(byte, Within::Word, &mut ShellWord::default())?;
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
        Ok(())
    }
}
