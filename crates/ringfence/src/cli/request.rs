//! Parsing of the parts of a request: a script's text and language, sizes, variables, workspaces.

use crate::time;
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use ringfence_types::{
    Argument, CODE_BYTES_MAX, EnvName, EnvValue, ErrorCode, Language, LimitsRequest, ModuleName,
    RequestError, ScriptName, UnknownWord, WorkspaceMode, WorkspaceSource, parse_size,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read},
    num::{IntErrorKind, ParseIntError},
    path::Path,
    str::FromStr,
};

pub(super) const STDIN: &str = "-";
pub(super) const NAME_A_FILE: &str = "Name a file that exists, or `-` for standard input.";
const MEBIBYTE: u64 = 1 << 20;

pub(super) fn read_script(script: &Path) -> Result<String, RequestError> {
    text(script, read(script, CODE_BYTES_MAX, "the script ")?)
}

pub(super) fn text(file: &Path, bytes: Vec<u8>) -> Result<String, RequestError> {
    String::from_utf8(bytes).map_err(|error| {
        let (file, from) = (file.display(), error.utf8_error().valid_up_to());
        let what = format!("{file} is not UTF-8, from byte {from} on.");
        RequestError::invalid(what, "Save it as UTF-8.")
    })
}

/// Reads a whole file of the host, or standard input for `-`. More than `bytes_max` bytes are an error.
pub(super) fn read_input(file: &Path, bytes_max: usize, what: &str) -> Result<Vec<u8>, RequestError> {
    let bytes = read(file, bytes_max, &format!("{what} "))?;
    if bytes.len() > bytes_max {
        return Err(RequestError::invalid(
            format!("{what} has more than {} MiB.", bytes_max >> 20),
            "Give it in parts.",
        ));
    }
    Ok(bytes)
}

/// Reads at most `bytes_max + 1` bytes, also of a file without an end.
fn read(file: &Path, bytes_max: usize, what: &str) -> Result<Vec<u8>, RequestError> {
    let mut bytes = Vec::new();
    let limit = bytes_max as u64 + 1;
    let read = if file == Path::new(STDIN) {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        File::open(file).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    read.map(|_| bytes).map_err(|error| {
        RequestError::invalid(
            format!("cannot read {what}{}: {error}.", file.display()),
            NAME_A_FILE,
        )
    })
}

pub(super) fn language_of(script: &Path, code: &str) -> Option<Language> {
    let extension = script.extension().and_then(|extension| extension.to_str());
    extension
        .and_then(Language::from_extension)
        .or_else(|| Language::from_shebang(code))
}

/// Returns the named language, else the one of the file's extension, else the one of its first line.
pub(super) fn language(named: Option<Language>, script: &Path, code: &str) -> Result<Language, RequestError> {
    named.or_else(|| language_of(script, code)).ok_or_else(|| {
        RequestError::invalid(
            format!(
                "the language of {} is not clear from its name or its first line.",
                script.display()
            ),
            "Name it: `--language python`, `node`, `typescript` or `shell`. Known endings: py, js, mjs, cjs, ts, mts, cts, sh, bash.",
        )
    })
}

/// Returns the file's name, which tracebacks show; none if it is not valid as a script's name.
pub(super) fn script_name(script: &Path) -> Option<ScriptName> {
    if script == Path::new(STDIN) {
        return None;
    }
    let name = script.file_name()?.to_str()?.to_owned();
    ScriptName::try_from(name).ok()
}

pub(super) fn arguments(args: &[String]) -> Result<Vec<Argument>, RequestError> {
    let word = |text: &String| Argument::try_from(text.clone());
    args.iter().map(word).collect::<Result<_, _>>().map_err(|reason| {
        RequestError::invalid(
            format!("{reason}."),
            "Give long values as a file in the workspace, or as stdin.",
        )
    })
}

/// Flags for the limits, hosts, packages and variables of a run or a session.
#[derive(Debug, Args)]
pub(super) struct SandboxFlags {
    /// Wall-clock limit of a run or a call, in seconds [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) timeout: Option<u64>,
    /// Memory limit, such as 256m or 1g [default: 512m]
    #[arg(long, value_name = "SIZE", value_parser = mebibytes)]
    memory: Option<u64>,
    /// Processor cores; fractions are allowed [default: 1]
    #[arg(long, value_name = "CORES", value_parser = positive)]
    cpus: Option<f64>,
    /// Processes and threads [default: 64]
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32>)]
    processes: Option<u32>,
    /// Private disk, such as 256m or 1g [default: 512m, and at most half of the memory]
    #[arg(long, value_name = "SIZE", value_parser = mebibytes)]
    disk: Option<u64>,
    /// Host that the program may reach, such as example.com, *.example.com, example.com:8443 or "GET example.com/path";
    /// if given, only these, and not those of egress.allow
    #[arg(long, value_name = "HOST")]
    pub(super) allow: Vec<String>,
    /// Package that the program imports, such as `numpy` or `lodash@4`; installed once and kept for later use
    #[arg(long, value_name = "NAME")]
    pub(super) package: Vec<String>,
    /// Environment variable for the program; variables of the host are not inherited
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Secret of the vault that the program gets as an environment variable of this name
    #[arg(long, value_name = "NAME")]
    secret: Vec<String>,
}

