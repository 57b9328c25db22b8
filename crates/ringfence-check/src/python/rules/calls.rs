//! Calls of which the arguments decide: `open('/etc/passwd')`, `getattr(x, name)`, `run(command, shell=True)`,
//! `yaml.load(text)`, `exec(zlib.decompress(blob))`.

use super::{
    DYNAMIC_EXECUTION, FILE_ACCESS, FORMAT_ATTRIBUTE, OBFUSCATED_CODE, PROFILE_IMPORT,
    PROFILE_MODULE_ATTRIBUTE, REFLECTION, SHELL_TRUE, UNSAFE_LOAD, Weight, attributes,
    commands::CommandReader,
    texts,
    walk::{Before, Walk},
};
use crate::{
    python::{meaning::Meaning, spine::spine_of},
    rule::Finding,
};
use ringfence_types::{Profile, Severity};
use ruff_python_ast::{self as ast, Arguments, Expr, Number};
use ruff_text_size::{Ranged, TextRange};

/// Unpacking of code is looked for so many calls deep.
const UNPACKING_DEPTH_MAX: u32 = 8;

impl<'a> Walk<'a, '_, '_> {
    pub(super) fn call(&mut self, call: &'a ast::ExprCall, before: Before<'a, '_>) {
        let arguments = &call.arguments;
        match before.meaning {
            Meaning::Builtin(name) => self.call_of_builtin(name, call),
            Meaning::Path(path) => {
                self.call_of_path(path, call);
                self.format_computed(before.expr, call.range());
            }
            // A format string that stands there as it is was looked at as a text.
            Meaning::Method(text, "format" | "format_map") if !is_written(before.expr) => {
                self.format(text, call.range());
            }
            Meaning::Getter(_) | Meaning::Item(_) | Meaning::Caller(_) | Meaning::Unknown => {
                self.call_of_unknown(before.expr, arguments, call.range());
            }
            _ => {}
        }
    }

    fn call_of_builtin(&mut self, name: &str, call: &'a ast::ExprCall) {
        let arguments = &call.arguments;
        match name {
            "eval" | "exec" | "compile" => self.executed(name, arguments),
            "getattr" | "setattr" | "delattr" | "hasattr" => {
                self.attribute_by_name(name, arguments, call.range(), 1)
            }
            "open" => self.opened(arguments, call.range()),
            "__import__" => self.imported(arguments, call.range()),
            _ => {}
        }
    }

    fn call_of_path(&mut self, path: &str, call: &'a ast::ExprCall) {
        let (arguments, range) = (&call.arguments, call.range());
        match path {
            "io.open" | "_io.open" | "codecs.open" | "io.FileIO" | "_io.FileIO" => {
                self.opened(arguments, range)
            }
            "operator.attrgetter" | "_operator.attrgetter" => self.getter(arguments, range),
            "operator.methodcaller" | "_operator.methodcaller" => {
                self.attribute_by_name("methodcaller", arguments, range, 0);
            }
            "inspect.getattr_static" => self.attribute_by_name("getattr_static", arguments, range, 1),
            "builtins.str.format" | "builtins.str.format_map" => match self.meanings.argument(arguments, 0) {
                Meaning::Text(text) => {
                    if !arguments.args.first().is_some_and(Expr::is_string_literal_expr) {
                        self.format(&text, range);
                    }
                }
                _ => self.unknown_format(range, Weight::SUSPECT),
            },
            "yaml.load" | "yaml.load_all" => self.yaml(path, arguments, range),
            "numpy.load" | "torch.load" => self.loaded(path, arguments, range),
            "importlib.import_module" | "importlib.__import__" => {
                if let Some(name) = arguments.args.first() {
                    self.item_computed(name, range);
                }
            }
            "functools.update_wrapper" => self.copied(path, arguments, range, 1),
            "functools.wraps" => self.copied(path, arguments, range, 0),
            "dataclasses.make_dataclass" => self.dataclass(arguments, range),
            "os.system"
            | "os.popen"
            | "posix.system"
            | "subprocess.getoutput"
            | "subprocess.getstatusoutput"
            | "asyncio.create_subprocess_shell"
            | "asyncio.subprocess.create_subprocess_shell" => {
                self.command(arguments, range, CommandReader::Shell)
            }
            "shutil.rmtree" | "os.removedirs" => self.tree_deleted(path, arguments, range),
            _ if path.starts_with("subprocess.") => {
                let reader = self.shell(path, arguments);
                self.command(arguments, range, reader);
            }
            _ if path.starts_with("typing.") => self.types_given(path, arguments),
            _ if is_item_of_a_module(path) => {
                if let Some(key) = arguments.args.first() {
                    self.item_computed(key, range);
                }
            }
            "builtins.type.__setattr__" => self.attribute_by_name("__setattr__", arguments, range, 1),
            _ if path.ends_with(".__getattribute__") => {
                let at = usize::from(path.starts_with("builtins."));
                self.attribute_by_name("__getattribute__", arguments, range, at);
            }
            _ => {}
        }
    }

