//! Attributes by which an object leads to the interpreter's own structures.

use crate::{
    python::findings::Weight,
    registry::python::{FRAMES, REFLECTION},
    rule::Rule,
};
use ruff_python_ast::ExprContext;

/// Names with two underscores on either side that ordinary programs read. In alphabetical order.
#[rustfmt::skip]
const ORDINARY: &[&str] = &[
    "__abs__", "__add__", "__aenter__", "__aexit__", "__aiter__", "__all__", "__and__", "__anext__",
    "__author__", "__await__", "__bool__", "__bytes__", "__call__", "__cause__",
    "__ceil__", "__complex__", "__contains__", "__context__", "__copy__", "__dataclass_fields__", "__debug__",
    "__deepcopy__", "__delete__", "__delitem__", "__divmod__", "__doc__", "__enter__", "__eq__", "__exit__",
    "__float__", "__floor__", "__floordiv__", "__format__", "__future__", "__ge__", "__get__", "__getitem__",
    "__gt__", "__hash__", "__iadd__", "__iand__", "__ifloordiv__", "__imul__", "__index__", "__init__", "__int__",
    "__invert__", "__ior__", "__isub__", "__iter__", "__itruediv__", "__ixor__", "__le__", "__len__",
    "__length_hint__", "__lshift__", "__lt__", "__main__", "__match_args__", "__matmul__", "__members__",
    "__missing__", "__mod__", "__module__", "__mul__", "__name__", "__ne__", "__neg__", "__new__", "__next__",
    "__notes__", "__or__", "__origin__", "__pos__", "__post_init__", "__pow__", "__qualname__", "__radd__",
    "__rand__", "__rdivmod__", "__repr__", "__reversed__", "__rfloordiv__", "__rmatmul__", "__rmod__", "__rmul__",
    "__ror__", "__round__", "__rpow__", "__rsub__", "__rtruediv__", "__rxor__", "__set__", "__set_name__",
    "__setattr__", "__setitem__", "__slots__", "__str__", "__sub__", "__suppress_context__", "__total__",
    "__truediv__", "__trunc__", "__version__", "__wrapped__", "__xor__",
];

/// What a method may further call of the class above, as `super().__init_subclass__()`. In alphabetical order.
#[rustfmt::skip]
const ORDINARY_OF_SUPER: &[&str] = &[
    "__class_getitem__", "__delattr__", "__dir__", "__getattr__", "__init_subclass__", "__prepare__",
    "__subclasshook__",
];

/// Names that ordinary programs assign to an attribute. In alphabetical order.
#[rustfmt::skip]
const ORDINARY_TO_SET: &[&str] = &[
    "__cause__", "__context__", "__doc__", "__module__", "__name__", "__qualname__", "__suppress_context__",
    "__wrapped__",
];

/// Names that few programs have a use for, and that lead far. In alphabetical order.
#[rustfmt::skip]
const FAR: &[&str] = &[
    "__base__", "__builtins__", "__closure__", "__code__", "__func__", "__globals__", "__import__",
    "__kwdefaults__", "__loader__", "__self__", "__spec__", "__subclasses__", "__traceback__",
];

/// Attributes of frames, tracebacks, generators and code. In alphabetical order.
#[rustfmt::skip]
const OF_FRAMES: &[&str] = &[
    "ag_await", "ag_code", "ag_frame", "co_code", "co_consts", "co_names", "cr_await", "cr_code", "cr_frame",
    "f_back", "f_builtins", "f_code", "f_globals", "f_lineno", "f_locals", "f_trace", "func_closure", "func_code",
    "func_globals", "gi_code", "gi_frame", "gi_yieldfrom", "tb_frame", "tb_lasti", "tb_next",
];

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

/// Is this a name with two underscores on either side.
pub(super) fn is_dunder(name: &str) -> bool {
    name.len() > 4 && name.starts_with("__") && name.ends_with("__")
}

/// What there is to say of an attribute by its name.
pub(super) fn judge(name: &str, context: ExprContext, of: Of) -> Option<Said> {
    // All the names here have an underscore near their beginning, and most attributes have none.
    if !name.bytes().take(6).any(|byte| byte == b'_') {
        return None;
    }
    if OF_FRAMES.binary_search(&name).is_ok() {
        return Some(Said {
            rule: &FRAMES,
            weight: Weight::GRAVE,
            does: "leads to the frames of running code",
        });
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
    if ORDINARY_TO_SET.binary_search(&name).is_ok() {
        return None;
    }
    Some(Said {
        rule: &REFLECTION,
        weight: Weight::SUSPECT,
        does: "changes how an object behaves from outside",
    })
}

fn judge_read(name: &str, of: Of) -> Option<Said> {
    let ordinary = ORDINARY.binary_search(&name).is_ok()
        || (of == Of::Super && ORDINARY_OF_SUPER.binary_search(&name).is_ok())
        || (of == Of::ForName && name == "__class__");
    if ordinary {
        return None;
    }
    if FAR.binary_search(&name).is_ok() {
        return Some(far());
    }
    if matches!(name, "__annotations__" | "__args__") {
        return Some(Said {
            rule: &REFLECTION,
            weight: Weight::STRICT_ERROR,
            does: "leads to texts that are evaluated as types",
        });
    }
    Some(Said {
        rule: &REFLECTION,
        weight: Weight::SUSPECT,
        does: match name {
            "__dict__" => "is an object's own dictionary",
            "__class__" => "is the class of an object",
            "__mro__" | "__bases__" => "names the classes above a class",
            _ => "belongs to the interpreter's own structures",
        },
    })
}

fn far() -> Said {
    Said {
        rule: &REFLECTION,
        weight: Weight::GRAVE,
        does: "leads to the interpreter's own structures",
    }
}

/// A text that is such a name, wherever it stands: it may be on its way to `getattr`.
pub(super) fn judge_text(text: &str) -> Option<Said> {
    if text.len() > 40 {
        return None;
    }
    let said = judge(text, ExprContext::Load, Of::Anything)?;
    Some(Said {
        weight: Weight::STRICT_ERROR,
        does: "names a part of the interpreter's own structures",
        ..said
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted_so_that_they_can_be_searched() {
        for table in [ORDINARY, ORDINARY_OF_SUPER, ORDINARY_TO_SET, FAR, OF_FRAMES] {
            assert!(table.is_sorted(), "{table:?}");
            assert!(
                table
                    .iter()
                    .all(|name| name.bytes().take(6).any(|byte| byte == b'_'))
            );
        }
    }
}
