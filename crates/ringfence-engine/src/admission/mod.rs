//! The fair queue of runs, checks of code and package installers. A run takes its memory limit from a budget; the
//! kernel shares the processors. A namespace leaves a share of budget and places to others; with nothing running, it
//! never waits for processors. Each namespace has one line of waiting requests; the lines take turns.

use crate::{
    caller::Client,
    error::{self, Result},
    events::{Bus, EventKind},
    settings::{QueueSettings, Rate},
    sync::lock,
};
use governor::{
    DefaultKeyedRateLimiter, Quota, RateLimiter,
    clock::{Clock, DefaultClock},
};
use ringfence_types::{Limits, Namespace, Priority, RequestError};
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// Namespaces whose rate is remembered; beyond that, those whose rate limit has fully recovered are forgotten.
const RATES_MAX: usize = 10_000;
/// Quarters of a queue that are full when it is under pressure.
const PRESSURE_QUARTERS: usize = 3;
/// Maximum ratio of what a namespace uses to what it leaves free.
const SHARE: u64 = 3;
/// With fewer places than this, a namespace may use all of them.
const SHARED_PLACES_MIN: usize = 4;
/// Programs per processor that run however busy they are, and runnable threads per processor above which they are busy.
const PER_PROCESSOR: usize = 2;
/// Interval of checks of the processors' load while requests wait.
const TICK: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub(crate) struct Queue {
    shared: Arc<Mutex<State>>,
    bus: Option<Bus>,
}

/// The resources that a request may use, and its priority within its namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) memory_bytes: u64,
    pub(crate) priority: Priority,
}

impl Default for Demand {
    fn default() -> Self {
        Self {
            memory_bytes: 0,
            priority: Priority::Normal,
        }
    }
}

impl Demand {
    pub(crate) fn of(limits: &Limits) -> Self {
        Self {
            memory_bytes: limits.memory_bytes,
            ..Self::default()
        }
    }
}

#[derive(Clone, Copy)]
enum Share {
    /// At most [`SHARE`] times what it leaves free; further programs do not add to busy processors.
    Proportional(Processors),
    Places(usize),
}

struct State {
    settings: QueueSettings,
    share: Share,
    rates: Option<DefaultKeyedRateLimiter<Namespace>>,
    running: HashMap<u64, RunningRequest>,
    last_number: u64,
    checked_at: Instant,
    waiting: usize,
    lines: HashMap<Namespace, Line>,
    /// Namespaces with waiting requests, in the order of their turns, with the remaining times that each is served.
    turns: VecDeque<(Namespace, u32)>,
    /// Moving average of the time that a permit is held.
    held_ms: f64,
    refused: u64,
    is_under_pressure: bool,
}

/// The waiting requests of one namespace by priority, then in order of arrival.
type Line = VecDeque<Waiter>;

struct Waiter {
    demand: Demand,
    answer: oneshot::Sender<Result<Permit, Evicted>>,
}

struct RunningRequest {
    namespace: Namespace,
    memory_bytes: u64,
    since: Instant,
}

#[derive(Clone, Copy, Default)]
struct Taken {
    places: usize,
    memory_bytes: u64,
}

impl Taken {
    fn by<'a>(requests: impl Iterator<Item = &'a RunningRequest>) -> Self {
        requests.fold(Self::default(), |taken, request| Self {
            places: taken.places + 1,
            memory_bytes: taken.memory_bytes + request.memory_bytes,
        })
    }
}

#[derive(Clone, Copy)]
struct Processors {
    count: usize,
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
        (self.runnable)() > self.count * PER_PROCESSOR
    }
}

/// Reads the host's runnable threads; 0 if it cannot. proc_loadavg(5): the fourth field is `RUNNABLE/ALL`.
fn runnable() -> usize {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let field = text.split(' ').nth(3).and_then(|field| field.split('/').next());
    field.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// A waiting request was evicted: the queue is full, and another namespace has fewer requests in it.
#[derive(Debug)]
struct Evicted;

#[derive(Debug)]
pub(crate) enum QueueRefusal {
    TooOften(Duration),
    Full(String),
    Stopping,
}

pub(crate) struct Permit {
    queue: Queue,
    number: u64,
}

/// The state of the queue as `queue status` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct QueueState {
    pub running: usize,
    /// Maximum running requests.
    pub concurrency: usize,
    /// Sum of the memory limits of the running requests, in MiB.
    pub memory_mb: u64,
    pub memory_mb_max: u64,
    pub waiting: usize,
    pub waiting_max: usize,
    /// Requests refused since the start: the queue was full, the rate too high, or the wait too long.
    pub refused: u64,
    /// Waiting requests by namespace, in the order of their turns.
    pub lines: Vec<LineState>,
}

