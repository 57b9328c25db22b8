//! Sandboxes that are made ahead of requests. A pool keeps a few for one plan, which knows nothing of any request; a
//! claim adds a request's parts. Each is used once; one that has ended or has another plan is not handed out.

use crate::{
    backend::{Sandbox, Template},
    error::Result,
    language::{Imports, PREPARE, TemplateOf},
    pool::{Made, MadeFrom, Pool, Purpose, is_shadowed},
    runtimes::{self, Toolchain},
    sandbox::{ReadySandbox, Sandboxes, Start},
    sync::lock,
};
use ringfence_jail::Plan;
use ringfence_types::{Backend, ExecuteRequest, Language, Tier, WorkspaceMode, WorkspaceSource};
use std::{
    collections::HashSet,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

/// Stands in for a directory's name, in a plan that is only compared.
const NO_ID: &str = "none";

/// Interval between checks of the pools.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(5);
/// Delay after a failure until the next attempt; doubled by each failure.
const BACK_OFF: Duration = Duration::from_millis(250);
const BACK_OFF_MAX: Duration = Duration::from_secs(60);
/// Failures of a Node.js template after which Node.js is started ahead instead.
const NODE_FAILURES: u32 = 2;

/// Starts a pool for each interpreter of this host, and maintains them in the background.
pub(crate) fn begin(sandboxes: &Arc<Sandboxes>) {
    sandboxes.containers.begin();
    if sandboxes.warm.ready == 0 {
        return;
    }
    let pools = Purpose::ALL
        .into_iter()
        .filter_map(|purpose| pool(sandboxes, purpose));
    sandboxes.pools.lock().extend(pools);
    fill(sandboxes);
    tokio::spawn(maintain(Arc::downgrade(sandboxes)));
}

/// Makes a sandbox for the first request of a server that keeps none ready. If that fails, the request gets another.
pub(crate) fn make_first(sandboxes: &Sandboxes, request: &ExecuteRequest) -> Option<()> {
    let default = sandboxes.policy.current().backends.default;
    let is_native = request.backend.unwrap_or(default) == Backend::Native;
    // An overlay has to be mounted when a sandbox is made. Without a root of its own, its directory has the name of the
    // execution; the directory of layers is made when they are opened.
    let has_overlay =
        matches!(&request.workspace, WorkspaceSource::Host { mode, .. } if *mode == WorkspaceMode::Overlay);
    if !is_native || has_overlay || sandboxes.tier != Tier::Full || !sandboxes.layers.is_dir() {
        return None;
    }
    let toolchain = runtimes::toolchain(request.language, &sandboxes.runtimes).ok()?;
    let plan = sandboxes.plan(sandboxes.layout(NO_ID), &toolchain, None, Start::Claimed);
    let sandbox = sandboxes.native.spawn(Arc::new(plan.ok()?), None).ok()?;
    let first = ReadySandbox {
        sandbox,
        toolchain: Arc::new(toolchain),
    };
    lock(&sandboxes.first).insert(request.language, first);
    Some(())
}

/// Takes a ready sandbox, or one that its template forks now, which is nearly as quick. The modules named in a Python
/// request's text choose its pool; a wrong guess only costs time. `beside`: names in the workspace; if one shadows a
/// loaded module, or with `None`, the sandbox has no interpreter yet.
pub(crate) fn take(
    sandboxes: &Sandboxes,
    request: &ExecuteRequest,
    beside: Option<HashSet<String>>,
) -> Option<ReadySandbox> {
    if let Some(first) = lock(&sandboxes.first).remove(&request.language) {
        return Some(first);
    }
    let mut pools = sandboxes.pools.lock();
    let fits = |pool: &Pool| match pool.purpose {
        Purpose::Program(language) => language == request.language.runs_as(),
        // The request may bring another version of an imported module.
        Purpose::Data => {
            request.language == Language::Python
                && request.packages.is_empty()
                && pool.is_named_in(&request.code)
        }
        Purpose::Parser => false,
    };
    // The most specific one first.
    let pool = pools.iter_mut().rev().find(|pool| fits(pool))?;
    let toolchain = pool.toolchain.clone();
    let sandbox = match beside {
        Some(beside) if !is_shadowed(&pool.imported().loaded, &request.files, &beside) => {
            take_from(sandboxes, pool)?
        }
        // It sees every interpreter, for scripts to call.
        _ => take_from(sandboxes, of(&mut pools, Purpose::Program(Language::Shell))?)?,
    };
    Some(ReadySandbox { sandbox, toolchain })
}

pub(crate) fn take_parser(sandboxes: &Sandboxes) -> Option<Sandbox> {
    let mut pools = sandboxes.pools.lock();
    take_from(sandboxes, of(&mut pools, Purpose::Parser)?)
}

fn of(pools: &mut [Pool], purpose: Purpose) -> Option<&mut Pool> {
    pools.iter_mut().find(|pool| pool.purpose == purpose)
}

fn take_from(sandboxes: &Sandboxes, pool: &mut Pool) -> Option<Sandbox> {
    pool.pop(sandboxes.warm.ready_max).or_else(|| {
        let template = pool.template_to_fork(&sandboxes.warm)?;
        sandboxes.native.spawn(pool.plan.clone(), Some(template)).ok()
    })
}

/// Makes missing sandboxes, each in its own task. Called when a run has ended: until then it needs the processors more.
pub(crate) fn fill(sandboxes: &Arc<Sandboxes>) {
    sandboxes.containers.fill();
    let mut pools = sandboxes.pools.lock();
    let mut room = room(sandboxes, &pools);
    for pool in pools.iter_mut() {
        for _ in 0..pool.missing(&sandboxes.warm, &mut room) {
            pool.making += 1;
            tokio::spawn(make(sandboxes.clone(), pool.plan.clone(), pool.failures));
        }
    }
}

/// Returns the remaining memory for all pools.
fn room(sandboxes: &Sandboxes, pools: &[Pool]) -> u64 {
    let taken = pools.iter().map(Pool::memory_bytes).sum();
    sandboxes.warm.memory_bytes.saturating_sub(taken)
}

async fn maintain(sandboxes: Weak<Sandboxes>) {
    loop {
        tokio::time::sleep(MAINTENANCE_INTERVAL).await;
        let Some(sandboxes) = sandboxes.upgrade() else {
            return;
        };
        if sandboxes.pools.lock().is_empty() {
            return; // the pools are closed
        }
        for purpose in Purpose::ALL {
            update_pool(&sandboxes, purpose);
        }
        fill(&sandboxes);
    }
}

/// Replaces or removes a pool if the host now has another interpreter first on the path, other packages, or none.
fn update_pool(sandboxes: &Sandboxes, purpose: Purpose) {
    let now = pool(sandboxes, purpose);
    let mut pools = sandboxes.pools.lock();
    let at = pools.iter().position(|pool| pool.purpose == purpose);
    match (at.and_then(|at| pools.get_mut(at)), now) {
        (Some(pool), Some(now)) if now.is_same_as(pool) => {
            pool.drop_ended();
            pool.shrink_when_idle(sandboxes.warm.ready);
        }
        (Some(pool), Some(now)) => *pool = now,
        (None, Some(now)) => pools.push(now),
        (Some(_), None) => pools.retain(|pool| pool.purpose != purpose),
        (None, None) => {}
    }
    pools.sort_by_key(|pool| Purpose::ALL.iter().position(|purpose| *purpose == pool.purpose));
}

/// Makes one sandbox of a pool. If the pool has been replaced meanwhile, the sandbox is dropped.
async fn make(sandboxes: Arc<Sandboxes>, plan: Arc<Plan>, failures: u32) {
    if failures > 0 {
        let pause = BACK_OFF.saturating_mul(1 << failures.min(10)).min(BACK_OFF_MAX);
        tokio::time::sleep(pause).await;
    }
    let made = make_one(&sandboxes, &plan).await;
    keep(&sandboxes, &plan, made);
    fill(&sandboxes);
    sandboxes.pools.attempted.notify_waiters();
}

fn keep(sandboxes: &Sandboxes, plan: &Arc<Plan>, made: Result<Option<Made>>) {
    let mut pools = sandboxes.pools.lock();
    let Some(pool) = pool_of(&mut pools, plan) else {
        return;
    };
    pool.making -= 1;
    let room = room(sandboxes, &pools);
    let Some(pool) = pool_of(&mut pools, plan) else {
        return;
    };
    match made {
        Ok(None) => {}
        Ok(Some(made)) => pool.add(made, room),
        Err(error) => {
            tracing::warn!(pool = ?pool.purpose, %error, "no sandbox could be kept ready");
            pool.failed(error.message);
        }
    }
}

fn pool_of<'a>(pools: &'a mut [Pool], plan: &Arc<Plan>) -> Option<&'a mut Pool> {
    pools.iter_mut().find(|pool| Arc::ptr_eq(&pool.plan, plan))
}

