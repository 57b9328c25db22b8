//! What an operator typed into the configuration file, before it means anything. The text is a stranger's as far as
//! the parser is concerned: its size, nesting and aliases are bounded.

use super::keys::{ConfigFile, Layer};
use ringfence_types::nearest::suggestion;
use serde::de::DeserializeOwned;
use serde_saphyr::Error;
use std::{fmt, iter, path::Path, sync::Arc};

/// The longest configuration file, in bytes.
pub const CONFIG_BYTES_MAX: usize = 1 << 20;
const EVENTS_MAX: usize = 10_000;
const ALIASES_MAX: usize = 100;
const DEPTH_MAX: usize = 32;

/// Why a configuration file is refused.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// From 1; absent where the text as a whole is at fault.
    pub line: Option<u64>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Reads a configuration file's text.
pub fn parse_config(text: &str) -> Result<ConfigFile, ConfigError> {
    read(text)
}

/// The most that are told of one file.
const FAULTS_MAX: usize = 20;

/// What is wrong in a file's text, and the rest of it, which is read again without each setting that has an error.
fn faults(text: &str) -> (Vec<ConfigError>, String) {
    let mut lines: Vec<&str> = text.lines().collect();
    let mut faults: Vec<ConfigError> = Vec::new();
    while let Err(error) = parse_config(&lines.join("\n")) {
        let at = error
            .line
            .and_then(|line| usize::try_from(line).ok()?.checked_sub(1));
        // What stands above the last fault comes of what was left out below it.
        if faults.last().is_none_or(|last| last.line < error.line) {
            faults.push(error);
        }
        let is_left = |at: &usize| lines.get(*at).is_some_and(|line| !line.trim().is_empty());
        let Some(at) = at.filter(is_left).filter(|_| faults.len() < FAULTS_MAX) else {
            break;
        };
        let depth = |line: &str| line.len() - line.trim_start().len();
        let own = depth(lines[at]);
        let is_entry = |line: &str| line.trim_start().starts_with('-');
        // A list that is wrong is told at its first entry.
        let is_more = |line: &&&str| is_entry(line) && is_entry(lines[at]) && depth(line) == own;
        let below = lines[at + 1..]
            .iter()
            .take_while(|line| line.trim().is_empty() || depth(line) > own || is_more(line));
        let end = at + 1 + below.count();
        lines[at..end].fill("");
    }
    (faults, lines.join("\n"))
}

/// The settings of a file's text, each with its line, what is wrong, and the words there; none: nothing can be
/// read of it.
pub(super) fn layer(path: &Arc<Path>, text: &str) -> (Option<Layer>, Vec<ConfigError>, Vec<String>) {
    let whole = |text: &str| Some(parse_config(text).ok()?.into_layer(path, read(text).ok()?));
    if let Some(layer) = whole(text) {
        return (Some(layer), Vec::new(), Vec::new());
    }
    let (faults, rest) = faults(text);
    let lines = text.lines().zip(rest.lines().chain(iter::repeat("")));
    let lost = lines.filter(|(line, rest)| line != rest);
    let is_between = |letter: char| letter != '_' && !letter.is_ascii_alphanumeric();
    let words = lost
        .flat_map(|(line, _)| line.split(is_between))
        .map(str::to_owned);
    (whole(&rest), faults, words.collect())
}

fn read<T: Default + DeserializeOwned>(text: &str) -> Result<T, ConfigError> {
    if text.len() > CONFIG_BYTES_MAX {
        return Err(ConfigError {
            line: None,
            message: "the file is longer than 1 MiB".to_owned(),
        });
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: EVENTS_MAX,
            max_aliases: ALIASES_MAX,
            max_anchors: ALIASES_MAX,
            max_depth: DEPTH_MAX,
            max_documents: 1,
        },
        // comments are read past, whatever their number
        emit_comments: false,
        with_snippet: false,
    };
    // A file of comments only says nothing, which is fine.
    let file: Option<T> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| explain(&error, text))?;
    Ok(file.unwrap_or_default())
}

/// Keys of the servers that Ringfence replaces, and what they are called here.
const EARLIER: [(&str, &str); 22] = [
    ("allowed_imports", "check.allowed_imports"),
    ("audit_backend", "audit.store"),
    ("default_backend", "backend"),
    ("default_memory_limit", "limits.ram_mb"),
    ("default_timeout", "limits.timeout_seconds"),
    ("enable_data_science", "check.profiles"),
    ("enable_filesystem", "check.profiles"),
    ("enable_network", "egress.allow"),
    ("max_concurrent", "queue.concurrency"),
    ("max_cpu_cores", "limits.cpu_cores"),
    ("max_memory_mb", "limits.ram_mb"),
    ("max_output_bytes", "limits.output_bytes"),
    ("max_output_size", "limits.output_bytes"),
    ("max_processes", "limits.processes"),
    ("max_ram_mb", "limits.ram_mb"),
    ("memory_limit", "limits.ram_mb"),
    ("network", "egress.allow"),
    ("network_allowlist", "egress.allow"),
    ("sqlite_path", "audit.path"),
    ("timeout", "limits.timeout_seconds"),
    ("timeout_seconds", "limits.timeout_seconds"),
    ("vault_backend", "vault.store"),
];

