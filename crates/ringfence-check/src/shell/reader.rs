//! Reads a script into commands, in one pass and in memory that grows with its length. tree-sitter's grammar takes
//! `{rm,-rf,/}` for the beginning of a block and the words after `2>&1` for files, and remembers 2 GiB of 64 KiB of
//! broken pipelines.

use super::syntax::{Assignment, Command, Fault, FaultKind, Inside, Pipeline, Role, Script, ShellWord};
use std::ops::Range;

/// Of blocks and substitutions within each other; people stay below twenty.
const DEPTH_MAX: u32 = 64;
const FAULTS_MAX: usize = 20;
/// Words that close or continue what another word opened.
const CLOSING: [&str; 10] = ["then", "elif", "else", "fi", "do", "done", "esac", "}", ")", ";;"];

pub(super) type Read<T> = Result<T, Fault>;

pub(super) struct Reader<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    /// The text goes on after it, but not for what is read now.
    pub(super) end: usize,
    pub(super) depth: u32,
    pub(super) script: Script<'a>,
    pub(super) shell: u32,
    shells: u32,
    /// Here-documents whose text begins on the next line: the command, the redirection, and how it ends.
    pub(super) pending: Vec<Pending>,
}

pub(super) struct Pending {
    pub(super) command: usize,
    pub(super) redirection: usize,
    pub(super) delimiter: String,
    /// Where that stands.
    pub(super) announced: Range<usize>,
    pub(super) body: Body,
}

/// How a here-document is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Body {
    /// As it stands.
    pub(super) literal: bool,
    /// Without the tabs before its end.
    pub(super) tabs: bool,
}

/// The whole script. Never fails: what cannot be read is among the faults.
pub(super) fn read(text: &str) -> Script<'_> {
    let mut reader = Reader {
        text,
        at: 0,
        end: text.len(),
        depth: 0,
        script: Script::default(),
        shell: 0,
        shells: 0,
        pending: Vec::new(),
    };
    while reader.at < reader.end && reader.script.faults.len() < FAULTS_MAX {
        let before = reader.at;
        let fault = match reader.list() {
            Ok(()) if reader.at >= reader.end => break,
            Ok(()) => reader.stray(),
            Err(fault) => fault,
        };
        let goes_on = fault.kind != FaultKind::Nested;
        reader.script.faults.push(fault);
        if !goes_on {
            break;
        }
        reader.depth = 0;
        reader.shell = 0;
        reader.end = text.len();
        reader.skip_one(before);
    }
    let waiting = std::mem::take(&mut reader.pending);
    reader
        .script
        .endless
        .extend(waiting.into_iter().map(|pending| pending.announced));
    reader.script
}

impl<'a> Reader<'a> {
    pub(super) fn byte(&self) -> Option<u8> {
        self.byte_at(0)
    }

    pub(super) fn byte_at(&self, ahead: usize) -> Option<u8> {
        let at = self.at + ahead;
        (at < self.end).then(|| self.text.as_bytes()[at])
    }

    pub(super) fn looks_at(&self, text: &str) -> bool {
        self.text
            .as_bytes()
            .get(self.at..self.end)
            .is_some_and(|rest| rest.starts_with(text.as_bytes()))
    }