    fn call_of_unknown(&mut self, function: &'a Expr, arguments: &'a Arguments, range: TextRange) {
        let Expr::Attribute(attribute) = function else {
            return;
        };
        if self.is_class_of_texts(&attribute.value)
            && matches!(attribute.attr.as_str(), "format" | "format_map")
        {
            self.unknown_format(range, Weight::STRICT_ERROR);
            return;
        }
        self.format_computed(function, range);
        match attribute.attr.as_str() {
            "format_map" => self.unknown_format(range, Weight::STRICT_WARNING),
            "format" if !arguments.is_empty() && !is_written(function) => {
                self.unknown_format(range, Weight::STRICT_WARNING);
            }
            _ => {}
        }
    }

    /// Where imports are restricted, a module is named by a constant.
    fn imported(&mut self, arguments: &'a Arguments, range: TextRange) {
        let name = arguments
            .find_argument_value("name", 0)
            .map(|name| self.meanings.of(name));
        if self.imports.are_restricted() && !matches!(name, Some(Meaning::Text(_))) {
            let what = "`__import__` is given a name that is not a constant".to_owned();
            self.add(Finding {
                range: range.to_std_range(),
                rule: &PROFILE_IMPORT,
                severity: Severity::Error,
                what,
                hint: Some("Name the module in an `import` statement.".to_owned()),
            });
        }
    }

    /// `'{0.__%s__}' % 'class'` that formats.
    fn format_computed(&mut self, function: &'a Expr, range: TextRange) {
        if let Expr::Attribute(attribute) = function
            && matches!(attribute.attr.as_str(), "format" | "format_map")
            && !attribute.value.is_string_literal_expr()
            && self.is_computed(&attribute.value)
        {
            self.unknown_format(range, Weight::STRICT_ERROR);
        }
    }

    /// `eval`, `exec` and `compile` were told; here is told what of.
    fn executed(&mut self, name: &str, arguments: &'a Arguments) {
        let Some(code) = arguments.args.first() else {
            return;
        };
        if let Some(by) = self.unpacked_by(code, 0) {
            let what = format!("`{name}` runs what `{by}` unpacks");
            self.say(&OBFUSCATED_CODE, Weight::GRAVE, code.range(), what);
        } else if matches!(self.meanings.of(code), Meaning::Text(_)) && !code.is_string_literal_expr() {
            let what = format!("`{name}` runs a text that is put together from pieces");
            self.say(&OBFUSCATED_CODE, Weight::GRAVE, code.range(), what);
        }
    }

    /// What unpacks an argument: `zlib.decompress`, `base64.b64decode`.
    fn unpacked_by(&self, expr: &'a Expr, depth: u32) -> Option<String> {
        if depth >= UNPACKING_DEPTH_MAX {
            return None;
        }
        let expr = self.value_of(expr);
        for part in spine_of(expr).iter().copied() {
            if let Expr::Call(call) = part {
                let function = self.meanings.of(&call.func);
                if let Some(path) = function.as_path().filter(|path| unpacks(path)) {
                    return Some(path.to_owned());
                }
                let inner = call.arguments.args.first();
                if let Some(found) = inner.and_then(|inner| self.unpacked_by(inner, depth + 1)) {
                    return Some(found);
                }
            }
        }
        None
    }

    /// `getattr(x, 'name')`.
    fn attribute_by_name(&mut self, function: &str, arguments: &'a Arguments, range: TextRange, at: usize) {
        match self.meanings.argument(arguments, at) {
            Meaning::Text(name) => {
                let of = match at {
                    0 => Meaning::Unknown,
                    _ => self.meanings.argument(arguments, 0),
                };
                self.attribute_text(ByName { function, range }, &name, &of, arguments.args.get(at));
            }
            _ => {
                let what =
                    format!("`{function}` with a name that is no constant reads or sets any attribute");
                self.say(&REFLECTION, Weight::STRICT_ERROR, range, what);
                if let Some(name) = arguments.args.get(at) {
                    self.name_computed(name, range);
                }
            }
        }
    }