/// What a parser calls a type, and a person.
const KINDS: [(&str, &str); 6] = [
    ("u64", "a whole number"),
    ("f", "a number"),
    ("bool", "true or false"),
    ("mapping", "a mapping"),
    ("sequence", "a list"),
    ("string", "text"),
];

/// The key before a place in the text, and what stands behind it.
fn setting_at(text: &str, place: serde_saphyr::Location) -> Option<(&str, &str)> {
    let index = |number: u64| usize::try_from(number).ok()?.checked_sub(1);
    let line = text.lines().nth(index(place.line())?)?;
    let at = line.char_indices().nth(index(place.column())?)?.0;
    if let Some((before, _)) = line[..at].rsplit_once(": ")
        && before.contains('{')
    {
        // In a flow mapping, the key before it and what stands up to the next one.
        let key = before.rsplit(['{', ',', ' ']).next()?;
        let end = line[at..]
            .find([',', '}', ']'])
            .map_or(line.len(), |end| at + end);
        return Some((key, line[at..end].trim()));
    }
    let (key, value) = line.split_once(':')?;
    if key.trim_start().starts_with('-') && index(place.column())? <= key.len() {
        return None; // it is the place of the list's entry, which begins with the key
    }
    let key = key.trim_start_matches([' ', '-']);
    let is_key = key
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    let value = value.split(" #").next().unwrap_or(value);
    (is_key && (value.is_empty() || value.starts_with(' '))).then(|| (key, value.trim()))
}

