//! A shell's builtins cannot read records, so a call is lines of bash: on an interrupt an interactive bash abandons the
//! rest of a line and continues with the next one. The first line takes the code from a here-document and reports the
//! end of the call; the last lines report it if the first one was abandoned. An end that is reported twice counts once.

use super::{Call, REQUEST_BYTES_MAX, Unsendable};
use ringfence_types::Argument;
use serde_json::{Map, Value};

/// Commands of bash before its first prompt. Between calls an interrupt is ignored; during a call it has its usual
/// effect. Pid 1 announces one by `SIGPWR`, whose trap runs between two commands and abandons the line there: an
/// interrupt of bash itself is lost when a program ends by itself. Reports move to an unused descriptor.
pub(super) const SETUP: &str = "set +o histexpand +o history +m; unset HISTFILE MAILCHECK PROMPT_COMMAND; \
    declare +x PS1 PS2; trap '' INT; trap '\\builtin kill -INT $$' PWR; \
    exec 250>&3 3>&-; printf 'C\\0\\0\\0\\037{\"call\":0,\"status\":0,\"ok\":true}' >&250";

pub(super) fn lines(call: &Call<'_>) -> Result<Vec<u8>, Unsendable> {
    if call.code.contains('\0') {
        return Err(Unsendable::Nul);
    }
    let mut text = String::new();
    let (begin, input) = input(call.stdin, &mut text);
    text += &begin;
    if !call.env.is_empty() {
        text += "\\builtin export";
        for (name, value) in call.env {
            for piece in [" ", name, "=", &quoted(value)] {
                text += piece;
            }
        }
        // bash names a variable that cannot be set on standard error, and the code does not run without it.
        text += " && ";
    }
    let tag = tag(call.code);
    let end = end(call.number);
    let args: Vec<String> = call.args.iter().map(Argument::as_str).map(quoted).collect();
    let args = args.join(" ");
    // The call's arguments are `$1` and up. The code gets neither the descriptor of requests nor that of reports.
    text += &format!(
        "{{ \\builtin trap - INT; if [[ ${{_ringfence-}} ]]; then \
         \\builtin source /dev/fd/249 {args} 249<<<'{RETRACE}'\"$(</dev/fd/249)\"; \
         else \\builtin source /dev/fd/249 {args}; fi; }}; }} 249<<'{tag}' {input} 250>&-; {end}\n{}\n{tag}\n",
        call.code,
    );
    // Each interrupt abandons one line, and another may come while one is handled.
    text += &format!("{end}\n").repeat(ENDS);
    if text.len() > REQUEST_BYTES_MAX {
        return Err(Unsendable::TooLong);
    }
    Ok(text.into_bytes())
}

/// Before code whose session traces its commands (`set -x`, `set -v`): bash would also show the driver's lines, so
/// that is off between two calls, and `_ringfence` has the options.
const RETRACE: &str = "{ \\builtin eval \"_ringfence=; \\builtin set -$_ringfence\"; } 2>/dev/null; ";

/// Returns a here-document delimiter that is not a line of the code.
fn tag(code: &str) -> String {
    let alike = code.lines().filter_map(|line| line.strip_prefix(TAG));
    let alike = alike.filter(|rest| rest.bytes().all(|byte| byte == b'_'));
    let longest = alike.map(|rest| rest.len() + 1).max();
    TAG.to_owned() + &"_".repeat(longest.unwrap_or(0))
}

const TAG: &str = "END_OF_CALL";

/// Number of times that the end is reported after the code.
const ENDS: usize = 3;

/// Returns the line that reports the status, untraced and without prompts. It ignores interrupts first, since they are
/// repeated until the end arrives. A command must precede the report: bash interrupted between starting a program and
/// waiting for it waits after the next command, and the program may have missed the interrupt and need the repeat.
fn end(number: u64) -> String {
    let record = format!("{{\"call\":{number},\"status\":%3d}}");
    // The status is as long as its directive `%3d`.
    let length = u32::try_from(record.len()).unwrap_or(0).to_be_bytes();
    let head: String = length.iter().map(|byte| format!("\\{byte:03o}")).collect();
    let record = record.replace('"', "\\\"");
    // `$?` is expanded before the first of these commands sets its own status.
    format!(
        "{{ \\builtin eval \"\\builtin trap '' INT; \\builtin printf 'C{head}{record}' $? >&250; \
         PS0= PS1= PS2=; \\builtin unset -v PROMPT_COMMAND; \
         [[ \\$- != *[xv]* ]] || {{ _ringfence=\\${{-//[!xv]}}; \\builtin set +xv; }}\"; }} 2>/dev/null"
    )
}

