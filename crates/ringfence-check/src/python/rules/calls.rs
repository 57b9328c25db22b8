//! Calls that are judged by their arguments: `open('/etc/passwd')`, `getattr(x, name)`, `run(command, shell=True)`.

use super::{Step, Walk, attributes, attributes::Access};
use crate::{
    lists::LISTS,
    python::{module_attributes::dangerous_module, resolve::Meaning, spine::spine_of, weight::Weight},
    registry::profile as profile_rules,
    registry::python::{
        DYNAMIC_EXECUTION, FILE_ACCESS, FILE_DELETION, FORMAT_ATTRIBUTE, OBFUSCATED_CODE, REFLECTION,
        SHELL_TRUE, UNSAFE_LOAD,
    },
    rule::Finding,
    shell,
    unknown::shown,
};
use ringfence_types::Profile;
use ruff_python_ast::{self as ast, Arguments, Expr, ExprContext, Int, Number};
use ruff_text_size::{Ranged, TextRange};

/// Maximum depth of nested calls in which unpacking of code is searched for.
const UNPACKING_DEPTH_MAX: u32 = 8;
/// A call of a function that takes the name of an attribute.
#[derive(Clone, Copy)]
struct ByName<'f> {
    function: &'f str,
    range: TextRange,
}

impl<'a> Walk<'a, '_, '_> {
    pub(super) fn call(&mut self, call: &'a ast::ExprCall, step: &Step<'a, '_>) {
        let (arguments, range) = (&call.arguments, call.range());
        match step.left_meaning {
            Meaning::Builtin(name) => self.call_of_builtin(name, arguments, range),
            Meaning::Path(path) => self.call_of_path(path, arguments, range),
            _ => {}
        }
        let Expr::Attribute(attribute) = step.left else {
            return;
        };
        match attribute.attr.as_str() {
            "__setattr__" => self.add_own_literals(arguments.args.iter().take(2)),
            "format" | "format_map" if step.left_meaning.as_path() != Some("builtins.str.format") => {
                self.check_format(attribute, arguments, range);
            }
            _ => {}
        }
    }

    fn call_of_builtin(&mut self, name: &str, arguments: &'a Arguments, range: TextRange) {
        match name {
            "eval" | "exec" | "compile" => self.check_exec(name, arguments),
            "getattr" | "setattr" | "delattr" | "hasattr" => self.check_by_name(name, arguments, range, 1),
            "open" => self.check_open(arguments, range),
            "type" => self.check_type_call(arguments, range),
            "__import__" => {
                let name = arguments.find_argument_value("name", 0);
                if self.imports.are_restricted() && name.and_then(|name| self.resolver.text(name)).is_none() {
                    let what = "`__import__` is given a name that is not a constant".to_owned();
                    let hint = "Name the module in an `import` statement.";
                    self.refuse(&profile_rules::IMPORT, range, what, hint);
                }
            }
            _ => {}
        }
    }

    fn call_of_path(&mut self, path: &str, arguments: &'a Arguments, range: TextRange) {
        match path {
            "io.open" | "_io.open" | "codecs.open" | "io.FileIO" | "_io.FileIO" => {
                self.check_open(arguments, range)
            }
            "operator.attrgetter" | "_operator.attrgetter" => self.check_attrgetter(arguments, range),
            "operator.methodcaller" | "_operator.methodcaller" => {
                self.check_by_name("methodcaller", arguments, range, 0);
            }
            "inspect.getattr_static" => self.check_by_name("getattr_static", arguments, range, 1),
            "builtins.type.__setattr__" => self.check_by_name("__setattr__", arguments, range, 1),
            "builtins.str.format" | "builtins.str.format_map" => match arguments.args.first() {
                Some(it) if !it.is_string_literal_expr() => self.check_template(it, range, Weight::Suspect),
                _ => {}
            },
            "yaml.load" | "yaml.load_all" => self.check_yaml_load(path, arguments, range),
            "numpy.load" | "torch.load" => self.check_load(path, arguments, range),
            "importlib.import_module" | "importlib.__import__" | "operator.itemgetter" => {
                self.check_computed_item(arguments.args.first(), range);
            }
            "functools.update_wrapper" => self.check_wrap(path, arguments, range, 1),
            "functools.wraps" => self.check_wrap(path, arguments, range, 0),
            "dataclasses.make_dataclass" => self.check_make_dataclass(arguments, range),
            "shutil.rmtree" | "os.removedirs" => self.check_rmtree(path, arguments, range),
            _ if LISTS.shell_calls.contains(&path) || path.starts_with("subprocess.") => {
                self.check_command(path, arguments, range);
            }
            _ if path.starts_with("typing.") && self.profile == Profile::Strict => {
                self.check_typing_call(path, arguments)
            }
            _ => self.call_of_method(path, arguments, range),
        }
    }

