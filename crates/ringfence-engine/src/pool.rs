//! One pool: the ready sandboxes of one plan, their target number, and the template that they are forked from.

use crate::{
    backend::{Sandbox, Template},
    runtimes::{self, Toolchain},
    settings::WarmSettings,
    sync::lock,
};
use ringfence_check::profile;
use ringfence_jail::{Plan, wire::Imported};
use ringfence_types::{InputFile, Language};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant, SystemTime},
};
use tokio::sync::Notify;

const USED_UP: &str = "the memory for ready sandboxes (warm.memory_mb) is used up";

/// Time after which a pool that was not found empty shrinks to its configured size.
const IDLE: Duration = Duration::from_secs(30);

/// Time until an interpreter is checked again for the modules of a pool: they may have been installed.
const USELESS: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Program(Language),
    /// Python programs that name modules of `warm.preload_python`.
    Data,
    /// The parser of TypeScript and of ES modules.
    Parser,
}

impl Purpose {
    /// In the order in which they get memory.
    pub(crate) const ALL: [Self; 5] = [
        Self::Program(Language::Python),
        Self::Program(Language::Node),
        Self::Program(Language::Shell),
        Self::Parser,
        Self::Data,
    ];

    pub(crate) fn language(self) -> Option<Language> {
        match self {
            Self::Program(language) => Some(language),
            Self::Data => Some(Language::Python),
            Self::Parser => None,
        }
    }
}

pub(crate) struct Pool {
    pub(crate) purpose: Purpose,
    pub(crate) plan: Arc<Plan>,
    pub(crate) toolchain: Arc<Toolchain>,
    /// Last modification of its interpreter.
    changed: Option<SystemTime>,
    /// The plan of the template that its sandboxes are forked from; `None`: they are not forked.
    template_plan: Option<Arc<Plan>>,
    /// Modules of which the template must have at least one to make the pool useful; empty: it is always useful.
    pub(crate) required: Vec<String>,
    active: Option<ActiveTemplate>,
    /// Imports of an interpreter that is not forked from a template.
    own_imports: Imported,
    pub(crate) ready: Vec<Sandbox>,
    pub(crate) making: usize,
    target: usize,
    found_empty: Instant,
    pub(crate) failures: u32,
    pub(crate) trouble: Option<String>,
    /// Memory of one sandbox; 0 until one has been measured.
    pub(crate) sandbox_bytes: u64,
    /// Time at which its template had none of the required modules.
    useless_since: Option<Instant>,
    /// True while its template is being made.
    pub(crate) has_builder: bool,
    /// Memory of a template that was too large.
    template_needs: u64,
}

pub(crate) enum MadeFrom {
    Nothing,
    Template(Arc<Template>),
    /// A template with this plan, which has to be made first.
    TemplateToBe(Arc<Plan>),
}

struct ActiveTemplate {
    template: Arc<Template>,
    bytes: u64,
    created: Instant,
    forks: u32,
}

