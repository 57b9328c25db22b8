//! Protocol sessions of one principal (handshake revisions). The library's own limit of idle time ends a session with a
//! call in flight, and it has no limit of their number; both are kept here. An open answer keeps a session, an open
//! stream of notifications keeps it from the limit of time only: gateways open a session for each call and leave it.

use crate::{lock::lock, mcp::service::SessionEnd};
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

/// How often idle sessions are looked for, of the time that makes them idle.
const LOOKS_PER_IDLE_TIME: u32 = 4;

pub(super) struct ProtocolSessions {
    local: LocalSessionManager,
    known: Arc<Mutex<HashMap<SessionId, Use>>>,
    /// Held while one more is made, so that many at once are not too many.
    making: tokio::sync::Mutex<()>,
    max: usize,
    idle: Duration,
}

struct Use {
    last: Instant,
    /// Each answer on its way has a clone of it, and each stream of the other.
    answers: Arc<()>,
    streams: Arc<()>,
    /// Tells its calls of its end, which the library does only seconds after.
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

    /// By its name in a header.
    pub(super) fn knows(&self, name: Option<&HeaderValue>) -> bool {
        let id = name.and_then(|name| name.to_str().ok());
        id.is_some_and(|id| lock(&self.known).contains_key(id))
    }

    /// Ends the session without a call that was unused for longest, if there are too many for another. False: all
    /// have calls on their way.
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

    /// Ends sessions that are idle, until it is dropped.
    pub(super) async fn watch(self: Arc<Self>) {
        let mut ticks = interval((self.idle / LOOKS_PER_IDLE_TIME).max(Duration::from_millis(100)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let is_idle = |used: &Use| {
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

    fn begin(&self, id: &SessionId, count: fn(&Use) -> &Arc<()>) -> InUse {
        let held = lock(&self.known).get_mut(id).map(|used| {
            used.last = Instant::now();
            count(used).clone()
        });
        InUse {
            known: self.known.clone(),
            id: id.clone(),
            held,
        }
    }
}

/// An answer or a stream of a session, while it is open.
pub(super) struct InUse {
    known: Arc<Mutex<HashMap<SessionId, Use>>>,
    id: SessionId,
    held: Option<Arc<()>>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut known = lock(&self.known);
        // Before anybody else looks: what is not held may be ended to make room.
        self.held = None;
        if let Some(used) = known.get_mut(&self.id) {
            used.last = Instant::now();
        }
    }
}

pub(super) struct Used<S> {
    stream: Pin<Box<S>>,
    _use: InUse,
}

impl<S> Used<S> {
    fn new(stream: S, in_use: InUse) -> Self {
        Self {
            stream: Box::pin(stream),
            _use: in_use,
        }
    }
}

impl<S: Stream> Stream for Used<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.stream.as_mut().poll_next(context)
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
        let used = Use {
            last: Instant::now(),
            answers: Arc::default(),
            streams: Arc::default(),
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
        let in_use = self.begin(id, |used| &used.answers);
        if let Some(used) = lock(&self.known).get(id) {
            message.insert_extension(SessionEnd(used.ended.token().clone()));
        }
        Ok(Used::new(self.local.create_stream(id, message).await?, in_use))
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let in_use = self.begin(id, |used| &used.streams);
        Ok(Used::new(self.local.create_standalone_stream(id).await?, in_use))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let in_use = self.begin(id, |used| &used.streams);
        Ok(Used::new(self.local.resume(id, last_event_id).await?, in_use))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        let _use = self.begin(id, |used| &used.answers);
        self.local.accept_message(id, message).await
    }
}
