//! Calls of which the arguments decide: `open('/etc/passwd')`, `getattr(x, name)`, `run(command, shell=True)`,
//! `yaml.load(text)`, `exec(zlib.decompress(blob))`.

use super::{Step, Walk, attributes};
use crate::{
    lists::LISTS,
    python::{module_attributes::is_grave, resolve::Meaning, spine::spine_of, weight::Weight},
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

/// Unpacking of code is looked for so many calls deep.
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
        match step.of {
            Meaning::Builtin(name) => self.call_of_builtin(name, arguments, range),
            Meaning::Path(path) => self.call_of_path(path, arguments, range),
            _ => {}
        }
        let Expr::Attribute(attribute) = step.left else {
            return;
        };
        match attribute.attr.as_str() {
            "__setattr__" => self.owns_texts(arguments.args.iter().take(2)),
            "format" | "format_map" if step.of.as_path() != Some("builtins.str.format") => {
                self.formats(attribute, arguments, range);
            }
            _ => {}
        }
    }

    fn call_of_builtin(&mut self, name: &str, arguments: &'a Arguments, range: TextRange) {
        match name {
            "eval" | "exec" | "compile" => self.executed(name, arguments),
            "getattr" | "setattr" | "delattr" | "hasattr" => {
                self.attribute_by_name(name, arguments, range, 1)
            }
            "open" => self.opened(arguments, range),
            "type" => self.class_made(arguments, range),
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
                self.opened(arguments, range)
            }
            "operator.attrgetter" | "_operator.attrgetter" => self.getter(arguments, range),
            "operator.methodcaller" | "_operator.methodcaller" => {
                self.attribute_by_name("methodcaller", arguments, range, 0);
            }
            "inspect.getattr_static" => self.attribute_by_name("getattr_static", arguments, range, 1),
            "builtins.type.__setattr__" => self.attribute_by_name("__setattr__", arguments, range, 1),
            "builtins.str.format" | "builtins.str.format_map" => match arguments.args.first() {
                Some(text) if !text.is_string_literal_expr() => self.template(text, range, Weight::Suspect),
                _ => {}
            },
            "yaml.load" | "yaml.load_all" => self.yaml(path, arguments, range),
            "numpy.load" | "torch.load" => self.loaded(path, arguments, range),
            "importlib.import_module" | "importlib.__import__" | "operator.itemgetter" => {
                self.item_computed(arguments.args.first(), range);
            }
            "functools.update_wrapper" => self.copied(path, arguments, range, 1),
            "functools.wraps" => self.copied(path, arguments, range, 0),
            "dataclasses.make_dataclass" => self.dataclass(arguments, range),
            "shutil.rmtree" | "os.removedirs" => self.tree_deleted(path, arguments, range),
            _ if LISTS.shell_calls.contains(&path) || path.starts_with("subprocess.") => {
                self.command(path, arguments, range);
            }
            _ if path.starts_with("typing.") && self.profile == Profile::Strict => {
                self.types_given(path, arguments)
            }
            _ => self.call_of_method(path, arguments, range),
        }
    }

    /// `uuid.__dict__.get`, `sys.modules.pop`, `x.__getattribute__`.
    fn call_of_method(&mut self, path: &str, arguments: &'a Arguments, range: TextRange) {
        let (of, method) = path.rsplit_once('.').unwrap_or_default();
        match method {
            "get" | "pop" | "setdefault" | "__getitem__" if holds_modules(of) => {
                self.item_computed(arguments.args.first(), range);
            }
            "__getattribute__" => {
                let at = usize::from(path.starts_with("builtins."));
                self.attribute_by_name(method, arguments, range, at);
            }
            _ => {}
        }
    }

    /// `text.format(...)`. A text that stands there as it is was looked at as a text.
    fn formats(&mut self, attribute: &'a ast::ExprAttribute, arguments: &'a Arguments, range: TextRange) {
        let of = attribute.value.as_ref();
        if of.is_string_literal_expr() {
            return;
        }
        if self.is_own_class(of) {
            self.format_used(attribute.attr.as_str(), of, range);
        } else if attribute.attr.as_str() == "format_map" || !arguments.is_empty() && !of.is_f_string_expr() {
            self.template(of, range, Weight::StrictWarning);
        } else if self.is_computed(of) {
            self.unknown_format(range, Weight::StrictError);
        }
    }

    fn template(&mut self, text: &'a Expr, range: TextRange, weight: Weight) {
        match self.resolver.of(text) {
            Meaning::Text(text) => self.format(text, range),
            _ if self.is_computed(text) => self.unknown_format(range, Weight::StrictError),
            Meaning::Unknown => self.unknown_format(range, weight),
            _ => {}
        }
    }

    pub(super) fn unknown_format(&mut self, range: TextRange, weight: Weight) {
        let what = "a format string that is no constant may read any attribute".to_owned();
        self.say(&FORMAT_ATTRIBUTE, weight, range, what);
    }

    /// `eval`, `exec` and `compile` were told; here is told what of.
    fn executed(&mut self, name: &str, arguments: &'a Arguments) {
        let Some(code) = arguments.args.first() else {
            return;
        };
        if let Some(by) = self.unpacked_by(code, 0) {
            let what = format!("`{name}` runs what `{by}` unpacks");
            self.say(&OBFUSCATED_CODE, Weight::Grave, code.range(), what);
        } else if !code.is_name_expr() && !code.is_string_literal_expr() && self.is_computed(code) {
            let what = format!("`{name}` runs a text that is put together from pieces");
            self.say(&OBFUSCATED_CODE, Weight::Grave, code.range(), what);
        }
    }

    /// What unpacks an argument: `zlib.decompress`, `base64.b64decode`.
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

    fn attribute_by_name(&mut self, function: &str, arguments: &'a Arguments, range: TextRange, at: usize) {
        let Meaning::Text(name) = self.resolver.argument(arguments, at) else {
            let what = format!("`{function}` with a name that is no constant reads or sets any attribute");
            self.say(&REFLECTION, Weight::StrictError, range, what);
            if !self.is_strict() {
                self.item_computed(arguments.args.get(at), range);
            }
            return;
        };
        let of = match at {
            0 => Meaning::Unknown,
            _ => self.resolver.argument(arguments, 0),
        };
        self.attribute_text(ByName { function, range }, name, &of, arguments.args.get(at));
    }

    fn attribute_text(
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
        // A text that stands there as it is was looked at as a text.
        let is_told = self.is_strict()
            && argument.is_some_and(Expr::is_string_literal_expr)
            && attributes::judge_text(name).is_some();
        if let Some(said) = attributes::judge(name, context, attributes::Of::Anything).filter(|_| !is_told) {
            let what = format!("`{function}` {does} `{name}`, which {}", said.does);
            self.say(said.rule, said.weight, range, what);
        }
        if context == ExprContext::Store {
            self.name_of_module_changed(of, range);
            self.owns(name);
        }
        match (function, name) {
            ("methodcaller", "format" | "format_map") | ("attrgetter", "format_map") => {
                self.unknown_format(range, Weight::StrictError);
            }
            ("attrgetter", "format") => self.unknown_format(range, Weight::StrictWarning),
            ("hasattr", _) => {}
            _ => self.private_attribute(name, of, range),
        }
    }

    /// `operator.attrgetter('a.b', 'c')`.
    fn getter(&mut self, arguments: &'a Arguments, range: TextRange) {
        let by = ByName {
            function: "attrgetter",
            range,
        };
        for (at, argument) in arguments.args.iter().enumerate() {
            let Meaning::Text(way) = self.resolver.argument(arguments, at) else {
                self.attribute_by_name(by.function, arguments, range, at);
                continue;
            };
            let written = Some(argument).filter(|_| !way.contains('.'));
            for name in way.split('.') {
                self.attribute_text(by, name, &Meaning::Unknown, written);
                if let Some(module) = is_grave(name).filter(|_| self.imports.are_restricted()) {
                    self.module_reached(range, module);
                }
            }
        }
    }

    /// The name of an attribute or an item, where a module may be reached by it.
    pub(super) fn item_computed(&mut self, name: Option<&'a Expr>, range: TextRange) {
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

    fn opened(&mut self, arguments: &'a Arguments, range: TextRange) {
        let Some(file) = arguments.find_argument_value("file", 0) else {
            return;
        };
        let Some(path) = self.resolver.text(file) else {
            let (weight, name) = match self.is_strict() && self.is_computed(file) {
                true => (Weight::StrictError, "computed from constants"),
                // Under `strict` one outside of the workspace is refused when it is opened.
                false => (Weight::Usual, "no constant"),
            };
            if !file.is_number_literal_expr() {
                let what = format!("a file is opened by a name that is {name}");
                self.say(&FILE_ACCESS, weight, range, what);
            }
            return;
        };
        let what = format!("`{}` is opened", shown(path));
        match is_outside(path) {
            true => self.say(&FILE_ACCESS, Weight::Suspect, range, what),
            false => {
                let hint = "Nothing: such files are the sandbox's own.";
                let finding = Finding::new(&FILE_ACCESS, range.to_std_range(), what);
                self.told.push(finding.with_hint(hint));
            }
        }
    }

    /// Whether a shell reads the command.
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
            self.say(&SHELL_TRUE, Weight::Grave, keyword.range(), what);
        }
        !off
    }

    /// `os.system('...')`, `subprocess.run([...])`: read as a shell reads it.
    fn command(&mut self, path: &str, arguments: &'a Arguments, range: TextRange) {
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
            self.told.push(Finding { range, ..found });
        }
    }

    /// `shutil.rmtree('/')`.
    fn tree_deleted(&mut self, path: &str, arguments: &'a Arguments, range: TextRange) {
        let given = given(arguments, &["path", "name"]);
        if let Some(place) = given.and_then(|place| self.resolver.text(place))
            && shell::loses_much(place)
        {
            let what = format!("`{path}` deletes `{}` with everything in it", shown(place));
            let hint = "Delete a directory of the workspace by its relative name.";
            self.refuse(&FILE_DELETION, range, what, hint);
        }
    }

    fn yaml(&mut self, path: &str, arguments: &'a Arguments, range: TextRange) {
        let loader = arguments.find_argument_value("Loader", 1);
        let loader = loader.map_or(Meaning::Unknown, |loader| self.resolver.of(loader));
        let name = loader.as_path().and_then(|path| path.rsplit('.').next());
        let safe = ["SafeLoader", "CSafeLoader", "BaseLoader", "CBaseLoader"];
        if !name.is_some_and(|name| safe.contains(&name)) {
            let what = format!("`{path}` without `SafeLoader` makes any object that the text names");
            self.say(&UNSAFE_LOAD, Weight::Grave, range, what);
        }
    }

    /// Pickles hide in the files of `numpy` and `torch`.
    fn loaded(&mut self, path: &str, arguments: &'a Arguments, range: TextRange) {
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
            self.say(&UNSAFE_LOAD, Weight::Grave, range, what);
        }
    }

    /// The fields of `make_dataclass` become the text of a function.
    fn dataclass(&mut self, arguments: &'a Arguments, range: TextRange) {
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
            self.say(&DYNAMIC_EXECUTION, Weight::Suspect, range, what);
        }
    }
}

/// The names of a module, or all modules.
pub(super) fn holds_modules(path: &str) -> bool {
    path.ends_with(".__dict__") || matches!(path, "sys.modules" | "globals()" | "builtins")
}

/// The first argument, by its place or by one of these names.
fn given<'a>(arguments: &'a Arguments, names: &[&str]) -> Option<&'a Expr> {
    let mut given = names.iter().map(|name| arguments.find_argument_value(name, 0));
    given.find_map(|given| given)
}

/// Neither in the workspace nor among temporary files.
fn is_outside(path: &str) -> bool {
    let mut parts = path.split(['/', '\\']);
    let places = ["/workspace", "/tmp"].iter();
    let mut within = places.filter_map(|place| path.strip_prefix(place));
    let is_within = within.any(|rest| rest.is_empty() || rest.starts_with('/'));
    parts.any(|part| part == "..") || path.starts_with('/') && !is_within
}
