//! Tests of the whole command line and its help.

use super::*;

/// Returns the names and help texts of the program and of each command, at a fixed width.
pub(crate) fn helps() -> Vec<(String, String)> {
    let mut command = definition().term_width(100);
    command.build();
    let mut helps = Vec::new();
    add_help("ringfence", &mut command, &mut helps);
    helps
}

fn add_help(name: &str, command: &mut clap::Command, helps: &mut Vec<(String, String)>) {
    helps.push((name.to_owned(), command.render_long_help().to_string()));
    for inner in command
        .get_subcommands_mut()
        .filter(|inner| inner.get_name() != "help")
    {
        add_help(&format!("{name} {}", inner.get_name()), inner, helps);
    }
}

/// Reads a command line as `main` does.
pub(crate) fn parse(words: &[String]) -> Result<ArgMatches, clap::Error> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    definition().try_get_matches_from(config_first(&words))
}

#[test]
fn command_line_definition_is_valid() {
    definition().debug_assert();
}

#[test]
fn json_flag_is_found_in_any_command() {
    let asks = |words: &[&str]| {
        let matches = definition().try_get_matches_from([&["ringfence"], words].concat());
        asks_for_json(&matches.unwrap())
    };
    assert!(asks(&["stats", "--json"]) && asks(&["vault", "list", "--json"]));
    assert!(asks(&["approvals", "--json"]) && asks(&["session", "--json", "list"]));
    assert!(!asks(&["stats"]) && !asks(&["audit", "export"]) && !asks(&["serve"]));
}

#[test]
fn config_flag_is_accepted_before_any_subcommand() {
    let named = |line: &str| {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let matches = definition().try_get_matches_from(config_first(&words));
        matches.map(|matches| Cli::from_arg_matches(&matches).unwrap().config)
    };
    for line in [
        "ringfence audit --config c.yaml list --limit 2",
        "ringfence audit --config=c.yaml list --limit 2",
        "ringfence audit list --config c.yaml",
        "ringfence snapshot --config c.yaml create text",
        "ringfence vault --config c.yaml list",
    ] {
        assert_eq!(named(line).unwrap(), Some("c.yaml".into()), "{line}");
    }
    assert!(named("ringfence audit --limit 2 list").is_err());
    assert!(named("ringfence audit list --config").is_err());
}

#[test]
fn help_matches_golden() {
    let text: Vec<String> = helps()
        .iter()
        .map(|(name, help)| format!("--- {name} ---\n{help}"))
        .collect();
    crate::golden::compare("help.txt", &text.join("\n"));
}
