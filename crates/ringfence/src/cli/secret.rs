//! Reading of a secret's value: from a prompt without echo, from standard input, or from a file. Never from the command
//! line, which every process of the host may read (proc_pid_cmdline(5)).

use super::fault;
use crate::terminal::Terminal;
use ringfence_store::vault::{SECRET_BYTES_MAX, SecretValue};
use ringfence_types::{EnvName, RequestError};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use std::{
    fs::File,
    io::{self, IsTerminal, Read, Stdin},
    path::Path,
};
use zeroize::{Zeroize, Zeroizing};

/// Bytes of a line, without its newline, after which a terminal drops input (termios(3), canonical mode).
const TYPED_BYTES_MAX: usize = 4095;
const INTERRUPT: u8 = 3;
/// Longest value and its newline, and one byte more, so that a longer value is detected.
const READ_BYTES_MAX: usize = SECRET_BYTES_MAX + 2;

pub(super) fn name(text: &str) -> Result<EnvName, RequestError> {
    if let Some((name, _)) = text.split_once('=') {
        let name: String = name.chars().take(64).collect();
        return Err(value_on_command_line(&name));
    }
    EnvName::try_from(text.to_owned())
        .map_err(|reason| RequestError::invalid(format!("{reason}."), "Name the secret as a variable."))
}

/// Error for a value given on the command line. It never contains the value.
pub(super) fn value_on_command_line(name: &str) -> RequestError {
    RequestError::invalid(
        format!(
            "the value of `{name}` is on the command line, where every process of this host can read it."
        ),
        format!(
            "Write `ringfence vault add {name}` and type the value when asked, or pipe it in, or name its file with --file. Change a secret that was given here."
        ),
    )
}

/// Reads the value and removes one newline at its end.
pub(super) fn value(
    terminal: Terminal,
    file: Option<&Path>,
    name: &EnvName,
) -> Result<SecretValue, RequestError> {
    let stdin = io::stdin();
    let bytes = match file {
        Some(path) => File::open(path).and_then(read_to_end).map_err(|error| {
            RequestError::invalid(
                format!("cannot read the value from {}: {error}.", path.display()),
                "Name a file with the value and nothing else.",
            )
        })?,
        None if stdin.is_terminal() => {
            let prompt = format!("value of {}: ", name.as_str());
            read_without_echo(&stdin, || drop(terminal.ask(&prompt)))?
        }
        None => read_to_end(stdin).map_err(|error| fault("read the value", &error))?,
    };
    secret_of(bytes)
}

fn secret_of(mut bytes: Zeroizing<Vec<u8>>) -> Result<SecretValue, RequestError> {
    let invalid = |reason: &str| {
        RequestError::invalid(
            format!("the value cannot be a secret: {reason}."),
            "Give 1 to 65536 bytes of text.",
        )
    };
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    let text = String::from_utf8(std::mem::take(&mut *bytes)).map_err(|error| {
        error.into_bytes().zeroize();
        invalid("it is not UTF-8")
    })?;
    SecretValue::new(text).map_err(|error| invalid(&error.to_string()))
}

/// Reads at most `READ_BYTES_MAX` bytes into a buffer that is allocated once: a growing one would leave copies behind.
fn read_to_end(mut from: impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(vec![0; READ_BYTES_MAX]);
    let mut length = 0;
    while length < bytes.len() {
        match from.read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// Reads one line without echo. Ctrl-C ends the line instead of this process, so that the echo is restored.
fn read_without_echo(stdin: &Stdin, prompt: impl FnOnce()) -> Result<Zeroizing<Vec<u8>>, RequestError> {
    let no_echo = NoEcho::begin(stdin).map_err(|error| fault("turn off the terminal's echo", &error))?;
    // Not before: input typed at once would be shown.
    prompt();
    let mut line = Zeroizing::new(vec![0; TYPED_BYTES_MAX + 1]);
    // Not through `Stdin`, whose buffer would keep a copy.
    let length = rustix::io::retry_on_intr(|| rustix::io::read(stdin, &mut line[..]))
        .map_err(|error| fault("read the value", &error.into()))?;
    drop(no_echo);
    line.truncate(length);
    match line.last() {
        Some(&INTERRUPT) => Err(RequestError::invalid(
            "no value was given.",
            "Nothing has changed.",
        )),
        Some(b'\n') if line.len() > TYPED_BYTES_MAX => Err(RequestError::invalid(
            format!("a terminal takes at most {TYPED_BYTES_MAX} bytes of a line."),
            "Give a long value with --file, or on standard input.",
        )),
        _ => Ok(line),
    }
}

/// A terminal without echo and signals, until this is dropped.
struct NoEcho<'a> {
    stdin: &'a Stdin,
    before: Termios,
}

impl<'a> NoEcho<'a> {
    fn begin(stdin: &'a Stdin) -> io::Result<Self> {
        let before = tcgetattr(stdin)?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
        modes.local_modes.insert(LocalModes::ECHONL | LocalModes::ICANON);
        modes.special_codes[SpecialCodeIndex::VEOL] = INTERRUPT;
        tcsetattr(stdin, OptionalActions::Flush, &modes)?;
        Ok(Self { stdin, before })
    }
}

impl Drop for NoEcho<'_> {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(self.stdin, OptionalActions::Now, &self.before) {
            tracing::error!(%error, "the terminal's echo could not be turned on again; `stty sane` does");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<String, String> {
        let value = secret_of(read_to_end(bytes).unwrap());
        value
            .map(|value| value.expose().to_owned())
            .map_err(|error| error.message)
    }

    #[test]
    fn one_trailing_newline_is_removed_from_a_secret() {
        assert_eq!(read(b"value\n").unwrap(), "value");
        assert_eq!(read(b"value").unwrap(), "value");
        assert_eq!(read(b"two\nlines\n\n").unwrap(), "two\nlines\n");
        assert_eq!(read(b" spaces \r\n").unwrap(), " spaces \r");
        let longest = vec![b'x'; SECRET_BYTES_MAX];
        assert_eq!(
            read(&[&longest[..], b"\n"].concat()).unwrap().len(),
            SECRET_BYTES_MAX
        );
    }

    #[test]
    fn invalid_secret_is_rejected_without_repeating_it() {
        for bytes in [
            &b""[..],
            b"\n",
            b"hunter2\xff",
            b"hunter2\0",
            &vec![b'x'; SECRET_BYTES_MAX + 1],
        ] {
            let error = read(bytes).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn value_on_command_line_is_rejected_without_repeating_it() {
        let error = name("KEY=hunter2").unwrap_err();
        assert!(error.message.contains("`KEY`") && !error.to_string().contains("hunter2"));
        assert!(name("1KEY").is_err() && name("").is_err() && name("RINGFENCE_X").is_err());
        assert_eq!(name("KEY").unwrap().as_str(), "KEY");
    }
}