/// Makes one sandbox. `None`: its template is being made, is useless, or needs too much memory.
async fn make_one(sandboxes: &Sandboxes, plan: &Arc<Plan>) -> Result<Option<Made>> {
    let origin = pool_of(&mut sandboxes.pools.lock(), plan).and_then(|pool| pool.origin(&sandboxes.warm));
    let template = match origin {
        None => return Ok(None),
        Some(MadeFrom::Nothing) => None,
        Some(MadeFrom::Template(template)) => Some(template),
        Some(MadeFrom::TemplateToBe(wanted)) => {
            let made = template(sandboxes, plan, wanted).await;
            if let Some(pool) = pool_of(&mut sandboxes.pools.lock(), plan) {
                pool.has_builder = false;
            }
            match made? {
                Some(template) => Some(template),
                None => return Ok(None),
            }
        }
    };
    let sandbox = sandboxes.native.spawn(own_plan(sandboxes, plan)?, template)?;
    let (imported, _) = sandbox.parked().await?;
    let unknown = pool_of(&mut sandboxes.pools.lock(), plan).is_some_and(|pool| pool.sandbox_bytes == 0);
    let bytes = match unknown {
        true => Some(sandbox.measure().await?),
        false => None,
    };
    Ok(Some(Made {
        sandbox,
        imported,
        bytes,
    }))
}