    fn attribute_text(&mut self, by: ByName<'_>, name: &str, of: &Meaning<'a>, argument: Option<&'a Expr>) {
        let ByName { function, range } = by;
        // A text that stands there as it is was looked at as a text.
        let written =
            argument.is_some_and(Expr::is_string_literal_expr) && attributes::judge_text(name).is_some();
        let (context, does) = match function {
            "setattr" | "delattr" | "__setattr__" => (ast::ExprContext::Store, "sets"),
            _ => (ast::ExprContext::Load, "reads"),
        };
        if let Some(said) = attributes::judge(name, context, attributes::Of::Anything) {
            let weight = if written && self.profile == Profile::Strict {
                Weight::of(None, None)
            } else {
                said.weight
            };
            self.say(
                said.rule,
                weight,
                range,
                format!("`{function}` {does} `{name}`, which {}", said.does),
            );
        }
        if context == ast::ExprContext::Store {
            self.name_of_module_changed(of, range);
        }
        self.annotations_reached(name, range);
        self.format_by_name(function, name, range);
        if function != "hasattr" {
            self.private_attribute(name, of, range);
        }
    }

    pub(super) fn item_computed(&mut self, key: &'a Expr, range: TextRange) {
        if !matches!(self.meanings.of(key), Meaning::Text(_)) {
            self.name_computed(key, range);
        }
    }

    /// Of an attribute or an item, where a module may be reached by it.
    pub(super) fn name_computed(&mut self, name: &'a Expr, range: TextRange) {
        if self.imports.are_restricted() && self.is_computed(name) {
            self.add(Finding {
                range: range.to_std_range(),
                rule: &PROFILE_MODULE_ATTRIBUTE,
                severity: Severity::Error,
                what: format!(
                    "`{}` is a name that is computed from constants",
                    self.quote(name.range())
                ),
                hint: Some("Write the name as it is.".to_owned()),
            });
        }
    }

    /// `operator.attrgetter('a.b', 'c')`.
    fn getter(&mut self, arguments: &'a Arguments, range: TextRange) {
        for (at, argument) in arguments.args.iter().enumerate() {
            match self.meanings.argument(arguments, at) {
                Meaning::Text(way) => {
                    let written = Some(argument).filter(|_| !way.contains('.'));
                    for name in way.split('.') {
                        let by = ByName {
                            function: "attrgetter",
                            range,
                        };
                        self.attribute_text(by, name, &Meaning::Unknown, written);
                    }
                }
                _ => self.attribute_by_name("attrgetter", arguments, range, at),
            }
        }
    }

    fn opened(&mut self, arguments: &'a Arguments, range: TextRange) {
        let Some(file) = arguments.find_argument_value("file", 0) else {
            return;
        };
        let path = match self.meanings.of(file) {
            Meaning::Text(path) => path,
            _ if file.is_number_literal_expr() => return,
            _ if self.strict.own.is_some() && self.is_computed(file) => {
                let what = "a file is opened by a name that is computed from constants".to_owned();
                return self.say(&FILE_ACCESS, Weight::STRICT_ERROR, range, what);
            }
            // Under `strict` one outside of the workspace is refused when it is opened.
            _ if self.strict.own.is_some() => return,
            _ => {
                let what = "a file is opened by a name that is no constant".to_owned();
                self.say(&FILE_ACCESS, Weight::NOTED, range, what);
                return;
            }
        };
        let shown: String = path.chars().take(80).collect();
        let what = format!("`{shown}` is opened");
        if is_outside(&path) {
            self.say(&FILE_ACCESS, Weight::SUSPECT, range, what);
            return;
        }
        self.add(Finding {
            range: range.to_std_range(),
            rule: &FILE_ACCESS,
            severity: Severity::Info,
            what,
            hint: Some("Nothing: such files are the sandbox's own.".to_owned()),
        });
    }

    /// Who reads the command.
    fn shell(&mut self, path: &str, arguments: &'a Arguments) -> CommandReader {
        let Some(keyword) = arguments.find_keyword("shell") else {
            return CommandReader::Kernel;
        };
        let off = match &keyword.value {
            Expr::BooleanLiteral(value) => !value.value,
            Expr::NoneLiteral(_) => true,
            Expr::NumberLiteral(number) => {
                matches!(&number.value, Number::Int(value) if value.as_u8() == Some(0))
            }
            _ => false,
        };
        if off {
            return CommandReader::Kernel;
        }
        let what = format!("`{path}` gives its command to a shell");
        self.say(&SHELL_TRUE, Weight::GRAVE, keyword.range(), what);
        CommandReader::Shell
    }

    fn yaml(&mut self, path: &str, arguments: &'a Arguments, range: TextRange) {
        let loader = arguments
            .find_argument_value("Loader", 1)
            .map(|loader| self.meanings.of(loader));
        let safe = ["SafeLoader", "CSafeLoader", "BaseLoader", "CBaseLoader"];
        let name = loader
            .as_ref()
            .and_then(Meaning::as_path)
            .and_then(|path| path.rsplit('.').next());
        if !name.is_some_and(|name| safe.contains(&name)) {
            let what = format!("`{path}` without `SafeLoader` makes any object that the text names");
            self.say(&UNSAFE_LOAD, Weight::GRAVE, range, what);
        }
    }

