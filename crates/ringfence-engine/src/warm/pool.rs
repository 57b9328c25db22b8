//! One pool: the places of one plan that wait, how many there should be, and the template that they are made from.

use super::WarmSettings;
use crate::{
    backend::{Place, Template},
    engine::House,
    language::Imports,
    prepare::PREPARE,
    runtimes,
    sandbox::{self, Start, Surroundings},
};
use ringfence_check::profile;
use ringfence_jail::{Layout, Plan};
use ringfence_types::{InputFile, Language};
use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

const USED_UP: &str = "the memory for sandboxes that wait (warm.memory_mb) is used up";

/// How long a pool may stay larger than it was told to be without being emptied.
const IDLE: Duration = Duration::from_secs(30);

/// Until it is tried again whether an interpreter has the modules of a pool: somebody may have installed them.
const USELESS: Duration = Duration::from_secs(600);

/// What the places of a pool are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Programs of a language.
    Program(Language),
    /// Python programs that name the modules of `warm.preload_python`.
    Data,
    /// The parser of TypeScript and of ES modules.
    Parser,
}

impl Purpose {
    /// In the order in which they get memory.
    pub(super) const ALL: [Self; 5] = [
        Self::Program(Language::Python),
        Self::Program(Language::Node),
        Self::Program(Language::Shell),
        Self::Parser,
        Self::Data,
    ];

    pub(super) fn language(self) -> Option<Language> {
        match self {
            Self::Program(language) => Some(language),
            Self::Data => Some(Language::Python),
            Self::Parser => None,
        }
    }
}

/// Places of one plan.
pub(super) struct Pool {
    pub(super) purpose: Purpose,
    pub(super) plan: Arc<Plan>,
    pub(super) surroundings: Arc<Surroundings>,
    /// When its interpreter was changed last.
    changed: Option<SystemTime>,
    source: Source,
    pub(super) ready: Vec<Place>,
    /// Being made.
    pub(super) making: usize,
    /// How many there should be.
    target: usize,
    /// When it was last found empty.
    wanted_more: Instant,
    pub(super) failures: u32,
    pub(super) trouble: Option<String>,
    /// Memory that one place takes; 0 until one has been measured.
    pub(super) place_bytes: u64,
    /// When its template turned out to have none of the modules for which the pool is there.
    useless_since: Option<Instant>,
    /// Is somebody making its template.
    pub(super) has_builder: bool,
    /// Memory that a template took for which there was not enough.
    template_needs: u64,
}

/// What a place is made from.
pub(super) enum Origin {
    Nothing,
    /// A fork of this.
    Template(Arc<Template>),
    /// A fork of what has this plan and is still to be made.
    TemplateToBe(Arc<Plan>),
}

/// What places are made from.
enum Source {
    /// Nothing.
    Nothing,
    /// A template of this plan, where there is one now.
    Template {
        plan: Arc<Plan>,
        /// Of what it is asked to import, those that make the pool worth having; empty: it is in any case.
        special: Vec<String>,
        current: Option<Living>,
    },
}

/// A template in use.
struct Living {
    template: Arc<Template>,
    bytes: u64,
    born: Instant,
    forks: u32,
}

impl Pool {
    /// The pool for a purpose as this host is now; `None` where it lacks the interpreter.
    pub(super) fn new(house: &House, purpose: Purpose) -> Option<Self> {
        let warm = &house.settings.warm;
        let imports = match purpose {
            Purpose::Data if warm.preload_python.is_empty() => return None,
            Purpose::Data => Imports::Data,
            _ => Imports::Basic,
        };
        let surroundings = match purpose.language() {
            Some(language) => sandbox::surroundings(house, language).ok()?,
            None => Surroundings::default(),
        };
        let plan_of = |start| sandbox::plan(house, Layout::own_root(), &surroundings, None, start).ok();
        let (plan, source) = match purpose {
            Purpose::Program(Language::Python) | Purpose::Data => {
                let source = Source::Template {
                    plan: Arc::new(plan_of(Start::Template(imports))?),
                    special: match imports {
                        Imports::Basic => Vec::new(),
                        Imports::Data => warm.preload_python.clone(),
                    },
                    current: None,
                };
                (plan_of(Start::Forked)?, source)
            }
            Purpose::Program(Language::Shell) => (plan_of(Start::Claimed)?, Source::Nothing),
            Purpose::Program(_) => (plan_of(Start::Ahead)?, Source::Nothing),
            Purpose::Parser => (
                sandbox::plan_of_worker(house, "none", PREPARE).ok()?,
                Source::Nothing,
            ),
        };
        Some(Self {
            purpose,
            plan: Arc::new(plan),
            changed: runtimes::changed(&surroundings.interpreter),
            surroundings: Arc::new(surroundings),
            source,
            ready: Vec::new(),
            making: 0,
            target: warm.ready,
            wanted_more: Instant::now(),
            failures: 0,
            trouble: None,
            place_bytes: 0,
            useless_since: None,
            has_builder: false,
            template_needs: 0,
        })
    }

