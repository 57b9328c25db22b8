//! The order of calls of one session: they reach the engine in the order in which the client has sent them. The
//! protocol library answers each message in its own task, and tasks begin in any order; so a call gets a ticket here,
//! where messages are read one after the other, and its handler waits for its turn before it calls the engine.

use crate::{
    api::{ExecuteCode, Operation as _},
    lock::lock,
};
use ringfence_types::SessionId;
use rmcp::{
    RoleServer,
    model::{ClientRequest, JsonRpcMessage},
    service::RxJsonRpcMessage,
};
use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex as Plain, Weak},
    task::{Context, Poll, Waker},
};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// With this many queues, those of sessions without waiting calls are dropped.
const QUEUES_MAX: usize = 256;

#[derive(Default)]
pub(super) struct CallOrder {
    /// Queues by session. The session need not exist; an id that no session can have is not kept.
    queues: HashMap<SessionId, Weak<Mutex<()>>>,
}

type Waiting = Pin<Box<dyn Future<Output = OwnedMutexGuard<()>> + Send>>;

/// The place of one call in its session's queue; given up when dropped.
#[derive(Clone)]
pub(super) struct Ticket(Arc<Plain<Option<Waiting>>>);

impl Ticket {
    fn last_in(queue: &Arc<Mutex<()>>) -> Self {
        let mut waiting: Waiting = Box::pin(queue.clone().lock_owned());
        // The first poll takes the place; the handler polls again.
        if let Poll::Ready(first) = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            waiting = Box::pin(std::future::ready(first));
        }
        Self(Arc::new(Plain::new(Some(waiting))))
    }

    /// Waits until all earlier calls have reached the engine. Later ones wait until the guard is dropped.
    pub(super) async fn turn(&self) -> Option<OwnedMutexGuard<()>> {
        let waiting = lock(&self.0).take()?;
        Some(waiting.await)
    }
}

impl CallOrder {
    pub(super) fn enqueue(&mut self, message: &mut RxJsonRpcMessage<RoleServer>) {
        let JsonRpcMessage::Request(request) = message else {
            return;
        };
        let ClientRequest::CallToolRequest(call) = &mut request.request else {
            return;
        };
        let arguments = call.params.arguments.as_ref();
        let session = arguments.and_then(|arguments| arguments.get("session_id")?.as_str()?.parse().ok());
        let Some(session) = session.filter(|_| call.params.name == ExecuteCode::NAME) else {
            return;
        };
        if self.queues.len() >= QUEUES_MAX {
            self.queues.retain(|_, queue| queue.strong_count() > 0);
        }
        let known = self.queues.get(&session).and_then(Weak::upgrade);
        let queue = known.unwrap_or_else(|| {
            let queue = Arc::new(Mutex::new(()));
            self.queues.insert(session, Arc::downgrade(&queue));
            queue
        });
        call.extensions.insert(Ticket::last_in(&queue));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_execute_code_with_a_possible_session_id_is_queued() {
        let mut order = CallOrder::default();
        let mut enqueue_call = |tool: &str, session: &str| {
            let params = json!({"name": tool, "arguments": {"session_id": session, "code": "1"}});
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            let mut message = serde_json::from_value(message).unwrap();
            order.enqueue(&mut message);
            let JsonRpcMessage::Request(request) = message else {
                panic!("a request")
            };
            let ClientRequest::CallToolRequest(call) = request.request else {
                panic!("a call")
            };
            (call.extensions.get::<Ticket>().is_some(), order.queues.len())
        };
        let session = "01a20080-6a8c-73bf-a9e9-0b9a29a0b8f0";
        assert_eq!(enqueue_call("execute_code", &"x".repeat(1 << 20)), (false, 0));
        assert_eq!(enqueue_call("interrupt_session", session), (false, 0));
        assert_eq!(enqueue_call("execute_code", session), (true, 1));
        assert_eq!(enqueue_call("execute_code", session), (true, 1));
        for number in 0..2 * QUEUES_MAX {
            let session = format!("01a20080-6a8c-73bf-a9e9-{number:012x}");
            assert!(enqueue_call("execute_code", &session).1 <= QUEUES_MAX);
        }
    }

    #[tokio::test]
    async fn turns_follow_the_order_of_tickets() {
        let queue = Arc::new(Mutex::new(()));
        let [first, given_up, second] = [0; 3].map(|_| Ticket::last_in(&queue));
        let later = tokio::spawn(async move { second.turn().await.is_some() });
        drop(given_up);
        tokio::task::yield_now().await;
        assert!(!later.is_finished());
        let turn = first.turn().await;
        tokio::task::yield_now().await;
        assert!(!later.is_finished());
        drop(turn);
        assert!(later.await.unwrap());
        assert!(first.turn().await.is_none());
    }
}
