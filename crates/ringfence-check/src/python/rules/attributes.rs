//! Attributes by which an object leads to the interpreter's own structures.

use crate::{
    lists::LISTS,
    python::weight::Weight,
    registry::python::{FRAMES, REFLECTION},
    rule::Rule,
};
use ruff_python_ast::ExprContext;

pub(super) struct Said {
    pub(super) rule: &'static Rule,
    pub(super) weight: Weight,
    pub(super) does: &'static str,
}

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

fn said(rule: &'static Rule, weight: Weight, does: &'static str) -> Said {
    Said { rule, weight, does }
}

/// What there is to say of an attribute by its name.
pub(super) fn judge(name: &str, context: ExprContext, of: Of) -> Option<Said> {
    if LISTS.frame_attributes.contains(&name) {
        let does = "leads to the frames of running code";
        return Some(said(&FRAMES, Weight::Grave, does));
    }
    if name == "_Printer__filenames" {
        return Some(far());
    }
    if !is_dunder(name) {
        return None;
    }
    if context == ExprContext::Load {
        return judge_read(name, of);
    }
    let does = "changes how an object behaves from outside";
    let is_usual = LISTS.attributes_to_set.contains(&name);
    (!is_usual).then(|| said(&REFLECTION, Weight::Suspect, does))
}

fn judge_read(name: &str, of: Of) -> Option<Said> {
    let ordinary = LISTS.ordinary_attributes.contains(&name)
        || (of == Of::Super && LISTS.attributes_of_super.contains(&name))
        || (of == Of::ForName && name == "__class__");
    let (weight, does) = match name {
        _ if ordinary => return None,
        _ if LISTS.far_attributes.contains(&name) => return Some(far()),
        "__annotations__" | "__args__" => (Weight::StrictError, "leads to texts that are evaluated as types"),
        "__dict__" => (Weight::Suspect, "is an object's own dictionary"),
        "__class__" => (Weight::Suspect, "is the class of an object"),
        "__mro__" | "__bases__" => (Weight::Suspect, "names the classes above a class"),
        _ => (Weight::Suspect, "belongs to the interpreter's own structures"),
    };
    Some(said(&REFLECTION, weight, does))
}

fn far() -> Said {
    let does = "leads to the interpreter's own structures";
    said(&REFLECTION, Weight::Grave, does)
}

/// A text that is such a name, wherever it stands: it may be on its way to `getattr`.
pub(super) fn judge_text(text: &str) -> Option<Said> {
    if text.len() > 40 {
        return None;
    }
    let said = judge(text, ExprContext::Load, Of::Anything)?;
    Some(Said {
        weight: Weight::StrictError,
        does: "names a part of the interpreter's own structures",
        ..said
    })
}
