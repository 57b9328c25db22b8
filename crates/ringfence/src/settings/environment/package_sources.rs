//! Package sources, from the configuration that pip and npm have already: their files and their variables. Only the
//! index and how to reach it is taken over, nothing else that such a configuration can contain.

use super::Environment;
use percent_encoding::percent_decode_str;
use ringfence_engine::PackageSources;
use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};
use zeroize::Zeroizing;

const FILE_BYTES_MAX: u64 = 4 << 20;
const VALUE_BYTES_MAX: usize = 8 << 10;

const PIP_NAMES: [&str; 9] = [
    "index-url",
    "extra-index-url",
    "trusted-host",
    "cert",
    "client-cert",
    "proxy",
    "find-links",
    "no-index",
    "timeout",
];
const NPM_NAMES: [&str; 7] = [
    "registry",
    "proxy",
    "https-proxy",
    "noproxy",
    "cafile",
    "strict-ssl",
    "fetch-timeout",
];
/// Credentials, after `//host/path:`.
const NPM_CREDENTIALS: [&str; 4] = ["_authToken", "_auth", "username", "_password"];
const PROXIES: [&str; 4] = ["http_proxy", "https_proxy", "all_proxy", "no_proxy"];
const CERTIFICATES: [&str; 3] = ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"];

type Lines = BTreeMap<String, Zeroizing<String>>;

/// Variables that configure pip, npm, proxies and certificates. They may hold credentials.
#[derive(Clone, Default)]
pub(super) struct Variables(Lines);

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Variables {
    pub(super) fn includes(name: &str) -> bool {
        let lower = name.to_ascii_lowercase();
        name.starts_with("PIP_")
            || lower.starts_with("npm_")
            || name == "NODE_AUTH_TOKEN"
            || PROXIES.contains(&lower.as_str())
            || CERTIFICATES.contains(&name)
    }

    pub(super) fn insert(&mut self, name: String, value: String) {
        self.0.insert(name, Zeroizing::new(value));
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.as_str())
    }
}

pub(super) fn collect(environment: &Environment, variables: &Variables) -> PackageSources {
    let (mut pip, mut npm) = (Lines::new(), Lines::new());
    for text in pip_files(environment, variables).iter().filter_map(read) {
        pip_lines(&text, &mut pip);
    }
    for text in npm_files(environment, variables).iter().filter_map(read) {
        npm_lines(&text, variables, &mut npm);
    }
    for (name, value) in &variables.0 {
        if let Some(name) = name.strip_prefix("PIP_") {
            set_pip(&mut pip, &name.to_ascii_lowercase(), value);
        } else if let Some(key) = npm_key(name) {
            set_npm(&mut npm, &key, value);
        }
    }
    let certificate = |named: Option<Zeroizing<String>>, usual: &[&str]| {
        let usual = usual.iter().find_map(|name| variables.get(name));
        read(named.as_ref().map(|path| path.as_str()).or(usual)?)
    };
    // Certificates are not secret and need no wiping, which would take time: they are long.
    let public = |mut pem: Zeroizing<Vec<u8>>| Arc::new(std::mem::take(&mut *pem));
    let proxies = variables.0.iter();
    let proxies: Vec<(String, Zeroizing<String>)> = proxies
        .filter(|(name, value)| PROXIES.contains(&name.to_ascii_lowercase().as_str()) && is_line(value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let mut sources = PackageSources {
        pip_certificates: certificate(pip.remove("cert"), &CERTIFICATES[..2]).map(public),
        client_certificate: certificate(pip.remove("client-cert"), &[]).map(Arc::new),
        npm_certificates: certificate(npm.remove("cafile"), &CERTIFICATES[2..]).map(public),
        wheel_directories: wheels(&mut pip),
        pip: pip.into_iter().collect(),
        npm: npm.into_iter().collect(),
        proxies,
        secrets: Vec::new(),
    };
    let all = [&sources.pip, &sources.npm, &sources.proxies]
        .into_iter()
        .flatten();
    sources.secrets = all.flat_map(|(name, value)| secrets_of(name, value)).collect();
    sources
}

fn read(path: impl AsRef<Path>) -> Option<Zeroizing<Vec<u8>>> {
    let file = File::open(path).ok()?;
    let found = file.metadata().ok().filter(|found| found.is_file())?;
    let length = found.len().min(FILE_BYTES_MAX);
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(length).ok()? + 1));
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn is_line(value: &str) -> bool {
    !value.is_empty() && value.len() <= VALUE_BYTES_MAX && !value.contains(|c: char| c.is_control())
}

/// Returns pip's files in its order: the system's, the user's, and the one that a variable names.
fn pip_files(environment: &Environment, variables: &Variables) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = ["/etc/xdg/pip/pip.conf", "/etc/pip.conf"]
        .map(PathBuf::from)
        .into();
    files.extend(environment.home().map(|home| home.join(".pip/pip.conf")));
    files.extend(environment.configuration().map(|base| base.join("pip/pip.conf")));
    match variables.get("PIP_CONFIG_FILE") {
        Some("/dev/null") => Vec::new(),
        Some(named) => {
            files.push(named.into());
            files
        }
        None => files,
    }
}

