//! The binary. `init` runs first, before any thread exists: a process that is started as the jail's helper becomes it.

use std::process::ExitCode;

fn main() -> ExitCode {
    ringfence::init();
    ringfence::main()
}
