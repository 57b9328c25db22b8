//! Configuration: a file, the environment and flags become typed settings. A flag overrides the environment, which
//! overrides the file, which overrides the default; each value keeps its origin.

pub(crate) mod aliases;
mod check_words;
mod checks;
mod egress_words;
mod environment;
mod file;
mod http;
mod http_words;
pub(crate) mod keys;
mod meaning;
mod named;
mod record_words;
pub(crate) mod reload;
mod render;
mod shares;
mod state;
mod trust;
mod words;

pub use environment::Environment;
pub use file::parse_config;
pub(crate) use http::{HttpSettings, OAuthSettings, TlsFiles};
pub(crate) use http_words::{CLAIM_PLACEHOLDER, ClaimRule, HttpAuthentication, HttpListen, HttpUrl};
pub(crate) use keys::{Layer, Origin, Setting};
pub(crate) use meaning::{Calls, duration_or_never};
pub(crate) use render::{example, schema, table};
pub(crate) use trust::token_line;
pub(crate) use words::{LogLevel, OnHangUp, SettingValue, Toolset};

use environment::CONFIG_VARIABLE;
use file::FileLayer;
use hyper::Uri;
use keys::{Concurrency, Effective, Memory};
use ringfence_engine::EngineSettings;
use ringfence_types::{
    ErrorCode, Namespace, RequestError, Tier,
    yaml::{BYTES_MAX, Fault},
};
use std::{
    cell::RefCell,
    fs::{File, Metadata},
    io::{self, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};
use words::{Cores, HostPath, Location};

#[derive(Debug)]
pub(crate) struct Flags {
    pub(crate) config: Option<PathBuf>,
    pub(crate) layer: Layer,
    pub(crate) log: LogLevel,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Namespaces {
    CallerChooses,
    Fixed,
    /// Only these exist for the principal; never empty.
    Of(Arc<[Namespace]>),
}

impl Namespaces {
    pub(crate) fn default_namespace(&self) -> Namespace {
        let default = Namespace::default_name();
        match self {
            Self::Of(names) if !names.contains(&default) => names.first().cloned().unwrap_or(default),
            _ => default,
        }
    }

    pub(crate) fn chosen(&self, name: Namespace) -> Result<Namespace, RequestError> {
        let refused = |message: &str, hint: &str| Err(RequestError::denied(message, hint));
        match self {
            Self::CallerChooses => Ok(name),
            Self::Of(names) if names.contains(&name) => Ok(name),
            Self::Of(_) => refused(
                "this principal has no such namespace.",
                "Leave it out, or name one of its own.",
            ),
            Self::Fixed => refused(
                "this server does not let callers choose a `namespace`.",
                "Leave it out.",
            ),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        match self {
            Self::CallerChooses => true,
            Self::Fixed => name == Namespace::default_name().as_str(),
            Self::Of(names) => names.iter().any(|own| own.as_str() == name),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) engine: EngineSettings,
    pub(crate) floor: Tier,
    pub(crate) toolsets: Vec<Toolset>,
    pub(crate) namespaces: Namespaces,
    pub(crate) text_max: usize,
    pub(crate) calls: Calls,
    pub(crate) log: LogLevel,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) otlp: Option<Uri>,
    pub(crate) http: HttpSettings,
    pub(crate) file: Option<PathBuf>,
    pub(crate) warning: Option<String>,
    effective: Effective,
}

const MEBIBYTE: u64 = 1 << 20;

/// Returns the configuration without a file, variables or flags.
pub(crate) fn default_config() -> Result<Config, RequestError> {
    let flags = Flags {
        config: None,
        layer: Layer::default(),
        log: LogLevel::Warn,
    };
    load(&Environment::default(), flags)
}

/// Faults of the configuration. Reading continues after a fault to find the others; its result is not used then.
#[derive(Default)]
struct Faults {
    found: RefCell<Vec<RequestError>>,
    /// Settings and sections with a fault of their own.
    settings: RefCell<Vec<String>>,
}

impl Faults {
    fn add_own(&self, fault: RequestError, path: impl Into<String>) {
        self.found.borrow_mut().push(fault);
        self.settings.borrow_mut().push(path.into());
    }

    fn has(&self, path: &str) -> bool {
        let is_in = |section: &str| path.split_once('.').is_some_and(|(own, _)| own == section);
        let settings = self.settings.borrow();
        settings.iter().any(|own| own == path || is_in(own))
    }

    /// Adds a fault, unless it names a setting with a fault of its own: it may be about the default in its place only.
    fn add(&self, fault: RequestError) {
        let names =
            |path: &str| path.contains('.') && (fault.message.contains(path) || fault.hint.contains(path));
        if !keys::KEYS.iter().any(|key| names(key.path) && self.has(key.path)) {
            self.found.borrow_mut().push(fault);
        }
    }

    fn keep<T>(&self, read: Result<T, RequestError>) -> Option<T> {
        read.map_err(|fault| self.add(fault)).ok()
    }
}

pub(crate) fn load(environment: &Environment, flags: Flags) -> Result<Config, RequestError> {
    check(environment, flags).map_err(first)
}

pub(crate) fn first(faults: Vec<RequestError>) -> RequestError {
    let unknown = || refusal("the configuration cannot be read.".to_owned(), "Report this.");
    faults.into_iter().next().unwrap_or_else(unknown)
}

/// Loads the configuration, or returns all faults: those of single settings, and contradictions between settings.
pub(crate) fn check(environment: &Environment, flags: Flags) -> Result<Config, Vec<RequestError>> {
    let faults = Faults::default();
    let config = read(environment, flags, &faults);
    result_or_faults(config, faults.found.into_inner())
}

fn result_or_faults<T>(read: Option<T>, faults: Vec<RequestError>) -> Result<T, Vec<RequestError>> {
    match read {
        Some(read) if faults.is_empty() => Ok(read),
        None if faults.is_empty() => Err(vec![first(faults)]),
        _ => Err(faults),
    }
}

fn read(environment: &Environment, flags: Flags, faults: &Faults) -> Option<Config> {
    let from_file = read_file(environment, flags.config, faults);
    let from_environment = environment.layer(faults);
    let (file, from_file) = from_file?;
    let defaults = Effective::defaults(machine(environment, flags.log))
        .map_err(|reason| refusal(format!("{reason}."), "Report this."));
    let mut effective = faults
        .keep(defaults)?
        .overlaid(from_file)
        .overlaid(from_environment)
        .overlaid(flags.layer);
    checks::apply_aliases(&mut effective, environment.profile_aliases(), faults);
    within_caps(&mut effective, faults);
    let engine = meaning::engine(environment, &effective, file.as_deref(), faults);
    let calls = faults.keep(Calls::of(&effective));
    let toolsets = faults.keep(meaning::toolsets(&effective));
    let http = faults.keep(http::meaning(environment, &effective));
    let (engine, warning) = engine?;
    let collector = effective.telemetry_otlp_endpoint.0.as_ref();
    Some(Config {
        engine,
        calls: calls?,
        floor: effective.floor.value,
        toolsets: toolsets?,
        namespaces: match effective.namespaces_caller_chooses.value {
            true => Namespaces::CallerChooses,
            false => Namespaces::Fixed,
        },
        text_max: effective.text_max.size(),
        log: effective.log.value,
        metrics: effective.metrics_listen.0,
        otlp: collector.and_then(|url| url.0.parse().ok()),
        http: http?,
        file,
        warning,
        effective,
    })
}

fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}

/// Memory of the host, or the limit of the container that this server is in.
fn machine_memory_mb() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let total = read("/proc/meminfo");
    let total = total.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let total_kb = total.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    let of_container = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let limits = of_container.map(|path| read(path).trim().parse().ok().map(|bytes: u64| bytes / MEBIBYTE));
    let all = limits.into_iter().chain([total_kb.map(|kb: u64| kb / 1024)]);
    all.flatten().min().unwrap_or(1024)
}

#[expect(clippy::cast_precision_loss, reason = "no machine has 2^52 cores")]
fn machine(environment: &Environment, log: LogLevel) -> Layer {
    let state_dir = environment.default_state_dir();
    Layer {
        caps_cpu_cores: Some(Setting::default_of(Cores::clamped(cores() as f64))),
        queue_concurrency: Some(Setting::default_of(Concurrency::clamped(16 * cores()))),
        queue_memory_mb: Some(Setting::default_of(Memory::clamped(2 * machine_memory_mb()))),
        state_dir: Some(Setting::default_of(HostPath::ours(&state_dir))),
        log: Some(Setting::default_of(log)),
        ..Layer::default()
    }
}

/// Lowers each default limit to its cap; a limit that was set above its cap is refused.
fn within_caps(settings: &mut Effective, faults: &Faults) {
    macro_rules! bound {
        ($name:literal, $limit:ident, $cap:ident) => {
            let (limit, cap) = (&mut settings.$limit, &settings.$cap);
            if limit.get() > cap.get() {
                if limit.origin != Origin::Default {
                    let (value, origin) = (limit.json(), &limit.origin);
                    let most = format!("caps.{} = {} ({})", $name, cap.json(), cap.origin);
                    let what = format!("limits.{} = {value} ({origin}) is more than {most}.", $name);
                    faults.add(refusal(what, "Raise the cap or lower the limit."));
                }
                limit.value = cap.value;
            }
        };
    }
    bound!("ram_mb", limits_ram_mb, caps_ram_mb);
    bound!("cpu_cores", limits_cpu_cores, caps_cpu_cores);
    bound!("timeout_seconds", limits_timeout_seconds, caps_timeout_seconds);
    bound!("processes", limits_processes, caps_processes);
    bound!("output_bytes", limits_output_bytes, caps_output_bytes);
    bound!("disk_mb", limits_disk_mb, caps_disk_mb);
}

/// Expands a path that the operator has named; none: the default applies (`auto`).
fn location(environment: &Environment, setting: &Setting<Location>) -> Result<Option<PathBuf>, RequestError> {
    let path = setting.0.as_ref();
    path.map(|path| expand(environment, path, &setting.origin))
        .transpose()
}

fn expand(environment: &Environment, path: &HostPath, origin: &Origin) -> Result<PathBuf, RequestError> {
    let path = path.as_str();
    match (path.strip_prefix("~/"), environment.home()) {
        (None, _) => Ok(PathBuf::from(path)),
        (Some(rest), Some(home)) => Ok(home.join(rest)),
        (Some(_), None) => Err(refusal(
            format!("`{path}` ({origin}) needs a home directory, and HOME is not set."),
            "Write the path from `/`.",
        )),
    }
}

/// Reads the named file, or the default one if it exists. None: nothing of it could be read.
fn read_file(
    environment: &Environment,
    flag: Option<PathBuf>,
    faults: &Faults,
) -> Option<(Option<PathBuf>, Layer)> {
    let by_flag = match environment.configures() {
        true => "--config",
        false => "set by the program",
    };
    let named = flag.map(|path| (path, Some(by_flag)));
    let named = named.or(environment
        .named_config()
        .map(|path| (path, Some(CONFIG_VARIABLE))));
    let Some((path, by)) = named.or(environment.default_config_file().map(|path| (path, None))) else {
        return Some((None, Layer::default()));
    };
    let absences = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    let absent = |error: &io::Error| absences.contains(&error.kind());
    let refused = match (read_text(&path), by) {
        (Ok((text, found)), _) => {
            faults.keep(trust::check(&path, &found))?;
            let read = FileLayer::read(&Arc::from(path.as_path()), &text);
            let file = faults.keep(read.map_err(|fault| of_file(&path, &fault)))?;
            for (setting, fault) in file.faults {
                faults.add_own(of_file(&path, &fault), setting);
            }
            return Some((Some(path), file.layer));
        }
        (Err(error), None) if absent(&error) => return Some((None, Layer::default())),
        (Err(error), Some(by)) => {
            let what = format!(
                "cannot read the configuration {} ({by}): {error}.",
                path.display()
            );
            let hint = "Name a file that exists, or start from `ringfence config example`.";
            match by {
                "--config" => RequestError::invalid(what, hint),
                _ => refusal(what, hint),
            }
        }
        // The file may hold limits; continuing without them would degrade silently.
        (Err(error), None) => refusal(
            format!("cannot read the configuration {}: {error}.", path.display()),
            "Make it readable, set HOME to your own, or name another file with --config.",
        ),
    };
    faults.add(refused);
    None
}

/// Reads a text of at most 1 MiB; of any file, device or pipe, at most one byte more is read.
fn read_text(path: &Path) -> io::Result<(String, Metadata)> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    let found = file.metadata()?;
    file.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > BYTES_MAX {
        return Err(invalid("it is longer than 1 MiB"));
    }
    let text = String::from_utf8(bytes).map_err(|_| invalid("it is not UTF-8"))?;
    Ok((text, found))
}

fn of_file(path: &Path, fault: &Fault) -> RequestError {
    let place = fault.line.map_or_else(String::new, |line| format!(":{line}"));
    refusal(
        crate::sentence::sentence(&format!("{}{place}: {fault}", path.display())),
        "`ringfence config schema` prints what a file may contain.",
    )
}

pub(crate) fn refusal(message: String, hint: &str) -> RequestError {
    RequestError::new(ErrorCode::InvalidConfiguration, message, hint)
}

#[cfg(test)]
mod tests;
