//! The golden tests of all crates: those whose name contains `golden`. Blessing writes the files that they compare.

use crate::{command::count_tests, workspace::Workspace};

/// Variable that makes a golden test write its file.
pub const BLESS: &str = "RINGFENCE_BLESS";

/// Mode of the golden tests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Fails where file and product differ.
    Compare,
    /// Writes the product's output into the files.
    Bless,
}

/// Runs the golden tests. Finding none is an error, too.
pub fn run(workspace: &Workspace, mode: Mode) -> Result<(), String> {
    let words = crate::ci::quiet(workspace);
    let mut cargo = workspace.tests(&words.iter().map(String::as_str).collect::<Vec<_>>());
    cargo.arg("golden");
    match mode {
        Mode::Compare => cargo.env_remove(BLESS),
        Mode::Bless => cargo.env(BLESS, "1"),
    };
    let (tally, result) = count_tests(cargo);
    result?;
    if tally.passed == 0 {
        return Err("no test whose name contains `golden` was found".to_owned());
    }
    println!(
        "{} golden tests {}",
        tally.passed,
        if mode == Mode::Bless {
            "written; check the difference"
        } else {
            "compared"
        }
    );
    Ok(())
}
