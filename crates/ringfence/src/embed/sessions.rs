//! Sessions, which are interpreters that stay alive between programs, and installation of packages.

use super::{CancelOnDrop, Sandbox};
use ringfence_engine::{Bridged, BridgedValue, Installed, NamespaceAccess};
use ringfence_types::{
    EnvName, Language, Namespace, RequestError, Requirement, Session, SessionId, SessionRequest,
};
use std::collections::BTreeSet;

impl Sandbox {
    /// Starts an interpreter that stays alive: definitions of one program are available to the next that names the
    /// session in [`ExecuteRequest::session`](crate::ExecuteRequest::session). It ends when it is terminated, unused
    /// for too long or too old, and with the sandbox. If this future is dropped, the session is in [`Sessions::list`].
    ///
    /// ```standalone_crate
    /// use ringfence::{ExecuteRequest, Language, Sandbox, SessionRequest};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     ringfence::init();
    ///     tokio::runtime::Runtime::new()?.block_on(async {
    /// #       let directory = std::env::temp_dir().join(format!("ringfence-doc-session-{}", std::process::id()));
    ///         let sandbox = Sandbox::builder().state_dir(&directory).build().await?;
    ///         let session = sandbox.create_session(SessionRequest::new(Language::Shell)).await?;
    ///         for (code, says) in [("x=6", ""), ("echo $((x * 7))", "42\n")] {
    ///             let mut request = ExecuteRequest::shell(code);
    ///             request.session = Some(session.session_id.clone());
    ///             assert_eq!(sandbox.execute(request).await?.stdout, says);
    ///         }
    ///         sandbox.shutdown().await;
    /// #       std::fs::remove_dir_all(&directory)?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub async fn create_session(&self, request: SessionRequest) -> Result<Session, RequestError> {
        let sandbox = self.clone();
        // The interpreter is served on the sandbox's runtime, not on the caller's.
        let task = self
            .inner
            .runtime
            .spawn(async move { sandbox.engine().create_session(sandbox.caller(), request).await });
        task.await.map_err(|_| super::runtime_ended())?
    }

    /// The sessions of a namespace.
    pub fn sessions<'a>(&'a self, namespace: &'a Namespace) -> Sessions<'a> {
        Sessions {
            access: self.namespace(namespace),
        }
    }

    /// Installs packages: programs of this language that name them have them at once, and `session` has them from now
    /// on. Packages come from the index that the settings name. Dropping the future cancels the installation.
    pub async fn install(
        &self,
        namespace: &Namespace,
        language: Language,
        packages: BTreeSet<Requirement>,
        session: Option<SessionId>,
    ) -> Result<Installed, RequestError> {
        let installation = {
            let _here = self.inner.runtime.enter();
            self.namespace(namespace).install(language, packages, session)
        };
        let _cancel = CancelOnDrop(installation.canceller());
        installation.finish().await
    }
}

/// The sessions of one namespace, invisible to any other.
#[derive(Clone, Copy, Debug)]
pub struct Sessions<'a> {
    access: NamespaceAccess<'a>,
}

impl Sessions<'_> {
    /// Lists the live sessions, the oldest first.
    pub async fn list(&self) -> Result<Vec<Session>, RequestError> {
        self.access.sessions().await
    }

    /// Interrupts the program that runs in a session, and keeps its state. Returns false if none runs.
    pub async fn interrupt(&self, id: &SessionId) -> Result<bool, RequestError> {
        self.access.interrupt_session(id).await
    }

    /// Ends a session, and waits until nothing of it is left. Returns false if it had ended before.
    pub async fn terminate(&self, id: &SessionId) -> Result<bool, RequestError> {
        self.access.terminate_session(id).await
    }

    /// Sets a variable in a session: to a given value, or to a variable of another session, also of another language.
    /// `name`: the variable's name there; default: the name that it had.
    pub async fn bridge(
        &self,
        value: BridgedValue,
        to: &SessionId,
        name: Option<EnvName>,
    ) -> Result<Bridged, RequestError> {
        self.access.bridge(value, to, name).await
    }
}
