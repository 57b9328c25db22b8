//! Reads simple commands: assignments, words, redirections, and the here-documents that begin on the next line.

use super::{
    reader::{Body, Pending, Read, Reader},
    syntax::{Command, FaultKind, Redirection, Role, ShellWord},
};

impl<'a> Reader<'a> {
    /// Assignments, words and redirections up to a sign or the end of the line.
    pub(super) fn simple(&mut self) -> Read<()> {
        let start = self.at;
        // Commands within its words come before it in the list.
        let mut made = self.blank_command(start, Role::Simple);
        let heredocs = self.pending.len();
        let mut end = start;
        loop {
            self.skip_blanks();
            if let Some(redirection) = self.redirection(made.redirections.len())? {
                made.redirections.push(redirection);
            } else if made.words.is_empty()
                && let Some(assignment) = self.assignment()?
            {
                made.assignments.push(assignment);
            } else if self.byte() == Some(b'(') && made.words.len() == 1 && made.assignments.is_empty() {
                return self.function_after(&made, start);
            } else if let Some(word) = self.argument(&mut made)? {
                made.words.push(word);
            } else {
                break;
            }
            end = self.at;
        }
        made.range = start..end;
        if end > start {
            self.place(made, heredocs);
        }
        Ok(())
    }

    pub(super) fn argument(&mut self, made: &mut Command<'a>) -> Read<Option<ShellWord<'a>>> {
        let declares = made.words.first().is_some_and(|word| {
            matches!(
                self.slice(word.range.clone()),
                "declare" | "typeset" | "export" | "readonly" | "local" | "alias"
            )
        });
        if declares {
            let at = self.at;
            if let Some(assignment) = self.assignment()? {
                let word = ShellWord {
                    range: at..self.at,
                    parts: Vec::new(),
                };
                made.assignments.push(assignment);
                return Ok(Some(word));
            }
        }
        self.word()
    }

    pub(super) fn function_after(&mut self, made: &Command<'a>, start: usize) -> Read<()> {
        let opened = self.at;
        self.at += 1;
        self.skip_blanks();
        if self.byte() != Some(b')') {
            self.at = opened;
            return Err(self.stray());
        }
        self.at += 1;
        let name = made.words.first().map(|word| self.slice(word.range.clone()));
        self.function_body(name.unwrap_or_default(), start)
    }

    /// `[n]op word`
    pub(super) fn redirection(&mut self, place: usize) -> Read<Option<Redirection<'a>>> {
        let start = self.at;
        let digits = self.descriptor();
        self.at += digits;
        let Some(operator) = self.redirection_operator() else {
            self.at = start;
            return Ok(None);
        };
        self.at += operator.len();
        self.skip_blanks();
        let here = operator == "<<" || operator == "<<-";
        let target_at = self.at;
        let Some(target) = self.word()? else {
            return Err(self.stray());
        };
        if here {
            let raw = self.slice(target_at..self.at);
            self.pending.push(Pending {
                command: usize::MAX,
                redirection: place,
                delimiter: raw.chars().filter(|c| !"'\"\\".contains(*c)).collect(),
                announced: start..self.at,
                body: Body {
                    literal: raw.contains(['\'', '"', '\\']),
                    tabs: operator == "<<-",
                },
            });
        }
        Ok(Some(Redirection { operator, target }))
    }

    /// How many bytes before `<` or `>` name the descriptor.
    pub(super) fn descriptor(&self) -> usize {
        let rest = &self.text.as_bytes()[self.at..self.end];
        let length = match rest.first() {
            Some(b'0'..=b'9') => rest.iter().take(9).take_while(|b| b.is_ascii_digit()).count(),
            Some(b'{') => {
                let name = rest[1..]
                    .iter()
                    .take(64)
                    .take_while(|b| b.is_ascii_alphanumeric() || **b == b'_')
                    .count();
                match name > 0 && rest.get(1 + name) == Some(&b'}') {
                    true => name + 2,
                    false => 0,
                }
            }
            _ => 0,
        };
        match rest.get(length) {
            Some(b'<' | b'>') => length,
            _ => 0,
        }
    }

    pub(super) fn redirection_operator(&self) -> Option<&'a str> {
        if self.looks_at("<(") || self.looks_at(">(") {
            return None;
        }
        let all = [
            "<<<", "<<-", "<<", "<&", "<>", "<", "&>>", "&>", ">>", ">&", ">|", ">",
        ];
        let sign = all.into_iter().find(|sign| self.looks_at(sign))?;
        Some(self.slice(self.at..self.at + sign.len()))
    }

    /// The texts that were announced on the line before.
    pub(super) fn here_documents(&mut self) -> Read<()> {
        for pending in std::mem::take(&mut self.pending) {
            let start = self.at;
            let mut stop = self.end;
            let mut next = self.end;
            let mut ended = false;
            let mut line = start;
            while line < self.end {
                let rest = self.slice(line..self.end);
                let length = rest.find('\n').unwrap_or(rest.len());
                let ends = match pending.body.tabs {
                    true => rest[..length].trim_start_matches('\t'),
                    false => &rest[..length],
                };
                // To bash the carriage return belongs to the word where it is announced, too.
                if ends.strip_suffix('\r').unwrap_or(ends) == pending.delimiter {
                    ended = true;
                    stop = line;
                    next = (line + length + 1).min(self.end);
                    break;
                }
                line += length + 1;
            }
            self.at = next;
            if !ended {
                self.script.endless.push(pending.announced);
            }
            let target = match pending.body.literal {
                true => ShellWord::quoted(start..stop, self.slice(start..stop)),
                // bash looks into it only when it gets there.
                false => match self.part_of_text(start..stop) {
                    Err(fault) if fault.kind == FaultKind::Nested => return Err(fault),
                    Err(_) => ShellWord::quoted(start..stop, self.slice(start..stop)),
                    Ok(word) => word,
                },
            };
            let found = self
                .script
                .commands
                .get_mut(pending.command)
                .and_then(|command| command.redirections.get_mut(pending.redirection));
            if let Some(redirection) = found {
                redirection.target = target;
            }
        }
        Ok(())
    }
}
