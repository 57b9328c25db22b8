//! Attributes that lead from an object to the interpreter's own structures.

use crate::{
    lists::LISTS,
    python::table::{Group, find_attribute},
};
use ruff_python_ast::ExprContext;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Super,
    /// Only the name of its value is read: `x.__class__.__name__`.
    ForName,
    Other,
}

/// True for a name with two underscores on either side.
pub(super) fn is_dunder(name: &str) -> bool {
    name.len() > 4 && name.starts_with("__") && name.ends_with("__")
}

/// Returns the group of an attribute by its name, if its use is a finding.
pub(super) fn classify(name: &str, context: ExprContext, access: Access) -> Option<&'static Group> {
    if !is_dunder(name) {
        return find_attribute(name);
    }
    if context != ExprContext::Load {
        return find_attribute("__=__").filter(|_| !LISTS.attributes_to_set.contains(&name));
    }
    let is_ordinary = LISTS.ordinary_attributes.contains(&name)
        || (access == Access::Super && LISTS.attributes_of_super.contains(&name))
        || (access == Access::ForName && name == "__class__");
    let known = find_attribute(name).or_else(|| find_attribute("__*__"));
    known.filter(|_| !is_ordinary)
}

/// Returns the same for any string, because it may be passed to `getattr`.
pub(super) fn classify_text(text: &str) -> Option<&'static Group> {
    if text.len() > 40 {
        return None;
    }
    classify(text, ExprContext::Load, Access::Other)
}
