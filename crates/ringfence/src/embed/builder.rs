//! Configuration of a [`Sandbox`]: each setter sets an entry of the one table that files, environment and flags set,
//! too.

use super::{Sandbox, callback::Callback};
use crate::{
    executable, process_setup,
    settings::{self, Environment, Flags, Layer, LogLevel, Origin, Setting, refusal},
};
use ringfence_engine::{Answer, ApprovalRequest, Caller, Engine};
use ringfence_types::{Backend, ErrorCode, LimitsRequest, Profile, RequestError, Tier};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{runtime::Handle, task::spawn_blocking};

/// Time limit for making the first sandbox.
const PROOF_PATIENCE: Duration = Duration::from_secs(30);

/// Hint for a sandbox that could not be made. A program without `init` runs its own `main` as helper, undetected.
const NO_SANDBOX: &str = "The helper must be a `ringfence` of this version, or call `ringfence::init()` first in `main`; if it \
    does, run `ringfence doctor`.";

/// Settings of the server and of the command line, which a [`Sandbox`] does not read.
const SERVER_SETTINGS: [&str; 5] = [
    "toolsets",
    "namespaces.caller_chooses",
    "log",
    "metrics.listen",
    "telemetry.otlp_endpoint",
];

/// Builds a [`Sandbox`]. A setter overrides the environment, which overrides the file, which overrides the defaults.
/// [`SandboxBuilder::build`] reports an invalid value.
#[derive(Debug)]
#[must_use = "nothing is made until `build`"]
pub struct SandboxBuilder {
    layer: Layer,
    refused: Option<RequestError>,
    file: Option<PathBuf>,
    reads_environment: bool,
    helper: Option<PathBuf>,
    caller: Caller,
    callback: Option<Callback>,
}

impl SandboxBuilder {
    pub(crate) fn new() -> Self {
        Self {
            layer: Layer::default(),
            refused: None,
            file: None,
            reads_environment: false,
            helper: None,
            caller: Caller::new("library"),
            callback: None,
        }
    }

    /// Reads the variables `RINGFENCE_*`, their aliases, and the usual configuration file, as `ringfence serve` does.
    pub fn environment(mut self) -> Self {
        self.reads_environment = true;
        self
    }

