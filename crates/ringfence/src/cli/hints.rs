//! Translation of refusals, which are written for callers of tools: at the command line they name commands and flags
//! instead. This is the only place that knows both.

use crate::sentence::without_numbers;
use ringfence_types::{ExecutionResult, RequestError, Validation};

const COMMANDS: [(&str, &str); 42] = [
    (
        "`list_host_access` has the forms; ask a person with `request_host_access`, naming exactly this command.",
        "`ringfence host access` has the forms; on a terminal `ringfence host exec` asks you.",
    ),
    ("`list_host_access`", "`ringfence host access`"),
    ("send a schema in its place", "name the file of one"),
    ("`fetch_webpage`", "`ringfence web fetch`"),
    (
        "`name` is a variable at the top of `from_session`; a call there makes it.",
        "Name a variable at the top of the session of --from; `ringfence session exec` makes one.",
    ),
    // Without the first letter, which may be a capital.
    ("eave `backend` and `use_container` out", "eave --backend out"),
    ("eave `backend` out", "eave --backend out"),
    (" (`timeout_seconds`)", ""),
    (" (`max_ram_mb`)", ""),
    (" (`max_disk_mb`)", ""),
    (" (`max_processes`)", ""),
    (" (`max_output_bytes`)", ""),
    ("`packages`, or have them with `install_package`", "`--package`"),
    ("`packages`", "`--package`"),
    ("`create_session`", "`ringfence session create`"),
    ("`list_sessions`", "`ringfence session list`"),
    ("`terminate_session`", "`ringfence session kill`"),
    ("`interrupt_session`", "`ringfence session interrupt`"),
    ("`bridge_data`", "`ringfence bridge`"),
    ("`execute_code`", "`ringfence session exec`"),
    ("`put_file`", "`ringfence session cp`"),
    ("`get_file`", "`ringfence session cp`"),
    ("`list_files`", "`ringfence session ls`"),
    ("`create_state_snapshot`", "`ringfence snapshot create`"),
    ("`list_state_snapshots`", "`ringfence snapshot list`"),
    ("`diff_workspace`", "`ringfence snapshot diff`"),
    ("`vault_list`", "`ringfence vault list`"),
    ("`list_runtimes`", "`ringfence doctor`"),
    ("`session_id`", "`--session`"),
    ("`validate: \"strict\"`", "`--validate strict`"),
    ("`allowed_imports`", "`--allow-import`"),
    ("`allowed_domains`", "`--allow`"),
    ("`request_egress`", "`--allow`"),
    ("`validate_code`", "`ringfence validate`"),
    // At the command line the caller is the operator.
    ("The operator turns it on with", "Set"),
    ("The operator adds one", "Add it"),
    ("the operator adds one", "add it"),
    ("have the operator ", ""),
    ("Have the operator add", "Add"),
    ("Have the operator name", "Name"),
    ("Have the operator raise", "Raise"),
    ("Have the operator set", "Set"),
];

pub(super) fn limits_error_in_flags(mut error: RequestError) -> RequestError {
    if let Some(message) = out_of_bounds(&error.message, &NAMESPACE_FLAGS) {
        error.message = message;
    }
    error
}

fn out_of_bounds(message: &str, flags: &[(&str, &str, &str)]) -> Option<String> {
    let (assignment, bounds) = message.strip_suffix('.')?.split_once(" is outside ")?;
    let (name, value) = assignment.split_once(" = ")?;
    let (least, most) = bounds.split_once("..=")?;
    let (_, flag, unit) = flags.iter().find(|(limit, ..)| *limit == name)?;
    let number = |text: &str| text.parse::<f64>().ok();
    Some(if number(value)? < number(least)? {
        format!("{flag} is at least {least}{unit}.")
    } else {
        format!("{flag} is at most {most}{unit}.")
    })
}

