//! Runs a command behind the filter and nothing else, to see how a program copes with it:
//! `cargo build -p ringfence-jail --example seccomp_exec && strace -f target/debug/examples/seccomp_exec full python3
//! -c pass`
#![expect(clippy::disallowed_methods, reason = "it exists to start a command")]

use ringfence_jail::seccomp::{Profile, program};
use std::{
    io,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
    time::Instant,
};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let profile = match arguments.first().map(String::as_str) {
        Some("full") => Profile::Full { memory_cgroup: true },
        Some("full-uncounted") => Profile::Full { memory_cgroup: false },
        Some("landlock") => Profile::Landlock {
            memory_cgroup: true,
            servers_user: true,
        },
        Some("landlock-uncounted") => Profile::Landlock {
            memory_cgroup: false,
            servers_user: true,
        },
        _ => {
            eprintln!(
                "usage: seccomp_exec full|full-uncounted|landlock|landlock-uncounted [COMMAND [ARGUMENT]...]"
            );
            return ExitCode::from(2);
        }
    };
    let error = match arguments.get(1) {
        Some(command) => confine(profile)
            .err()
            .unwrap_or_else(|| Command::new(command).args(&arguments[2..]).exec()),
        None => match measure(profile) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => error,
        },
    };
    eprintln!("seccomp_exec: {error}");
    ExitCode::from(126)
}

fn confine(profile: Profile) -> io::Result<()> {
    ringfence_sys::identity::set_no_new_privileges()?;
    ringfence_sys::seccomp::install(program(profile)?)
}

/// Without a command: measures the cost of the filter.
fn measure(profile: Profile) -> io::Result<()> {
    let begun = Instant::now();
    let program = program(profile)?;
    let compiled = begun.elapsed();
    confine(profile)?;
    let instructions = program.instructions().len();
    let installed = begun.elapsed().saturating_sub(compiled);
    eprintln!("{instructions} instructions, compiled in {compiled:?}, installed in {installed:?}");
    Ok(())
}
