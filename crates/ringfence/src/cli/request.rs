//! From what was typed after `run` to a request: the script's text and language, and what it may use.

use super::run::RunArguments;
use ringfence_types::{
    AllowedDomains, Argument, CODE_BYTES_MAX, EnvName, EnvValue, ErrorCode, ExecuteRequest, Language,
    LimitsRequest, RequestError, ScriptName, WorkspaceMode, WorkspaceSource, parse_size,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Standard input, on a command line.
pub(super) const STDIN: &str = "-";
const MEBIBYTE: u64 = 1 << 20;

/// The request, checked part by part.
pub(super) fn from_arguments(arguments: &RunArguments) -> Result<ExecuteRequest, RequestError> {
    let code = read_script(&arguments.script)?;
    let language = language(arguments, &code)?;
    let mut request = ExecuteRequest::new(language, code);
    request.name = script_name(&arguments.script);
    request.args = words(&arguments.args)?;
    request.env = variables(&arguments.env)?;
    request.secrets = secrets(&arguments.secret)?;
    request.packages = ringfence_types::requirements(language, &arguments.package)?;
    request.limits = limits(arguments)?;
    request.validate = arguments.validate;
    request.profile = arguments.profile;
    request.allowed_imports = super::validate::modules(&arguments.allow_import);
    if !arguments.allow.is_empty() {
        request.allowed_domains = AllowedDomains::Operator(arguments.allow.iter().cloned().collect());
    }
    if let Some(workspace) = &arguments.workspace {
        request.workspace = workspace_of(workspace)?;
    }
    Ok(request)
}

/// At most one byte more than is allowed is read, whatever the script is.
pub(super) fn read_script(script: &Path) -> Result<String, RequestError> {
    let mut bytes = Vec::new();
    let limit = CODE_BYTES_MAX as u64 + 1;
    let read = if script == Path::new(STDIN) {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        File::open(script).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    read.map_err(|error| {
        RequestError::invalid(
            format!("cannot read the script {}: {error}.", script.display()),
            "Name a file that exists, or `-` for standard input.",
        )
    })?;
    String::from_utf8(bytes).map_err(|_| {
        RequestError::invalid(
            format!("the script {} is not UTF-8.", script.display()),
            "Give the program's text.",
        )
    })
}

/// A file of the host, or standard input for `-`: all of it, and at most so many bytes.
pub(super) fn read_input(file: &Path, bytes_max: usize, what: &str) -> Result<Vec<u8>, RequestError> {
    let mut bytes = Vec::new();
    let limit = bytes_max as u64 + 1;
    let read = if file == Path::new(STDIN) {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        File::open(file).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    read.map_err(|error| {
        RequestError::invalid(
            format!("cannot read {}: {error}.", file.display()),
            "Name a file that exists, or `-` for standard input.",
        )
    })?;
    if bytes.len() > bytes_max {
        return Err(RequestError::invalid(
            format!("{what} has more than {} MiB.", bytes_max >> 20),
            "Give it in parts.",
        ));
    }
    Ok(bytes)
}

/// What a script's name or first line says that it is written in.
pub(super) fn language_of(script: &Path, code: &str) -> Option<Language> {
    let extension = script.extension().and_then(|extension| extension.to_str());
    extension
        .and_then(Language::from_extension)
        .or_else(|| Language::from_shebang(code))
}

/// Named, else by the ending of the file's name, else by the first line.
fn language(arguments: &RunArguments, code: &str) -> Result<Language, RequestError> {
    if let Some(name) = &arguments.language {
        return name.parse().map_err(|reason: String| {
            RequestError::invalid(format!("{reason}."), "Give one of these names to --language.")
        });
    }
    language_of(&arguments.script, code).ok_or_else(|| unclear(&arguments.script))
}

pub(super) fn unclear(script: &Path) -> RequestError {
    RequestError::invalid(
        format!(
            "the language of {} is not clear from its name or its first line.",
            script.display()
        ),
        "Name it: `--language python`, `node`, `typescript` or `shell`. Known endings: py, js, mjs, cjs, ts, mts, cts, sh, bash.",
    )
}

/// A name that would not do inside is simply not used; it is for tracebacks only.
pub(super) fn script_name(script: &Path) -> Option<ScriptName> {
    if script == Path::new(STDIN) {
        return None;
    }
    let name = script.file_name()?.to_str()?.to_owned();
    ScriptName::try_from(name).ok()
}

fn words(args: &[String]) -> Result<Vec<Argument>, RequestError> {
    let word = |text: &String| Argument::try_from(text.clone());
    args.iter().map(word).collect::<Result<_, _>>().map_err(|reason| {
        RequestError::invalid(
            format!("{reason}."),
            "Give long values as a file in the workspace, or as stdin.",
        )
    })
}

pub(super) fn variables(env: &[String]) -> Result<BTreeMap<EnvName, EnvValue>, RequestError> {
    let invalid = |reason: String, pair: &str| {
        // never the value: it may be a secret
        let name = pair.split('=').next().unwrap_or_default();
        RequestError::invalid(format!("--env {name}: {reason}."), "Write --env NAME=VALUE.")
    };
    let mut variables = BTreeMap::new();
    for pair in env {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| invalid("there is no `=`".to_owned(), pair))?;
        let name = EnvName::try_from(name.to_owned()).map_err(|reason| invalid(reason, pair))?;
        let value = EnvValue::try_from(value.to_owned()).map_err(|reason| invalid(reason, pair))?;
        if variables.insert(name, value).is_some() {
            return Err(invalid("given twice".to_owned(), pair));
        }
    }
    Ok(variables)
}

/// Names only: a value would stand in the process list.
fn secrets(names: &[String]) -> Result<BTreeSet<EnvName>, RequestError> {
    let name = |name: &String| EnvName::try_from(name.clone());
    names
        .iter()
        .map(name)
        .collect::<Result<_, _>>()
        .map_err(|reason| {
            RequestError::invalid(
                format!("--secret: {reason}."),
                "Name a secret of the vault; the value is never given here.",
            )
        })
}

fn limits(arguments: &RunArguments) -> Result<LimitsRequest, RequestError> {
    Ok(LimitsRequest {
        max_ram_mb: arguments
            .memory
            .as_deref()
            .map(|text| mebibytes("--memory", text))
            .transpose()?,
        max_cpu_cores: arguments.cpus,
        timeout_ms: arguments.timeout.map(milliseconds).transpose()?,
        max_processes: arguments.processes,
        max_output_bytes: None,
        max_disk_mb: arguments
            .disk
            .as_deref()
            .map(|text| mebibytes("--disk", text))
            .transpose()?,
    })
}

pub(super) fn mebibytes(flag: &str, text: &str) -> Result<u64, RequestError> {
    let bytes = parse_size(text).map_err(|reason| {
        RequestError::invalid(format!("{flag}: {reason}."), "Write a size as 256m or 1g.")
    })?;
    Ok(bytes.div_ceil(MEBIBYTE))
}

/// Seconds, as the user wrote them, in milliseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be within 0..1e12"
)]
pub(super) fn milliseconds(seconds: f64) -> Result<u64, RequestError> {
    if !(seconds > 0.0 && seconds < 1e9) {
        return Err(RequestError::invalid(
            format!("--timeout: {seconds} is not a length of time."),
            "Give seconds, as in --timeout 30.",
        ));
    }
    Ok((seconds * 1000.0).round() as u64)
}

