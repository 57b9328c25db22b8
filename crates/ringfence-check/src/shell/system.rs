//! What is done to processes, to the machine, and to what runs later.

use super::{call::Call, rules, scene::Reporter};
use crate::{
    rule::Rule,
    unknown::{UNKNOWN, shown},
};
use ringfence_types::Severity::{Error, Info, Warning};

pub(super) fn look(out: &mut Reporter<'_>, call: &Call) {
    let mut tell = |rule: &'static Rule, severity, what: &str| {
        let what = format!("`{}` {what}", call.shown());
        out.tell_as(rule, severity, what);
    };
    let operands = call.operands();
    match call.name.as_str() {
        "kill" if kills_all(call) => tell(&rules::KILL_ALL, Error, "ends every process"),
        "killall5" => tell(&rules::KILL_ALL, Error, "ends every process"),
        "pkill" | "killall" | "skill" => {
            let all = |text: &&str| matches!(*text, "." | ".*" | "");
            match operands.iter().any(all) || call.name == "pkill" && call.has("u", &[]) && operands.len() < 2
            {
                true => tell(&rules::KILL_ALL, Error, "ends every process"),
                false => tell(&rules::KILL_BY_NAME, Warning, "ends processes by name"),
            }
        }
        "fuser" if call.has("k", &["kill"]) => {
            tell(&rules::KILL_BY_NAME, Warning, "ends processes by what they use")
        }
        "shutdown" | "reboot" | "halt" | "poweroff" => tell(&rules::POWER, Warning, "stops the machine"),
        "init" | "telinit" if matches!(operands.first(), Some(&("0" | "6"))) => {
            tell(&rules::POWER, Warning, "stops the machine");
        }
        "systemctl" | "loginctl" => match operands.first() {
            Some(&("reboot" | "poweroff" | "halt" | "kexec" | "suspend" | "hibernate" | "emergency")) => {
                tell(&rules::POWER, Warning, "stops the machine");
            }
            Some(&("enable" | "link" | "edit")) => {
                tell(&rules::SCHEDULE, Warning, "starts something at every boot")
            }
            Some(&("stop" | "disable" | "mask" | "kill" | "start" | "restart" | "daemon-reload")) => {
                tell(&rules::SYSTEM_SETTINGS, Warning, "changes services");
            }
            _ => {}
        },
        "crontab" if call.has("l", &[]) => {}
        "crontab" => match call.has("r", &[]) {
            true => tell(&rules::SCHEDULE, Warning, "removes everything that is planned"),
            false => tell(&rules::SCHEDULE, Warning, "plans work for later"),
        },
        "at" | "batch" | "systemd-run" => tell(&rules::SCHEDULE, Warning, "plans work for later"),
        "history" if call.has("cdw", &[]) => tell(&rules::HISTORY, Warning, "removes the history"),
        "set" if call.texts().collect::<Vec<_>>() == ["+o", "history"] => {
            tell(&rules::HISTORY, Warning, "stops the history")
        }
        "unset" if operands.contains(&"HISTFILE") => tell(&rules::HISTORY, Warning, "stops the history"),
        "sudo" | "doas" | "su" | "pkexec" | "runuser" => {
            tell(&rules::PRIVILEGES, Info, "asks for other rights")
        }
        "enable" if call.has("f", &[]) => tell(&rules::LOADER, Warning, "loads a library into the shell"),
        _ => settings(out, call),
    }
}

/// `kill -9 -1`, `kill -s KILL -- -1`; but `kill -1 123` sends a signal to one process.
fn kills_all(call: &Call) -> bool {
    let texts: Vec<&str> = call.texts().collect();
    let targets = match texts.as_slice() {
        ["-s" | "-n" | "--signal", _, rest @ ..] => rest,
        ["--", rest @ ..] => rest,
        [first, rest @ ..] if first.starts_with('-') => rest,
        rest => rest,
    };
    targets.contains(&"-1")
}

/// Programs that change the system whatever their arguments are.
#[rustfmt::skip]
const CHANGERS: &[&str] = &[
    "useradd", "adduser", "usermod", "userdel", "groupadd", "groupdel", "passwd", "chpasswd", "visudo", "vipw", "chsh",
    "gpasswd", "setenforce", "setsebool", "apparmor_parser", "aa-disable", "aa-complain", "auditctl", "chroot",
    "nsenter", "unshare",
];

/// Programs that change the system, unless they only ask.
fn settings(out: &mut Reporter<'_>, call: &Call) {
    let operands = call.operands();
    let changes = match call.name.as_str() {
        "iptables" | "ip6tables" | "iptables-restore" | "arptables" | "ebtables" => {
            !call.has("LSn", &["list"])
        }
        "nft" | "ufw" | "firewall-cmd" => !operands.iter().any(|text| matches!(*text, "list" | "status")),
        "sysctl" => call.has("wp", &["write", "load"]) || operands.iter().any(|text| text.contains('=')),
        "mount" => !operands.is_empty(),
        "umount" | "swapon" | "swapoff" | "losetup" | "pivot_root" | "kexec" => !call.arguments.is_empty(),
        "insmod" | "modprobe" | "rmmod" | "depmod" => !call.arguments.is_empty(),
        "hostnamectl" | "timedatectl" | "localectl" => {
            operands.first().is_some_and(|text| text.starts_with("set"))
        }
        "ip" | "tc" => {
            let changing = ["add", "del", "set", "flush", "replace"];
            operands.iter().any(|text| changing.contains(text))
        }
        "ifconfig" | "route" => operands.len() > 1,
        "gdb" | "strace" | "ltrace" => call.has("p", &["pid", "attach"]),
        "docker" | "podman" => {
            let opens = |text: &str| {
                text == "--privileged"
                    || text.starts_with("--pid=host")
                    || text.contains("docker.sock")
                    || text.starts_with("/:")
                    || text.starts_with("--volume=/:")
            };
            call.texts().any(opens)
        }
        name => CHANGERS.contains(&name),
    };
    if changes {
        let what = format!("`{}` changes the system", call.shown());
        out.tell(&rules::SYSTEM_SETTINGS, what);
    }
}

const HISTORY_SIZES: &[&str] = &["HISTFILE", "HISTSIZE", "HISTFILESIZE"];
#[rustfmt::skip]
const LOADERS: &[&str] = &[
    "LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "PROMPT_COMMAND", "PYTHONSTARTUP", "PERL5OPT",
    "RUBYOPT", "NODE_OPTIONS", "GIT_SSH_COMMAND", "LD_LIBRARY_PATH",
];

/// `LD_PRELOAD=…` and the like.
pub(super) fn assigned(out: &mut Reporter<'_>, name: &str, value: &str) {
    let shown_value = shown(value);
    if HISTORY_SIZES.contains(&name) && matches!(value, "" | "/dev/null" | "0") {
        out.tell(
            &rules::HISTORY,
            format!("`{name}={shown_value}` stops the history"),
        );
    }
    if value.is_empty() || !LOADERS.contains(&name) {
        return;
    }
    let what = format!("`{name}={shown_value}` decides what other programs load");
    // Build scripts put their own libraries first; what is loaded is what the program asks for.
    let severity = match name {
        "LD_LIBRARY_PATH" | "GIT_SSH_COMMAND" => Info,
        "NODE_OPTIONS"
            if !value.contains("require") && !value.contains("import") && !value.contains(UNKNOWN) =>
        {
            Info
        }
        _ => Warning,
    };
    out.tell_as(&rules::LOADER, severity, what);
}