/// Reads `[global]` and `[install]`, which overrides it; a value continues on indented lines.
fn pip_lines(text: &[u8], lines: &mut Lines) {
    let text = String::from_utf8_lossy(text);
    for wanted in ["global", "install"] {
        let (mut section, mut name) = ("", String::new());
        let mut read: Vec<(String, String)> = Vec::new();
        for line in text.lines() {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
                continue;
            }
            if let Some(inner) = trimmed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                (section, name) = (inner, String::new());
            } else if section != wanted {
            } else if line.starts_with([' ', '\t']) && !name.is_empty() {
                if let Some((_, value)) = read.last_mut() {
                    *value += " ";
                    *value += trimmed;
                }
            } else if let Some((key, value)) = trimmed.split_once(['=', ':']) {
                name = key.trim().to_ascii_lowercase();
                read.push((name.clone(), value.trim().to_owned()));
            }
        }
        for (name, value) in read {
            set_pip(lines, &name, &value);
        }
    }
}

fn set_pip(lines: &mut Lines, name: &str, value: &str) {
    let name = name.replace('_', "-");
    let name = if name == "default-timeout" {
        "timeout"
    } else {
        &name
    };
    let value = value.trim();
    if PIP_NAMES.contains(&name) && is_line(value) {
        lines.insert(name.to_owned(), Zeroizing::new(value.to_owned()));
    }
}

/// Returns the directories of wheels, which are mounted for the installer. Other places stay only if http(s) URLs.
fn wheels(pip: &mut Lines) -> Vec<PathBuf> {
    let places = pip.remove("find-links").unwrap_or_default();
    let (mut directories, mut kept) = (Vec::new(), Vec::new());
    for place in places.split_whitespace() {
        let path = Path::new(place.strip_prefix("file://").unwrap_or(place));
        if path.is_absolute() && path.is_dir() {
            directories.push(path.to_owned());
            kept.push(place);
        } else if place.starts_with("https://") || place.starts_with("http://") {
            kept.push(place);
        }
    }
    if !kept.is_empty() {
        pip.insert("find-links".to_owned(), Zeroizing::new(kept.join(" ")));
    }
    directories
}

pub(super) fn files(environment: &Environment, variables: &Variables) -> Vec<PathBuf> {
    let mut files = pip_files(environment, variables);
    files.extend(npm_files(environment, variables));
    files
}

fn npm_files(environment: &Environment, variables: &Variables) -> Vec<PathBuf> {
    let named = ["npm_config_userconfig", "NPM_CONFIG_USERCONFIG"];
    let named = named.into_iter().find_map(|name| variables.get(name));
    let own = named
        .map(PathBuf::from)
        .or_else(|| environment.home().map(|home| home.join(".npmrc")));
    let usual = ["/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc"].map(PathBuf::from);
    usual.into_iter().chain(own).collect()
}

fn npm_lines(text: &[u8], variables: &Variables, lines: &mut Lines) {
    let text = String::from_utf8_lossy(text);
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) {
            continue;
        }
        if let Some((name, value)) = line.split_once('=')
            && let Some(value) = expanded(value.trim().trim_matches('"'), variables)
        {
            set_npm(lines, name.trim(), &value);
        }
    }
}

/// Replaces `${NPM_TOKEN}` by the variable's value. None: a variable is not known here, and its line is ignored.
fn expanded(value: &str, variables: &Variables) -> Option<Zeroizing<String>> {
    let mut done = Zeroizing::new(String::new());
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}')?;
        done.push_str(before);
        done.push_str(variables.get(name)?);
        rest = after;
    }
    done.push_str(rest);
    Some(done)
}

/// Returns the key that a variable sets, as npm reads its name (`@npmcli/config`); a host's credential is unchanged.
fn npm_key(variable: &str) -> Option<String> {
    const BEGINNING: &str = "npm_config_";
    let (beginning, key) = variable.split_at_checked(BEGINNING.len())?;
    if !beginning.eq_ignore_ascii_case(BEGINNING) {
        return None;
    }
    let is_credential = key.starts_with("//");
    Some(if is_credential {
        key.to_owned()
    } else {
        key.to_ascii_lowercase().replace('_', "-")
    })
}

fn set_npm(lines: &mut Lines, name: &str, value: &str) {
    let is_credential = || {
        name.strip_prefix("//")
            .and_then(|rest| rest.rsplit_once(':'))
            .is_some_and(|(_, key)| NPM_CREDENTIALS.contains(&key))
    };
    let is_scope = || name.starts_with('@') && name.ends_with(":registry");
    let known = NPM_NAMES.contains(&name) || is_scope() || is_credential();
    if known && is_line(name) && is_line(value) {
        lines.insert(name.to_owned(), Zeroizing::new(value.to_owned()));
    }
}

