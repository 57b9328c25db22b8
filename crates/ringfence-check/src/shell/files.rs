//! What is removed, overwritten, and opened to others.

use super::{
    call::{Call, Means},
    emptied,
    place::{self, Location},
    rules,
    scene::Reporter,
    syntax::Redirection,
};
use crate::{
    credentials::{self, Secret},
    rule::Rule,
    unknown::{UNKNOWN, shown},
};
use ringfence_types::Severity::{self, Error, Info, Warning};

pub(super) fn look(out: &mut Reporter<'_>, command: usize, call: &Call) {
    match call.name.as_str() {
        "rm" | "srm" | "rimraf" | "trash" => removal(out, command, call),
        "unlink" => out.tell(
            &rules::FILE_DELETION,
            format!("`{}` removes a file", call.shown()),
        ),
        "find" => found_and_removed(out, command, call),
        "mv" if call.operands().last() == Some(&"/dev/null") => removal(out, command, call),
        "rsync" if call.texts().any(|text| text.starts_with("--delete")) => {
            let target = call
                .operands()
                .last()
                .map(|path| place::of(path, out.scene.directory(command)));
            if target.is_some_and(Location::loses_much) {
                let what = format!("`{}` empties what it copies to", call.shown());
                out.tell(&rules::REMOVE_ROOT, what);
            }
        }
        "dd" => {
            let target = call.texts().find_map(|text| text.strip_prefix("of="));
            written_all(out, target, Writes::Over);
        }
        "tee" | "sponge" => {
            let writes = if call.has("a", &["append"]) {
                Writes::Append
            } else {
                Writes::Over
            };
            written_all(out, call.operands(), writes);
        }
        "cp" | "mv" | "install" | "ln" | "rsync" | "scp" => {
            let target = call
                .value_of("-t", "--target-directory")
                .or(call.operands().last().copied());
            written_all(out, target, Writes::Over);
        }
        "sed" | "perl" if call.has("i", &["in-place"]) => {
            written_all(out, call.operands(), Writes::Append);
        }
        "truncate" => written_all(out, call.operands(), Writes::Over),
        "shred" | "wipe" => shredded(out, call),
        "wipefs" | "blkdiscard" | "sgdisk" | "sfdisk" | "fdisk" | "parted" | "mke2fs" | "mkswap"
        | "cryptsetup" | "hdparm" => {
            formatted(out, call);
        }
        name if name == "mkfs" || name.starts_with("mkfs.") => formatted(out, call),
        "chmod" => mode(out, command, call),
        "chown" | "chgrp" => owner(out, command, call),
        "setcap" | "chattr" | "setfacl" => {
            let what = format!("`{}` changes who may do what", call.shown());
            out.tell(&rules::PERMISSIONS, what);
        }
        _ => {}
    }
}

fn removal(out: &mut Reporter<'_>, command: usize, call: &Call) {
    let recursive = call.name != "rm" || call.has("rR", &["recursive"]);
    if recursive && let Some(variable) = emptied::variable(out.scene, command, call) {
        let what = format!(
            "`{}` removes everything where `{variable}` is empty",
            out.scene.said(out.range)
        );
        let hint = format!("Use `${{{variable}:?}}`, with which the script ends there.");
        return out.tell_with_hint(&rules::REMOVE_ROOT, Warning, what, hint);
    }
    let directory = out.scene.directory(command);
    let mut worst = Info;
    let mut what = format!("`{}` removes files", call.shown());
    for path in call.operands() {
        let at = place::of(path, directory);
        let fatal = recursive && at.loses_much();
        // A variable that may be empty, before a slash: `"$x"/*`.
        if fatal && path != "/dev/null" {
            let seen = match directory {
                Some(directory) if !path.starts_with(['/', '~']) => format!(" in `{}`", shown(directory)),
                _ => String::new(),
            };
            let what = format!("`{}`{seen} removes {}", call.shown(), named(at));
            return out.tell(&rules::REMOVE_ROOT, what);
        }
        if is_trace(path) {
            let what = format!("`{}` removes a history or a log", call.shown());
            out.tell(&rules::HISTORY, what);
        }
        if at.loses_much() || stays(path) {
            worst = Warning;
            what = format!("`{}` removes files of the system or of a home", call.shown());
        }
    }
    if call.has("", &["no-preserve-root"]) {
        let what = format!("`{}` lifts the last guard of `/`", call.shown());
        return out.tell(&rules::REMOVE_ROOT, what);
    }
    if call.name == "rm" && (recursive || worst == Warning || call.means != Means::Words) {
        out.tell_as(&rules::FILE_DELETION, worst, what);
    }
}

