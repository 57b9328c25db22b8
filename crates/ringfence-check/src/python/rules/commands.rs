//! Commands that are handed to a shell, or started with their arguments, read as a shell reads them; and directories
//! that are deleted with everything in them.

use super::{FILE_DELETION, walk::Walk};
use crate::{python::meaning::Meaning, rule::Finding, shell};
use ringfence_types::Severity;
use ruff_python_ast::{Arguments, Expr};
use ruff_text_size::TextRange;

/// Of the text of a finding.
const SHOWN_CHARS_MAX: usize = 80;

/// Who reads the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandReader {
    Shell,
    /// The kernel: a program with its arguments.
    Kernel,
}

impl<'a> Walk<'a, '_, '_> {
    /// `os.system('...')`, `subprocess.run([...])`.
    pub(super) fn command(&mut self, arguments: &'a Arguments, range: TextRange, reader: CommandReader) {
        let Some(first) = ["args", "command", "cmd"]
            .iter()
            .find_map(|name| arguments.find_argument_value(name, 0))
        else {
            return;
        };
        let command = match (reader, self.value_of(first)) {
            (CommandReader::Kernel, Expr::List(words)) => self.words(&words.elts),
            (CommandReader::Kernel, Expr::Tuple(words)) => self.words(&words.elts),
            (CommandReader::Shell, _) => self.meanings.of(first).as_text().map(str::to_owned),
            _ => None,
        };
        let Some(command) = command else { return };
        let Some(left) = self.command_bytes.checked_sub(command.len()) else {
            return;
        };
        self.command_bytes = left;
        for found in shell::check(&command).findings {
            let id = found.rule.id;
            if found.severity > Severity::Info && !id.ends_with(".syntax") && !id.ends_with(".unparsed") {
                self.add(Finding {
                    range: range.to_std_range(),
                    ..found
                });
            }
        }
    }

    /// Each in quotes, so that a shell takes it as it is.
    fn words(&self, words: &'a [Expr]) -> Option<String> {
        let quoted = |word| match self.meanings.of(word) {
            Meaning::Text(text) => Some(format!("'{}'", text.replace('\'', "'\\''"))),
            _ => None,
        };
        let all: Option<Vec<String>> = words.iter().map(quoted).collect();
        all.map(|words| words.join(" "))
    }

    /// `shutil.rmtree('/')`.
    pub(super) fn tree_deleted(&mut self, path: &str, arguments: &'a Arguments, range: TextRange) {
        let Some(first) = ["path", "name"]
            .iter()
            .find_map(|name| arguments.find_argument_value(name, 0))
        else {
            return;
        };
        let Meaning::Text(place) = self.meanings.of(first) else {
            return;
        };
        if shell::loses_much(&place) {
            let shown: String = place.chars().take(SHOWN_CHARS_MAX).collect();
            self.add(Finding {
                range: range.to_std_range(),
                rule: &FILE_DELETION,
                severity: Severity::Error,
                what: format!("`{path}` deletes `{shown}` with everything in it"),
                hint: Some("Delete a directory of the workspace by its relative name.".to_owned()),
            });
        }
    }
}
