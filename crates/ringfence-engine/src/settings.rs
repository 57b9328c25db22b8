//! What the engine has to be told. The front end reads files, flags and environment and hands over these; nothing
//! here has a default, because a forgotten security setting must not compile.

use crate::error::Result;
use ringfence_egress::{Limits as EgressLimits, Rule, SecretPlace};
use ringfence_redact::{Forms, Personal, Redactor};
use ringfence_store::{
    artifacts::Retention,
    audit::{Durability, Keep, Storage},
    layers::LayersKept,
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
    /// Files beside those named below that decide what is run and allowed: the configuration and what it names, this
    /// binary, what installers are told.
    pub guarded: Vec<PathBuf>,
    /// Files beside those named below that hold secrets.
    pub secret_files: Vec<PathBuf>,
    /// The tier to use. Never weaker than `full` unless the operator's configuration says so.
    pub tier: Tier,
    /// Where short-lived directories of the `landlock` tier live; created when needed, swept at start.
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
    /// How long a person may take who is asked.
    pub approvals: ApprovalSettings,
    /// What callers may do with the host; none: nothing.
    pub host: Option<Arc<ringfence_host::Rules>>,
    pub record: RecordSettings,
}

impl EngineSettings {
    /// What decides what is run and allowed, by each way that leads there: nothing of it lies where programs or callers
    /// write.
    pub fn deciding_files(&self) -> Vec<PathBuf> {
        let named = [&self.runtimes.python, &self.runtimes.node, &self.runtimes.shell];
        let named = named.into_iter().chain([&self.web.browser, &self.egress.ca_file]);
        by_each_way(self.guarded.iter().chain(named.flatten()))
    }

    /// Where keys, secrets and the record lie, by each way that leads there: no program or caller sees it.
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
        .flat_map(|path| ringfence_host::ways(path))
        .collect()
}

/// Everything that outlives a request.
#[derive(Clone, Debug)]
pub struct RecordSettings {
    /// A directory of this user alone; made when needed. Signing key and artifacts lie in it.
    pub directory: PathBuf,
    pub audit: AuditSettings,
    pub vault: VaultSettings,
    pub retention: Retention,
    pub snapshots: SnapshotLimits,
    /// Whether e-mail addresses, telephone, card and social security numbers are taken out of what leaves.
    pub personal: Personal,
}

impl RecordSettings {
    /// The key that signs the record and the artifacts.
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

/// What happens when the audit record cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Nothing runs and no result leaves.
    Deny,
    /// It does; the result of an execution says that it is not on record, and the log says so of everything.
    Warn,
}

closed_words!(OnFailure: Deny = "deny", Warn = "warn");

/// Defaults for requests that name no limit, and the caps that no request passes.
#[derive(Clone, Debug)]
pub struct PolicySettings {
    /// For requests that say nothing.
    pub defaults: Limits,
    /// The most that any request gets; asking for more is refused, not clamped in silence.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendPolicy {
    /// For requests that name none.
    pub default: Backend,
    /// Those that requests may name.
    pub allowed: BTreeSet<Backend>,
    pub floor: Tier,
    /// That of native sandboxes.
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
            let message = format!("the operator allows no `backend: {backend}` here.");
            return Err(RequestError::denied(message, hint));
        }
        let (floor, tier) = (self.floor, backend.tier(self.native));
        if tier > floor {
            return Err(RequestError::new(
                ErrorCode::BelowFloor,
                format!("the backend `{backend}` gives the tier `{tier}`, and the floor is `{floor}`."),
                format!(
                    "Have the operator set `floor: {tier}` (RINGFENCE_FLOOR={tier}), or leave `backend` out."
                ),
            ));
        }
        Ok(())
    }
}