#[derive(Clone, Debug, Serialize)]
pub struct LineState {
    pub namespace: String,
    pub waiting: usize,
}

impl Queue {
    pub(crate) fn new(settings: QueueSettings, bus: Bus) -> Self {
        Self::of(settings, Share::Proportional(Processors::of_host()), Some(bus))
    }

    /// Creates a queue of something other than runs, with this many places, of which a namespace uses at most `of_one`.
    pub(crate) fn of_places(places: usize, of_one: usize, waiting: usize) -> Self {
        let settings = QueueSettings {
            concurrency: places,
            memory_bytes: u64::MAX,
            waiting,
            patience: Duration::MAX,
            priorities: BTreeMap::new(),
            rate: None,
        };
        Self::of(settings, Share::Places(of_one), None)
    }

    fn of(settings: QueueSettings, share: Share, bus: Option<Bus>) -> Self {
        let state = State {
            rates: settings.rate.map(limiter),
            settings,
            share,
            running: HashMap::new(),
            last_number: 0,
            checked_at: Instant::now(),
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

    /// Replaces the settings. Running requests go on; waiting ones that fit now start.
    pub(crate) fn replace(&self, settings: QueueSettings) {
        let mut state = lock(&self.shared);
        if state.settings.rate != settings.rate {
            state.rates = settings.rate.map(limiter);
        }
        state.settings = settings;
        drop(state);
        self.start_waiting();
    }

    fn start_waiting(&self) {
        let mut started = Vec::new();
        let mut state = lock(&self.shared);
        state.checked_at = Instant::now();
        while let Some((namespace, waiter)) = state.next() {
            let number = state.take(&namespace, waiter.demand);
            started.push((waiter.answer, self.permit_of(number)));
        }
        drop(state);
        for (answer, permit) in started {
            // If the receiver is gone, the permit is dropped, which starts the next.
            drop(answer.send(Ok(permit)));
        }
    }

    pub(crate) async fn admit_unless_cancelled(
        &self,
        namespace: &Namespace,
        demand: Demand,
        client: &Client,
    ) -> Result<Permit> {
        tokio::select! {
            admitted = self.admit(namespace, demand) => admitted,
            () = client.cancelled() => Err(error::cancelled("it waited")),
        }
    }

    /// Waits for the right to run. With a full queue it fails at once, with the time after which a place is likely.
    pub(crate) async fn admit(&self, namespace: &Namespace, demand: Demand) -> Result<Permit> {
        let patience = lock(&self.shared).settings.patience;
        let admitted = self.permit(namespace, demand, patience).await;
        admitted.map_err(|why| match why {
            QueueRefusal::TooOften(wait) => too_often(namespace, wait),
            QueueRefusal::Full(why) => busy(&lock(&self.shared), &why),
            QueueRefusal::Stopping => error::stopping(),
        })
    }

    /// Takes a place, or waits for one for at most `patience`.
    pub(crate) async fn permit(
        &self,
        namespace: &Namespace,
        demand: Demand,
        patience: Duration,
    ) -> Result<Permit, QueueRefusal> {
        let mut waiter = {
            let mut state = lock(&self.shared);
            let admitted = state.admit(namespace, demand);
            self.publish_pressure(&mut state, namespace, &admitted);
            match admitted? {
                Admitted::At(number) => return Ok(self.permit_of(number)),
                Admitted::Waiting(waiter) => waiter,
            }
        };
        // Owns the waiter: when it ends, the request no longer waits.
        let waited = async move {
            loop {
                match tokio::time::timeout(TICK, &mut waiter).await {
                    Ok(answered) => return answered,
                    Err(_) if lock(&self.shared).checked_at.elapsed() >= TICK => self.start_waiting(),
                    Err(_) => {}
                }
            }
        };
        let answered = tokio::time::timeout(patience, waited).await;
        match answered {
            Ok(Ok(Ok(permit))) => Ok(permit),
            Ok(Ok(Err(Evicted))) => {
                Err(self.refuse("the queue is full, and other namespaces have less in it".to_owned()))
            }
            Ok(Err(_)) => Err(QueueRefusal::Stopping),
            Err(_) => Err(self.refuse(format!("it has waited {} s", patience.as_secs()))),
        }
    }

    fn refuse(&self, why: String) -> QueueRefusal {
        let mut state = lock(&self.shared);
        state.remove_closed();
        state.refused += 1;
        QueueRefusal::Full(why)
    }

    /// Publishes pressure: once when it begins, and for each request not admitted at once while the queue is full.
    fn publish_pressure(&self, state: &mut State, namespace: &Namespace, admitted: &Admission) {
        let (waiting, waiting_max) = (state.waiting, state.settings.waiting);
        let waits = !matches!(admitted, Ok(Admitted::At(_)));
        let is_full = waits && waiting >= waiting_max;
        let is_under_pressure = is_full || (waiting > 0 && waiting * 4 >= waiting_max * PRESSURE_QUARTERS);
        if is_full || (is_under_pressure && !state.is_under_pressure) {
            let kind = EventKind::QueueBackpressure { waiting, waiting_max };
            if let Some(bus) = &self.bus {
                bus.publish(namespace, None, kind);
            }
        }
        state.is_under_pressure = is_under_pressure;
    }

    fn permit_of(&self, number: u64) -> Permit {
        Permit {
            queue: self.clone(),
            number,
        }
    }

    pub(crate) fn state(&self) -> QueueState {
        let mut state = lock(&self.shared);
        state.remove_closed();
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

type Admission = Result<Admitted, QueueRefusal>;

enum Admitted {
    At(u64),
    Waiting(oneshot::Receiver<Result<Permit, Evicted>>),
}

impl State {
    fn admit(&mut self, namespace: &Namespace, demand: Demand) -> Admission {
        if let Err(wait) = self.rate(namespace) {
            self.refused += 1;
            return Err(QueueRefusal::TooOften(wait));
        }
        if !self.lines.contains_key(namespace) && self.fits(namespace, demand) {
            return Ok(Admitted::At(self.take(namespace, demand)));
        }
        if self.waiting >= self.settings.waiting {
            self.remove_closed();
        }
        if self.waiting >= self.settings.waiting && !self.evict_last(namespace) {
            self.refused += 1;
            return Err(QueueRefusal::Full(format!("{} requests wait", self.waiting)));
        }
        Ok(Admitted::Waiting(self.join(namespace, demand)))
    }

    /// Returns true if another request of this namespace may run now.
    fn fits(&self, namespace: &Namespace, demand: Demand) -> bool {
        let all = Taken::by(self.running.values());
        let own = Taken::by(
            self.running
                .values()
                .filter(|request| request.namespace == *namespace),
        );
        let (places_max, memory_max) = (self.settings.concurrency, self.settings.memory_bytes);
        // A request whose limit exceeds the whole budget runs alone.
        let memory = demand.memory_bytes.min(memory_max);
        let free = (
            places_max.checked_sub(all.places + 1),
            memory_max.checked_sub(all.memory_bytes + memory),
        );
        let (Some(places_free), Some(memory_free)) = free else {
            return false;
        };
        let processors = match self.share {
            Share::Places(places) => return own.places < places,
            Share::Proportional(processors) => processors,
        };
        if own.places == 0 {
            return true;
        }
        let leaves_places =
            places_max < SHARED_PLACES_MIN || (own.places as u64) < SHARE.saturating_mul(places_free as u64);
        let leaves_memory = own.memory_bytes + memory <= SHARE.saturating_mul(memory_free);
        let has_few_programs = all.places < processors.count * PER_PROCESSOR;
        leaves_places && leaves_memory && (has_few_programs || !processors.are_busy())
    }

    fn take(&mut self, namespace: &Namespace, demand: Demand) -> u64 {
        self.last_number += 1;
        let request = RunningRequest {
            namespace: namespace.clone(),
            memory_bytes: demand.memory_bytes.min(self.settings.memory_bytes),
            since: Instant::now(),
        };
        self.running.insert(self.last_number, request);
        self.last_number
    }

    /// Estimates the ms until a place is free: the average time that one is held, or more if every running request
    /// has run longer.
    fn likely_ms(&self) -> f64 {
        let ages = self.running.values().map(|one| one.since.elapsed());
        let youngest_ms = ages.min().unwrap_or_default().as_secs_f64() * 1000.0;
        let held_ms = self.held_ms.max(youngest_ms);
        let rounds = self.waiting / self.settings.concurrency.max(1) + 1;
        held_ms * f64::from(u32::try_from(rounds).unwrap_or(u32::MAX))
    }

    /// Removes waiting requests that have expired or were cancelled.
    fn remove_closed(&mut self) {
        self.lines.retain(|_, line| {
            line.retain(|waiter| !waiter.answer.is_closed());
            !line.is_empty()
        });
        let lines = &self.lines;
        self.turns.retain(|(namespace, _)| lines.contains_key(namespace));
        self.waiting = self.lines.values().map(Line::len).sum();
    }

    /// Evicts the last request of the longest line if that is at least two longer than the line of this namespace.
    fn evict_last(&mut self, namespace: &Namespace) -> bool {
        let own = self.lines.get(namespace).map_or(0, Line::len);
        let longest = self.lines.values_mut().max_by_key(|line| line.len());
        let longest = longest.filter(|line| line.len() > own + 1);
        let Some(last) = longest.and_then(Line::pop_back) else {
            return false;
        };
        self.waiting -= 1;
        // If it has been cancelled in this moment, that is as good.
        drop(last.answer.send(Err(Evicted)));
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

    fn join(&mut self, namespace: &Namespace, demand: Demand) -> oneshot::Receiver<Result<Permit, Evicted>> {
        let (answer, answered) = oneshot::channel();
        self.waiting += 1;
        if !self.lines.contains_key(namespace) {
            let times = self.settings.turns_of(namespace);
            self.turns.push_back((namespace.clone(), times));
        }
        let line = self.lines.entry(namespace.clone()).or_default();
        let behind = line.partition_point(|one| one.demand.priority >= demand.priority);
        line.insert(behind, Waiter { demand, answer });
        answered
    }

    /// Removes and returns the next request that may run. Namespaces whose next request may not keep their turn.
    fn next(&mut self) -> Option<(Namespace, Waiter)> {
        let mut at = 0;
        while let Some((namespace, times)) = self.turns.get(at).cloned() {
            let first = self.lines.get(&namespace).and_then(Line::front);
            if let Some(waiter) = first
                && !waiter.answer.is_closed()
                && !self.fits(&namespace, waiter.demand)
            {
                at += 1;
                continue;
            }
            self.turns.remove(at);
            let line = self.lines.entry(namespace.clone()).or_default();
            let next = line.pop_front();
            self.waiting -= usize::from(next.is_some());
            if line.is_empty() {
                self.lines.remove(&namespace);
            } else if times > 1 {
                self.turns.insert(at, (namespace.clone(), times - 1));
            } else {
                let times = self.settings.turns_of(&namespace);
                self.turns.push_back((namespace.clone(), times));
            }
            if let Some(next) = next.filter(|next| !next.answer.is_closed()) {
                return Some((namespace, next));
            }
        }
        None
    }
}

impl QueueSettings {
    /// Returns how many requests in a row of a namespace are served.
    fn turns_of(&self, namespace: &Namespace) -> u32 {
        match self.priorities.get(namespace) {
            Some(Priority::High) => 4,
            None | Some(Priority::Normal) => 2,
            Some(Priority::Low) => 1,
        }
    }
}

fn too_often(namespace: &Namespace, wait: Duration) -> RequestError {
    let retry_after_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    error::busy(
        format!("the namespace `{namespace}` sends requests faster than the operator allows."),
        format!("Try again in {retry_after_ms} ms."),
        retry_after_ms,
    )
}

fn busy(state: &State, why: &str) -> RequestError {
    let likely = Duration::from_secs_f64(state.likely_ms().clamp(50.0, 600_000.0) / 1000.0);
    let retry_after_ms = u64::try_from(likely.as_millis()).unwrap_or(u64::MAX);
    let taken = Taken::by(state.running.values());
    error::busy(
        format!(
            "{} programs run (at most {}), which may use {} of {} MiB of memory, and there is no place for this request: {why}.",
            taken.places,
            state.settings.concurrency,
            taken.memory_bytes >> 20,
            state.settings.memory_bytes >> 20,
        ),
        format!("Try again in {retry_after_ms} ms."),
        retry_after_ms,
    )
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.shared);
        if let Some(request) = state.running.remove(&self.number) {
            let held_ms = request.since.elapsed().as_secs_f64() * 1000.0;
            state.held_ms = state.held_ms * 0.9 + held_ms * 0.1;
        }
        drop(state);
        self.queue.start_waiting();
    }
}

#[cfg(test)]
mod tests;
