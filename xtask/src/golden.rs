//! The golden tests of all crates: those whose name holds the word. Blessing writes what they would compare.

use crate::{command::count_tests, workspace::Workspace};

/// The variable that makes a golden test write its file.
pub const BLESS: &str = "RINGFENCE_BLESS";

/// Compare, or write anew.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Fail where file and product differ.
    Compare,
    /// Write what the product says.
    Bless,
}

/// Runs them; that none was found is an error too.
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
        return Err("no test whose name holds `golden` was found".to_owned());
    }
    println!(
        "{} golden tests {}",
        tally.passed,
        if mode == Mode::Bless {
            "written; look at the difference"
        } else {
            "compared"
        }
    );
    Ok(())
}