/// Returns the secrets in a value: npm's credentials, and the user information in URLs.
fn secrets_of(name: &str, value: &str) -> Vec<Zeroizing<String>> {
    if name.starts_with("//") && !name.ends_with(":username") {
        return vec![Zeroizing::new(value.to_owned())];
    }
    let mut secrets = Vec::new();
    for address in value.split_whitespace() {
        let Some((_, rest)) = address.split_once("://") else {
            continue;
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let Some((user, _)) = authority.rsplit_once('@') else {
            continue;
        };
        secrets.push(Zeroizing::new(user.to_owned()));
        for part in user.split(':').skip(usize::from(user.contains(':'))) {
            secrets.push(Zeroizing::new(part.to_owned()));
            let decoded = percent_decode_str(part).decode_utf8_lossy();
            secrets.push(Zeroizing::new(decoded.into_owned()));
        }
    }
    secrets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pairs: &[(&str, &str)]) -> Lines {
        let line = |(name, value): &(&str, &str)| ((*name).to_owned(), Zeroizing::new((*value).to_owned()));
        pairs.iter().map(line).collect()
    }

    #[test]
    fn pip_conf_yields_only_index_settings() {
        let mut found = Lines::new();
        let text = b"[global]\nindex-url = https://u:p@one.test/simple\ntarget = /etc\nextra_index_url =\n    https://a.test\n    https://b.test\nrequire-virtualenv = true\n[install]\nindex-url: https://two.test/simple\nno-binary = :all:\n[list]\ntimeout = 3\n";
        pip_lines(text, &mut found);
        let expect = lines(&[
            ("index-url", "https://two.test/simple"),
            ("extra-index-url", "https://a.test https://b.test"),
        ]);
        assert_eq!(found, expect);
    }

    #[test]
    fn npmrc_yields_only_registries_and_credentials() {
        let mut variables = Variables::default();
        variables.insert("NPM_TOKEN".to_owned(), "s3cr3t-token".to_owned());
        let mut found = Lines::new();
        let text = b"registry=https://r.test/\n//r.test/:_authToken=${NPM_TOKEN}\n@corp:registry=https://c.test\nscript-shell=/bin/evil\nignore-scripts=false\nproxy=${UNKNOWN}\n; registry=no\n";
        npm_lines(text, &variables, &mut found);
        let expect = lines(&[
            ("registry", "https://r.test/"),
            ("//r.test/:_authToken", "s3cr3t-token"),
            ("@corp:registry", "https://c.test"),
        ]);
        assert_eq!(found, expect);
        assert!(!format!("{variables:?}").contains("s3cr3t"));
    }

    #[test]
    fn npm_variable_names_are_read_as_npm_reads_them() {
        let check = |variable: &str, expect: Option<&str>| {
            assert_eq!(npm_key(variable).as_deref(), expect, "{variable}");
        };
        check("npm_config_strict_ssl", Some("strict-ssl"));
        check("NPM_CONFIG_REGISTRY", Some("registry"));
        check(
            "npm_config_//r.test/Path_1/:_authToken",
            Some("//r.test/Path_1/:_authToken"),
        );
        check("NPM_TOKEN", None);
        let mut found = Lines::new();
        let key = npm_key("npm_config_//r.test/:_authToken").unwrap();
        set_npm(&mut found, &key, "t0ken");
        assert_eq!(found, lines(&[("//r.test/:_authToken", "t0ken")]));
    }

    #[test]
    fn value_with_a_line_break_is_ignored() {
        let mut found = Lines::new();
        set_pip(&mut found, "index_url", "https://a.test\ntarget = /etc");
        set_npm(&mut found, "registry", "https://a.test\nscript-shell=/x");
        set_npm(&mut found, "//a\n:_auth", "x");
        assert_eq!(found, Lines::new());
    }

    #[test]
    fn credentials_in_values_are_found() {
        let check = |name: &str, value: &str, expect: &[&str]| {
            let found = secrets_of(name, value);
            let found: Vec<&str> = found.iter().map(|secret| secret.as_str()).collect();
            assert_eq!(found, expect, "{name}");
        };
        check("index-url", "https://one.test/simple", &[]);
        check(
            "index-url",
            "https://bob:p%40ss@one.test/@x",
            &["bob:p%40ss", "p%40ss", "p@ss"],
        );
        check(
            "index-url",
            "https://token@one.test",
            &["token", "token", "token"],
        );
        check("//r.test/:_authToken", "t0ken", &["t0ken"]);
        check("//r.test/:username", "bob", &[]);
    }
}
