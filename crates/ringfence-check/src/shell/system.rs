//! What is done to processes, to the machine, and to what runs later, and what speaks to other hosts: a table from
//! programs to rules.

use super::{call::Call, rules, scene::Reporter};
use crate::lists::LISTS;
use crate::{
    rule::Rule,
    unknown::{UNKNOWN, shown},
};
use ringfence_types::Severity::{Info, Warning};

/// When a program does what its row says.
enum When {
    Always,
    /// With one of the options: letters and words.
    With(&'static str, &'static [&'static str]),
    Without(&'static str, &'static [&'static str]),
    /// The first operand is one of these.
    First(&'static [&'static str]),
    /// One of the operands is one of these.
    Any(&'static [&'static str]),
    /// None is.
    NotAny(&'static [&'static str]),
    /// More operands than these.
    More(usize),
    Is(fn(&Call) -> bool),
}

use When::{Always, Any, First, Is, More, NotAny, With, Without};

struct Row {
    names: &'static [&'static str],
    when: When,
    rule: &'static Rule,
    what: &'static str,
}

const fn row(names: &'static [&'static str], when: When, rule: &'static Rule, what: &'static str) -> Row {
    Row {
        names,
        when,
        rule,
        what,
    }
}

const STOPS: &str = "stops the machine";
const LATER: &str = "plans work for later";
const CHANGES: &str = "changes the system";
const SPEAKS: &str = "uses the network";
const FETCHES: &str = "fetches packages over the network";
const FETCHES_HINT: &str = "Packages are named in `packages`, or installed by `install_package`.";
const SERVICES: &[&str] = &["systemctl", "loginctl"];

