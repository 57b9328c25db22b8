//! Splitting a command into words. There is no shell: quotes and backslashes join characters into words, and all other
//! shell syntax is refused by name, so that no caller wrongly expects it to work.

use ringfence_types::RequestError;
use std::fmt::{self, Write};

pub const COMMAND_BYTES_MAX: usize = 8192;
const WORDS_MAX: usize = 128;

/// The words of a command; there is at least one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Words(Vec<String>);

impl Words {
    /// Splits a command line into words.
    pub fn read(command: &str) -> Result<Self, RequestError> {
        if command.len() > COMMAND_BYTES_MAX {
            return Err(refused(&format!("has more than {COMMAND_BYTES_MAX} bytes")));
        }
        let mut reader = Reader {
            rest: command.chars(),
            words: Vec::new(),
            word: None,
        };
        reader.read().map_err(|what| refused(&what))?;
        match reader.words.len() {
            0 => Err(refused("is empty")),
            1..=WORDS_MAX => Ok(Self(reader.words)),
            _ => Err(refused(&format!("has more than {WORDS_MAX} words"))),
        }
    }

    /// Returns the program as the caller wrote it.
    pub fn program(&self) -> &str {
        &self.0[0]
    }

    pub fn arguments(&self) -> &[String] {
        &self.0[1..]
    }

    pub fn all(&self) -> &[String] {
        &self.0
    }
}

/// Writes each word quoted and escaped separately, so that no word can look like two, or like another.
impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, word) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_char(' ')?;
            }
            f.write_str(&escaped(word))?;
        }
        Ok(())
    }
}

/// Renders a word for a person: unchanged if it is not empty and holds only simple characters, otherwise in quotation
/// marks with all characters but safe printable ASCII as `\u{...}`.
pub fn escaped(word: &str) -> String {
    let is_simple = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_simple) {
        return word.to_owned();
    }
    let mut text = String::from("\"");
    for c in word.chars() {
        match c {
            ' '..='~' if !"\"\\`<>[]".contains(c) => text.push(c),
            other => text.extend(other.escape_unicode()),
        }
    }
    text.push('"');
    text
}

fn refused(what: &str) -> RequestError {
    RequestError::invalid(
        format!("the command {what}."),
        "A command is a program and its words, without a shell: quote what is meant literally, and ask for one command at a time.",
    )
}

struct Reader<'a> {
    rest: std::str::Chars<'a>,
    words: Vec<String>,
    word: Option<String>,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<(), String> {
        while let Some(c) = self.rest.next() {
            match c {
                ' ' | '\t' => self.words.extend(self.word.take()),
                '\'' => self.single()?,
                '"' => self.double()?,
                '\\' => match self.rest.next() {
                    Some(next) if !next.is_control() => self.word().push(next),
                    _ => {
                        return Err("ends with a backslash, or has one before a control character".to_owned());
                    }
                },
                _ => match self.shell_syntax(c) {
                    Some(what) => return Err(format!("has {what}, which nothing here interprets")),
                    None => self.word().push(c),
                },
            }
        }
        self.words.extend(self.word.take());
        Ok(())
    }

    fn word(&mut self) -> &mut String {
        self.word.get_or_insert_default()
    }

    fn single(&mut self) -> Result<(), String> {
        self.word();
        loop {
            match self.rest.next() {
                Some('\'') => return Ok(()),
                Some(c) if c.is_control() => return Err(control(c)),
                Some(c) => self.word().push(c),
                None => return Err("has a quotation mark without its end".to_owned()),
            }
        }
    }

    fn double(&mut self) -> Result<(), String> {
        self.word();
        loop {
            match self.rest.next() {
                Some('"') => return Ok(()),
                Some('$') => return Err(format!("has {}, which nothing here interprets", self.dollar())),
                Some('`') => {
                    return Err("has a command substitution (`), which nothing here interprets".to_owned());
                }
                Some('\\') => match self.rest.next() {
                    Some(c @ ('"' | '\\' | '$' | '`')) => self.word().push(c),
                    Some(c) if !c.is_control() => self.word().extend(['\\', c]),
                    _ => return Err("has a quotation mark without its end".to_owned()),
                },
                Some(c) if c.is_control() => return Err(control(c)),
                Some(c) => self.word().push(c),
                None => return Err("has a quotation mark without its end".to_owned()),
            }
        }
    }

    fn next_is(&self, c: char) -> bool {
        self.rest.clone().next() == Some(c)
    }

    fn dollar(&self) -> &'static str {
        match self.next_is('(') {
            true => "a command substitution ($()",
            false => "a variable ($)",
        }
    }

    /// Returns the name of the shell syntax that this character begins outside of quotes.
    fn shell_syntax(&self, c: char) -> Option<String> {
        let name = match c {
            ';' => "the operator `;`",
            '&' if self.next_is('&') => "the operator `&&`",
            '&' => "the operator `&`",
            '|' if self.next_is('|') => "the operator `||`",
            '|' => "a pipe (`|`)",
            '<' if self.next_is('(') => "a process substitution (`<(`)",
            '>' if self.next_is('(') => "a process substitution (`>(`)",
            '<' | '>' => "a redirection (`<` or `>`)",
            '$' => self.dollar(),
            '`' => "a command substitution (`)",
            '(' | ')' => "a subshell (parentheses)",
            '*' | '?' | '[' | ']' => "a glob (`*`, `?` or brackets)",
            '{' | '}' => "a brace expansion",
            '~' if self.word.is_none() => "a home directory (`~`)",
            '#' if self.word.is_none() => "a comment (`#`)",
            '!' if self.word.is_none() => "a history expansion (`!`)",
            c if c.is_control() => return Some(control_name(c)),
            _ => return None,
        };
        Some(name.to_owned())
    }
}

