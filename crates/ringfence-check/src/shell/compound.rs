//! Reads what consists of other commands: blocks, branches, loops, tests and functions.

use super::{
    reader::{Read, Reader},
    syntax::{Function, Role},
};

impl<'a> Reader<'a> {
    /// `( list )` or `(( arithmetic ))`
    pub(super) fn parenthesis(&mut self) -> Read<()> {
        let start = self.at;
        if self.byte_at(1) == Some(b'(')
            && let Some(after) = self.arithmetic_end(self.at + 1)
        {
            self.at = after;
            self.push_test(start);
            return self.redirections_after(start);
        }
        self.at += 1;
        self.skip_lines()?;
        if self.byte() == Some(b')') {
            return Err(self.stray());
        }
        self.subshell(")", start)?;
        self.redirections_after(start)
    }

    pub(super) fn push_test(&mut self, start: usize) {
        let made = self.blank_command(start, Role::Test);
        self.script.commands.push(made);
    }

    pub(super) fn group(&mut self) -> Read<()> {
        let opened = self.at;
        self.at += 1;
        self.some_list()?;
        self.expect("}", "{", opened)
    }

    pub(super) fn if_command(&mut self) -> Read<()> {
        let opened = self.at;
        self.at += "if".len();
        loop {
            self.script.decisions += 1;
            self.some_list()?;
            self.expect("then", "if", opened)?;
            self.some_list()?;
            self.skip_lines()?;
            if !self.take("elif") {
                break;
            }
        }
        if self.take("else") {
            self.some_list()?;
        }
        self.expect("fi", "if", opened)
    }

    pub(super) fn while_command(&mut self) -> Read<()> {
        let opened = self.at;
        let word = self.peek_word();
        self.at += word.len();
        self.script.decisions += 1;
        self.some_list()?;
        self.expect("do", word, opened)?;
        self.body(word, opened)
    }

    /// What is done again and again, up to `done`.
    fn body(&mut self, word: &str, opened: usize) -> Read<()> {
        let first = self.script.commands.len();
        self.some_list()?;
        self.script.loops.push(first..self.script.commands.len());
        self.expect("done", word, opened)
    }

    pub(super) fn for_command(&mut self) -> Read<()> {
        let opened = self.at;
        let word = self.peek_word();
        self.at += word.len();
        self.script.decisions += 1;
        self.skip_blanks();
        if self.looks_at("((") {
            let Some(after) = self.arithmetic_end(self.at + 1) else {
                return Err(self.open_fault(self.at..self.at + 2, "`((` has no `))`".to_owned()));
            };
            self.at = after;
            self.skip_blanks();
        } else {
            self.for_values(opened)?;
        }
        if self.byte() == Some(b';') {
            self.at += 1;
        }
        self.skip_lines()?;
        if self.peek_word() == "{" {
            return self.group();
        }
        self.expect("do", word, opened)?;
        self.body(word, opened)
    }

    pub(super) fn for_values(&mut self, opened: usize) -> Read<()> {
        let mut made = self.blank_command(opened, Role::Loop);
        match self.word()? {
            Some(name) => made.words.push(name),
            None => return Err(self.stray()),
        }
        self.skip_lines()?;
        if self.take("in") {
            loop {
                self.skip_blanks();
                match self.word()? {
                    Some(value) => made.words.push(value),
                    None => break,
                }
            }
        }
        made.range.end = self.at;
        self.script.commands.push(made);
        self.skip_blanks();
        Ok(())
    }

    pub(super) fn case_command(&mut self) -> Read<()> {
        let opened = self.at;
        self.at += "case".len();
        self.skip_blanks();
        let mut made = self.blank_command(opened, Role::Test);
        match self.word()? {
            Some(value) => made.words.push(value),
            None => return Err(self.stray()),
        }
        self.script.commands.push(made);
        self.expect("in", "case", opened)?;
        loop {
            self.skip_lines()?;
            if self.take("esac") {
                return Ok(());
            }
            if self.at >= self.end {
                return self.expect("esac", "case", opened);
            }
            self.case_item(opened)?;
        }
    }

    pub(super) fn case_item(&mut self, opened: usize) -> Read<()> {
        self.script.decisions += 1;
        if self.byte() == Some(b'(') {
            self.at += 1;
        }
        let mut made = self.blank_command(self.at, Role::Test);
        loop {
            self.skip_blanks();
            match self.word()? {
                Some(pattern) => made.words.push(pattern),
                None => return Err(self.stray()),
            }
            self.skip_blanks();
            match self.byte() {
                Some(b'|') => self.at += 1,
                Some(b')') => break,
                _ if self.at >= self.end => return self.expect("esac", "case", opened),
                _ => return Err(self.stray()),
            }
        }
        self.script.commands.push(made);
        self.at += 1;
        self.list()?;
        self.skip_lines()?;
        for sign in [";;&", ";;", ";&"] {
            if self.looks_at(sign) {
                self.at += sign.len();
                return Ok(());
            }
        }
        match self.peek_word() == "esac" || self.at >= self.end {
            true => Ok(()),
            false => Err(self.stray()),
        }
    }

    pub(super) fn test(&mut self) -> Read<()> {
        let opened = self.at;
        self.at += 2;
        let mut made = self.blank_command(opened, Role::Test);
        loop {
            self.skip_lines()?;
            if self.take("]]") {
                made.range.end = self.at;
                self.script.commands.push(made);
                return Ok(());
            }
            match self.byte() {
                None => {
                    return Err(self.open_fault(opened..opened + 2, "`[[` has no `]]`".to_owned()));
                }
                Some(b'(' | b')' | b'<' | b'>' | b'!') => self.at += 1,
                Some(b'&' | b'|') if matches!(self.byte_at(1), Some(b'&' | b'|')) => {
                    self.at += 2;
                    self.script.decisions += 1;
                }
                Some(_) if self.peek_word() == "=~" => {
                    self.at += 2;
                    self.skip_blanks();
                    made.words.extend(self.pattern()?);
                }
                Some(_) => match self.word()? {
                    Some(word) => made.words.push(word),
                    None => return Err(self.stray()),
                },
            }
        }
    }

    pub(super) fn function(&mut self) -> Read<()> {
        let start = self.at;
        self.at += "function".len();
        self.skip_blanks();
        let name = self.peek_word();
        if name.is_empty() {
            return self.simple_from(start);
        }
        self.at += name.len();
        self.skip_blanks();
        if self.byte() == Some(b'(') {
            self.at += 1;
            self.skip_blanks();
            self.expect_sign(")", self.at - 1)?;
        }
        self.function_body(name, start)
    }

    /// `function` alone is a command that does not exist.
    pub(super) fn simple_from(&mut self, start: usize) -> Read<()> {
        self.at = start;
        self.simple()
    }

    pub(super) fn function_body(&mut self, name: &'a str, start: usize) -> Read<()> {
        self.skip_lines()?;
        let first = self.script.commands.len();
        let opens = self.byte() == Some(b'(')
            || matches!(
                self.peek_word(),
                "{" | "if" | "while" | "until" | "for" | "select" | "case" | "[["
            );
        if !opens {
            return match self.at >= self.end {
                true => Err(self.open_fault(start..start + name.len(), format!("`{name}()` has no body"))),
                false => Err(self.stray()),
            };
        }
        self.within(Self::command)?;
        self.script.functions.push(Function {
            name,
            range: start..self.at,
            commands: first..self.script.commands.len(),
        });
        Ok(())
    }
}
