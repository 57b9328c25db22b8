//! Who runs when. So many at once; so many waiting, and not for ever; among those who wait, namespaces take turns, so
//! that one tenant's flood delays itself. How many a namespace may ask for in a minute is the operator's to say. A place
//! is given back when its [`Permit`] is dropped.

use crate::{
    events::{Bus, EventKind},
    settings::{QueueSettings, Rate},
};
use governor::{
    DefaultKeyedRateLimiter, Quota, RateLimiter,
    clock::{Clock, DefaultClock},
};
use ringfence_types::{ErrorCode, Namespace, Priority, RequestError};
use serde::Serialize;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// Namespaces whose rate is remembered; when there are more, those that have been quiet are forgotten.
const RATES_MAX: usize = 10_000;
/// Waiting rooms this full are told of, in quarters.
const PRESSURE_QUARTERS: usize = 3;

/// The queue; clones share it.
#[derive(Clone)]
pub(crate) struct Queue {
    shared: Arc<Mutex<State>>,
    bus: Bus,
}

struct State {
    settings: QueueSettings,
    rates: Option<DefaultKeyedRateLimiter<Namespace>>,
    running: usize,
    waiting: usize,
    lines: HashMap<Namespace, Line>,
    /// Namespaces with somebody waiting, in the order of their turns, and how often each is still to be served.
    turns: VecDeque<(Namespace, u32)>,
    /// Smoothed time that a permit is held.
    held_ms: f64,
    refused: u64,
    is_under_pressure: bool,
}

/// Those of one namespace who wait: the urgent before the others.
#[derive(Default)]
struct Line {
    high: VecDeque<Waiter>,
    normal: VecDeque<Waiter>,
    low: VecDeque<Waiter>,
}

type Waiter = oneshot::Sender<Result<Permit, TurnedAway>>;

/// The waiting room is full, and another namespace has fewer in it.
#[derive(Debug)]
struct TurnedAway;

/// A place among those who run.
pub(crate) struct Permit {
    /// None: the place was handed on.
    queue: Option<Queue>,
    since: Instant,
}

/// What `queue status` tells.
#[derive(Clone, Debug, Serialize)]
pub struct QueueState {
    /// Programs that run.
    pub running: usize,
    /// The most that run at once.
    pub concurrency: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// The most that wait.
    pub waiting_max: usize,
    /// Turned away since the start: too many, too often, or too long.
    pub refused: u64,
    /// Who waits, in the order of their turns.
    pub lines: Vec<LineState>,
}

/// Those of one namespace who wait.
#[derive(Clone, Debug, Serialize)]
pub struct LineState {
    /// Tenant.
    pub namespace: String,
    /// How many.
    pub waiting: usize,
}