pub(super) fn limits_in_flags(text: &str) -> String {
    let line = |line: &str| {
        let flag = NAMESPACE_FLAGS.iter().find_map(|(name, flag, _)| {
            let value = line.strip_prefix(name)?.strip_prefix(':')?;
            Some(format!("{flag}:{value}"))
        });
        flag.unwrap_or_else(|| line.to_owned())
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

pub(super) fn in_commands(mut error: RequestError) -> RequestError {
    if let Some(message) = out_of_bounds(&error.message, &RUN_FLAGS) {
        error.message = message;
    }
    if let Some(rest) = error.message.strip_prefix("allowed_domains: ") {
        error.message = format!("--allow: {rest}");
    }
    let found = error.validation.take();
    // A message quotes words of the user and repeats findings.
    error.message = without_numbers(&rewrite_finding(&error.message));
    let translate = if found.is_some() { rewrite_finding } else { rewrite };
    let is_full = error.message.contains("No space left on device");
    error.hint = match is_full && error.hint.starts_with("Run ") {
        true => "Make room on that disk, or write to another.".to_owned(),
        false => translate(&error.hint),
    };
    error.validation = found.map(|found| Box::new(validation_in_commands(*found)));
    error
}

pub(super) fn result_in_commands(result: &mut ExecutionResult) {
    for denial in result.denials.iter_mut().chain(&mut result.security_events) {
        denial.what = rewrite(&denial.what);
        denial.hint = rewrite(&denial.hint);
    }
    result.validation = result.validation.take().map(validation_in_commands);
}

pub(super) fn validation_in_commands(mut found: Validation) -> Validation {
    for issue in &mut found.issues {
        issue.message = rewrite_finding(&issue.message);
        issue.hint = rewrite_finding(&issue.hint);
    }
    let summary = &mut found.validation;
    let others = summary.errors.iter_mut().chain([&mut summary.message]);
    for text in found.recommendations.iter_mut().chain(others) {
        *text = rewrite_finding(text);
    }
    found
}

/// Rewrites a finding or a message. It also quotes names of the program or the user: arguments of tools are known by
/// the words around them.
fn rewrite_finding(text: &str) -> String {
    let known = [
        (
            "in `packages`, or installed by `install_package`",
            "by `--package`",
        ),
        ("named in `packages`", "named by `--package`"),
        ("in `allowed_imports`", "in `--allow-import`"),
        ("to `allowed_imports`", "to `--allow-import`"),
        (
            "which `allowed_domains` cannot name",
            "which `--allow` cannot name",
        ),
    ];
    known
        .iter()
        .fold(imports(text), |text, (tool, flag)| text.replace(tool, flag))
}

fn imports(text: &str) -> String {
    let mut rewritten = text.to_owned();
    // Terminates: each turn removes one.
    while let Some((before, rest)) = rewritten.split_once("`allowed_imports: [\"") {
        let Some((module, after)) = rest.split_once("\"]`") else {
            break;
        };
        rewritten = format!("{before}`--allow-import {module}`{after}");
    }
    rewritten
}

/// Arguments for limits, with their flags at `run` and `session create` and the suffix of the flag's value.
const RUN_FLAGS: [(&str, &str, &str); 6] = [
    ("memory_limit", "--memory", ""),
    ("max_cpu_cores", "--cpus", ""),
    ("max_ram_mb", "--memory", "m"),
    ("max_disk_mb", "--disk", "m"),
    ("max_processes", "--processes", ""),
    ("timeout_seconds", "--timeout", ""),
];

const NAMESPACE_FLAGS: [(&str, &str, &str); 6] = [
    ("max_ram_mb", "--ram-mb", ""),
    ("max_cpu_cores", "--cpus", ""),
    ("max_disk_mb", "--disk-mb", ""),
    ("max_processes", "--processes", ""),
    ("max_output_bytes", "--output-bytes", ""),
    ("timeout_seconds", "--timeout", ""),
];

fn flags(call: &str) -> String {
    let pairs = call
        .split(['{', '}', ','])
        .filter_map(|pair| pair.trim().split_once(": "));
    let flags = pairs.filter_map(|(name, value)| {
        let (_, flag, unit) = RUN_FLAGS.iter().find(|(limit, ..)| *limit == name)?;
        Some(format!("{flag} {}{unit}", value.trim_matches('"')))
    });
    flags.collect::<Vec<_>>().join(" ")
}

pub(super) fn rewrite(text: &str) -> String {
    if let Some(call) = text.strip_prefix("next: execute_code ") {
        return match flags(call) {
            flags if flags.is_empty() => "Write a file, or raise `limits.output_bytes`.".to_owned(),
            flags => format!("Use {flags}."),
        };
    }
    if let Some(call) = text.strip_prefix("next: create_session ") {
        return format!("Use `ringfence session create {}`.", flags(call));
    }
    if let Some(call) = text.strip_prefix("next: cancel_execution ") {
        let id = call.split('"').nth(3).unwrap_or_default();
        return format!("Wait for it, or stop it with `ringfence cancel {id}`.");
    }
    if text.starts_with("next: list_executions ") {
        return "See `ringfence ps`.".to_owned();
    }
    let mut rewritten = imports(text);
    while let Some((before, rest)) = rewritten.split_once("Call `request_egress {domain: \"") {
        let Some((host, after)) = rest.split_once("\"}`") else {
            break;
        };
        let after = after
            .strip_prefix(", then add it to `allowed_domains`")
            .unwrap_or(after);
        rewritten = match after.split_once("; or have the operator add ") {
            Some((_, given)) => format!("{before}Add {given}"),
            None => format!(
                "{before}Allow it with `run --allow {host}`, in a session with `ringfence egress {host}`{after}"
            ),
        };
    }
    for (tool, command) in COMMANDS {
        if rewritten.contains(tool) {
            rewritten = rewritten.replace(tool, command);
        }
    }
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_name_the_flags_of_each_command() {
        let call = "Call `request_egress {domain: \"a.test:81\"}`";
        let by_flag =
            "Allow it with `run --allow a.test:81`, in a session with `ringfence egress a.test:81`.";
        assert_eq!(rewrite(&format!("{call}.")), by_flag);
        assert_eq!(
            rewrite(&format!("{call}, then add it to `allowed_domains`.")),
            by_flag
        );
        assert_eq!(
            rewrite(&format!(
                "{call}; or have the operator add `a.test:81` to `web.allow`."
            )),
            "Add `a.test:81` to `web.allow`."
        );
        let error = RequestError::invalid("max_ram_mb = 100000 is outside 16..=8192.", "");
        assert_eq!(limits_error_in_flags(error).message, "--ram-mb is at most 8192.");
        assert_eq!(
            limits_in_flags("default: 0 running\nmax_ram_mb: 512 (at most 8192)\n"),
            "default: 0 running\n--ram-mb: 512 (at most 8192)\n"
        );
    }

    #[test]
    fn limit_errors_name_the_flag() {
        let rewritten = |message: &str| in_commands(RequestError::invalid(message, "")).message;
        assert_eq!(
            rewritten("max_ram_mb = 1 is outside 16..=8192."),
            "--memory is at least 16m."
        );
        assert_eq!(
            rewritten("max_cpu_cores = 64 is outside 0.01..=2."),
            "--cpus is at most 2."
        );
        assert_eq!(
            rewritten("limit = 0 is outside 1..=10."),
            "limit = 0 is outside 1..=10."
        );
        assert_eq!(
            rewritten("allowed_domains: `x y` is no rule."),
            "--allow: `x y` is no rule."
        );
    }

    #[test]
    fn tool_names_are_replaced_by_commands() {
        let hint = "`list_sessions` names those there are; `create_session` makes one.";
        let error = in_commands(RequestError::invalid("there is none.", hint));
        assert_eq!(
            error.hint,
            "`ringfence session list` names those there are; `ringfence session create` makes one."
        );
        assert_eq!(error.message, "there is none.");
        let error = in_commands(RequestError::not_found("there is no workspace `packages`.", ""));
        assert_eq!(error.message, "there is no workspace `packages`.");
        assert_eq!(
            rewrite("add it by `allowed_imports: [\"os.path\"]`, or all to `allowed_imports`."),
            "add it by `--allow-import os.path`, or all to `--allow-import`."
        );
        assert_eq!(rewrite("`allowed_imports: [\""), "`allowed_imports: [\"");
        let check = |hint: &str, expect: &str| assert_eq!(rewrite(hint), expect);
        check(
            "There are: a. Or send a schema in its place.",
            "There are: a. Or name the file of one.",
        );
        check(
            "next: cancel_execution {\"execution_id\": \"12\"}, or call again later",
            "Wait for it, or stop it with `ringfence cancel 12`.",
        );
        check(
            "Have the operator set `floor: container`, or have the operator raise `caps`.",
            "Set `floor: container`, or raise `caps`.",
        );
        check(
            "the program was stopped after its 1 s (`timeout_seconds`)",
            "the program was stopped after its 1 s",
        );
        check(
            "next: execute_code {resource_limits: {max_ram_mb: 1024}}",
            "Use --memory 1024m.",
        );
        check(
            "next: execute_code {resource_limits: {max_disk_mb: 512, max_ram_mb: 1024}}",
            "Use --disk 512m --memory 1024m.",
        );
        check(
            "next: create_session {resource_limits: {max_processes: 16}} (a session keeps what it has)",
            "Use `ringfence session create --processes 16`.",
        );
    }
}
