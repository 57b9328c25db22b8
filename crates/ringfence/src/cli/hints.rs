//! Refusals are written for the callers of tools. At the command line their hints name commands and flags instead, and this is
//! the only place that knows both.

use ringfence_types::RequestError;

const COMMANDS: [(&str, &str); 18] = [
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
    ("`validate_code`", "`ringfence validate`"),
];

/// The same refusal, in the words of commands.
pub(super) fn in_commands(mut error: RequestError) -> RequestError {
    for (tool, command) in COMMANDS {
        if error.message.contains(tool) || error.hint.contains(tool) {
            error.message = error.message.replace(tool, command);
            error.hint = error.hint.replace(tool, command);
        }
    }
    error
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
    }
}
