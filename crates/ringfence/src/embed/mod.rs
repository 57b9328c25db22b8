//! The library's public interface: a typed, thin layer over the engine.

mod approvals;
mod builder;
mod callback;
mod checks;
mod sessions;
mod workspace;

pub(crate) use callback::decide;

pub use approvals::Approvals;
pub use builder::SandboxBuilder;
pub use sessions::Sessions;
pub use workspace::{Snapshots, Workspace};

use ringfence_engine::{
    Caller, ContainerRuntime, Counts, Engine, Execution, Hears, NamespaceAccess, Runtime, SandboxInfo, Stats,
    Stdin, Submission, Subscriber,
};
use ringfence_store::{
    artifacts::Manifest,
    audit::{Page, Query},
    vault::{SecretEntry, SecretValue},
};
use ringfence_types::{
    EnvName, ExecuteRequest, ExecutionResult, Limits, LimitsRequest, Namespace, RequestError,
};
use std::{fmt, path::PathBuf, sync::Arc, time::Duration};
use tokio::{io::AsyncRead, runtime::Handle};

/// Runs untrusted programs. Clones are the same sandbox; each program runs behind its own walls.
///
/// Dropping the last clone kills everything that still runs and leaves no process of it; use [`Sandbox::shutdown`] to
/// wait for that.
#[derive(Clone)]
pub struct Sandbox {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    caller: Caller,
    /// The runtime that the sandbox was built on, not the caller's.
    runtime: Handle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.engine.leave();
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").finish_non_exhaustive()
    }
}

impl Sandbox {
    /// Builds a sandbox with the defaults. Reads only `PATH` (for interpreters), `HOME` and `XDG_STATE_HOME` (for the
    /// state directory) from the environment, and no configuration file.
    pub async fn local() -> Result<Self, RequestError> {
        Self::builder().build().await
    }

    /// Builds a sandbox with the variables `RINGFENCE_*` and the usual configuration file, as `ringfence serve` does.
    pub async fn from_env() -> Result<Self, RequestError> {
        Self::builder().environment().build().await
    }

    /// Builds a sandbox with this configuration file, and no settings from the environment.
    pub async fn from_yaml(path: impl Into<PathBuf>) -> Result<Self, RequestError> {
        Self::builder().yaml(path).build().await
    }

    /// Returns a builder, to choose settings.
    ///
    /// ```standalone_crate
    /// use ringfence::{ExecuteRequest, LimitsRequest, Sandbox};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     ringfence::init();
    ///     tokio::runtime::Runtime::new()?.block_on(async {
    /// #       let directory = std::env::temp_dir().join(format!("ringfence-doc-{}", std::process::id()));
    ///         let less = LimitsRequest { max_ram_mb: Some(128), timeout_ms: Some(5_000), ..Default::default() };
    ///         let sandbox = Sandbox::builder().state_dir(&directory).limits(&less).build().await?;
    ///         let result = sandbox.execute(ExecuteRequest::shell("echo $((6 * 7))")).await?;
    ///         assert_eq!(result.stdout, "42\n");
    ///         sandbox.shutdown().await;
    /// #       std::fs::remove_dir_all(&directory)?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn builder() -> SandboxBuilder {
        SandboxBuilder::new()
    }

    pub(crate) fn new(engine: Engine, caller: Caller, runtime: Handle) -> Self {
        Self {
            inner: Arc::new(Inner {
                engine,
                caller,
                runtime,
            }),
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    fn caller(&self) -> &Caller {
        &self.inner.caller
    }

    fn namespace<'a>(&'a self, namespace: &'a Namespace) -> NamespaceAccess<'a> {
        self.engine().namespace(self.caller(), namespace)
    }

    /// Runs a program to its end. A failing program is a result; an error is a refusal, or a fault of Ringfence's.
    /// Dropping the future (a timeout, a `select!`) cancels the program.
    pub async fn execute(&self, request: ExecuteRequest) -> Result<ExecutionResult, RequestError> {
        let execution = self.submit(self.submission(request));
        // Once there is a result, nothing is left to cancel.
        let _cancel = CancelOnDrop(execution.canceller());
        execution.finish().await
    }

    /// Starts a program and streams its output through [`Execution::next_output`]. The program waits for a slow reader.
    /// Dropping the [`Execution`] stops nothing: keep its [`canceller`](Execution::canceller) for that.
    pub fn start(&self, request: ExecuteRequest) -> Execution {
        self.submit(Submission {
            live: true,
            ..self.submission(request)
        })
    }

    /// Starts a program as [`start`](Self::start) does, and copies `stdin` to its standard input as it comes.
    pub fn start_with_stdin(
        &self,
        request: ExecuteRequest,
        stdin: impl AsyncRead + Send + Unpin + 'static,
    ) -> Execution {
        self.submit(Submission {
            live: true,
            stdin: Stdin::Stream(Box::new(stdin)),
            ..self.submission(request)
        })
    }

    fn submission(&self, request: ExecuteRequest) -> Submission {
        Submission::new(self.caller().clone(), request)
    }

    fn submit(&self, submission: Submission) -> Execution {
        let _here = self.inner.runtime.enter();
        self.engine().submit(submission)
    }

    /// Subscribes to events from now on. A subscriber that is too slow loses the oldest events, and learns how many.
    pub fn events(&self, filter: Hears) -> Subscriber {
        self.engine().subscribe(filter)
    }

    /// The secrets of a namespace.
    pub fn secrets<'a>(&'a self, namespace: &'a Namespace) -> Secrets<'a> {
        Secrets {
            access: self.namespace(namespace),
        }
    }

    /// The files that an execution of this namespace left.
    pub fn artifacts<'a>(&'a self, namespace: &'a Namespace, execution_id: &'a str) -> Artifacts<'a> {
        Artifacts {
            access: self.namespace(namespace),
            execution_id,
        }
    }

    /// The Ed25519 public key of this state directory, which verifies the signatures of artifacts.
    pub fn public_key(&self) -> [u8; 32] {
        self.engine().public_key()
    }

    /// Reads a page of the audit record. The query is recorded, too.
    pub async fn audit(&self, query: Query) -> Result<Page, RequestError> {
        self.engine().audit(self.caller(), query).await
    }

    /// The load at this moment: running and queued programs, ready sandboxes, memory.
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// Counters since the start.
    pub fn counts(&self) -> Counts {
        self.engine().counts()
    }

    /// The counters and the present load, as OpenMetrics text.
    pub fn metrics(&self) -> String {
        self.engine().metrics()
    }

    /// The isolation of a run, the default limits and their caps.
    pub fn info(&self) -> Result<SandboxInfo, RequestError> {
        self.engine().info()
    }

    /// The limits of a namespace: its defaults, and its caps.
    pub fn limits(&self, namespace: &Namespace) -> (Limits, Limits) {
        self.engine().limits_of(namespace)
    }

    /// Sets the default limits of a namespace, within its caps.
    pub async fn set_limits(&self, namespace: &Namespace, to: &LimitsRequest) -> Result<(), RequestError> {
        self.namespace(namespace).set_limits(to).await
    }

    /// Lowers the caps of a namespace from now on. Only the operator's commands raise them again.
    pub async fn narrow_limits(&self, namespace: &Namespace, to: &LimitsRequest) -> Result<(), RequestError> {
        self.namespace(namespace).narrow_limits(to).await
    }

    /// Lists the languages, with the versions that the interpreters report inside a sandbox.
    pub async fn runtimes(&self) -> Vec<Runtime> {
        self.engine().runtimes().await
    }

    /// Lists the container engine's runtimes: if each may be requested, and if it works.
    pub async fn container_runtimes(&self) -> Vec<ContainerRuntime> {
        self.engine().container_runtimes().await
    }

    /// Starts keeping sandboxes ready, in the background; until they are, runs start cold.
    pub fn warm_up(&self) {
        let _here = self.inner.runtime.enter();
        self.engine().warm_up();
    }

    /// Waits until all sandboxes that can be kept ready are ready. Returns false if the time was too short.
    pub async fn warmed_up(&self, patience: Duration) -> bool {
        self.engine().warmed_up(patience).await
    }

    /// Kills everything that runs, also of other clones, and waits until it is gone. Later requests are refused.
    pub async fn shutdown(self) {
        self.engine().shutdown().await;
    }
}

