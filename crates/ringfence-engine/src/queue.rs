//! Which requests run when. A run takes its memory limit from a budget; processors are shared by the kernel. A
//! namespace leaves a share of both budget and places free, so that others always get in, and a namespace with nothing
//! running never waits for processors. Requests wait in one line for each namespace; namespaces take turns. A
//! [`Permit`] gives its place back when it is dropped.

use crate::{
    events::{Bus, EventKind},
    settings::{QueueSettings, Rate},
};
use governor::{
    DefaultKeyedRateLimiter, Quota, RateLimiter,
    clock::{Clock, DefaultClock},
};
use ringfence_types::{ErrorCode, Limits, Namespace, Priority, RequestError};
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
/// What a namespace has is at most this many times what it leaves free. Where there are fewer places, nothing is left.
const SHARE: u64 = 3;
const SHARED_PLACES_MIN: usize = 4;
/// Programs of one namespace for each processor that run however busy the processors are.
const AT_EASE: usize = 2;
/// How often it is looked whether the processors have become free.
const TICK: Duration = Duration::from_millis(50);

/// The queue; clones share it.
#[derive(Clone)]
pub(crate) struct Queue {
    shared: Arc<Mutex<State>>,
    bus: Bus,
}

/// What a run may use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    pub(crate) memory_bytes: u64,
    pub(crate) time: Duration,
}

impl Demand {
    pub(crate) fn of(limits: &Limits) -> Self {
        Self {
            memory_bytes: limits.memory_bytes,
            time: Duration::from_millis(limits.timeout_ms),
        }
    }
}

struct State {
    settings: QueueSettings,
    processors: Processors,
    rates: Option<DefaultKeyedRateLimiter<Namespace>>,
    running: HashMap<u64, RunningRequest>,
    last_place: u64,
    looked: Instant,
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

struct Waiter {
    demand: Demand,
    answer: oneshot::Sender<Result<Permit, TurnedAway>>,
}

/// One that runs.
struct RunningRequest {
    namespace: Namespace,
    memory_bytes: u64,
    since: Instant,
    time: Duration,
}

/// What some of those who run have together.
#[derive(Clone, Copy, Default)]
struct Taken {
    places: usize,
    memory_bytes: u64,
}

impl Taken {
    fn by<'a>(places: impl Iterator<Item = &'a RunningRequest>) -> Self {
        places.fold(Self::default(), |taken, place| Self {
            places: taken.places + 1,
            memory_bytes: taken.memory_bytes + place.memory_bytes,
        })
    }
}

/// The host's processors.
#[derive(Clone, Copy)]
struct Processors {
    count: usize,
    /// Threads of the whole host that run or could.
    runnable: fn() -> usize,
}

impl Processors {
    fn of_host() -> Self {
        Self {
            count: std::thread::available_parallelism().map_or(1, usize::from),
            runnable,
        }
    }

    fn are_busy(self) -> bool {
        (self.runnable)() > self.count * AT_EASE
    }
}

