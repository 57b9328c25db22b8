//! Golden files: what callers see, as text for review. `RINGFENCE_BLESS=1` rewrites them.

use std::{fs, path::Path};

/// Compares with `tests/golden/NAME`.
pub(crate) fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    #[expect(clippy::disallowed_methods, reason = "a test's own switch")]
    if std::env::var_os("RINGFENCE_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        golden == text,
        "{name} changed; run with RINGFENCE_BLESS=1 and review the difference:\n{text}"
    );
}
