//! Calls of pip and npm, and their reports. Wheels only, no scripts: no code of a package runs while it is installed.

use crate::{error::Result, settings::PackageSources};
use ringfence_jail::{PACKAGES, harvest};
use ringfence_store::layers::Package;
use ringfence_types::{ErrorCode, Language, RequestError, Requirement};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read},
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    sync::Arc,
};
use zeroize::Zeroizing;

const INSTALL_PYTHON: &str = include_str!("install_python.py");
const INSTALL_NODE: &str = include_str!("install_node.cjs");

/// Paths below the workspace: the layer, and files that are not part of it.
pub(super) const LAYER: &str = "layer";
const PYTHON: &str = "/workspace/layer/python";
const NODE: &str = "/workspace/layer";
const PIP_CONF: &str = "config/pip.conf";
const NPMRC: &str = "config/npmrc";
const NPM_PRELOAD: &str = "config/install_node.cjs";
const CERTIFICATES: &str = "config/ca.pem";
const CLIENT_CERTIFICATE: &str = "config/client.pem";
const PIP_REPORT: &str = "report.json";
const NPM_LOCK: &str = "layer/package-lock.json";

const REPORT_BYTES_MAX: u64 = 16 << 20;

pub(super) struct InstallerCall {
    pub(super) argv: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
    pub(super) files: Vec<(&'static str, Zeroizing<Vec<u8>>)>,
}

pub(super) fn call(
    language: Language,
    interpreter: &Path,
    set: &BTreeSet<Requirement>,
    sources: &PackageSources,
) -> Result<InstallerCall> {
    let mut call = match language.runs_as() {
        Language::Node => npm(interpreter, sources)?,
        _ => pip(interpreter, sources),
    };
    // Requirements begin with a letter, a digit or `@`; this keeps the installer from reading one as an option, too.
    call.argv.push("--".to_owned());
    call.argv
        .extend(set.iter().map(|requirement| requirement.as_str().to_owned()));
    let proxies = sources.proxies.iter();
    call.environment
        .extend(proxies.map(|(name, value)| (name.clone(), value.to_string())));
    // The directory for unpacking, on the same file system as the layer.
    call.files.push(("tmp/.here", Zeroizing::default()));
    call.environment.push(("TMPDIR".to_owned(), below("tmp")));
    Ok(call)
}

fn below(path: &str) -> String {
    format!("/workspace/{path}")
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

fn pip(interpreter: &Path, sources: &PackageSources) -> InstallerCall {
    let inside = format!("{PACKAGES}/python");
    let mut argv = vec![interpreter.display().to_string()];
    argv.extend(words(["-I", "-c", INSTALL_PYTHON, PYTHON, &inside, "install"]));
    argv.extend(words([
        "--target",
        PYTHON,
        "--report",
        &below(PIP_REPORT),
        "--only-binary",
        ":all:",
        "--no-input",
        "--no-compile",
        "--no-cache-dir",
        "--no-warn-script-location",
        // Conflicts with the interpreter's own packages, which are shadowed by these.
        "--no-warn-conflicts",
        "--disable-pip-version-check",
        "--progress-bar",
        "off",
        "--retries",
        "1",
    ]));
    let mut conf = Zeroizing::new("[global]\n".to_owned());
    for (name, value) in &sources.pip {
        conf.push_str(&format!("{name} = {}\n", value.as_str()));
    }
    if sources.pip_certificates.is_some() {
        conf.push_str(&format!("cert = {}\n", below(CERTIFICATES)));
    }
    if sources.client_certificate.is_some() {
        conf.push_str(&format!("client-cert = {}\n", below(CLIENT_CERTIFICATE)));
    }
    let mut files = vec![(PIP_CONF, Zeroizing::new(conf.as_bytes().to_vec()))];
    let copy = |pem: &Arc<Vec<u8>>| (CERTIFICATES, Zeroizing::new(pem.to_vec()));
    files.extend(sources.pip_certificates.as_ref().map(copy));
    let copy = |pem: &Arc<Zeroizing<Vec<u8>>>| (CLIENT_CERTIFICATE, Zeroizing::clone(pem));
    files.extend(sources.client_certificate.as_ref().map(copy));
    InstallerCall {
        argv,
        environment: vec![
            ("PIP_CONFIG_FILE".to_owned(), below(PIP_CONF)),
            ("PIP_ROOT_USER_ACTION".to_owned(), "ignore".to_owned()),
        ],
        files,
    }
}

fn npm(interpreter: &Path, sources: &PackageSources) -> Result<InstallerCall> {
    let mut argv = vec![interpreter.display().to_string()];
    argv.extend(words(["--require", &below(NPM_PRELOAD)]));
    argv.push(npm_cli(interpreter)?);
    argv.extend(words([
        "install",
        "--prefix",
        NODE,
        "--userconfig",
        &below(NPMRC),
    ]));
    argv.extend(words([
        "--globalconfig=/dev/null",
        "--cache=/workspace/tmp/npm",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--no-update-notifier",
        "--no-progress",
        "--omit=dev",
        "--fetch-retries=1",
        "--fetch-retry-mintimeout=500",
        "--package-lock=true",
        "--omit-lockfile-registry-resolved=false",
        "--install-strategy=hoisted",
    ]));
    let mut rc = Zeroizing::new(String::new());
    for (name, value) in &sources.npm {
        rc.push_str(&format!("{name}={}\n", value.as_str()));
    }
    if sources.npm_certificates.is_some() {
        rc.push_str(&format!("cafile={}\n", below(CERTIFICATES)));
    }
    let mut files = vec![
        (NPMRC, Zeroizing::new(rc.as_bytes().to_vec())),
        (NPM_PRELOAD, Zeroizing::new(INSTALL_NODE.as_bytes().to_vec())),
        (
            "layer/package.json",
            Zeroizing::new(b"{\"private\":true}".to_vec()),
        ),
    ];
    let copy = |pem: &Arc<Vec<u8>>| (CERTIFICATES, Zeroizing::new(pem.to_vec()));
    files.extend(sources.npm_certificates.as_ref().map(copy));
    Ok(InstallerCall {
        argv,
        environment: Vec::new(),
        files,
    })
}

/// Finds npm, a script beside its interpreter.
fn npm_cli(interpreter: &Path) -> Result<String> {
    let beside = |path: &Path| path.with_file_name("npm").canonicalize().ok();
    let real = || interpreter.canonicalize().ok();
    let found: Option<PathBuf> = beside(interpreter).or_else(|| real().and_then(|real| beside(&real)));
    found.map(|path| path.display().to_string()).ok_or_else(|| {
        RequestError::new(
            ErrorCode::RuntimeUnavailable,
            format!("there is no npm beside {}.", interpreter.display()),
            "Install npm with Node.js, or set runtimes.node to an installation that has it.",
        )
    })
}

#[derive(Deserialize)]
struct PipReport {
    install: Vec<PipInstalled>,
}

#[derive(Deserialize)]
struct PipInstalled {
    metadata: PipMetadata,
    download_info: PipDownload,
}

#[derive(Deserialize)]
struct PipMetadata {
    name: String,
    version: String,
}

#[derive(Deserialize)]
struct PipDownload {
    archive_info: Option<PipArchive>,
}

#[derive(Deserialize)]
struct PipArchive {
    #[serde(default)]
    hashes: BTreeMap<String, String>,
    hash: Option<String>,
}

#[derive(Deserialize)]
struct NpmLock {
    #[serde(default)]
    packages: BTreeMap<String, NpmPackage>,
}

#[derive(Deserialize)]
struct NpmPackage {
    version: Option<String>,
    integrity: Option<String>,
}

/// Reads the downloaded packages from the installer's report, which is as untrusted as the archives that it has read.
pub(super) fn downloaded(language: Language, workspace: BorrowedFd<'_>) -> io::Result<Vec<Package>> {
    match language.runs_as() {
        Language::Node => {
            let lock: NpmLock = read(workspace, NPM_LOCK)?;
            let package = |(path, package): (String, NpmPackage)| {
                let (_, name) = path.rsplit_once("node_modules/")?;
                Some(Package {
                    name: short(name),
                    version: short(&package.version?),
                    sha256: None,
                    integrity: package.integrity.as_deref().map(short),
                })
            };
            Ok(lock.packages.into_iter().filter_map(package).collect())
        }
        _ => {
            let report: PipReport = read(workspace, PIP_REPORT)?;
            let package = |installed: PipInstalled| {
                let archive = installed.download_info.archive_info;
                let sha256 = archive.and_then(|archive| {
                    let old = archive
                        .hash
                        .as_deref()
                        .and_then(|hash| hash.strip_prefix("sha256="));
                    archive
                        .hashes
                        .get("sha256")
                        .map(String::as_str)
                        .or(old)
                        .map(short)
                });
                Package {
                    name: short(&installed.metadata.name),
                    version: short(&installed.metadata.version),
                    sha256,
                    integrity: None,
                }
            };
            Ok(report.install.into_iter().map(package).collect())
        }
    }
}

const FIELD_CHARS_MAX: usize = 256;

fn short(text: &str) -> String {
    text.chars().take(FIELD_CHARS_MAX).collect()
}

fn read<T: for<'a> Deserialize<'a>>(workspace: BorrowedFd<'_>, path: &str) -> io::Result<T> {
    let mut text = Vec::new();
    harvest::open_path(workspace, Path::new(path))?
        .take(REPORT_BYTES_MAX)
        .read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

const UNREACHABLE: [&str; 11] = [
    "NewConnectionError",
    "Failed to establish a new connection",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "SSLError",
    "Connection aborted",
    "ECONNRESET",
    "ENOTFOUND",
    "ECONNREFUSED",
    "EAI_AGAIN",
    "ETIMEDOUT",
];
const CONFLICT: [&str; 2] = ["ResolutionImpossible", "ERESOLVE"];
const UNKNOWN: [&str; 5] = [
    "No matching distribution",
    "Could not find a version",
    "E404",
    "ETARGET",
    "ENOVERSIONS",
];
pub(super) const LAST_LINES: &str = " The installer's last lines:\n";
const LINES_MAX: usize = 8;
const LINE_CHARS_MAX: usize = 300;

/// Explains the failure of an installer, with its last lines.
pub(super) fn refusal(language: Language, set: &BTreeSet<Requirement>, output: &str) -> RequestError {
    let mentions = |words: &[&str]| words.iter().any(|word| output.contains(word));
    let names: Vec<&str> = set.iter().map(Requirement::as_str).collect();
    let names = names.join(", ");
    let lines: Vec<String> = output
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.chars().take(LINE_CHARS_MAX).collect())
        .collect();
    let last = lines[lines.len().saturating_sub(LINES_MAX)..].join("\n");
    let (what, hint) = if mentions(&["No module named pip"]) {
        return RequestError::new(
            ErrorCode::RuntimeUnavailable,
            "this Python has no pip.",
            "Install pip for it (`python3 -m ensurepip`), or set runtimes.python to one that has it.",
        );
    } else if mentions(&["no such option: --report"]) {
        return RequestError::new(
            ErrorCode::RuntimeUnavailable,
            "pip is older than 22.2 and cannot report its downloads.",
            "Upgrade pip for the interpreter of runtimes.python.",
        );
    } else if mentions(&["Invalid requirement"]) {
        (
            "pip cannot read a requirement",
            "Correct the condition after its `;`, such as `numpy; python_version >= '3.11'`.",
        )
    } else if mentions(&UNREACHABLE) {
        (
            "the package index cannot be reached",
            "Packages need the network of the host: check it, the proxy, and the index in the configuration of pip or npm; packages that were installed before still work.",
        )
    } else if mentions(&CONFLICT) {
        (
            "the packages contradict each other",
            "Loosen the versions that you ask for.",
        )
    } else if mentions(&UNKNOWN) && language == Language::Python {
        (
            "the index has no wheel that fits",
            "Check name and version; packages that exist as source only are not built here.",
        )
    } else if mentions(&UNKNOWN) {
        (
            "the registry has no such package or version",
            "Check name and version.",
        )
    } else {
        ("the installer has failed", "Its last lines say why.")
    };
    RequestError::new(
        ErrorCode::PackageUnavailable,
        format!("{what} ({names}).{LAST_LINES}{last}"),
        hint,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installer_failure_is_classified_by_its_output() {
        let check = |output: &str, code: ErrorCode, expect: &str| {
            let set = [Requirement::parse(Language::Python, "x").unwrap()].into();
            let error = refusal(Language::Python, &set, output);
            assert_eq!(error.code, code, "{output}");
            assert!(error.message.contains(expect), "{error}");
        };
        let unavailable = ErrorCode::PackageUnavailable;
        check(
            "WARNING: Retrying ... NewConnectionError('...')\nERROR: No matching distribution found for x",
            unavailable,
            "cannot be reached",
        );
        check(
            "ERROR: No matching distribution found for x",
            unavailable,
            "no wheel",
        );
        check("ERROR: ResolutionImpossible: ...", unavailable, "contradict");
        check("npm error code E404", unavailable, "no wheel");
        check(
            "/usr/bin/python3: No module named pip",
            ErrorCode::RuntimeUnavailable,
            "no pip",
        );
        check("", unavailable, "failed");
        check(&"line\n".repeat(100), unavailable, "line");
    }
}
