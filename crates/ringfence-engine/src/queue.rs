//! Who runs when. So many at once; so many waiting; among those who wait, namespaces take turns, so that one tenant's
//! flood delays itself. A place is given back when its [`Permit`] is dropped.

use crate::settings::QueueSettings;
use ringfence_types::{ErrorCode, Namespace, RequestError};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};
use tokio::sync::oneshot;

/// The queue; clones share it.
#[derive(Clone)]
pub(crate) struct Queue {
    shared: Arc<Mutex<State>>,
}

struct State {
    settings: QueueSettings,
    running: usize,
    waiting: usize,
    lines: HashMap<Namespace, VecDeque<oneshot::Sender<Permit>>>,
    /// Namespaces with somebody waiting, in the order of their turns.
    turns: VecDeque<Namespace>,
    /// Smoothed time that a permit is held.
    held_ms: f64,
}

/// A place among those who run.
pub(crate) struct Permit {
    /// None: the place was handed on.
    queue: Option<Queue>,
    since: Instant,
}

impl Queue {
    pub(crate) fn new(settings: QueueSettings) -> Self {
        let state = State {
            settings,
            running: 0,
            waiting: 0,
            lines: HashMap::new(),
            turns: VecDeque::new(),
            held_ms: 100.0,
        };
        Self {
            shared: Arc::new(Mutex::new(state)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place. A full queue is refused at once, with the time after which a place is likely.
    pub(crate) async fn admit(&self, namespace: &Namespace) -> Result<Permit, RequestError> {
        let waiter = {
            let mut state = self.state();
            if state.running < state.settings.concurrency {
                state.running += 1;
                return Ok(self.permit());
            }
            if state.waiting >= state.settings.waiting {
                return Err(busy(&state));
            }
            state.join(namespace)
        };
        waiter.await.map_err(|_| {
            RequestError::new(ErrorCode::Cancelled, "the server is stopping.", "Start it again.")
        })
    }

    fn permit(&self) -> Permit {
        Permit {
            queue: Some(self.clone()),
            since: Instant::now(),
        }
    }

    /// Running and waiting.
    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        let state = self.state();
        (state.running, state.waiting)
    }
}

impl State {
    fn join(&mut self, namespace: &Namespace) -> oneshot::Receiver<Permit> {
        let (give, take) = oneshot::channel();
        self.waiting += 1;
        let line = self.lines.entry(namespace.clone()).or_default();
        if line.is_empty() {
            self.turns.push_back(namespace.clone());
        }
        line.push_back(give);
        take
    }

    /// The next in turn.
    fn next(&mut self) -> Option<oneshot::Sender<Permit>> {
        let namespace = self.turns.pop_front()?;
        let line = self.lines.get_mut(&namespace)?;
        let next = line.pop_front();
        if line.is_empty() {
            self.lines.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        self.waiting -= usize::from(next.is_some());
        next
    }
}

fn busy(state: &State) -> RequestError {
    let ahead =
        f64::from(u32::try_from(state.waiting / state.settings.concurrency.max(1) + 1).unwrap_or(u32::MAX));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to a minute"
    )]
    let retry_after_ms = (state.held_ms * ahead).clamp(50.0, 60_000.0) as u64;
    let mut error = RequestError::new(
        ErrorCode::Busy,
        format!(
            "{} programs run and {} requests wait.",
            state.running, state.waiting
        ),
        format!("Try again in {retry_after_ms} ms."),
    );
    error.retry_after_ms = Some(retry_after_ms);
    error
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(queue) = self.queue.take() else { return };
        let held_ms = self.since.elapsed().as_secs_f64() * 1000.0;
        loop {
            let next = {
                let mut state = queue.state();
                state.held_ms = state.held_ms * 0.9 + held_ms * 0.1;
                let next = state.next();
                if next.is_none() {
                    state.running -= 1;
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(queue.permit()) {
                Ok(()) => return,
                // That one has gone away; the place goes to the one behind it.
                Err(mut refused) => refused.queue = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(concurrency: usize, waiting: usize) -> Queue {
        Queue::new(QueueSettings { concurrency, waiting })
    }

    fn name(text: &str) -> Namespace {
        Namespace::try_from(text.to_owned()).unwrap()
    }

    #[tokio::test]
    async fn a_full_queue_says_when_to_come_back() {
        let queue = queue(1, 0);
        let held = queue.admit(&name("a")).await.ok().unwrap();
        let refused = queue.admit(&name("a")).await.err().unwrap();
        assert_eq!(refused.code, ErrorCode::Busy);
        assert!(refused.retry_after_ms.unwrap() >= 50);
        drop(held);
        assert!(queue.admit(&name("a")).await.is_ok());
    }

    #[tokio::test]
    async fn namespaces_take_turns() {
        let queue = queue(1, 10);
        let held = queue.admit(&name("a")).await.ok().unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for who in ["flood", "flood", "flood", "quiet"] {
            let (queue_of_task, order) = (queue.clone(), order.clone());
            let before = queue.counts().1;
            tasks.push(tokio::spawn(async move {
                let permit = queue_of_task.admit(&name(who)).await.ok().unwrap();
                order.lock().unwrap().push(who);
                drop(permit);
            }));
            while queue.counts().1 == before {
                tokio::task::yield_now().await;
            }
        }
        drop(held);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["flood", "quiet", "flood", "flood"]);
        assert_eq!(queue.counts(), (0, 0));
    }

    #[tokio::test]
    async fn a_waiter_that_goes_away_loses_no_place() {
        let queue = queue(1, 10);
        let held = queue.admit(&name("a")).await.ok().unwrap();
        let (second, third) = (queue.clone(), queue.clone());
        let gone = tokio::spawn(async move { second.admit(&name("a")).await.is_ok() });
        while queue.counts().1 < 1 {
            tokio::task::yield_now().await;
        }
        let stays = tokio::spawn(async move { third.admit(&name("a")).await.is_ok() });
        while queue.counts().1 < 2 {
            tokio::task::yield_now().await;
        }
        gone.abort();
        assert!(gone.await.is_err());
        drop(held);
        assert!(stays.await.unwrap());
        assert_eq!(queue.counts(), (0, 0));
    }
}
