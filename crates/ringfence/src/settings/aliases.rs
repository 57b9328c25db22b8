//! Variables that people have from the servers that Ringfence replaces. Each one takes effect, or is accepted because
//! its value describes what happens anyway, or is refused; none is read and ignored.

use super::refusal;
use ringfence_types::{Profile, RequestError, nearest::nearest, parse_size};

enum Effect {
    /// It sets this setting; the text is the same.
    Sets(&'static str),
    /// The same, but for the documented default of the server that is replaced, which stands for this; none: for ours.
    SetsBut(&'static str, &'static str, Option<&'static str>),
    /// It sets this setting to true or false.
    Turns(&'static str),
    /// It sets this setting, in MiB, from a size ("256m").
    SetsMebibytes(&'static str),
    /// It says whether callers may choose this profile; the second: why they may not be offered it, where that is so.
    Offers(Profile, Option<&'static str>),
    /// What programs may import, which restricts them to it; `*`: everything.
    Imports,
    /// What it is about does not exist in this version: only these values are true.
    Fixed(&'static [&'static str], &'static str),
    /// A secret, which is read apart from the settings.
    Token,
}

const OFF: &[&str] = &["off", "false", "no", "none", "0", "disabled", "deny"];
const ON: &[&str] = &["on", "true", "yes", "1", "enabled"];

const ALIASES: &[(&str, Effect)] = {
    use Effect::{Fixed, Imports, Offers, Sets, SetsBut, SetsMebibytes, Token, Turns};
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
        ("SANDBOXMCP_HOST_ACCESS", Turns("host.enabled")),
        ("SANDBOXMCP_IMAGE", Sets("containers.image_python")),
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
        ("SANDBOX_ENABLE_CONTAINER_MODE", Turns("containers.enabled")),
        ("SANDBOX_CONTAINER_IMAGE", Sets("containers.image_python")),
        ("SANDBOX_DEFAULT_MEMORY_LIMIT", SetsMebibytes("limits.ram_mb")),
        ("SANDBOX_API_TOKEN", Token),
    ]
};

/// Values that the vault holds, where it reads the environment.
const SECRET_PREFIX: &str = "SANDBOXMCP_SECRET_";
const MEBIBYTE: u64 = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Nothing,
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
pub(crate) fn meaning(name: &str, text: &str) -> Result<Meaning, RequestError> {
    // never the value: it may be a secret
    let refused = |why: &str| {
        let what = format!("{name} cannot be honoured: {why}.");
        refusal(what, "Unset it; it would have no effect.")
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
        Effect::Token => Ok(Meaning::Nothing),
        Effect::Turns(path) if is(OFF) => Ok(Meaning::Sets(path, "false".to_owned())),
        Effect::Turns(path) if is(ON) => Ok(Meaning::Sets(path, "true".to_owned())),
        Effect::SetsMebibytes(path) => {
            let bytes = parse_size(text).map_err(|why| refused(&why))?;
            Ok(Meaning::Sets(path, bytes.div_ceil(MEBIBYTE).to_string()))
        }
        Effect::Imports if text.trim() == "*" => Ok(Meaning::Nothing),
        Effect::Imports => Ok(Meaning::Restricts("check.allowed_imports", text.to_owned())),
        Effect::Offers(profile, _) if is(OFF) => Ok(Meaning::Offers(*profile, Offered::No)),
        Effect::Offers(profile, None) if is(ON) => Ok(Meaning::Offers(*profile, Offered::Yes)),
        Effect::Offers(_, Some(why)) if is(ON) => Err(refused(why)),
        Effect::Turns(_) | Effect::Offers(..) => Err(RequestError {
            hint: format!("Set it to one of {}, {}.", ON.join(", "), OFF.join(", ")),
            ..refused("it says neither yes nor no")
        }),
        Effect::Fixed(values, _) if is(values) => Ok(Meaning::Nothing),
        Effect::Fixed(values, why) => {
            let hint = format!("Unset it, or set it to what is so: {}.", values.join(", "));
            Err(RequestError { hint, ..refused(why) })
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
