//! The binary. Its first act, before any thread exists, is to become the jail's helper when it is started as one.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == ringfence_jail::helper::HELPER_WORD)
    {
        std::process::exit(ringfence_jail::helper::run(ringfence_engine::workers()));
    }
    ringfence::main()
}