/// The container engine, and what of it is used.
#[derive(Clone, Debug)]
pub struct BackendSettings {
    pub policy: BackendPolicy,
    pub socket: PathBuf,
    pub gvisor: String,
    pub images: Images,
    /// Fetch an image that is not there.
    pub pull: bool,
    /// Refuse images that are not pinned by a digest.
    pub require_digest: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Images {
    /// Has `python3`.
    pub python: String,
    /// Has `node`.
    pub node: String,
    /// Has `bash`.
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

/// How much of the disk below the state directory is filled, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPolicy {
    pub total: u64,
    /// Workspace and snapshots of one namespace.
    pub of_namespace: u64,
    /// What stays free for others.
    pub free: u64,
}

#[derive(Clone, Debug)]
pub struct EgressPolicy {
    /// The tier of the sandboxes: only `full` has egress.
    pub tier: Tier,
    /// All that there are; a request may narrow them.
    pub allow: Vec<EgressRule>,
    /// What becomes of a connection that they do not allow.
    pub on_denied: OnDenied,
    /// Secrets that programs do not get, and that are put into their requests as they leave.
    pub secrets: Vec<SecretBinding>,
}

impl EgressPolicy {
    /// Where a secret of a namespace leaves; nowhere: it is handed to programs.
    pub(crate) fn places_of(&self, namespace: &Namespace, key: &EnvName) -> Vec<SecretPlace> {
        let bound = self
            .secrets
            .iter()
            .filter(|binding| binding.of.allows(namespace, key));
        bound.map(|binding| binding.place.clone()).collect()
    }
}

/// Where a secret leaves, instead of being handed to programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretBinding {
    pub of: SecretRule,
    pub place: SecretPlace,
}

/// What becomes of a connection that no rule allows by name or port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDenied {
    Deny,
    /// A person is asked, and for so long it is held.
    Ask(Duration),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressRule {
    /// A namespace, or a beginning followed by `*`.
    pub namespace: String,
    pub rule: Rule,
}

impl EgressRule {
    pub fn is_for(&self, namespace: &Namespace) -> bool {
        matches(&self.namespace, namespace.as_str())
    }
}

/// How a server's sandboxes get out.
#[derive(Clone, Debug)]
pub struct EgressSettings {
    /// Who is asked for addresses; empty: whom the host asks, its hosts file first.
    pub resolvers: Vec<SocketAddr>,
    /// Services whose addresses may be other than public.
    pub private: Vec<Rule>,
    /// A file of certificates (PEM) that are believed beside those of the host.
    pub ca_file: Option<PathBuf>,
    pub limits: EgressLimits,
}

/// How the web tools fetch and search. Which hosts they may reach is policy.
#[derive(Clone, Debug)]
pub struct WebSettings {
    pub robots: bool,
    /// How long one fetch takes at most.
    pub timeout: Duration,
    /// The most that a host sends, as it is on the wire.
    pub bytes_max: usize,
    /// Search providers, in the order in which they are asked.
    pub search: Vec<Provider>,
    /// Chromium; none: the first that is on the path.
    pub browser: Option<PathBuf>,
}

/// What is asked of code before it runs, and of data.
#[derive(Clone, Debug)]
pub struct CheckSettings {
    /// The profile of requests that name none.
    pub profile: Profile,
    /// Those that callers may choose. Without `unrestricted` what they name in `allowed_imports` is one of these
    /// profiles' or of the next setting's.
    pub profiles: BTreeSet<Profile>,
    /// Added to every profile that restricts.
    pub allowed_imports: BTreeSet<ModuleName>,
    /// They replace the modules of `basic` and `strict`.
    pub only_allowed_imports: bool,
    /// Names whose import may be added where it is missing: `np`, `import numpy as np`.
    pub known_imports: BTreeMap<String, String>,
    /// JSON Schemas by name, beside the built-in ones.
    pub schemas: BTreeMap<String, serde_json::Value>,
}

/// A directory of the host that the operator lends to programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedWorkspace {
    /// By which callers ask for it.
    pub name: WorkspaceName,
    /// Canonical path.
    pub directory: PathBuf,
    pub mode: WorkspaceMode,
    /// Namespaces that may have it, or beginnings followed by `*`.
    pub namespaces: Vec<String>,
}

impl ListedWorkspace {
    pub fn is_for(&self, namespace: &Namespace) -> bool {
        self.namespaces
            .iter()
            .any(|pattern| matches(pattern, namespace.as_str()))
    }
}

/// Whether a text is what a pattern says, or begins like a pattern that ends with `*`.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => text.starts_with(beginning),
        None => text == pattern,
    }
}

