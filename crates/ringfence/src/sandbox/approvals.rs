//! Asking whoever may approve what programs may not have by themselves, and answering.

use super::Sandbox;
use ringfence_engine::{Answer, ApprovalRequest, ApprovalWatch, Decision, EgressWish};
use ringfence_types::{ErrorCode, RequestError};

impl Sandbox {
    /// Asks whether programs may reach a host, and waits for the answer: of [`SandboxBuilder::on_approval`], of
    /// [`Approvals::decide`], or of whoever else of them is first. Without one in time it is denied. A caller who stops waiting
    /// withdraws the request.
    ///
    /// [`SandboxBuilder::on_approval`]: crate::SandboxBuilder::on_approval
    pub async fn request_egress(&self, wish: EgressWish) -> Result<Decision, RequestError> {
        let sandbox = self.clone();
        // Its clock runs where the sandbox lives, whoever calls.
        let asking = self.life.runtime.spawn(async move {
            let Sandbox { life } = &sandbox;
            life.engine.request_egress(&life.caller, wish).await
        });
        let mut waiting = asking.await.map_err(|_| runtime_ended())??;
        Ok(waiting.decided().await)
    }

    /// What waits for an answer, of all namespaces. Programs and models have no way here.
    pub fn approvals(&self) -> Approvals<'_> {
        Approvals { sandbox: self }
    }
}

/// Requests for approval, for whoever answers them.
#[derive(Clone, Copy, Debug)]
pub struct Approvals<'a> {
    sandbox: &'a Sandbox,
}

impl Approvals<'_> {
    /// Those that wait, the oldest first.
    pub async fn pending(&self) -> Result<Vec<ApprovalRequest>, RequestError> {
        let Sandbox { life } = self.sandbox;
        life.engine.approvals(&life.caller).await
    }

    /// Hears of them as they come and go.
    pub fn watch(&self) -> ApprovalWatch {
        self.sandbox.engine().watch_approvals()
    }

    /// Answers this request, as it was seen. The first answer counts; a later one is [`ErrorCode::Conflict`].
    pub async fn decide(&self, request: &ApprovalRequest, answer: Answer) -> Result<Decision, RequestError> {
        let (sandbox, id, digest) = (self.sandbox.clone(), request.id.clone(), request.digest());
        let deciding = self.sandbox.life.runtime.spawn(async move {
            let Sandbox { life } = &sandbox;
            life.engine
                .decide_approval(&life.caller, &id, &digest, answer)
                .await
        });
        deciding.await.map_err(|_| runtime_ended())?
    }
}

fn runtime_ended() -> RequestError {
    RequestError::new(
        ErrorCode::SandboxFault,
        "the runtime that the sandbox was built on has ended.",
        "Build another sandbox.",
    )
}
