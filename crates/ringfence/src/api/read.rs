//! Parsing of a client's arguments into a request. Every refusal names the argument as the caller wrote it and says
//! what was expected. None repeats a value, which may be a secret, except the start of an unknown word of a closed set.

use super::Operation;
use crate::settings::Namespaces;
use ringfence_types::{ErrorCode, Namespace, RequestError, nearest::suggestion};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, IntoDeserializer, SeqAccess, Visitor, value::StrDeserializer},
};
use serde_json::{Map, Value};
use std::{borrow::Cow, fmt, marker::PhantomData, str::FromStr};

pub(crate) type Object = Map<String, Value>;

const SHOWN_CHARS_MAX: usize = 64;
const SEE_SCHEMA: &str = "See the tool's input schema.";

pub(crate) fn invalid(message: impl Into<String>, hint: impl Into<String>) -> RequestError {
    RequestError::invalid(message, hint)
}

/// Reads the request of an operation and its namespace. Where the operator fixes that, naming another is refused.
pub(crate) fn read<T: Operation>(
    mut arguments: Object,
    namespaces: &Namespaces,
) -> Result<(T, Namespace), RequestError> {
    let namespace = match arguments.remove("namespace") {
        None | Some(Value::Null) => namespaces.default_namespace(),
        Some(name) => {
            let name = Namespace::deserialize(name);
            let refused =
                |error: serde_json::Error| invalid(mismatch("namespace", &error.to_string()), SEE_SCHEMA);
            namespaces.chosen(name.map_err(refused)?)?
        }
    };
    Ok((parse(arguments)?, namespace))
}

/// Parses a request without a namespace. `null` counts as absent, as many clients send it; only `data` may be `null`.
pub(crate) fn parse<T: DeserializeOwned + JsonSchema>(mut arguments: Object) -> Result<T, RequestError> {
    arguments.retain(|name, value| !value.is_null() || name == "data");
    let read = serde_path_to_error::deserialize(Value::Object(arguments));
    read.map_err(|error| {
        let path = error.path().to_string();
        let reason = error.into_inner().to_string();
        refused(&path, &reason, super::schema::description_of::<T>)
    })
}

/// `path`: `.` for the request itself. `reason`: serde's message. `describe`: returns an argument's description.
fn refused(path: &str, reason: &str, describe: fn(&str) -> Option<String>) -> RequestError {
    let shortened = shortened(path);
    if reason.starts_with("unknown field") {
        // The last occurrence: the client's own text may contain the marker before it.
        let known = reason.rsplit_once("`, expected").map_or("", |(_, known)| known);
        let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        let name = path.rsplit('.').next().unwrap_or(path);
        let hint = match known.is_empty() {
            true => "It takes no arguments.".to_owned(),
            false => format!("Known: {}.", known.join(", ")),
        };
        return RequestError::new(
            ErrorCode::UnknownArgument,
            format!("`{shortened}` is not an argument.{}", suggestion(name, known)),
            hint,
        );
    }
    if let Some(name) = quoted(reason, "missing field") {
        let path = if path == "." {
            name.to_owned()
        } else {
            format!("{shortened}.{name}")
        };
        let hint = describe(&path).unwrap_or_else(|| SEE_SCHEMA.to_owned());
        return invalid(format!("`{path}` is missing."), hint);
    }
    if let Some(name) = quoted(reason, "duplicate field") {
        return invalid(
            format!("`{name}` is given under two of its names."),
            "Give it once.",
        );
    }
    let hint = describe(path).unwrap_or_else(|| SEE_SCHEMA.to_owned());
    invalid(mismatch(&shortened, reason), hint)
}

fn shortened(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

fn quoted<'a>(reason: &'a str, beginning: &str) -> Option<&'a str> {
    reason.strip_prefix(beginning)?.split('`').nth(1)
}

/// Rewrites serde's `invalid type: string "secret", expected f64` in plain words and without the value.
fn mismatch(path: &str, reason: &str) -> String {
    let Some(reason) = reason.strip_prefix("invalid type: ") else {
        return format!("`{path}`: {reason}.");
    };
    let found = match reason.split([' ', ',']).next().unwrap_or_default() {
        "string" => "a string",
        "integer" | "floating" => "a number",
        "boolean" => "a boolean",
        "sequence" => "a list",
        "map" => "an object",
        other => other,
    };
    let expected = match reason
        .rsplit_once(", expected ")
        .map_or("", |(_, expected)| expected)
    {
        "f64" => "a number without quotes, such as 5",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        name if name.starts_with("struct ") => "an object",
        other => other,
    };
    format!("`{path}` is {found}, not {expected}.")
}

/// A closed set of words. `WORDS` are those that schemas list and refusals name; others may be accepted.
pub(crate) trait Words: FromStr {
    const WORDS: &'static [&'static str];
}

macro_rules! words {
    ($($type:ty: $words:expr;)+) => {$(
        impl Words for $type {
            const WORDS: &'static [&'static str] = $words;
        }
    )+};
}

