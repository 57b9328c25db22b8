//! Environment variables of the servers that Ringfence replaces. Each takes effect, is accepted because its value
//! describes what happens anyway, or is refused; none is read and ignored.

use super::refusal;
use ringfence_types::{Profile, RequestError, nearest::nearest, parse_size};

enum Effect {
    /// Sets this setting to the same text.
    Sets(&'static str),
    /// Sets this setting, except that the second text, the replaced server's documented default, stands for the third;
    /// none: for the default here.
    SetsBut(&'static str, &'static str, Option<&'static str>),
    /// Sets this setting to true or false.
    Turns(&'static str),
    /// Sets this setting, in MiB, from a size ("256m").
    SetsMebibytes(&'static str),
    /// Offers this profile to callers or not; the second, if any: why it cannot be switched on.
    Offers(Profile, Option<&'static str>),
    /// Restricts the imports of programs to a list; `*`: no restriction.
    Imports,
    /// Has no setting here: only these values are accepted, others are refused with this reason.
    Fixed(&'static [&'static str], &'static str),
    /// A secret, which is read separately from the settings.
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

const SECRET_PREFIX: &str = "SANDBOXMCP_SECRET_";
const MEBIBYTE: u64 = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Nothing,
    Sets(&'static str, String),
    /// Sets this setting, and programs may import nothing else.
    Restricts(&'static str, String),
    Offers(Profile, Offered),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    Yes,
    No,
}

pub(crate) fn is_alias(name: &str) -> bool {
    name.starts_with(SECRET_PREFIX) || ALIASES.iter().any(|(alias, _)| *alias == name)
}

/// Returns a hint, possibly empty, for a misspelt alias. None: it is an alias, or another program's `SANDBOX_*`.
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
    (is_ours && !is_alias(name)).then_some(near)
}

pub(crate) fn meaning(name: &str, text: &str) -> Result<Meaning, RequestError> {
    // Without the value, which may be a secret.
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
            ..refused("it is neither on nor off")
        }),
        Effect::Fixed(values, _) if is(values) => Ok(Meaning::Nothing),
        Effect::Fixed(values, why) => {
            let hint = format!("Unset it, or set it to one of {}.", values.join(", "));
            Err(RequestError { hint, ..refused(why) })
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
