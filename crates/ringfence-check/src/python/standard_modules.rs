//! Modules by which a program gets at more than its own data, under the names they have in the standard library.

/// In alphabetical order. Only those whose names are not those of parts of ordinary packages (`numpy.array`,
/// `scipy.signal`, `HTTPError.code` and `pandas.io` are no modules of the standard library).
#[rustfmt::skip]
const GRAVE: &[&str] = &[
    "asyncio", "builtins", "cffi", "codecs", "codeop", "ctypes", "fcntl", "gc", "importlib", "inspect", "linecache",
    "marshal", "mmap", "multiprocessing", "os", "pathlib", "pdb", "pickle", "pkgutil", "posix", "pty", "runpy",
    "shutil", "socket", "subprocess", "sys", "sysconfig", "tempfile", "threading", "tracemalloc", "zipimport",
];

/// The name, if it is such a module.
pub(crate) fn is_grave(name: &str) -> Option<&'static str> {
    let at = GRAVE.binary_search(&name).ok()?;
    GRAVE.get(at).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_so_that_it_can_be_searched() {
        assert!(GRAVE.is_sorted());
        assert_eq!(is_grave("os"), Some("os"));
        assert_eq!(is_grave("math"), None);
    }
}