impl Pool {
    pub(crate) fn new(
        purpose: Purpose,
        plan: Arc<Plan>,
        toolchain: Toolchain,
        template_plan: Option<Arc<Plan>>,
        target: usize,
    ) -> Self {
        Self {
            purpose,
            plan,
            changed: runtimes::changed(&toolchain.interpreter),
            toolchain: Arc::new(toolchain),
            template_plan,
            required: Vec::new(),
            active: None,
            own_imports: Imported::default(),
            ready: Vec::new(),
            making: 0,
            target,
            found_empty: Instant::now(),
            failures: 0,
            trouble: None,
            sandbox_bytes: 0,
            useless_since: None,
            has_builder: false,
            template_needs: 0,
        }
    }

    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.plan == other.plan
            && self.toolchain == other.toolchain
            && self.changed == other.changed
            && self.template_plan == other.template_plan
    }

    /// Takes a ready sandbox. A pool that is found empty grows.
    pub(crate) fn pop(&mut self, ready_max: usize) -> Option<Sandbox> {
        let taken = std::iter::from_fn(|| self.ready.pop()).find(Sandbox::is_parked);
        if taken.is_none() {
            self.target = (self.target + 1).min(ready_max.max(self.target));
            self.found_empty = Instant::now();
        }
        taken
    }

    pub(crate) fn drop_ended(&mut self) {
        self.ready.retain(Sandbox::is_parked);
    }

    pub(crate) fn shrink_when_idle(&mut self, ready: usize) {
        if self.target > ready && self.found_empty.elapsed() > IDLE {
            self.target = ready;
            self.ready.truncate(ready);
        }
    }

    /// Returns the number of sandboxes to make now. `room`: remaining memory for all pools.
    pub(crate) fn missing(&mut self, settings: &WarmSettings, room: &mut u64) -> usize {
        if self.is_useless() {
            return 0;
        }
        let is_good = |active: &ActiveTemplate| active.is_good(settings);
        let wants_template = self.template_plan.is_some() && !self.active.as_ref().is_some_and(is_good);
        // After a failure one attempt at a time. The first attempt also makes the template, and is measured.
        let alone = self.failures > 0 || wants_template || self.sandbox_bytes == 0;
        let at_once = if alone { 1 } else { self.target };
        // One sandbox of an old template is replaced by the first of the next.
        let have = self.ready.len() - usize::from(wants_template && !self.ready.is_empty());
        let wanted = self.target.saturating_sub(have + self.making);
        let wanted = wanted.min(at_once.saturating_sub(self.making));
        let template_bytes = if wants_template { self.template_needs } else { 0 };
        let left = room.saturating_sub(template_bytes);
        let affordable = match (self.sandbox_bytes, left) {
            (_, 0) => 0,
            (0, _) => wanted,
            (each, left) => wanted.min(usize::try_from(left / each).unwrap_or(usize::MAX)),
        };
        *room = room.saturating_sub(self.sandbox_bytes.saturating_mul(affordable as u64));
        let used_up = self.trouble.as_deref() == Some(USED_UP);
        if affordable < wanted {
            self.trouble = Some(USED_UP.to_owned());
        } else if used_up && wanted == 0 && self.making == 0 {
            self.trouble = None;
        }
        affordable
    }

    /// Returns the origin of the next sandbox, and counts a fork at once; `None`: the template is being made.
    pub(crate) fn origin(&mut self, settings: &WarmSettings) -> Option<MadeFrom> {
        if let Some(template) = self.template_to_fork(settings) {
            return Some(MadeFrom::Template(template));
        }
        match &self.template_plan {
            None => Some(MadeFrom::Nothing),
            Some(_) if self.has_builder => None,
            Some(plan) => {
                self.has_builder = true;
                Some(MadeFrom::TemplateToBe(plan.clone()))
            }
        }
    }

    /// True if the pool will not grow without a request.
    pub(crate) fn is_settled(&self) -> bool {
        self.ready.len() >= self.target || self.trouble.is_some() || self.is_useless()
    }

    /// Adds a new sandbox. `room`: remaining memory for all pools.
    pub(crate) fn add(&mut self, made: Made, room: u64) {
        self.failures = 0;
        self.trouble = None;
        self.own_imports = made.imported;
        self.sandbox_bytes = made.bytes.unwrap_or(self.sandbox_bytes).max(1);
        if self.sandbox_bytes > room {
            self.trouble = Some(USED_UP.to_owned());
            return;
        }
        // Sandboxes of an older template are not used any more.
        let current = self.active.as_ref().map(|active| &active.template);
        self.ready.push(made.sandbox);
        self.ready.retain(|sandbox| sandbox.is_made_from(current));
    }

    /// Records a failed attempt. A template that has ended takes its sandboxes with it.
    pub(crate) fn failed(&mut self, why: String) {
        self.failures = self.failures.saturating_add(1);
        self.trouble = Some(why);
        if self
            .active
            .take_if(|active| !active.template.sandbox.is_parked())
            .is_some()
        {
            self.ready.clear();
        }
    }

    /// Rejects a template that takes more memory than there is.
    pub(crate) fn refuse_template(&mut self, bytes: u64) {
        self.template_needs = bytes;
        self.trouble = Some(USED_UP.to_owned());
    }

    /// Returns the memory of the template and of sandboxes that are ready or being made.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let sandboxes = (self.ready.len() + self.making) as u64;
        let template = self.active.as_ref().map_or(0, |active| active.bytes);
        template + self.sandbox_bytes.saturating_mul(sandboxes)
    }

    pub(crate) fn template_to_fork(&mut self, settings: &WarmSettings) -> Option<Arc<Template>> {
        let active = self.active.as_mut().filter(|active| active.is_good(settings))?;
        active.forks += 1;
        Some(active.template.clone())
    }

    /// Starts to use a template; `None`: it has none of the required modules.
    pub(crate) fn begin_template(&mut self, template: Template, bytes: u64) -> Option<Arc<Template>> {
        let has = |module: &String| template.imported.wanted.contains(module);
        if !self.required.is_empty() && !self.required.iter().any(has) {
            self.useless_since = Some(Instant::now());
            return None;
        }
        let template = Arc::new(template);
        self.active = Some(ActiveTemplate {
            template: template.clone(),
            bytes,
            created: Instant::now(),
            forks: 1,
        });
        self.useless_since = None;
        Some(template)
    }

    pub(crate) fn imported(&self) -> &Imported {
        let active = self.active.as_ref();
        active.map_or(&self.own_imports, |active| &active.template.imported)
    }

    /// Returns the number of tasks of sandboxes still to be made: each one's supervisor, pid 1 and interpreter.
    pub(crate) fn tasks_to_come(&self) -> u64 {
        let tasks = match self.purpose {
            Purpose::Program(Language::Node) if self.template_plan.is_none() => 10,
            Purpose::Program(Language::Node | Language::Python) | Purpose::Data => 3,
            Purpose::Program(_) | Purpose::Parser => 2,
        };
        tasks * self.target.saturating_sub(self.ready.len()) as u64
    }

    pub(crate) fn is_useless(&self) -> bool {
        self.useless_since.is_some_and(|since| since.elapsed() < USELESS)
    }

    /// True if the code names a module that only this pool has.
    pub(crate) fn is_named_in(&self, code: &str) -> bool {
        let modules = self.imported().wanted.iter();
        modules
            .filter(|module| !profile::BASIC.contains(&module.as_str()))
            .filter_map(|module| module.split('.').next())
            .any(|package| code.contains(package))
    }
}

