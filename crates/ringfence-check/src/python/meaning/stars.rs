//! Names that `from module import *` brings: `Formatter` after `from string import *` is `string.Formatter`.

use super::{Meaning, Meanings};
use crate::python::{
    dangerous_names,
    module_attributes::module_at,
    scope::{Resolution, Use},
};

impl<'a> Meanings<'a, '_> {
    /// What a name denotes if a star import brings it. Where something in sight binds it, too, the import wins only
    /// with what leads somewhere.
    pub(super) fn of_star(&self, read: &Use<'a>, bound: &Meaning<'a>) -> Option<Meaning<'a>> {
        if read.name.starts_with('_') || !self.spend(self.scopes.stars().len()) {
            return None;
        }
        let stars = self.scopes.stars().iter().rev();
        let mut may_bring = stars.filter(|star| star.level == 0 && self.scopes.may_be_of_star(read, star));
        let brought = |module: &str| self.attribute(&Meaning::path(module), read.name);
        let first = may_bring.next()?;
        let leads = [first]
            .into_iter()
            .chain(may_bring)
            .find(|star| leads_somewhere(star.module, read));
        match leads {
            Some(star) if !matches!(bound, Meaning::Path(_)) => Some(brought(star.module)),
            Some(_) => None,
            None => (read.resolution == Resolution::Unresolved).then(|| brought(first.module)),
        }
    }

    /// Is it known of no other way that this name is bound.
    pub(crate) fn is_of_star(&self, read: &Use<'a>) -> bool {
        self.scopes.has_star_import() && self.of_star(read, &self.of_bound(read)).is_some()
    }
}

/// What has another meaning, too, must be known by itself: `hasattr` is nothing of `ctypes`, though all of that is
/// known.
fn leads_somewhere(module: &str, read: &Use<'_>) -> bool {
    let path = format!("{module}.{}", read.name);
    let is_known = match read.resolution {
        Resolution::Unresolved => dangerous_names::find(&path).is_some(),
        _ => dangerous_names::find_by_name(&path).is_some(),
    };
    is_known || module_at(module, read.name).is_some()
}
