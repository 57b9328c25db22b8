//! The environment of the process, read here only, once, into a value that is passed to everything else. `RINGFENCE_*`
//! variables are settings; an unknown one is refused, because a mistyped limit must not become a missing limit.

mod package_sources;

use super::{
    Faults,
    aliases::{self, Meaning, Offered},
    keys::{KEYS, Key, Layer, Origin},
    refusal,
};
use ringfence_engine::PackageSources;
use ringfence_store::vault::{SecretValue, VARIABLE_PREFIXES};
use ringfence_types::{Profile, RequestError, nearest::suggestion};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

pub(crate) const CONFIG_VARIABLE: &str = "RINGFENCE_CONFIG";
/// `RINGFENCE_*` variables that are not settings: the sandbox sets the first for its program, tests read the others.
const NOT_SETTINGS: [&str; 3] = ["RINGFENCE_OUTPUT_DIR", "RINGFENCE_REQUIRE", "RINGFENCE_BLESS"];

/// Opens the vault's file, if `vault.key` is `passphrase`.
const PASSPHRASE_VARIABLE: &str = "RINGFENCE_VAULT_PASSPHRASE";
/// A token of the HTTP server; the name is that of other servers.
const API_TOKEN_VARIABLE: &str = "SANDBOX_API_TOKEN";
/// Socket activation (sd_listen_fds(3)).
const LISTEN_FDS: &str = "LISTEN_FDS";
const LISTEN_PID: &str = "LISTEN_PID";

#[derive(Debug, Default)]
pub(super) struct ProfileAliases {
    /// The variable whose list limits the imports of programs.
    pub(super) restricts: Option<String>,
    pub(super) offers: Vec<(String, Profile, Offered)>,
}

/// The variables that Ringfence reads. An empty one counts as absent.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: BTreeMap<String, OsString>,
    secrets: Vec<(String, Result<Arc<SecretValue>, String>)>,
    packages: package_sources::Variables,
    is_root: bool,
    paths_only: bool,
}

