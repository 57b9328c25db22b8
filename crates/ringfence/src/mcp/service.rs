//! The server of one client: created once for standard input and output, and over HTTP for each session of the
//! handshake revisions and each request of revision 2026-07-28. All servers of one principal share a factory's state.

use super::{Offer, request_state::RequestStates, startup::Starting};
use hyper::http::request::Parts;
use ringfence_engine::{Caller, Engine};
use ringfence_types::{ErrorCode, RequestError};
use rmcp::{RoleServer, service::RequestContext};
use std::{
    any::Any,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// An extension of requests whose principal may request approvals but not give them: its client is not asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MayNotApprove;

/// Answers with content of more than [`SMALL_BYTES_MAX`] that one principal may have in memory. Others, whose size is
/// not known before they are made, wait.
const LARGE_ANSWERS_MAX: usize = 4;
const LARGE_ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const SMALL_BYTES_MAX: usize = 1 << 20;

/// An extension of a request: permits that are released when its call has ended and its answer has been sent.
#[derive(Clone, Default)]
pub(crate) struct UntilSent(Arc<HeldPermits>);

#[derive(Default)]
struct HeldPermits {
    large: OnceLock<OwnedSemaphorePermit>,
    _of_request: Option<Box<dyn Any + Send + Sync>>,
}

impl UntilSent {
    pub(crate) fn holding(of_request: impl Any + Send + Sync) -> Self {
        Self(Arc::new(HeldPermits {
            _of_request: Some(Box::new(of_request)),
            ..HeldPermits::default()
        }))
    }
}

/// Room for an answer while it is made.
pub(super) struct LargeAnswer {
    permit: OwnedSemaphorePermit,
    until_sent: Option<UntilSent>,
}

impl LargeAnswer {
    /// Keeps the room until the answer has been sent, if its content is large.
    pub(super) fn keep_for(self, bytes: usize) {
        if bytes > SMALL_BYTES_MAX
            && let Some(UntilSent(held)) = self.until_sent
        {
            held.large.get_or_init(|| self.permit);
        }
    }
}

/// An extension of a request of a protocol session, cancelled when the session ends.
#[derive(Clone, Debug)]
pub(crate) struct SessionEnd(pub(crate) CancellationToken);

pub(super) fn may_approve(context: &RequestContext<RoleServer>) -> bool {
    let parts = context.extensions.get::<Parts>();
    parts.is_none_or(|parts| parts.extensions.get::<MayNotApprove>().is_none())
}

/// The state that all servers of one principal share.
#[derive(Clone)]
pub(crate) struct ServerFactory {
    pub(super) offer: Offer,
    engine: Starting,
    /// The principal that is served; `None`: the one client of standard input and output.
    principal: Option<Arc<str>>,
    /// Requests whose answers the client returns with a request state.
    pub(super) request_states: Arc<RequestStates>,
    large_answers: Arc<Semaphore>,
    /// Once cancelled, new calls are refused.
    pub(crate) closing: CancellationToken,
    /// Cancels every call of this principal.
    pub(crate) gone: CancellationToken,
}

pub(crate) struct Server {
    pub(super) shared: ServerFactory,
    pub(super) gone: CancellationToken,
    /// Sends events to a client of the handshake revisions, once it has set a level.
    pub(super) forwarder: Arc<Mutex<Option<AbortHandle>>>,
    /// Ends the tasks of this client beside its calls.
    _end: Option<DropGuard>,
}

impl ServerFactory {
    pub(crate) fn new(offer: Offer, engine: Starting, principal: Option<Arc<str>>) -> Self {
        Self {
            offer,
            engine,
            principal,
            request_states: Arc::default(),
            large_answers: Arc::new(Semaphore::new(LARGE_ANSWERS_MAX)),
            closing: CancellationToken::new(),
            gone: CancellationToken::new(),
        }
    }

    pub(crate) fn make(&self) -> Server {
        let gone = self.gone.child_token();
        let end = Some(gone.clone().drop_guard());
        self.server(gone, end)
    }

    /// `gone`: cancelled when the client has left.
    pub(super) fn server(&self, gone: CancellationToken, end: Option<DropGuard>) -> Server {
        Server {
            shared: self.clone(),
            gone,
            forwarder: Arc::default(),
            _end: end,
        }
    }
}

impl Server {
    pub(super) fn offer(&self) -> &Offer {
        &self.shared.offer
    }

    pub(super) async fn engine(&self) -> Result<Engine, RequestError> {
        if self.shared.closing.is_cancelled() {
            return Err(RequestError::new(
                ErrorCode::Busy,
                "the server is stopping and takes no new calls.",
                "Call again when it has started again.",
            ));
        }
        let stopping =
            || RequestError::new(ErrorCode::Cancelled, "the server is stopping.", "Start it again.");
        let mut engine = self.shared.engine.clone();
        let started = tokio::select! {
            // A call that was read before the client left is still handled.
            biased;
            started = engine.wait_for(Option::is_some) => started.map_err(|_| stopping())?.clone(),
            () = self.gone.cancelled() => None,
        };
        started.unwrap_or_else(|| Err(stopping()))
    }

    /// Waits until there is room for an answer that may be large.
    pub(super) async fn large_answer(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> Result<LargeAnswer, RequestError> {
        let of_http = || context.extensions.get::<Parts>()?.extensions.get::<UntilSent>();
        let until_sent = context.extensions.get().or_else(of_http).cloned();
        let room = self.shared.large_answers.clone().acquire_owned();
        let room = timeout(LARGE_ANSWER_TIMEOUT, room);
        match context.ct.run_until_cancelled(room).await {
            Some(Ok(Ok(permit))) => Ok(LargeAnswer { permit, until_sent }),
            Some(_) => Err(RequestError::new(
                ErrorCode::Busy,
                "large answers that clients have not read yet take all room.",
                "Read the earlier answers to their end, then ask again.",
            )),
            None => Err(RequestError::new(
                ErrorCode::Cancelled,
                "the call was cancelled while earlier large answers were being sent.",
                "Ask again when it is wanted.",
            )),
        }
    }

    /// Returns the caller for the audit record. A client's own name comes last, and cannot pass for a principal.
    pub(super) fn caller(&self, context: &RequestContext<RoleServer>) -> Caller {
        let client = context.meta.client_info();
        let client = client.or_else(|| context.peer.peer_info().map(|info| info.client_info.clone()));
        let by = match client {
            Some(client) => format!("mcp {} {}", client.name, client.version),
            None => "mcp".to_owned(),
        };
        let caller = match &self.shared.principal {
            Some(principal) => Caller::new(&format!("principal {principal}, {by}")),
            None => Caller::new(&by),
        };
        caller.with_caps(&self.offer().limits)
    }
}