fn runtime_ended() -> RequestError {
    RequestError::fault(
        "the runtime that the sandbox was built on has ended.",
        "Build another sandbox.",
    )
}

/// Cancels the execution if its future is dropped.
pub(crate) struct CancelOnDrop(pub(crate) ringfence_engine::Canceller);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The secrets of one namespace. A request names the ones that it needs in [`ExecuteRequest::secrets`], and its program
/// has them as environment variables; they are redacted from everything that leaves. This type returns no value.
#[derive(Clone, Copy, Debug)]
pub struct Secrets<'a> {
    access: NamespaceAccess<'a>,
}

impl Secrets<'_> {
    /// Stores a secret until it is deleted or `ttl` is over. Returns true if it replaced another. The text is wiped
    /// after its last use. From now on this process makes no core dumps, and others of its user may not inspect it.
    pub async fn put(&self, key: &str, value: String, ttl: Option<Duration>) -> Result<bool, RequestError> {
        let value = SecretValue::new(value)
            .map_err(|error| RequestError::invalid(format!("{error}."), "Give another value."))?;
        let key = name(key)?;
        self.access.put_secret(&key, value, ttl).await
    }

    /// Lists names, sizes and times of the secrets.
    pub async fn list(&self) -> Result<Vec<SecretEntry>, RequestError> {
        self.access.secrets().await
    }

    /// Deletes a secret. Returns false if there was none.
    pub async fn delete(&self, key: &str) -> Result<bool, RequestError> {
        let key = name(key)?;
        self.access.delete_secret(&key).await
    }
}

fn name(key: &str) -> Result<EnvName, RequestError> {
    key.parse()
        .map_err(|reason| RequestError::invalid(format!("{reason}."), "Name it as a variable, as `API_KEY`."))
}

/// The files that one execution left.
#[derive(Clone, Copy, Debug)]
pub struct Artifacts<'a> {
    access: NamespaceAccess<'a>,
    execution_id: &'a str,
}

impl Artifacts<'_> {
    /// Reads the signed manifest. [`crate::artifact::verify_manifest`] checks it anywhere.
    pub async fn manifest(&self) -> Result<Manifest, RequestError> {
        self.access.manifest(self.execution_id).await
    }

    /// Reads the content of an artifact, after verifying its signature. At most 64 MiB.
    pub async fn read(&self, name: &str) -> Result<Vec<u8>, RequestError> {
        let read = self.access.artifact(self.execution_id, name);
        read.await.map(|(_, content)| content)
    }
}