    /// Checks calls of methods: `uuid.__dict__.get`, `sys.modules.pop`, `x.__getattribute__`.
    fn call_of_method(&mut self, path: &str, arguments: &'a Arguments, range: TextRange) {
        let (of, method) = path.rsplit_once('.').unwrap_or_default();
        match method {
            "get" | "pop" | "setdefault" | "__getitem__" if holds_modules(of) => {
                self.check_computed_item(arguments.args.first(), range);
            }
            "__getattribute__" => {
                let at = usize::from(path.starts_with("builtins."));
                self.check_by_name(method, arguments, range, at);
            }
            _ => {}
        }
    }

    /// Checks `text.format(...)`. A string literal is already checked as a string.
    fn check_format(&mut self, method: &'a ast::ExprAttribute, arguments: &'a Arguments, range: TextRange) {
        let of = method.value.as_ref();
        if of.is_string_literal_expr() {
            return;
        }
        if self.is_own_class(of) {
            self.check_format_method(method.attr.as_str(), of, range);
        } else if method.attr.as_str() == "format_map" || !arguments.is_empty() && !of.is_f_string_expr() {
            self.check_template(of, range, Weight::StrictWarning);
        } else if self.is_computed(of) {
            self.report_unknown_format(range, Weight::StrictError);
        }
    }

    fn check_template(&mut self, text: &'a Expr, range: TextRange, weight: Weight) {
        match self.resolver.of(text) {
            Meaning::Text(text) => self.check_format_string(text, range),
            _ if self.is_computed(text) => self.report_unknown_format(range, Weight::StrictError),
            Meaning::Unknown => self.report_unknown_format(range, weight),
            _ => {}
        }
    }

    pub(super) fn report_unknown_format(&mut self, range: TextRange, weight: Weight) {
        let what = "a format string that is no constant may read any attribute".to_owned();
        self.report(&FORMAT_ATTRIBUTE, weight, range, what);
    }

    /// Checks the argument of `eval`, `exec` and `compile`; the call itself is reported elsewhere.
    fn check_exec(&mut self, name: &str, arguments: &'a Arguments) {
        let Some(code) = arguments.args.first() else {
            return;
        };
        if let Some(by) = self.unpacked_by(code, 0) {
            let what = format!("`{name}` runs what `{by}` unpacks");
            self.report(&OBFUSCATED_CODE, Weight::Grave, code.range(), what);
        } else if !code.is_name_expr() && !code.is_string_literal_expr() && self.is_computed(code) {
            let what = format!("`{name}` runs a text that is put together from pieces");
            self.report(&OBFUSCATED_CODE, Weight::Grave, code.range(), what);
        }
    }

    /// Returns the function that unpacks an argument: `zlib.decompress`, `base64.b64decode`.
    fn unpacked_by(&self, expr: &'a Expr, depth: u32) -> Option<String> {
        if depth >= UNPACKING_DEPTH_MAX {
            return None;
        }
        let spine = spine_of(self.value_of(expr));
        let calls = spine.iter().filter_map(|part| part.as_call_expr());
        calls.into_iter().find_map(|call| {
            let function = self.resolver.of(&call.func);
            match function.as_path().filter(|path| LISTS.unpackers.contains(path)) {
                Some(path) => Some(path.to_owned()),
                None => self.unpacked_by(call.arguments.args.first()?, depth + 1),
            }
        })
    }

    fn check_by_name(&mut self, function: &str, arguments: &'a Arguments, range: TextRange, at: usize) {
        let Meaning::Text(name) = self.resolver.argument(arguments, at) else {
            let what = format!("`{function}` with a name that is no constant reads or sets any attribute");
            self.report(&REFLECTION, Weight::StrictError, range, what);
            if !self.is_strict() {
                self.check_computed_item(arguments.args.get(at), range);
            }
            return;
        };
        let of = match at {
            0 => Meaning::Unknown,
            _ => self.resolver.argument(arguments, 0),
        };
        self.check_attribute_literal(ByName { function, range }, name, &of, arguments.args.get(at));
    }