    pub(super) fn slice(&self, range: Range<usize>) -> &'a str {
        self.text.get(range).unwrap_or_default()
    }

    pub(super) fn open_fault(&self, range: Range<usize>, what: String) -> Fault {
        Fault {
            range,
            kind: FaultKind::Open,
            what,
        }
    }

    pub(super) fn stray(&self) -> Fault {
        let word = match self.peek_word() {
            "" => self.operator(),
            word => word,
        };
        let range = self.at..(self.at + word.len().max(1)).min(self.end);
        let what = match word {
            "" => "the script ends where a command has to follow".to_owned(),
            "\n" => "the line ends where a command has to follow".to_owned(),
            word => format!("`{word}` cannot stand here"),
        };
        Fault {
            range,
            kind: FaultKind::Stray,
            what,
        }
    }

    /// The sign at this place, or the character.
    pub(super) fn operator(&self) -> &'a str {
        for sign in ["&&", "||", ";;&", ";;", ";&", "|&"] {
            if self.looks_at(sign) {
                return self.slice(self.at..self.at + sign.len());
            }
        }
        let length = self
            .slice(self.at..self.end)
            .chars()
            .next()
            .map_or(0, char::len_utf8);
        self.slice(self.at..self.at + length)
    }

    /// After a fault: on with what follows the word or sign at which it is noticed.
    pub(super) fn skip_one(&mut self, before: usize) {
        if self.at > before && self.byte() == Some(b'\n') {
            return;
        }
        let word = self.peek_word().len();
        self.at += match word {
            0 => self.operator().len().max(1),
            word => word,
        };
    }

    /// Goes down one level, or refuses to.
    pub(super) fn within<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        if self.depth >= DEPTH_MAX {
            return Err(Fault {
                range: self.at..self.end,
                kind: FaultKind::Nested,
                what: format!("commands are nested more than {DEPTH_MAX} levels deep"),
            });
        }
        self.depth += 1;
        let told = read(self);
        self.depth -= 1;
        told
    }

    /// The same in a shell of its own.
    pub(super) fn subshell(&mut self, close: &str, opened: usize) -> Read<Inside> {
        let outer = self.shell;
        self.shells += 1;
        self.shell = self.shells;
        let before = self.here();
        let told = self.within(|reader| {
            reader.list()?;
            reader.expect_sign(close, opened)
        });
        self.shell = outer;
        told?;
        Ok(self.since(&before))
    }

    pub(super) fn here(&self) -> Inside {
        let (commands, pipelines) = (self.script.commands.len(), self.script.pipelines.len());
        Inside {
            commands: commands..commands,
            pipelines: pipelines..pipelines,
        }
    }

    pub(super) fn since(&self, before: &Inside) -> Inside {
        Inside {
            commands: before.commands.start..self.script.commands.len(),
            pipelines: before.pipelines.start..self.script.pipelines.len(),
        }
    }

    /// Blanks and continued lines; true: there was something.
    pub(super) fn skip_blanks(&mut self) -> bool {
        let before = self.at;
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
                _ => return self.at > before,
            }
        }
    }

    pub(super) fn skip_comment(&mut self) {
        if self.byte() == Some(b'#') {
            let rest = &self.text.as_bytes()[self.at..self.end];
            self.at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
        }
    }

    /// Blanks, comments and ends of lines, with the here-documents that begin there.
    pub(super) fn skip_lines(&mut self) -> Read<()> {
        loop {
            self.skip_blanks();
            self.skip_comment();
            if self.byte() != Some(b'\n') {
                return Ok(());
            }
            self.at += 1;
            self.here_documents()?;
        }
    }

    /// Letters up to a blank, a quote or a sign: a reserved word, perhaps.
    pub(super) fn peek_word(&self) -> &'a str {
        let rest = &self.text.as_bytes()[self.at.min(self.end)..self.end];
        // No reserved word is longer; a name that is goes on.
        let longest = rest.len().min(512);
        let length = rest[..longest]
            .iter()
            .position(|b| ends_word(*b) || QUOTES.contains(b));
        match length {
            Some(length) if QUOTES.contains(&rest[length]) => "",
            Some(length) => self.slice(self.at..self.at + length),
            None if longest == rest.len() => self.slice(self.at..self.end),
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

    pub(super) fn expect(&mut self, word: &str, opener: &str, opened: usize) -> Read<()> {
        self.skip_lines()?;
        match self.take(word) {
            true => Ok(()),
            false if self.at >= self.end => Err(self.open_fault(
                opened..(opened + opener.len()).min(self.end),
                format!("`{opener}` has no `{word}`"),
            )),
            false => Err(self.stray()),
        }
    }

    pub(super) fn expect_sign(&mut self, sign: &str, opened: usize) -> Read<()> {
        self.skip_lines()?;
        if self.looks_at(sign) {
            self.at += sign.len();
            return Ok(());
        }
        match self.at >= self.end {
            true => Err(self.open_fault(opened..opened + 1, format!("what is opened here has no `{sign}`"))),
            false => Err(self.stray()),
        }
    }

    /// Commands up to a word or sign that closes, or to the end.
    pub(super) fn list(&mut self) -> Read<()> {
        loop {
            self.skip_lines()?;
            if self.at >= self.end || self.closes() {
                return Ok(());
            }
            let first = self.script.commands.len();
            self.and_or()?;
            self.skip_blanks();
            match self.byte() {
                Some(b';') if self.byte_at(1) != Some(b';') && self.byte_at(1) != Some(b'&') => self.at += 1,
                Some(b'&') => {
                    self.at += 1;
                    self.script.commands[first..]
                        .iter_mut()
                        .for_each(|command| command.background = true);
                }
                Some(b'\n' | b'#') | None => {}
                Some(_) if self.closes() => return Ok(()),
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

    /// At least one command, then what closes.
    pub(super) fn some_list(&mut self) -> Read<()> {
        let before = self.script.commands.len();
        self.list()?;
        match self.script.commands.len() > before {
            true => Ok(()),
            // What was opened is reported where its end is waited for.
            false if self.at >= self.end => Ok(()),
            false => Err(self.stray()),
        }
    }

    pub(super) fn and_or(&mut self) -> Read<()> {
        loop {
            self.pipeline()?;
            self.skip_blanks();
            if !self.looks_at("&&") && !self.looks_at("||") {
                return Ok(());
            }
            self.at += 2;
            self.script.decisions += 1;
            self.skip_lines()?;
        }
    }

    pub(super) fn pipeline(&mut self) -> Read<()> {
        let start = self.at;
        let mut stages = Vec::new();
        let mut negated = false;
        loop {
            self.skip_blanks();
            if stages.is_empty() && self.take("!") {
                negated = true;
                continue;
            }
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
            self.at += if self.byte_at(1) == Some(b'&') { 2 } else { 1 };
            self.skip_lines()?;
            negated = false;
        }
        if stages.len() > 1 {
            let range = start..self.at;
            self.script.pipelines.push(Pipeline { range, stages });
        }
        Ok(())
    }

    pub(super) fn command(&mut self) -> Read<()> {
        if self.byte() == Some(b'(') {
            return self.parenthesis();
        }
        match self.peek_word() {
            "if" => self.compound(Self::if_command),
            "while" | "until" => self.compound(Self::while_command),
            "for" | "select" => self.compound(Self::for_command),
            "case" => self.compound(Self::case_command),
            "{" => self.compound(Self::group),
            "[[" => self.compound(Self::test),
            "function" => self.function(),
            "time" => {
                self.at += 4;
                self.skip_blanks();
                if self.take("-p") {
                    self.skip_blanks();
                }
                match self.byte() {
                    None | Some(b'\n' | b';' | b'&' | b'|' | b')') => Ok(()),
                    _ => self.within(Self::command),
                }
            }
            "coproc" => self.coprocess(),
            word if CLOSING.contains(&word) => Err(self.stray()),
            _ => self.simple(),
        }
    }

    pub(super) fn coprocess(&mut self) -> Read<()> {
        self.at += "coproc".len();
        self.skip_blanks();
        let named = self.at;
        // `coproc NAME { … }`
        self.at += self.peek_word().len();
        self.skip_blanks();
        if !matches!(self.peek_word(), "{" | "while" | "until" | "for" | "if" | "case")
            && self.byte() != Some(b'(')
        {
            self.at = named;
        }
        self.within(Self::command)
    }

    /// A compound command and the redirections after it.
    pub(super) fn compound(&mut self, read: impl FnOnce(&mut Self) -> Read<()>) -> Read<()> {
        let start = self.at;
        self.within(read)?;
        self.redirections_after(start)
    }

    pub(super) fn redirections_after(&mut self, start: usize) -> Read<()> {
        let heredocs = self.pending.len();
        let mut redirections = Vec::new();
        loop {
            self.skip_blanks();
            match self.redirection(redirections.len())? {
                Some(redirection) => redirections.push(redirection),
                None => break,
            }
        }
        if !redirections.is_empty() {
            let mut made = self.blank_command(start, Role::Compound);
            made.redirections = redirections;
            self.place(made, heredocs);
        }
        Ok(())
    }

    /// Puts a command into the list, and tells its here-documents where it is.
    pub(super) fn place(&mut self, command: Command<'a>, heredocs: usize) {
        let place = self.script.commands.len();
        for pending in self.pending.iter_mut().skip(heredocs) {
            pending.command = pending.command.min(place);
        }
        self.script.commands.push(command);
    }

    pub(super) fn blank_command(&self, start: usize, role: Role) -> Command<'a> {
        Command {
            range: start..self.at,
            role,
            assignments: Vec::new(),
            words: Vec::new(),
            redirections: Vec::new(),
            shell: self.shell,
            background: false,
        }
    }
}

const QUOTES: [u8; 5] = *b"'\"\\$`";

/// A blank or a sign that is not part of a word.
pub(super) fn ends_word(byte: u8) -> bool {
    matches!(
        byte,
        b' ' | b'\t' | b'\r' | b'\n' | b'|' | b'&' | b';' | b'(' | b')' | b'<' | b'>'
    )
}

impl<'a> Assignment<'a> {
    pub(super) fn value(&self) -> Option<&ShellWord<'a>> {
        self.values.first()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::value::*, *};

    fn commands_of(code: &str) -> Vec<String> {
        let script = read(code);
        assert_eq!(script.faults, [], "{code}");
        let values = Values::of(&script, None);
        let expander = Expander {
            script: &script,
            values: &values,
            outer: None,
        };
        let simple = script
            .commands
            .iter()
            .filter(|command| command.role == Role::Simple);
        simple
            .map(|command| {
                let texts: Vec<String> = expander
                    .fields(&command.words)
                    .into_iter()
                    .map(|f| f.text)
                    .collect();
                texts.join("|")
            })
            .collect()
    }

    #[track_caller]
    fn check(code: &str, expect: &[&str]) {
        assert_eq!(commands_of(code), expect, "{code}");
    }

    #[test]
    fn words_are_those_that_bash_sees() {
        check("r\\m -r'f' \"/\" # not this", &["rm|-rf|/"]);
        check("'r'm $'\\x72\\155' \"a\"b'c'", &["rm|rm|abc"]);
        check("{rm,-rf,/}", &["rm|-rf|/"]);
        check("echo a{b,c{d,e}}f {x} {a", &["echo|abf|acdf|acef|{x}|{a"]);
        check(
            "x=rm; y=\"-rf /\"; $x $y; $x \"$y\"",
            &["", "", "rm|-rf|/", "rm|-rf /"],
        );
        check("x=r; x+=m; ${x} ${z:-rm} ${x:0:1}", &["", "", "rm|rm|r"]);
        check("rm${IFS}-rf${IFS}/", &["rm|-rf|/"]);
        check(
            "$(echo rm) `printf %s rm` $(date)",
            &["echo|rm", "printf|%s|rm", "date", "rm|rm|\u{FFFD}"],
        );
        check(
            "$(echo bXI= | base64 -d | rev)",
            &["echo|bXI=", "base64|-d", "rev", "rm"],
        );
        check("a=(rm -rf /); \"${a[@]}\"; ${a[0]}", &["", "rm|-rf|/", "rm"]);
        check(
            "set -- rm -rf /; \"$@\"; $1",
            &["set|--|rm|-rf|/", "rm|-rf|/", "rm"],
        );
        check("for d in / /etc; do rm $d; done", &["rm|/|/etc"]);
        check("echo ~ '~' \"$HOME\"/x", &["echo|~|./~|~/x"]);
        check("a 2>&1 b >f c <<<x d", &["a|b|c|d"]);
        check(
            "x=RM; ${x,,}; y=x; ${!y}; z=rXm; ${z/X/}",
            &["", "rm", "", "RM", "", "rm"],
        );
        check("printf -v x '%s%s' r m; $x", &["printf|-v|x|%s%s|r|m", "rm"]);
    }

    #[test]
    fn commands_are_found_wherever_they_stand() {
        check(
            "if a; then b; elif c; then d; else e; fi",
            &["a", "b", "c", "d", "e"],
        );
        check("while a; do b; done; until c; do d; done", &["a", "b", "c", "d"]);
        check(
            "for i in 1; do a; done\nfor ((i=0; i<1; i++)); do b; done\nfor i; do c; done",
            &["a", "b", "c"],
        );
        check("case $x in a|b) c;; (d) e;& *) f; esac", &["c", "e", "f"]);
        check(
            "f() { a; }; function g { b; }; function h() (c)\ni ()\n{\nd\n}",
            &["a", "b", "c", "d"],
        );
        check(
            "(a; b) | { c; } && ! d || time -p e & coproc f",
            &["a", "b", "c", "d", "e", "f"],
        );
        check("[[ a == b && $(c) =~ ^(x|y)\\ z$ ]] && (( 1 + $(d) ))", &["c"]);
        check(
            "a \"$(b \"$(c)\")\" <(d) >(e)",
            &["c", "b|\u{FFFD}", "d", "e", "a|\u{FFFD}|\u{FFFD}|\u{FFFD}"],
        );
        check("cat <<E | b\nx $(c)\nE\nd", &["cat", "b", "c", "d"]);
        check("cat <<'E' <<-F\nx $(c)\nE\n\tf\n\tF\nd", &["cat", "d"]);
        check("a \\\n  b\r\nc", &["a|b", "c"]);
        check("select x in a b; do c; done", &["c"]);
        check(
            "declare -a x=(1 2) y; export A=b c",
            &["declare|-a|y", "export|c"],
        );
    }

    #[test]
    fn what_bash_refuses_is_told() {
        for code in [
            "if a; then b",
            "while a; do b",
            "for i in a; do b",
            "case x in a) b",
            "{ a",
            "( a",
            "echo 'x",
            "echo \"x",
            "echo $(a",
            "echo `a",
            "echo ${x",
            "[[ a",
            "f() ",
            "fi",
            "done",
            "esac",
            "}",
            ")",
            "a | | b",
            "a &&",
            "a |",
            "; a",
            "if a; then b; done",
            "if; then a; fi",
            "if a; then fi",
            "a ;; b",
            "for x in a; b; done",
            "& a",
            "echo $'x",
            "x=(a",
            "while do a; done",
            "case x in a b) c;; esac",
            "a (b)",
            "> ",
            "{ }",
            "()",
        ] {
            assert_ne!(read(code).faults, [], "{code}");
        }
    }

    #[test]
    fn hostile_nesting_ends() {
        for piece in [
            "(",
            "{ ",
            "$(",
            "\"$(",
            "`",
            "${x:-",
            "((",
            "$((",
            "<(",
            "if ",
            "case x in a) ",
            "f() ",
            "[[ ",
            "\"",
            "<<A ",
            "((\n",
            "a=(",
        ] {
            let code = piece.repeat(100_000);
            assert!(read(&code).faults.len() <= FAULTS_MAX, "{piece}");
        }
        assert_eq!(read(&"a ".repeat(500_000)).faults, []);
        assert_eq!(read(&"a;".repeat(200_000)).faults, []);
    }
}
