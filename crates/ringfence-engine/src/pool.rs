//! One pool: the sandboxes of one plan that wait, how many there should be, and the template that they are made from.

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

const USED_UP: &str = "the memory for sandboxes that wait (warm.memory_mb) is used up";

/// How long a pool may stay larger than it was told to be without being emptied.
const IDLE: Duration = Duration::from_secs(30);

/// Until it is tried again whether an interpreter has the modules of a pool: somebody may have installed them.
const USELESS: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Program(Language),
    /// Python programs that name the modules of `warm.preload_python`.
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
    /// When its interpreter was changed last.
    changed: Option<SystemTime>,
    /// How the template is made from which its sandboxes are forked; `None`: they are forked from none.
    template_plan: Option<Arc<Plan>>,
    /// Modules of which the template has to have one to make the pool worth having; empty: it is in any case.
    pub(crate) special: Vec<String>,
    /// The template that there is now.
    living: Option<Living>,
    /// What an interpreter that is not a fork of a template has imported.
    told: Imported,
    pub(crate) ready: Vec<Sandbox>,
    pub(crate) making: usize,
    target: usize,
    /// When it was last found empty.
    wanted_more: Instant,
    pub(crate) failures: u32,
    pub(crate) trouble: Option<String>,
    /// Memory that one sandbox takes; 0 until one has been measured.
    pub(crate) sandbox_bytes: u64,
    /// When its template turned out to have none of the modules for which the pool is there.
    useless_since: Option<Instant>,
    /// Whether its template is being made.
    pub(crate) has_builder: bool,
    /// Memory that a template took for which there was not enough.
    template_needs: u64,
}

pub(crate) enum MadeFrom {
    Nothing,
    Template(Arc<Template>),
    /// A fork of what has this plan and is still to be made.
    TemplateToBe(Arc<Plan>),
}

struct Living {
    template: Arc<Template>,
    bytes: u64,
    born: Instant,
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
            special: Vec::new(),
            living: None,
            told: Imported::default(),
            ready: Vec::new(),
            making: 0,
            target,
            wanted_more: Instant::now(),
            failures: 0,
            trouble: None,
            sandbox_bytes: 0,
            useless_since: None,
            has_builder: false,
            template_needs: 0,
        }
    }

    /// Whether this one would make the same sandboxes.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.plan == other.plan
            && self.toolchain == other.toolchain
            && self.changed == other.changed
            && self.template_plan == other.template_plan
    }

    /// A sandbox that waits. A pool that is found empty shall be larger.
    pub(crate) fn pop(&mut self, ready_max: usize) -> Option<Sandbox> {
        let taken = std::iter::from_fn(|| self.ready.pop()).find(Sandbox::waits);
        if taken.is_none() {
            self.target = (self.target + 1).min(ready_max.max(self.target));
            self.wanted_more = Instant::now();
        }
        taken
    }

    pub(crate) fn drop_the_dead(&mut self) {
        self.ready.retain(Sandbox::waits);
    }

    pub(crate) fn shrink_when_idle(&mut self, ready: usize) {
        if self.target > ready && self.wanted_more.elapsed() > IDLE {
            self.target = ready;
            self.ready.truncate(ready);
        }
    }

    /// How many sandboxes are to be made now. `room` is what is left of the memory for all pools.
    pub(crate) fn missing(&mut self, settings: &WarmSettings, room: &mut u64) -> usize {
        if self.is_useless() {
            return 0;
        }
        let is_good = |living: &Living| living.is_good(settings);
        let wants_template = self.template_plan.is_some() && !self.living.as_ref().is_some_and(is_good);
        // After a failure one attempt at a time; and the first makes the template, and is measured.
        let alone = self.failures > 0 || wants_template || self.sandbox_bytes == 0;
        let at_once = if alone { 1 } else { self.target };
        // One of the sandboxes of an old template makes room for the first of the next.
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

    /// What the next sandbox is made from; a fork of a template counts as one at once. `None`: somebody is making the
    /// template.
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

    /// Whether nothing more comes without a request.
    pub(crate) fn is_settled(&self) -> bool {
        self.ready.len() >= self.target || self.trouble.is_some() || self.is_useless()
    }

    /// A sandbox was made. `room` is what is left of the memory for all pools.
    pub(crate) fn add(&mut self, made: Made, room: u64) {
        self.failures = 0;
        self.trouble = None;
        self.told = made.imported;
        self.sandbox_bytes = made.bytes.unwrap_or(self.sandbox_bytes).max(1);
        if self.sandbox_bytes > room {
            self.trouble = Some(USED_UP.to_owned());
            return;
        }
        // What an older template has made is not used any more.
        let current = self.living.as_ref().map(|living| &living.template);
        self.ready.push(made.sandbox);
        self.ready.retain(|sandbox| sandbox.is_of(current));
    }

    /// None could be made. A template that has died takes its sandboxes with it.
    pub(crate) fn failed(&mut self, why: String) {
        self.failures = self.failures.saturating_add(1);
        self.trouble = Some(why);
        if self
            .living
            .take_if(|living| !living.template.sandbox.waits())
            .is_some()
        {
            self.ready.clear();
        }
    }

    /// A template was made that takes more memory than there is.
    pub(crate) fn refuse_template(&mut self, bytes: u64) {
        self.template_needs = bytes;
        self.trouble = Some(USED_UP.to_owned());
    }

    /// Memory that the sandboxes that wait, and those that are being made, take with their template.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let sandboxes = (self.ready.len() + self.making) as u64;
        let template = self.living.as_ref().map_or(0, |living| living.bytes);
        template + self.sandbox_bytes.saturating_mul(sandboxes)
    }

    /// The template for one more fork, if there is a good one.
    pub(crate) fn template_to_fork(&mut self, settings: &WarmSettings) -> Option<Arc<Template>> {
        let living = self.living.as_mut().filter(|living| living.is_good(settings))?;
        living.forks += 1;
        Some(living.template.clone())
    }

    /// Takes a template into use; `None`: it has none of the modules for which the pool is there.
    pub(crate) fn begin_template(&mut self, template: Template, bytes: u64) -> Option<Arc<Template>> {
        let has = |module: &String| template.imported.wanted.contains(module);
        if !self.special.is_empty() && !self.special.iter().any(has) {
            self.useless_since = Some(Instant::now());
            return None;
        }
        let template = Arc::new(template);
        self.living = Some(Living {
            template: template.clone(),
            bytes,
            born: Instant::now(),
            forks: 1,
        });
        self.useless_since = None;
        Some(template)
    }

    /// What its template, or its interpreters, have imported.
    pub(crate) fn imported(&self) -> &Imported {
        let living = self.living.as_ref();
        living.map_or(&self.told, |living| &living.template.imported)
    }

    /// Processes and threads of its sandboxes that are still to be made: of each the supervisor's, pid 1's and the
    /// interpreter's.
    pub(crate) fn tasks_to_come(&self) -> u64 {
        let tasks = match self.purpose {
            Purpose::Program(Language::Node) if self.template_plan.is_none() => 10,
            Purpose::Program(Language::Node | Language::Python) | Purpose::Data => 3,
            Purpose::Program(_) | Purpose::Parser => 2,
        };
        tasks * self.target.saturating_sub(self.ready.len()) as u64
    }

    /// Whether its interpreter has none of the modules for which the pool is there.
    pub(crate) fn is_useless(&self) -> bool {
        self.useless_since.is_some_and(|since| since.elapsed() < USELESS)
    }

    /// Whether the code names a module that this pool has and others lack.
    pub(crate) fn is_named_in(&self, code: &str) -> bool {
        let modules = self.imported().wanted.iter();
        modules
            .filter(|module| !profile::BASIC.contains(&module.as_str()))
            .filter_map(|module| module.split('.').next())
            .any(|package| code.contains(package))
    }
}

