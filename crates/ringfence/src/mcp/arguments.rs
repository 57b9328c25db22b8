//! A tool call's arguments, as a stranger sent them: names are checked before values, each value is taken once with its
//! type, and nothing is left over. `null` is the same as absent; many clients send it for what they leave out.

use crate::settings::Namespaces;
use ringfence_types::nearest::suggestion;
use ringfence_types::{ErrorCode, Namespace, RequestError};
use serde_json::{Map, Value};

type JsonObject = Map<String, Value>;

/// The arguments of one call.
pub(super) struct Arguments {
    left: JsonObject,
    /// `resource_limits.` for an object within.
    prefix: &'static str,
}

/// A name, and the names that mean the same.
pub(super) type Name = (&'static str, &'static [&'static str]);

pub(super) fn invalid(message: String, hint: impl Into<String>) -> RequestError {
    RequestError::invalid(message, hint)
}

/// An argument that this version has only one value for.
pub(super) fn unsupported(name: &str, hint: &str) -> RequestError {
    RequestError::new(
        ErrorCode::UnsupportedArgument,
        format!("the argument `{name}` is not supported in this version."),
        hint,
    )
}

impl Arguments {
    /// Refuses names that are not known.
    pub(super) fn open(
        arguments: JsonObject,
        prefix: &'static str,
        known: &[Name],
    ) -> Result<Self, RequestError> {
        let left: JsonObject = arguments
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .collect();
        let names = || {
            known
                .iter()
                .flat_map(|(name, aliases)| [*name].into_iter().chain(aliases.iter().copied()))
        };
        for name in left.keys() {
            if !names().any(|known| known == name) {
                let shown: String = name.chars().take(64).collect();
                let canonical: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
                return Err(RequestError::new(
                    ErrorCode::UnknownArgument,
                    format!(
                        "`{prefix}{shown}` is not an argument.{}",
                        suggestion(name, names())
                    ),
                    format!("Known: {}.", canonical.join(", ")),
                ));
            }
        }
        Ok(Self { left, prefix })
    }

    /// The value under a name or one of its aliases; under two of them is a contradiction.
    pub(super) fn take(
        &mut self,
        (name, aliases): Name,
    ) -> Result<Option<(&'static str, Value)>, RequestError> {
        let mut found: Option<(&'static str, Value)> = None;
        for name in [name].into_iter().chain(aliases.iter().copied()) {
            let Some(value) = self.left.remove(name) else {
                continue;
            };
            if let Some((first, _)) = found {
                return Err(invalid(
                    format!("`{first}` and `{name}` are two names of one argument, and both are given."),
                    format!("Give `{first}` only."),
                ));
            }
            found = Some((name, value));
        }
        Ok(found)
    }

    pub(super) fn text(&mut self, name: Name) -> Result<Option<String>, RequestError> {
        match self.take(name)? {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text)),
            Some((name, other)) => Err(self.wrong(name, "a string", &other)),
        }
    }

    pub(super) fn flag(&mut self, name: Name) -> Result<Option<bool>, RequestError> {
        match self.take(name)? {
            None => Ok(None),
            Some((_, Value::Bool(flag))) => Ok(Some(flag)),
            Some((name, other)) => Err(self.wrong(name, "true or false", &other)),
        }
    }

    pub(super) fn number(&mut self, name: Name) -> Result<Option<f64>, RequestError> {
        match self.take(name)? {
            None => Ok(None),
            Some((name, value)) => match value.as_f64() {
                Some(number) if value.is_number() => Ok(Some(number)),
                _ => Err(self.wrong(name, "a number without quotes, as 5", &value)),
            },
        }
    }

    /// A whole number that is not negative; 512.0 is one.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be whole and below 2^53"
    )]
    pub(super) fn whole(&mut self, name: Name) -> Result<Option<u64>, RequestError> {
        const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
        let Some((name, value)) = self.take(name)? else {
            return Ok(None);
        };
        let from_float = || {
            value
                .as_f64()
                .filter(|float| float.fract() == 0.0 && (0.0..EXACT).contains(float))
                .map(|float| float as u64)
        };
        match value.as_u64().or_else(from_float) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(
                name,
                "a whole number without quotes that is not negative, as 512",
                &value,
            )),
        }
    }

    pub(super) fn list(&mut self, name: Name) -> Result<Option<Vec<Value>>, RequestError> {
        match self.take(name)? {
            None => Ok(None),
            Some((_, Value::Array(items))) => Ok(Some(items)),
            Some((name, other)) => Err(self.wrong(name, "a list", &other)),
        }
    }

    /// A list of texts, or one text, which is meant as a list of it alone.
    pub(super) fn texts(&mut self, name: Name) -> Result<Option<Vec<String>>, RequestError> {
        let items = match self.take(name)? {
            None => return Ok(None),
            Some((_, Value::Array(items))) => items,
            Some((_, one @ Value::String(_))) => vec![one],
            Some((name, other)) => return Err(self.wrong(name, "a list of strings", &other)),
        };
        let text = |item: Value| match item {
            Value::String(text) => Ok(text),
            other => Err(wrong_type(&format!("{}[]", name.0), "a string", &other)),
        };
        items.into_iter().map(text).collect::<Result<_, _>>().map(Some)
    }

    pub(super) fn object(&mut self, name: Name) -> Result<Option<JsonObject>, RequestError> {
        match self.take(name)? {
            None => Ok(None),
            Some((_, Value::Object(object))) => Ok(Some(object)),
            Some((name, other)) => Err(self.wrong(name, "an object", &other)),
        }
    }

    /// The tenant. Where the operator fixes it, naming one is refused.
    pub(super) fn namespace(&mut self, namespaces: Namespaces) -> Result<Namespace, RequestError> {
        let Some(name) = self.text(NAMESPACE)? else {
            return Ok(Namespace::default_name());
        };
        if namespaces == Namespaces::Fixed {
            return Err(RequestError::new(
                ErrorCode::PolicyDenied,
                "`namespace` is not for the caller to choose on this server.",
                "Leave it out.",
            ));
        }
        Namespace::try_from(name)
            .map_err(|reason| invalid(format!("`namespace`: {reason}."), "Use a plain name."))
    }

    fn wrong(&self, name: &str, expected: &str, found: &Value) -> RequestError {
        wrong_type(&format!("{}{name}", self.prefix), expected, found)
    }
}

