//! Rules for files that are removed or overwritten, and for permissions.

use super::{
    call::{Call, Source},
    emptied,
    place::{self, Location},
    rules,
    scene::Reporter,
    syntax::Redirection,
};
use crate::{
    credentials::{self, Secret},
    lists::LISTS,
    rule::Rule,
    unknown::{UNKNOWN, shown},
};
use Location::{Home, Root, System};
use ringfence_types::Severity::{Error, Info, Warning};

pub(super) fn check(out: &mut Reporter<'_>, command: usize, call: &Call) {
    let operands = call.operands();
    let last = operands.last().copied();
    match call.name.as_str() {
        "rm" | "srm" | "rimraf" | "trash" => removal(out, command, call),
        "find" => found_and_removed(out, command, call),
        "mv" if last == Some("/dev/null") => removal(out, command, call),
        "rsync" if call.texts().any(|text| text.starts_with("--delete")) => {
            let directory = out.context.directory(command);
            if last.is_some_and(|path| place::of(path, directory).is_some()) {
                out.report_call(&rules::REMOVE_ROOT, call, "empties what it copies to");
            }
        }
        "dd" => {
            let target = call.texts().find_map(|text| text.strip_prefix("of="));
            written(out, target, Writes::Over);
        }
        "tee" | "sponge" if call.has("a", &["append"]) => written(out, operands, Writes::Append),
        "tee" | "sponge" | "truncate" => written(out, operands, Writes::Over),
        "cp" | "mv" | "install" | "ln" | "rsync" | "scp" => {
            let target = call.value_of("-t", "--target-directory");
            written(out, target.or(last), Writes::Over);
        }
        "sed" | "perl" if call.has("i", &["in-place"]) => written(out, operands, Writes::Append),
        "shred" | "wipe" => {
            let devices = operands.iter().any(|path| place::is_disk(path));
            let rule = match devices {
                true => &rules::FORMAT_DEVICE,
                false => &rules::FILE_DELETION,
            };
            out.report_call(rule, call, "overwrites");
        }
        "wipefs" | "blkdiscard" | "sgdisk" | "sfdisk" | "fdisk" | "parted" | "mke2fs" | "mkswap"
        | "cryptsetup" | "hdparm" | "mkfs" => formatted(out, call),
        name if name.starts_with("mkfs.") => formatted(out, call),
        "chmod" => mode(out, command, call),
        "chown" | "chgrp" if call.has("R", &["recursive"]) => {
            let operands = call.operands();
            let paths = operands.get(1..).unwrap_or_default();
            let wide = reaches(out, command, paths, &[Root, System, Home]);
            let severity = if wide { Error } else { Warning };
            let what = out.what(call, "gives files to another");
            out.report_as(&rules::PERMISSIONS, severity, what);
        }
        _ => {}
    }
}

fn removal(out: &mut Reporter<'_>, command: usize, call: &Call) {
    let recursive = call.name != "rm" || call.has("rR", &["recursive"]);
    if recursive && let Some(variable) = emptied::variable(out.context, command) {
        let written = out.context.snippet(out.range);
        let what = format!("`{written}` removes everything where `{variable}` is empty");
        let hint = format!("Use `${{{variable}:?}}`, with which the script ends there.");
        let finding = out.finding(&rules::REMOVE_ROOT, what);
        return out.add(finding.with_severity(Warning).with_hint(hint));
    }
    let directory = out.context.directory(command);
    let mut severity = Info;
    let mut what = out.what(call, "removes files");
    for path in call.operands() {
        let at = place::of(path, directory);
        if recursive && let Some(at) = at {
            let seen = match directory {
                Some(directory) if !path.starts_with(['/', '~']) => format!("in `{}` ", shown(directory)),
                _ => String::new(),
            };
            let lost = match at {
                Root => "everything",
                System => "a directory of the system",
                Home => "a whole home",
                _ => "what is above the working directory",
            };
            return out.report_call(&rules::REMOVE_ROOT, call, &format!("{seen}removes {lost}"));
        }
        if is_trace(path) {
            out.report_call(&rules::HISTORY, call, "removes a history or a log");
        }
        if at.is_some() || is_startup_file(path) {
            severity = Warning;
            what = out.what(call, "removes files of the system or of a home");
        }
    }
    if call.has("", &["no-preserve-root"]) {
        return out.report_call(&rules::REMOVE_ROOT, call, "lifts the last guard of `/`");
    }
    if call.name == "rm" && (recursive || severity == Warning || call.source != Source::Words) {
        out.report_as(&rules::FILE_DELETION, severity, what);
    }
}

