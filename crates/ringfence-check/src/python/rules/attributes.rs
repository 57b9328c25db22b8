//! Attributes by which an object leads to the interpreter's own structures.

use crate::{
    lists::LISTS,
    python::table::{Group, find_attribute},
};
use ruff_python_ast::ExprContext;

/// What an attribute is read from, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Super,
    /// It is read for its name alone: `x.__class__.__name__`.
    ForName,
    /// A class that is being made: `object.__new__`.
    Anything,
}

/// Whether this is a name with two underscores on either side.
pub(super) fn is_dunder(name: &str) -> bool {
    name.len() > 4 && name.starts_with("__") && name.ends_with("__")
}

/// What there is to say of an attribute by its name.
pub(super) fn judge(name: &str, context: ExprContext, of: Of) -> Option<&'static Group> {
    if !is_dunder(name) {
        return find_attribute(name);
    }
    if context != ExprContext::Load {
        return find_attribute("__=__").filter(|_| !LISTS.attributes_to_set.contains(&name));
    }
    let is_ordinary = LISTS.ordinary_attributes.contains(&name)
        || (of == Of::Super && LISTS.attributes_of_super.contains(&name))
        || (of == Of::ForName && name == "__class__");
    let known = find_attribute(name).or_else(|| find_attribute("__*__"));
    known.filter(|_| !is_ordinary)
}

/// The same of a text, wherever it stands: it may be on its way to `getattr`.
pub(super) fn judge_text(text: &str) -> Option<&'static Group> {
    if text.len() > 40 {
        return None;
    }
    judge(text, ExprContext::Load, Of::Anything)
}
