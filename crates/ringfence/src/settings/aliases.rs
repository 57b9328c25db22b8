//! Variables that people have from the servers that Ringfence replaces. Each one takes effect, or is accepted because
//! its value describes what happens anyway, or is refused; none is read and ignored.

use ringfence_types::{Profile, nearest::nearest, parse_size};

enum Effect {
    /// It sets this setting; the text is the same.
    Sets(&'static str),
    /// The same, but for the documented default of the server that is replaced, which stands for this; none: for ours.
    SetsBut(&'static str, &'static str, Option<&'static str>),
    /// It says how something looks that is off here, as it is there by default.
    Unused,
    /// It sets this setting, in MiB, from a size ("256m").
    SetsMebibytes(&'static str),
    /// It says whether callers may choose this profile; the second: why they may not be offered it, where that is so.
    Offers(Profile, Option<&'static str>),
    /// What programs may import, which restricts them to it; `*`: everything.
    Imports,
    /// What it is about does not exist in this version: only these values are true.
    Fixed(&'static [&'static str], &'static str),
    /// No value of it is true in this version.
    Refused(&'static str),
}

/// Words for "this is not there".
const OFF: &[&str] = &["off", "false", "no", "none", "0", "disabled", "deny"];
/// Words for "this is there".
const ON: &[&str] = &["on", "true", "yes", "1", "enabled"];

/// Every alias, in the order of the contract.
const ALIASES: &[(&str, Effect)] = {
    use Effect::{Fixed, Imports, Offers, Refused, Sets, SetsBut, SetsMebibytes, Unused};
    &[
        (
            "SANDBOXMCP_BACKEND",
            SetsBut("backend", "process", Some("native")),
        ),
        ("SANDBOXMCP_MAX_CONCURRENT", Sets("queue.concurrency")),
        (
            "SANDBOXMCP_NETWORK",
            Fixed(
                OFF,
                "programs reach the hosts that `egress.allow` names, and no others: name them there",
            ),
        ),
        ("SANDBOXMCP_VAULT", Sets("vault.store")),
        ("SANDBOXMCP_AUDIT", Sets("audit.store")),
        ("SANDBOXMCP_MAX_RAM_MB", Sets("limits.ram_mb")),
        ("SANDBOXMCP_TIMEOUT", Sets("limits.timeout_seconds")),
        (
            "SANDBOXMCP_SQLITE_PATH",
            SetsBut("audit.path", "sandboxmcp.db", None),
        ),
        (
            "SANDBOXMCP_HOST_ACCESS",
            Fixed(OFF, "there is no host access in this version"),
        ),
        (
            "SANDBOXMCP_IMAGE",
            Refused("there is no container backend in this version"),
        ),
        ("SANDBOX_TIMEOUT", Sets("limits.timeout_seconds")),
        ("SANDBOX_MAX_OUTPUT_SIZE", Sets("limits.output_bytes")),
        (
            "SANDBOX_ENABLE_NETWORK",
            Offers(
                Profile::Network,
                Some(
                    "programs reach the hosts that `egress.allow` names: name them there, and the profile in `check.profiles`",
                ),
            ),
        ),
        ("SANDBOX_ENABLE_FILESYSTEM", Offers(Profile::Filesystem, None)),
        ("SANDBOX_ENABLE_DATA_SCIENCE", Offers(Profile::DataScience, None)),
        ("SANDBOX_ALLOWED_IMPORTS", Imports),
        (
            "SANDBOX_ENABLE_CONTAINER_MODE",
            Fixed(OFF, "there is no container backend in this version"),
        ),
        ("SANDBOX_CONTAINER_IMAGE", Unused),
        ("SANDBOX_DEFAULT_MEMORY_LIMIT", SetsMebibytes("limits.ram_mb")),
        (
            "SANDBOX_API_TOKEN",
            Refused("there is no HTTP server in this version, and stdio needs no token"),
        ),
    ]
};

/// Values that the vault holds, where it reads the environment.
const SECRET_PREFIX: &str = "SANDBOXMCP_SECRET_";
const MEBIBYTE: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Reason {
    pub(crate) what: String,
    pub(crate) hint: String,
}

/// What a variable of the table says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Already the case.
    Nothing,
    /// This setting, in its own words.
    Sets(&'static str, String),
    /// The same, and programs may import nothing else.
    Restricts(&'static str, String),
    Offers(Profile, Offered),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    Yes,
    No,
}

/// Is this a variable of the table.
pub(crate) fn concerns(name: &str) -> bool {
    name.starts_with(SECRET_PREFIX) || ALIASES.iter().any(|(alias, _)| *alias == name)
}

/// The name of the table that is meant by one that is not in it. `SANDBOX_` is other programs' beginning, too.
pub(crate) fn misspelt(name: &str) -> Option<String> {
    let beginnings = ["SANDBOXMCP_", "SANDBOX_"];
    let (beginning, rest) = beginnings
        .into_iter()
        .find_map(|beginning| Some((beginning, name.strip_prefix(beginning)?)))?;
    let known = ALIASES
        .iter()
        .filter_map(|(alias, _)| alias.strip_prefix(beginning));
    let near = nearest(rest, known);
    let is_ours = beginning == beginnings[0] || near.is_some();
    let near = near.map_or_else(String::new, |near| format!(" Did you mean `{beginning}{near}`?"));
    (is_ours && !concerns(name)).then_some(near)
}

/// What it says, or why it cannot be honoured.
pub(crate) fn meaning(name: &str, text: &str) -> Result<Meaning, Reason> {
    let refused = |why: &str| Reason {
        // never the value: it may be a secret
        what: format!("{name} cannot be honoured: {why}."),
        hint: "Unset it; it would have no effect.".to_owned(),
    };
    let Some((_, effect)) = ALIASES.iter().find(|(alias, _)| *alias == name) else {
        return Ok(Meaning::Nothing);
    };
    let is = |words: &[&str]| words.contains(&text.to_ascii_lowercase().as_str());
    match effect {
        Effect::SetsBut(path, default, instead) if text == *default => {
            Ok(instead.map_or(Meaning::Nothing, |text| Meaning::Sets(path, text.to_owned())))
        }
        Effect::Sets(path) | Effect::SetsBut(path, ..) => Ok(Meaning::Sets(path, text.to_owned())),
        Effect::Unused => Ok(Meaning::Nothing),
        Effect::SetsMebibytes(path) => {
            let bytes = parse_size(text).map_err(|why| refused(&why))?;
            Ok(Meaning::Sets(path, bytes.div_ceil(MEBIBYTE).to_string()))
        }
        Effect::Imports if text.trim() == "*" => Ok(Meaning::Nothing),
        Effect::Imports => Ok(Meaning::Restricts("check.allowed_imports", text.to_owned())),
        Effect::Offers(profile, _) if is(OFF) => Ok(Meaning::Offers(*profile, Offered::No)),
        Effect::Offers(profile, None) if is(ON) => Ok(Meaning::Offers(*profile, Offered::Yes)),
        Effect::Offers(_, Some(why)) if is(ON) => Err(refused(why)),
        Effect::Offers(..) => Err(Reason {
            hint: format!("Set it to one of {}, {}.", ON.join(", "), OFF.join(", ")),
            ..refused("it says neither yes nor no")
        }),
        Effect::Fixed(values, _) if is(values) => Ok(Meaning::Nothing),
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
                Effect::SetsBut(path, default, instead) => {
                    let instead = instead.unwrap_or("the default");
                    format!("sets `{path}`; `{default}` stands for {instead}")
                }
                Effect::Unused => "accepted: without SANDBOX_ENABLE_CONTAINER_MODE no image is used".to_owned(),
                Effect::SetsMebibytes(path) => format!("sets `{path}`, from a size such as `256m`"),
                Effect::Offers(profile, None) => format!(
                    "adds the profile `{0}` to `check.profiles`, or takes it away",
                    profile.as_str()
                ),
                Effect::Offers(profile, Some(why)) => format!(
                    "off: takes the profile `{}` from `check.profiles`; on is refused: {why}",
                    profile.as_str()
                ),
                Effect::Imports => {
                    "programs may import these modules alone (`check.allowed_imports`; `check.profile` is `basic` \
                    unless it is set); `\\*`: nothing is restricted"
                        .to_owned()
                }
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
            let Meaning::Sets(given, read) = meaning(name, text).unwrap() else {
                panic!("{name} sets nothing")
            };
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
        let means = |name: &str, text: &str, expect: Meaning| {
            assert_eq!(meaning(name, text).unwrap(), expect, "{name}={text}");
        };
        let same = |name: &str, text: &str| means(name, text, Meaning::Nothing);
        same("SANDBOXMCP_NETWORK", "none");
        same("SANDBOXMCP_NETWORK", "deny");
        let no = |profile| Meaning::Offers(profile, Offered::No);
        means("SANDBOX_ENABLE_NETWORK", "False", no(Profile::Network));
        means("SANDBOX_ENABLE_DATA_SCIENCE", "off", no(Profile::DataScience));
        let yes = |profile| Meaning::Offers(profile, Offered::Yes);
        means("SANDBOX_ENABLE_DATA_SCIENCE", "True", yes(Profile::DataScience));
        means("SANDBOX_ENABLE_FILESYSTEM", "1", yes(Profile::Filesystem));
        let imports = Meaning::Restricts("check.allowed_imports", "math,json".to_owned());
        means("SANDBOX_ALLOWED_IMPORTS", "math,json", imports);
        same("SANDBOX_ALLOWED_IMPORTS", "*");
        same("SANDBOXMCP_HOST_ACCESS", "off");
        same("SANDBOX_ENABLE_CONTAINER_MODE", "false");
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
        refused("SANDBOX_ENABLE_FILESYSTEM", "hunter2");
        refused("SANDBOXMCP_HOST_ACCESS", "true");
        refused("SANDBOX_ENABLE_CONTAINER_MODE", "true");
        refused("SANDBOXMCP_IMAGE", "python:3.12");
        same("SANDBOX_CONTAINER_IMAGE", "python:3.12");
        sets("SANDBOXMCP_BACKEND", "process", "backend", "native");
        same("SANDBOXMCP_SQLITE_PATH", "sandboxmcp.db");
        refused("SANDBOX_API_TOKEN", "hunter2");
        refused("SANDBOX_DEFAULT_MEMORY_LIMIT", "lots");
    }

    #[test]
    fn every_alias_of_the_table_concerns_us_and_strangers_do_not() {
        assert!(ALIASES.iter().all(|(name, _)| concerns(name)));
        assert!(concerns("SANDBOXMCP_SECRET_A_B"));
        assert!(!concerns("SANDBOX_COLOUR") && !concerns("PATH"));
        assert!(misspelt("SANDBOX_COLOUR").is_none() && misspelt("PATH").is_none());
        assert!(misspelt("SANDBOXMCP_SECRET_A_B").is_none() && misspelt("SANDBOX_TIMEOUT").is_none());
        assert_eq!(misspelt("SANDBOXMCP_XYZ").unwrap(), "");
        let near = " Did you mean `SANDBOX_TIMEOUT`?";
        assert_eq!(misspelt("SANDBOX_TIMEOUTS").as_deref(), Some(near));
    }
}