impl Queue {
    pub(crate) fn new(settings: QueueSettings, bus: Bus) -> Self {
        let state = State {
            rates: settings.rate.map(limiter),
            settings,
            running: 0,
            waiting: 0,
            lines: HashMap::new(),
            turns: VecDeque::new(),
            held_ms: 100.0,
            refused: 0,
            is_under_pressure: false,
        };
        Self {
            shared: Arc::new(Mutex::new(state)),
            bus,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other bounds from now on. Who runs goes on; who waits, and may now run, does.
    pub(crate) fn replace(&self, settings: QueueSettings) {
        let mut state = self.state();
        if state.settings.rate != settings.rate {
            state.rates = settings.rate.map(limiter);
        }
        state.settings = settings;
        let mut places = Vec::new();
        while state.running < state.settings.concurrency
            && let Some(next) = state.next()
        {
            state.running += 1;
            places.push(next);
        }
        drop(state);
        for next in places {
            // One that has gone away drops its permit, which hands the place on.
            drop(next.send(Ok(self.permit())));
        }
    }

    /// Waits for a place. A full queue is refused at once, with the time after which a place is likely.
    pub(crate) async fn admit(
        &self,
        namespace: &Namespace,
        priority: Priority,
    ) -> Result<Permit, RequestError> {
        let (waiter, patience) = {
            let mut state = self.state();
            let admitted = state.admit(namespace, priority);
            self.tell_of_pressure(&mut state, namespace);
            match admitted? {
                None => return Ok(self.permit()),
                Some(waiter) => (waiter, state.settings.patience),
            }
        };
        match tokio::time::timeout(patience, waiter).await {
            Ok(Ok(Ok(permit))) => Ok(permit),
            Ok(Ok(Err(TurnedAway))) => {
                Err(self.refuse("the waiting room is full, and others have fewer in it"))
            }
            Ok(Err(_)) => {
                let stopping = "the server is stopping.";
                Err(RequestError::new(
                    ErrorCode::Cancelled,
                    stopping,
                    "Start it again.",
                ))
            }
            Err(_) => Err(self.refuse(&format!("it has waited {} s", patience.as_secs()))),
        }
    }

    fn refuse(&self, why: &str) -> RequestError {
        let mut state = self.state();
        state.forget_the_gone();
        state.refused += 1;
        busy(&state, why)
    }

    /// Once when it begins, and once for each who is turned away.
    fn tell_of_pressure(&self, state: &mut State, namespace: &Namespace) {
        let (waiting, waiting_max) = (state.waiting, state.settings.waiting);
        let is_full = state.running >= state.settings.concurrency && waiting >= waiting_max;
        let is_under_pressure = is_full || (waiting > 0 && waiting * 4 >= waiting_max * PRESSURE_QUARTERS);
        if is_full || (is_under_pressure && !state.is_under_pressure) {
            let kind = EventKind::QueueBackpressure { waiting, waiting_max };
            self.bus.tell(namespace.as_str(), None, kind);
        }
        state.is_under_pressure = is_under_pressure;
    }

    fn permit(&self) -> Permit {
        Permit {
            queue: Some(self.clone()),
            since: Instant::now(),
        }
    }

    pub(crate) fn look(&self) -> QueueState {
        let mut state = self.state();
        state.forget_the_gone();
        let lines = state.turns.iter().map(|(namespace, _)| LineState {
            namespace: namespace.to_string(),
            waiting: state.lines.get(namespace).map_or(0, Line::len),
        });
        QueueState {
            running: state.running,
            concurrency: state.settings.concurrency,
            waiting: state.waiting,
            waiting_max: state.settings.waiting,
            refused: state.refused,
            lines: lines.collect(),
        }
    }
}

fn limiter(rate: Rate) -> DefaultKeyedRateLimiter<Namespace> {
    RateLimiter::keyed(Quota::per_minute(rate.per_minute).allow_burst(rate.burst))
}

impl State {
    /// None: there is a place at once.
    fn admit(
        &mut self,
        namespace: &Namespace,
        priority: Priority,
    ) -> Result<Option<oneshot::Receiver<Result<Permit, TurnedAway>>>, RequestError> {
        if let Err(wait) = self.rate(namespace) {
            self.refused += 1;
            return Err(too_often(namespace, wait));
        }
        if self.running < self.settings.concurrency {
            self.running += 1;
            return Ok(None);
        }
        if self.waiting >= self.settings.waiting {
            self.forget_the_gone();
        }
        if self.waiting >= self.settings.waiting && !self.make_room(namespace) {
            self.refused += 1;
            return Err(busy(self, &format!("{} requests wait", self.waiting)));
        }
        Ok(Some(self.join(namespace, priority)))
    }

    /// Those whose time was up, or who were cancelled, wait no more.
    fn forget_the_gone(&mut self) {
        for line in self.lines.values_mut() {
            for waiters in [&mut line.high, &mut line.normal, &mut line.low] {
                waiters.retain(|waiter| !waiter.is_closed());
            }
        }
        self.lines.retain(|_, line| line.len() > 0);
        let lines = &self.lines;
        self.turns.retain(|(namespace, _)| lines.contains_key(namespace));
        self.waiting = self.lines.values().map(Line::len).sum();
    }

    /// In a full room the longest line gives way to one that is shorter by more than the newcomer.
    fn make_room(&mut self, namespace: &Namespace) -> bool {
        let own = self.lines.get(namespace).map_or(0, Line::len);
        let longest = self.lines.values_mut().max_by_key(|line| line.len());
        let Some(last) = longest.filter(|line| line.len() > own + 1).and_then(Line::last) else {
            return false;
        };
        self.waiting -= 1;
        // Gone in this very moment is as good.
        drop(last.send(Err(TurnedAway)));
        true
    }

    fn rate(&self, namespace: &Namespace) -> Result<(), Duration> {
        let Some(rates) = &self.rates else { return Ok(()) };
        if rates.len() >= RATES_MAX {
            rates.retain_recent();
        }
        let clock = DefaultClock::default();
        rates
            .check_key(namespace)
            .map_err(|not_yet| not_yet.wait_time_from(clock.now()))
    }

    fn join(
        &mut self,
        namespace: &Namespace,
        priority: Priority,
    ) -> oneshot::Receiver<Result<Permit, TurnedAway>> {
        let (give, take) = oneshot::channel();
        self.waiting += 1;
        if !self.lines.contains_key(namespace) {
            let times = self.settings.turns_of(namespace);
            self.turns.push_back((namespace.clone(), times));
        }
        let line = self.lines.entry(namespace.clone()).or_default();
        line.of(priority).push_back(give);
        take
    }

    /// The next in turn. Those who have gone away meanwhile are passed over.
    fn next(&mut self) -> Option<Waiter> {
        while let Some((namespace, times)) = self.turns.pop_front() {
            let Some(line) = self.lines.get_mut(&namespace) else {
                continue;
            };
            let next = line.next();
            self.waiting -= usize::from(next.is_some());
            if line.len() == 0 {
                self.lines.remove(&namespace);
            } else if times > 1 {
                self.turns.push_front((namespace, times - 1));
            } else {
                let times = self.settings.turns_of(&namespace);
                self.turns.push_back((namespace, times));
            }
            match next {
                Some(next) if !next.is_closed() => return Some(next),
                _ => {}
            }
        }
        None
    }
}

impl QueueSettings {
    /// How often in a row a namespace is served.
    fn turns_of(&self, namespace: &Namespace) -> u32 {
        match self.priorities.get(namespace) {
            Some(Priority::High) => 4,
            None | Some(Priority::Normal) => 2,
            Some(Priority::Low) => 1,
        }
    }
}

impl Line {
    fn of(&mut self, priority: Priority) -> &mut VecDeque<Waiter> {
        match priority {
            Priority::High => &mut self.high,
            Priority::Normal => &mut self.normal,
            Priority::Low => &mut self.low,
        }
    }

    /// The least urgent who came last.
    fn last(&mut self) -> Option<Waiter> {
        let last = self.low.pop_back();
        last.or_else(|| self.normal.pop_back())
            .or_else(|| self.high.pop_back())
    }

    fn next(&mut self) -> Option<Waiter> {
        let next = self.high.pop_front();
        next.or_else(|| self.normal.pop_front())
            .or_else(|| self.low.pop_front())
    }

    fn len(&self) -> usize {
        self.high.len() + self.normal.len() + self.low.len()
    }
}

fn too_often(namespace: &Namespace, wait: Duration) -> RequestError {
    let retry_after_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    let mut error = RequestError::new(
        ErrorCode::Busy,
        format!("the namespace `{namespace}` sends requests faster than the operator allows."),
        format!("Try again in {retry_after_ms} ms."),
    );
    error.retry_after_ms = Some(retry_after_ms);
    error
}

fn busy(state: &State, why: &str) -> RequestError {
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
            "{} programs run, and this request found no place: {why}.",
            state.running
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
                // Fewer may run than did: then the place is not handed on.
                let next = if state.running > state.settings.concurrency {
                    None
                } else {
                    state.next()
                };
                if next.is_none() {
                    state.running -= 1;
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(Ok(queue.permit())) {
                Ok(()) => return,
                // That one has gone away; the place goes to the one behind it.
                Err(Ok(mut refused)) => refused.queue = None,
                Err(Err(TurnedAway)) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeMap, num::NonZeroU32};

    fn settings(concurrency: usize, waiting: usize) -> QueueSettings {
        QueueSettings {
            concurrency,
            waiting,
            patience: Duration::from_secs(60),
            priorities: BTreeMap::new(),
            rate: None,
        }
    }

    fn queue(concurrency: usize, waiting: usize) -> Queue {
        Queue::new(settings(concurrency, waiting), Bus::new())
    }

    fn name(text: &str) -> Namespace {
        Namespace::try_from(text.to_owned()).unwrap()
    }

    async fn admit(queue: &Queue, who: &str) -> Result<Permit, RequestError> {
        queue.admit(&name(who), Priority::Normal).await
    }

    /// Lets these wait behind one that runs; the order in which they were served.
    async fn served(queue: &Queue, waiters: &[(&'static str, Priority)]) -> Vec<String> {
        let held = admit(queue, "held").await.ok().unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for (who, priority) in waiters.iter().copied() {
            let (queue_of_task, order) = (queue.clone(), order.clone());
            let before = queue.look().waiting;
            tasks.push(tokio::spawn(async move {
                let permit = queue_of_task.admit(&name(who), priority).await.ok().unwrap();
                order.lock().unwrap().push(format!("{who} {priority:?}"));
                drop(permit);
            }));
            while queue.look().waiting == before {
                tokio::task::yield_now().await;
            }
        }
        drop(held);
        for task in tasks {
            task.await.unwrap();
        }
        let state = queue.look();
        assert_eq!((state.running, state.waiting, state.lines.len()), (0, 0, 0));
        Arc::into_inner(order).unwrap().into_inner().unwrap()
    }

    #[tokio::test]
    async fn a_full_queue_says_when_to_come_back_and_tells_of_it() {
        let queue = queue(1, 0);
        let mut heard = queue.bus.subscribe(crate::events::Hears::AllButOutput);
        let held = admit(&queue, "a").await.ok().unwrap();
        let refused = admit(&queue, "a").await.err().unwrap();
        assert_eq!(refused.code, ErrorCode::Busy);
        assert!(refused.retry_after_ms.unwrap() >= 50);
        assert_eq!(heard.next().await.unwrap().kind.name(), "queue.backpressure");
        drop(held);
        assert!(admit(&queue, "a").await.is_ok());
    }

    #[tokio::test]
    async fn namespaces_take_turns() {
        use Priority::Normal;
        let waiters = [
            ("flood", Normal),
            ("flood", Normal),
            ("flood", Normal),
            ("quiet", Normal),
        ];
        let order = served(&queue(1, 10), &waiters).await;
        assert_eq!(
            order,
            ["flood Normal", "flood Normal", "quiet Normal", "flood Normal"]
        );
    }

    #[tokio::test]
    async fn the_urgent_of_a_namespace_go_first_and_only_before_their_own() {
        use Priority::{High, Low, Normal};
        let waiters = [("a", Low), ("b", Normal), ("a", High), ("a", Normal)];
        let order = served(&queue(1, 10), &waiters).await;
        assert_eq!(order, ["a High", "a Normal", "b Normal", "a Low"]);
    }

    #[tokio::test]
    async fn a_namespace_that_the_operator_prefers_is_served_more_often() {
        use Priority::{High, Low, Normal};
        let mut settings = settings(1, 20);
        settings.priorities = BTreeMap::from([(name("batch"), Low), (name("team"), High)]);
        let waiters = [
            ("batch", Normal),
            ("batch", Normal),
            ("team", Normal),
            ("team", Normal),
            ("team", Normal),
        ];
        let order = served(&Queue::new(settings, Bus::new()), &waiters).await;
        assert_eq!(
            order,
            [
                "batch Normal",
                "team Normal",
                "team Normal",
                "team Normal",
                "batch Normal"
            ]
        );
    }

    #[tokio::test]
    async fn a_namespace_that_asks_too_often_is_told_when_to_come_back_and_hinders_no_other() {
        let one = NonZeroU32::new(1).unwrap();
        let queue = Queue::new(
            QueueSettings {
                rate: Some(Rate {
                    per_minute: one,
                    burst: one,
                }),
                ..settings(4, 4)
            },
            Bus::new(),
        );
        assert!(admit(&queue, "a").await.is_ok());
        let refused = admit(&queue, "a").await.err().unwrap();
        assert_eq!(refused.code, ErrorCode::Busy);
        assert!(
            (1_000..=60_000).contains(&refused.retry_after_ms.unwrap()),
            "{refused:?}"
        );
        assert!(admit(&queue, "b").await.is_ok());
        queue.replace(settings(4, 4));
        assert!(admit(&queue, "a").await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_and_who_has_gone_takes_no_room() {
        let queue = queue(1, 2);
        let _held = admit(&queue, "a").await.ok().unwrap();
        for _ in 0..3 {
            let both = tokio::join!(admit(&queue, "a"), admit(&queue, "a"));
            for refused in [both.0, both.1] {
                let refused = refused.err().unwrap();
                assert!(refused.message.contains("waited 60 s"), "{refused}");
            }
            assert_eq!((queue.look().waiting, queue.look().lines.len()), (0, 0));
        }
    }

    #[tokio::test]
    async fn a_namespace_that_fills_the_room_gives_way_to_one_that_has_fewer_in_it() {
        let queue = queue(1, 3);
        let held = admit(&queue, "flood").await.ok().unwrap();
        let wait = |who: &'static str| {
            let queue = queue.clone();
            tokio::spawn(async move { admit(&queue, who).await.map(drop).map_err(|error| error.code) })
        };
        let flood: Vec<_> = (0..3).map(|_| wait("flood")).collect();
        while queue.look().waiting < 3 {
            tokio::task::yield_now().await;
        }
        let quiet = wait("quiet");
        while queue.look().lines.len() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(admit(&queue, "flood").await.err().unwrap().code, ErrorCode::Busy);
        drop(held);
        assert_eq!(quiet.await.unwrap(), Ok(()));
        let mut ends = Vec::new();
        for one in flood {
            ends.push(one.await.unwrap());
        }
        assert_eq!(ends, [Ok(()), Ok(()), Err(ErrorCode::Busy)]);
    }

    #[tokio::test]
    async fn more_room_lets_those_in_who_wait_and_less_takes_effect_as_runs_end() {
        let queue = queue(1, 10);
        let first = admit(&queue, "a").await.ok().unwrap();
        let waiting = queue.clone();
        let second = tokio::spawn(async move { admit(&waiting, "a").await.ok().unwrap() });
        while queue.look().waiting < 1 {
            tokio::task::yield_now().await;
        }
        queue.replace(settings(2, 10));
        let second = second.await.unwrap();
        queue.replace(settings(1, 0));
        drop(first);
        assert!(admit(&queue, "a").await.is_err());
        drop(second);
        assert!(admit(&queue, "a").await.is_ok());
    }

    #[tokio::test]
    async fn a_waiter_that_goes_away_loses_no_place() {
        let queue = queue(1, 10);
        let held = admit(&queue, "a").await.ok().unwrap();
        let (second, third) = (queue.clone(), queue.clone());
        let gone = tokio::spawn(async move { admit(&second, "a").await.is_ok() });
        while queue.look().waiting < 1 {
            tokio::task::yield_now().await;
        }
        let stays = tokio::spawn(async move { admit(&third, "a").await.is_ok() });
        while queue.look().waiting < 2 {
            tokio::task::yield_now().await;
        }
        gone.abort();
        assert!(gone.await.is_err());
        drop(held);
        assert!(stays.await.unwrap());
        assert_eq!((queue.look().running, queue.look().waiting), (0, 0));
    }
}