/// proc_loadavg(5): the fourth field is `RUNNABLE/ALL`.
fn runnable() -> usize {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let field = text.split(' ').nth(3).and_then(|field| field.split('/').next());
    field.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// The waiting room is full, and another namespace has fewer in it.
#[derive(Debug)]
struct TurnedAway;

/// A place among those who run.
pub(crate) struct Permit {
    queue: Queue,
    place: u64,
}

/// What `queue status` tells.
#[derive(Clone, Debug, Serialize)]
pub struct QueueState {
    /// Programs that run.
    pub running: usize,
    /// The most that run at once.
    pub concurrency: usize,
    /// Memory that they may use together, in MiB.
    pub memory_mb: u64,
    /// The most of it.
    pub memory_mb_max: u64,
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
        Self::on(settings, bus, Processors::of_host())
    }

    fn on(settings: QueueSettings, bus: Bus, processors: Processors) -> Self {
        let state = State {
            rates: settings.rate.map(limiter),
            settings,
            processors,
            running: HashMap::new(),
            last_place: 0,
            looked: Instant::now(),
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

    /// Other bounds from now on. What runs goes on; what waits, and may now run, does.
    pub(crate) fn replace(&self, settings: QueueSettings) {
        let mut state = self.state();
        if state.settings.rate != settings.rate {
            state.rates = settings.rate.map(limiter);
        }
        state.settings = settings;
        drop(state);
        self.start_waiting();
    }

    /// Starts all that wait and may run now.
    fn start_waiting(&self) {
        let mut started = Vec::new();
        let mut state = self.state();
        state.looked = Instant::now();
        while let Some((namespace, waiter)) = state.next() {
            let place = state.take(&namespace, waiter.demand);
            started.push((waiter.answer, self.permit(place)));
        }
        drop(state);
        for (answer, permit) in started {
            // One that has gone away drops its permit, which starts the next.
            drop(answer.send(Ok(permit)));
        }
    }

    fn start_waiting_when_due(&self) {
        if self.state().looked.elapsed() >= TICK {
            self.start_waiting();
        }
    }

    /// Waits for a place. A full queue is refused at once, with the time after which a place is likely.
    pub(crate) async fn admit(
        &self,
        namespace: &Namespace,
        priority: Priority,
        demand: Demand,
    ) -> Result<Permit, RequestError> {
        let (mut waiter, patience) = {
            let mut state = self.state();
            let admitted = state.admit(namespace, priority, demand);
            self.tell_of_pressure(&mut state, namespace, &admitted);
            match admitted? {
                Admitted::At(place) => return Ok(self.permit(place)),
                Admitted::Waiting(waiter) => (waiter, state.settings.patience),
            }
        };
        let waited = async {
            loop {
                match tokio::time::timeout(TICK, &mut waiter).await {
                    Ok(answered) => return answered,
                    Err(_) => self.start_waiting_when_due(),
                }
            }
        };
        match tokio::time::timeout(patience, waited).await {
            Ok(Ok(Ok(permit))) => Ok(permit),
            Ok(Ok(Err(TurnedAway))) => Err(self.refuse(
                namespace,
                "the queue is full, and other namespaces have less in it",
            )),
            Ok(Err(_)) => {
                let stopping = "the server is stopping.";
                Err(RequestError::new(
                    ErrorCode::Cancelled,
                    stopping,
                    "Start it again.",
                ))
            }
            Err(_) => Err(self.refuse(namespace, &format!("it has waited {} s", patience.as_secs()))),
        }
    }

    fn refuse(&self, namespace: &Namespace, why: &str) -> RequestError {
        let mut state = self.state();
        state.forget_the_gone();
        state.refused += 1;
        busy(&state, namespace, why)
    }

    /// Once when it begins, and once for each who is turned away.
    fn tell_of_pressure(&self, state: &mut State, namespace: &Namespace, admitted: &Admission) {
        let (waiting, waiting_max) = (state.waiting, state.settings.waiting);
        let waits = !matches!(admitted, Ok(Admitted::At(_)));
        let is_full = waits && waiting >= waiting_max;
        let is_under_pressure = is_full || (waiting > 0 && waiting * 4 >= waiting_max * PRESSURE_QUARTERS);
        if is_full || (is_under_pressure && !state.is_under_pressure) {
            let kind = EventKind::QueueBackpressure { waiting, waiting_max };
            self.bus.tell(namespace.as_str(), None, kind);
        }
        state.is_under_pressure = is_under_pressure;
    }

    fn permit(&self, place: u64) -> Permit {
        Permit {
            queue: self.clone(),
            place,
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
            running: state.running.len(),
            concurrency: state.settings.concurrency,
            memory_mb: Taken::by(state.running.values()).memory_bytes >> 20,
            memory_mb_max: state.settings.memory_bytes >> 20,
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

type Admission = Result<Admitted, RequestError>;

enum Admitted {
    /// At once.
    At(u64),
    Waiting(oneshot::Receiver<Result<Permit, TurnedAway>>),
}

impl State {
    fn admit(
        &mut self,
        namespace: &Namespace,
        priority: Priority,
        demand: Demand,
    ) -> Result<Admitted, RequestError> {
        if let Err(wait) = self.rate(namespace) {
            self.refused += 1;
            return Err(too_often(namespace, wait));
        }
        if !self.lines.contains_key(namespace) && self.fits(namespace, demand) {
            return Ok(Admitted::At(self.take(namespace, demand)));
        }
        if self.waiting >= self.settings.waiting {
            self.forget_the_gone();
        }
        if self.waiting >= self.settings.waiting && !self.make_room(namespace) {
            self.refused += 1;
            return Err(busy(self, namespace, &format!("{} requests wait", self.waiting)));
        }
        Ok(Admitted::Waiting(self.join(namespace, priority, demand)))
    }

    /// May another of this namespace run now.
    fn fits(&self, namespace: &Namespace, demand: Demand) -> bool {
        let all = Taken::by(self.running.values());
        let own = Taken::by(
            self.running
                .values()
                .filter(|place| place.namespace == *namespace),
        );
        let (places_max, memory_max) = (self.settings.concurrency, self.settings.memory_bytes);
        // One that may use more than all is alone.
        let memory = demand.memory_bytes.min(memory_max);
        let free = (
            places_max.checked_sub(all.places + 1),
            memory_max.checked_sub(all.memory_bytes + memory),
        );
        let (Some(places_free), Some(memory_free)) = free else {
            return false;
        };
        if own.places == 0 {
            return true;
        }
        let leaves_places =
            places_max < SHARED_PLACES_MIN || (own.places as u64) < SHARE.saturating_mul(places_free as u64);
        let leaves_memory = own.memory_bytes + memory <= SHARE.saturating_mul(memory_free);
        let is_at_ease = all.places < self.processors.count * AT_EASE;
        leaves_places && leaves_memory && (is_at_ease || !self.processors.are_busy())
    }

    fn take(&mut self, namespace: &Namespace, demand: Demand) -> u64 {
        self.last_place += 1;
        let place = RunningRequest {
            namespace: namespace.clone(),
            memory_bytes: demand.memory_bytes.min(self.settings.memory_bytes),
            since: Instant::now(),
            time: demand.time,
        };
        self.running.insert(self.last_place, place);
        self.last_place
    }

    /// When a place is likely to be free for one more. What runs longer than usual is taken to run as long again, and
    /// no longer than it may. A namespace that has its share waits for its own.
    fn likely_ms(&self, namespace: &Namespace) -> f64 {
        let own = self
            .running
            .values()
            .filter(|place| place.namespace == *namespace);
        let mut left: Vec<f64> = own.map(|place| place.left_ms(self.held_ms)).collect();
        if left.is_empty() {
            left.extend(self.running.values().map(|place| place.left_ms(self.held_ms)));
        }
        left.sort_by(f64::total_cmp);
        let count = left.len().max(1);
        let rounds = u32::try_from(self.waiting / count).unwrap_or(u32::MAX);
        left.get(self.waiting % count).unwrap_or(&self.held_ms) + self.held_ms * f64::from(rounds)
    }

    /// Those whose time was up, or who were cancelled, wait no more.
    fn forget_the_gone(&mut self) {
        for line in self.lines.values_mut() {
            for waiters in [&mut line.high, &mut line.normal, &mut line.low] {
                waiters.retain(|waiter| !waiter.answer.is_closed());
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
        drop(last.answer.send(Err(TurnedAway)));
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
        demand: Demand,
    ) -> oneshot::Receiver<Result<Permit, TurnedAway>> {
        let (answer, answered) = oneshot::channel();
        self.waiting += 1;
        if !self.lines.contains_key(namespace) {
            let times = self.settings.turns_of(namespace);
            self.turns.push_back((namespace.clone(), times));
        }
        let line = self.lines.entry(namespace.clone()).or_default();
        line.of(priority).push_back(Waiter { demand, answer });
        answered
    }

    /// The next in turn that may run. Namespaces whose next may not are passed over and keep their turn.
    fn next(&mut self) -> Option<(Namespace, Waiter)> {
        let mut at = 0;
        while let Some((namespace, times)) = self.turns.get(at).cloned() {
            let first = self.lines.get(&namespace).and_then(Line::first);
            if let Some(waiter) = first
                && !waiter.answer.is_closed()
                && !self.fits(&namespace, waiter.demand)
            {
                at += 1;
                continue;
            }
            self.turns.remove(at);
            let line = self.lines.entry(namespace.clone()).or_default();
            let next = line.next();
            self.waiting -= usize::from(next.is_some());
            if line.len() == 0 {
                self.lines.remove(&namespace);
            } else if times > 1 {
                self.turns.insert(at, (namespace.clone(), times - 1));
            } else {
                let times = self.settings.turns_of(&namespace);
                self.turns.push_back((namespace.clone(), times));
            }
            // One that has gone away is passed over.
            if let Some(next) = next.filter(|next| !next.answer.is_closed()) {
                return Some((namespace, next));
            }
        }
        None
    }
}

impl RunningRequest {
    fn left_ms(&self, usual_ms: f64) -> f64 {
        let (age, time) = (self.since.elapsed(), self.time);
        let age_ms = age.as_secs_f64() * 1000.0;
        let guess = if age_ms < usual_ms {
            usual_ms - age_ms
        } else {
            age_ms
        };
        guess.min(time.saturating_sub(age).as_secs_f64() * 1000.0)
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

    fn first(&self) -> Option<&Waiter> {
        let first = self.high.front();
        first.or(self.normal.front()).or(self.low.front())
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

fn busy(state: &State, namespace: &Namespace, why: &str) -> RequestError {
    let likely = Duration::from_secs_f64(state.likely_ms(namespace).clamp(50.0, 600_000.0) / 1000.0);
    let retry_after_ms = u64::try_from(likely.as_millis()).unwrap_or(u64::MAX);
    let taken = Taken::by(state.running.values());
    let mut error = RequestError::new(
        ErrorCode::Busy,
        format!(
            "{} programs run (at most {}), which may use {} of {} MiB of memory, and this request found no place: {why}.",
            taken.places,
            state.settings.concurrency,
            taken.memory_bytes >> 20,
            state.settings.memory_bytes >> 20,
        ),
        format!("Try again in {retry_after_ms} ms."),
    );
    error.retry_after_ms = Some(retry_after_ms);
    error
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        if let Some(place) = state.running.remove(&self.place) {
            let held_ms = place.since.elapsed().as_secs_f64() * 1000.0;
            state.held_ms = state.held_ms * 0.9 + held_ms * 0.1;
        }
        drop(state);
        self.queue.start_waiting();
    }
}

#[cfg(test)]
mod tests;