fn control(c: char) -> String {
    format!("has {}", control_name(c))
}

fn control_name(c: char) -> String {
    match c {
        '\n' | '\r' => "a line break".to_owned(),
        '\0' => "a NUL".to_owned(),
        c => format!("a control character (U+{:04X})", u32::from(c)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(command: &str) -> Vec<String> {
        Words::read(command).unwrap().all().to_vec()
    }

    #[test]
    fn quotes_join_words_and_nothing_is_expanded() {
        let check = |command: &str, expect: &[&str]| assert_eq!(read(command), expect, "{command}");
        check("git  status", &["git", "status"]);
        check("ls 'a b' \"c d\" e\\ f", &["ls", "a b", "c d", "e f"]);
        check("x '' \"\"", &["x", "", ""]);
        check("x ';|&$`*'", &["x", ";|&$`*"]);
        check(r#"x "a\"b\\c\d""#, &["x", r#"a"b\c\d"#]);
        check("x a#b a~ a!", &["x", "a#b", "a~", "a!"]);
        check("git show HEAD^2 é", &["git", "show", "HEAD^2", "é"]);
    }

    #[test]
    fn shell_syntax_is_refused_by_name() {
        for (command, name) in [
            ("a; b", "operator `;`"),
            ("a && b", "operator `&&`"),
            ("a & b", "operator `&`"),
            ("a || b", "operator `||`"),
            ("a | b", "pipe"),
            ("a > b", "redirection"),
            ("a 2>&1", "redirection"),
            ("a <(b)", "process substitution"),
            ("a $(b)", "command substitution"),
            ("a \"$(b)\"", "command substitution"),
            ("a `b`", "command substitution"),
            ("a \"`b`\"", "command substitution"),
            ("a $HOME", "variable"),
            ("a \"${HOME}\"", "variable"),
            ("(a)", "subshell"),
            ("a *.c", "glob"),
            ("a ?.c", "glob"),
            ("a [ab]", "glob"),
            ("a {b,c}", "brace"),
            ("a ~/b", "home directory"),
            ("a #b", "comment"),
            ("!!", "history"),
            ("a\nb", "line break"),
            ("a 'b\nc'", "line break"),
            ("a \0", "NUL"),
            ("a \u{1b}[2J", "control character"),
            ("a \"b", "without its end"),
            ("a 'b", "without its end"),
            ("a\\", "backslash"),
            ("  ", "empty"),
        ] {
            let refused = Words::read(command).unwrap_err();
            assert!(refused.message.contains(name), "{command:?}: {refused}");
        }
        assert!(Words::read(&"a ".repeat(129)).is_err());
        assert!(Words::read(&"a".repeat(COMMAND_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn escaped_words_are_unambiguous() {
        let check = |word: &str, expect: &str| assert_eq!(escaped(word), expect);
        check("restart", "restart");
        check("a b", "\"a b\"");
        check("", "\"\"");
        check("a\" \"b", "\"a\\u{22} \\u{22}b\"");
        check("\u{202e}x\u{1b}", "\"\\u{202e}x\\u{1b}\"");
        check("wеb", "\"w\\u{435}b\"");
    }

    proptest! {
        /// Words quoted for a shell are read back unchanged.
        #[test]
        fn quoted_words_round_trip(words in proptest::collection::vec("[^\\x00-\\x1f\\x7f\\x80-\\x9f]{0,12}", 1..8)) {
            let quote = |word: &String| format!("'{}'", word.replace('\'', "'\\''"));
            let command = words.iter().map(quote).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(read(&command), words);
        }

        #[test]
        fn reading_any_text_does_not_panic(text in ".*") {
            if let Ok(words) = Words::read(&text) {
                prop_assert!(!words.all().is_empty());
                prop_assert!(words.to_string().chars().all(|c| (' '..='~').contains(&c)));
            }
        }
    }
}
