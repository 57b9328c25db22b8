//! Starting programs: with their output shown, kept, or both.

use crate::tally::Tally;
use std::{
    ffi::OsStr,
    io::{self, BufRead, BufReader},
    process::{Command, Stdio},
};

/// A program with its arguments.
pub fn command<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Runs it with its output where ours goes; anything but success is an error.
pub fn show(mut command: Command) -> Result<(), String> {
    let said = describe(&command);
    let status = command
        .stdin(Stdio::null())
        .status()
        .map_err(|error| format!("{said}: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{said}: {status}"))
    }
}

/// Runs it and gives back what it wrote to standard output.
pub fn capture(mut command: Command) -> Result<String, String> {
    let said = describe(&command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{said}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!(
        "{said}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    ))
}

/// Runs it, shows its standard output as it comes, and adds up the tests that it says it ran. The tally counts even
/// when the program failed.
pub fn count_tests(mut command: Command) -> (Tally, Result<(), String>) {
    let said = describe(&command);
    let mut tally = Tally::default();
    let result = follow(&mut command, &mut tally).map_err(|error| format!("{said}: {error}"));
    let result = result.and_then(|status| {
        if status.success() {
            Ok(())
        } else {
            Err(format!("{said}: {status}"))
        }
    });
    (tally, result)
}

fn follow(command: &mut Command, tally: &mut Tally) -> io::Result<std::process::ExitStatus> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? > 0 {
            let text = String::from_utf8_lossy(&line);
            print!("{text}");
            tally.read_line(&text);
            line.clear();
        }
    }
    child.wait()
}

/// Is there such a program on the path.
pub fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn describe(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_an_error_with_its_words() {
        let error = capture(command("sh", ["-c", "echo why >&2; exit 3"])).unwrap_err();
        assert!(error.contains("why") && error.contains('3'), "{error}");
    }

    #[test]
    fn tests_are_counted_even_when_the_program_fails() {
        let (tally, result) = count_tests(command("sh", ["-c", "echo '4 passed, 1 failed'; exit 1"]));
        assert_eq!((tally.passed, tally.failed), (4, 1));
        assert!(result.is_err());
    }
}
