//! What would keep an error about a name from being noticed.

use crate::python::{
    profile::STANDARD_LIBRARY,
    scope::{Kind, Resolution, Scopes},
};
use ruff_python_ast::{Expr, ExprName, Stmt, StmtWith};

/// Errors about names are these.
const CATCHING: &[&str] = &["NameError", "Exception", "BaseException"];
/// Managers that swallow the errors they are given.
const SWALLOWING: &[&str] = &["suppress", "raises", "assertRaises", "assertRaisesRegex"];

/// The types of a handler; none: it catches everything.
pub(super) fn types_of(handler: Option<&Expr>) -> &[Expr] {
    match handler {
        Some(Expr::Tuple(several)) => several.elts.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    }
}

/// Is one of the types that name.
pub(super) fn names(types: &[Expr], word: &str) -> bool {
    types
        .iter()
        .any(|kind| matches!(kind, Expr::Name(name) if name.id == word))
}

/// May a handler of these types catch an error about a name. What is not known may.
pub(super) fn catches(types: &[Expr], scopes: &Scopes<'_>) -> bool {
    types.is_empty() || types.iter().any(|kind| may_catch(kind, scopes))
}

fn may_catch(kind: &Expr, scopes: &Scopes<'_>) -> bool {
    let last = match kind {
        Expr::Attribute(attribute) => Some(attribute.attr.as_str()),
        _ => None,
    };
    let mut root = kind;
    while let Expr::Attribute(attribute) = root {
        root = &attribute.value;
    }
    let Expr::Name(root) = root else { return true };
    let Some(read) = scopes.use_at(root.range) else {
        return true;
    };
    let is_of_library = |module: &str| {
        let root = module.split('.').next().unwrap_or(module);
        root != "builtins" && STANDARD_LIBRARY.contains(&root)
    };
    match (read.resolution, read.otherwise) {
        (Resolution::Builtin, None) => last.is_some() || CATCHING.contains(&root.id.as_str()),
        // To ask for it fails by itself.
        (Resolution::Unresolved, None) => false,
        (Resolution::Binding(id), None) => {
            let known = scopes.binding(id).and_then(|binding| binding.only_kind());
            let (module, name) = match (known, last) {
                // No error about a name is one of the program's own kinds.
                (Some(Kind::Class), None) => return false,
                (Some(Kind::Import { module }), Some(name)) => (*module, name),
                (
                    Some(Kind::From {
                        module,
                        level: 0,
                        name,
                    }),
                    None,
                ) => (*module, *name),
                _ => return true,
            };
            !is_of_library(module) || CATCHING.contains(&name)
        }
        _ => true,
    }
}

/// `finally: return`, which lets no error through.
pub(super) fn ends_by_itself(last: &[Stmt]) -> bool {
    last.iter()
        .any(|statement| matches!(statement, Stmt::Return(_) | Stmt::Break(_) | Stmt::Continue(_)))
}

/// `with contextlib.suppress(Exception)`, and managers of the program's own.
pub(super) fn swallows(with: &StmtWith, scopes: &Scopes<'_>) -> bool {
    with.items.iter().any(|item| {
        let Expr::Call(call) = &item.context_expr else {
            return false;
        };
        let named = match call.func.as_ref() {
            Expr::Name(name) => name.id.as_str(),
            Expr::Attribute(attribute) => attribute.attr.as_str(),
            _ => "",
        };
        let is_own = call.func.as_name_expr().is_some_and(|name| is_own(name, scopes));
        is_own
            || SWALLOWING.contains(&named) && call.arguments.args.iter().any(|kind| may_catch(kind, scopes))
    })
}

fn is_own(name: &ExprName, scopes: &Scopes<'_>) -> bool {
    let binding = scopes.use_at(name.range).and_then(|read| match read.resolution {
        Resolution::Binding(id) => scopes.binding(id),
        _ => None,
    });
    binding.is_some_and(|binding| {
        let own = |kind: &Kind<'_>| matches!(kind, Kind::Class | Kind::Function);
        binding.kinds.iter().any(own)
    })
}