    fn check_attribute_literal(
        &mut self,
        by: ByName<'_>,
        name: &'a str,
        of: &Meaning<'a>,
        argument: Option<&'a Expr>,
    ) {
        let ByName { function, range } = by;
        let (context, does) = match function {
            "setattr" | "delattr" | "__setattr__" => (ExprContext::Store, "sets"),
            _ => (ExprContext::Load, "reads"),
        };
        // A string literal is already checked as a string.
        let is_reported = self.is_strict()
            && argument.is_some_and(Expr::is_string_literal_expr)
            && attributes::classify_text(name).is_some();
        if let Some(group) = attributes::classify(name, context, Access::Other).filter(|_| !is_reported) {
            let what = format!("`{function}` {does} `{name}`, which {}", group.does);
            self.report(group.rule, group.weight, range, what);
        }
        if context == ExprContext::Store {
            self.check_module_write(of, range);
            self.add_own_name(name);
        }
        match (function, name) {
            ("methodcaller", "format" | "format_map") | ("attrgetter", "format_map") => {
                self.report_unknown_format(range, Weight::StrictError);
            }
            ("attrgetter", "format") => self.report_unknown_format(range, Weight::StrictWarning),
            ("hasattr", _) => {}
            _ => self.private_attribute(name, of, range),
        }
    }

    fn check_attrgetter(&mut self, arguments: &'a Arguments, range: TextRange) {
        let by = ByName {
            function: "attrgetter",
            range,
        };
        for (at, argument) in arguments.args.iter().enumerate() {
            let Meaning::Text(path) = self.resolver.argument(arguments, at) else {
                self.check_by_name(by.function, arguments, range, at);
                continue;
            };
            let written = Some(argument).filter(|_| !path.contains('.'));
            for name in path.split('.') {
                self.check_attribute_literal(by, name, &Meaning::Unknown, written);
                if let Some(module) = dangerous_module(name).filter(|_| self.imports.are_restricted()) {
                    self.report_reached_module(range, module);
                }
            }
        }
    }

    /// Checks a name of an attribute or an item that may lead to a module.
    pub(super) fn check_computed_item(&mut self, name: Option<&'a Expr>, range: TextRange) {
        let Some(name) = name.filter(|name| self.resolver.text(name).is_none()) else {
            return;
        };
        if self.imports.are_restricted() && self.is_computed(name) {
            let name = self.quote(name.range());
            let what = format!("`{name}` is a name that is computed from constants");
            let hint = "Write the name as it is.";
            self.refuse(&profile_rules::MODULE_ATTRIBUTE, range, what, hint);
        }
    }

    fn check_open(&mut self, arguments: &'a Arguments, range: TextRange) {
        let Some(file) = arguments.find_argument_value("file", 0) else {
            return;
        };
        let Some(path) = self.resolver.text(file) else {
            let (weight, name) = match self.is_strict() && self.is_computed(file) {
                true => (Weight::StrictError, "computed from constants"),
                // Under `strict` a file outside of the workspace is refused when it is opened.
                false => (Weight::Usual, "no constant"),
            };
            if !file.is_number_literal_expr() {
                let what = format!("a file is opened by a name that is {name}");
                self.report(&FILE_ACCESS, weight, range, what);
            }
            return;
        };
        let what = format!("`{}` is opened", shown(path));
        match is_outside(path) {
            true => self.report(&FILE_ACCESS, Weight::Suspect, range, what),
            false => {
                let hint = "Nothing: such files are the sandbox's own.";
                let finding = Finding::new(&FILE_ACCESS, range.to_std_range(), what);
                self.findings.push(finding.with_hint(hint));
            }
        }
    }

    /// Returns true if a shell runs the command, and reports it.
    fn shell(&mut self, path: &str, arguments: &'a Arguments) -> bool {
        let Some(keyword) = arguments.find_keyword("shell") else {
            return false;
        };
        let off = match &keyword.value {
            Expr::BooleanLiteral(value) => !value.value,
            Expr::NumberLiteral(number) => number.value == Number::Int(Int::ZERO),
            value => value.is_none_literal_expr(),
        };
        if !off {
            let what = format!("`{path}` gives its command to a shell");
            self.report(&SHELL_TRUE, Weight::Grave, keyword.range(), what);
        }
        !off
    }