    /// Reads this configuration file (YAML); a missing file is an error.
    pub fn yaml(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// Sets any setting of `docs/reference.md`, with a value as in its environment variable: `set("warm.memory_mb",
    /// "2048")`. Settings of `ringfence serve` alone are refused.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        let set = match SERVER_SETTINGS.contains(&name) {
            true => Err("it is a setting of `ringfence serve`, and does nothing here".to_owned()),
            false => self.layer.set(name, value, Origin::Builder),
        };
        set.unwrap_or_else(|reason| self.refuse(name, &reason));
        self
    }

    fn set_path(mut self, name: &str, path: &Path) -> Self {
        match path.to_str() {
            Some(text) => self.set(name, text),
            None => {
                self.refuse(name, &format!("{} is not UTF-8", path.display()));
                self
            }
        }
    }

    /// Keeps the first refusal, which `build` reports.
    fn refuse(&mut self, name: &str, reason: &str) {
        self.refused.get_or_insert_with(|| {
            refusal(
                format!("builder, `{name}`: {reason}."),
                "docs/reference.md has every setting and what it may be.",
            )
        });
    }

    /// The directory of the audit record, the vault and artifacts: an absolute path, or one from `~/`. Sandboxes may
    /// share it. Default: `ringfence` below `$XDG_STATE_HOME`, else below `~/.local/state`; for root below `/var/lib`.
    pub fn state_dir(self, path: impl AsRef<Path>) -> Self {
        self.set_path("state_dir", path.as_ref())
    }

    /// The isolation that every run must have. Default: [`Tier::Full`]; a host that cannot provide it is refused.
    pub fn floor(self, tier: Tier) -> Self {
        self.set("floor", tier.as_str())
    }

    /// The backend of a run that names none. Default: [`Backend::Native`].
    pub fn backend(self, backend: Backend) -> Self {
        self.set("backend", backend.as_str())
    }

    /// The container engine's socket. Default: `/var/run/docker.sock`.
    pub fn container_socket(self, path: impl AsRef<Path>) -> Self {
        self.set_path("containers.socket", path.as_ref())
    }

    /// Limits of a run that requests none. Absent ones keep their defaults.
    pub fn limits(self, limits: &LimitsRequest) -> Self {
        self.each_limit("limits", limits)
    }

    /// Maximum limits of a run; one that requests more is refused.
    pub fn caps(self, caps: &LimitsRequest) -> Self {
        self.each_limit("caps", caps)
    }

    fn each_limit(mut self, section: &str, limits: &LimitsRequest) -> Self {
        // Exact for any number of milliseconds.
        let seconds = |ms: u64| format!("{}.{:03}", ms / 1000, ms % 1000);
        let cores = limits.max_cpu_cores.map(|cores| cores.to_string());
        for (name, value) in [
            ("ram_mb", limits.max_ram_mb.as_ref().map(u64::to_string)),
            ("cpu_cores", cores),
            ("timeout_seconds", limits.timeout_ms.map(seconds)),
            ("processes", limits.max_processes.as_ref().map(u32::to_string)),
            (
                "output_bytes",
                limits.max_output_bytes.as_ref().map(u64::to_string),
            ),
            ("disk_mb", limits.max_disk_mb.as_ref().map(u64::to_string)),
        ] {
            if let Some(value) = value {
                self = self.set(&format!("{section}.{name}"), &value);
            }
        }
        self
    }

    /// Maximum number of programs that run at once. Default: two for each processor.
    pub fn concurrency(self, programs: usize) -> Self {
        self.set("queue.concurrency", &programs.to_string())
    }

    /// Maximum number of queued requests; more are refused as [`ErrorCode::Busy`]. Default: 256.
    pub fn waiting(self, requests: usize) -> Self {
        self.set("queue.waiting", &requests.to_string())
    }

    /// Sandboxes that [`Sandbox::warm_up`] keeps ready for each language, and the maximum under load. Default: 2 and 8.
    pub fn warm(self, ready: usize, ready_max: usize) -> Self {
        self.set("warm.ready", &ready.to_string())
            .set("warm.ready_max", &ready_max.to_string())
    }

    /// The import profile of Python programs that name none. Default: [`Profile::Unrestricted`]; the kernel is the
    /// wall.
    pub fn profile(self, profile: Profile) -> Self {
        self.set("check.profile", profile.as_str())
    }

    /// Profiles that a request may name. Default: all; if [`profile`](Self::profile) restricts imports, that one and
    /// [`Profile::Strict`].
    pub fn profiles(self, profiles: &[Profile]) -> Self {
        let words: Vec<&str> = profiles.iter().map(|profile| profile.as_str()).collect();
        self.set("check.profiles", &words.join(","))
    }

    /// Modules, each with its submodules, that every restricting profile allows besides its own.
    pub fn allowed_imports(self, modules: &[&str]) -> Self {
        self.set("check.allowed_imports", &modules.join(","))
    }

    /// A name whose missing import may be added: `known_import("sleep", "from time import sleep")`.
    pub fn known_import(mut self, name: &str, statement: &str) -> Self {
        let known = self.layer.check_known_imports.take().map(|setting| setting.value);
        match known.unwrap_or_default().with(name, statement) {
            Ok(value) => self.layer.check_known_imports = Some(from_builder(value)),
            Err(reason) => self.refuse("check.known_imports", &reason),
        }
        self
    }

    /// A JSON Schema that [`Sandbox::validate_json`] knows by name.
    pub fn schema(mut self, name: &str, schema: serde_json::Value) -> Self {
        let known = self.layer.check_schemas.take().map(|setting| setting.value);
        match known.unwrap_or_default().with(name, schema) {
            Ok(value) => self.layer.check_schemas = Some(from_builder(value)),
            Err(reason) => self.refuse("check.schemas", &reason),
        }
        self
    }

    /// Keeps the audit record in memory; it is lost with the sandbox.
    pub fn audit_in_memory(self) -> Self {
        self.set("audit.store", "memory")
    }

    /// Keeps the audit record in this file. Default: `record/audit.db` in the state directory.
    pub fn audit_in_file(self, path: impl AsRef<Path>) -> Self {
        self.set("audit.store", "sqlite")
            .set_path("audit.path", path.as_ref())
    }

    /// Keeps secrets in memory; they are lost with the sandbox. This is the default.
    pub fn vault_in_memory(self) -> Self {
        self.set("vault.store", "memory")
    }

    /// Keeps secrets in this file, encrypted with the key in `key_file`, which is created with it (mode 0600).
    pub fn vault_in_file(self, path: impl AsRef<Path>, key_file: impl AsRef<Path>) -> Self {
        self.set("vault.store", "file")
            .set_path("vault.path", path.as_ref())
            .set("vault.key", "file")
            .set_path("vault.key_file", key_file.as_ref())
    }

    /// Reads secrets from the variables `RINGFENCE_SECRET_{NAMESPACE}_{KEY}` of this process.
    pub fn vault_in_environment(self) -> Self {
        self.set("vault.store", "env")
    }

    /// The Python interpreter, or a virtual environment. Default: the first `python3` on `PATH`.
    pub fn python(self, path: impl AsRef<Path>) -> Self {
        self.set_path("runtimes.python", path.as_ref())
    }

    /// Node.js. Default: the first `node` on `PATH`.
    pub fn node(self, path: impl AsRef<Path>) -> Self {
        self.set_path("runtimes.node", path.as_ref())
    }

    /// bash. Default: the first on `PATH`.
    pub fn shell(self, path: impl AsRef<Path>) -> Self {
        self.set_path("runtimes.shell", path.as_ref())
    }

    /// The binary that is started as the helper: a `ringfence` of this version, or a program that calls
    /// [`init`](crate::init). Default: this program if it has called `init`, else the `ringfence` on `PATH`.
    pub fn helper(mut self, binary: impl Into<PathBuf>) -> Self {
        self.helper = Some(binary.into());
        self
    }

    /// The caller's name in the audit record: at most 128 printable characters. Default: `library`.
    pub fn caller(mut self, name: &str) -> Self {
        self.caller = Caller::new(name);
        self
    }

    /// The callback for requests for approval, such as those of [`Sandbox::request_egress`]. It must show a person all
    /// of [`lines`](crate::approval::Request::lines) and return their answer; a panic is a denial. The first answer
    /// counts: the callback's, that of [`Approvals::decide`](crate::Approvals::decide), or expiry, which is a denial.
    ///
    /// ```
    /// use ringfence::{Sandbox, approval::{Answer, ScopeChoice}};
    /// let builder = Sandbox::builder().on_approval(|request| async move {
    ///     match request.what.as_str() {
    ///         "pypi.org" => Answer::Approve(ScopeChoice::Once),
    ///         _ => Answer::Deny,
    ///     }
    /// });
    /// ```
    pub fn on_approval<F, A>(mut self, answer: F) -> Self
    where
        F: Fn(ApprovalRequest) -> A + Send + Sync + 'static,
        A: Future<Output = Answer> + Send + 'static,
    {
        self.callback = Some(Callback::new(answer));
        self
    }

    /// Opens the audit record and the vault, starts the helper, and makes one sandbox with every wall of the floor, to
    /// prove that this host can. Await it in a Tokio runtime with I/O and time enabled, which the sandbox then uses.
    ///
    /// Raises this process's limit of open files to its hard limit. In a cgroup (version 2) that is delegated to this
    /// process, moves it to a leaf. From the first secret on, this process makes no core dumps. It must ignore or catch
    /// SIGPIPE, as Rust programs do, or a program in a sandbox could end it.
    pub async fn build(self) -> Result<Sandbox, RequestError> {
        let runtime = Handle::try_current().map_err(|_| {
            RequestError::fault(
                "no Tokio runtime runs here.",
                "Call this in one: `tokio::runtime::Runtime::new()?.block_on(...)`.",
            )
        })?;
        process_setup::prepare()?;
        let (helper, caller, callback) = (self.helper.clone(), self.caller.clone(), self.callback.clone());
        let mut engine_settings = self.settings()?;
        engine_settings.helper = match helper {
            Some(helper) => helper,
            None => executable::find(&engine_settings.runtimes.search_path).await?,
        };
        let opened = spawn_blocking(move || Engine::open(engine_settings)).await;
        let engine =
            opened.map_err(|_| RequestError::fault("opening the engine failed.", "Report this."))??;
        if let Some(callback) = callback {
            runtime.spawn(callback.answer_requests(engine.watch_approvals(), engine.clone()));
        }
        let sandbox = Sandbox::new(engine, caller, runtime);
        let proved = tokio::time::timeout(PROOF_PATIENCE, sandbox.engine().prove()).await;
        match proved.unwrap_or_else(|_| Err(RequestError::fault("the helper does not answer.", ""))) {
            Ok(()) => Ok(sandbox),
            Err(error) if error.code == ErrorCode::SandboxFault => {
                Err(RequestError::fault(&error.message, NO_SANDBOX))
            }
            Err(error) => Err(error),
        }
    }

    fn settings(self) -> Result<ringfence_engine::EngineSettings, RequestError> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let mut environment = Environment::capture();
        if !self.reads_environment {
            environment = environment.paths_only();
        }
        let flags = Flags {
            config: self.file,
            layer: self.layer,
            log: LogLevel::Off, // the log is the program's own
        };
        let config = settings::load(&environment, flags)?;
        if let Some(warning) = config.warning {
            tracing::warn!("{warning}");
        }
        Ok(config.engine)
    }
}

