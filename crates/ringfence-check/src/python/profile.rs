//! The modules that each profile allows.

use crate::lists::LISTS;
use ringfence_types::{ModuleName, Profile};
use std::collections::BTreeSet;

/// Modules of the profile `basic`, which every other profile has too.
#[rustfmt::skip]
pub const BASIC: &[&str] = &[
    "math", "random", "datetime", "json", "re", "time", "calendar", "uuid", "collections", "itertools", "functools",
    "operator", "bisect", "heapq", "copy", "dataclasses", "enum", "typing", "string", "textwrap", "unicodedata",
    "difflib", "decimal", "fractions", "statistics", "cmath", "base64", "binascii", "hashlib", "hmac", "secrets",
    "html", "html.parser", "xml.etree.ElementTree", "csv", "configparser", "urllib.parse", "abc", "contextlib",
    "types",
];
/// Modules that `data_science` adds.
#[rustfmt::skip]
pub const DATA_SCIENCE: &[&str] = &[
    "numpy", "pandas", "scipy", "matplotlib", "seaborn", "sklearn", "statsmodels", "plotly", "sympy",
];
/// Modules that `network` adds.
#[rustfmt::skip]
pub const NETWORK: &[&str] = &[
    "httpx", "requests", "urllib.request", "urllib.error", "aiohttp", "websocket", "ftplib", "smtplib", "email",
];
/// Modules that `filesystem` adds.
pub const FILESYSTEM: &[&str] = &[
    "pathlib", "os.path", "tempfile", "shutil", "glob", "zipfile", "tarfile",
];
/// Compiler directives, which import nothing.
pub const DIRECTIVES: &[&str] = &["__future__"];

/// True if a top-level module is in the standard library. A caller's module does not replace it.
pub fn is_standard(module: &str) -> bool {
    LISTS.standard_library.contains(module)
}

/// Returns the modules that a profile adds to `basic`.
pub fn additions(profile: Profile) -> &'static [&'static str] {
    match profile {
        Profile::DataScience => DATA_SCIENCE,
        Profile::Network => NETWORK,
        Profile::Filesystem => FILESYSTEM,
        Profile::Unrestricted | Profile::Basic | Profile::Strict => &[],
    }
}

/// Returns the modules of a profile, each including its submodules; `None` for all modules.
pub fn modules(profile: Profile) -> Option<BTreeSet<ModuleName>> {
    if profile == Profile::Unrestricted {
        return None;
    }
    let names = BASIC.iter().chain(additions(profile)).chain(DIRECTIVES);
    Some(names.filter_map(|name| name.parse().ok()).collect())
}
