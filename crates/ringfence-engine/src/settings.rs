//! The settings of the engine. The front end reads files, flags and environment and passes these; nothing here has a
//! default, because a forgotten security setting must not compile.

use crate::error::Result;
use ringfence_egress::{Limits as EgressLimits, Rule, SecretPlace};
use ringfence_redact::{Forms, Personal, Redactor};
use ringfence_store::{
    artifacts::Retention,
    audit::{Durability, Keep, Storage},
    layers::LayerRetention,
    snapshots::SnapshotLimits,
    vault::{FileKey, VaultSettings},
};
use ringfence_types::{
    Backend, EnvName, ErrorCode, Language, Limits, ModuleName, Namespace, Priority, Profile, RequestError,
    Requirement, Tier, WorkspaceMode, WorkspaceName, closed_words,
};
use ringfence_web::Provider;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::SocketAddr,
    num::NonZeroU32,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use zeroize::Zeroizing;

#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// The binary that is re-executed as the helper (its `main` calls `ringfence_jail::helper::run`).
    pub helper: PathBuf,
    /// Further files that decide what is run and allowed: of the configuration, of pip and npm, and this binary.
    pub guarded: Vec<PathBuf>,
    /// Further files that hold secrets.
    pub secret_files: Vec<PathBuf>,
    /// The tier to use. Never weaker than `full` unless the operator's configuration says so.
    pub tier: Tier,
    /// The directory of short-lived directories of the `landlock` tier; made when needed, swept at start.
    pub state_dir: PathBuf,
    pub backends: BackendSettings,
    pub policy: PolicySettings,
    pub queue: QueueSettings,
    pub runtimes: RuntimeSettings,
    pub warm: WarmSettings,
    pub sessions: SessionSettings,
    pub results: ResultSettings,
    pub packages: PackageSettings,
    pub egress: EgressSettings,
    pub web: WebSettings,
    pub approvals: ApprovalSettings,
    /// The callers' access to the host; `None`: no access.
    pub host: Option<Arc<ringfence_host::Rules>>,
    pub record: RecordSettings,
}

impl EngineSettings {
    /// Returns files that decide what is run and allowed, by every path: none may be where programs or callers write.
    pub fn deciding_files(&self) -> Vec<PathBuf> {
        let named = [&self.runtimes.python, &self.runtimes.node, &self.runtimes.shell];
        let named = named.into_iter().chain([&self.web.browser, &self.egress.ca_file]);
        by_each_way(self.guarded.iter().chain(named.flatten()))
    }

    /// Returns the paths of keys, secrets and the record, by every way to them: no program or caller may see them.
    pub fn secret_files(&self) -> Vec<PathBuf> {
        let record = &self.record;
        let mut files = vec![&self.state_dir, &record.directory];
        files.extend(&self.secret_files);
        if let Storage::File(path) = &record.audit.place {
            files.push(path);
        }
        if let VaultSettings::File { path, key } = &record.vault {
            files.push(path);
            if let FileKey::KeyFile(path) = key {
                files.push(path);
            }
        }
        by_each_way(files)
    }
}

fn by_each_way<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Vec<PathBuf> {
    files
        .into_iter()
        .flat_map(|path| ringfence_host::resolution_paths(path))
        .collect()
}

/// Settings of the stores that outlive a request.
#[derive(Clone, Debug)]
pub struct RecordSettings {
    /// A directory that only this user may access; made when needed. Signing key and artifacts are in it.
    pub directory: PathBuf,
    pub audit: AuditSettings,
    pub vault: VaultSettings,
    pub retention: Retention,
    pub snapshots: SnapshotLimits,
    /// Redaction of e-mail addresses, telephone, card and social security numbers in output.
    pub personal: Personal,
}

impl RecordSettings {
    pub fn signing_key(&self) -> PathBuf {
        self.directory.join("signing.key")
    }

    pub fn snapshots(&self) -> PathBuf {
        self.directory.join("snapshots")
    }

    pub fn artifacts(&self) -> PathBuf {
        self.directory.join("artifacts")
    }
}

#[derive(Clone, Debug)]
pub struct AuditSettings {
    pub place: Storage,
    pub durability: Durability,
    pub on_failure: OnFailure,
    pub keep: Keep,
}

/// Behaviour when the audit record cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Nothing runs and no result leaves.
    Deny,
    /// Runs and results go on; an execution's result says if it is not on record, and the log says so of everything.
    Warn,
}