    /// Would this one make the same places.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        self.plan == other.plan
            && self.surroundings == other.surroundings
            && self.changed == other.changed
            && self.template_plan() == other.template_plan()
    }

    /// A place that waits. A pool that is found empty shall be larger.
    pub(super) fn pop(&mut self, ready_max: usize) -> Option<Place> {
        let taken = std::iter::from_fn(|| self.ready.pop()).find(Place::waits);
        if taken.is_none() {
            self.target = (self.target + 1).min(ready_max.max(self.target));
            self.wanted_more = Instant::now();
        }
        taken
    }

    pub(super) fn drop_the_dead(&mut self) {
        self.ready.retain(Place::waits);
    }

    pub(super) fn shrink_when_idle(&mut self, ready: usize) {
        if self.target > ready && self.wanted_more.elapsed() > IDLE {
            self.target = ready;
            self.ready.truncate(ready);
        }
    }

    /// How many places are to be made now. `room` is what is left of the memory for all pools.
    pub(super) fn missing(&mut self, settings: &WarmSettings, room: &mut u64) -> usize {
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
    pub(super) fn origin(&mut self, settings: &WarmSettings) -> Option<Origin> {
        match (self.template_to_fork(settings), self.template_plan()) {
            (Some(template), _) => Some(Origin::Template(template)),
            (None, None) => Some(Origin::Nothing),
            (None, Some(_)) if self.has_builder => None,
            (None, Some(plan)) => {
                self.has_builder = true;
                Some(Origin::TemplateToBe(plan))
            }
        }
    }

    /// Is there nothing that could still come without a request.
    pub(super) fn is_settled(&self) -> bool {
        self.ready.len() >= self.target || self.trouble.is_some() || self.is_useless()
    }

    /// A place was made. `room` is what is left of the memory for all pools.
    pub(super) fn add(&mut self, place: Place, bytes: Option<u64>, room: u64) {
        self.failures = 0;
        self.trouble = None;
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
    pub(super) fn failed(&mut self, why: String) {
        self.failures = self.failures.saturating_add(1);
        self.trouble = Some(why);
        if let Source::Template { current, .. } = &mut self.source
            && current
                .as_ref()
                .is_some_and(|living| !living.template.place.waits())
        {
            *current = None;
            self.ready.clear();
        }
    }

    /// A template was made that takes more memory than there is.
    pub(super) fn refuse_template(&mut self, bytes: u64) {
        self.template_needs = bytes;
        self.trouble = Some(USED_UP.to_owned());
    }

    /// Memory that the places that wait, and those that are being made, take with their template.
    pub(super) fn memory_bytes(&self) -> u64 {
        let places = self
            .place_bytes
            .saturating_mul((self.ready.len() + self.making) as u64);
        self.living().map_or(0, |living| living.bytes) + places
    }

    /// The template as it is to be made; `None`: the pool needs none.
    pub(super) fn template_plan(&self) -> Option<Arc<Plan>> {
        match &self.source {
            Source::Nothing => None,
            Source::Template { plan, .. } => Some(plan.clone()),
        }
    }

    /// The template for one more fork, if there is a good one.
    pub(super) fn template_to_fork(&mut self, settings: &WarmSettings) -> Option<Arc<Template>> {
        if !self.has_good_template(settings) {
            return None;
        }
        let Source::Template {
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
    pub(super) fn begin_template(&mut self, template: Template, bytes: u64) -> Option<Arc<Template>> {
        let Source::Template { special, current, .. } = &mut self.source else {
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

    /// The modules that its template has imported.
    pub(super) fn imported(&self) -> &[String] {
        self.living()
            .map_or(&[], |living| &living.template.imported.wanted)
    }

    /// Has its interpreter none of the modules for which the pool is there.
    pub(super) fn is_useless(&self) -> bool {
        self.useless_since.is_some_and(|since| since.elapsed() < USELESS)
    }

    /// Does the code name a module that this pool has and others lack.
    pub(super) fn is_named_in(&self, code: &str) -> bool {
        let special = self
            .imported()
            .iter()
            .filter(|module| !profile::BASIC.contains(&module.as_str()));
        special
            .filter_map(|module| module.split('.').next())
            .any(|package| code.contains(package))
    }

    /// Has the request a file that a program would import in the place of a module that is there already.
    pub(super) fn is_shadowed_by(&self, files: &[InputFile]) -> bool {
        let Some(living) = self.living() else { return false };
        let first_name = |file: &InputFile| {
            let first = file
                .path
                .as_str()
                .split('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            first.split('.').next().unwrap_or_default().to_owned()
        };
        let files: HashSet<String> = files.iter().map(first_name).collect();
        let mut loaded = living.template.imported.loaded.split(' ');
        !files.is_empty() && loaded.any(|name| files.contains(name))
    }

    fn living(&self) -> Option<&Living> {
        match &self.source {
            Source::Nothing => None,
            Source::Template { current, .. } => current.as_ref(),
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