/// The name of the tenant's argument.
pub(super) const NAMESPACE: Name = ("namespace", &[]);

/// A value of another type than the schema says. The value itself is not repeated.
pub(super) fn wrong_type(name: &str, expected: &str, found: &Value) -> RequestError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    invalid(
        format!("`{name}` is {found}, not {expected}."),
        "See the tool's input schema.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SIZE: Name = ("size", &["bytes", "length"]);

    fn open(value: Value) -> Result<Arguments, RequestError> {
        let Value::Object(object) = value else {
            panic!("an object")
        };
        Arguments::open(object, "", &[SIZE, ("name", &[])])
    }

    #[test]
    fn names_are_checked_first() {
        let code = |value: Value| open(value).err().map(|error| (error.code, error.message));
        let (unknown, message) = code(json!({"nmae": 1})).unwrap();
        assert_eq!(unknown, ErrorCode::UnknownArgument);
        assert!(message.contains("Did you mean `name`?"), "{message}");
        assert!(code(json!({"vault": null, "name": null})).is_none());
    }

    #[test]
    fn an_argument_and_its_alias_together_are_refused() {
        let mut both = open(json!({"size": 1, "length": 1})).unwrap();
        assert_eq!(both.whole(SIZE).unwrap_err().code, ErrorCode::InvalidArgument);
        assert_eq!(open(json!({"length": 7})).unwrap().whole(SIZE).unwrap(), Some(7));
    }

    #[test]
    fn types_are_the_schemas() {
        let whole = |value: Value| open(json!({"size": value})).unwrap().whole(SIZE);
        assert_eq!(whole(json!(512.0)).unwrap(), Some(512));
        for bad in [
            json!(-1),
            json!(1.5),
            json!("5"),
            json!(true),
            json!(1e300),
            json!([]),
            json!({}),
        ] {
            assert!(whole(bad.clone()).is_err(), "{bad}");
        }
        assert!(open(json!({"name": 1})).unwrap().text(("name", &[])).is_err());
        let texts = |value: Value| open(json!({"size": value})).unwrap().texts(SIZE);
        assert_eq!(texts(json!("numpy")).unwrap().unwrap(), ["numpy"]);
        assert_eq!(texts(json!(["a", "b"])).unwrap().unwrap(), ["a", "b"]);
        assert!(open(json!({})).unwrap().texts(SIZE).unwrap().is_none());
        assert!(texts(json!(1)).unwrap_err().message.contains("a list of strings"));
        assert!(texts(json!([1])).unwrap_err().message.contains("size[]"));
    }

    #[test]
    fn a_namespace_is_the_callers_only_where_the_operator_says_so() {
        let read = |name: &str, namespaces| {
            let arguments = json!({"namespace": name}).as_object().unwrap().clone();
            Arguments::open(arguments, "", &[NAMESPACE])
                .unwrap()
                .namespace(namespaces)
        };
        let named = |namespaces| read("a", namespaces);
        assert_eq!(named(Namespaces::CallerChooses).unwrap().as_str(), "a");
        assert_eq!(
            named(Namespaces::Fixed).unwrap_err().code,
            ErrorCode::PolicyDenied
        );
        assert!(read("../x", Namespaces::CallerChooses).is_err());
    }
}
