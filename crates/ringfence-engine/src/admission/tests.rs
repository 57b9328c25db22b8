//! Turns, weights and refusals.

use super::*;
use crate::error::Result;
use ringfence_types::ErrorCode;
use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    sync::atomic::{AtomicUsize, Ordering},
};

fn settings(concurrency: usize, waiting: usize) -> QueueSettings {
    QueueSettings {
        concurrency,
        memory_bytes: 8 << 30,
        waiting,
        patience: Duration::from_secs(60),
        priorities: BTreeMap::new(),
        rate: None,
    }
}

fn queue(concurrency: usize, waiting: usize) -> Queue {
    on(settings(concurrency, waiting), || 0)
}

fn on(settings: QueueSettings, runnable: fn() -> usize) -> Queue {
    let processors = Processors { count: 2, runnable };
    Queue::of(settings, Share::Proportional(processors), Some(Bus::new()))
}

fn name(text: &str) -> Namespace {
    Namespace::try_from(text.to_owned()).unwrap()
}

async fn admit(queue: &Queue, namespace: &str) -> Result<Permit> {
    admit_with(queue, namespace, 0).await
}

async fn admit_with(queue: &Queue, namespace: &str, memory_mb: u64) -> Result<Permit> {
    let demand = Demand {
        memory_bytes: memory_mb << 20,
        ..Demand::default()
    };
    queue.admit(&name(namespace), demand).await
}

