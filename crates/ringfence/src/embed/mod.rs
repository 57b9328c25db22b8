//! The library's face: a typed, thin way into the engine.

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

/// Runs untrusted programs. Clones are the same sandbox; each program gets walls of its own.
///
/// When the last clone is dropped, everything that still runs is killed, and no process of it is left; use
/// [`Sandbox::shutdown`] to wait for that.
#[derive(Clone)]
pub struct Sandbox {
    inner: Arc<Inner>,
}

/// Ends with the last clone.
struct Inner {
    engine: Engine,
    caller: Caller,
    /// Its own, not the caller's.
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
    /// With every default. Of the environment only `PATH`, for interpreters, and `HOME` and `XDG_STATE_HOME`, for the
    /// state directory, are read, and no configuration file.
    pub async fn local() -> Result<Self, RequestError> {
        Self::builder().build().await
    }

    /// As `ringfence serve` would be: with the variables `RINGFENCE_*` and the usual configuration file.
    pub async fn from_env() -> Result<Self, RequestError> {
        Self::builder().environment().build().await
    }

    /// With this configuration file, and no settings from the environment.
    pub async fn from_yaml(path: impl Into<PathBuf>) -> Result<Self, RequestError> {
        Self::builder().yaml(path).build().await
    }

    /// With what you say.
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

    /// Runs a program to its end. A program that fails is a result; an error is a refusal, or a fault of Ringfence's. A
    /// caller who stops waiting (a timeout, a `select!`) cancels the program.
    pub async fn execute(&self, request: ExecuteRequest) -> Result<ExecutionResult, RequestError> {
        let execution = self.submit(self.submission(request));
        // Once there is a result, nothing is left to cancel.
        let _cancel = CancelOnDrop(execution.canceller());
        execution.finish().await
    }

    /// Starts a program whose output is read as it comes, with [`Execution::next_output`]. The program waits for a slow
    /// reader. Dropping the [`Execution`] stops nothing: keep its [`canceller`](Execution::canceller) for that.
    pub fn start(&self, request: ExecuteRequest) -> Execution {
        self.submit(Submission {
            live: true,
            ..self.submission(request)
        })
    }

    /// The same, and its standard input is copied from `stdin` as it comes.
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

    /// Hears what happens from now on. A subscriber that is too slow loses the oldest events, and is told how many.
    pub fn events(&self, hears: Hears) -> Subscriber {
        self.engine().subscribe(hears)
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

    /// The Ed25519 key of this state directory: signatures of artifacts are checked by it.
    pub fn public_key(&self) -> [u8; 32] {
        self.engine().public_key()
    }

    /// A page of the audit record. The question is put on record, too.
    pub async fn audit(&self, query: Query) -> Result<Page, RequestError> {
        self.engine().audit(self.caller(), query).await
    }

    /// Who runs and waits, what stands ready, what it takes: at this moment.
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// What was counted since the start.
    pub fn counts(&self) -> Counts {
        self.engine().counts()
    }

    /// The same and the present state, as OpenMetrics text.
    pub fn metrics(&self) -> String {
        self.engine().metrics()
    }

    /// The isolation of a run, and what limits there are.
    pub fn info(&self) -> Result<SandboxInfo, RequestError> {
        self.engine().info()
    }

    /// Limits of a namespace: for requests that say nothing, and the most that any gets.
    pub fn limits(&self, namespace: &Namespace) -> (Limits, Limits) {
        self.engine().limits_of(namespace)
    }

    /// Sets limits of a namespace's requests that ask for none, within its caps.
    pub async fn set_limits(&self, namespace: &Namespace, to: &LimitsRequest) -> Result<(), RequestError> {
        self.namespace(namespace).set_limits(to).await
    }

    /// Narrows the most that a namespace gets from now on; it is never widened.
    pub async fn narrow_limits(&self, namespace: &Namespace, to: &LimitsRequest) -> Result<(), RequestError> {
        self.namespace(namespace).narrow_limits(to).await
    }

    /// The languages, with versions as the interpreters say them inside a sandbox.
    pub async fn runtimes(&self) -> Vec<Runtime> {
        self.engine().runtimes().await
    }

    /// The container engine's runtimes: whether they may be asked for, and work.
    pub async fn container_runtimes(&self) -> Vec<ContainerRuntime> {
        self.engine().container_runtimes().await
    }

    /// Begins to keep sandboxes ready, in the background; until they are, runs start cold.
    pub fn warm_up(&self) {
        let _here = self.inner.runtime.enter();
        self.engine().warm_up();
    }

    /// Waits until everything stands ready that can. False: the time was too short.
    pub async fn warmed_up(&self, patience: Duration) -> bool {
        self.engine().warmed_up(patience).await
    }

    /// Kills what runs, of all clones, and waits until it is gone. Whatever comes after is refused.
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

/// The secrets of one namespace. A program names those that it wants in [`ExecuteRequest::secrets`], and has them as
/// environment variables; they are taken out of everything that leaves. No value comes back out of here.
#[derive(Clone, Copy, Debug)]
pub struct Secrets<'a> {
    access: NamespaceAccess<'a>,
}

impl Secrets<'_> {
    /// Keeps a secret, until it is deleted or `ttl` is over. True: it replaced another. The text is wiped after its
    /// last use. From now on this process has no core dumps, and others of its user may not look into it.
    pub async fn put(&self, key: &str, value: String, ttl: Option<Duration>) -> Result<bool, RequestError> {
        let value = SecretValue::new(value)
            .map_err(|error| RequestError::invalid(format!("{error}."), "Give another value."))?;
        let key = name(key)?;
        self.access.put_secret(&key, value, ttl).await
    }

    /// Their names, sizes and times.
    pub async fn list(&self) -> Result<Vec<SecretEntry>, RequestError> {
        self.access.secrets().await
    }

    /// Forgets a secret; false: there was none.
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
    /// What they are, signed. [`crate::artifact::verify_manifest`] checks it anywhere.
    pub async fn manifest(&self) -> Result<Manifest, RequestError> {
        self.access.manifest(self.execution_id).await
    }

    /// The content of one, held against its signature first. At most 64 MiB.
    pub async fn read(&self, name: &str) -> Result<Vec<u8>, RequestError> {
        let read = self.access.artifact(self.execution_id, name);
        read.await.map(|(_, content)| content)
    }
}
