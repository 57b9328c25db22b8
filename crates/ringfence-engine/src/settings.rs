//! What the engine has to be told. The front end reads files, flags and environment and hands over these; nothing
//! here has a default, because a forgotten security setting must not compile.

use crate::WarmSettings;
use ringfence_types::{Limits, Tier};
use std::path::PathBuf;

/// Everything the engine needs to start.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// The binary that is re-executed as the helper (its `main` calls `ringfence_jail::helper::run`).
    pub helper: PathBuf,
    /// The tier to use. Never weaker than `full` unless the operator's configuration says so.
    pub tier: Tier,
    /// Where short-lived directories of the `landlock` tier live; created when needed, swept at start.
    pub state_dir: PathBuf,
    /// What a request may have.
    pub policy: PolicySettings,
    /// How many run and wait.
    pub queue: QueueSettings,
    /// Where interpreters are.
    pub runtimes: RuntimeSettings,
    /// What stands ready.
    pub warm: WarmSettings,
}

/// Defaults for requests that name no limit, and the caps that no request passes.
#[derive(Clone, Debug)]
pub struct PolicySettings {
    /// For requests that say nothing.
    pub defaults: Limits,
    /// The most that any request gets; asking for more is refused, not clamped in silence.
    pub caps: Limits,
}

/// Bounds of the queue.
#[derive(Clone, Debug)]
pub struct QueueSettings {
    /// Programs running at once.
    pub concurrency: usize,
    /// Requests waiting at once, all namespaces together.
    pub waiting: usize,
}

/// Interpreters. `None` means: the first on `search_path`.
#[derive(Clone, Debug)]
pub struct RuntimeSettings {
    /// Interpreter, or a virtual environment's directory.
    pub python: Option<PathBuf>,
    /// Interpreter.
    pub node: Option<PathBuf>,
    /// bash.
    pub shell: Option<PathBuf>,
    /// Directories to look in, in order (the front end's `PATH`).
    pub search_path: Vec<PathBuf>,
    /// More directories of the host that interpreters need, mounted read-only at the same place.
    pub extra_mounts: Vec<PathBuf>,
}
