//! `ringfence completions`: a script that teaches a shell our words.

use super::{Context, definition};
use clap::Args;
use clap_complete::Shell;
use ringfence_types::RequestError;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct CompletionsArguments {
    /// Shell to complete in
    shell: Shell,
}

pub(super) fn completions(
    context: &Context,
    arguments: &CompletionsArguments,
) -> Result<ExitCode, RequestError> {
    let text = script(arguments.shell);
    super::printed(context.terminal.print(&text))
}

fn script(shell: Shell) -> String {
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut definition(), "ringfence", &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_shell_gets_a_script_that_knows_our_commands() {
        for shell in Shell::value_variants() {
            let script = script(*shell);
            for word in ["run", "serve", "doctor", "completions"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
