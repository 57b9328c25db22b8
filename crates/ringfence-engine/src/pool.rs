//! One pool: the places of one plan that wait, how many there should be, and the template that they are made from.

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

/// What the places of a pool are for.
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

    /// Processes and threads of a place that waits: supervisor, pid 1 and the interpreter's.
    fn tasks(self) -> u64 {
        match self {
            Self::Program(Language::Node) => 10,
            Self::Program(Language::Python) | Self::Data => 3,
            Self::Program(_) | Self::Parser => 2,
        }
    }
}

/// Places of one plan.
pub(crate) struct Pool {
    pub(crate) purpose: Purpose,
    pub(crate) plan: Arc<Plan>,
    pub(crate) toolchain: Arc<Toolchain>,
    /// When its interpreter was changed last.
    changed: Option<SystemTime>,
    source: SandboxSource,
    /// What an interpreter that is no fork of a template has told.
    told: Imported,
    pub(crate) ready: Vec<Sandbox>,
    pub(crate) making: usize,
    target: usize,
    /// When it was last found empty.
    wanted_more: Instant,
    pub(crate) failures: u32,
    pub(crate) trouble: Option<String>,
    /// Memory that one place takes; 0 until one has been measured.
    pub(crate) place_bytes: u64,
    /// When its template turned out to have none of the modules for which the pool is there.
    useless_since: Option<Instant>,
    /// Is somebody making its template.
    pub(crate) has_builder: bool,
    /// Memory that a template took for which there was not enough.
    template_needs: u64,
}

/// What a place is made from.
pub(crate) enum MadeFrom {
    Nothing,
    /// A fork of this.
    Template(Arc<Template>),
    /// A fork of what has this plan and is still to be made.
    TemplateToBe(Arc<Plan>),
}

pub(crate) enum SandboxSource {
    Nothing,
    /// A template of this plan, where there is one now.
    Template {
        plan: Arc<Plan>,
        /// Of what it is asked to import, those that make the pool worth having; empty: it is in any case.
        special: Vec<String>,
        current: Option<Living>,
    },
}

