//! Which parts of a program run whatever happens, and which run where somebody catches their errors. Both are told from names
//! alone and on the safe side: what may be left out is not certain, what may be watched is.

use ruff_text_size::TextSize;
use std::collections::{HashMap, HashSet};

/// The module itself.
pub(super) const MODULE: usize = 0;

/// When the statements of a function or a class run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Runs {
    /// A module, or a class.
    #[default]
    AtOnce,
    WhenCalled,
    WhenAwaited,
    /// It has a decorator, is a generator or has no name.
    Unknown,
}

/// A function or a class; or the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Owner<'a> {
    pub(super) around: usize,
    /// None: the module, or a function without a name.
    pub(super) name: Option<&'a str>,
    pub(super) function: bool,
    pub(super) runs: Runs,
}

/// A place in the code of an owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) owner: usize,
    pub(super) at: TextSize,
    /// Something around it, in the same owner, may leave it out.
    pub(super) conditional: bool,
}

/// What a call runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    /// The body of a class, where it is defined.
    Body(usize),
    /// A function or a class by its only name.
    Name(&'a str),
    /// A method of a class.
    Method(&'a str, &'a str),
    /// A method of the class around.
    OwnMethod(&'a str),
}

#[derive(Debug)]
struct Call<'a> {
    from: Point,
    target: Target<'a>,
    /// `await f()`, `asyncio.run(f())`.
    driven: bool,
}

/// What is known of a program's owners.
#[derive(Debug, Default)]
pub(super) struct Reach<'a> {
    owners: Vec<Owner<'a>>,
    calls: Vec<Call<'a>>,
    /// From where on an owner may have been left: `return`, `sys.exit()`.
    left: HashMap<usize, TextSize>,
    /// Owners that may end the program.
    ending: Vec<usize>,
    /// Where an owner first mentions a name.
    mentions: HashMap<usize, HashMap<&'a str, TextSize>>,
    watched: HashSet<&'a str>,
}

impl<'a> Reach<'a> {
    /// Of a module of which nothing is known yet.
    pub(super) fn of_module() -> Self {
        Self {
            owners: vec![Owner::default()],
            ..Self::default()
        }
    }

    pub(super) fn own(&mut self, owner: Owner<'a>) -> usize {
        self.owners.push(owner);
        self.owners.len() - 1
    }

    /// The function is a generator.
    pub(super) fn yields(&mut self, owner: usize) {
        if let Some(owner) = self.owners.get_mut(owner).filter(|owner| owner.function) {
            owner.runs = Runs::Unknown;
        }
    }

    pub(super) fn call(&mut self, from: Point, target: Target<'a>, driven: Driven) {
        self.calls.push(Call {
            from,
            target,
            driven: driven == Driven::Yes,
        });
    }

    pub(super) fn mention(&mut self, name: &'a str, owner: usize, at: TextSize) {
        let first = self.mentions.entry(owner).or_default().entry(name).or_insert(at);
        *first = at.min(*first);
    }

    /// A name is mentioned where errors about names are caught.
    pub(super) fn watch(&mut self, name: &'a str) {
        self.watched.insert(name);
    }

    /// What follows in the owner may be left out.
    pub(super) fn leave(&mut self, owner: usize, at: TextSize) {
        let first = self.left.entry(owner).or_insert(at);
        *first = at.min(*first);
    }

    /// So may what follows a call of the owner.
    pub(super) fn end(&mut self, owner: usize, at: TextSize) {
        self.leave(owner, at);
        self.ending.push(owner);
    }

    pub(super) fn is_in_function(&self, owner: usize) -> bool {
        self.chain(owner)
            .any(|id| self.owners.get(id).is_some_and(|owner| owner.function))
    }

    /// From the inside to the outside, without the module.
    fn chain(&self, owner: usize) -> impl Iterator<Item = usize> {
        let mut next = owner;
        std::iter::from_fn(move || {
            let at = Some(next).filter(|at| *at != MODULE)?;
            next = self.owners.get(at)?.around;
            Some(at)
        })
    }

    /// What can be concluded when everything is known.
    pub(super) fn conclude(mut self) -> Concluded<'a> {
        let index = Index::of(&self.owners);
        self.spread_ends(&index);
        let watched = self.watched_owners(&index);
        let mut concluded = Concluded {
            certain: HashSet::from([MODULE]),
            watched,
            reach: self,
        };
        concluded.find_certain(&index);
        concluded
    }

    /// Whoever mentions what may end the program may end it, too.
    fn spread_ends(&mut self, index: &Index<'a>) {
        let mut mentioned_by: HashMap<&str, Vec<(usize, TextSize)>> = HashMap::new();
        for (owner, names) in &self.mentions {
            for (name, at) in names.iter().filter(|(name, _)| index.by_name.contains_key(*name)) {
                mentioned_by.entry(name).or_default().push((*owner, *at));
            }
        }
        let mut pending = std::mem::take(&mut self.ending);
        let mut known = HashSet::new();
        while let Some(owner) = pending.pop() {
            if !known.insert(owner) {
                continue;
            }
            let Some(found) = self.owners.get(owner).copied() else {
                continue;
            };
            // What a method of a class may do, making one may do.
            pending.extend(Some(found.around).filter(|around| *around != MODULE));
            let name = found.name.unwrap_or_default();
            for (by, at) in mentioned_by.get(name).into_iter().flatten() {
                self.leave(*by, *at);
                pending.push(*by);
            }
        }
    }

    /// Owners that are mentioned where errors are caught, and those that they mention.
    fn watched_owners(&self, index: &Index<'a>) -> HashSet<usize> {
        let named = |name: &&'a str| index.by_name.get(*name).into_iter().flatten().copied();
        let mut pending: Vec<usize> = self.watched.iter().flat_map(named).collect();
        let mut watched = HashSet::new();
        while let Some(owner) = pending.pop() {
            if !watched.insert(owner) {
                continue;
            }
            pending.extend(index.within.get(&owner).into_iter().flatten());
            let names = self.mentions.get(&owner).into_iter().flat_map(HashMap::keys);
            pending.extend(names.flat_map(named));
        }
        watched
    }
}

