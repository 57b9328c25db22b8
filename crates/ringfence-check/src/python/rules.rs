//! The rules of Python by name, and how bad each finding is under which profile.

mod annotations;
mod attributes;
mod calls;
mod commands;
mod computed;
mod copied;
mod encoding;
mod formats;
mod imports;
mod lookalikes;
mod matched;
mod own;
mod private;
mod private_names;
mod stars;
mod strict;
mod texts;
mod visit;
mod walk;

use super::weight::Weight;
use crate::rule::Rule;
use ringfence_types::Severity;

pub(crate) use crate::registry::python::*;
pub(crate) use encoding::check as check_encoding;
pub(crate) use lookalikes::check as check_direction;
pub(crate) use visit::check;

/// The same where it is no more than worth knowing.
static REFLECTION_NOTED: Rule = Rule {
    severity: Severity::Info,
    why: "it is fine for objects of one's own",
    hint: "Use attributes where they are known; `isinstance` and `type(x).__name__` need no such name.",
    ..REFLECTION
};
