//! What a call gives, where that can be known: a module, a decoded text, a text that is put together.

use super::{
    known::{Budget, Knowledge, Known, LIST_MAX, TEXT_BYTES_MAX, push},
    syntax::{Field, Id, Kind, Program},
    text,
};
use crate::{encoding, unknown::UNKNOWN};
use std::rc::Rc;

impl Knowledge<'_, '_> {
    pub(super) fn call(&self, id: Id, budget: &mut Budget) -> Known {
        let program = self.program;
        let Some(callee) = program.child(id, Field::Function) else {
            return Known::Unknown;
        };
        let arguments = program.arguments(id);
        let bare = program.bare(callee);
        if let Kind::Member | Kind::Subscript = program.kind(bare)
            && let Some(known) = self.method(bare, &arguments, budget)
        {
            return known;
        }
        let callee = self.expression(callee, budget);
        let first = |budget: &mut Budget| {
            arguments
                .first()
                .map_or(Known::Unknown, |id| self.expression(*id, budget))
        };
        match &callee {
            Known::Function(function) if returns_this(program, *function) => Known::of_path("globalThis"),
            Known::Path(path) => match path.as_ref() {
                "require" | "import" | "process.getBuiltinModule" | "node:module._load" => {
                    match first(budget) {
                        Known::Text(name) if !name.contains(UNKNOWN) => self.module(&name),
                        _ => Known::Unknown,
                    }
                }
                "node:module.createRequire" | "node:module.createRequireFromPath" => {
                    Known::of_path("require")
                }
                "node:util.promisify" | "node:util.callbackify" | "Object.freeze" | "Promise.resolve" => {
                    first(budget)
                }
                "Object.getPrototypeOf" | "Reflect.getPrototypeOf" => match first(budget) {
                    Known::Function(_) => Known::of_path("Function.prototype"),
                    _ => Known::Unknown,
                },
                "Reflect.get" => {
                    let object = first(budget);
                    let name = arguments
                        .get(1)
                        .map_or(Known::Unknown, |id| self.expression(*id, budget));
                    match name.constant() {
                        Some(name) => self.member_of(&object, name, budget),
                        None => Known::Unknown,
                    }
                }
                "node:path.join" | "node:path.resolve" | "node:path/posix.join" => {
                    self.path_of(&arguments, budget)
                }
                "node:os.homedir" => Known::of_text("~"),
                "node:os.tmpdir" => Known::of_text("/tmp"),
                "atob" => first(budget)
                    .constant()
                    .and_then(encoding::base64)
                    .map_or(Known::Unknown, |text| Known::of_text(&text)),
                "decodeURIComponent" | "decodeURI" | "unescape" => {
                    first(budget).constant().map_or(Known::Unknown, |text| {
                        Known::of_text(&text::percent_decoded(text))
                    })
                }
                "String" => first(budget),
                "String.fromCharCode" | "String.fromCodePoint" => self.text_of_numbers(&arguments, budget),
                "Buffer.from" | "node:buffer.Buffer.from" => self.decoded(&arguments, budget),
                _ => Known::Unknown,
            },
            _ => Known::Unknown,
        }
    }

    pub(super) fn path_of(&self, arguments: &[Id], budget: &mut Budget) -> Known {
        let mut told = String::new();
        for (index, argument) in arguments.iter().enumerate() {
            if index > 0 && !told.ends_with('/') {
                told.push('/');
            }
            push(&mut told, &self.expression(*argument, budget));
        }
        Known::of_text(&told)
    }

    pub(super) fn text_of_numbers(&self, arguments: &[Id], budget: &mut Budget) -> Known {
        let mut told = String::new();
        for argument in arguments.iter().take(LIST_MAX) {
            let argument = match self.program.kind(*argument) {
                Kind::Spread => self.program.children(*argument).next().unwrap_or(*argument),
                _ => *argument,
            };
            match self.expression(argument, budget) {
                Known::Number(number) => told.extend(char::from_u32(number as u32)),
                Known::List(all) => {
                    for one in all.iter() {
                        match one {
                            Known::Number(number) => told.extend(char::from_u32(*number as u32)),
                            _ => return Known::Unknown,
                        }
                    }
                }
                _ => return Known::Unknown,
            }
        }
        Known::of_text(&told)
    }

    pub(super) fn decoded(&self, arguments: &[Id], budget: &mut Budget) -> Known {
        let known: Vec<Known> = arguments
            .iter()
            .take(2)
            .map(|id| self.expression(*id, budget))
            .collect();
        let told = match (known.first(), known.get(1).and_then(Known::constant)) {
            (Some(Known::List(_)), _) => return self.text_of_numbers(&arguments[..1], budget),
            (Some(known), encoding) => match (known.constant(), encoding) {
                (Some(text), Some("base64" | "base64url")) => encoding::base64(text),
                (Some(text), Some("hex")) => encoding::hexadecimal(text),
                (Some(text), _) => Some(text.to_owned()),
                _ => None,
            },
            _ => None,
        };
        told.map_or(Known::Unknown, |text| Known::of_text(&text))
    }