    /// Checks the command of `os.system('...')` or `subprocess.run([...])` as shell code.
    fn check_command(&mut self, path: &str, arguments: &'a Arguments, range: TextRange) {
        let by_shell = LISTS.shell_calls.contains(&path) || self.shell(path, arguments);
        let given = given(arguments, &["args", "command", "cmd"]);
        let command = given.and_then(|given| match by_shell {
            true => self.resolver.text(given).map(str::to_owned),
            false => {
                let words = self.elements(given)?.iter().map(|word| self.resolver.text(word));
                Some(shell::quoted(words.collect::<Option<Vec<_>>>()?))
            }
        });
        let Some(command) = command.filter(|command| command.len() <= self.command_bytes) else {
            return;
        };
        self.command_bytes -= command.len();
        for found in shell::findings_of(&command) {
            let range = range.to_std_range();
            self.findings.push(Finding { range, ..found });
        }
    }

    fn check_rmtree(&mut self, path: &str, arguments: &'a Arguments, range: TextRange) {
        let given = given(arguments, &["path", "name"]);
        if let Some(place) = given.and_then(|place| self.resolver.text(place))
            && shell::loses_much(place)
        {
            let what = format!("`{path}` deletes `{}` with everything in it", shown(place));
            let hint = "Delete a directory of the workspace by its relative name.";
            self.refuse(&FILE_DELETION, range, what, hint);
        }
    }

    fn check_yaml_load(&mut self, path: &str, arguments: &'a Arguments, range: TextRange) {
        let loader = arguments.find_argument_value("Loader", 1);
        let loader = loader.map_or(Meaning::Unknown, |loader| self.resolver.of(loader));
        let name = loader.as_path().and_then(|path| path.rsplit('.').next());
        let safe = ["SafeLoader", "CSafeLoader", "BaseLoader", "CBaseLoader"];
        if !name.is_some_and(|name| safe.contains(&name)) {
            let what = format!("`{path}` without `SafeLoader` makes any object that the text names");
            self.report(&UNSAFE_LOAD, Weight::Grave, range, what);
        }
    }

    /// Checks `numpy.load` and `torch.load`, whose files may contain pickles.
    fn check_load(&mut self, path: &str, arguments: &'a Arguments, range: TextRange) {
        let (word, safe_value) = match path {
            "numpy.load" => ("allow_pickle", false),
            _ => ("weights_only", true),
        };
        let is_safe = match arguments.find_keyword(word).map(|keyword| &keyword.value) {
            None => !safe_value,
            Some(Expr::BooleanLiteral(value)) => value.value == safe_value,
            Some(_) => false,
        };
        if !is_safe {
            let what = format!("`{path}` runs code that the data names");
            self.report(&UNSAFE_LOAD, Weight::Grave, range, what);
        }
    }

    /// Checks the fields of `make_dataclass`, which become the source code of a function.
    fn check_make_dataclass(&mut self, arguments: &'a Arguments, range: TextRange) {
        let fields = arguments.find_argument_value("fields", 1);
        let fields = fields.and_then(|fields| self.elements(fields));
        let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
        let is_name = |field: &'a Expr| {
            let first = field.as_tuple_expr().and_then(|tuple| tuple.elts.first());
            let name = self.resolver.text(first.unwrap_or(field));
            name.is_some_and(|name| name.chars().all(is_letter))
        };
        if !fields.is_some_and(|fields| !fields.is_empty() && fields.iter().all(is_name)) {
            let what = "`make_dataclass` makes code of names that are no constants".to_owned();
            self.report(&DYNAMIC_EXECUTION, Weight::Suspect, range, what);
        }
    }
}

/// True for a mapping of the names of a module, or of all modules.
pub(super) fn holds_modules(path: &str) -> bool {
    path.ends_with(".__dict__") || matches!(path, "sys.modules" | "globals()" | "builtins")
}

/// Returns the first argument, by its position or by one of these names.
fn given<'a>(arguments: &'a Arguments, names: &[&str]) -> Option<&'a Expr> {
    let mut given = names.iter().map(|name| arguments.find_argument_value(name, 0));
    given.find_map(|given| given)
}

/// True for a path that is neither in the workspace nor among temporary files.
fn is_outside(path: &str) -> bool {
    let mut parts = path.split(['/', '\\']);
    let places = ["/workspace", "/tmp"].iter();
    let mut within = places.filter_map(|place| path.strip_prefix(place));
    let is_within = within.any(|rest| rest.is_empty() || rest.starts_with('/'));
    parts.any(|part| part == "..") || path.starts_with('/') && !is_within
}