impl Environment {
    /// Captures the environment of this process.
    pub fn capture() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "the settings module is where the environment is read"
        )]
        let all = std::env::vars_os();
        Self {
            is_root: std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0),
            ..Self::of(all.filter_map(|(name, value)| Some((name.into_string().ok()?, value))))
        }
    }

    /// Drops the settings; keeps the paths of interpreters and state, and secrets for a vault of the environment.
    pub(crate) fn paths_only(mut self) -> Self {
        let is_path = |name: &str| matches!(name, "HOME" | "PATH" | "XDG_RUNTIME_DIR" | "XDG_STATE_HOME");
        self.variables.retain(|name, _| is_path(name));
        self.paths_only = true;
        self
    }

    pub(crate) fn configures(&self) -> bool {
        !self.paths_only
    }

    pub(crate) fn of(variables: impl IntoIterator<Item = (impl Into<String>, impl Into<OsString>)>) -> Self {
        let ours = |name: &str| {
            name.starts_with("RINGFENCE_")
                || aliases::is_alias(name)
                || aliases::misspelt(name).is_some()
                || matches!(
                    name,
                    LISTEN_FDS
                        | LISTEN_PID
                        | "HOME"
                        | "PATH"
                        | "XDG_CONFIG_HOME"
                        | "XDG_RUNTIME_DIR"
                        | "XDG_STATE_HOME"
                        | "NO_COLOR"
                )
        };
        let mut environment = Self::default();
        for (name, value) in variables {
            let (name, value): (String, OsString) = (name.into(), value.into());
            if value.is_empty() {
                continue;
            }
            if package_sources::Variables::includes(&name) {
                if let Ok(value) = value.into_string() {
                    environment.packages.insert(name, value);
                }
                continue;
            }
            if !ours(&name) {
                continue;
            }
            let is_secret = [PASSPHRASE_VARIABLE, API_TOKEN_VARIABLE].contains(&name.as_str());
            if is_secret || VARIABLE_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
                // Moved, not copied: the value is wiped after its last use.
                let value = value.into_string().map_err(|_| "it is not UTF-8".to_owned());
                let value = value.and_then(|text| SecretValue::new(text).map_err(|error| error.to_string()));
                let value = value.map(Arc::new);
                environment.secrets.push((name, value));
            } else {
                environment.variables.insert(name, value);
            }
        }
        environment
    }

    pub(crate) fn secrets(&self) -> Result<Vec<(String, Arc<SecretValue>)>, RequestError> {
        let secrets = self.secrets.iter();
        let secrets = secrets.filter(|(name, _)| name != PASSPHRASE_VARIABLE && name != API_TOKEN_VARIABLE);
        secrets
            .map(|(name, value)| Ok((name.clone(), read_secret(name, value)?)))
            .collect()
    }

    pub(crate) fn passphrase(&self) -> Result<Arc<SecretValue>, RequestError> {
        match self.secrets.iter().find(|(name, _)| name == PASSPHRASE_VARIABLE) {
            Some((name, value)) => read_secret(name, value),
            None => Err(refusal(
                format!("vault.key is `passphrase`, and {PASSPHRASE_VARIABLE} is not set."),
                "Set it in the environment of this command, or use `vault.key: file`.",
            )),
        }
    }

    pub(crate) fn api_token(&self) -> Result<Option<Arc<SecretValue>>, RequestError> {
        let found = self.secrets.iter().find(|(name, _)| name == API_TOKEN_VARIABLE);
        found.map(|(name, value)| read_secret(name, value)).transpose()
    }

    /// Returns the number of sockets that a service manager passed to this process (by `LISTEN_PID`).
    pub(crate) fn activated_sockets(&self) -> Result<u32, RequestError> {
        const SOCKETS_MAX: u32 = 16;
        let number = |name: &str| {
            self.variables
                .get(name)
                .and_then(|text| text.to_str()?.parse::<u32>().ok())
        };
        if number(LISTEN_PID) != Some(std::process::id()) {
            return Ok(0);
        }
        match number(LISTEN_FDS) {
            Some(count @ 1..=SOCKETS_MAX) => Ok(count),
            _ => Err(refusal(
                format!("{LISTEN_FDS} is not a number in 1..={SOCKETS_MAX}."),
                "Only a service manager should set it.",
            )),
        }
    }

    pub(crate) fn no_colour(&self) -> bool {
        self.variables.contains_key("NO_COLOR")
    }

    /// Directories to search for interpreters: absolute ones only, as a relative one depends on the working directory.
    pub(crate) fn search_path(&self) -> Vec<PathBuf> {
        const USUAL: &str = "/usr/local/bin:/usr/bin:/bin";
        let text = self.variables.get("PATH").cloned();
        let text = text.unwrap_or_else(|| USUAL.into());
        std::env::split_paths(&text)
            .filter(|directory| directory.is_absolute())
            .collect()
    }

    pub(crate) fn home(&self) -> Option<&Path> {
        self.absolute("HOME")
    }

    pub(crate) fn configuration(&self) -> Option<PathBuf> {
        let base = self.absolute("XDG_CONFIG_HOME").map(Path::to_owned);
        base.or_else(|| self.home().map(|home| home.join(".config")))
    }

    pub(crate) fn package_sources(&self) -> PackageSources {
        package_sources::collect(self, &self.packages)
    }

    pub(super) fn package_files(&self) -> Vec<PathBuf> {
        package_sources::files(self, &self.packages)
    }

    pub(crate) fn default_config_file(&self) -> Option<PathBuf> {
        if self.paths_only {
            return None;
        }
        Some(self.configuration()?.join("ringfence/config.yaml"))
    }

    pub(crate) fn default_state_dir(&self) -> PathBuf {
        let base = self.absolute("XDG_STATE_HOME").map(Path::to_owned);
        // The users that root's sandboxes run as cannot enter root's home.
        let home = self.home().filter(|_| !self.is_root);
        let base = base.or_else(|| home.map(|home| home.join(".local/state")));
        base.unwrap_or_else(|| PathBuf::from("/var/lib"))
            .join("ringfence")
    }

    pub(crate) fn fallback_state_dirs(&self) -> Vec<PathBuf> {
        let runtime = self
            .absolute("XDG_RUNTIME_DIR")
            .map(|runtime| runtime.join("ringfence"));
        let shared = format!("/tmp/ringfence-{}", rustix::process::geteuid().as_raw());
        runtime.into_iter().chain([shared.into()]).collect()
    }

    pub(crate) fn named_config(&self) -> Option<PathBuf> {
        self.variables.get(CONFIG_VARIABLE).map(PathBuf::from)
    }

    /// Reads a path; a relative one is ignored, as the XDG specification demands.
    fn absolute(&self, name: &str) -> Option<&Path> {
        let path = self.variables.get(name).map(Path::new);
        path.filter(|path| path.is_absolute())
    }

    pub(super) fn layer(&self, faults: &Faults) -> Layer {
        let mut layer = Layer::default();
        let mut given: BTreeMap<&'static str, (String, String)> = BTreeMap::new();
        for (name, value) in &self.variables {
            let Some((path, text)) = faults.keep(self.meaning(name, value)).flatten() else {
                continue;
            };
            if let Some((other, same)) = given.get(path) {
                if *same != text {
                    let what = format!("{other} and {name} both set `{path}`, to different values.");
                    faults.add_own(refusal(what, "Unset one of them."), path);
                }
                continue;
            }
            if let Err(reason) = layer.set(path, &text, Origin::Environment(name.clone())) {
                let what = crate::sentence::sentence(&format!("{name}: {reason}"));
                let fault = refusal(what, &format!("Correct or unset it; it sets `{path}`."));
                faults.add_own(fault, path);
            }
            given.insert(path, (name.clone(), text));
        }
        layer
    }

    /// Returns the aliases that change profiles; [`Self::layer`] reports those that cannot be honoured.
    pub(super) fn profile_aliases(&self) -> ProfileAliases {
        let mut found = ProfileAliases::default();
        for (name, value) in self.variables.iter().filter(|(name, _)| aliases::is_alias(name)) {
            match self.alias(name, value) {
                Ok(Meaning::Restricts(..)) => found.restricts = Some(name.clone()),
                Ok(Meaning::Offers(profile, offered)) => found.offers.push((name.clone(), profile, offered)),
                Ok(Meaning::Nothing | Meaning::Sets(..)) | Err(_) => {}
            }
        }
        found
    }

    fn alias(&self, name: &str, value: &OsString) -> Result<Meaning, RequestError> {
        aliases::meaning(name, utf8(name, value)?)
    }

    fn meaning(&self, name: &str, value: &OsString) -> Result<Option<(&'static str, String)>, RequestError> {
        if aliases::is_alias(name) {
            return Ok(match self.alias(name, value)? {
                Meaning::Sets(path, text) | Meaning::Restricts(path, text) => Some((path, text)),
                Meaning::Nothing | Meaning::Offers(..) => None,
            });
        }
        if let Some(near) = aliases::misspelt(name) {
            return Err(refusal(
                format!("the environment variable {name} is not known.{near}"),
                "docs/reference.md lists the variables of other servers that are understood; unset it.",
            ));
        }
        if !name.starts_with("RINGFENCE_") || name == CONFIG_VARIABLE || NOT_SETTINGS.contains(&name) {
            return Ok(None);
        }
        let Some(key) = KEYS.iter().find(|key| key.variable() == name) else {
            let names = KEYS.iter().map(Key::variable);
            let names: Vec<String> = names.chain([CONFIG_VARIABLE.to_owned()]).collect();
            let near = suggestion(name, names.iter().map(String::as_str));
            return Err(refusal(
                format!("the environment variable {name} is not a setting.{near}"),
                "`ringfence config example` names every setting and its variable.",
            ));
        };
        Ok(Some((key.path, utf8(name, value)?.to_owned())))
    }
}

