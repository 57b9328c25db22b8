//! A shell's builtins cannot read records, so a call is lines of bash: an interactive bash abandons the rest of a line
//! on an interrupt and goes on with the next one. The first line takes the code from a here-document and tells the end
//! of the call; the last lines tell it where the first one was abandoned. An end that is told twice counts once.

use super::{Call, REQUEST_BYTES_MAX, Unsendable};
use ringfence_types::Argument;
use serde_json::{Map, Value};

/// What bash does before its first prompt. Between calls an interrupt is nothing; during a call it is what it always
/// is. Pid 1 tells of one by `SIGPWR`, whose trap runs between two commands and abandons the line from there: an
/// interrupt of bash itself is lost where a program ends by itself. Reports move to a number that programs do not use.
pub(super) const BEGINNING: &str = "set +o histexpand +o history +m; unset HISTFILE MAILCHECK PROMPT_COMMAND; \
    declare +x PS1 PS2; trap '' INT; trap '\\builtin kill -INT $$' PWR; \
    exec 250>&3 3>&-; printf 'C\\0\\0\\0\\037{\"call\":0,\"status\":0,\"ok\":true}' >&250";

pub(super) fn lines(call: &Call<'_>) -> Result<Vec<u8>, Unsendable> {
    if call.code.contains('\0') {
        return Err(Unsendable::Nul);
    }
    let mut text = String::new();
    if !call.env.is_empty() {
        text += "\\builtin export";
        for (name, value) in call.env {
            for piece in [" ", name, "=", &quoted(value)] {
                text += piece;
            }
        }
        // A variable that cannot be set is named on standard error, and the code does not run without it.
        text += " && ";
    }
    let tag = tag(call.code);
    let end = end(call.number);
    let args: Vec<String> = call.args.iter().map(Argument::as_str).map(quoted).collect();
    // The code's own words are `$1` and on. What it may not have are the requests and the reports.
    text += &format!(
        "{{ \\builtin trap - INT; \\builtin source /dev/fd/249 {}; }} 249<<'{tag}' {} 250>&-; {end}\n{}\n{tag}\n",
        args.join(" "),
        input(call.stdin),
        call.code,
    );
    // An interrupt costs a line, and one may come while another is being heard.
    text += &format!("{end}\n").repeat(ENDS);
    if text.len() > REQUEST_BYTES_MAX {
        return Err(Unsendable::TooLong);
    }
    Ok(text.into_bytes())
}

/// A line that the code does not have.
fn tag(code: &str) -> String {
    let mut tag = "END_OF_CALL".to_owned();
    while code.lines().any(|line| line == tag) {
        tag.push('_');
    }
    tag
}

/// How often the end is told behind the code.
const ENDS: usize = 3;

/// Tells the status of what came before. Prompts are not shown, and this is not traced. Interrupts are ignored again
/// before the end is told, since they are repeated until the end is heard. It matters too that another
/// command comes before the one that tells: where bash was interrupted between starting a program and waiting for it,
/// it waits after the next command, and the program may have missed the interrupt and need the one that is repeated.
fn end(number: u64) -> String {
    let told = format!("{{\"call\":{number},\"status\":%3d}}");
    // What is written for the status is as long as its directive.
    let length = u32::try_from(told.len()).unwrap_or(0).to_be_bytes();
    let head: String = length.iter().map(|byte| format!("\\{byte:03o}")).collect();
    let told = told.replace('"', "\\\"");
    // The status is read before the first of these commands has one of its own.
    format!(
        "\\builtin eval \"\\builtin trap '' INT; \\builtin printf 'C{head}{told}' $? >&250; \
         PS0= PS1= PS2=; \\builtin unset -v PROMPT_COMMAND\" 2>/dev/null"
    )
}

/// Any bytes, through a pipe.
fn input(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "</dev/null".to_owned();
    }
    let octal: String = bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
    format!("< <(\\builtin printf '{octal}' 250>&-)")
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The most that a variable may hold, which is the most that a program may get in its environment.
pub(super) const VARIABLE_BYTES_MAX: usize = 128 << 10;

/// Tells a variable word by word, after a word for its kind. In a shell of its own, which leaves no trace.
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

/// What [`get`] has told, as bridge JSON: text, a list of texts, or an object of texts.
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

/// One value is exported; a list or an object of them becomes an array; what is deeper becomes its JSON.
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
    // A name that refers to another is no way to that one. What bash says of a variable that is read-only is nothing
    // for the next call to print.
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

/// `BASH_ALIASES`, `BASH_CMDS` and `BASH_ENV` say what runs; `LD_` is the dynamic loader's.
const READ_PREFIXES: [&str; 5] = ["BASH", "COMP_", "LC_", "LD_", "READLINE_"];

/// Whether bash does something by the value of a variable of this name: data put there could run, outside of any
/// call.
pub(crate) fn is_read_by_bash(name: &str) -> bool {
    READ_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || READ_NAMES.split_whitespace().any(|read| read == name)
}

fn pairs(parts: &Map<String, Value>) -> Option<Vec<String>> {
    let pair = |(key, part): (&String, &Value)| {
        // An array of bash has no element without a name.
        let word = single(part).filter(|_| !key.is_empty())?;
        Some(format!("[{}]={}", quoted(key), quoted(&word)))
    };
    parts.iter().map(pair).collect()
}

/// A value that is one word. What a tag stands for is a text in a shell: of bytes, their base64.
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
