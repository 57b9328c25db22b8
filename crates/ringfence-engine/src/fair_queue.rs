//! Whose turn it is, where few may go at once and each may take long. A namespace never has all the seats where there
//! is more than one, of those who wait the one with fewer goes first, and so many of a namespace may ask, and no more.

use ringfence_types::Namespace;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

/// How many at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FairLimits {
    pub(crate) seats: usize,
    /// Of one namespace among them.
    pub(crate) seats_of_one: usize,
    /// Those who wait, and those who sit.
    pub(crate) asking: usize,
    /// Of one namespace among them.
    pub(crate) asking_of_one: usize,
}

pub(crate) struct FairQueue {
    bounds: FairLimits,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    asking: HashMap<Namespace, usize>,
    taken: HashMap<Namespace, usize>,
    /// Who wants a seat, in the order in which they came.
    waiting: VecDeque<(u64, Namespace)>,
    last: u64,
}

/// One request that may wait.
pub(crate) struct Ticket<'a> {
    seats: &'a FairQueue,
    namespace: Namespace,
}

/// One that wants a seat; dropped, it does no more.
struct Waiting<'a> {
    seats: &'a FairQueue,
    number: u64,
}

/// A seat that is taken.
pub(crate) struct FairPermit<'a> {
    seats: &'a FairQueue,
    namespace: Namespace,
}

impl FairQueue {
    pub(crate) fn new(bounds: FairLimits) -> Self {
        Self {
            bounds,
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// None: too many ask already.
    pub(crate) fn ask(&self, namespace: &Namespace) -> Option<Ticket<'_>> {
        let mut state = self.state();
        let all: usize = state.asking.values().sum();
        let own = state.asking.get(namespace).copied().unwrap_or(0);
        if all >= self.bounds.asking || own >= self.bounds.asking_of_one {
            return None;
        }
        state.asking.insert(namespace.clone(), own + 1);
        Some(Ticket {
            seats: self,
            namespace: namespace.clone(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Ticket<'a> {
    /// Waits for a seat, for as long as the caller likes.
    pub(crate) async fn seat(&self) -> FairPermit<'a> {
        let seats = self.seats;
        let number = {
            let mut state = seats.state();
            state.last += 1;
            let number = state.last;
            state.waiting.push_back((number, self.namespace.clone()));
            number
        };
        let waiting = Waiting { seats, number };
        loop {
            // Before it is looked, so that no change is missed.
            let changed = seats.changed.notified();
            if waiting.sit(&self.namespace) {
                break;
            }
            changed.await;
        }
        FairPermit {
            seats,
            namespace: self.namespace.clone(),
        }
    }
}

impl Waiting<'_> {
    /// If it is its turn.
    fn sit(&self, namespace: &Namespace) -> bool {
        let mut state = self.seats.state();
        let is_next = state.next(self.seats.bounds) == Some(self.number);
        if is_next {
            *state.taken.entry(namespace.clone()).or_default() += 1;
        }
        is_next
    }
}

impl State {
    fn next(&self, bounds: FairLimits) -> Option<u64> {
        let of = |namespace: &Namespace| self.taken.get(namespace).copied().unwrap_or(0);
        if self.taken.values().sum::<usize>() >= bounds.seats {
            return None;
        }
        let may = self
            .waiting
            .iter()
            .filter(|(_, namespace)| of(namespace) < bounds.seats_of_one);
        // Of equals, the first.
        may.min_by_key(|(_, namespace)| of(namespace))
            .map(|(number, _)| *number)
    }
}

fn one_less(counts: &mut HashMap<Namespace, usize>, namespace: &Namespace) {
    if let Some(count) = counts.get_mut(namespace) {
        *count -= 1;
        if *count == 0 {
            counts.remove(namespace);
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        one_less(&mut self.seats.state().asking, &self.namespace);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.seats
            .state()
            .waiting
            .retain(|(number, _)| *number != self.number);
        // Another may be the next now.
        self.seats.changed.notify_waiters();
    }
}

impl Drop for FairPermit<'_> {
    fn drop(&mut self) {
        one_less(&mut self.seats.state().taken, &self.namespace);
        self.seats.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    const BOUNDS: FairLimits = FairLimits {
        seats: 3,
        seats_of_one: 2,
        asking: 32,
        asking_of_one: 8,
    };

    fn name(text: &str) -> Namespace {
        Namespace::try_from(text.to_owned()).unwrap()
    }

    fn now<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_namespace_never_has_all_the_seats_and_who_has_fewer_goes_first() {
        let seats = FairQueue::new(BOUNDS);
        let (flood, other) = (name("flood"), name("other"));
        let asking: Vec<_> = (0..4).map(|_| seats.ask(&flood).unwrap()).collect();
        let quiet: Vec<_> = (0..3).map(|_| seats.ask(&other).unwrap()).collect();
        let first = now(pin!(asking[0].seat())).unwrap();
        let _second = now(pin!(asking[1].seat())).unwrap();
        let mut third = pin!(asking[2].seat());
        assert!(now(third.as_mut()).is_none(), "it has two");
        let own = now(pin!(quiet[0].seat())).unwrap();
        let mut fourth = pin!(asking[3].seat());
        let mut next = pin!(quiet[1].seat());
        assert!(now(fourth.as_mut()).is_none() && now(next.as_mut()).is_none());
        drop(own);
        assert!(now(third.as_mut()).is_none() && now(fourth.as_mut()).is_none());
        let _next = now(next.as_mut()).unwrap();
        drop(first);
        // Both have one; who came first.
        let mut last = pin!(quiet[2].seat());
        assert!(now(last.as_mut()).is_none() && now(fourth.as_mut()).is_none());
        let _third = now(third.as_mut()).unwrap();
    }

    #[test]
    fn who_goes_away_leaves_no_seat_and_no_place_behind() {
        let seats = FairQueue::new(BOUNDS);
        let one = name("one");
        {
            let asking = seats.ask(&one).unwrap();
            let _first = now(pin!(asking.seat())).unwrap();
            let _second = now(pin!(asking.seat())).unwrap();
            assert!(now(pin!(asking.seat())).is_none());
            assert_eq!(seats.state().waiting.len(), 0, "it was dropped");
        }
        let state = seats.state();
        assert!(state.taken.is_empty() && state.asking.is_empty());
    }

    #[test]
    fn so_many_ask_and_no_more() {
        let seats = FairQueue::new(BOUNDS);
        let own: Vec<_> = (0..BOUNDS.asking_of_one)
            .map(|_| seats.ask(&name("one")))
            .collect();
        assert!(own.iter().all(Option::is_some) && seats.ask(&name("one")).is_none());
        let rest = BOUNDS.asking - BOUNDS.asking_of_one;
        let others: Vec<_> = (0..rest).map(|n| seats.ask(&name(&format!("n{n}")))).collect();
        assert!(others.iter().all(Option::is_some) && seats.ask(&name("late")).is_none());
        drop(own);
        assert!(seats.ask(&name("one")).is_some());
    }
}