/// The first row of a program that holds is told.
#[rustfmt::skip]
static ROWS: &[Row] = &[
    row(&["kill"], Is(kills_all), &rules::KILL_ALL, "ends every process"),
    row(&["killall5"], Always, &rules::KILL_ALL, "ends every process"),
    row(&["pkill", "killall", "skill"], Any(&[".", ".*", ""]), &rules::KILL_ALL, "ends every process"),
    row(&["pkill"], Is(kills_all_of_user), &rules::KILL_ALL, "ends every process"),
    row(&["pkill", "killall", "skill"], Always, &rules::KILL_BY_NAME, "ends processes by name"),
    row(&["fuser"], With("k", &["kill"]), &rules::KILL_BY_NAME, "ends processes by what they use"),
    row(&["shutdown", "reboot", "halt", "poweroff"], Always, &rules::POWER, STOPS),
    row(&["init", "telinit"], First(&["0", "6"]), &rules::POWER, STOPS),
    row(
        SERVICES,
        First(&["reboot", "poweroff", "halt", "kexec", "suspend", "hibernate", "emergency"]),
        &rules::POWER, STOPS,
    ),
    row(SERVICES, First(&["enable", "link", "edit"]), &rules::SCHEDULE, "starts something at every boot"),
    row(
        SERVICES,
        First(&["stop", "disable", "mask", "kill", "start", "restart", "daemon-reload"]),
        &rules::SYSTEM_SETTINGS, "changes services",
    ),
    row(&["crontab"], With("r", &[]), &rules::SCHEDULE, "removes everything that is planned"),
    row(&["crontab"], Without("l", &[]), &rules::SCHEDULE, LATER),
    row(&["at", "batch", "systemd-run"], Always, &rules::SCHEDULE, LATER),
    row(&["history"], With("cdw", &[]), &rules::HISTORY, "removes the history"),
    row(&["set"], Is(|call| call.texts().eq(["+o", "history"])), &rules::HISTORY, "stops the history"),
    row(&["unset"], Any(&["HISTFILE"]), &rules::HISTORY, "stops the history"),
    row(&["sudo", "doas", "su", "pkexec", "runuser"], Always, &rules::PRIVILEGES, "asks for other rights"),
    row(&["enable"], With("f", &[]), &rules::LOADER, "loads a library into the shell"),
    row(
        &["iptables", "ip6tables", "iptables-restore", "arptables", "ebtables"],
        Without("LSn", &["list"]),
        &rules::SYSTEM_SETTINGS, CHANGES,
    ),
    row(&["nft", "ufw", "firewall-cmd"], NotAny(&["list", "status"]), &rules::SYSTEM_SETTINGS, CHANGES),
    row(&["sysctl"], With("wp", &["write", "load"]), &rules::SYSTEM_SETTINGS, CHANGES),
    row(&["sysctl"], Is(|call| call.operands().concat().contains('=')), &rules::SYSTEM_SETTINGS, CHANGES),
    row(&["mount"], More(0), &rules::SYSTEM_SETTINGS, CHANGES),
    row(
        &[
            "umount", "swapon", "swapoff", "losetup", "pivot_root", "kexec", "insmod", "modprobe", "rmmod", "depmod",
        ],
        Is(|call| !call.arguments.is_empty()),
        &rules::SYSTEM_SETTINGS, CHANGES,
    ),
    row(
        &["hostnamectl", "timedatectl", "localectl"],
        Is(|call| call.operands().first().is_some_and(|text| text.starts_with("set"))),
        &rules::SYSTEM_SETTINGS, CHANGES,
    ),
    row(&["ip", "tc"], Any(&["add", "del", "set", "flush", "replace"]), &rules::SYSTEM_SETTINGS, CHANGES),
    row(&["ifconfig", "route"], More(1), &rules::SYSTEM_SETTINGS, CHANGES),
    row(&["gdb", "strace", "ltrace"], With("p", &["pid", "attach"]), &rules::SYSTEM_SETTINGS, CHANGES),
    row(&["docker", "podman"], Is(opens_host), &rules::SYSTEM_SETTINGS, CHANGES),
    row(
        &[
            "useradd", "adduser", "usermod", "userdel", "groupadd", "groupdel", "passwd", "chpasswd", "visudo", "vipw",
            "chsh", "gpasswd", "setenforce", "setsebool", "apparmor_parser", "aa-disable", "aa-complain", "auditctl",
            "chroot", "nsenter", "unshare",
        ],
        Always,
        &rules::SYSTEM_SETTINGS, CHANGES,
    ),
    row(
        &["ssh", "scp", "sftp", "nmap", "ping", "dig", "nslookup", "host", "masscan"],
        Always,
        &rules::NETWORK, SPEAKS,
    ),
    row(&["git"], First(&["clone", "fetch", "pull", "push", "ls-remote"]), &rules::NETWORK, SPEAKS),
    row(
        &["git"],
        Is(|call| matches!(call.operands().as_slice(), ["submodule" | "remote", "update", ..])),
        &rules::NETWORK, SPEAKS,
    ),
    row(&["rsync"], Is(|call| call.operands().iter().any(|text| names_host(text))), &rules::NETWORK, SPEAKS),
    row(&["docker", "podman"], First(&["push", "pull", "login"]), &rules::NETWORK, SPEAKS),
    row(&["gh", "hub"], NotAny(&["config", "completion"]), &rules::NETWORK, SPEAKS),
    row(
        &["pip", "pip3", "pipx"],
        First(&["install", "download", "wheel", "upgrade", "run"]),
        &rules::NETWORK, FETCHES,
    ),
    row(
        &["python", "python3"],
        Is(|call| matches!(call.operands().as_slice(), ["pip", "install" | "download" | "wheel", ..])),
        &rules::NETWORK, FETCHES,
    ),
    row(
        &["uv", "poetry", "pipenv", "conda", "mamba"],
        First(&["install", "add", "sync", "update", "create", "lock", "pip"]),
        &rules::NETWORK, FETCHES,
    ),
    row(
        &["npm", "pnpm", "bun", "yarn"],
        First(&["install", "i", "ci", "add", "update", "up", "upgrade", "publish"]),
        &rules::NETWORK, FETCHES,
    ),
    row(&["yarn"], Is(|call| call.arguments.is_empty()), &rules::NETWORK, FETCHES),
    row(
        &["apt", "apt-get", "aptitude", "apk", "dnf", "yum", "microdnf", "zypper", "brew", "snap"],
        First(&[
            "install", "add", "update", "upgrade", "dist-upgrade", "full-upgrade", "download", "makecache", "refresh",
            "build-dep",
        ]),
        &rules::NETWORK, FETCHES,
    ),
    row(&["pacman"], With("S", &["sync"]), &rules::NETWORK, FETCHES),
    row(&["cargo"], First(&["install", "fetch", "update", "publish"]), &rules::NETWORK, FETCHES),
    row(&["gem"], First(&["install", "update", "push"]), &rules::NETWORK, FETCHES),
    row(&["bundle", "composer"], First(&["install", "update", "require"]), &rules::NETWORK, FETCHES),
    row(
        &["go"],
        Is(|call| matches!(call.operands().as_slice(), ["get" | "install", ..] | ["mod", "download" | "tidy", ..])),
        &rules::NETWORK, FETCHES,
    ),
];

