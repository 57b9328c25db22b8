//! Interpreters that stay alive between programs, and packages that are there before them.

use super::{CancelOnDrop, Sandbox};
use ringfence_engine::{Bridged, BridgedValue, Installed, NamespaceAccess};
use ringfence_types::{
    EnvName, Language, Namespace, RequestError, Requirement, Session, SessionId, SessionRequest,
};
use std::collections::BTreeSet;

impl Sandbox {
    /// Starts an interpreter that stays alive: what one program defines is there for the next that names the session in
    /// [`ExecuteRequest::session`](crate::ExecuteRequest::session). It ends when it is terminated, unused for too long
    /// or too old, and with the sandbox. A caller who stops waiting finds it in [`Sessions::list`].
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
        // Its interpreter is served on the sandbox's runtime, not on the caller's.
        let making = self
            .inner
            .runtime
            .spawn(async move { sandbox.engine().create_session(sandbox.caller(), request).await });
        making.await.map_err(|_| super::runtime_ended())?
    }

    /// The sessions of a namespace.
    pub fn sessions<'a>(&'a self, namespace: &'a Namespace) -> Sessions<'a> {
        Sessions {
            access: self.namespace(namespace),
        }
    }

    /// Sees to it that programs of this language that name these packages have them at once; `session` has them from
    /// now on. Packages come from the index that the settings name. A caller who stops waiting cancels it.
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

/// The sessions of one namespace. To any other they are not there.
#[derive(Clone, Copy, Debug)]
pub struct Sessions<'a> {
    access: NamespaceAccess<'a>,
}

impl Sessions<'_> {
    /// Those that live, the oldest first.
    pub async fn list(&self) -> Result<Vec<Session>, RequestError> {
        self.access.sessions().await
    }

    /// Interrupts the program that runs in one, and keeps its state; false: none does.
    pub async fn interrupt(&self, id: &SessionId) -> Result<bool, RequestError> {
        self.access.interrupt_session(id).await
    }

    /// Ends one, and waits until nothing of it is left; false: it had ended before.
    pub async fn terminate(&self, id: &SessionId) -> Result<bool, RequestError> {
        self.access.terminate_session(id).await
    }

    /// Gives one a variable: a value of yours, or a variable of another session, be it of another language. `name`:
    /// what it is called there; the name that it had, where nothing is said.
    pub async fn bridge(
        &self,
        gift: BridgedValue,
        to: &SessionId,
        name: Option<EnvName>,
    ) -> Result<Bridged, RequestError> {
        self.access.bridge(gift, to, name, None).await
    }
}