closed_words!(OnFailure: Deny = "deny", Warn = "warn");

/// Defaults for requests that name no limit, and the caps that no request exceeds.
#[derive(Clone, Debug)]
pub struct PolicySettings {
    pub defaults: Limits,
    /// Largest limits of any request; a request for more is refused, not clamped.
    pub caps: Limits,
    pub secrets: Vec<SecretRule>,
    /// Directories of the host that callers may name as their workspace.
    pub workspaces: Vec<ListedWorkspace>,
    pub packages: PackagePolicy,
    pub check: CheckSettings,
    pub egress: EgressPolicy,
    pub web: EgressPolicy,
    pub disk: DiskPolicy,
    pub backends: BackendPolicy,
}

impl PolicySettings {
    /// True if requests of the namespace may name this secret.
    pub(crate) fn gives(&self, namespace: &Namespace, key: &EnvName) -> bool {
        self.secrets.iter().any(|rule| rule.allows(namespace, key))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendPolicy {
    /// The backend of requests that name none.
    pub default: Backend,
    pub allowed: BTreeSet<Backend>,
    pub floor: Tier,
    pub native: Tier,
}

impl BackendPolicy {
    /// Refuses a backend that the operator does not allow, or that is weaker than the floor.
    pub(crate) fn allows(&self, backend: Backend) -> Result<()> {
        if !self.allowed.contains(&backend) {
            let hint = match backend {
                Backend::Native => format!("Leave `backend` out: it is {} here.", self.default),
                Backend::Docker | Backend::Gvisor => {
                    "Leave `backend` and `use_container` out, or have the operator set `containers.enabled: true` (SANDBOX_ENABLE_CONTAINER_MODE=true).".to_owned()
                }
            };
            let message = format!("the operator does not allow `backend: {backend}` here.");
            return Err(RequestError::denied(message, hint));
        }
        let (floor, tier) = (self.floor, backend.tier(self.native));
        if tier > floor {
            let other = match backend == self.default {
                true => "`backend: native`",
                false => "leave `backend` out",
            };
            return Err(RequestError::new(
                ErrorCode::BelowFloor,
                format!("the backend `{backend}` gives the tier `{tier}`, and the floor is `{floor}`."),
                format!("Have the operator set `floor: {tier}` (RINGFENCE_FLOOR={tier}), or {other}."),
            ));
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub struct BackendSettings {
    pub policy: BackendPolicy,
    pub socket: PathBuf,
    pub gvisor: String,
    pub images: Images,
    pub pull: bool,
    /// True to refuse images that are not pinned by a digest.
    pub require_digest: bool,
}

/// Images with `python3`, `node` and `bash`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Images {
    pub python: String,
    pub node: String,
    pub shell: String,
}

impl Images {
    pub(crate) fn of(&self, language: Language) -> &str {
        match language {
            Language::Python => &self.python,
            Language::Node | Language::Typescript => &self.node,
            Language::Shell => &self.shell,
        }
    }
}

/// Limits on the disk below the state directory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPolicy {
    pub total: u64,
    /// Workspace and snapshots of one namespace.
    pub of_namespace: u64,
    /// Free space left for other users of the disk.
    pub free: u64,
}

#[derive(Clone, Debug)]
pub struct EgressPolicy {
    /// The tier of native sandboxes; without a network namespace, in `landlock`, there is no egress.
    pub tier: Tier,
    /// All egress rules; a request may narrow them.
    pub allow: Vec<EgressRule>,
    pub on_denied: OnDenied,
    /// Secrets that are not given to programs, but inserted into their requests.
    pub secrets: Vec<SecretBinding>,
}

impl EgressPolicy {
    /// Returns the destinations of a namespace's secret; none: it is given to programs.
    pub(crate) fn places_of(&self, namespace: &Namespace, key: &EnvName) -> Vec<SecretPlace> {
        let bound = self
            .secrets
            .iter()
            .filter(|binding| binding.of.allows(namespace, key));
        bound.map(|binding| binding.place.clone()).collect()
    }
}

/// A destination into whose requests a secret is inserted, instead of being given to programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretBinding {
    pub of: SecretRule,
    pub place: SecretPlace,
}

/// Handling of a connection that no rule allows by name or port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDenied {
    Deny,
    /// A person is asked; the connection is held for at most this time.
    Ask(Duration),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressRule {
    /// A namespace, or a prefix followed by `*`.
    pub namespace: String,
    pub rule: Rule,
}

impl EgressRule {
    pub fn is_for(&self, namespace: &Namespace) -> bool {
        matches(&self.namespace, namespace.as_str())
    }
}

#[derive(Clone, Debug)]
pub struct EgressSettings {
    /// DNS resolvers; empty: the host's own resolution, its hosts file first.
    pub resolvers: Vec<SocketAddr>,
    /// Services whose addresses may be other than public.
    pub private: Vec<Rule>,
    /// A file of certificates (PEM) that are trusted beside those of the host.
    pub ca_file: Option<PathBuf>,
    pub limits: EgressLimits,
}

/// Settings of the web tools. The hosts that they may reach are policy.
#[derive(Clone, Debug)]
pub struct WebSettings {
    pub robots: bool,
    pub timeout: Duration,
    /// Most bytes of one response, before decompression.
    pub bytes_max: usize,
    /// Search providers, in the order in which they are tried.
    pub search: Vec<Provider>,
    /// Chromium; `None`: the first on the path.
    pub browser: Option<PathBuf>,
}

/// Checks of code before it runs, and of data.
#[derive(Clone, Debug)]
pub struct CheckSettings {
    /// The profile of requests that name none.
    pub profile: Profile,
    /// Profiles that callers may choose. Without `unrestricted`, they and the next setting limit `allowed_imports`.
    pub profiles: BTreeSet<Profile>,
    /// Added to every profile that restricts.
    pub allowed_imports: BTreeSet<ModuleName>,
    /// True if `allowed_imports` replaces the modules of `basic` and `strict`.
    pub only_allowed_imports: bool,
    /// Names whose missing import may be added: `np`, `import numpy as np`.
    pub known_imports: BTreeMap<String, String>,
    /// JSON Schemas by name, beside the built-in ones.
    pub schemas: BTreeMap<String, serde_json::Value>,
}

/// A directory of the host that the operator lets programs use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedWorkspace {
    pub name: WorkspaceName,
    /// Canonical path.
    pub directory: PathBuf,
    pub mode: WorkspaceMode,
    /// Namespaces that may use it, or prefixes followed by `*`.
    pub namespaces: Vec<String>,
}

impl ListedWorkspace {
    pub fn is_for(&self, namespace: &Namespace) -> bool {
        self.namespaces
            .iter()
            .any(|pattern| matches(pattern, namespace.as_str()))
    }
}

/// True if a text equals a pattern, or has the prefix of a pattern that ends with `*`.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => text.starts_with(beginning),
        None => text == pattern,
    }
}