/// One that is not listed is perhaps a directory, of which it was not said how it is to be seen.
pub(super) fn explain_unlisted(mut error: RequestError, workspace: Option<&str>) -> RequestError {
    if let Some(text) = workspace
        && error.code == ErrorCode::NotFound
        && Path::new(text).is_dir()
        && error.message.contains(&format!("`{text}`"))
    {
        error.hint = how_to_name(text);
    }
    error
}

fn how_to_name(text: &str) -> String {
    if Path::new(text).is_dir() {
        format!("For the directory, write --workspace {text}:overlay, or {text}:ro or {text}:rw.")
    } else {
        "Write --workspace DIR:ro, DIR:rw or DIR:overlay, or namespace, or a name of `workspaces` in the configuration.".to_owned()
    }
}

pub(super) fn workspace_of(text: &str) -> Result<WorkspaceSource, RequestError> {
    let invalid = |what: String| {
        RequestError::invalid(
            what,
            "Write --workspace DIR:ro, DIR:rw or DIR:overlay, or namespace, or a name of `workspaces` in the configuration.",
        )
    };
    let Some((directory, mode)) = text.rsplit_once(':') else {
        let named = text.parse();
        return named.map_err(|reason| {
            RequestError::invalid(format!("--workspace {text}: {reason}."), how_to_name(text))
        });
    };
    let mode = match mode {
        "ro" => WorkspaceMode::Ro,
        "rw" => WorkspaceMode::Rw,
        "overlay" => WorkspaceMode::Overlay,
        _ => {
            return Err(invalid(format!(
                "--workspace {text}: it does not end with :ro, :rw or :overlay."
            )));
        }
    };
    let canonical = Path::new(directory).canonicalize();
    let canonical = canonical.map_err(|error| invalid(format!("--workspace {directory}: {error}.")))?;
    if !canonical.is_dir() {
        return Err(invalid(format!("--workspace {directory}: not a directory.")));
    }
    Ok(WorkspaceSource::Host {
        directory: canonical,
        mode,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::{fs, path::PathBuf};

    struct Script(PathBuf);

    impl Script {
        fn new(name: &str, code: &[u8]) -> Self {
            let directory =
                std::env::temp_dir().join(format!("ringfence-request-{name}-{}", std::process::id()));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(name), code).unwrap();
            Self(directory.join(name))
        }

        fn request(&self, flags: &[&str]) -> Result<ExecuteRequest, RequestError> {
            let words = ["ringfence", "run"]
                .into_iter()
                .chain([self.0.to_str().unwrap()])
                .chain(flags.iter().copied());
            match crate::cli::Cli::try_parse_from(words).unwrap().command {
                crate::cli::Command::Run(arguments) => from_arguments(&arguments),
                _ => unreachable!("the words say run"),
            }
        }
    }

    impl Drop for Script {
        fn drop(&mut self) {
            fs::remove_dir_all(self.0.parent().unwrap()).unwrap();
        }
    }

    #[test]
    fn the_language_is_named_or_in_the_ending_or_in_the_first_line() {
        let check = |name: &str, code: &str, flags: &[&str], expect: Option<Language>| {
            assert_eq!(
                Script::new(name, code.as_bytes())
                    .request(flags)
                    .ok()
                    .map(|r| r.language),
                expect,
                "{name}"
            );
        };
        check("a.py", "1", &[], Some(Language::Python));
        check("a.ts", "1", &[], Some(Language::Typescript));
        check("a.py", "1", &["-l", "bash"], Some(Language::Shell));
        check("plain", "#!/usr/bin/env node\n1", &[], Some(Language::Node));
        check("plain2", "1", &[], None);
        check("b.py", "1", &["-l", "perl"], None);
    }

    #[test]
    fn hosts_at_the_command_line_are_the_operators_word() {
        let script = Script::new("c.py", b"1");
        let asked = |flags: &[&str]| script.request(flags).unwrap().allowed_domains;
        assert_eq!(asked(&[]), AllowedDomains::Granted);
        let hosts = ["GET b.test/x".to_owned(), "a.test".to_owned()];
        let named = asked(&["--allow", "a.test", "--allow", "GET b.test/x"]);
        assert_eq!(named, AllowedDomains::Operator(hosts.into()));
    }

    #[test]
    fn limits_and_words_are_read() {
        let flags = [
            "--memory",
            "1g",
            "--cpus",
            "0.5",
            "--timeout",
            "1.5",
            "--disk",
            "5m",
            "--processes",
            "9",
        ];
        let rest = ["--env", "A=b=c", "--", "-x", "--memory"];
        let request = Script::new("d.py", b"1")
            .request(&[flags.as_slice(), &rest].concat())
            .unwrap();
        let limits = &request.limits;
        assert_eq!(
            (limits.max_ram_mb, limits.max_cpu_cores, limits.timeout_ms),
            (Some(1024), Some(0.5), Some(1500))
        );
        assert_eq!((limits.max_disk_mb, limits.max_processes), (Some(5), Some(9)));
        assert_eq!(
            request.args.iter().map(Argument::as_str).collect::<Vec<_>>(),
            ["-x", "--memory"]
        );
        assert_eq!(request.env.values().next().unwrap().as_str(), "b=c");
        assert_eq!(request.name.unwrap().as_str(), "d.py");
    }

    #[test]
    fn absurd_values_are_refused() {
        let script = Script::new("e.py", b"1");
        let check = |flags: &[&str]| {
            let error = script.request(flags).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidArgument, "{flags:?}");
            assert!(!error.message.contains("hunter2"), "{error}");
        };
        check(&["--timeout", "nan"]);
        check(&["--timeout", "0"]);
        check(&["--timeout=-1"]);
        check(&["--memory", "lots"]);
        check(&["--env", "NOEQUALS"]);
        check(&["--env", "1X=hunter2"]);
        check(&["--env", "A=1", "--env", "A=2"]);
        check(&["--workspace", "/tmp"]);
        check(&["--workspace", "/nonexistent:ro"]);
        check(&["--workspace", "/etc/passwd:ro"]);
    }

    #[test]
    fn a_script_that_is_no_text_or_absent_is_refused() {
        assert!(
            Script::new("f.py", b"\xff")
                .request(&[])
                .unwrap_err()
                .message
                .contains("UTF-8")
        );
        let directory = Script::new("g.py", b"1").0.parent().unwrap().to_owned();
        assert!(Script(directory.join("absent.py")).missing());
    }

    impl Script {
        fn missing(&self) -> bool {
            fs::create_dir_all(self.0.parent().unwrap()).unwrap();
            self.request(&[])
                .is_err_and(|error| error.message.contains("cannot read"))
        }
    }
}
