//! What is removed, overwritten, and opened to others.

use super::{
    call::{Call, Means},
    emptied,
    place::{self, Place},
    rules,
    scene::{Report, Scene},
    syntax::Redirection,
};
use crate::{
    credentials::{self, Secret},
    unknown::{UNKNOWN, shown},
};
use ringfence_types::Severity::{self, Error, Info, Warning};
use std::ops::Range;

pub(super) fn look(
    scene: &Scene<'_>,
    command: usize,
    call: &Call,
    range: &Range<usize>,
    report: &mut Report,
) {
    match call.name.as_str() {
        "rm" | "srm" | "rimraf" | "trash" => removal(scene, command, call, range, report),
        "unlink" => report.tell(
            scene,
            range,
            &rules::FILE_DELETION,
            format!("`{}` removes a file", call.shown()),
        ),
        "find" => found_and_removed(scene, command, call, range, report),
        "mv" if call.operands().last() == Some(&"/dev/null") => removal(scene, command, call, range, report),
        "rsync" if call.texts().any(|text| text.starts_with("--delete")) => {
            let target = call
                .operands()
                .last()
                .map(|path| place::of(path, scene.directory(command)));
            if target.is_some_and(Place::loses_much) {
                let what = format!("`{}` empties what it copies to", call.shown());
                report.tell(scene, range, &rules::REMOVE_ROOT, what);
            }
        }
        "dd" => {
            let target = call.texts().find_map(|text| text.strip_prefix("of="));
            target
                .into_iter()
                .for_each(|path| written(scene, path, range, Writes::Over, report));
        }
        "tee" | "sponge" => {
            let writes = if call.has("a", &["append"]) {
                Writes::Append
            } else {
                Writes::Over
            };
            call.operands()
                .iter()
                .for_each(|path| written(scene, path, range, writes, report));
        }
        "cp" | "mv" | "install" | "ln" | "rsync" | "scp" => {
            let target = call
                .value_of("-t", "--target-directory")
                .or(call.operands().last().copied());
            target
                .into_iter()
                .for_each(|path| written(scene, path, range, Writes::Over, report));
        }
        "sed" | "perl" if call.has("i", &["in-place"]) => {
            call.operands()
                .iter()
                .for_each(|path| written(scene, path, range, Writes::Append, report));
        }
        "truncate" => call
            .operands()
            .iter()
            .for_each(|path| written(scene, path, range, Writes::Over, report)),
        "shred" | "wipe" => shredded(scene, call, range, report),
        "wipefs" | "blkdiscard" | "sgdisk" | "sfdisk" | "fdisk" | "parted" | "mke2fs" | "mkswap"
        | "cryptsetup" | "hdparm" => {
            formatted(scene, call, range, report);
        }
        name if name == "mkfs" || name.starts_with("mkfs.") => formatted(scene, call, range, report),
        "chmod" => mode(scene, command, call, range, report),
        "chown" | "chgrp" => owner(scene, command, call, range, report),
        "setcap" | "chattr" | "setfacl" => {
            let what = format!("`{}` changes who may do what", call.shown());
            report.tell(scene, range, &rules::PERMISSIONS, what);
        }
        _ => {}
    }
}

fn removal(scene: &Scene<'_>, command: usize, call: &Call, range: &Range<usize>, report: &mut Report) {
    let recursive = call.name != "rm" || call.has("rR", &["recursive"]);
    if recursive && let Some(variable) = emptied::variable(scene, command, call) {
        let what = format!(
            "`{}` removes everything where `{variable}` is empty",
            scene.said(range)
        );
        let hint = format!("Use `${{{variable}:?}}`, with which the script ends there.");
        return report.tell_with_hint(scene, range, &rules::REMOVE_ROOT, Warning, (what, hint));
    }
    let directory = scene.directory(command);
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
            return report.tell(scene, range, &rules::REMOVE_ROOT, what);
        }
        if is_trace(path) {
            let what = format!("`{}` removes a history or a log", call.shown());
            report.tell(scene, range, &rules::HISTORY, what);
        }
        if at.loses_much() || stays(path) {
            worst = Warning;
            what = format!("`{}` removes files of the system or of a home", call.shown());
        }
    }
    if call.has("", &["no-preserve-root"]) {
        let what = format!("`{}` lifts the last guard of `/`", call.shown());
        return report.tell(scene, range, &rules::REMOVE_ROOT, what);
    }
    if call.name == "rm" && (recursive || worst == Warning || call.means != Means::Words) {
        report.tell_as(scene, range, &rules::FILE_DELETION, worst, what);
    }
}

fn named(place: Place) -> &'static str {
    match place {
        Place::Root => "everything",
        Place::System => "a directory of the system",
        Place::Home => "a whole home",
        _ => "what is above the working directory",
    }
}

