//! Meaning of each alias, and its description in the reference.

use super::*;

/// Every alias and its effect, as the reference describes it.
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
                Effect::SetsMebibytes(path) => format!("sets `{path}`, from a size such as `256m`"),
                Effect::Turns(path) => format!("sets `{path}`, from on or off"),
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
                Effect::Token => {
                    "a token of `serve --transport http`, of at least 16 characters; no other command uses it".to_owned()
                }
            };
            ((*name).to_owned(), effect)
        })
        .chain([vault])
}

#[test]
#[expect(clippy::too_many_lines, reason = "one row for each alias")]
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
    sets("SANDBOXMCP_HOST_ACCESS", "off", "host.enabled", "false");
    sets("SANDBOXMCP_HOST_ACCESS", "True", "host.enabled", "true");
    sets(
        "SANDBOX_ENABLE_CONTAINER_MODE",
        "False",
        "containers.enabled",
        "false",
    );
    sets(
        "SANDBOX_ENABLE_CONTAINER_MODE",
        "true",
        "containers.enabled",
        "true",
    );
    sets("SANDBOXMCP_BACKEND", "docker", "backend", "docker");
    sets(
        "SANDBOXMCP_IMAGE",
        "python:3.12",
        "containers.image_python",
        "python:3.12",
    );
    sets(
        "SANDBOX_CONTAINER_IMAGE",
        "python:3.12",
        "containers.image_python",
        "python:3.12",
    );
    let refused = |name: &str, text: &str| {
        let reason = meaning(name, text).unwrap_err();
        assert!(reason.message.contains(name), "{name}");
        assert!(!reason.to_string().contains("hunter2"), "{name} shows its value");
    };
    refused("SANDBOXMCP_NETWORK", "bridge");
    refused("SANDBOX_ENABLE_NETWORK", "true");
    refused("SANDBOX_ENABLE_FILESYSTEM", "hunter2");
    refused("SANDBOXMCP_HOST_ACCESS", "hunter2");
    refused("SANDBOX_ENABLE_CONTAINER_MODE", "hunter2");
    sets("SANDBOXMCP_BACKEND", "process", "backend", "native");
    same("SANDBOXMCP_SQLITE_PATH", "sandboxmcp.db");
    same("SANDBOX_API_TOKEN", "hunter2");
    refused("SANDBOX_DEFAULT_MEMORY_LIMIT", "lots");
}

#[test]
fn known_aliases_are_recognised_and_other_variables_are_not() {
    assert!(ALIASES.iter().all(|(name, _)| is_alias(name)));
    assert!(is_alias("SANDBOXMCP_SECRET_A_B"));
    assert!(!is_alias("SANDBOX_COLOUR") && !is_alias("PATH"));
    assert!(misspelt("SANDBOX_COLOUR").is_none() && misspelt("PATH").is_none());
    assert!(misspelt("SANDBOXMCP_SECRET_A_B").is_none() && misspelt("SANDBOX_TIMEOUT").is_none());
    assert_eq!(misspelt("SANDBOXMCP_XYZ").unwrap(), "");
    let near = " Did you mean `SANDBOX_TIMEOUT`?";
    assert_eq!(misspelt("SANDBOX_TIMEOUTS").as_deref(), Some(near));
}
