//! Starting programs: with their output shown, kept, or both.

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

/// A step that says nothing for so long hangs. An optimised build of the parsers is within it.
const SILENCE: Duration = Duration::from_mins(25);

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
pub fn count_tests(command: Command) -> (Tally, Result<(), String>) {
    let mut tally = Tally::default();
    let result = tests_of(command, SILENCE, |line| tally.read_line(line));
    (tally, result)
}

/// Runs it, and hands out and shows each line that it writes to standard output. If it writes none for too long, it is
/// killed with the programs that it waits for.
pub fn tests_of(mut command: Command, silence: Duration, mut each: impl FnMut(&str)) -> Result<(), String> {
    let said = describe(&command);
    let wrong = |error: &dyn fmt::Display| format!("{said}: {error}");
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
            // It has ended, and something that it started keeps the pipe.
            Err(RecvTimeoutError::Timeout) if matches!(child.try_wait(), Ok(Some(_))) => break,
            Err(RecvTimeoutError::Timeout) => {
                kill(&mut child);
                drop(child.wait());
                let seconds = silence.as_secs();
                return Err(wrong(&format!("killed, because it said nothing for {seconds} s")));
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

/// Ends a program and those that it waits for.
fn kill(child: &mut Child) {
    let id = child.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    let words = ["-KILL"].into_iter().chain(children.split_whitespace());
    drop(capture(command("kill", words)));
    drop(child.kill());
}

/// What is read from a pipe, in a thread of its own.
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

/// Whether there is such a program on the path.
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
