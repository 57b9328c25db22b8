//! What a program may say about its sandboxes before there are any. Every setter fills in a setting of the one table
//! that files, environment and flags fill in too, and is read by the same code.

use super::{Sandbox, callback::Callback};
use crate::{
    executable, process_setup,
    settings::{self, Environment, Flags, Layer, LogLevel, Origin, Setting},
};
use ringfence_engine::{Answer, ApprovalRequest, Caller, Engine};
use ringfence_types::{Backend, ErrorCode, LimitsRequest, Profile, RequestError, Tier};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{runtime::Handle, task::spawn_blocking};

/// How long the first sandbox may take.
const PROOF_PATIENCE: Duration = Duration::from_secs(30);

/// A program that does not call `init` runs as itself in the helper's place, which cannot be detected.
const NO_SANDBOX: &str = "The helper is a `ringfence` of this version, or calls `ringfence::init()` first in `main`; if it is \
    so, run `ringfence doctor`.";

/// Settings of the server and of the command line; nothing in a [`Sandbox`] reads them.
const NOT_OURS: [&str; 5] = [
    "toolsets",
    "namespaces.caller_chooses",
    "log",
    "metrics.listen",
    "telemetry.otlp_endpoint",
];

/// Makes a [`Sandbox`]. What a setter says wins over the environment, which wins over the file, which wins over the
/// defaults. A value that cannot be is told by [`SandboxBuilder::build`].
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

    /// Reads what `ringfence serve` reads: variables `RINGFENCE_*` and their aliases, and the usual configuration file.
    pub fn environment(mut self) -> Self {
        self.reads_environment = true;
        self
    }

    /// Reads this configuration file (YAML); one that is not there is an error.
    pub fn yaml(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// Any setting of `docs/reference.md`, written as its environment variable would be: `set("warm.memory_mb",
    /// "2048")`. Settings of `ringfence serve` alone are refused.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        let set = match NOT_OURS.contains(&name) {
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

    /// The first refusal is the one that is told.
    fn refuse(&mut self, name: &str, reason: &str) {
        self.refused.get_or_insert_with(|| {
            RequestError::new(
                ErrorCode::InvalidConfiguration,
                format!("builder, `{name}`: {reason}."),
                "docs/reference.md has every setting and what it may be.",
            )
        });
    }

    /// Where the record, the vault and artifacts are: an absolute path, or one that begins with `~/`. Two sandboxes may
    /// share it. Default: `ringfence` below `$XDG_STATE_HOME`, else below `~/.local/state`; for root below `/var/lib`.
    pub fn state_dir(self, path: impl AsRef<Path>) -> Self {
        self.set_path("state_dir", path.as_ref())
    }

    /// The isolation of every run. Default: [`Tier::Full`], and a host that cannot give it is refused.
    pub fn floor(self, tier: Tier) -> Self {
        self.set("floor", tier.as_str())
    }

    /// What makes the sandbox of a run that names no backend. Default: [`Backend::Native`].
    pub fn backend(self, backend: Backend) -> Self {
        self.set("backend", backend.as_str())
    }

    /// The container engine's socket. Default: `/var/run/docker.sock`.
    pub fn container_socket(self, path: impl AsRef<Path>) -> Self {
        self.set_path("containers.socket", path.as_ref())
    }

    /// What a run gets that asks for nothing. What is absent keeps its default.
    pub fn limits(self, limits: &LimitsRequest) -> Self {
        self.each_limit("limits", limits)
    }

    /// The most that a run gets; one that asks for more is refused.
    pub fn caps(self, caps: &LimitsRequest) -> Self {
        self.each_limit("caps", caps)
    }

    fn each_limit(mut self, section: &str, limits: &LimitsRequest) -> Self {
        // Exact, whatever the number of milliseconds.
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

    /// Programs that run at once. Default: two for each processor.
    pub fn concurrency(self, programs: usize) -> Self {
        self.set("queue.concurrency", &programs.to_string())
    }

    /// Requests that wait at once; one more is refused as [`ErrorCode::Busy`]. Default: 256.
    pub fn waiting(self, requests: usize) -> Self {
        self.set("queue.waiting", &requests.to_string())
    }

    /// Sandboxes that [`Sandbox::warm_up`] keeps ready for each language, and the most under load. Default: 2 and 8.
    pub fn warm(self, ready: usize, ready_max: usize) -> Self {
        self.set("warm.ready", &ready.to_string())
            .set("warm.ready_max", &ready_max.to_string())
    }

    /// What Python programs may import that name no profile. Default: [`Profile::Unrestricted`], the kernel is the
    /// wall.
    pub fn profile(self, profile: Profile) -> Self {
        self.set("check.profile", profile.as_str())
    }

    /// Profiles that a request may name. Default: all; where [`profile`](Self::profile) restricts, that one and
    /// [`Profile::Strict`].
    pub fn profiles(self, profiles: &[Profile]) -> Self {
        let words: Vec<&str> = profiles.iter().map(|profile| profile.as_str()).collect();
        self.set("check.profiles", &words.join(","))
    }

    /// Modules that every profile which restricts allows besides its own, each with what lies below it.
    pub fn allowed_imports(self, modules: &[&str]) -> Self {
        self.set("check.allowed_imports", &modules.join(","))
    }

    /// A name whose import may be added where it is missing: `known_import("sleep", "from time import sleep")`.
    pub fn known_import(mut self, name: &str, statement: &str) -> Self {
        let known = self.layer.check_known_imports.take().map(|setting| setting.value);
        match known.unwrap_or_default().with(name, statement) {
            Ok(value) => self.layer.check_known_imports = Some(said(value)),
            Err(reason) => self.refuse("check.known_imports", &reason),
        }
        self
    }

    /// A JSON Schema that [`Sandbox::validate_json`] knows by name.
    pub fn schema(mut self, name: &str, schema: serde_json::Value) -> Self {
        let known = self.layer.check_schemas.take().map(|setting| setting.value);
        match known.unwrap_or_default().with(name, schema) {
            Ok(value) => self.layer.check_schemas = Some(said(value)),
            Err(reason) => self.refuse("check.schemas", &reason),
        }
        self
    }

    /// The audit record is in memory, and gone with the sandbox.
    pub fn audit_in_memory(self) -> Self {
        self.set("audit.store", "memory")
    }

    /// The audit record is in this file. Default: `record/audit.db` in the state directory.
    pub fn audit_in_file(self, path: impl AsRef<Path>) -> Self {
        self.set("audit.store", "sqlite")
            .set_path("audit.path", path.as_ref())
    }

    /// Secrets are in memory, and gone with the sandbox. This is the default.
    pub fn vault_in_memory(self) -> Self {
        self.set("vault.store", "memory")
    }

    /// Secrets are in this file, encrypted with the key in another, which is made with it (mode 0600).
    pub fn vault_in_file(self, path: impl AsRef<Path>, key_file: impl AsRef<Path>) -> Self {
        self.set("vault.store", "file")
            .set_path("vault.path", path.as_ref())
            .set("vault.key", "file")
            .set_path("vault.key_file", key_file.as_ref())
    }

    /// Secrets are the variables `RINGFENCE_SECRET_{NAMESPACE}_{KEY}` of this process.
    pub fn vault_in_environment(self) -> Self {
        self.set("vault.store", "env")
    }

    /// Python interpreter, or a virtual environment. Default: the first `python3` on `PATH`.
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
    /// [`init`](crate::init). Default: this program when it has called `init`, else the `ringfence` on `PATH`.
    pub fn helper(mut self, binary: impl Into<PathBuf>) -> Self {
        self.helper = Some(binary.into());
        self
    }

    /// Who asks, as it stands in the audit record: at most 128 printable characters. Default: `library`.
    pub fn caller(mut self, name: &str) -> Self {
        self.caller = Caller::new(name);
        self
    }

    /// Who is asked when something needs approval, as [`Sandbox::request_egress`] does. It shows a person all of
    /// [`lines`](crate::approval::Request::lines), and gives back what they said; one that panics has said no. The
    /// first answer counts: this, [`Approvals::decide`](crate::Approvals::decide), or the time, which
    /// is a no.
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

    /// Opens the record and the vault, starts the helper, and makes one sandbox with every wall of the floor, to prove
    /// that this host can. To be awaited in a Tokio runtime whose I/O and time are enabled; the sandbox lives in that
    /// one.
    ///
    /// This process may then open as many files as its hard limit says. In a cgroup (version 2) that is delegated to
    /// it, it moves to a leaf. From the first secret on it has no core dumps. It has to ignore or catch SIGPIPE, as
    /// Rust programs do, or a program in a sandbox could end it.
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
            runtime.spawn(callback.attend(engine.watch_approvals(), engine.clone()));
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
            environment = environment.places_only();
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

fn said<T>(value: T) -> Setting<T> {
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
    fn every_number_means_the_same_as_in_a_file() {
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
    fn a_value_that_cannot_be_is_refused_by_name_and_the_first_one_is_told() {
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
    fn checks_are_told_by_setters() {
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
    fn every_setting_is_taken_here_or_refused() {
        for name in NOT_OURS {
            assert!(KEYS.iter().any(|key| key.path == name), "{name}");
            assert!(refusal(SandboxBuilder::new().set(name, "x")).contains("ringfence serve"));
        }
    }
}
