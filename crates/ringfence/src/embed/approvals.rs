//! Requests for approval: making and answering them.

use super::{Sandbox, runtime_ended};
use ringfence_engine::{Answer, ApprovalRequest, ApprovalWatch, Decision, HostRequest};
use ringfence_types::RequestError;

impl Sandbox {
    /// Requests approval for programs to reach a host, and waits for the answer of [`SandboxBuilder::on_approval`], of
    /// [`Approvals::decide`] or of the operator's commands. The first answer counts; without one in time the request is
    /// denied. Dropping the future withdraws the request.
    ///
    /// [`SandboxBuilder::on_approval`]: crate::SandboxBuilder::on_approval
    pub async fn request_egress(&self, request: HostRequest) -> Result<Decision, RequestError> {
        let sandbox = self.clone();
        // The request's timer runs on the sandbox's runtime, not on the caller's.
        let task = self
            .inner
            .runtime
            .spawn(async move { sandbox.engine().request_egress(sandbox.caller(), request).await });
        let mut waiting = task.await.map_err(|_| runtime_ended())??;
        Ok(waiting.decided().await)
    }

    /// Returns access to the pending requests of all namespaces. Programs and models have no such access.
    pub fn approvals(&self) -> Approvals<'_> {
        Approvals { sandbox: self }
    }
}

/// Requests for approval, and their answers.
#[derive(Clone, Copy, Debug)]
pub struct Approvals<'a> {
    sandbox: &'a Sandbox,
}

impl Approvals<'_> {
    /// Lists pending requests, the oldest first.
    pub async fn pending(&self) -> Result<Vec<ApprovalRequest>, RequestError> {
        self.sandbox.engine().approvals(self.sandbox.caller()).await
    }

    /// Watches pending requests as they come and go.
    pub fn watch(&self) -> ApprovalWatch {
        self.sandbox.engine().watch_approvals()
    }

    /// Answers this request as it was shown. The first answer counts; a later one is a
    /// [`Conflict`](crate::ErrorCode::Conflict).
    pub async fn decide(&self, request: &ApprovalRequest, answer: Answer) -> Result<Decision, RequestError> {
        let (sandbox, id, digest) = (self.sandbox.clone(), request.id.clone(), request.digest());
        let task = self.sandbox.inner.runtime.spawn(async move {
            let (engine, by) = (sandbox.engine(), sandbox.caller());
            engine.decide_approval(by, &id, &digest, answer).await
        });
        task.await.map_err(|_| runtime_ended())?
    }
}