fn from_builder<T>(value: T) -> Setting<T> {
    Setting {
        value,
        origin: Origin::Builder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::keys::KEYS;

    fn refusal(builder: SandboxBuilder) -> String {
        let error = builder.settings().unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidConfiguration);
        error.message
    }

    #[test]
    fn numbers_have_the_same_units_as_in_a_file() {
        let limits = LimitsRequest {
            max_ram_mb: Some(100),
            max_cpu_cores: Some(0.5),
            timeout_ms: Some(1_250),
            max_processes: Some(7),
            max_output_bytes: Some(9),
            max_disk_mb: Some(11),
        };
        let settings = SandboxBuilder::new()
            .limits(&limits)
            .caps(&limits)
            .concurrency(3)
            .waiting(5)
            .warm(1, 4)
            .settings()
            .unwrap();
        for limits in [&settings.policy.defaults, &settings.policy.caps] {
            assert_eq!((limits.memory_bytes, limits.disk_bytes), (100 << 20, 11 << 20));
            assert_eq!((limits.cpu_millicores, limits.timeout_ms), (500, 1_250));
            assert_eq!((limits.processes, limits.output_bytes), (7, 9));
        }
        assert_eq!((settings.queue.concurrency, settings.queue.waiting), (3, 5));
        assert_eq!((settings.warm.ready, settings.warm.ready_max), (1, 4));
    }

    #[test]
    fn first_invalid_value_is_refused_by_name() {
        let builder = SandboxBuilder::new().concurrency(0).set("floor", "none");
        assert!(refusal(builder).contains("`queue.concurrency`"));
        assert!(refusal(SandboxBuilder::new().state_dir("here")).contains("relative"));
        assert!(refusal(SandboxBuilder::new().set("limits.ramm_mb", "5")).contains("not a setting"));
        let above = LimitsRequest {
            max_ram_mb: Some(10_000),
            ..LimitsRequest::default()
        };
        assert!(refusal(SandboxBuilder::new().limits(&above)).contains("(builder)"));
    }

    #[test]
    fn setters_configure_checks() {
        let settings = SandboxBuilder::new()
            .profile(Profile::Basic)
            .profiles(&[Profile::Basic, Profile::DataScience])
            .allowed_imports(&["yaml", "os.path"])
            .known_import("sleep", "from time import sleep")
            .known_import("np", "import numpy as np")
            .schema("order", serde_json::json!({"type": "object"}))
            .settings()
            .unwrap();
        let check = settings.policy.check;
        assert_eq!((check.profile, check.profiles.len()), (Profile::Basic, 2));
        assert_eq!((check.allowed_imports.len(), check.known_imports.len()), (2, 2));
        assert_eq!(check.schemas["order"], serde_json::json!({"type": "object"}));
        assert!(
            refusal(SandboxBuilder::new().schema("../x", serde_json::json!({}))).contains("check.schemas")
        );
        assert!(refusal(SandboxBuilder::new().allowed_imports(&["a-b"])).contains("check.allowed_imports"));
    }

    #[test]
    fn server_settings_are_refused() {
        for name in SERVER_SETTINGS {
            assert!(KEYS.iter().any(|key| key.path == name), "{name}");
            assert!(refusal(SandboxBuilder::new().set(name, "x")).contains("ringfence serve"));
        }
    }
}
