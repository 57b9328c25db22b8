//! What is removed from the disk, and secrets that are read from it.

use super::{
    known::Known,
    look::{Look, Worse},
    rules,
    syntax::Id,
};
use crate::{
    credentials,
    unknown::{UNKNOWN, shown},
};

/// Functions of `fs` that take a path first.
const READS: &[&str] = &[
    "readFile",
    "readFileSync",
    "createReadStream",
    "open",
    "openSync",
    "copyFile",
    "copyFileSync",
    "cp",
    "cpSync",
];

/// A call of `fs`; false: it is something else.
pub(super) fn removal(look: &mut Look<'_, '_>, id: Id, path: &str, arguments: Option<&[Id]>) -> bool {
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
    let first = arguments
        .and_then(|all| all.first())
        .map(|first| look.knowledge.know(*first));
    let first = first.as_ref().and_then(Known::text).unwrap_or("\u{FFFD}");
    if READS.contains(&name) {
        if credentials::kept_at(first).is_some() {
            look.tell(id, &rules::CREDENTIAL_PATH, format!("`{}` is read", shown(first)));
        }
        return true;
    }
    let of_module =
        path.starts_with("npm:rimraf") && matches!(name, "" | ".sync" | ".rimraf" | ".rimrafSync");
    let removes = of_module
        || matches!(
            name,
            "rm" | "rmSync"
                | "unlink"
                | "unlinkSync"
                | "rmdir"
                | "rmdirSync"
                | "remove"
                | "removeSync"
                | "emptyDir"
                | "emptyDirSync"
        );
    if !removes {
        return true;
    }
    let options = arguments.and_then(|all| all.get(1).copied());
    let recursive = of_module
        || matches!(name, "remove" | "removeSync" | "emptyDir" | "emptyDirSync")
        || options.is_some_and(|options| {
            look.knowledge
                .option(options, "recursive")
                .is_some_and(|value| look.program.text(value) != "false")
        });
    let worse = match (recursive, reach(first)) {
        (false, _) | (true, Reach::Below) => Worse::No,
        (true, Reach::Somewhere) => Worse::Warning,
        (true, Reach::Everything) => Worse::Error,
    };
    let with = if recursive { " with everything in it" } else { "" };
    look.warn_at(
        id,
        &rules::FILE_DELETION,
        worse,
        format!("`{}` is removed{with}", shown(first)),
    );
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
