//! `functools.update_wrapper` and `wraps`, which copy attributes by their names from one object to another.

use super::{REFLECTION, Weight, walk::Walk};
use crate::python::{
    meaning::Meaning,
    profile::{BASIC, STANDARD_LIBRARY},
};
use ruff_python_ast::{Arguments, Expr};
use ruff_text_size::TextRange;

/// What `functools.WRAPPER_ASSIGNMENTS` and `WRAPPER_UPDATES` have. In alphabetical order.
#[rustfmt::skip]
const USUAL: &[&str] = &[
    "__annotations__", "__dict__", "__doc__", "__module__", "__name__", "__qualname__", "__type_params__",
];

impl<'a> Walk<'a, '_, '_> {
    /// What is copied, with the place of the object that it is copied from.
    pub(super) fn copied(&mut self, path: &str, arguments: &'a Arguments, range: TextRange, from: usize) {
        let is_open = arguments.args.iter().any(Expr::is_starred_expr)
            || arguments.keywords.iter().any(|keyword| keyword.arg.is_none());
        let given = |name: &str, at: usize| arguments.find_argument_value(name, at);
        let lists = [given("assigned", from + 1), given("updated", from + 2)];
        if is_open || !lists.into_iter().flatten().all(|names| self.are_usual(names)) {
            let what = format!("`{path}` copies attributes other than the usual ones");
            self.say(&REFLECTION, Weight::STRICT_ERROR, range, what);
        }
        let wrapped = given("wrapped", from).map(|wrapped| self.meanings.of(wrapped));
        if let Some(Meaning::Path(module)) = wrapped
            && (STANDARD_LIBRARY.contains(&&*module) || BASIC.contains(&&*module))
        {
            let what = format!("`{path}` copies the names of the module `{module}`");
            self.say(&REFLECTION, Weight::STRICT_ERROR, range, what);
        }
    }

    fn are_usual(&self, names: &'a Expr) -> bool {
        let names = self.value_of(names);
        let exprs = match names {
            Expr::Tuple(tuple) => &tuple.elts,
            Expr::List(list) => &list.elts,
            _ => {
                let meaning = self.meanings.of(names);
                let known = ["functools.WRAPPER_ASSIGNMENTS", "functools.WRAPPER_UPDATES"];
                return meaning.as_path().is_some_and(|path| known.contains(&path));
            }
        };
        exprs.iter().all(|expr| match self.meanings.of(expr) {
            Meaning::Text(name) => USUAL.binary_search(&&*name).is_ok(),
            _ => false,
        })
    }
}