fn utf8<'a>(name: &str, value: &'a OsString) -> Result<&'a str, RequestError> {
    value
        .to_str()
        .ok_or_else(|| refusal(format!("{name} is not UTF-8."), "Correct or unset it."))
}

fn read_secret(
    name: &str,
    value: &Result<Arc<SecretValue>, String>,
) -> Result<Arc<SecretValue>, RequestError> {
    match value {
        Ok(value) => Ok(value.clone()),
        Err(error) => Err(refusal(format!("{name}: {error}."), "Correct or unset it.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_types::ErrorCode;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        Environment::of(variables.iter().copied())
    }

    fn layer(variables: &[(&str, &str)]) -> Result<Layer, RequestError> {
        let faults = Faults::default();
        let layer = environment(variables).layer(&faults);
        faults.found.into_inner().pop().map_or(Ok(layer), Err)
    }

    #[test]
    fn unknown_ringfence_variable_is_refused_with_the_nearest_name() {
        let error = layer(&[("RINGFENCE_LIMITS_RAM_MBB", "5")]).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidConfiguration);
        assert!(
            error.message.contains("Did you mean `RINGFENCE_LIMITS_RAM_MB`?"),
            "{error}"
        );
    }

    #[test]
    fn misspelt_alias_is_refused_with_the_nearest_name() {
        let refused = layer(&[("SANDBOXMCP_TIMEOUTT", "5")]).unwrap_err();
        assert!(
            refused.message.contains("Did you mean `SANDBOXMCP_TIMEOUT`?"),
            "{refused}"
        );
        assert!(layer(&[("SANDBOXMCP_TYPO", "5")]).is_err());
        assert!(layer(&[("SANDBOX_COLOUR", "5")]).is_ok());
    }

    #[test]
    fn variables_set_settings_and_are_named_as_their_origin() {
        let layer = layer(&[
            ("RINGFENCE_LIMITS_RAM_MB", "64"),
            ("RINGFENCE_TOOLSETS", "execute"),
            ("OTHER", "x"),
        ])
        .unwrap();
        let memory = layer.limits_ram_mb.unwrap();
        assert_eq!(
            (memory.value.get(), memory.origin.to_string()),
            (64, "environment RINGFENCE_LIMITS_RAM_MB".into())
        );
        assert!(layer.toolsets.is_some());
    }

    #[test]
    fn refusal_of_a_bad_value_names_the_variable() {
        let check = |name: &str, value: &str| {
            let error = layer(&[(name, value)]).unwrap_err();
            assert!(error.message.contains(name), "{error}");
        };
        check("RINGFENCE_LIMITS_RAM_MB", "0");
        check("RINGFENCE_LIMITS_RAM_MB", "lots");
        check("RINGFENCE_LIMITS_CPU_CORES", "NaN");
        check("RINGFENCE_FLOOR", "none");
        check("RINGFENCE_STATE_DIR", "here");
    }

    #[test]
    fn empty_variables_and_reserved_names_are_ignored() {
        let layer = layer(&[
            ("RINGFENCE_FLOOR", ""),
            ("RINGFENCE_REQUIRE", "x"),
            ("RINGFENCE_OUTPUT_DIR", "/x"),
        ]);
        assert!(layer.unwrap().floor.is_none());
    }

    #[test]
    fn two_variables_for_one_setting_must_agree() {
        let both = |a: &str, b: &str| layer(&[("SANDBOX_TIMEOUT", a), ("SANDBOXMCP_TIMEOUT", b)]);
        assert!(both("30", "30").is_ok());
        assert!(both("30", "31").unwrap_err().message.contains("different values"));
    }

    #[test]
    fn directories_follow_the_xdg_specification() {
        let home = environment(&[("HOME", "/home/a")]);
        assert_eq!(
            home.default_config_file().unwrap(),
            Path::new("/home/a/.config/ringfence/config.yaml")
        );
        assert_eq!(
            home.default_state_dir(),
            Path::new("/home/a/.local/state/ringfence")
        );
        let xdg = environment(&[
            ("HOME", "/home/a"),
            ("XDG_CONFIG_HOME", "/x"),
            ("XDG_STATE_HOME", "relative"),
        ]);
        assert_eq!(
            xdg.default_config_file().unwrap(),
            Path::new("/x/ringfence/config.yaml")
        );
        assert_eq!(
            xdg.default_state_dir(),
            Path::new("/home/a/.local/state/ringfence")
        );
        assert_eq!(environment(&[]).default_config_file(), None);
    }

    #[test]
    fn relative_directories_of_the_search_path_are_dropped() {
        let path = environment(&[("PATH", "/a:.:bin::/b")]).search_path();
        assert_eq!(path, [Path::new("/a"), Path::new("/b")]);
    }
}
