//! What a call gives, where that is known without running it: `getattr(os, 'system')`, `__import__('os')`.

use super::{Meaning, Meanings, PATH_BYTES_MAX};
use ruff_python_ast::{Arguments, Expr};

/// What `globals()` gives.
pub(super) const OWN_NAMES: &str = "globals()";

impl<'a> Meanings<'a, '_> {
    pub(super) fn call(&self, function: &Meaning<'a>, arguments: &'a Arguments) -> Meaning<'a> {
        match function {
            Meaning::Builtin(name) => self.call_builtin(name, arguments),
            Meaning::Path(path) => self.call_path(function, path, arguments),
            Meaning::Getter(way) => {
                let mut meaning = self.argument(arguments, 0);
                for name in way.split('.') {
                    meaning = self.attribute(&meaning, name);
                }
                meaning
            }
            Meaning::Item(key) => self.item(&self.argument(arguments, 0), key),
            Meaning::Caller(name) => called(&self.attribute(&self.argument(arguments, 0), name)),
            _ => Meaning::Unknown,
        }
    }

    /// A positional argument.
    pub(crate) fn argument(&self, arguments: &'a Arguments, at: usize) -> Meaning<'a> {
        match arguments.args.get(at) {
            Some(Expr::Starred(_)) | None => Meaning::Unknown,
            Some(expr) => self.of(expr),
        }
    }

    fn call_builtin(&self, name: &str, arguments: &'a Arguments) -> Meaning<'a> {
        match name {
            "getattr" => match self.argument(arguments, 1) {
                Meaning::Text(attribute) => self.attribute(&self.argument(arguments, 0), &attribute),
                _ => Meaning::Unknown,
            },
            "__import__" => self.imported(arguments, First::Package),
            "vars" if !arguments.args.is_empty() => self.attribute(&self.argument(arguments, 0), "__dict__"),
            "vars" | "globals" | "locals" => Meaning::path(OWN_NAMES),
            "type" if arguments.len() == 1 => match self.argument(arguments, 0) {
                Meaning::Text(_) => Meaning::Builtin("str"),
                _ => Meaning::Unknown,
            },
            _ => Meaning::Unknown,
        }
    }

    fn call_path(&self, function: &Meaning<'a>, path: &str, arguments: &'a Arguments) -> Meaning<'a> {
        match path {
            "importlib.import_module" => return self.imported(arguments, First::Whole),
            "importlib.__import__" => return self.imported(arguments, First::Package),
            "operator.attrgetter" => return self.made(arguments, Meaning::Getter),
            "operator.itemgetter" => return self.made(arguments, Meaning::Item),
            "operator.methodcaller" => return self.made(arguments, Meaning::Caller),
            "operator.getitem" => {
                return match self.argument(arguments, 1) {
                    Meaning::Text(key) => self.item(&self.argument(arguments, 0), &key),
                    _ => Meaning::Unknown,
                };
            }
            "inspect.getattr_static"
            | "builtins.object.__getattribute__"
            | "builtins.type.__getattribute__" => {
                return self.call_builtin("getattr", arguments);
            }
            _ => {}
        }
        if let Some((value, method)) = path.rsplit_once('.') {
            let value = Meaning::path(value);
            let first = || self.argument(arguments, 0);
            match method {
                "get" | "pop" | "setdefault" | "__getitem__" => {
                    if let Meaning::Text(key) = first()
                        && let found @ (Meaning::Path(_) | Meaning::Builtin(_)) = self.item(&value, &key)
                    {
                        return found;
                    }
                }
                "__getattribute__" | "__getattr__" => {
                    if let Meaning::Text(name) = first() {
                        return self.attribute(&value, &name);
                    }
                }
                "load_module" | "import_module" | "find_module" => {
                    return self.imported(arguments, First::Whole);
                }
                _ => {}
            }
        }
        called(function)
    }

    fn made(&self, arguments: &'a Arguments, kind: fn(std::rc::Rc<str>) -> Meaning<'a>) -> Meaning<'a> {
        match self.argument(arguments, 0) {
            Meaning::Text(text) => kind(text),
            _ => Meaning::Unknown,
        }
    }

    fn imported(&self, arguments: &'a Arguments, first: First) -> Meaning<'a> {
        let name = arguments.find_argument_value("name", 0).map(|expr| self.of(expr));
        let Some(Meaning::Text(name)) = name else {
            return Meaning::Unknown;
        };
        let whole =
            first == First::Whole || arguments.len() >= 4 || arguments.find_keyword("fromlist").is_some();
        let name = match name.split_once('.') {
            Some((package, _)) if !whole => package,
            _ => &name,
        };
        Meaning::path(name)
    }
}

/// Which module an import gives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    /// `a` of `a.b`.
    Package,
    Whole,
}

fn called<'a>(function: &Meaning<'a>) -> Meaning<'a> {
    match function {
        Meaning::Path(path) if path.len() + 2 < PATH_BYTES_MAX => Meaning::path(&format!("{path}()")),
        _ => Meaning::Unknown,
    }
}
