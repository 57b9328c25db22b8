//! `docs/reference.md`, generated from the product's own declarations and compared with them by a golden test.

use crate::{
    cli, mcp,
    settings::{aliases, keys::KEYS, reload::CHANGEABLE},
};
use ringfence_engine::{check_rules, profile};
use ringfence_types::{ErrorCode, Profile};
use serde_json::Value;
use std::fmt::Write as _;
use textwrap::WordSplitter::NoHyphenation;

const INTRODUCTION: &str = "# Reference\n\nEvery name that a caller sees. This file is generated: \
    `cargo xtask golden --bless` writes it from the code, and a test compares.\n";

#[test]
fn reference_matches_its_golden_file() {
    let text = [
        INTRODUCTION,
        &command_line(),
        &tools(),
        &prompts(),
        &rules(),
        &profiles(),
        &errors(),
        &configuration(),
        &variables(),
    ]
    .join("\n");
    crate::golden::compare("../../../../docs/reference.md", &wrapped(&text));
}

/// Wraps prose to the columns of a document; tables and code blocks stay as they are.
fn wrapped(text: &str) -> String {
    let wrap = textwrap::Options::new(116)
        .break_words(false)
        .word_splitter(NoHyphenation);
    let mut is_code = false;
    let line = |line: &str| {
        is_code ^= line.starts_with("```");
        if is_code || line.starts_with('|') {
            return format!("{line}\n");
        }
        textwrap::fill(line, &wrap) + "\n"
    };
    text.lines().map(line).collect()
}

fn command_line() -> String {
    let mut text = "## Command line\n\nAn invalid command line ends with 2. Exit codes of `ringfence run`: the script's own; 128 + the signal that ended it; \
        124 when the time is up; 125 where Ringfence refuses or fails, with the reason on stderr. Of `ringfence validate`: 0 for what \
        passes or was fixed, 1 for what is rejected, 2 for an invalid command line or file, 125 as above.\n"
        .to_owned();
    for (name, help) in cli::tests::helps() {
        write!(text, "\n### `{name}`\n\n```text\n{}\n```\n", help.trim_end()).unwrap();
    }
    text
}

fn tools() -> String {
    let mut text = "## Tools\n\nA failing program is a result with `success: false`. A refusal or a fault of ours is an \
        error (`isError: true`) with `code`, `message`, `hint` and, once there is one, `execution_id`. Unknown arguments \
        are refused by name. Limits in the tables are those of a server with the default configuration and four cores.\n"
        .to_owned();
    for tool in mcp::tests::tools_of_the_reference() {
        let tool = serde_json::to_value(tool).unwrap();
        write!(
            text,
            "\n### `{}`\n\n{}\n",
            word(&tool["name"]),
            word(&tool["description"])
        )
        .unwrap();
        text += "\nArguments:\n\n| name | type | default | about |\n|---|---|---|---|\n";
        rows("", &tool["inputSchema"], &mut text);
        let reference = mcp::tests::reference_of(word(&tool["name"]));
        let table = |title: &str, schema: &Value| {
            let mut table = String::new();
            rows("", schema, &mut table);
            match table.is_empty() {
                true => table,
                false => {
                    format!("\n{title}:\n\n| name | type | default | about |\n|---|---|---|---|\n{table}")
                }
            }
        };
        let is_object = reference.output.get("properties").is_none();
        text += &table(
            "Accepted too, and left out of the list that models read",
            &reference.unlisted,
        );
        text += &table("Result", &reference.output);
        if is_object {
            text += "\nThe result is that of `execute_code`.\n";
        }
    }
    text
}

/// Writes one row for each property, those of inner objects with a dotted name.
fn rows(prefix: &str, schema: &Value, text: &mut String) {
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        let mark = if prefix.is_empty() && required.len() == 1 && required.contains(&name.as_str()) {
            "*"
        } else {
            ""
        };
        let default = property
            .get("default")
            .map(|value| format!("`{value}`"))
            .unwrap_or_default();
        writeln!(
            text,
            "| `{path}`{mark} | {} | {default} | {} |",
            kind(property),
            // Links of rustdoc do not work here.
            word(&property["description"])
                .replace("[`", "`")
                .replace("`]", "`")
        )
        .unwrap();
        rows(&format!("{path}."), property, text);
        rows(&format!("{path}[]."), &property["items"], text);
        for choice in property["anyOf"].as_array().into_iter().flatten() {
            rows(&format!("{path}."), choice, text);
        }
    }
}