/// Returns the plan of a pool; without a root of its own, each sandbox has its own directory.
fn own_plan(sandboxes: &Sandboxes, plan: &Arc<Plan>) -> Result<Arc<Plan>> {
    let shown = match plan.layout.host_directory {
        None => None,
        Some(_) => {
            pool_of(&mut sandboxes.pools.lock(), plan).map(|pool| (pool.purpose, pool.toolchain.clone()))
        }
    };
    let Some((purpose, toolchain)) = shown else {
        return Ok(plan.clone());
    };
    let id = uuid::Uuid::now_v7().to_string();
    plan_for(purpose, sandboxes, &toolchain, &id).map(Arc::new)
}

/// Makes the template of a pool, if there is memory for it, and starts to use it.
async fn template(
    sandboxes: &Sandboxes,
    plan: &Arc<Plan>,
    wanted: Arc<Plan>,
) -> Result<Option<Arc<Template>>> {
    let template = match sandboxes.native.template(wanted).await {
        Ok(template) => template,
        Err(error) => {
            let failed = |pool: &mut Pool| {
                pool.purpose == Purpose::Program(Language::Node) && pool.failures >= NODE_FAILURES
            };
            if pool_of(&mut sandboxes.pools.lock(), plan).is_some_and(failed) {
                start_node_ahead(sandboxes, &error.message);
            }
            return Err(error);
        }
    };
    if !template.imported.refused.is_empty() {
        start_node_ahead(sandboxes, &template.imported.refused);
        return Ok(None);
    }
    let bytes = template.sandbox.measure().await?;
    let mut pools = sandboxes.pools.lock();
    let others = pools.iter().filter(|pool| !Arc::ptr_eq(&pool.plan, plan));
    let taken: u64 = others.map(Pool::memory_bytes).sum();
    let enough = taken + bytes <= sandboxes.warm.memory_bytes;
    Ok(pool_of(&mut pools, plan).and_then(|pool| {
        if enough {
            pool.begin_template(template, bytes)
        } else {
            pool.refuse_template(bytes);
            None
        }
    }))
}

