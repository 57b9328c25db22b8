//! Requests for approval: asking, and answering.

use super::{Sandbox, runtime_ended};
use ringfence_engine::{Answer, ApprovalRequest, ApprovalWatch, Decision, HostRequest};
use ringfence_types::RequestError;

impl Sandbox {
    /// Asks whether programs may reach a host, and waits for the answer: of [`SandboxBuilder::on_approval`], of
    /// [`Approvals::decide`], or of the operator's commands; the first counts. Without one in time it is denied. A
    /// caller who stops waiting withdraws the request.
    ///
    /// [`SandboxBuilder::on_approval`]: crate::SandboxBuilder::on_approval
    pub async fn request_egress(&self, wish: HostRequest) -> Result<Decision, RequestError> {
        let sandbox = self.clone();
        // Its clock runs on the sandbox's runtime, not on the caller's.
        let asking = self
            .inner
            .runtime
            .spawn(async move { sandbox.engine().request_egress(sandbox.caller(), wish).await });
        let mut waiting = asking.await.map_err(|_| runtime_ended())??;
        Ok(waiting.decided().await)
    }

    /// What waits for an answer, of all namespaces. Programs and models have no way here.
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
    /// Those that wait, the oldest first.
    pub async fn pending(&self) -> Result<Vec<ApprovalRequest>, RequestError> {
        self.sandbox.engine().approvals(self.sandbox.caller()).await
    }

    /// Hears of them as they come and go.
    pub fn watch(&self) -> ApprovalWatch {
        self.sandbox.engine().watch_approvals()
    }

    /// Answers this request, as it was seen. The first answer counts; a later one is
    /// [`Conflict`](crate::ErrorCode::Conflict).
    pub async fn decide(&self, request: &ApprovalRequest, answer: Answer) -> Result<Decision, RequestError> {
        let (sandbox, id, digest) = (self.sandbox.clone(), request.id.clone(), request.digest());
        let deciding = self.sandbox.inner.runtime.spawn(async move {
            let (engine, by) = (sandbox.engine(), sandbox.caller());
            engine.decide_approval(by, &id, &digest, answer).await
        });
        deciding.await.map_err(|_| runtime_ended())?
    }
}
