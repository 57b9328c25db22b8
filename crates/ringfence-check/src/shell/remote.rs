//! Programs that speak to other hosts with some of their commands only: repositories, and where packages come from.

use super::call::{Call, is_interpreter};

pub(super) const PACKAGES_HINT: &str = "Packages are named in `packages`, or installed by `install_package`.";

/// What is asked of others, as it is called.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Remote {
    Others(String),
    Packages(String),
}

/// None: it keeps to this machine.
pub(super) fn of(call: &Call) -> Option<Remote> {
    let operands = call.operands();
    let name = call.name.as_str();
    if call.has("", &["help", "version"]) {
        return None;
    }
    if is_interpreter(name) {
        return of_module(call);
    }
    let subcommand = subcommand(call, &operands)?;
    let speaks = match name {
        "git" => match subcommand {
            "clone" => {
                let mut rest = operands.iter().skip_while(|text| **text != "clone").skip(1);
                !rest.next().is_some_and(|from| is_local(from))
            }
            "submodule" | "remote" => operands.contains(&"update"),
            _ => matches!(subcommand, "fetch" | "pull" | "push" | "ls-remote"),
        },
        "rsync" => operands.iter().any(|text| names_host(text)),
        "docker" | "podman" => matches!(subcommand, "push" | "pull" | "login"),
        "gh" | "hub" => !matches!(subcommand, "config" | "completion"),
        _ => false,
    };
    let asked = format!("{name} {subcommand}").trim_end().to_owned();
    match speaks {
        true if name == "rsync" => Some(Remote::Others(name.to_owned())),
        true => Some(Remote::Others(asked)),
        false => fetches_packages(name, subcommand, call).then_some(Remote::Packages(asked)),
    }
}

/// The word that says what to do.
fn subcommand<'c>(call: &'c Call, operands: &[&'c str]) -> Option<&'c str> {
    match call.name.as_str() {
        "git" => {
            let mut texts = call.texts();
            while let Some(text) = texts.next() {
                match text {
                    "-C" | "-c" => drop(texts.next()),
                    text if text.starts_with('-') => {}
                    text => return Some(text),
                }
            }
            None
        }
        // By itself it installs.
        "yarn" => Some(operands.first().copied().unwrap_or("")),
        "pacman" => Some(""),
        _ => operands.first().copied(),
    }
}

/// Installers with the subcommands by which they fetch.
#[rustfmt::skip]
const INSTALLERS: &[(&[&str], &[&str])] = &[
    (&["pip", "pipx"], &["install", "download", "wheel", "upgrade", "run"]),
    (&["uv", "poetry", "pipenv", "conda", "mamba"], &["install", "add", "sync", "update", "create", "lock", "pip"]),
    (&["npm", "pnpm", "bun"], &["install", "i", "ci", "add", "update", "up", "upgrade", "publish"]),
    (&["yarn"], &["", "install", "add", "upgrade", "up", "publish"]),
    (
        &["apt", "apt-get", "aptitude", "apk", "dnf", "yum", "microdnf", "zypper", "brew", "snap"],
        &[
            "install", "add", "update", "upgrade", "dist-upgrade", "full-upgrade", "download", "makecache", "refresh",
            "build-dep",
        ],
    ),
    (&["cargo"], &["install", "fetch", "update", "publish"]),
    (&["gem"], &["install", "update", "push"]),
    (&["bundle", "composer"], &["install", "update", "require"]),
    (&["go"], &["get", "install"]),
];

fn fetches_packages(name: &str, subcommand: &str, call: &Call) -> bool {
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    match name {
        "pip" | "pipx" if call.has("", &["no-index"]) => return false,
        "pacman" => return call.has("S", &["sync"]),
        "go" if subcommand == "mod" => return call.texts().any(|text| matches!(text, "download" | "tidy")),
        _ => {}
    }
    let fetches = |(names, subcommands): &(&[&str], &[&str])| {
        names.contains(&name) && subcommands.contains(&subcommand)
    };
    INSTALLERS.iter().any(fetches)
}

/// `python -m pip install`
fn of_module(call: &Call) -> Option<Remote> {
    let texts: Vec<&str> = call.texts().collect();
    let at = texts.iter().position(|text| *text == "-m")?;
    let rest = texts.get(at + 1..)?;
    let module = rest.first().filter(|name| matches!(**name, "pip" | "pipx"))?;
    let fetches = rest
        .iter()
        .skip(1)
        .find(|text| !text.starts_with('-'))
        .filter(|text| matches!(**text, "install" | "download" | "wheel"))?;
    match call.has("", &["no-index"]) {
        true => None,
        false => Some(Remote::Packages(format!("{module} {fetches}"))),
    }
}

fn is_local(from: &str) -> bool {
    from.starts_with(['.', '/', '~']) || from.starts_with("file://")
}

/// `host:path`, `rsync://host/path`
fn names_host(text: &str) -> bool {
    let before = text.split_once(':').map(|(before, _)| before);
    before.is_some_and(|before| !before.is_empty() && !before.contains('/'))
}