/// Reports `find / -delete`, `find / -exec rm {} +`.
fn found_and_removed(out: &mut Reporter<'_>, command: usize, call: &Call) {
    let removes = |inner: &Call| inner.source == Source::Find && inner.name == "rm";
    let deletes = call.texts().any(|text| text == "-delete");
    if !deletes && !out.context.starts(&(command..command + 1), removes) {
        return;
    }
    let directory = out.context.directory(command);
    let mut starts = call.texts().take_while(|text| !text.starts_with(['-', '(', '!']));
    let wide = starts.any(|path| place::of(path, directory).is_some());
    let narrowed = call.texts().any(|text| LISTS.narrowing.contains(&text));
    let what = out.what(call, "removes what it finds");
    match (wide, narrowed) {
        (true, false) => out.report(&rules::REMOVE_ROOT, what),
        (true, true) => out.report_as(&rules::FILE_DELETION, Warning, what),
        _ => out.report(&rules::FILE_DELETION, what),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    Over,
    Append,
}

pub(super) fn redirected(out: &mut Reporter<'_>, redirection: &Redirection<'_>, target: &str) {
    let operator = redirection.operator;
    if redirection.is_text() {
        return;
    }
    if operator.contains(">>") {
        written(out, [target], Writes::Append);
    } else if redirection.writes() {
        written(out, [target], Writes::Over);
    }
    if operator.contains('<') && credentials::secret_at(target) == Some(Secret::Certain) {
        out.report(&rules::CREDENTIAL_PATH, format!("`{}` is read", shown(target)));
    }
}

/// The rule for a file whose contents configure the machine or act on it.
fn guarded(path: &str) -> Option<&'static Rule> {
    let below = |places: &[&str]| places.iter().any(|place| path.starts_with(place));
    match path {
        "/etc/hosts" | "/etc/resolv.conf" => Some(&rules::SYSTEM_SETTINGS),
        _ if below(&["/proc/sysrq-trigger"]) => Some(&rules::POWER),
        _ if below(&["/proc/sys/", "/sys/"]) => Some(&rules::SYSTEM_SETTINGS),
        _ if below(&["/etc/cron", "/var/spool/cron", "/etc/systemd/"]) => Some(&rules::SCHEDULE),
        _ => None,
    }
}

fn written<'p>(out: &mut Reporter<'_>, paths: impl IntoIterator<Item = &'p str>, writes: Writes) {
    for path in paths {
        let shown = shown(path);
        if place::is_disk(path) {
            out.report(&rules::DEVICE_WRITE, format!("`{shown}` is written to"));
        } else if let Some(rule) = guarded(path) {
            out.report(rule, format!("`{shown}` is written to"));
        } else if is_trace(path) && writes == Writes::Over {
            out.report(&rules::HISTORY, format!("`{shown}` is overwritten"));
        } else if is_startup_file(path) {
            out.report(&rules::STARTUP_FILES, format!("`{shown}` is written to"));
        }
    }
}

fn is_trace(path: &str) -> bool {
    path.ends_with("_history") || path.starts_with("/var/log/") || path == "/var/run/utmp"
}

fn is_startup_file(path: &str) -> bool {
    let in_home = path.starts_with(['~', '/', UNKNOWN]) || path.starts_with(".ssh/");
    let ends = |name: &&str| {
        let rest = path.strip_suffix(*name);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
    };
    LISTS.staying.contains(&path)
        || LISTS.staying_below.iter().any(|below| path.starts_with(below))
        || path.contains("/.config/autostart/")
        || path.contains("/.config/systemd/user/")
        || in_home && LISTS.staying_at_home.iter().any(ends)
}

fn formatted(out: &mut Reporter<'_>, call: &Call) {
    let operands = call.operands();
    if call.has("l", &["list", "help", "version"]) || operands.is_empty() {
        return;
    }
    let severity = match operands.concat().contains(UNKNOWN) {
        _ if operands.iter().any(|path| path.starts_with("/dev/")) => Error,
        true => Warning,
        false => Info,
    };
    let what = out.what(call, "makes or wipes a file system");
    out.report_as(&rules::FORMAT_DEVICE, severity, what);
}

/// True if one of these paths is one of these locations.
fn reaches(out: &Reporter<'_>, command: usize, paths: &[&str], places: &[Location]) -> bool {
    let directory = out.context.directory(command);
    let mut paths = paths.iter();
    paths.any(|path| place::of(path, directory).is_some_and(|at| places.contains(&at)))
}

fn mode(out: &mut Reporter<'_>, command: usize, call: &Call) {
    // `-x` is a mode, which takes a permission away; `-R` is an option.
    let is_option =
        |text: &&str| text.starts_with('-') && !text[1..].starts_with(['r', 'w', 'x', 'X', 's', 't']);
    let Some(mode) = call.texts().find(|text| !is_option(text)) else {
        return;
    };
    // `+w` does not let everybody write, because the umask is applied.
    let writes = |clause: &str| {
        let sign = clause.find(['+', '=']);
        sign.is_some_and(|at| clause[..at].contains(['a', 'o']) && clause[at..].contains('w'))
    };
    let acts = |clause: &str| clause.contains('s') && clause.contains(['+', '=']);
    let (to_all, as_owner) = match u32::from_str_radix(mode, 8) {
        Ok(bits) if mode.len() >= 3 => (bits & 0o1002 == 0o0002, bits & 0o6000 != 0),
        _ => (mode.split(',').any(writes), mode.split(',').any(acts)),
    };
    // A mode like `-x` is no operand.
    let operands = call.operands();
    let paths = operands
        .get(usize::from(!mode.starts_with('-'))..)
        .unwrap_or_default();
    let wide = call.has("R", &["recursive"]) && reaches(out, command, paths, &[Root, System]);
    let (severity, does) = match (to_all, as_owner) {
        _ if wide => (Error, "changes the rights of the whole system"),
        (true, _) => (Warning, "lets everybody write"),
        (_, true) => (Warning, "lets every user who runs a file act as its owner"),
        _ => return,
    };
    out.report_as(&rules::PERMISSIONS, severity, out.what(call, does));
}