/// Whether the request has a file, or its workspace one of these names, that a program would import instead of a
/// module that is loaded.
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

impl Living {
    fn is_good(&self, settings: &WarmSettings) -> bool {
        self.forks < settings.template_forks
            && self.born.elapsed() < settings.template_age
            && self.template.sandbox.waits()
    }
}

#[derive(Default)]
pub(crate) struct Pools {
    pools: Mutex<Vec<Pool>>,
    /// Rings when a sandbox was made, or could not be.
    pub(crate) tried: Notify,
}

/// What `list_runtimes` tells of a language's pools.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warmth {
    pub(crate) ready: usize,
    pub(crate) preloaded: Vec<String>,
    /// What they and their templates take of the host's memory.
    pub(crate) memory_bytes: u64,
    /// Why one could not be made.
    pub(crate) trouble: Option<String>,
}

impl Pools {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Pool>> {
        lock(&self.pools)
    }

    pub(crate) fn warmth(&self, language: Language) -> Warmth {
        let mut warmth = Warmth::default();
        for pool in self.lock().iter_mut() {
            if pool.purpose.language() == Some(language) {
                pool.drop_the_dead();
                warmth.ready += pool.ready.len();
                warmth.memory_bytes += pool.memory_bytes();
                warmth.preloaded.extend_from_slice(&pool.imported().wanted);
                warmth.trouble = warmth.trouble.take().or(pool.trouble.clone());
            }
        }
        let mut known = HashSet::new();
        warmth.preloaded.retain(|module| known.insert(module.clone()));
        warmth
    }

    /// Processes and threads that the server has still to start for sandboxes that are to wait.
    pub(crate) fn tasks_to_come(&self) -> u64 {
        self.lock().iter().map(Pool::tasks_to_come).sum()
    }

    /// Waits until every pool is full, or cannot be.
    pub(crate) async fn settled(&self) {
        loop {
            let tried = self.tried.notified();
            if self.lock().iter().all(Pool::is_settled) {
                return;
            }
            tried.await;
        }
    }

    /// Lets every sandbox go, and makes no more.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }
}

pub(crate) struct Made {
    pub(crate) sandbox: Sandbox,
    pub(crate) imported: Imported,
    /// The memory that it takes, where that was not known yet.
    pub(crate) bytes: Option<u64>,
}