fn named(place: Location) -> &'static str {
    match place {
        Location::Root => "everything",
        Location::System => "a directory of the system",
        Location::Home => "a whole home",
        _ => "what is above the working directory",
    }
}

/// `find / -delete`, `find / -exec rm {} +`
fn found_and_removed(out: &mut Reporter<'_>, command: usize, call: &Call) {
    let is_test = |text: &str| text.starts_with(['-', '(', '!']);
    let starts: Vec<&str> = call.texts().take_while(|text| !is_test(text)).collect();
    let removes = call.texts().any(|text| text == "-delete")
        || out.scene.started.get(command).is_some_and(|started| {
            started
                .calls
                .iter()
                .any(|inner| inner.means == Means::Find && inner.name == "rm")
        });
    if !removes {
        return;
    }
    let narrows = [
        "-name", "-iname", "-path", "-regex", "-mtime", "-newer", "-size", "-user", "-empty", "-mmin",
        "-perm",
    ];
    let narrowed = call.texts().any(|text| narrows.contains(&text));
    let directory = out.scene.directory(command);
    let places = starts.iter().map(|path| place::of(path, directory));
    let wide = places.into_iter().any(Location::loses_much);
    let what = format!("`{}` removes what it finds", call.shown());
    match (wide, narrowed) {
        (true, false) => out.tell(&rules::REMOVE_ROOT, what),
        (true, true) => out.tell_as(&rules::FILE_DELETION, Warning, what),
        _ => out.tell(&rules::FILE_DELETION, what),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Writes {
    Over,
    Append,
}

pub(super) fn redirected(out: &mut Reporter<'_>, redirection: &Redirection<'_>, target: &str) {
    if redirection.is_text() {
        return;
    }
    if redirection.writes() {
        let writes = if redirection.operator.contains(">>") {
            Writes::Append
        } else {
            Writes::Over
        };
        written(out, target, writes);
    }
    if redirection.operator.contains('<') && credentials::kept_at(target) == Some(Secret::Certain) {
        let what = format!("`{}` is read", shown(target));
        out.tell(&rules::CREDENTIAL_PATH, what);
    }
}

fn written_all<'p>(out: &mut Reporter<'_>, paths: impl IntoIterator<Item = &'p str>, writes: Writes) {
    paths.into_iter().for_each(|path| written(out, path, writes));
}

/// Below these, a file that is written to changes the machine.
static GUARDED: &[(&str, &Rule)] = &[
    ("/proc/sysrq-trigger", &rules::POWER),
    ("/proc/sys/", &rules::SYSTEM_SETTINGS),
    ("/sys/", &rules::SYSTEM_SETTINGS),
    ("/etc/cron", &rules::SCHEDULE),
    ("/var/spool/cron", &rules::SCHEDULE),
    ("/etc/systemd/", &rules::SCHEDULE),
];

/// A file is written to.
fn written(out: &mut Reporter<'_>, path: &str, writes: Writes) {
    let shown = shown(path);
    let rule = match path {
        _ if place::is_disk(path) => Some(&rules::DEVICE_WRITE),
        "/etc/hosts" | "/etc/resolv.conf" => Some(&rules::SYSTEM_SETTINGS),
        _ => GUARDED
            .iter()
            .find(|(start, _)| path.starts_with(start))
            .map(|(_, rule)| *rule),
    };
    if let Some(rule) = rule {
        return out.tell(rule, format!("`{shown}` is written to"));
    }
    if is_trace(path) && writes == Writes::Over {
        return out.tell(&rules::HISTORY, format!("`{shown}` is overwritten"));
    }
    if stays(path) {
        out.tell(&rules::STARTUP_FILES, format!("`{shown}` is written to"));
    }
}

fn is_trace(path: &str) -> bool {
    path.ends_with("_history") || path.starts_with("/var/log/") || path == "/var/run/utmp"
}

/// Files that decide who gets in and what runs there.
fn stays(path: &str) -> bool {
    #[rustfmt::skip]
    const EXACT: &[&str] = &[
        "/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow", "/etc/profile", "/etc/bash.bashrc",
        "/etc/environment", "/etc/ld.so.preload", "/etc/rc.local", "/etc/sudoers", "/etc/crontab", "/etc/inittab",
        "/etc/zshenv",
    ];
    #[rustfmt::skip]
    const BELOW: &[&str] = &[
        "/etc/sudoers.d/", "/etc/profile.d/", "/etc/init.d/", "/etc/pam.d/", "/etc/ssh/", "/etc/ld.so.conf.d/",
    ];
    #[rustfmt::skip]
    const NAMES: &[&str] = &[
        ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zprofile", ".zshenv",
        ".zlogin", ".inputrc", ".xinitrc", ".vimrc", ".ssh/authorized_keys", ".ssh/rc", ".ssh/config",
        ".config/fish/config.fish",
    ];
    let in_home = path.starts_with(['~', '/', UNKNOWN]) || path.starts_with(".ssh/");
    EXACT.contains(&path)
        || BELOW.iter().any(|below| path.starts_with(below))
        || path.contains("/.config/autostart/")
        || path.contains("/.config/systemd/user/")
        || (in_home
            && NAMES.iter().any(|name| {
                path.strip_suffix(name)
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
            }))
}

fn shredded(out: &mut Reporter<'_>, call: &Call) {
    let devices = call.operands().iter().any(|path| place::is_disk(path));
    let what = format!("`{}` overwrites", call.shown());
    match devices {
        true => out.tell(&rules::FORMAT_DEVICE, what),
        false => out.tell(&rules::FILE_DELETION, what),
    }
}

fn formatted(out: &mut Reporter<'_>, call: &Call) {
    if call.has("l", &["list", "help", "version"]) || call.operands().is_empty() {
        return;
    }
    let operands = call.operands();
    let on_device = operands.iter().any(|path| path.starts_with("/dev/"));
    let known = operands.iter().all(|path| !path.contains(UNKNOWN));
    let severity = match (on_device, known) {
        (true, _) => Error,
        (false, false) => Warning,
        (false, true) => Info,
    };
    let what = format!("`{}` makes or wipes a file system", call.shown());
    out.tell_as(&rules::FORMAT_DEVICE, severity, what);
}

fn mode(out: &mut Reporter<'_>, command: usize, call: &Call) {
    // `-x` is a mode, too, where it takes a right away.
    let Some(mode) = call.texts().find(|text| !text.starts_with('-')) else {
        return;
    };
    let octal = u32::from_str_radix(mode, 8).ok().filter(|_| mode.len() >= 3);
    let to_all = match octal {
        Some(bits) => bits & 0o002 != 0 && bits & 0o1000 == 0,
        None => mode.split(',').any(|clause| grants(clause, "w")),
    };
    let as_owner = match octal {
        Some(bits) => bits & 0o6000 != 0,
        None => mode
            .split(',')
            .any(|clause| clause.contains('s') && clause.contains(['+', '='])),
    };
    let recursive = call.has("R", &["recursive"]);
    let directory = out.scene.directory(command);
    let mut operands = call.operands().into_iter().skip(1);
    let wide = operands.any(|path| matches!(place::of(path, directory), Location::Root | Location::System));
    let (severity, what) = match (to_all, as_owner, recursive && wide) {
        (_, _, true) => (Error, "changes the rights of the whole system"),
        (true, ..) => (Warning, "lets everybody write"),
        (_, true, _) => (Warning, "lets every user who runs a file act as its owner"),
        _ => return,
    };
    out.tell_as(
        &rules::PERMISSIONS,
        severity,
        format!("`{}` {what}", call.shown()),
    );
}

/// `a+w`, `o=rwx`, `+w` does not: the mask is applied.
fn grants(clause: &str, right: &str) -> bool {
    let Some(at) = clause.find(['+', '=']) else {
        return false;
    };
    clause[..at].contains(['a', 'o']) && clause[at..].contains(right)
}

fn owner(out: &mut Reporter<'_>, command: usize, call: &Call) {
    let directory = out.scene.directory(command);
    let mut operands = call.operands().into_iter().skip(1);
    let wide = operands.any(|path| {
        matches!(
            place::of(path, directory),
            Location::Root | Location::System | Location::Home
        )
    });
    let severity: Severity = match (call.has("R", &["recursive"]), wide) {
        (true, true) => Error,
        (true, false) => Warning,
        (false, _) => return,
    };
    out.tell_as(
        &rules::PERMISSIONS,
        severity,
        format!("`{}` gives files to another", call.shown()),
    );
}