/// True if a file of the request, or one of these names in its workspace, would be imported instead of a loaded module.
pub(crate) fn is_shadowed(loaded: &str, files: &[InputFile], beside: &HashSet<String>) -> bool {
    let first = |path: &str| path.split(['/', '.']).next().unwrap_or_default().to_owned();
    let files = files.iter().map(|file| file.path.as_str());
    let names: HashSet<String> = files
        .chain(beside.iter().map(String::as_str))
        .map(first)
        .collect();
    let mut loaded = loaded.split_whitespace();
    !names.is_empty() && loaded.any(|name| names.contains(name))
}

impl ActiveTemplate {
    fn is_good(&self, settings: &WarmSettings) -> bool {
        self.forks < settings.template_forks
            && self.created.elapsed() < settings.template_age
            && self.template.sandbox.is_parked()
    }
}

#[derive(Default)]
pub(crate) struct Pools {
    pools: Mutex<Vec<Pool>>,
    /// Notified when a sandbox was made, or could not be.
    pub(crate) attempted: Notify,
}

/// Status of a language's pools, for `list_runtimes`.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolStatus {
    pub(crate) ready: usize,
    pub(crate) preloaded: Vec<String>,
    /// Memory of the sandboxes and their templates.
    pub(crate) memory_bytes: u64,
    pub(crate) trouble: Option<String>,
}

impl Pools {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Pool>> {
        lock(&self.pools)
    }

    pub(crate) fn pool_status(&self, language: Language) -> PoolStatus {
        let mut status = PoolStatus::default();
        for pool in self.lock().iter_mut() {
            if pool.purpose.language() == Some(language) {
                pool.drop_ended();
                status.ready += pool.ready.len();
                status.memory_bytes += pool.memory_bytes();
                status.preloaded.extend_from_slice(&pool.imported().wanted);
                status.trouble = status.trouble.take().or(pool.trouble.clone());
            }
        }
        let mut known = HashSet::new();
        status.preloaded.retain(|module| known.insert(module.clone()));
        status
    }

    pub(crate) fn tasks_to_come(&self) -> u64 {
        self.lock().iter().map(Pool::tasks_to_come).sum()
    }

    /// Waits until every pool is full, or cannot be filled.
    pub(crate) async fn settled(&self) {
        loop {
            let attempted = self.attempted.notified();
            if self.lock().iter().all(Pool::is_settled) {
                return;
            }
            attempted.await;
        }
    }

    /// Ends all ready sandboxes, and makes no more.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }
}

pub(crate) struct Made {
    pub(crate) sandbox: Sandbox,
    pub(crate) imported: Imported,
    /// Its memory, if that was not known yet.
    pub(crate) bytes: Option<u64>,
}
