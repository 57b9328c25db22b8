//! Protocol sessions of one principal (handshake revisions), with limits of number and idle time: `rmcp` has no limit
//! of number, and its idle limit also ends a session with a call in flight. An open response protects from both, an
//! open stream of notifications only from the idle limit: gateways open and abandon a session for each call.

use crate::{
    lock::lock,
    mcp::{
        request_ids::{RequestIds, client_id, restore},
        service::SessionEnd,
    },
};
use futures_core::Stream;
use hyper::header::HeaderValue;
use rmcp::{
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::{
        WorkerTransport,
        streamable_http_server::session::{
            ServerSseMessage, SessionId, SessionManager,
            local::{LocalSessionManager, LocalSessionManagerError, LocalSessionWorker, SessionError},
        },
    },
};
use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Checks for idle sessions in each idle time.
const CHECKS_PER_IDLE_TIME: u32 = 4;

pub(super) struct ProtocolSessions {
    local: LocalSessionManager,
    known: Arc<Mutex<HashMap<SessionId, SessionUse>>>,
    /// Locked while a session is made, so that concurrent requests do not exceed the limit.
    making: tokio::sync::Mutex<()>,
    max: usize,
    idle: Duration,
}

struct SessionUse {
    last: Instant,
    /// Cloned by each response in progress.
    answers: Arc<()>,
    /// Cloned by each open stream of notifications.
    streams: Arc<()>,
    ids: RequestIds,
    /// Cancels the calls when the session ends; the library does so only seconds later.
    ended: DropGuard,
}

fn is_unused(count: &Arc<()>) -> bool {
    Arc::strong_count(count) == 1
}

impl ProtocolSessions {
    pub(super) fn new(max: usize, idle: Duration) -> Self {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = None;
        Self {
            local,
            known: Arc::default(),
            making: tokio::sync::Mutex::default(),
            max,
            idle,
        }
    }

    pub(super) fn knows(&self, header: Option<&HeaderValue>) -> bool {
        let id = header.and_then(|id| id.to_str().ok());
        id.is_some_and(|id| lock(&self.known).contains_key(id))
    }

    /// At the limit, ends the least recently used session without a call in progress. False: all have one.
    pub(super) async fn make_room(&self) -> bool {
        let oldest = {
            let known = lock(&self.known);
            if known.len() < self.max {
                return true;
            }
            let unused = known.iter().filter(|(_, used)| is_unused(&used.answers));
            unused.min_by_key(|(_, used)| used.last).map(|(id, _)| id.clone())
        };
        match oldest {
            Some(id) => {
                self.end(&id).await;
                true
            }
            None => false,
        }
    }

    pub(super) async fn watch(self: Arc<Self>) {
        let mut ticks = interval((self.idle / CHECKS_PER_IDLE_TIME).max(Duration::from_millis(100)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let is_idle = |used: &SessionUse| {
                is_unused(&used.answers) && is_unused(&used.streams) && used.last.elapsed() >= self.idle
            };
            let idle: Vec<SessionId> = {
                let known = lock(&self.known);
                let idle = known.iter().filter(|(_, used)| is_idle(used));
                idle.map(|(id, _)| id.clone()).collect()
            };
            for id in idle {
                self.end(&id).await;
            }
        }
    }

    async fn end(&self, id: &SessionId) {
        if let Err(error) = self.close_session(id).await {
            tracing::debug!(%error, "a protocol session did not end as it should");
        }
    }

    fn begin(&self, id: &SessionId, count: fn(&SessionUse) -> &Arc<()>) -> UsageGuard {
        let held = lock(&self.known).get_mut(id).map(|used| {
            used.last = Instant::now();
            count(used).clone()
        });
        UsageGuard {
            known: self.known.clone(),
            id: id.clone(),
            held,
        }
    }
}

pub(super) struct UsageGuard {
    known: Arc<Mutex<HashMap<SessionId, SessionUse>>>,
    id: SessionId,
    held: Option<Arc<()>>,
}

impl Drop for UsageGuard {
    fn drop(&mut self) {
        let mut known = lock(&self.known);
        // Released under the lock, together with `last`: an unused session may be ended to make room.
        self.held = None;
        if let Some(used) = known.get_mut(&self.id) {
            used.last = Instant::now();
        }
    }
}

pub(super) struct Guarded<S> {
    /// None: the request was refused.
    stream: Option<Pin<Box<S>>>,
    refusal: Option<ServerJsonRpcMessage>,
    _guard: UsageGuard,
}

impl<S> Guarded<S> {
    fn new(stream: S, guard: UsageGuard) -> Self {
        Self {
            stream: Some(Box::pin(stream)),
            refusal: None,
            _guard: guard,
        }
    }
}

impl<S: Stream<Item = ServerSseMessage>> Stream for Guarded<S> {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(self.refusal.take().map(ServerSseMessage::from_message));
        };
        let mut polled = stream.as_mut().poll_next(context);
        if let Poll::Ready(Some(event)) = &mut polled
            && let Some(message) = &mut event.message
            && client_id(message).is_some()
        {
            restore(Arc::make_mut(message));
        }
        polled
    }
}

impl SessionManager for ProtocolSessions {
    type Error = LocalSessionManagerError;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let _making = self.making.lock().await;
        if !self.make_room().await {
            return Err(SessionError::SessionServiceTerminated.into());
        }
        let (id, transport) = self.local.create_session().await?;
        let used = SessionUse {
            last: Instant::now(),
            answers: Arc::default(),
            streams: Arc::default(),
            ids: RequestIds::default(),
            ended: CancellationToken::new().drop_guard(),
        };
        let open = {
            let mut known = lock(&self.known);
            known.insert(id.clone(), used);
            known.len()
        };
        tracing::debug!(open, "a protocol session has begun");
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.local.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.local.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        if lock(&self.known).remove(id).is_some() {
            tracing::debug!("a protocol session has ended");
        }
        self.local.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let guard = self.begin(id, |used| &used.answers);
        if let Some(used) = lock(&self.known).get_mut(id) {
            message.insert_extension(SessionEnd(used.ended.token().clone()));
            if let Err(error) = used.ids.replace(&mut message) {
                return Ok(Guarded {
                    stream: None,
                    refusal: Some(ServerJsonRpcMessage::error(error, None)),
                    _guard: guard,
                });
            }
        }
        Ok(Guarded::new(self.local.create_stream(id, message).await?, guard))
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let guard = self.begin(id, |used| &used.streams);
        let stream = self.local.create_standalone_stream(id).await?;
        Ok(Guarded::new(stream, guard))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let guard = self.begin(id, |used| &used.streams);
        Ok(Guarded::new(self.local.resume(id, last_event_id).await?, guard))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        let _guard = self.begin(id, |used| &used.answers);
        if let Some(used) = lock(&self.known).get_mut(id) {
            // Only requests are refused.
            drop(used.ids.replace(&mut message));
        }
        self.local.accept_message(id, message).await
    }
}