/// Lets these requests wait behind a running one, and returns the order in which they were served.
async fn served(queue: &Queue, waiters: &[(&'static str, Priority)]) -> Vec<String> {
    let held = admit(queue, "held").await.ok().unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (namespace, priority) in waiters.iter().copied() {
        let (queue_of_task, order) = (queue.clone(), order.clone());
        let before = queue.state().waiting;
        tasks.push(tokio::spawn(async move {
            let demand = Demand {
                priority,
                ..Demand::default()
            };
            let permit = queue_of_task.admit(&name(namespace), demand).await.ok().unwrap();
            order.lock().unwrap().push(format!("{namespace} {priority:?}"));
            drop(permit);
        }));
        while queue.state().waiting == before {
            tokio::task::yield_now().await;
        }
    }
    drop(held);
    for task in tasks {
        task.await.unwrap();
    }
    let state = queue.state();
    assert_eq!((state.running, state.waiting, state.lines.len()), (0, 0, 0));
    Arc::into_inner(order).unwrap().into_inner().unwrap()
}

#[tokio::test]
async fn full_queue_gives_a_retry_time_and_publishes_an_event() {
    let queue = queue(1, 0);
    let mut events = queue
        .bus
        .as_ref()
        .unwrap()
        .subscribe(crate::events::Hears::AllButOutput);
    let held = admit(&queue, "a").await.ok().unwrap();
    let refused = admit(&queue, "a").await.err().unwrap();
    assert_eq!(refused.code, ErrorCode::Busy);
    assert!(refused.retry_after_ms.unwrap() >= 50);
    assert_eq!(events.next().await.unwrap().kind.name(), "queue.backpressure");
    drop(held);
    assert!(admit(&queue, "a").await.is_ok());
}

/// Takes places until the queue refuses.
async fn fill(queue: &Queue, namespace: &str, memory_mb: u64) -> Vec<Permit> {
    let mut permits = Vec::new();
    while let Ok(permit) = admit_with(queue, namespace, memory_mb).await {
        permits.push(permit);
    }
    permits
}

/// claim: [RES-10]
#[tokio::test]
async fn sleeping_namespace_leaves_places_for_others() {
    let queue = queue(32, 0);
    let sleeping = fill(&queue, "sleeper", 0).await;
    assert_eq!(sleeping.len(), 24);
    let mut others = Vec::new();
    for other in 0..8 {
        others.push(admit(&queue, &format!("other{other}")).await.ok().unwrap());
    }
    assert_eq!(admit(&queue, "late").await.err().unwrap().code, ErrorCode::Busy);
    drop(sleeping);
    assert!(admit(&queue, "late").await.is_ok());
}

/// claim: [RES-10]
#[tokio::test]
async fn namespace_leaves_a_share_of_the_memory_budget() {
    let queue = queue(1000, 0);
    let sleeping = fill(&queue, "sleeper", 512).await;
    assert_eq!(sleeping.len(), 12, "of 16");
    let small = admit_with(&queue, "small", 512).await;
    let refused = admit_with(&queue, "large", 2048).await.err().unwrap();
    assert!(refused.message.contains("6656 of 8192 MiB"), "{refused}");
    assert!(admit_with(&queue, "other", 1536).await.is_ok());
    drop((sleeping, small));
    let whole = admit_with(&queue, "whole", 1 << 20).await;
    assert!(whole.is_ok(), "alone");
    assert!(admit_with(&queue, "small", 16).await.is_err());
}

/// claim: [RES-10]
#[tokio::test]
async fn busy_processors_delay_only_namespaces_with_running_programs() {
    let queue = on(settings(32, 0), || 5);
    let busy = fill(&queue, "busy", 0).await;
    assert_eq!(busy.len(), 4, "two for each processor");
    let _other = admit(&queue, "other").await.ok().unwrap();
    assert!(admit(&queue, "other").await.is_err());
    assert!(admit(&queue, "third").await.is_ok());
}

#[tokio::test]
async fn freed_processors_admit_waiters() {
    static RUNNABLE: AtomicUsize = AtomicUsize::new(9);
    let queue = on(settings(32, 1), || RUNNABLE.load(Ordering::Relaxed));
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(admit(&queue, "a").await.ok().unwrap());
    }
    let waiting = queue.clone();
    let fifth = tokio::spawn(async move { admit(&waiting, "a").await.is_ok() });
    while queue.state().waiting < 1 {
        tokio::task::yield_now().await;
    }
    RUNNABLE.store(1, Ordering::Relaxed);
    assert!(fifth.await.unwrap());
}

#[test]
fn retry_time_grows_with_the_waiting_requests() {
    let queue = queue(2, 0);
    let retry_after_ms = |waiting| {
        let mut state = lock(&queue.shared);
        (state.held_ms, state.waiting) = (1_000.0, waiting);
        busy(&state, "full").retry_after_ms.unwrap()
    };
    assert_eq!(retry_after_ms(0), 1_000);
    assert_eq!(retry_after_ms(1), 1_000);
    assert_eq!(retry_after_ms(5), 3_000);
    assert_eq!(retry_after_ms(5_000), 600_000, "at most ten minutes");
}

#[tokio::test]
async fn large_waiting_request_delays_no_other_namespace() {
    let queue = queue(32, 4);
    let _held = admit_with(&queue, "a", 4096).await.ok().unwrap();
    let waiting = queue.clone();
    let large = tokio::spawn(async move { admit_with(&waiting, "large", 8192).await.is_ok() });
    while queue.state().waiting < 1 {
        tokio::task::yield_now().await;
    }
    drop(admit_with(&queue, "small", 16).await.ok().unwrap());
    drop(_held);
    assert!(large.await.unwrap());
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
async fn urgent_requests_go_first_only_within_their_namespace() {
    use Priority::{High, Low, Normal};
    let waiters = [("a", Low), ("b", Normal), ("a", High), ("a", Normal)];
    let order = served(&queue(1, 10), &waiters).await;
    assert_eq!(order, ["a High", "a Normal", "b Normal", "a Low"]);
}

#[tokio::test]
async fn preferred_namespace_is_served_more_often() {
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
    let order = served(&on(settings, || 0), &waiters).await;
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
async fn rate_limited_namespace_gets_a_retry_time_and_delays_no_other() {
    let one = NonZeroU32::new(1).unwrap();
    let rate = Some(Rate {
        per_minute: one,
        burst: one,
    });
    let settings_with_rate = QueueSettings {
        rate,
        ..settings(4, 4)
    };
    let queue = on(settings_with_rate, || 0);
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
async fn waiting_is_bounded_and_expired_waiters_take_no_space() {
    let queue = queue(1, 2);
    let _held = admit(&queue, "a").await.ok().unwrap();
    for _ in 0..3 {
        let both = tokio::join!(admit(&queue, "a"), admit(&queue, "a"));
        for refused in [both.0, both.1] {
            let refused = refused.err().unwrap();
            assert!(refused.message.contains("waited 60 s"), "{refused}");
        }
        assert_eq!((queue.state().waiting, queue.state().lines.len()), (0, 0));
    }
}

#[tokio::test]
async fn longest_line_of_a_full_queue_gives_way_to_a_shorter_one() {
    let queue = queue(1, 3);
    let held = admit(&queue, "flood").await.ok().unwrap();
    let wait = |namespace: &'static str| {
        let queue = queue.clone();
        tokio::spawn(async move {
            admit(&queue, namespace)
                .await
                .map(drop)
                .map_err(|error| error.code)
        })
    };
    let flood: Vec<_> = (0..3).map(|_| wait("flood")).collect();
    while queue.state().waiting < 3 {
        tokio::task::yield_now().await;
    }
    let quiet = wait("quiet");
    while queue.state().lines.len() < 2 {
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
async fn higher_limit_admits_waiters_and_lower_limit_applies_as_runs_end() {
    let queue = queue(1, 10);
    let first = admit(&queue, "a").await.ok().unwrap();
    let waiting = queue.clone();
    let second = tokio::spawn(async move { admit(&waiting, "a").await.ok().unwrap() });
    while queue.state().waiting < 1 {
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
async fn dropped_waiter_wastes_no_place() {
    let queue = queue(1, 10);
    let held = admit(&queue, "a").await.ok().unwrap();
    let (second, third) = (queue.clone(), queue.clone());
    let gone = tokio::spawn(async move { admit(&second, "a").await.is_ok() });
    while queue.state().waiting < 1 {
        tokio::task::yield_now().await;
    }
    let stays = tokio::spawn(async move { admit(&third, "a").await.is_ok() });
    while queue.state().waiting < 2 {
        tokio::task::yield_now().await;
    }
    gone.abort();
    assert!(gone.await.is_err());
    drop(held);
    assert!(stays.await.unwrap());
    assert_eq!((queue.state().running, queue.state().waiting), (0, 0));
}

fn now<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(done) => Some(done),
        std::task::Poll::Pending => None,
    }
}

#[tokio::test]
async fn namespace_never_takes_all_counted_places_and_others_overtake_it() {
    use std::pin::pin;
    let queue = Queue::of_places(3, 2, 32);
    let acquire = |namespace: &'static str| {
        let queue = queue.clone();
        async move {
            let namespace = name(namespace);
            let permit = queue.permit(&namespace, Demand::default(), Duration::from_secs(60));
            permit.await.ok().unwrap()
        }
    };
    let first = acquire("flood").await;
    let _second = acquire("flood").await;
    let mut third = pin!(acquire("flood"));
    assert!(now(third.as_mut()).is_none(), "the namespace has two");
    let own = acquire("other").await;
    let (mut fourth, mut next) = (pin!(acquire("flood")), pin!(acquire("other")));
    assert!(now(fourth.as_mut()).is_none() && now(next.as_mut()).is_none());
    drop(own);
    assert!(now(third.as_mut()).is_none() && now(fourth.as_mut()).is_none());
    let _next = now(next.as_mut()).unwrap();
    drop(first);
    // Both namespaces have one place; the earlier waiter is next.
    let mut last = pin!(acquire("other"));
    assert!(now(last.as_mut()).is_none() && now(fourth.as_mut()).is_none());
    let _third = now(third.as_mut()).unwrap();
}

#[tokio::test]
async fn retry_time_is_longer_only_if_every_running_request_is() {
    let queue = queue(2, 0);
    let [one, _other] = [admit(&queue, "a").await, admit(&queue, "b").await].map(Result::unwrap);
    let set_since = |numbers: &[u64]| {
        let mut state = lock(&queue.shared);
        state.held_ms = 1_000.0;
        let old = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        for number in numbers {
            state.running.get_mut(number).unwrap().since = old;
        }
        busy(&state, "full").retry_after_ms.unwrap()
    };
    assert_eq!(set_since(&[one.number]), 1_000);
    let all: Vec<u64> = lock(&queue.shared).running.keys().copied().collect();
    assert!((60_000..70_000).contains(&set_since(&all)));
}

#[tokio::test]
async fn expired_request_is_not_counted() {
    let queue = Queue::of_places(1, 1, 32);
    let (one, short) = (name("one"), Duration::from_millis(1));
    let acquire = |patience| queue.permit(&one, Demand::default(), patience);
    let _held = acquire(short).await.ok().unwrap();
    assert!(acquire(short).await.is_err());
    assert_eq!(lock(&queue.shared).waiting, 0);
}

#[tokio::test]
async fn dropped_request_leaves_nothing_in_a_queue_of_places() {
    use std::pin::pin;
    let queue = Queue::of_places(3, 2, 32);
    let one = name("one");
    {
        let acquire = || queue.permit(&one, Demand::default(), Duration::from_secs(60));
        let (_first, _second) = (acquire().await.ok().unwrap(), acquire().await.ok().unwrap());
        assert!(now(pin!(acquire())).is_none());
        assert_eq!(queue.state().waiting, 0, "the waiter was dropped");
    }
    let state = queue.state();
    assert_eq!((state.running, state.waiting, state.lines.len()), (0, 0, 0));
}

#[tokio::test]
async fn queue_without_waiting_bounds_each_namespace_and_the_total() {
    let queue = Queue::of_places(32, 8, 0);
    let acquire = async |namespace: &str| {
        queue
            .permit(&name(namespace), Demand::default(), Duration::ZERO)
            .await
            .ok()
    };
    let mut own = Vec::new();
    for _ in 0..8 {
        own.push(acquire("one").await.unwrap());
    }
    assert!(acquire("one").await.is_none());
    let mut others = Vec::new();
    for number in 0..24 {
        others.push(acquire(&format!("n{number}")).await.unwrap());
    }
    assert!(acquire("late").await.is_none());
    drop(own);
    assert!(acquire("one").await.is_some());
}