    /// Pickles hide in the files of `numpy` and `torch`.
    fn loaded(&mut self, path: &str, arguments: &'a Arguments, range: TextRange) {
        let keyword = |name: &str| arguments.find_keyword(name).map(|keyword| &keyword.value);
        let is = |value: Option<&Expr>, expect: bool| matches!(value, Some(Expr::BooleanLiteral(value)) if value.value == expect);
        let safe = match path {
            "numpy.load" => match keyword("allow_pickle") {
                None => true,
                value => is(value, false),
            },
            _ => is(keyword("weights_only"), true),
        };
        if !safe {
            self.say(
                &UNSAFE_LOAD,
                Weight::GRAVE,
                range,
                format!("`{path}` runs code that the data names"),
            );
        }
    }

    /// The fields of `make_dataclass` become the text of a function.
    fn dataclass(&mut self, arguments: &'a Arguments, range: TextRange) {
        let fields: Vec<&'a Expr> = match arguments.find_argument_value("fields", 1) {
            Some(Expr::List(list)) => list.elts.iter().collect(),
            Some(Expr::Tuple(tuple)) => tuple.elts.iter().collect(),
            _ => Vec::new(),
        };
        let is_name = |field: &&'a Expr| {
            let name = match field {
                Expr::Tuple(tuple) => tuple.elts.first().unwrap_or(field),
                name => name,
            };
            matches!(self.meanings.of(name), Meaning::Text(name) if name.chars().all(|c| c.is_alphanumeric() || c == '_'))
        };
        if fields.is_empty() || !fields.iter().all(is_name) {
            let what = "`make_dataclass` makes code of names that are no constants".to_owned();
            self.say(&DYNAMIC_EXECUTION, Weight::SUSPECT, range, what);
        }
    }

    pub(super) fn format(&mut self, text: &str, range: TextRange) {
        if let Some(name) = texts::format_attribute(text) {
            let what = format!("a format string reads the attribute `{name}`");
            self.say(&FORMAT_ATTRIBUTE, Weight::GRAVE, range, what);
        }
    }

    pub(super) fn unknown_format(&mut self, range: TextRange, weight: Weight) {
        let what = "a format string that is no constant may read any attribute".to_owned();
        self.say(&FORMAT_ATTRIBUTE, weight, range, what);
    }
}

/// A call of a function that takes the name of an attribute.
#[derive(Clone, Copy)]
struct ByName<'f> {
    function: &'f str,
    range: TextRange,
}

/// `uuid.__dict__.get`, `sys.modules.pop`, `operator.itemgetter`.
fn is_item_of_a_module(path: &str) -> bool {
    let (of, method) = path.rsplit_once('.').unwrap_or_default();
    let takes_key = matches!(method, "get" | "pop" | "setdefault" | "__getitem__");
    takes_key && holds_modules(of) || path == "operator.itemgetter"
}

/// The names of a module, or all modules.
pub(super) fn holds_modules(path: &str) -> bool {
    path.ends_with(".__dict__") || matches!(path, "sys.modules" | "globals()" | "builtins")
}

/// Is it a method of a text that stands there as it is.
fn is_written(function: &Expr) -> bool {
    matches!(function, Expr::Attribute(attribute) if is_text_literal(&attribute.value))
}

pub(super) fn is_text_literal(expr: &Expr) -> bool {
    expr.is_string_literal_expr() || expr.is_f_string_expr()
}

/// They make bytes or texts of what is packed.
#[rustfmt::skip]
const UNPACKERS: &[&str] = &[
    "base64.b64decode", "base64.b32decode", "base64.b16decode", "base64.b85decode", "base64.a85decode",
    "base64.urlsafe_b64decode", "base64.standard_b64decode", "base64.decodebytes", "binascii.unhexlify",
    "binascii.a2b_hex", "binascii.a2b_base64", "builtins.bytes.fromhex", "builtins.bytearray.fromhex",
    "codecs.decode", "codecs.encode", "zlib.decompress", "gzip.decompress", "bz2.decompress", "lzma.decompress",
    "marshal.loads", "pickle.loads",
];

fn unpacks(path: &str) -> bool {
    UNPACKERS.contains(&path)
}

/// Neither in the workspace nor among temporary files.
fn is_outside(path: &str) -> bool {
    let climbs = path.split(['/', '\\']).any(|part| part == "..");
    let within = |place: &str| {
        path.strip_prefix(place)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    climbs || (path.starts_with('/') && !within("/workspace") && !within("/tmp"))
}
