//! Places that stand ready before anybody wants them. A pool keeps a few for one plan, which knows nothing of any
//! request; what belongs to a request is bound by its claim. Each is used once. A place that has ended, or was made
//! under another plan, is never handed out.

mod pool;

use crate::{
    backend::{Place, Template},
    engine::House,
    sandbox::Surroundings,
};
use pool::{Origin, Pool, Purpose};
use ringfence_jail::Plan;
use ringfence_types::{ExecuteRequest, Language, RequestError, Tier};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use tokio::sync::Notify;

/// How often pools are looked after when nothing happens.
const TENDING: Duration = Duration::from_secs(5);
/// After a place could not be made, until the next attempt; doubled by each failure.
const BACK_OFF: Duration = Duration::from_millis(250);
const BACK_OFF_MAX: Duration = Duration::from_secs(60);

/// How many places stand ready, and what they know.
#[derive(Clone, Debug)]
pub struct WarmSettings {
    /// For each pool when nothing happens; 0: none, every run starts cold.
    pub ready: usize,
    /// For each pool under load.
    pub ready_max: usize,
    /// What all places that wait may take of the host's memory, with their templates.
    pub memory_bytes: u64,
    /// Python modules that a second template imports, for programs that name them; none: no such template.
    pub preload_python: Vec<String>,
    /// Node.js modules that are loaded before the claim.
    pub preload_node: Vec<String>,
    /// A template is retired after so many forks, so that its layout in memory does not live for ever.
    pub template_forks: u32,
    /// And when it is so old.
    pub template_age: Duration,
}

/// All pools of a server.
#[derive(Default)]
pub(crate) struct Pools {
    pools: Mutex<Vec<Pool>>,
    /// Rings when a place was made, or could not be.
    tried: Notify,
}

/// What `list_runtimes` tells of a language's pools.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warmth {
    /// Places that wait.
    pub(crate) ready: usize,
    /// Modules that they have imported.
    pub(crate) preloaded: Vec<String>,
    /// What they and their templates take of the host's memory.
    pub(crate) memory_bytes: u64,
    /// Why one could not be made.
    pub(crate) trouble: Option<String>,
}

/// A place for a request, with what its interpreter needs.
pub(crate) struct Taken {
    pub(crate) place: Place,
    pub(crate) surroundings: Arc<Surroundings>,
}

impl Pools {
    fn lock(&self) -> MutexGuard<'_, Vec<Pool>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of a language's pools.
    pub(crate) fn warmth(&self, language: Language) -> Warmth {
        let mut warmth = Warmth::default();
        for pool in self.lock().iter_mut() {
            if pool.purpose.language() == Some(language) {
                pool.drop_the_dead();
                warmth.ready += pool.ready.len();
                warmth.memory_bytes += pool.memory_bytes();
                warmth.preloaded.extend_from_slice(pool.imported());
                warmth.trouble = warmth.trouble.take().or(pool.trouble.clone());
            }
        }
        let mut known = std::collections::HashSet::new();
        warmth.preloaded.retain(|module| known.insert(module.clone()));
        warmth
    }

    /// Until every pool is full, or cannot be.
    pub(crate) async fn settled(&self) {
        loop {
            let tried = self.tried.notified();
            if self.lock().iter().all(Pool::is_settled) {
                return;
            }
            tried.await;
        }
    }

    /// Lets every place go, and makes no more.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }
}

/// Starts the pools of everything that this host has, and looks after them, in the background.
pub(crate) fn begin(house: &Arc<House>) {
    if house.settings.warm.ready == 0 || house.settings.tier != Tier::Full {
        return;
    }
    let pools = Purpose::ALL
        .into_iter()
        .filter_map(|purpose| Pool::new(house, purpose));
    house.pools.lock().extend(pools);
    fill(house);
    tokio::spawn(tend(Arc::downgrade(house)));
}

/// A place that waits for this request, if there is one, or one that its template makes now, which is nearly as quick.
/// What decides about a request's Python is which modules its text names; a wrong guess costs time and nothing else.
pub(crate) fn take(house: &House, request: &ExecuteRequest) -> Option<Taken> {
    let mut pools = house.pools.lock();
    let fits = |pool: &Pool| match pool.purpose {
        Purpose::Program(language) => language == request.language.runs_as(),
        // What it has imported may be what the request brings another version of.
        Purpose::Data => {
            request.language == Language::Python
                && request.packages.is_empty()
                && pool.is_named_in(&request.code)
        }
        Purpose::Parser => false,
    };
    // The most special one first.
    let pool = pools.iter_mut().rev().find(|pool| fits(pool))?;
    if pool.is_shadowed_by(&request.files) {
        return None;
    }
    let place = take_from(house, pool)?;
    Some(Taken {
        place,
        surroundings: pool.surroundings.clone(),
    })
}

/// The same for a parser of our own.
pub(crate) fn take_parser(house: &House) -> Option<Place> {
    let mut pools = house.pools.lock();
    let pool = pools.iter_mut().find(|pool| pool.purpose == Purpose::Parser)?;
    take_from(house, pool)
}

fn take_from(house: &House, pool: &mut Pool) -> Option<Place> {
    pool.pop(house.settings.warm.ready_max).or_else(|| {
        let template = pool.template_to_fork(&house.settings.warm)?;
        house.native.place(pool.plan.clone(), Some(template)).ok()
    })
}