words! {
    ringfence_types::Language: &["python", "node", "typescript", "shell"];
    ringfence_types::Backend: &["native", "docker", "gvisor"];
    ringfence_types::Validate: Self::WORDS;
    ringfence_types::Profile: Self::WORDS;
    ringfence_store::audit::Outcome: &["ok", "failed", "denied", "pending", "lost"];
    ringfence_engine::Recency: Self::WORDS;
    ringfence_engine::WaitUntil: Self::WORDS;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct OneOf<T>(pub(crate) T);

impl<'de, T: Words> Deserialize<'de> for OneOf<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map(Self).map_err(|_| {
            let near = suggestion(&text, T::WORDS.iter().copied());
            let shortened = shortened(&text).escape_default().to_string();
            let known = T::WORDS.join(", ");
            D::Error::custom(format!("`{shortened}` is not known.{near} Known: {known}"))
        })
    }
}

/// Generates a type without a doc comment, which would become the description of every argument.
macro_rules! schema_of {
    ($type:ident<$inner:ident $(: $bound:ident)?>, $schema:expr) => {
        impl<$inner $(: $bound)?> JsonSchema for $type<$inner> {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                $schema(generator)
            }
        }
    };
}

schema_of!(OneOf<T: Words>, |_| json_schema!({"type": "string", "enum": T::WORDS}));
schema_of!(Many<C>, Vec::<String>::json_schema);

/// Reads any value, also `null`.
pub(crate) fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// A list of strings; a single string stands for a list of one.
#[derive(Debug, Default)]
pub(crate) struct Many<C>(pub(crate) C);

impl<'de, C> Deserialize<'de> for Many<C>
where
    C: FromIterator<<C as IntoIterator>::Item> + IntoIterator<Item: Deserialize<'de>>,
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Items<C>(PhantomData<C>);
        impl<'de, C> Visitor<'de> for Items<C>
        where
            C: FromIterator<<C as IntoIterator>::Item> + IntoIterator<Item: Deserialize<'de>>,
        {
            type Value = Many<C>;
            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a list of strings")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Many<C>, E> {
                let one: StrDeserializer<'_, E> = text.into_deserializer();
                Ok(Many([C::Item::deserialize(one)?].into_iter().collect()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Many<C>, A::Error> {
                let items = std::iter::from_fn(|| items.next_element().transpose());
                items.collect::<Result<C, _>>().map(Many)
            }
        }
        from.deserialize_any(Items(PhantomData))
    }
}

// A whole number that is not negative, such as 512 or 512.0. A doc comment would become each limit's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub(crate) struct Whole(pub(crate) u64);

