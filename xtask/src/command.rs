//! Starts programs, with their output shown, kept, or both.

use crate::tally::Tally;
use std::{
    ffi::OsStr,
    fmt, fs,
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

/// A step without output for this long counts as hung. An optimised build of the parsers takes less.
const SILENCE: Duration = Duration::from_mins(25);

/// Returns the command of a program with its arguments.
pub fn command<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Runs the program with our own output streams; any exit but success is an error.
pub fn show(mut command: Command) -> Result<(), String> {
    let name = describe(&command);
    let status = command
        .stdin(Stdio::null())
        .status()
        .map_err(|error| format!("{name}: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{name}: {status}"))
    }
}

/// Runs the program and returns its standard output.
pub fn capture(mut command: Command) -> Result<String, String> {
    let name = describe(&command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!(
        "{name}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    ))
}

/// Runs the program, shows its standard output as it comes, and counts the tests that it reports. The tally is valid
/// even if the program failed.
pub fn count_tests(command: Command) -> (Tally, Result<(), String>) {
    let mut tally = Tally::default();
    let result = tests_of(command, SILENCE, |line| tally.read_line(line));
    (tally, result)
}

/// Runs the program, shows each line of its standard output, and passes it to `each`. Without a line for `silence`, the
/// program is killed together with its children.
pub fn tests_of(mut command: Command, silence: Duration, mut each: impl FnMut(&str)) -> Result<(), String> {
    let name = describe(&command);
    let wrong = |error: &dyn fmt::Display| format!("{name}: {error}");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| wrong(&error))?;
    let lines = read_lines(child.stdout.take());
    loop {
        match lines.recv_timeout(silence) {
            Ok(line) => {
                print!("{line}");
                each(&line);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            // The program has ended, and a process that it started keeps the pipe open.
            Err(RecvTimeoutError::Timeout) if matches!(child.try_wait(), Ok(Some(_))) => break,
            Err(RecvTimeoutError::Timeout) => {
                kill(&mut child);
                drop(child.wait());
                let seconds = silence.as_secs();
                return Err(wrong(&format!("killed after {seconds} s without output")));
            }
        }
    }
    let status = child.wait().map_err(|error| wrong(&error))?;
    if status.success() {
        Ok(())
    } else {
        Err(wrong(&status))
    }
}

/// Kills a program and its children.
fn kill(child: &mut Child) {
    let id = child.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    let words = ["-KILL"].into_iter().chain(children.split_whitespace());
    drop(capture(command("kill", words)));
    drop(child.kill());
}

/// Reads lines from a pipe in a separate thread.
fn read_lines(pipe: Option<ChildStdout>) -> Receiver<String> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut lines = BufReader::new(pipe?);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).ok()? > 0 {
            send.send(String::from_utf8_lossy(&line).into_owned()).ok()?;
            line.clear();
        }
        Some(())
    });
    receive
}

/// Returns true if `PATH` has a file of this name.
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
    fn failing_program_is_an_error_with_its_stderr() {
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