/// Allowed packages, and limits on their installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackagePolicy {
    pub enabled: bool,
    /// Names, or prefixes followed by `*`. Dependencies of a package are not checked against them.
    pub allow: Vec<String>,
    pub timeout: Duration,
    /// Maximum size of one installed set.
    pub bytes_max: u64,
    pub hosts: Vec<IndexHost>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexHost {
    /// Hosts of the index in pip's or npm's own configuration.
    Configured,
    Named(Rule),
}

impl PackagePolicy {
    pub(crate) fn check(&self, set: &BTreeSet<Requirement>) -> Result<()> {
        if !self.enabled {
            return Err(RequestError::denied(
                "the operator allows no packages here.",
                "Use what the interpreter has, or have the operator set `packages.enabled: true`.",
            ));
        }
        let allowed = |name: &str| self.allow.iter().any(|pattern| matches(pattern, name));
        match set.iter().find(|requirement| !allowed(requirement.name())) {
            None => Ok(()),
            Some(requirement) => {
                let (name, allow) = (requirement.name(), self.allow.join(", "));
                Err(RequestError::denied(
                    format!("the package `{name}` is not among those that the operator allows."),
                    format!("Allowed: {allow}; the operator's list is `packages.allow`."),
                ))
            }
        }
    }
}

/// A namespace may use those of its own secrets whose names match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRule {
    /// A namespace, or a prefix followed by `*`.
    pub namespace: String,
    /// A secret's name, or a prefix followed by `*`.
    pub key: String,
}

impl SecretRule {
    pub fn allows(&self, namespace: &Namespace, key: &EnvName) -> bool {
        matches(&self.namespace, namespace.as_str()) && matches(&self.key, key.as_str())
    }
}