/// Does somebody wait for what an asynchronous function gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driven {
    Yes,
    No,
}

/// Owners by what they are found by.
struct Index<'a> {
    by_name: HashMap<&'a str, Vec<usize>>,
    within: HashMap<usize, Vec<usize>>,
}

impl<'a> Index<'a> {
    fn of(owners: &[Owner<'a>]) -> Self {
        let mut index = Self {
            by_name: HashMap::new(),
            within: HashMap::new(),
        };
        for (id, owner) in owners.iter().enumerate().skip(1) {
            index.within.entry(owner.around).or_default().push(id);
            if let Some(name) = owner.name {
                index.by_name.entry(name).or_default().push(id);
            }
        }
        index
    }

    /// The only one of the name.
    fn only(&self, name: &str) -> Option<usize> {
        match self.by_name.get(name)?.as_slice() {
            [only] => Some(*only),
            _ => None,
        }
    }
}

/// What runs for certain, and what is watched.
#[derive(Debug)]
pub(super) struct Concluded<'a> {
    reach: Reach<'a>,
    certain: HashSet<usize>,
    watched: HashSet<usize>,
}

impl<'a> Concluded<'a> {
    /// What stands there is evaluated whenever the program runs.
    pub(super) fn is_certain(&self, point: &Point) -> bool {
        let left = self.reach.left.get(&point.owner);
        !point.conditional && self.certain.contains(&point.owner) && left.is_none_or(|left| point.at <= *left)
    }

    /// Somebody may catch the errors of what stands there.
    pub(super) fn is_watched(&self, owner: usize) -> bool {
        self.reach.chain(owner).any(|owner| self.watched.contains(&owner))
    }

    pub(super) fn is_in_function(&self, owner: usize) -> bool {
        self.reach.is_in_function(owner)
    }

    fn find_certain(&mut self, index: &Index<'a>) {
        let mut calls: HashMap<usize, Vec<usize>> = HashMap::new();
        for (at, call) in self.reach.calls.iter().enumerate() {
            calls.entry(call.from.owner).or_default().push(at);
        }
        let mut pending = vec![MODULE];
        while let Some(owner) = pending.pop() {
            for at in calls.get(&owner).into_iter().flatten() {
                let Some(call) = self.reach.calls.get(*at) else {
                    continue;
                };
                if self.is_certain(&call.from) {
                    let started = self.started(call, index);
                    pending.extend(started.into_iter().filter(|owner| self.certain.insert(*owner)));
                }
            }
        }
    }

    /// The owners whose statements a call runs.
    fn started(&self, call: &Call<'a>, index: &Index<'a>) -> Vec<usize> {
        let found = match call.target {
            Target::Body(owner) => return vec![owner],
            Target::Name(name) => index.only(name),
            Target::Method(class, name) => index
                .only(class)
                .and_then(|class| self.method(class, name, index)),
            Target::OwnMethod(name) => {
                let classes = self.reach.chain(call.from.owner);
                let mut classes = classes.filter(|id| self.owner(*id).is_some_and(|owner| !owner.function));
                classes.next().and_then(|class| self.method(class, name, index))
            }
        };
        let Some(id) = found else { return Vec::new() };
        let Some(owner) = self.owner(id) else {
            return Vec::new();
        };
        match owner.runs {
            Runs::WhenCalled => vec![id],
            Runs::WhenAwaited if call.driven => vec![id],
            Runs::WhenAwaited | Runs::Unknown => Vec::new(),
            // What `__new__` gives may be something else.
            Runs::AtOnce => match self.method(id, "__new__", index) {
                Some(_) => Vec::new(),
                None => self.method(id, "__init__", index).into_iter().collect(),
            },
        }
    }

    fn owner(&self, id: usize) -> Option<&Owner<'a>> {
        self.reach.owners.get(id)
    }

    fn method(&self, class: usize, name: &str, index: &Index<'a>) -> Option<usize> {
        let named = |id: &&usize| self.owner(**id).is_some_and(|owner| owner.name == Some(name));
        let mut found = index.within.get(&class)?.iter().filter(named);
        let first = found.next().copied();
        first.filter(|_| found.next().is_none())
    }
}