impl<'de> Deserialize<'de> for Whole {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be whole and below 2^53"
    )]
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Whole;
            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a whole number without quotes that is not negative, such as 512")
            }
            fn visit_u64<E>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }
            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Whole, E> {
                if number.fract() == 0.0 && (0.0..EXACT).contains(&number) {
                    return Ok(Whole(number as u64));
                }
                Err(E::invalid_type(serde::de::Unexpected::Float(number), &self))
            }
        }
        from.deserialize_any(Number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{AuditExecution, BridgeData, CreateSession, ExecuteCode, ListRuntimes};
    use serde_json::json;

    fn refusal<T: Operation>(arguments: Value) -> RequestError {
        let arguments = arguments.as_object().unwrap().clone();
        let read = read::<T>(arguments, &Namespaces::CallerChooses);
        read.err().expect("a refusal")
    }

    #[test]
    fn refusal_names_the_argument_as_written_and_the_expected_type() {
        let check = |arguments: Value, message: &str| {
            assert_eq!(refusal::<ExecuteCode>(arguments).message, message);
        };
        check(
            json!({"code": "1", "timeout": "s3cret"}),
            "`timeout` is a string, not a number without quotes, such as 5.",
        );
        check(json!({"code": 5}), "`code` is a number, not a string.");
        check(json!({}), "`code` is missing.");
        check(
            json!({"code": "1", "files": [{"text": "x"}]}),
            "`files[0].path` is missing.",
        );
        check(
            json!({"code": "1", "files": [5]}),
            "`files[0]` is a number, not an object.",
        );
        check(
            json!({"code": "1", "packages": 1}),
            "`packages` is a number, not a list of strings.",
        );
        check(
            json!({"code": "1", "env": {"A": 1}}),
            "`env.A` is a number, not a string.",
        );
        check(
            json!({"code": "1", "timeout": 1, "timeout_seconds": 1}),
            "`timeout_seconds` is given under two of its names.",
        );
        check(
            json!({"code": "1", "language": "pyton"}),
            "`language`: `pyton` is not known. Did you mean `python`? Known: python, node, typescript, shell.",
        );
        check(
            json!({"code": "1", "resource_limits": {"max_ram_mb": 1.5}}),
            "`resource_limits.max_ram_mb` is a number, not a whole number without quotes that is not negative, such \
             as 512.",
        );
    }

    #[test]
    fn hint_is_the_schema_description_of_the_argument() {
        let refused = refusal::<ExecuteCode>(json!({"code": "1", "memory_limit": 5}));
        assert_eq!(refused.hint, "`memory_limit`: Such as 512m or 1g.");
        let refused = refusal::<ExecuteCode>(json!({}));
        assert_eq!(refused.hint, "`code`: The complete program.");
    }

    #[test]
    fn unknown_argument_gets_a_suggestion_only_if_a_name_is_near() {
        let check = |arguments: Value, near: &str| {
            let refused = refusal::<ExecuteCode>(arguments);
            assert_eq!(refused.code, ErrorCode::UnknownArgument);
            assert!(refused.message.contains(near), "{refused}");
            assert_eq!(
                refused.message.contains("Did you mean"),
                near.contains("Did"),
                "{refused}"
            );
        };
        check(json!({"code": "1", "langage": "x"}), "Did you mean `language`?");
        check(json!({"code": "1", "nope": 1}), "`nope` is not an argument.");
        check(
            json!({"code": "1", "resource_limits": {"max_ram": 5}}),
            "`resource_limits.max_ram` is not an argument. Did you mean `max_ram_mb`?",
        );
        check(json!({"code": "1", "`, expected `x": 1}), "is not an argument.");
        let refused = refusal::<ListRuntimes>(json!({"x": 1}));
        assert_eq!(refused.hint, "It takes no arguments.");
        let long = refusal::<ListRuntimes>(json!({"x".repeat(10_000): 1}));
        assert!(long.message.len() < 200, "{long}");
    }

    #[test]
    fn no_refusal_repeats_a_value() {
        for arguments in [
            json!({"code": {"s3cret": 1}}),
            json!({"code": "1", "env": {"A": ["s3cret"]}}),
            json!({"code": "1", "secrets": [{"a": "s3cret"}]}),
            json!({"code": "1", "session_id": "s3cret"}),
            json!({"code": "1", "timeout": "s3cret"}),
            json!({"code": "1", "capture_output": "s3cret, expected s3cret"}),
        ] {
            let refused = refusal::<ExecuteCode>(arguments);
            let message = refused.to_string();
            let repeated = message.matches("s3cret").count();
            // The last value imitates the end of serde's message.
            assert!(repeated == 0, "{message}");
        }
    }

    #[test]
    fn null_counts_as_absent_except_for_data() {
        let arguments = |value: Value| value.as_object().unwrap().clone();
        let (read, _) = read::<CreateSession>(
            arguments(json!({"language": null, "env": null})),
            &Namespaces::Fixed,
        )
        .unwrap();
        assert!(read.language.is_none() && read.env.is_none());
        let id = "0190b8f0-5c1e-7000-8000-00000000abcd";
        let given = |value: Value| parse::<BridgeData>(arguments(value)).unwrap().data;
        assert_eq!(given(json!({"to_session": id, "data": null})), Some(Value::Null));
        assert_eq!(given(json!({"to_session": id})), None);
    }

    #[test]
    fn single_string_is_a_list_and_whole_float_is_an_integer() {
        let packages = |value: Value| {
            let arguments = json!({"code": "1", "packages": value})
                .as_object()
                .unwrap()
                .clone();
            parse::<ExecuteCode>(arguments).unwrap().packages.unwrap().0
        };
        assert_eq!(packages(json!("numpy")), ["numpy"]);
        assert_eq!(packages(json!(["a", "b"])), ["a", "b"]);
        let limit = |value: Value| {
            let arguments = json!({"limit": value}).as_object().unwrap().clone();
            parse::<AuditExecution>(arguments).map(|read| read.limit)
        };
        assert_eq!(limit(json!(512.0)).unwrap(), Some(Whole(512)));
        for bad in [
            json!(-1),
            json!(1.5),
            json!("5"),
            json!(true),
            json!(1e300),
            json!([]),
            json!({}),
        ] {
            assert!(limit(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn caller_names_a_namespace_only_where_the_operator_allows_it() {
        let named = |name: Value, namespaces| {
            let arguments = json!({"namespace": name}).as_object().unwrap().clone();
            read::<ListRuntimes>(arguments, namespaces).map(|(_, namespace)| namespace)
        };
        assert_eq!(
            named(json!("a"), &Namespaces::CallerChooses).unwrap().as_str(),
            "a"
        );
        assert_eq!(
            named(json!(null), &Namespaces::Fixed).unwrap().as_str(),
            "default"
        );
        let refused = named(json!("a"), &Namespaces::Fixed).unwrap_err();
        assert_eq!(refused.code, ErrorCode::PolicyDenied);
        for bad in [json!("../x"), json!(5)] {
            let refused = named(bad, &Namespaces::CallerChooses).unwrap_err();
            assert!(refused.message.starts_with("`namespace`"), "{refused}");
        }
    }
}