    /// Methods of texts and lists, and `bind`; none: it is something else.
    pub(super) fn method(&self, callee: Id, arguments: &[Id], budget: &mut Budget) -> Option<Known> {
        let program = self.program;
        let name = match program.child(callee, Field::Property) {
            Some(property) => self.property_name(property, budget)?,
            None => match self.part(callee, Field::Index, budget) {
                Known::Text(name) => name,
                _ => return None,
            },
        };
        let changes = [
            "toString",
            "join",
            "concat",
            "split",
            "reverse",
            "slice",
            "substring",
            "substr",
            "trim",
            "toLowerCase",
            "toUpperCase",
            "replace",
            "replaceAll",
            "charAt",
            "repeat",
            "bind",
            "map",
        ];
        if !changes.contains(&name.as_ref()) {
            return None;
        }
        let object = self.part(callee, Field::Object, budget);
        let texts: Vec<Known> = arguments
            .iter()
            .take(8)
            .map(|id| self.expression(*id, budget))
            .collect();
        match (&object, name.as_ref()) {
            (Known::Path(path), "bind") => Some(Known::of_path(path)),
            (Known::Function(id), "bind") => Some(Known::Function(*id)),
            (Known::Text(text), method) => Some(changed_text(text, method, &texts)),
            (Known::List(all), method) => Some(changed_list(all, method, &texts)),
            _ => None,
        }
    }
}

fn changed_text(text: &str, method: &str, arguments: &[Known]) -> Known {
    let first = arguments.first();
    let number = |known: Option<&Known>| match known {
        Some(Known::Number(number)) if *number >= 0.0 => Some(*number as usize),
        _ => None,
    };
    let told = match method {
        "toString" => text.to_owned(),
        "trim" => text.trim().to_owned(),
        "toLowerCase" => text.to_lowercase(),
        "toUpperCase" => text.to_uppercase(),
        "concat" => {
            let mut told = text.to_owned();
            arguments.iter().for_each(|argument| push(&mut told, argument));
            told
        }
        "split" => {
            let Some(separator) = first.and_then(Known::constant) else {
                return Known::Unknown;
            };
            let part = |part: &str| Known::of_text(part);
            return Known::List(match separator {
                "" => text
                    .chars()
                    .take(LIST_MAX)
                    .map(|letter| Known::of_text(letter.encode_utf8(&mut [0; 4])))
                    .collect(),
                separator => text.split(separator).take(LIST_MAX).map(part).collect(),
            });
        }
        "replace" | "replaceAll" => match (
            first.and_then(Known::constant),
            arguments.get(1).and_then(Known::constant),
        ) {
            (Some(this), Some(that)) if method == "replace" => text.replacen(this, that, 1),
            (Some(this), Some(that)) if !this.is_empty() => text.replace(this, that),
            _ => return Known::Unknown,
        },
        "charAt" => match number(first) {
            Some(at) => text.chars().skip(at).take(1).collect(),
            None => return Known::Unknown,
        },
        "slice" | "substring" => match (number(first), arguments.len(), number(arguments.get(1))) {
            (Some(from), 1, _) => text.chars().skip(from).collect(),
            (Some(from), 2, Some(to)) => text.chars().take(to).skip(from).collect(),
            _ => return Known::Unknown,
        },
        "substr" => match (number(first), number(arguments.get(1))) {
            (Some(from), Some(length)) => text.chars().skip(from).take(length).collect(),
            _ => return Known::Unknown,
        },
        "repeat" => match number(first) {
            Some(times) if times * text.len() <= TEXT_BYTES_MAX => text.repeat(times),
            _ => return Known::Unknown,
        },
        _ => return Known::Unknown,
    };
    Known::of_text(&told)
}

fn changed_list(all: &Rc<[Known]>, method: &str, arguments: &[Known]) -> Known {
    match method {
        "reverse" => Known::List(all.iter().rev().cloned().collect()),
        "join" => {
            let between = match arguments.first() {
                None => ",",
                Some(known) => match known.constant() {
                    Some(text) => text,
                    None => return Known::Unknown,
                },
            };
            let mut told = String::new();
            for (index, one) in all.iter().enumerate() {
                told.push_str(if index > 0 { between } else { "" });
                push(&mut told, one);
                if told.len() > TEXT_BYTES_MAX {
                    return Known::Unknown;
                }
            }
            Known::of_text(&told)
        }
        // `[101, 118].map(String.fromCharCode)`
        "map" if arguments.first().and_then(Known::path) == Some("String.fromCharCode") => {
            let letter = |known: &Known| match known {
                Known::Number(number) => {
                    char::from_u32(*number as u32).map(|c| Known::of_text(c.encode_utf8(&mut [0; 4])))
                }
                _ => None,
            };
            let letters: Option<Vec<Known>> = all.iter().map(letter).collect();
            letters.map_or(Known::Unknown, |letters| Known::List(letters.into()))
        }
        _ => Known::Unknown,
    }
}

/// `(function () { return this })()`
fn returns_this(program: &Program<'_>, function: Id) -> bool {
    let Some(body) = program.child(function, Field::Body) else {
        return false;
    };
    let mut statements = program
        .children(body)
        .filter(|id| !program.text(*id).starts_with(['\'', '"']));
    let first = statements.next();
    first.is_some_and(|id| {
        program.kind(id) == Kind::Return
            && program
                .children(id)
                .next()
                .is_some_and(|value| program.kind(value) == Kind::This)
    })
}