impl SandboxFlags {
    pub(super) fn limits(&self) -> LimitsRequest {
        LimitsRequest {
            max_ram_mb: self.memory,
            max_cpu_cores: self.cpus,
            timeout_ms: self.timeout,
            max_processes: self.processes,
            max_output_bytes: None,
            max_disk_mb: self.disk,
        }
    }

    /// Parses `--env`. Not clap, whose errors repeat the whole text: the value may be a secret.
    pub(super) fn variables(&self) -> Result<BTreeMap<EnvName, EnvValue>, RequestError> {
        let invalid = |reason: String, pair: &str| {
            let name = pair.split('=').next().unwrap_or_default();
            RequestError::invalid(format!("--env {name}: {reason}."), "Write --env NAME=VALUE.")
        };
        let mut variables = BTreeMap::new();
        for pair in &self.env {
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

    /// Parses `--secret`. Not clap, for the same reason: a value may have been given in place of a name.
    pub(super) fn secrets(&self) -> Result<BTreeSet<EnvName>, RequestError> {
        let names = self.secret.iter().map(|name| EnvName::try_from(name.clone()));
        names.collect::<Result<_, _>>().map_err(|reason| {
            let hint = "Name a secret of the vault; the value is never given here.";
            RequestError::invalid(format!("--secret: {reason}."), hint)
        })
    }
}

/// Parses a size into MiB.
fn mebibytes(text: &str) -> Result<u64, String> {
    Ok(parse_size(text)?.div_ceil(MEBIBYTE))
}

pub(super) fn modules(named: &[ModuleName]) -> Option<BTreeSet<ModuleName>> {
    (!named.is_empty()).then(|| named.iter().cloned().collect())
}

/// Parses a number above 0. `nan` and `inf` parse as numbers too, but are not limits.
pub(super) fn positive(text: &str) -> Result<f64, String> {
    let is_limit = |number: &f64| number.is_finite() && *number > 0.0;
    let number = text.parse().ok().filter(is_limit);
    number.ok_or_else(|| "it is not a number above 0".to_owned())
}

pub(super) fn whole<T: FromStr<Err = ParseIntError> + Default + PartialEq>(text: &str) -> Result<T, String> {
    match text.parse() {
        Ok(number) if number != T::default() => Ok(number),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Err("it is too large".to_owned()),
        _ => Err("it is not a whole number above 0".to_owned()),
    }
}

pub(super) fn one_of<T: FromStr<Err = UnknownWord> + Clone + Send + Sync + 'static>(
    words: &'static [&'static str],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words).try_map(|word| word.parse::<T>())
}

pub(super) fn seconds(text: &str) -> Result<u64, String> {
    let milliseconds = time::milliseconds(positive(text)?, 1e9);
    milliseconds.ok_or_else(|| "it is not within 0.001..=1000000000".to_owned())
}

/// Changes the hint of a `not_found` error if the unknown workspace is a directory of the host: its mode is missing.
pub(super) fn explain_unlisted(mut error: RequestError, workspace: Option<&str>) -> RequestError {
    if let Some(text) = workspace
        && error.code == ErrorCode::NotFound
        && Path::new(text).is_dir()
        && error.message.contains(&format!("`{text}`"))
    {
        error.hint = workspace_hint(text);
    }
    error
}

const WORKSPACE_HINT: &str = "Write --workspace DIR:ro, DIR:rw or DIR:overlay, or namespace, or a name of `workspaces` in the configuration.";

fn workspace_hint(text: &str) -> String {
    match Path::new(text).is_dir() {
        true => format!("For the directory, write --workspace {text}:overlay, or {text}:ro or {text}:rw."),
        false => WORKSPACE_HINT.to_owned(),
    }
}

pub(super) fn workspace_of(text: &str) -> Result<WorkspaceSource, RequestError> {
    let invalid = |what: String| RequestError::invalid(what, WORKSPACE_HINT);
    let Some((directory, mode)) = text.rsplit_once(':') else {
        let named = text.parse();
        return named.map_err(|reason| {
            RequestError::invalid(format!("--workspace {text}: {reason}."), workspace_hint(text))
        });
    };
    let ending = |_| format!("--workspace {text}: it does not end with :ro, :rw or :overlay.");
    let mode: WorkspaceMode = mode.parse().map_err(ending).map_err(invalid)?;
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