/// Up to this size standard input comes from a pipe. bash takes many times its size for a word.
const PIPED_BYTES_MAX: usize = 64 << 10;

/// Returns the beginning of a group of commands, and its redirection of standard input, for any bytes. Adds lines that
/// write long input to a file, each piece only if the last has succeeded; the group, or a failure, removes it.
fn input(bytes: &[u8], lines: &mut String) -> (String, String) {
    if bytes.len() <= PIPED_BYTES_MAX {
        let from = match bytes {
            [] => "</dev/null".to_owned(),
            _ => format!("< <({} 250>&-)", printf(bytes)),
        };
        return ("{ ".to_owned(), from);
    }
    let file = "\"${TMPDIR:-/tmp}/.stdin-$$\"";
    let remove = format!("{{ \\builtin command -p rm -f {file} || \\builtin :; }}");
    let (first, rest) = bytes.split_at(PIPED_BYTES_MAX);
    *lines += &format!("{} >|{file}\n", printf(first));
    for piece in rest.chunks(PIPED_BYTES_MAX) {
        *lines += &format!("(( $? == 0 )) && {} >>{file}\n", printf(piece));
    }
    *lines += &format!("(( $? == 0 )) || {{ {remove}; \\builtin false; }} && ");
    (format!("{{ {remove}; "), format!("<{file}"))
}

/// Returns the command that prints the bytes.
fn printf(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 32);
    text += "\\builtin printf -- '";
    for &byte in bytes {
        match byte {
            b'%' => text += "%%",
            b'\\' => text += "\\\\",
            b' '..=b'~' if byte != b'\'' => text.push(char::from(byte)),
            _ => text += &format!("\\{byte:03o}"),
        }
    }
    text + "'"
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The largest variable: the largest that a program may get in its environment.
pub(super) const VARIABLE_BYTES_MAX: usize = 128 << 10;

/// Returns lines that report a variable word by word, after its kind, in a subshell, which leaves no trace.
pub(super) fn get(number: u64, name: &str) -> Vec<u8> {
    let end = end(number);
    let text = format!(
        "( set +eux; LC_ALL=C; IFS=; flags=$(\\builtin declare -p {name} 2>/dev/null) || exit 1; flags=${{flags#declare -}}; \
         case ${{flags%% *}} in *A*) words=(A); for key in \"${{!{name}[@]}}\"; do words+=(\"$key\" \"${{{name}[$key]}}\"); done;; \
         *a*) words=(a \"${{{name}[@]}}\");; *) words=(s \"${name}\");; esac; \
         for word in \"${{words[@]}}\"; do size=${{#word}}; \
         \\builtin printf -v head '\\\\%03o' $((size >> 24)) $((size >> 16 & 255)) $((size >> 8 & 255)) $((size & 255)); \
         \\builtin printf \"W$head%s\" \"$word\"; done ) </dev/null >&250 2>/dev/null; {end}\n{end}\n"
    );
    text.into_bytes()
}

/// Converts the words that [`get`] reports to bridge JSON: text, a list of texts, or an object of texts.
pub(super) fn value(words: &[String]) -> Option<String> {
    let (kind, words) = words.split_first()?;
    let text = |word: &String| Value::String(word.clone());
    let value = match kind.as_str() {
        "s" => text(words.first()?),
        "a" => words.iter().map(text).collect(),
        "A" => {
            let pairs = words
                .chunks_exact(2)
                .map(|pair| (pair[0].clone(), text(&pair[1])));
            let object = Value::Object(pairs.collect());
            match object.get("$type") {
                Some(_) => serde_json::json!({"$type": "object", "value": object}),
                None => object,
            }
        }
        _ => return None,
    };
    Some(value.to_string())
}

