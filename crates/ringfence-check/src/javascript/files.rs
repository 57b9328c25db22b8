//! What is removed from the disk, and secrets that are read from it.

use super::{
    look::{Arguments, Look, argument},
    resolve::Known,
    rules,
};
use crate::{
    credentials,
    unknown::{UNKNOWN, shown},
};
use oxc_span::{GetSpan, Span};
use ringfence_types::Severity::{Error, Warning};

/// Functions of `fs` that take a path first.
#[rustfmt::skip]
const READS: &[&str] = &[
    "readFile", "readFileSync", "createReadStream", "open", "openSync", "copyFile", "copyFileSync", "cp", "cpSync",
];

/// Functions of `fs` that remove, and those that remove with everything in it.
const REMOVES: &[&str] = &["rm", "rmSync", "unlink", "unlinkSync", "rmdir", "rmdirSync"];
const EMPTIES: &[&str] = &["remove", "removeSync", "emptyDir", "emptyDirSync"];

/// A call of `fs`; false: it is something else.
pub(super) fn removal<'a>(look: &mut Look<'_, 'a>, span: Span, path: &str, arguments: Arguments<'a>) -> bool {
    let module = [
        "node:fs/promises.",
        "node:fs.",
        "npm:fs-extra.",
        "npm:graceful-fs.",
        "npm:rimraf",
    ];
    let name = module.iter().find_map(|module| path.strip_prefix(module));
    let Some(name) = name else {
        return false;
    };
    let first = argument(arguments, 0).map_or(Known::Unknown, |first| look.resolver.know(first));
    let is_computed = matches!(first, Known::Computed);
    let first = first.text().unwrap_or("\u{FFFD}");
    if READS.contains(&name) {
        if credentials::kept_at(first).is_some() {
            look.tell(
                span,
                &rules::CREDENTIAL_PATH,
                format!("`{}` is read", shown(first)),
            );
        }
        return true;
    }
    let of_module =
        path.starts_with("npm:rimraf") && matches!(name, "" | ".sync" | ".rimraf" | ".rimrafSync");
    let removes = of_module || REMOVES.contains(&name) || EMPTIES.contains(&name);
    if !removes {
        return true;
    }
    let recursive = of_module
        || EMPTIES.contains(&name)
        || argument(arguments, 1).is_some_and(|options| {
            let value = look.resolver.option(options, "recursive");
            value.is_some_and(|value| look.written(value.span()) != "false")
        });
    let severity = match (recursive, reach(first)) {
        (false, _) | (true, Reach::Below) => rules::FILE_DELETION.severity,
        (true, Reach::Somewhere) if is_computed => Error,
        (true, Reach::Somewhere) => Warning,
        (true, Reach::Everything) => Error,
    };
    let with = if recursive { " with everything in it" } else { "" };
    let what = format!("`{}` is removed{with}", shown(first));
    look.tell_as(span, &rules::FILE_DELETION, severity, what);
    true
}

enum Reach {
    /// Below the working directory, or among temporary files.
    Below,
    Somewhere,
    /// A root, a home, or what is above.
    Everything,
}

fn reach(path: &str) -> Reach {
    let plain = path.trim_end_matches(['/', '*', '.']);
    let top = plain.trim_start_matches('/');
    let systems = [
        "etc", "usr", "bin", "lib", "var", "home", "root", "boot", "opt", "sbin", "usr/lib", "usr/bin", "C:",
    ];
    let above = path
        .split('/')
        .filter(|name| !name.is_empty())
        .all(|name| matches!(name, ".." | "*" | "."));
    if path.starts_with('/') && (top.is_empty() || systems.contains(&top))
        || plain == "~"
        || (above && path.contains(".."))
    {
        return Reach::Everything;
    }
    let climbs = path.split('/').any(|name| name == "..");
    let below = !path.starts_with(['/', '~', UNKNOWN]) || path.starts_with("/tmp/");
    match below && !climbs && !path.is_empty() {
        true => Reach::Below,
        false => Reach::Somewhere,
    }
}
