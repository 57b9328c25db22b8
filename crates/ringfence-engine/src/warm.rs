//! Places that stand ready before anybody wants them. A pool keeps a few for one plan, which knows nothing of any
//! request; whoever needs the same plan takes one, and what belongs to the request is bound by its claim. Each is used
//! once. A place that has ended, or was made under another plan, is never handed out.

use crate::{
    backend::{Place, Template},
    engine::House,
    sandbox::{self, Start},
};
use ringfence_jail::{Layout, Plan};
use ringfence_types::{Language, RequestError, Tier};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How long a pool may stay larger than it was told to be without being emptied.
const IDLE: Duration = Duration::from_secs(30);
/// After a place could not be made, until the next attempt; doubled by each failure.
const BACK_OFF: Duration = Duration::from_millis(250);
const BACK_OFF_MAX: Duration = Duration::from_secs(60);

/// A template is retired after so many forks, or when it is so old, so that its layout in memory does not live for ever.
const FORKS_MAX: u32 = 10_000;
const AGE_MAX: Duration = Duration::from_secs(3600);

/// How many places stand ready.
#[derive(Clone, Copy, Debug)]
pub struct WarmSettings {
    /// For each language when nothing happens; 0: none, every run starts cold.
    pub ready: usize,
    /// For each language under load.
    pub ready_max: usize,
}

/// All pools of a server.
#[derive(Default)]
pub(crate) struct Pools {
    pools: Mutex<Vec<Pool>>,
}

/// Places of one plan.
struct Pool {
    language: Option<Language>,
    plan: Arc<Plan>,
    source: Source,
    ready: Vec<Place>,
    /// Being made.
    making: usize,
    /// How many there should be.
    target: usize,
    /// When it was last found empty.
    wanted_more: Instant,
    failures: u32,
    trouble: Option<String>,
}

/// What places are made from.
enum Source {
    /// Nothing.
    Nothing,
    /// A template of this plan, where there is one now.
    Template {
        plan: Arc<Plan>,
        current: Option<Living>,
    },
}

/// A template in use.
#[derive(Clone)]
struct Living {
    template: Arc<Template>,
    born: Instant,
    forks: u32,
}

/// What `list_runtimes` tells of a pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warmth {
    /// Places that wait.
    pub(crate) ready: usize,
    /// Why the last one could not be made.
    pub(crate) trouble: Option<String>,
}

impl Pools {
    fn lock(&self) -> MutexGuard<'_, Vec<Pool>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of a language's pool.
    pub(crate) fn warmth(&self, language: Language) -> Warmth {
        let mut pools = self.lock();
        let pool = pools.iter_mut().find(|pool| pool.language == Some(language));
        pool.map_or_else(Warmth::default, |pool| {
            pool.ready.retain(Place::waits);
            Warmth {
                ready: pool.ready.len(),
                trouble: pool.trouble.clone(),
            }
        })
    }

    /// Lets every place go, and makes no more.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }
}

/// Starts the pools of every language that this host has, in the background.
pub(crate) fn begin(house: &Arc<House>) {
    if house.settings.warm.ready == 0 || house.settings.tier != Tier::Full {
        return;
    }
    let languages = [Language::Python, Language::Node, Language::Shell];
    let plans = languages.into_iter().filter_map(|language| {
        let surroundings = sandbox::surroundings(house, language).ok()?;
        let plan = |start| sandbox::plan(house, Layout::own_root(), &surroundings, None, start).ok();
        let start = Start::ahead(language);
        let source = match start {
            Start::Forked => Source::Template {
                plan: Arc::new(plan(Start::Template(language))?),
                current: None,
            },
            _ => Source::Nothing,
        };
        Some((Some(language), plan(start)?, source))
    });
    let worker = sandbox::plan_of_worker(house, "none", crate::prepare::PREPARE).ok();
    let mut pools = house.pools.lock();
    for (language, plan, source) in plans.chain(worker.map(|plan| (None, plan, Source::Nothing))) {
        pools.push(Pool {
            language,
            source,
            plan: Arc::new(plan),
            ready: Vec::new(),
            making: 0,
            target: house.settings.warm.ready,
            wanted_more: Instant::now(),
            failures: 0,
            trouble: None,
        });
    }
    drop(pools);
    fill(house);
}

