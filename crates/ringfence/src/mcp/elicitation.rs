//! What a program asks for while it runs, put to the user of the client whose call runs it: in the handshake revisions,
//! where the server may ask while a call is on its way. In revision 2026-07-28 a question is a result, which ends the
//! call; there the operator is asked. The first answer counts, from whichever channel.

use super::request_egress::{Dialogue, decide, elicitation, form, take_back, understood};
use ringfence_engine::{Answer as Said, ApprovalRequest, ApprovalWatch, Caller, Engine};
use rmcp::{
    Peer, RoleServer,
    model::{ClientResult, ServerRequest},
    service::{PeerRequestOptions, RequestContext, ServiceError},
};
use std::{collections::BTreeSet, time::Duration};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long the result of a call waits for its dialogues to be taken back; after that it goes ahead of them.
const TAKING_BACK: Duration = Duration::from_millis(500);

/// The dialogues of one call. Dropped, no more are opened.
pub(super) struct Dialogues {
    over: DropGuard,
    attending: JoinHandle<()>,
}

#[derive(Clone)]
struct Elicitor {
    engine: Engine,
    caller: Caller,
    peer: Peer<RoleServer>,
    execution: String,
}

impl Dialogues {
    /// None: this client's user cannot be asked while the call runs.
    pub(super) fn begin(
        engine: &Engine,
        caller: &Caller,
        execution: &str,
        context: &RequestContext<RoleServer>,
    ) -> Option<Self> {
        if Dialogue::of(context) != Dialogue::Request {
            return None;
        }
        let asker = Elicitor {
            engine: engine.clone(),
            caller: caller.clone(),
            peer: context.peer.clone(),
            execution: execution.to_owned(),
        };
        let over = CancellationToken::new();
        Some(Self {
            attending: tokio::spawn(asker.attend(over.clone())),
            over: over.drop_guard(),
        })
    }

    /// The call has ended, and what it asked is asked no more. Its task goes on until every dialogue is taken back, or
    /// the client is gone: a dialogue that stays open would be answered in vain.
    pub(super) async fn end(self) {
        drop(self.over);
        if tokio::time::timeout(TAKING_BACK, self.attending).await.is_err() {
            tracing::debug!("the dialogues of a call are taken back after its result");
        }
    }
}

impl Elicitor {
    async fn attend(self, over: CancellationToken) {
        let mut watch = self.engine.watch_approvals();
        let (mut known, mut asking) = (BTreeSet::new(), JoinSet::new());
        loop {
            for request in watch.pending() {
                let is_ours = request.execution_id.as_ref() == Some(&self.execution);
                if is_ours && known.insert(request.id.clone()) {
                    asking.spawn(self.clone().ask(request));
                }
            }
            tokio::select! {
                more = watch.changed() => if !more { break },
                Some(_) = asking.join_next() => {}
                () = over.cancelled() => break,
            }
        }
        // The run's questions end with it, and their dialogues see that.
        while asking.join_next().await.is_some() {}
    }

    async fn ask(self, request: ApprovalRequest) {
        let minutes = self.engine.approval_lasts_max().as_secs() / 60;
        let asked = ServerRequest::ElicitRequest(elicitation(form(&request, minutes)));
        let options = PeerRequestOptions::no_options();
        let Ok(mut handle) = self.peer.send_cancellable_request(asked, options).await else {
            return;
        };
        let answered = tokio::select! {
            () = gone(self.engine.watch_approvals(), &request.id) => {
                take_back(handle).await;
                return;
            }
            answered = &mut handle.rx => answered,
        };
        let answer = match answered {
            Ok(Ok(ClientResult::ElicitResult(said))) => understood(&said, &request),
            // It cannot ask, though it said that it could; others may answer.
            Ok(Err(ServiceError::McpError(_))) => return,
            _ => Said::Deny,
        };
        decide(&self.engine, &self.caller, &request, answer).await;
    }
}

/// Until this request does not wait any more.
async fn gone(mut watch: ApprovalWatch, id: &str) {
    while watch.pending().iter().any(|request| request.id == id) {
        if !watch.changed().await {
            return;
        }
    }
}
