//! Examples for each command and groups of commands in the help; the commands `ringfence man` and `completions`.

use super::{CommandResult, Context, definition};
use clap::{Args, Command, builder::Str};
use clap_complete::Shell;
use ringfence_types::RequestError;
use std::{fs, path::PathBuf, process::ExitCode};

#[derive(Debug, Args)]
pub(super) struct ManArguments {
    /// Directory for one page per command, such as /usr/local/share/man/man1 [default: print the main page]
    directory: Option<PathBuf>,
}

const GROUPS: [(&str, &str); 5] = [
    ("Run code", "run validate session bridge snapshot artifacts web"),
    ("Serve agents", "serve connect token approvals egress host vault"),
    (
        "See what happens",
        "ps logs cancel events audit verify inspect stats queue",
    ),
    ("Set up", "doctor config limits bench"),
    ("Learn", "completions man help"),
];

/// Valid command lines, in the order of the help. A command with subcommands shows the first example of each.
const EXAMPLES: &str = include_str!("examples.txt");

/// Adds examples and groups to the help. Lets negative values follow an option, as in `--timeout -1` and `--ttl -5m`,
/// which would otherwise be taken for flags.
pub(super) fn complete(command: Command) -> Command {
    let groups = groups(&command);
    let command = command.mut_subcommands(|one| {
        let name = one.get_name().to_owned();
        with_examples(one, &name)
    });
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}\nOptions:\n{{options}}\n\n\
         `ringfence help COMMAND` shows a command's flags and examples.\n"
    ))
}

fn groups(command: &Command) -> String {
    let about = |name: &str| {
        let about = command.find_subcommand(name).and_then(Command::get_about);
        let about = about.map_or_else(
            || "Show this, or the help of a command".to_owned(),
            ToString::to_string,
        );
        format!("  {name:<12} {about}\n")
    };
    let group = |(title, names): &(&str, &str)| {
        let lines: String = names.split(' ').map(about).collect();
        format!("{title}:\n{lines}")
    };
    GROUPS.iter().map(group).collect::<Vec<_>>().join("\n")
}

fn with_examples(command: Command, path: &str) -> Command {
    let names = command.get_subcommands().map(|one| one.get_name().to_owned());
    let names: Vec<String> = names.collect();
    let lines: Vec<&str> = if names.is_empty() {
        examples(path).collect()
    } else {
        let first = |name: &String| examples(&format!("{path} {name}")).next();
        names.iter().filter_map(first).collect()
    };
    let command = command
        .mut_args(|arg| {
            let is_option = arg.get_action().takes_values() && !arg.is_positional();
            let is_with_unit = |names: &[Str]| ["LENGTH", "SIZE", "TIME"].contains(&names[0].as_str());
            let begins = arg.is_allow_hyphen_values_set() || arg.get_value_names().is_some_and(is_with_unit);
            arg.allow_negative_numbers(is_option).allow_hyphen_values(begins)
        })
        .mut_subcommands(|one| {
            let path = format!("{path} {}", one.get_name());
            with_examples(one, &path)
        });
    match lines.is_empty() {
        true => command,
        false => command.after_help(format!("Examples:\n  {}", lines.join("\n  "))),
    }
}

fn examples(path: &str) -> impl Iterator<Item = &'static str> {
    let begins = move |line: &&str| {
        let words = line
            .split_once("ringfence ")
            .and_then(|(_, words)| words.strip_prefix(path));
        words.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ')']))
    };
    EXAMPLES.lines().filter(begins)
}

pub(super) fn man(context: &Context, arguments: &ManArguments) -> CommandResult {
    let Some(directory) = &arguments.directory else {
        let mut page = Vec::new();
        let made = clap_mangen::Man::new(definition()).render(&mut page);
        let printed = made.and_then(|()| context.terminal.print(&String::from_utf8_lossy(&page)));
        return super::printed(printed);
    };
    let written =
        fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(definition(), directory));
    written.map_err(|error| {
        RequestError::invalid(
            format!("the pages cannot be written to {}: {error}.", directory.display()),
            "Name a directory that you may write.",
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
pub(super) struct CompletionsArguments {
    /// Shell to complete in
    shell: Shell,
}

pub(super) fn completions(context: &Context, arguments: &CompletionsArguments) -> CommandResult {
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

    #[test]
    fn every_command_has_one_group_and_examples_that_parse() {
        let mut all = definition();
        all.build();
        let mut names: Vec<&str> = all.get_subcommands().map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.split(' ')).collect();
        names.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(names, grouped);
        for (command, help) in super::super::tests::helps() {
            assert!(
                help.contains("Examples:\n") || command == "ringfence",
                "{command}: {help}"
            );
        }
        for line in EXAMPLES.lines() {
            let from = line.split_once("ringfence ").map_or("", |(_, rest)| rest);
            let words = from.split([')', '|', '>']).next().unwrap_or_default();
            let id = "01890000-0000-7000-8000-000000000000";
            let words = words.replace("$id:", "0:");
            let words = words
                .split('\'')
                .enumerate()
                .flat_map(|(number, part)| match number % 2 {
                    0 => part.split_whitespace().collect(),
                    _ => vec![part],
                });
            let words = words.map(|word| if word.starts_with('$') { id } else { word });
            let parsed = definition().try_get_matches_from(std::iter::once("ringfence").chain(words));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn manual_page_of_the_program_is_rendered() {
        let mut page = Vec::new();
        clap_mangen::Man::new(definition()).render(&mut page).unwrap();
        assert!(String::from_utf8(page).unwrap().contains(".TH ringfence 1"));
    }

    use clap::ValueEnum;

    #[test]
    fn completion_script_of_every_shell_names_the_commands() {
        for shell in Shell::value_variants() {
            let script = script(*shell);
            for word in ["run", "serve", "doctor", "completions"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