fn explain(error: &Error, text: &str) -> ConfigError {
    let error = error.without_snippet();
    let line = error.location().map(|location| location.line());
    let setting = error.location().and_then(|place| setting_at(text, place));
    let is_not = |expected: &str| {
        let kind = KINDS.iter().find(|(inner, _)| expected.starts_with(inner));
        let expected = kind.map_or(expected, |(_, kind)| kind);
        match setting {
            Some((key, "")) => format!("`{key}` is {expected}"),
            Some((key, value)) => format!("`{key}` is {expected}, not `{value}`"),
            None => format!("expected {expected}"),
        }
    };
    let message = match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            let known = expected.iter().copied();
            let earlier = EARLIER.iter().find(|(key, _)| key == field);
            let meant = match earlier {
                Some((_, now)) => format!(" It is called `{now}`."),
                None => suggestion(field, known),
            };
            format!(
                "`{field}` is not a setting here.{meant} Known: {}.",
                expected.join(", ")
            )
        }
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("`{key}` is here twice"),
        Error::InvalidScalar { ty, .. } => is_not(ty),
        Error::Unexpected { expected, .. } => is_not(expected),
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            is_not(expected)
        }
        // The parser's own text ends with the place, which is told apart here.
        other => {
            let said = other.to_string();
            let said = said
                .split(" at line ")
                .next()
                .unwrap_or(&said)
                .trim_end_matches(',');
            match (other, setting) {
                (Error::Message { .. }, Some((key, _))) => format!("`{key}`: {said}"),
                _ => said.to_owned(),
            }
        }
    };
    ConfigError { line, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> ConfigError {
        parse_config(text).unwrap_err()
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line_and_the_nearest_name() {
        let error = refused("backend: native\nlimits:\n  ram_mbb: 5\n");
        assert_eq!(error.line, Some(3), "{error}");
        assert!(error.message.contains("`ram_mbb`"), "{error}");
        assert!(error.message.contains("Did you mean `ram_mb`?"), "{error}");
        let error = refused("flor: full\n");
        assert_eq!(error.line, Some(1), "{error}");
        assert!(error.message.contains("Did you mean `floor`?"), "{error}");
    }

    #[test]
    fn a_bad_value_is_refused_with_its_line() {
        let check = |text: &str, line: u64, part: &str| {
            let error = refused(text);
            assert_eq!(error.line, Some(line), "{text}: {error}");
            assert!(error.message.contains(part), "{text}: {error}");
        };
        check(
            "floor: none\n",
            1,
            "`floor`: `none` is not one of full, gvisor, container, landlock",
        );
        check("floor: [full]\n", 1, "`floor` is text, not `[full]`");
        check("\nlimits:\n  ram_mb: 0\n", 3, "`ram_mb`: 0 is outside 16");
        check("limits: 5\n", 1, "`limits` is a mapping, not `5`");
        check(
            "egress:\n  allow: example.com\n",
            2,
            "`allow` is a list, not `example.com`",
        );
        check(
            "limits:\n  ram_mb: 100\n  ram_mb: 200\n",
            3,
            "`ram_mb` is here twice",
        );
        check("runtimes:\n  mounts:\n    - here:x\n", 3, "the path `here:x`");
        check("workspaces:\n  - path: x\n", 2, "expected a mapping");
        check(
            "limits:\n  disk_mb: x # note: y\n",
            2,
            "`disk_mb` is a whole number, not `x`",
        );
        check("limits:\n  cpu_cores: .nan\n", 2, "outside");
        check(
            "limits:\n  ram_mb: -5\n",
            2,
            "`ram_mb` is a whole number, not `-5`",
        );
        check(
            "limits:\n  cpu_cores: lots\n",
            2,
            "`cpu_cores` is a number, not `lots`",
        );
        check(
            "\npackages:\n  enabled: 3\n",
            3,
            "`enabled` is true or false, not `3`",
        );
        check("default_backend: process\n", 1, "It is called `backend`");
        check("toolsets: [wub]\n", 1, "`wub` is not one of execute, sessions");
        check("state_dir: here\n", 1, "relative");
        check(
            "limits: {cpu_cores: 1, ram_mb: lots}\n",
            1,
            "`ram_mb` is a whole number, not `lots`",
        );
        check("vault: {store: nope}\n", 1, "`store`: `nope` is not one of");
        check(
            "egress: {allow: [\"http://x\"]}\n",
            1,
            "`allow`: `http://x` is no rule",
        );
        check("host: {rules: {a: 1}}\n", 1, "`rules` is text");
        check("floor: full\nfloor: landlock\n", 2, "floor");
    }

    #[test]
    fn each_setting_that_is_wrong_is_told() {
        let text = "flor: full\nlimits:\n  ram_mb: 0\n  cpu_core: 2\nrun:\n  a: 1\n  b: 2\nvault: {store: nope}\n\
                    egress:\n  allow:\n    - a.test\n    - http://x\nlog: loud\n";
        let faults = |text| faults(text).0;
        let told: Vec<Option<u64>> = faults(text).iter().map(|error| error.line).collect();
        let lines = [1, 3, 4, 5, 8, 11, 13];
        assert_eq!(told, lines.map(Some), "{:?}", faults(text));
        assert_eq!(faults("limits: {\n  ram_mb: 0,\n  x: 1}\n").len(), 2);
        assert_eq!(faults("floor: full\n"), []);
        assert_eq!(faults("limits:\n\tram_mb: 1\n").len(), 1);
        assert_eq!(faults(&"x: 1\n".repeat(50)).len(), FAULTS_MAX);
    }

    #[test]
    fn nothing_means_every_default() {
        for text in ["", "# only a comment\n", "---\n", "{}\n"] {
            let layer = layer(&Path::new("/c").into(), text).0.unwrap();
            assert!(
                layer.backend.is_none() && layer.limits_ram_mb.is_none(),
                "{text:?}"
            );
        }
    }

    #[test]
    fn values_know_their_lines() {
        let text = "limits:\n  ram_mb: 1024\n\n  cpu_cores: 2\ntoolsets: all\n";
        let layer = layer(&Path::new("/etc/c.yaml").into(), text).0.unwrap();
        let memory = layer.limits_ram_mb.unwrap();
        assert_eq!(
            (memory.value.get(), memory.origin.to_string().as_str()),
            (1024, "/etc/c.yaml:2")
        );
        assert_eq!(
            layer.limits_cpu_cores.unwrap().origin.to_string(),
            "/etc/c.yaml:4"
        );
        assert_eq!(layer.toolsets.unwrap().origin.to_string(), "/etc/c.yaml:5");
    }

    #[test]
    fn bombs_and_noise_are_refused_and_do_not_panic() {
        let laughs = "a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nd: [*c,*c,*c,*c]\n";
        let deep = "[".repeat(100_000);
        let long = format!("log: {}", "x".repeat(CONFIG_BYTES_MAX));
        for text in [
            laughs,
            &deep,
            &long,
            "\u{0}",
            "%",
            "a: b: c",
            "- 1\n- 2\n",
            "limits: 5\n",
            "!!binary x",
            "? a\n: b",
        ] {
            assert!(parse_config(text).is_err(), "{:?}", &text[..text.len().min(40)]);
        }
    }
}