/// Starts Node.js ahead from now on, because forks of it do not work on this host.
fn start_node_ahead(sandboxes: &Sandboxes, why: &str) {
    tracing::warn!(why, "Node.js is not forked here; it is started ahead");
    sandboxes.node_does_not_fork.store(true, Ordering::Relaxed);
    update_pool(sandboxes, Purpose::Program(Language::Node));
}

/// Returns the plan of a sandbox for a purpose. `id` names its directory, if it has no root of its own.
fn plan_for(purpose: Purpose, sandboxes: &Sandboxes, toolchain: &Toolchain, id: &str) -> Result<Plan> {
    let start = match purpose {
        Purpose::Parser => return sandboxes.plan_of_worker(id, PREPARE),
        Purpose::Program(Language::Shell) => Start::Claimed,
        Purpose::Program(_) | Purpose::Data if template_of(purpose, sandboxes).is_some() => Start::Forked,
        Purpose::Program(language) => Start::Ahead(language),
        Purpose::Data => Start::Ahead(Language::Python),
    };
    sandboxes.plan(sandboxes.layout(id), toolchain, None, start)
}

/// Returns the template that the sandboxes of a pool are forked from, if any. Without a pid namespace, a fork and its
/// remains would belong to the template.
pub(crate) fn template_of(purpose: Purpose, sandboxes: &Sandboxes) -> Option<TemplateOf> {
    if sandboxes.tier != Tier::Full {
        return None;
    }
    match purpose {
        Purpose::Program(Language::Python) => Some(TemplateOf::Python(Imports::Basic)),
        Purpose::Data => Some(TemplateOf::Python(Imports::Data)),
        Purpose::Program(Language::Node) => {
            let refused =
                sandboxes.native.host.refused.setns || sandboxes.node_does_not_fork.load(Ordering::Relaxed);
            (!refused).then_some(TemplateOf::Node)
        }
        Purpose::Program(_) | Purpose::Parser => None,
    }
}

/// Returns a new pool for a purpose on this host; `None` if the host lacks the interpreter.
fn pool(sandboxes: &Sandboxes, purpose: Purpose) -> Option<Pool> {
    let warm = &sandboxes.warm;
    let template_of = template_of(purpose, sandboxes);
    if template_of.is_some() && sandboxes.native.host.refused.setns {
        return None; // a template could not be forked
    }
    // Without forks each interpreter would import these modules itself, for the memory and a second of processor time.
    if purpose == Purpose::Data && (warm.preload_python.is_empty() || template_of.is_none()) {
        return None;
    }
    let toolchain = match purpose.language() {
        Some(language) => runtimes::toolchain(language, &sandboxes.runtimes).ok()?,
        None => Toolchain::default(),
    };
    let template = match template_of {
        None => None,
        Some(template_of) => {
            let (layout, start) = (sandboxes.layout(NO_ID), Start::Template(template_of));
            Some(Arc::new(sandboxes.plan(layout, &toolchain, None, start).ok()?))
        }
    };
    let plan = Arc::new(plan_for(purpose, sandboxes, &toolchain, NO_ID).ok()?);
    let mut pool = Pool::new(purpose, plan, toolchain, template, warm.ready);
    if purpose == Purpose::Data {
        pool.required.clone_from(&warm.preload_python);
    }
    Some(pool)
}