/// Sets a variable. One value is exported; a list or object of single values becomes an array, a deeper one its JSON.
pub(super) fn set(number: u64, name: &str, value: &Value) -> Result<Vec<u8>, Unsendable> {
    let value = match tagged(value) {
        Some(("object", inner)) => inner,
        _ => value,
    };
    let several: Option<Vec<String>> = match value {
        Value::Array(parts) => parts
            .iter()
            .map(|part| single(part).map(|word| quoted(&word)))
            .collect(),
        Value::Object(parts) if tagged(value).is_none() => pairs(parts),
        _ => None,
    };
    let kind = if value.is_array() { "a" } else { "A" };
    let line = match (several, single(value)) {
        (Some(words), _) => format!("declare -g{kind} {name}=({})", words.join(" ")),
        (None, one) => {
            let word = quoted(&one.unwrap_or_else(|| value.to_string()));
            format!("\\builtin export {name}={word}")
        }
    };
    if line.contains('\0') {
        return Err(Unsendable::Nul);
    }
    if line.len() > VARIABLE_BYTES_MAX {
        return Err(Unsendable::TooLong);
    }
    let end = end(number);
    // A name reference (`declare -n`) is removed first, so that its target is not set. bash's message about a read-only
    // variable must not become output of the next call.
    let line = format!("\\builtin unset -n {name}; \\builtin unset -v {name}; {line}");
    Ok(format!("{{ {line}; }} 2>/dev/null; {end}\n{end}\n").into_bytes())
}

/// "Shell Variables" of bash(1) as of 5.3 that bash reads, or that it does not let be set; the others begin with one
/// of [`READ_PREFIXES`].
const READ_NAMES: &str = "\
    _ CDPATH CHILD_MAX COLUMNS DIRSTACK EMACS ENV EPOCHREALTIME EPOCHSECONDS EUID EXECIGNORE FCEDIT FIGNORE \
    FUNCNAME FUNCNEST GLOBIGNORE GLOBSORT GROUPS HISTCMD HISTCONTROL HISTFILE HISTFILESIZE HISTIGNORE HISTSIZE \
    HISTTIMEFORMAT HOME HOSTFILE IFS IGNOREEOF INPUTRC INSIDE_EMACS LANG LINENO LINES MAIL MAILCHECK MAILPATH \
    OLDPWD OPTERR OPTIND PATH PIPESTATUS POSIXLY_CORRECT PPID PROMPT_COMMAND PROMPT_DIRTRIM PS0 PS1 PS2 PS3 PS4 \
    PWD RANDOM SECONDS SHELL SHELLOPTS SHLVL SRANDOM TERM TERMCAP TERMINFO TEXTDOMAIN TEXTDOMAINDIR TIMEFORMAT \
    TMOUT TMPDIR TZ UID auto_resume histchars";

/// `BASH_ALIASES`, `BASH_CMDS` and `BASH_ENV` decide which commands run; `LD_` is the dynamic loader's.
const READ_PREFIXES: [&str; 5] = ["BASH", "COMP_", "LC_", "LD_", "READLINE_"];

/// True if bash itself acts on a variable of this name: data put there could run, outside of any call.
pub(crate) fn is_read_by_bash(name: &str) -> bool {
    READ_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || READ_NAMES.split_whitespace().any(|read| read == name)
}

fn pairs(parts: &Map<String, Value>) -> Option<Vec<String>> {
    let pair = |(key, part): (&String, &Value)| {
        // An array of bash has no element with an empty key.
        let word = single(part).filter(|_| !key.is_empty())?;
        Some(format!("[{}]={}", quoted(key), quoted(&word)))
    };
    parts.iter().map(pair).collect()
}

/// Returns a value that is one word. A tagged value is its text; bytes are their base64.
fn single(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(String::new()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(value) => Some(value.to_string()),
        Value::String(value) => Some(value.clone()),
        _ => tagged(value)?.1.as_str().map(str::to_owned),
    }
}

fn tagged(value: &Value) -> Option<(&str, &Value)> {
    Some((value.get("$type")?.as_str()?, value.get("value")?))
}
