//! Refusals are written for the callers of tools. At the command line their hints name commands and flags instead, and this is
//! the only place that knows both.

use ringfence_types::{RequestError, Validation};

const COMMANDS: [(&str, &str); 20] = [
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
];

/// The same refusal, in the words of commands.
pub(super) fn in_commands(mut error: RequestError) -> RequestError {
    error.message = words(&error.message);
    error.hint = words(&error.hint);
    if let Some(found) = error.validation.take() {
        error.validation = Some(Box::new(found_in_commands(*found)));
    }
    error
}

/// The same findings.
pub(super) fn found_in_commands(mut found: Validation) -> Validation {
    for issue in &mut found.issues {
        issue.hint = words(&issue.hint);
    }
    for advice in &mut found.recommendations {
        *advice = words(advice);
    }
    found
}

/// The same text.
pub(super) fn words(text: &str) -> String {
    let mut said = text.to_owned();
    // Bounded: each turn takes one away.
    while let Some((before, rest)) = said.split_once("`allowed_imports: [\"") {
        let Some((module, after)) = rest.split_once("\"]`") else {
            break;
        };
        said = format!("{before}`--allow-import {module}`{after}");
    }
    for (tool, command) in COMMANDS {
        if said.contains(tool) {
            said = said.replace(tool, command);
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tool_is_named_that_has_a_command() {
        let hint = "`list_sessions` names those there are; `create_session` makes one.";
        let said = in_commands(RequestError::invalid("there is none.", hint));
        assert_eq!(
            said.hint,
            "`ringfence session list` names those there are; `ringfence session create` makes one."
        );
        assert_eq!(said.message, "there is none.");
        assert_eq!(
            words("add it by `allowed_imports: [\"os.path\"]`, or all to `allowed_imports`."),
            "add it by `--allow-import os.path`, or all to `--allow-import`."
        );
        assert_eq!(words("`allowed_imports: [\""), "`allowed_imports: [\"");
    }
}
