//! Variables that people have from the servers that Ringfence replaces. Each one takes effect, or is accepted because
//! its value describes what happens anyway, or is refused; none is read and ignored.

use ringfence_types::parse_size;

/// What an alias does.
enum Effect {
    /// It sets this setting; the text is the same.
    Sets(&'static str),
    /// It sets this setting, in MiB, from a size ("256m").
    SetsMebibytes(&'static str),
    /// What it is about does not exist in this version: only these values are true.
    Fixed(&'static [&'static str], &'static str),
    /// No value of it is true in this version.
    Refused(&'static str),
}

/// Words for "this is not there".
const OFF: &[&str] = &["off", "false", "no", "none", "0", "disabled", "deny"];
/// Words for "this is not restricted".
const ON: &[&str] = &["on", "true", "yes", "1", "enabled"];

/// Every alias, in the order of the contract.
const ALIASES: &[(&str, Effect)] = &[
    ("SANDBOXMCP_BACKEND", Effect::Sets("backend")),
    ("SANDBOXMCP_MAX_CONCURRENT", Effect::Sets("queue.concurrency")),
    (
        "SANDBOXMCP_NETWORK",
        Effect::Fixed(OFF, "sandboxes have no network in this version"),
    ),
    ("SANDBOXMCP_VAULT", Effect::Sets("vault.store")),
    ("SANDBOXMCP_AUDIT", Effect::Sets("audit.store")),
    ("SANDBOXMCP_MAX_RAM_MB", Effect::Sets("limits.ram_mb")),
    ("SANDBOXMCP_TIMEOUT", Effect::Sets("limits.timeout_seconds")),
    ("SANDBOXMCP_SQLITE_PATH", Effect::Sets("audit.path")),
    (
        "SANDBOXMCP_HOST_ACCESS",
        Effect::Fixed(OFF, "there is no host access in this version"),
    ),
    (
        "SANDBOXMCP_IMAGE",
        Effect::Refused("there is no container backend in this version"),
    ),
    ("SANDBOX_TIMEOUT", Effect::Sets("limits.timeout_seconds")),
    ("SANDBOX_MAX_OUTPUT_SIZE", Effect::Sets("limits.output_bytes")),
    (
        "SANDBOX_ENABLE_NETWORK",
        Effect::Fixed(OFF, "sandboxes have no network in this version"),
    ),
    (
        "SANDBOX_ENABLE_FILESYSTEM",
        Effect::Fixed(ON, "a program always has its own private file system"),
    ),
    (
        "SANDBOX_ENABLE_DATA_SCIENCE",
        Effect::Fixed(ON, "imports are not restricted in this version"),
    ),
    (
        "SANDBOX_ALLOWED_IMPORTS",
        Effect::Fixed(&["*"], "imports are not restricted in this version"),
    ),
    (
        "SANDBOX_ENABLE_CONTAINER_MODE",
        Effect::Fixed(OFF, "there is no container backend in this version"),
    ),
    (
        "SANDBOX_CONTAINER_IMAGE",
        Effect::Refused("there is no container backend in this version"),
    ),
    (
        "SANDBOX_DEFAULT_MEMORY_LIMIT",
        Effect::SetsMebibytes("limits.ram_mb"),
    ),
    (
        "SANDBOX_API_TOKEN",
        Effect::Refused("there is no HTTP server in this version, and stdio needs no token"),
    ),
];

/// Values that the vault holds, where it reads the environment.
const SECRET_PREFIX: &str = "SANDBOXMCP_SECRET_";
const MEBIBYTE: u64 = 1 << 20;

/// Why an alias is refused.
#[derive(Debug)]
pub(crate) struct Reason {
    pub(crate) what: String,
    pub(crate) hint: String,
}

/// Is this a variable of the table.
pub(crate) fn concerns(name: &str) -> bool {
    name.starts_with(SECRET_PREFIX) || ALIASES.iter().any(|(alias, _)| *alias == name)
}

/// The setting and the value in its own words; `None` when the value says what is so anyway.
pub(crate) fn meaning(name: &str, text: &str) -> Result<Option<(&'static str, String)>, Reason> {
    let refused = |why: &str| Reason {
        // never the value: it may be a secret
        what: format!("{name} cannot be honoured: {why}."),
        hint: "Unset it; it would have no effect.".to_owned(),
    };
    let Some((_, effect)) = ALIASES.iter().find(|(alias, _)| *alias == name) else {
        return Ok(None);
    };
    match effect {
        Effect::Sets(path) => Ok(Some((path, text.to_owned()))),
        Effect::SetsMebibytes(path) => {
            let bytes = parse_size(text).map_err(|why| refused(&why))?;
            Ok(Some((path, bytes.div_ceil(MEBIBYTE).to_string())))
        }
        Effect::Fixed(values, _) if values.contains(&text.to_ascii_lowercase().as_str()) => Ok(None),
        Effect::Fixed(values, why) => {
            let hint = format!("Unset it, or set it to what is so: {}.", values.join(", "));
            Err(Reason { hint, ..refused(why) })
        }
        Effect::Refused(why) => Err(refused(why)),
    }
}

/// Every alias and what it does, as the reference tells it.
#[cfg(test)]
pub(crate) fn described() -> impl Iterator<Item = (String, String)> {
    let vault = (
        format!("{SECRET_PREFIX}{{NAMESPACE}}_{{KEY}}"),
        "a secret, as `RINGFENCE_SECRET_{NAMESPACE}_{KEY}` (`vault.store: env`)".to_owned(),
    );
    ALIASES
        .iter()
        .map(|(name, effect)| {
            let effect = match effect {
                Effect::Sets(path) => format!("sets `{path}`"),
                Effect::SetsMebibytes(path) => format!("sets `{path}`, from a size such as `256m`"),
                Effect::Fixed(values, why) => {
                    format!(
                        "accepted as {}, else refused: {why}",
                        values.join(", ").replace('*', "\\*")
                    )
                }
                Effect::Refused(why) => format!("refused: {why}"),
            };
            ((*name).to_owned(), effect)
        })
        .chain([vault])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_alias_takes_effect_or_is_refused() {
        let sets = |name: &str, text: &str, path: &str, value: &str| {
            let (given, read) = meaning(name, text).unwrap().unwrap();
            assert_eq!((given, read.as_str()), (path, value), "{name}");
        };
        sets("SANDBOXMCP_BACKEND", "native", "backend", "native");
        sets("SANDBOXMCP_MAX_CONCURRENT", "3", "queue.concurrency", "3");
        sets("SANDBOXMCP_MAX_RAM_MB", "256", "limits.ram_mb", "256");
        sets("SANDBOXMCP_TIMEOUT", "10", "limits.timeout_seconds", "10");
        sets("SANDBOXMCP_VAULT", "env", "vault.store", "env");
        sets("SANDBOXMCP_AUDIT", "memory", "audit.store", "memory");
        sets("SANDBOXMCP_SQLITE_PATH", "/x.db", "audit.path", "/x.db");
        sets("SANDBOX_TIMEOUT", "10", "limits.timeout_seconds", "10");
        sets("SANDBOX_MAX_OUTPUT_SIZE", "1000", "limits.output_bytes", "1000");
        sets("SANDBOX_DEFAULT_MEMORY_LIMIT", "256m", "limits.ram_mb", "256");
        sets("SANDBOX_DEFAULT_MEMORY_LIMIT", "1g", "limits.ram_mb", "1024");
        let same = |name: &str, text: &str| assert!(meaning(name, text).unwrap().is_none(), "{name}={text}");
        same("SANDBOXMCP_NETWORK", "none");
        same("SANDBOXMCP_NETWORK", "deny");
        same("SANDBOX_ENABLE_NETWORK", "False");
        same("SANDBOXMCP_HOST_ACCESS", "off");
        same("SANDBOX_ENABLE_CONTAINER_MODE", "false");
        same("SANDBOX_ENABLE_FILESYSTEM", "true");
        let refused = |name: &str, text: &str| {
            let reason = meaning(name, text).unwrap_err();
            assert!(reason.what.contains(name), "{name}");
            assert!(
                !reason.what.contains("hunter2") && !reason.hint.contains("hunter2"),
                "{name} shows its value"
            );
        };
        refused("SANDBOXMCP_NETWORK", "bridge");
        refused("SANDBOX_ENABLE_NETWORK", "true");
        refused("SANDBOX_ENABLE_FILESYSTEM", "false");
        refused("SANDBOX_ALLOWED_IMPORTS", "math,json");
        refused("SANDBOXMCP_HOST_ACCESS", "true");
        refused("SANDBOX_ENABLE_CONTAINER_MODE", "true");
        refused("SANDBOXMCP_IMAGE", "python:3.12");
        refused("SANDBOX_CONTAINER_IMAGE", "python:3.12");
        refused("SANDBOX_API_TOKEN", "hunter2");
        refused("SANDBOX_DEFAULT_MEMORY_LIMIT", "lots");
    }

    #[test]
    fn every_alias_of_the_table_concerns_us_and_strangers_do_not() {
        assert!(ALIASES.iter().all(|(name, _)| concerns(name)));
        assert!(concerns("SANDBOXMCP_SECRET_A_B"));
        assert!(!concerns("SANDBOX_COLOUR") && !concerns("PATH"));
    }
}