/// Which packages there may be, and what it may take to install them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackagePolicy {
    pub enabled: bool,
    /// Names, or beginnings followed by `*`. What a package needs itself is not held against them.
    pub allow: Vec<String>,
    /// To install one set.
    pub timeout: Duration,
    /// Size of one set, installed.
    pub bytes_max: u64,
    pub hosts: Vec<IndexHost>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexHost {
    /// Those of the index that pip's or npm's own configuration names.
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

/// A namespace may have secrets of its own whose names match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRule {
    /// A namespace, or a beginning followed by `*`.
    pub namespace: String,
    /// A secret's name, or a beginning followed by `*`.
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
    /// Memory that they may use together, by their limits.
    pub memory_bytes: u64,
    /// Requests waiting at once, all namespaces together.
    pub waiting: usize,
    pub patience: Duration,
    /// Namespaces that are served more or less often than others.
    pub priorities: BTreeMap<Namespace, Priority>,
    /// How many requests one namespace may send; none: as many as it likes.
    pub rate: Option<Rate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// In the long run.
    pub per_minute: NonZeroU32,
    /// At once.
    pub burst: NonZeroU32,
}

/// Interpreters. `None` means: the first on `search_path`.
#[derive(Clone, Debug)]
pub struct RuntimeSettings {
    /// Interpreter, or a virtual environment's directory.
    pub python: Option<PathBuf>,
    pub node: Option<PathBuf>,
    /// bash.
    pub shell: Option<PathBuf>,
    /// Directories to look in, in order (the front end's `PATH`).
    pub search_path: Vec<PathBuf>,
    /// More directories of the host that interpreters need, mounted read-only at the same place.
    pub extra_mounts: Vec<PathBuf>,
}

/// How long a request waits, and how long an approval may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApprovalSettings {
    /// Then it is denied.
    pub timeout: Duration,
    /// The longest approval for a whole namespace.
    pub namespace_max: Duration,
}

#[derive(Clone, Debug)]
pub struct PackageSettings {
    pub sources: PackageSources,
    pub kept: LayersKept,
}

/// How long results are kept, and how much memory they take.
#[derive(Clone, Copy, Debug)]
pub struct ResultSettings {
    /// After the end of the run.
    pub keep: Duration,
    /// Bytes of all namespaces. Where they are more, the oldest of the namespace that has most goes first.
    pub bytes_max: usize,
}

/// How many sessions there may be, and for how long.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// Sessions of all namespaces.
    pub max: usize,
    pub per_namespace: usize,
    /// Without a call, where the caller says nothing.
    pub idle: Duration,
    /// The longest that a caller may ask for.
    pub idle_max: Duration,
    /// The oldest that one becomes.
    pub age: Duration,
}

/// How many sandboxes stand ready, and what they know.
#[derive(Clone, Debug)]
pub struct WarmSettings {
    /// For each pool when nothing happens; 0: none, every run starts cold.
    pub ready: usize,
    /// For each pool under load.
    pub ready_max: usize,
    /// What all sandboxes that wait may take of the host's memory, with their templates.
    pub memory_bytes: u64,
    /// Python modules that a second template imports, for programs that name them; none: no such template.
    pub preload_python: Vec<String>,
    /// Node.js modules that are loaded before the claim.
    pub preload_node: Vec<String>,
    /// A template is retired after so many forks, so that its layout in memory does not live for ever.
    pub template_forks: u32,
    /// A template of this age is retired.
    pub template_age: Duration,
}

/// The operator's indexes and the way to them, from the configuration of pip and npm. They reach the installer's
/// sandbox and nothing else: no record, log, output or layer.
#[derive(Clone, Default)]
pub struct PackageSources {
    /// Lines of the section `[global]` of pip's configuration: names and values, each one line.
    pub pip: Vec<(String, Zeroizing<String>)>,
    /// Lines of npm's configuration.
    pub npm: Vec<(String, Zeroizing<String>)>,
    /// `https_proxy` and the like.
    pub proxies: Vec<(String, Zeroizing<String>)>,
    /// Certificates that pip's index is checked against, in PEM.
    pub pip_certificates: Option<Arc<Vec<u8>>>,
    /// Certificates that npm's registry is checked against.
    pub npm_certificates: Option<Arc<Vec<u8>>>,
    /// pip's own certificate and key, in PEM.
    pub client_certificate: Option<Arc<Zeroizing<Vec<u8>>>>,
    /// Directories of the host that hold wheels; they are shown at the same place.
    pub wheel_directories: Vec<PathBuf>,
    /// What is kept out of output.
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

/// Names only.
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
