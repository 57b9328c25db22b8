//! Calls of one session take their turns in the order in which the client has sent them. The protocol's library answers
//! each message in a task of its own, and tasks begin in any order; so a call gets its place here, where messages are
//! read one after the other, and its handler waits for that place before it asks the engine.

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

/// The lines of sessions whose calls are all under way are forgotten when there are more than this.
const LINES_MAX: usize = 256;

/// Gives each call of a session its place in line.
#[derive(Default)]
pub(super) struct CallOrder {
    /// By session. Whether there is such a session is for others to say; a name that none can have is not kept.
    lines: HashMap<SessionId, Weak<Mutex<()>>>,
}

type Waiting = Pin<Box<dyn Future<Output = OwnedMutexGuard<()>> + Send>>;

/// The place of one call; given up when dropped.
#[derive(Clone)]
pub(super) struct Arrival(Arc<Plain<Option<Waiting>>>);

impl Arrival {
    /// The last of a line.
    fn behind(line: &Arc<Mutex<()>>) -> Self {
        let mut waiting: Waiting = Box::pin(line.clone().lock_owned());
        // Asked once, it has its place; its handler polls again.
        if let Poll::Ready(first) = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            waiting = Box::pin(std::future::ready(first));
        }
        Self(Arc::new(Plain::new(Some(waiting))))
    }

    /// Waits until all that came before have asked the engine, and keeps those behind waiting until it is dropped.
    pub(super) async fn turn(&self) -> Option<OwnedMutexGuard<()>> {
        let waiting = lock(&self.0).take();
        match waiting {
            Some(waiting) => Some(waiting.await),
            None => None,
        }
    }
}

impl CallOrder {
    pub(super) fn line_up(&mut self, message: &mut RxJsonRpcMessage<RoleServer>) {
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
        if self.lines.len() >= LINES_MAX {
            self.lines.retain(|_, line| line.strong_count() > 0);
        }
        let known = self.lines.get(&session).and_then(Weak::upgrade);
        let line = known.unwrap_or_else(|| {
            let line = Arc::new(Mutex::new(()));
            self.lines.insert(session, Arc::downgrade(&line));
            line
        });
        call.extensions.insert(Arrival::behind(&line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_call_of_what_may_be_a_session_stands_in_line() {
        let mut order = CallOrder::default();
        let mut stands = |tool: &str, session: &str| {
            let params = json!({"name": tool, "arguments": {"session_id": session, "code": "1"}});
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            let mut message = serde_json::from_value(message).unwrap();
            order.line_up(&mut message);
            let JsonRpcMessage::Request(request) = message else {
                panic!("a request")
            };
            let ClientRequest::CallToolRequest(call) = request.request else {
                panic!("a call")
            };
            (call.extensions.get::<Arrival>().is_some(), order.lines.len())
        };
        let session = "01a20080-6a8c-73bf-a9e9-0b9a29a0b8f0";
        assert_eq!(stands("execute_code", &"x".repeat(1 << 20)), (false, 0));
        assert_eq!(stands("interrupt_session", session), (false, 0));
        assert_eq!(stands("execute_code", session), (true, 1));
        assert_eq!(stands("execute_code", session), (true, 1));
        for number in 0..2 * LINES_MAX {
            let session = format!("01a20080-6a8c-73bf-a9e9-{number:012x}");
            assert!(stands("execute_code", &session).1 <= LINES_MAX);
        }
    }

    #[tokio::test]
    async fn whoever_came_first_is_first_whoever_asks_first() {
        let line = Arc::new(Mutex::new(()));
        let [first, given_up, second] = [0; 3].map(|_| Arrival::behind(&line));
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
