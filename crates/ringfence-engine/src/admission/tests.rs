//! Turns, weights and what is refused.

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
    Queue::of(settings, Share::OfWhatIsFree(processors), Some(Bus::new()))
}

fn name(text: &str) -> Namespace {
    Namespace::try_from(text.to_owned()).unwrap()
}

async fn admit(queue: &Queue, who: &str) -> Result<Permit> {
    admit_with(queue, who, 0).await
}

async fn admit_with(queue: &Queue, who: &str, memory_mb: u64) -> Result<Permit> {
    let demand = Demand {
        memory_bytes: memory_mb << 20,
        time: Duration::from_secs(10),
        ..Demand::default()
    };
    queue.admit(&name(who), demand).await
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
            let demand = Demand {
                priority,
                ..Demand::default()
            };
            let permit = queue_of_task.admit(&name(who), demand).await.ok().unwrap();
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
    let mut heard = queue
        .bus
        .as_ref()
        .unwrap()
        .subscribe(crate::events::Hears::AllButOutput);
    let held = admit(&queue, "a").await.ok().unwrap();
    let refused = admit(&queue, "a").await.err().unwrap();
    assert_eq!(refused.code, ErrorCode::Busy);
    assert!(refused.retry_after_ms.unwrap() >= 50);
    assert_eq!(heard.next().await.unwrap().kind.name(), "queue.backpressure");
    drop(held);
    assert!(admit(&queue, "a").await.is_ok());
}

/// How many of these get a place at once.
async fn fill(queue: &Queue, who: &str, memory_mb: u64) -> Vec<Permit> {
    let mut permits = Vec::new();
    while let Ok(permit) = admit_with(queue, who, memory_mb).await {
        permits.push(permit);
    }
    permits
}

/// claim: [RES-10]
#[tokio::test]
async fn a_namespace_that_sleeps_in_all_its_places_keeps_nobody_out() {
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
async fn memory_is_a_budget_of_which_a_namespace_leaves_a_share() {
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
async fn busy_processors_delay_those_who_have_a_place_and_nobody_else() {
    let queue = on(settings(32, 0), || 5);
    let busy = fill(&queue, "busy", 0).await;
    assert_eq!(busy.len(), 4, "two for each processor");
    let _other = admit(&queue, "other").await.ok().unwrap();
    assert!(admit(&queue, "other").await.is_err());
    assert!(admit(&queue, "third").await.is_ok());
}

#[tokio::test]
async fn processors_that_become_free_are_noticed() {
    static RUNNABLE: AtomicUsize = AtomicUsize::new(9);
    let queue = on(settings(32, 1), || RUNNABLE.load(Ordering::Relaxed));
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(admit(&queue, "a").await.ok().unwrap());
    }
    let waiting = queue.clone();
    let fifth = tokio::spawn(async move { admit(&waiting, "a").await.is_ok() });
    while queue.look().waiting < 1 {
        tokio::task::yield_now().await;
    }
    RUNNABLE.store(1, Ordering::Relaxed);
    assert!(fifth.await.unwrap());
}

#[tokio::test]
async fn the_time_to_come_back_is_that_of_what_runs() {
    let queue = queue(1, 0);
    let held = admit(&queue, "sleeper").await.ok().unwrap();
    let retry_after_ms = async |age| {
        let since = Instant::now().checked_sub(Duration::from_secs(age)).unwrap();
        lock(&queue.shared).running.get_mut(&held.number).unwrap().since = since;
        admit(&queue, "a").await.err().unwrap().retry_after_ms.unwrap()
    };
    assert!(
        (2_900..=3_100).contains(&retry_after_ms(3).await),
        "as long again"
    );
    assert!(
        (500..=1_000).contains(&retry_after_ms(9).await),
        "it may run for ten seconds"
    );
}

#[tokio::test]
async fn a_large_one_that_finds_no_room_delays_no_other_namespace() {
    let queue = queue(32, 4);
    let _held = admit_with(&queue, "a", 4096).await.ok().unwrap();
    let waiting = queue.clone();
    let large = tokio::spawn(async move { admit_with(&waiting, "large", 8192).await.is_ok() });
    while queue.look().waiting < 1 {
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
async fn a_namespace_that_asks_too_often_is_told_when_to_come_back_and_hinders_no_other() {
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

fn now<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(done) => Some(done),
        std::task::Poll::Pending => None,
    }
}

#[tokio::test]
async fn a_namespace_never_has_all_the_places_that_are_counted_and_others_go_before_it() {
    use std::pin::pin;
    let queue = Queue::of_places(3, 2, 32);
    let ask = |who: &'static str| {
        let queue = queue.clone();
        async move {
            let who = name(who);
            let permit = queue.permit(&who, Demand::default(), Duration::from_secs(60));
            permit.await.ok().unwrap()
        }
    };
    let first = ask("flood").await;
    let _second = ask("flood").await;
    let mut third = pin!(ask("flood"));
    assert!(now(third.as_mut()).is_none(), "it has two");
    let own = ask("other").await;
    let (mut fourth, mut next) = (pin!(ask("flood")), pin!(ask("other")));
    assert!(now(fourth.as_mut()).is_none() && now(next.as_mut()).is_none());
    drop(own);
    assert!(now(third.as_mut()).is_none() && now(fourth.as_mut()).is_none());
    let _next = now(next.as_mut()).unwrap();
    drop(first);
    // Both have one; the first that came is next.
    let mut last = pin!(ask("other"));
    assert!(now(last.as_mut()).is_none() && now(fourth.as_mut()).is_none());
    let _third = now(third.as_mut()).unwrap();
}

#[tokio::test]
async fn a_request_that_goes_away_leaves_nothing_in_a_queue_of_places() {
    use std::pin::pin;
    let queue = Queue::of_places(3, 2, 32);
    let one = name("one");
    {
        let ask = || queue.permit(&one, Demand::default(), Duration::from_secs(60));
        let (_first, _second) = (ask().await.ok().unwrap(), ask().await.ok().unwrap());
        assert!(now(pin!(ask())).is_none());
        assert_eq!(queue.look().waiting, 0, "it was dropped");
    }
    let state = queue.look();
    assert_eq!((state.running, state.waiting, state.lines.len()), (0, 0, 0));
}

#[tokio::test]
async fn a_queue_without_a_line_bounds_how_many_there_are_of_one_namespace_and_of_all() {
    let queue = Queue::of_places(32, 8, 0);
    let ask = async |who: &str| {
        queue
            .permit(&name(who), Demand::default(), Duration::ZERO)
            .await
            .ok()
    };
    let mut own = Vec::new();
    for _ in 0..8 {
        own.push(ask("one").await.unwrap());
    }
    assert!(ask("one").await.is_none());
    let mut others = Vec::new();
    for number in 0..24 {
        others.push(ask(&format!("n{number}")).await.unwrap());
    }
    assert!(ask("late").await.is_none());
    drop(own);
    assert!(ask("one").await.is_some());
}