/// Makes what is missing, each in a task of its own. Called when a run has ended, because until then it needs the
/// processors more.
pub(crate) fn fill(house: &Arc<House>) {
    let mut pools = house.pools.lock();
    let mut room = room(house, &pools);
    for pool in pools.iter_mut() {
        for _ in 0..pool.missing(&house.settings.warm, &mut room) {
            pool.making += 1;
            tokio::spawn(make(house.clone(), pool.plan.clone(), pool.failures));
        }
    }
}

/// What is left of the memory for all pools.
fn room(house: &House, pools: &[Pool]) -> u64 {
    let taken = pools.iter().map(Pool::memory_bytes).sum();
    house.settings.warm.memory_bytes.saturating_sub(taken)
}

/// Looks after the pools of a server as long as it lives.
async fn tend(house: Weak<House>) {
    loop {
        tokio::time::sleep(TENDING).await;
        let Some(house) = house.upgrade() else { return };
        if house.pools.lock().is_empty() {
            return; // the pools are closed
        }
        for purpose in Purpose::ALL {
            compare(&house, purpose);
        }
        fill(&house);
    }
}

/// Holds a pool against what the host has now: another interpreter may be first on the path, or other packages, or none.
fn compare(house: &House, purpose: Purpose) {
    let now = Pool::new(house, purpose);
    let mut pools = house.pools.lock();
    let at = pools.iter().position(|pool| pool.purpose == purpose);
    match (at.and_then(|at| pools.get_mut(at)), now) {
        (Some(pool), Some(now)) if now.is_same_as(pool) => {
            pool.drop_the_dead();
            pool.shrink_when_idle(house.settings.warm.ready);
        }
        (Some(pool), Some(now)) => *pool = now,
        (None, Some(now)) => pools.push(now),
        (Some(_), None) => pools.retain(|pool| pool.purpose != purpose),
        (None, None) => {}
    }
    pools.sort_by_key(|pool| Purpose::ALL.iter().position(|purpose| *purpose == pool.purpose));
}

/// Makes one place of a pool. A pool that has been replaced meanwhile is not found any more, and the place is let go.
async fn make(house: Arc<House>, plan: Arc<Plan>, failures: u32) {
    if failures > 0 {
        let pause = BACK_OFF.saturating_mul(1 << failures.min(10)).min(BACK_OFF_MAX);
        tokio::time::sleep(pause).await;
    }
    let made = place(&house, &plan).await;
    {
        let mut pools = house.pools.lock();
        let Some(pool) = pool_of(&mut pools, &plan) else {
            return;
        };
        pool.making -= 1;
        let room = room(&house, &pools);
        let Some(pool) = pool_of(&mut pools, &plan) else {
            return;
        };
        match made {
            Ok(None) => {}
            Ok(Some((place, bytes))) => pool.add(place, bytes, room),
            Err(error) => {
                tracing::warn!(pool = ?pool.purpose, %error, "no place could be kept ready");
                pool.failed(error.message);
            }
        }
    }
    fill(&house);
    house.pools.tried.notify_waiters();
}

fn pool_of<'a>(pools: &'a mut [Pool], plan: &Arc<Plan>) -> Option<&'a mut Pool> {
    pools.iter_mut().find(|pool| Arc::ptr_eq(&pool.plan, plan))
}

/// A place with all walls up, and what it takes of memory where that is not known yet. `None`: its template is just being
/// made, or turns out to be good for nothing, or for too much memory.
async fn place(house: &House, plan: &Arc<Plan>) -> Result<Option<(Place, Option<u64>)>, RequestError> {
    let origin = pool_of(&mut house.pools.lock(), plan).and_then(|pool| pool.origin(&house.settings.warm));
    let template = match origin {
        None => return Ok(None),
        Some(Origin::Nothing) => None,
        Some(Origin::Template(template)) => Some(template),
        Some(Origin::TemplateToBe(wanted)) => {
            let made = template(house, plan, wanted).await;
            if let Some(pool) = pool_of(&mut house.pools.lock(), plan) {
                pool.has_builder = false;
            }
            match made? {
                Some(template) => Some(template),
                None => return Ok(None),
            }
        }
    };
    let place = house.native.place(plan.clone(), template)?;
    place.parked().await?;
    let unknown = pool_of(&mut house.pools.lock(), plan).is_some_and(|pool| pool.place_bytes == 0);
    let bytes = match unknown {
        true => Some(place.measure().await?),
        false => None,
    };
    Ok(Some((place, bytes)))
}

/// Makes the template of a pool, if there is memory for it, and takes it into use.
async fn template(
    house: &House,
    plan: &Arc<Plan>,
    wanted: Arc<Plan>,
) -> Result<Option<Arc<Template>>, RequestError> {
    let template = house.native.template(wanted).await?;
    let bytes = template.place.measure().await?;
    let mut pools = house.pools.lock();
    let others = pools.iter().filter(|pool| !Arc::ptr_eq(&pool.plan, plan));
    let taken: u64 = others.map(Pool::memory_bytes).sum();
    let enough = taken + bytes <= house.settings.warm.memory_bytes;
    Ok(pool_of(&mut pools, plan).and_then(|pool| {
        if enough {
            pool.begin_template(template, bytes)
        } else {
            pool.refuse_template(bytes);
            None
        }
    }))
}