pub(crate) struct Living {
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
        source: SandboxSource,
        target: usize,
    ) -> Self {
        Self {
            purpose,
            plan,
            changed: runtimes::changed(&toolchain.interpreter),
            toolchain: Arc::new(toolchain),
            source,
            told: Imported::default(),
            ready: Vec::new(),
            making: 0,
            target,
            wanted_more: Instant::now(),
            failures: 0,
            trouble: None,
            place_bytes: 0,
            useless_since: None,
            has_builder: false,
            template_needs: 0,
        }
    }

    /// Would this one make the same places.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.plan == other.plan
            && self.toolchain == other.toolchain
            && self.changed == other.changed
            && self.template_plan() == other.template_plan()
    }

    /// A place that waits. A pool that is found empty shall be larger.
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

    /// How many places are to be made now. `room` is what is left of the memory for all pools.
    pub(crate) fn missing(&mut self, settings: &WarmSettings, room: &mut u64) -> usize {
        if self.is_useless() {
            return 0;
        }
        let wants_template = self.template_plan().is_some() && !self.has_good_template(settings);
        // After a failure one attempt at a time; and the first makes the template, and is measured.
        let alone = self.failures > 0 || wants_template || self.place_bytes == 0;
        let at_once = if alone { 1 } else { self.target };
        // One of the places of an old template makes room for the first of the next.
        let have = self.ready.len() - usize::from(wants_template && !self.ready.is_empty());
        let wanted = self.target.saturating_sub(have + self.making);
        let wanted = wanted.min(at_once.saturating_sub(self.making));
        let template_bytes = if wants_template { self.template_needs } else { 0 };
        let left = room.saturating_sub(template_bytes);
        let affordable = match (self.place_bytes, left) {
            (_, 0) => 0,
            (0, _) => wanted,
            (each, left) => wanted.min(usize::try_from(left / each).unwrap_or(usize::MAX)),
        };
        *room = room.saturating_sub(self.place_bytes.saturating_mul(affordable as u64));
        let used_up = self.trouble.as_deref() == Some(USED_UP);
        if affordable < wanted {
            self.trouble = Some(USED_UP.to_owned());
        } else if used_up && wanted == 0 && self.making == 0 {
            self.trouble = None;
        }
        affordable
    }

    /// What the next place is made from; a fork of a template counts as one at once. `None`: somebody is making the
    /// template.
    pub(crate) fn origin(&mut self, settings: &WarmSettings) -> Option<MadeFrom> {
        match (self.template_to_fork(settings), self.template_plan()) {
            (Some(template), _) => Some(MadeFrom::Template(template)),
            (None, None) => Some(MadeFrom::Nothing),
            (None, Some(_)) if self.has_builder => None,
            (None, Some(plan)) => {
                self.has_builder = true;
                Some(MadeFrom::TemplateToBe(plan))
            }
        }
    }

    /// Is there nothing that could still come without a request.
    pub(crate) fn is_settled(&self) -> bool {
        self.ready.len() >= self.target || self.trouble.is_some() || self.is_useless()
    }

    /// A place was made. `room` is what is left of the memory for all pools.
    pub(crate) fn add(&mut self, made: Made, room: u64) {
        let Made { place, told, bytes } = made;
        self.failures = 0;
        self.trouble = None;
        self.told = told;
        self.place_bytes = bytes.unwrap_or(self.place_bytes).max(1);
        if self.place_bytes > room {
            self.trouble = Some(USED_UP.to_owned());
            return;
        }
        // What an older template has made is not used any more.
        let current = self.living().map(|living| living.template.clone());
        self.ready.push(place);
        self.ready.retain(|place| place.is_of(current.as_ref()));
    }

    /// None could be made. A template that has died takes its places with it.
    pub(crate) fn failed(&mut self, why: String) {
        self.failures = self.failures.saturating_add(1);
        self.trouble = Some(why);
        if let SandboxSource::Template { current, .. } = &mut self.source
            && current
                .as_ref()
                .is_some_and(|living| !living.template.place.waits())
        {
            *current = None;
            self.ready.clear();
        }
    }

    /// A template was made that takes more memory than there is.
    pub(crate) fn refuse_template(&mut self, bytes: u64) {
        self.template_needs = bytes;
        self.trouble = Some(USED_UP.to_owned());
    }

    /// Memory that the places that wait, and those that are being made, take with their template.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let places = self
            .place_bytes
            .saturating_mul((self.ready.len() + self.making) as u64);
        self.living().map_or(0, |living| living.bytes) + places
    }

    /// The template as it is to be made; `None`: the pool needs none.
    pub(crate) fn template_plan(&self) -> Option<Arc<Plan>> {
        match &self.source {
            SandboxSource::Nothing => None,
            SandboxSource::Template { plan, .. } => Some(plan.clone()),
        }
    }

    /// The template for one more fork, if there is a good one.
    pub(crate) fn template_to_fork(&mut self, settings: &WarmSettings) -> Option<Arc<Template>> {
        if !self.has_good_template(settings) {
            return None;
        }
        let SandboxSource::Template {
            current: Some(living),
            ..
        } = &mut self.source
        else {
            return None;
        };
        living.forks += 1;
        Some(living.template.clone())
    }

    /// Takes a template into use; `None`: it has none of the modules for which the pool is there.
    pub(crate) fn begin_template(&mut self, template: Template, bytes: u64) -> Option<Arc<Template>> {
        let SandboxSource::Template { special, current, .. } = &mut self.source else {
            return None;
        };
        let has = |module: &String| template.imported.wanted.contains(module);
        if !special.is_empty() && !special.iter().any(has) {
            self.useless_since = Some(Instant::now());
            return None;
        }
        let template = Arc::new(template);
        *current = Some(Living {
            template: template.clone(),
            bytes,
            born: Instant::now(),
            forks: 1,
        });
        self.useless_since = None;
        Some(template)
    }

    /// The modules that its template, or its interpreters, have imported.
    pub(crate) fn imported(&self) -> &[String] {
        &self.knows().wanted
    }

    fn knows(&self) -> &Imported {
        self.living()
            .map_or(&self.told, |living| &living.template.imported)
    }

    /// Processes and threads of its places that are still to be made.
    pub(crate) fn tasks_to_come(&self) -> u64 {
        self.purpose.tasks() * self.target.saturating_sub(self.ready.len()) as u64
    }

    /// Has its interpreter none of the modules for which the pool is there.
    pub(crate) fn is_useless(&self) -> bool {
        self.useless_since.is_some_and(|since| since.elapsed() < USELESS)
    }

    /// Does the code name a module that this pool has and others lack.
    pub(crate) fn is_named_in(&self, code: &str) -> bool {
        let special = self
            .imported()
            .iter()
            .filter(|module| !profile::BASIC.contains(&module.as_str()));
        special
            .filter_map(|module| module.split('.').next())
            .any(|package| code.contains(package))
    }

    /// Has the request a file, or its workspace one of these names, that a program would import in the place of a
    /// module that is there already.
    pub(crate) fn is_shadowed_by(&self, files: &[InputFile], beside: &HashSet<String>) -> bool {
        let first = |path: &str| path.split(['/', '.']).next().unwrap_or_default().to_owned();
        let files = files.iter().map(|file| file.path.as_str());
        let names: HashSet<String> = files
            .chain(beside.iter().map(String::as_str))
            .map(first)
            .collect();
        let mut loaded = self.knows().loaded.split_whitespace();
        !names.is_empty() && loaded.any(|name| names.contains(name))
    }

    fn living(&self) -> Option<&Living> {
        match &self.source {
            SandboxSource::Nothing => None,
            SandboxSource::Template { current, .. } => current.as_ref(),
        }
    }

    fn has_good_template(&self, settings: &WarmSettings) -> bool {
        self.living().is_some_and(|living| {
            living.forks < settings.template_forks
                && living.born.elapsed() < settings.template_age
                && living.template.place.waits()
        })
    }
}

#[derive(Default)]
pub(crate) struct Pools {
    pools: Mutex<Vec<Pool>>,
    /// Rings when a place was made, or could not be.
    pub(crate) tried: Notify,
}

/// What `list_runtimes` tells of a language's pools.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warmth {
    pub(crate) ready: usize,
    /// Modules that they have imported.
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
        let mut known = HashSet::new();
        warmth.preloaded.retain(|module| known.insert(module.clone()));
        warmth
    }

    /// Processes and threads that the server has still to start for places that are to wait.
    pub(crate) fn tasks_to_come(&self) -> u64 {
        self.lock().iter().map(Pool::tasks_to_come).sum()
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

/// A place with all walls up.
pub(crate) struct Made {
    pub(crate) place: Sandbox,
    pub(crate) told: Imported,
    /// What it takes of memory, where that was not known yet.
    pub(crate) bytes: Option<u64>,
}