impl When {
    fn holds(&self, call: &Call) -> bool {
        match self {
            Always => true,
            With(letters, words) => call.has(letters, words),
            Without(letters, words) => !call.has(letters, words),
            First(of) => call.operands().first().is_some_and(|text| of.contains(text)),
            Any(of) => call.operands().iter().any(|text| of.contains(text)),
            NotAny(of) => !call.operands().iter().any(|text| of.contains(text)),
            More(count) => call.operands().len() > *count,
            Is(check) => check(call),
        }
    }
}

pub(super) fn look(out: &mut Reporter<'_>, call: &Call) {
    let mut rows = ROWS.iter().filter(|row| row.names.contains(&call.name.as_str()));
    let Some(row) = rows.find(|row| row.when.holds(call)) else {
        return;
    };
    let what = format!("`{}` {}", call.shown(), row.what);
    match row.what {
        FETCHES => out.tell_with_hint(row.rule, row.rule.severity, what, FETCHES_HINT.to_owned()),
        _ => out.tell(row.rule, what),
    }
}

/// `kill -9 -1`, `kill -s KILL -- -1`; but `kill -1 123` sends a signal to one process.
fn kills_all(call: &Call) -> bool {
    let texts: Vec<&str> = call.texts().collect();
    let targets = match texts.as_slice() {
        ["-s" | "-n" | "--signal", _, rest @ ..] => rest,
        [first, rest @ ..] if first.starts_with('-') => rest,
        rest => rest,
    };
    targets.contains(&"-1")
}

/// `pkill -u somebody`
fn kills_all_of_user(call: &Call) -> bool {
    call.has("u", &[]) && call.operands().len() < 2
}

/// `host:path`, `rsync://host/path`
fn names_host(text: &str) -> bool {
    let before = text.split_once(':').map(|(before, _)| before);
    before.is_some_and(|before| !before.is_empty() && !before.contains('/'))
}

/// A container that sees the host.
fn opens_host(call: &Call) -> bool {
    const OPENING: [&str; 4] = ["--privileged", "--pid=host", "/:", "--volume=/:"];
    call.texts()
        .any(|text| text.contains("docker.sock") || OPENING.iter().any(|start| text.starts_with(start)))
}

const HISTORY_SIZES: &[&str] = &["HISTFILE", "HISTSIZE", "HISTFILESIZE"];

/// `LD_PRELOAD=…` and the like.
pub(super) fn assigned(out: &mut Reporter<'_>, name: &str, value: &str) {
    let written = format!("`{name}={}`", shown(value));
    if HISTORY_SIZES.contains(&name) && matches!(value, "" | "/dev/null" | "0") {
        out.tell(&rules::HISTORY, format!("{written} stops the history"));
    }
    if value.is_empty() || !LISTS.loaders.contains(&name) {
        return;
    }
    // Build scripts put their own libraries first; what is loaded is what the program asks for.
    let severity = match name {
        "LD_LIBRARY_PATH" | "GIT_SSH_COMMAND" => Info,
        "NODE_OPTIONS"
            if !["require", "import"].iter().any(|word| value.contains(word)) && !value.contains(UNKNOWN) =>
        {
            Info
        }
        _ => Warning,
    };
    let what = format!("{written} decides what other programs load");
    out.tell_as(&rules::LOADER, severity, what);
}