/// A place for this plan that waits, if there is one.
pub(crate) fn take(house: &Arc<House>, plan: &Plan) -> Option<Place> {
    let taken = {
        let mut pools = house.pools.lock();
        let pool = pools.iter_mut().find(|pool| *pool.plan == *plan)?;
        let taken = std::iter::from_fn(|| pool.ready.pop()).find(Place::waits);
        if taken.is_none() {
            pool.target = (pool.target + 1).min(house.settings.warm.ready_max.max(pool.target));
            pool.wanted_more = Instant::now();
        }
        taken
    };
    let emptied = house.pools.lock().iter().any(|pool| pool.ready.is_empty());
    if emptied {
        fill(house);
    }
    taken
}

/// Makes what is missing, each in a task of its own. Called when a run has ended, because until then it needs the
/// processors more.
pub(crate) fn fill(house: &Arc<House>) {
    let mut pools = house.pools.lock();
    for pool in pools.iter_mut() {
        if pool.target > house.settings.warm.ready && pool.wanted_more.elapsed() > IDLE {
            pool.target = house.settings.warm.ready;
            pool.ready.truncate(pool.target);
        }
        // After a failure one attempt at a time; and the first makes the template.
        let alone = pool.failures > 0 || matches!(pool.source, Source::Template { current: None, .. });
        let at_once = if alone { 1 } else { pool.target };
        while pool.ready.len() + pool.making < pool.target && pool.making < at_once {
            pool.making += 1;
            tokio::spawn(make(house.clone(), pool.plan.clone(), pool.failures));
        }
    }
}

async fn make(house: Arc<House>, plan: Arc<Plan>, failures: u32) {
    if failures > 0 {
        let pause = BACK_OFF.saturating_mul(1 << failures.min(10)).min(BACK_OFF_MAX);
        tokio::time::sleep(pause).await;
    }
    let made = async {
        let template = template(&house, &plan).await?;
        let place = house.native.place(plan.clone(), template)?;
        place.parked().await.map(|_| place)
    };
    let made = made.await;
    let mut pools = house.pools.lock();
    let Some(pool) = pools.iter_mut().find(|pool| Arc::ptr_eq(&pool.plan, &plan)) else {
        return; // the pools are closed
    };
    pool.making -= 1;
    match made {
        Ok(place) => {
            pool.failures = 0;
            pool.trouble = None;
            pool.ready.push(place);
        }
        Err(error) => {
            tracing::warn!(language = ?pool.language, %error, "no place could be kept ready");
            pool.failures = pool.failures.saturating_add(1);
            if let Source::Template { current, .. } = &mut pool.source {
                *current = None;
            }
            pool.trouble = Some(error.message);
        }
    }
    drop(pools);
    fill(&house);
}

/// The template of a pool, made when there is none, or none that is still good.
async fn template(house: &Arc<House>, plan: &Arc<Plan>) -> Result<Option<Arc<Template>>, RequestError> {
    let of_template = {
        let mut pools = house.pools.lock();
        let pool = pools.iter_mut().find(|pool| Arc::ptr_eq(&pool.plan, plan));
        let Some(Source::Template { plan, current }) = pool.map(|pool| &mut pool.source) else {
            return Ok(None);
        };
        match current {
            Some(living) if living.is_good() => {
                living.forks += 1;
                return Ok(Some(living.template.clone()));
            }
            _ => plan.clone(),
        }
    };
    let template = Arc::new(house.native.template(of_template).await?);
    let mut pools = house.pools.lock();
    let pool = pools.iter_mut().find(|pool| Arc::ptr_eq(&pool.plan, plan));
    if let Some(Source::Template { current, .. }) = pool.map(|pool| &mut pool.source) {
        *current = Some(Living {
            template: template.clone(),
            born: Instant::now(),
            forks: 1,
        });
    }
    Ok(Some(template))
}

impl Living {
    fn is_good(&self) -> bool {
        self.forks < FORKS_MAX && self.born.elapsed() < AGE_MAX && self.template.place.waits()
    }
}