/// `find / -delete`, `find / -exec rm {} +`
fn found_and_removed(
    scene: &Scene<'_>,
    command: usize,
    call: &Call,
    range: &Range<usize>,
    report: &mut Report,
) {
    let is_test = |text: &str| text.starts_with(['-', '(', '!']);
    let starts: Vec<&str> = call.texts().take_while(|text| !is_test(text)).collect();
    let removes = call.texts().any(|text| text == "-delete")
        || scene.started.get(command).is_some_and(|started| {
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
    let directory = scene.directory(command);
    let places = starts.iter().map(|path| place::of(path, directory));
    let wide = places.into_iter().any(Place::loses_much);
    let what = format!("`{}` removes what it finds", call.shown());
    match (wide, narrowed) {
        (true, false) => report.tell(scene, range, &rules::REMOVE_ROOT, what),
        (true, true) => report.tell_as(scene, range, &rules::FILE_DELETION, Warning, what),
        _ => report.tell(scene, range, &rules::FILE_DELETION, what),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Writes {
    Over,
    Append,
}

pub(super) fn redirected(
    scene: &Scene<'_>,
    redirection: &Redirection<'_>,
    target: &str,
    range: &Range<usize>,
    report: &mut Report,
) {
    if redirection.is_text() {
        return;
    }
    if redirection.writes() {
        let writes = if redirection.operator.contains(">>") {
            Writes::Append
        } else {
            Writes::Over
        };
        written(scene, target, range, writes, report);
    }
    if redirection.operator.contains('<') && credentials::kept_at(target) == Some(Secret::Certain) {
        let what = format!("`{}` is read", shown(target));
        report.tell(scene, range, &rules::CREDENTIAL_PATH, what);
    }
}

/// A file is written to.
fn written(scene: &Scene<'_>, path: &str, range: &Range<usize>, writes: Writes, report: &mut Report) {
    let shown = shown(path);
    if place::is_disk(path) {
        return report.tell(
            scene,
            range,
            &rules::DEVICE_WRITE,
            format!("`{shown}` is written to"),
        );
    }
    if path.starts_with("/proc/sysrq-trigger") {
        return report.tell(scene, range, &rules::POWER, format!("`{shown}` is written to"));
    }
    if path.starts_with("/proc/sys/")
        || path.starts_with("/sys/")
        || path == "/etc/hosts"
        || path == "/etc/resolv.conf"
    {
        return report.tell(
            scene,
            range,
            &rules::SYSTEM_SETTINGS,
            format!("`{shown}` is written to"),
        );
    }
    if path.starts_with("/etc/cron")
        || path.starts_with("/var/spool/cron")
        || path.starts_with("/etc/systemd/")
    {
        return report.tell(scene, range, &rules::SCHEDULE, format!("`{shown}` is written to"));
    }
    if is_trace(path) && writes == Writes::Over {
        return report.tell(scene, range, &rules::HISTORY, format!("`{shown}` is overwritten"));
    }
    if stays(path) {
        report.tell(
            scene,
            range,
            &rules::STARTUP_FILES,
            format!("`{shown}` is written to"),
        );
    }
}

fn is_trace(path: &str) -> bool {
    path.ends_with("_history") || path.starts_with("/var/log/") || path == "/var/run/utmp"
}

/// Files that decide who gets in and what runs there.
fn stays(path: &str) -> bool {
    const EXACT: &[&str] = &[
        "/etc/passwd",
        "/etc/shadow",
        "/etc/group",
        "/etc/gshadow",
        "/etc/profile",
        "/etc/bash.bashrc",
        "/etc/environment",
        "/etc/ld.so.preload",
        "/etc/rc.local",
        "/etc/sudoers",
        "/etc/crontab",
        "/etc/inittab",
        "/etc/zshenv",
    ];
    const BELOW: &[&str] = &[
        "/etc/sudoers.d/",
        "/etc/profile.d/",
        "/etc/init.d/",
        "/etc/pam.d/",
        "/etc/ssh/",
        "/etc/ld.so.conf.d/",
    ];
    const NAMES: &[&str] = &[
        ".bashrc",
        ".bash_profile",
        ".bash_login",
        ".bash_logout",
        ".profile",
        ".zshrc",
        ".zprofile",
        ".zshenv",
        ".zlogin",
        ".inputrc",
        ".xinitrc",
        ".vimrc",
        ".ssh/authorized_keys",
        ".ssh/rc",
        ".ssh/config",
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

fn shredded(scene: &Scene<'_>, call: &Call, range: &Range<usize>, report: &mut Report) {
    let devices = call.operands().iter().any(|path| place::is_disk(path));
    let what = format!("`{}` overwrites", call.shown());
    match devices {
        true => report.tell(scene, range, &rules::FORMAT_DEVICE, what),
        false => report.tell(scene, range, &rules::FILE_DELETION, what),
    }
}

fn formatted(scene: &Scene<'_>, call: &Call, range: &Range<usize>, report: &mut Report) {
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
    report.tell_as(scene, range, &rules::FORMAT_DEVICE, severity, what);
}

fn mode(scene: &Scene<'_>, command: usize, call: &Call, range: &Range<usize>, report: &mut Report) {
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
    let directory = scene.directory(command);
    let mut operands = call.operands().into_iter().skip(1);
    let wide = operands.any(|path| matches!(place::of(path, directory), Place::Root | Place::System));
    let (severity, what) = match (to_all, as_owner, recursive && wide) {
        (_, _, true) => (Error, "changes the rights of the whole system"),
        (true, ..) => (Warning, "lets everybody write"),
        (_, true, _) => (Warning, "lets whoever runs a file act as its owner"),
        _ => return,
    };
    report.tell_as(
        scene,
        range,
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

fn owner(scene: &Scene<'_>, command: usize, call: &Call, range: &Range<usize>, report: &mut Report) {
    let directory = scene.directory(command);
    let mut operands = call.operands().into_iter().skip(1);
    let wide = operands.any(|path| {
        matches!(
            place::of(path, directory),
            Place::Root | Place::System | Place::Home
        )
    });
    let severity: Severity = match (call.has("R", &["recursive"]), wide) {
        (true, true) => Error,
        (true, false) => Warning,
        (false, _) => return,
    };
    report.tell_as(
        scene,
        range,
        &rules::PERMISSIONS,
        severity,
        format!("`{}` gives files to another", call.shown()),
    );
}
