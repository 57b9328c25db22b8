//! The binary. Its first act, before any thread exists, is to become the jail's helper when it is started as one.

use std::process::ExitCode;

fn main() -> ExitCode {
    ringfence::init();
    ringfence::main()
}