#[derive(Clone, Debug)]
pub struct QueueSettings {
    pub concurrency: usize,
    /// Memory of all running requests together, by their limits.
    pub memory_bytes: u64,
    /// Most requests waiting at once, of all namespaces together.
    pub waiting: usize,
    pub patience: Duration,
    /// Namespaces that are served more or less often than others.
    pub priorities: BTreeMap<Namespace, Priority>,
    /// Rate limit of one namespace; `None`: unlimited.
    pub rate: Option<Rate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Average rate.
    pub per_minute: NonZeroU32,
    /// Most requests at once.
    pub burst: NonZeroU32,
}

/// Interpreters. `None`: the first on `search_path`.
#[derive(Clone, Debug)]
pub struct RuntimeSettings {
    /// The interpreter, or the directory of a virtual environment.
    pub python: Option<PathBuf>,
    pub node: Option<PathBuf>,
    pub shell: Option<PathBuf>,
    /// Directories to search, in order (the front end's `PATH`).
    pub search_path: Vec<PathBuf>,
    /// Further directories of the host that interpreters need, mounted read-only at the same path.
    pub extra_mounts: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApprovalSettings {
    /// Time after which an unanswered request is denied.
    pub timeout: Duration,
    /// The longest approval for a whole namespace.
    pub namespace_max: Duration,
}

#[derive(Clone, Debug)]
pub struct PackageSettings {
    pub sources: PackageSources,
    pub kept: LayerRetention,
}

#[derive(Clone, Copy, Debug)]
pub struct ResultSettings {
    /// Time after the end of the run.
    pub keep: Duration,
    /// Bytes of all namespaces together; beyond, the oldest result of the namespace with the most bytes goes first.
    pub bytes_max: usize,
}

#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// Most sessions of all namespaces together.
    pub max: usize,
    pub per_namespace: usize,
    /// Idle time after which a session ends, unless the caller chooses another.
    pub idle: Duration,
    /// Longest idle time that a caller may request.
    pub idle_max: Duration,
    pub age: Duration,
}

#[derive(Clone, Debug)]
pub struct WarmSettings {
    /// Sandboxes of each idle pool; 0: none, every run starts cold.
    pub ready: usize,
    /// Most sandboxes of each pool under load.
    pub ready_max: usize,
    /// Memory limit of all ready sandboxes together with their templates.
    pub memory_bytes: u64,
    /// Python modules that a second template imports, for programs that name them; empty: no such template.
    pub preload_python: Vec<String>,
    /// Node.js modules that are loaded before the claim.
    pub preload_node: Vec<String>,
    /// Forks after which a template is replaced, so that its memory layout does not last for ever.
    pub template_forks: u32,
    /// Age at which a template is replaced.
    pub template_age: Duration,
}

/// The operator's package indexes and their access, from the configuration of pip and npm. They reach only the
/// installer's sandbox: no record, log, output or layer.
#[derive(Clone, Default)]
pub struct PackageSources {
    /// Lines of the section `[global]` of pip's configuration: names and values, each one line.
    pub pip: Vec<(String, Zeroizing<String>)>,
    /// Lines of npm's configuration.
    pub npm: Vec<(String, Zeroizing<String>)>,
    /// `https_proxy` and similar variables.
    pub proxies: Vec<(String, Zeroizing<String>)>,
    /// Certificates that pip's index is checked against, in PEM.
    pub pip_certificates: Option<Arc<Vec<u8>>>,
    /// Certificates that npm's registry is checked against.
    pub npm_certificates: Option<Arc<Vec<u8>>>,
    /// pip's client certificate and key, in PEM.
    pub client_certificate: Option<Arc<Zeroizing<Vec<u8>>>>,
    /// Directories of the host that hold wheels, mounted at the same path.
    pub wheel_directories: Vec<PathBuf>,
    /// Values to redact from output.
    pub secrets: Vec<Zeroizing<String>>,
}

impl PackageSources {
    pub(crate) fn redactor(&self, personal: Personal) -> Redactor {
        Redactor::new(
            self.secrets.iter().map(|secret| secret.as_str()),
            Forms::All,
            personal,
        )
    }
}

/// Prints names only, since values may be secrets.
impl fmt::Debug for PackageSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |lines: &[(String, Zeroizing<String>)]| -> Vec<String> {
            lines.iter().map(|(name, _)| name.clone()).collect()
        };
        f.debug_struct("PackageSources")
            .field("pip", &names(&self.pip))
            .field("npm", &names(&self.npm))
            .field("proxies", &names(&self.proxies))
            .field("wheel_directories", &self.wheel_directories)
            .finish_non_exhaustive()
    }
}