fn kind(schema: &Value) -> String {
    if let Some(choices) = schema["anyOf"].as_array() {
        return choices.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    if let Some(values) = schema["enum"].as_array() {
        return values
            .iter()
            .map(|value| format!("`{}`", value.to_string().trim_matches('"')))
            .collect::<Vec<_>>()
            .join(", ");
    }
    let bounds: Vec<String> = [
        ("minimum", "from"),
        ("maximum", "to"),
        ("maxLength", "length to"),
        ("maxItems", "items to"),
    ]
    .iter()
    .filter_map(|(key, word)| schema.get(*key).map(|bound| format!("{word} {bound}")))
    .collect();
    match (word(&schema["type"]), bounds.is_empty()) {
        ("", _) => "any JSON".to_owned(),
        ("array", _) if schema["items"]["type"] != "object" => format!("array of {}", kind(&schema["items"])),
        (name, true) => name.to_owned(),
        (name, false) => format!("{name}, {}", bounds.join(" ")),
    }
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn prompts() -> String {
    let mut text = "## Prompts\n\nEach contains the current rules, limits and schemas of the server, and the errors that its own checks \
        find.\n"
        .to_owned();
    for prompt in mcp::tests::prompts_of_the_reference() {
        write!(
            text,
            "\n### `{}`\n\n{}\n\n| argument | about |\n|---|---|\n",
            prompt.name,
            prompt.description.unwrap_or_default()
        )
        .unwrap();
        for argument in prompt.arguments.unwrap_or_default() {
            let mark = if argument.required == Some(true) { "*" } else { "" };
            let about = argument.description.unwrap_or_default();
            writeln!(text, "| `{}`{mark} | {about} |", argument.name).unwrap();
        }
    }
    text
}

fn rules() -> String {
    let mut text = "## Rules\n\nRules by which code is checked before it runs; see [validation.md](validation.md). Code with an error cannot run \
        or has no honest purpose; `validate: strict` refuses a warning; a profile makes an error of what it forbids. The severity below is that \
        of the usual finding: a finding that is known to be harmless is a note, one that is known to be worse is more severe.\n\n\
        | rule | severity | finding | why | what to do |\n|---|---|---|---|---|\n"
        .to_owned();
    let cell = |text: &str| text.replace('|', "\\|");
    for rule in check_rules() {
        writeln!(
            text,
            "| `{}` | {} | {} | {} | {} |",
            rule.id,
            rule.severity.as_str(),
            cell(rule.title),
            cell(rule.why),
            cell(rule.hint)
        )
        .unwrap();
    }
    text
}

fn profiles() -> String {
    let mut text = "## Profiles\n\nModules that Python programs may import under each profile, with their submodules. `strict` has the modules \
        of `basic`, and forbids the ways in which Python code can circumvent the check.\n\n| profile | modules |\n|---|---|\n"
        .to_owned();
    for chosen in Profile::ALL {
        let modules = profile::modules(*chosen).map(|modules| {
            let names: Vec<String> = modules
                .iter()
                .map(|module| format!("`{}`", module.as_str()))
                .collect();
            names.join(" ")
        });
        let modules = modules.unwrap_or_else(|| "everything".to_owned());
        writeln!(text, "| `{}` | {modules} |", chosen.as_str()).unwrap();
    }
    text
}

fn errors() -> String {
    let mut text = "## Error codes\n\n| code | meaning |\n|---|---|\n".to_owned();
    for code in ErrorCode::ALL {
        writeln!(text, "| `{code}` | {} |", meaning(*code)).unwrap();
    }
    text
}

/// Returns one sentence for the reference.
fn meaning(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::InvalidArgument => "A value in the request is malformed or outside its range.",
        ErrorCode::UnknownArgument => "The request has an argument that the tool does not have.",
        ErrorCode::UnsupportedArgument => {
            "The name is known, and the part of the product behind it is not in this version."
        }
        ErrorCode::RuntimeUnavailable => "The language's interpreter is not on this host.",
        ErrorCode::BelowFloor => "The host cannot provide the isolation that the operator's floor requires.",
        ErrorCode::PolicyDenied => "The operator's policy does not allow it.",
        ErrorCode::Busy => "The queue is full; `retry_after_ms` says when to try again.",
        ErrorCode::Cancelled => "The caller cancelled before the program started.",
        ErrorCode::SandboxFault => {
            "The sandbox could not be made, or broke; nothing of the program ran unwatched."
        }
        ErrorCode::NotFound => "It does not exist, or it belongs to another namespace.",
        ErrorCode::Conflict => "Another caller has changed it meanwhile; the message names what.",
        ErrorCode::SessionEnded => "The session has ended; the message says why.",
        ErrorCode::SecretUnavailable => {
            "The vault has no such secret for this namespace, or the policy does not give it."
        }
        ErrorCode::PackageUnavailable => {
            "A package is unavailable: the index does not know it, has no wheel of it, or cannot be reached."
        }
        ErrorCode::PageUnavailable => {
            "A page is unavailable: its host does not answer, or what it sends is not a page."
        }
        ErrorCode::CodeRejected => "The code was refused before it ran; `validation` has the findings.",
        ErrorCode::CheckFailed => "Code or data could not be checked: its parser gave up on it.",
        ErrorCode::AuditUnavailable => "The audit record cannot be written, and nothing runs without one.",
        ErrorCode::StoreFault => "The vault or the artifact store cannot be read or written.",
        ErrorCode::InvalidConfiguration => "The configuration is wrong.",
    }
}

fn configuration() -> String {
    let changeable = CHANGEABLE
        .map(|path| format!("`{}`", path.trim_end_matches('.')))
        .join(", ");
    let mut text = format!(
        "## Configuration\n\nA flag wins over the environment, which wins over the file, which wins over the \
        default. Unknown keys are refused. `ringfence config show` says what is in force and from where.\n\n\
        On SIGHUP `serve` reads it again: {changeable} and `log` change at once, with a \
        record `config.changed` and, where limits changed, `notifications/tools/list_changed`; the log names the settings that \
        need a restart. A configuration that cannot be read changes nothing.\n\n\
        | key | variable | default | about |\n|---|---|---|---|\n"
    );
    for key in KEYS {
        let default = key.default.map(|value| format!("`{value}`")).unwrap_or_default();
        writeln!(
            text,
            "| `{}` | `{}` | {default} | {} |",
            key.path,
            key.variable(),
            key.about
        )
        .unwrap();
    }
    text
}

fn variables() -> String {
    let mut text = "## Variables of other servers\n\nRead from the environment so that existing set-ups keep working. A value \
        that cannot be honoured is refused at the start.\n\n| variable | effect |\n|---|---|\n"
        .to_owned();
    for (name, effect) in aliases::tests::described() {
        writeln!(text, "| `{name}` | {effect} |").unwrap();
    }
    text
}
