//! The values of settings about what is asked of code and data before anything runs.

use super::words::{HostPath, Listed, SettingValue, unknown};
use ringfence_types::{IMPORTS_MAX, ModuleName, Profile};
use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const KNOWN_MAX: usize = 1000;
const STATEMENT_BYTES_MAX: usize = 512;
const SCHEMAS_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 64;

impl SettingValue for Profile {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| unknown(text, Self::WORDS))
    }
    fn json(&self) -> Value {
        json!(self.as_str())
    }
    fn schema() -> Value {
        json!({"enum": Self::WORDS})
    }
}

impl Listed for Profile {
    const ALL: Option<&'static str> = Some("all");
    fn all() -> Vec<Self> {
        Self::ALL.to_vec()
    }
}

impl SettingValue for ModuleName {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|reason| format!("`{text}`: {reason}"))
    }
    fn json(&self) -> Value {
        json!(self.as_str())
    }
    fn schema() -> Value {
        json!({"type": "string", "maxLength": 256})
    }
}

impl Listed for ModuleName {
    const ITEMS_MAX: usize = IMPORTS_MAX;
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownImports(BTreeMap<String, String>);

impl KnownImports {
    pub(crate) fn items(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    pub(crate) fn with(mut self, name: &str, statement: &str) -> Result<Self, String> {
        self.0.insert(name.to_owned(), statement.to_owned());
        Self::checked(self.0)
    }

    fn checked(imports: BTreeMap<String, String>) -> Result<Self, String> {
        if imports.len() > KNOWN_MAX {
            return Err(format!("more than {KNOWN_MAX} imports"));
        }
        for (name, statement) in &imports {
            if statement.len() > STATEMENT_BYTES_MAX {
                return Err(format!(
                    "the import of `{name}` is longer than {STATEMENT_BYTES_MAX} bytes"
                ));
            }
            ringfence_engine::check_known_import(name, statement)
                .map_err(|reason| format!("`{name}`: {reason}"))?;
        }
        Ok(Self(imports))
    }
}

impl SettingValue for KnownImports {
    /// `np=import numpy as np; pd=import pandas as pd`.
    fn read(text: &str) -> Result<Self, String> {
        let mut imports = BTreeMap::new();
        for item in text.split(';').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, statement) = item
                .split_once('=')
                .ok_or_else(|| format!("`{item}` is not NAME=IMPORT, as np=import numpy as np"))?;
            let (name, statement) = (name.trim().to_owned(), statement.trim().to_owned());
            if let Some(_other) = imports.insert(name.clone(), statement) {
                return Err(format!("`{name}` is listed twice"));
            }
        }
        Self::checked(imports)
    }

    fn typed<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::checked(BTreeMap::deserialize(from)?).map_err(de::Error::custom)
    }

    fn json(&self) -> Value {
        json!(self.0)
    }

    fn schema() -> Value {
        json!({
            "type": "object",
            "additionalProperties": {"type": "string", "maxLength": STATEMENT_BYTES_MAX},
            "maxProperties": KNOWN_MAX,
        })
    }
}

/// A JSON Schema: in a file, or as it stands in the configuration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SchemaSource {
    File(HostPath),
    Here(Value),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Schemas(BTreeMap<String, SchemaSource>);

impl Schemas {
    pub(crate) fn items(&self) -> &BTreeMap<String, SchemaSource> {
        &self.0
    }

    pub(crate) fn with(mut self, name: &str, schema: Value) -> Result<Self, String> {
        self.0.insert(name.to_owned(), SchemaSource::Here(schema));
        Self::checked(self.0)
    }

    fn checked(schemas: BTreeMap<String, SchemaSource>) -> Result<Self, String> {
        if schemas.len() > SCHEMAS_MAX {
            return Err(format!("more than {SCHEMAS_MAX} schemas"));
        }
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        let is_name = |name: &str| {
            name.len() <= NAME_BYTES_MAX
                && name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
                && name.chars().all(is_part)
        };
        match schemas.keys().find(|name| !is_name(name)) {
            Some(name) => Err(format!(
                "`{name}` is not the name of a schema: letters, digits, `_`, `.` and `-`, at most {NAME_BYTES_MAX}"
            )),
            None => Ok(Self(schemas)),
        }
    }
}

impl SettingValue for Schemas {
    /// `NAME=FILE,NAME=FILE`.
    fn read(text: &str) -> Result<Self, String> {
        let mut schemas = BTreeMap::new();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, path) = item
                .split_once('=')
                .ok_or_else(|| format!("`{item}` is not NAME=FILE"))?;
            let source = SchemaSource::File(HostPath::read(path)?);
            if schemas.insert(name.to_owned(), source).is_some() {
                return Err(format!("the schema `{name}` is listed twice"));
            }
        }
        Self::checked(schemas)
    }

    fn typed<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let typed: BTreeMap<String, Value> = BTreeMap::deserialize(from)?;
        let source = |(name, value): (String, Value)| match value {
            Value::String(path) => Ok((name, SchemaSource::File(HostPath::read(&path)?))),
            schema @ Value::Object(_) => Ok((name, SchemaSource::Here(schema))),
            _ => Err(format!(
                "the schema `{name}` is neither the path of a file nor a JSON Schema"
            )),
        };
        let schemas = typed.into_iter().map(source).collect::<Result<_, String>>();
        schemas.and_then(Self::checked).map_err(de::Error::custom)
    }

    fn json(&self) -> Value {
        let one = |(name, source): (&String, &SchemaSource)| {
            let source = match source {
                SchemaSource::File(path) => path.json(),
                SchemaSource::Here(schema) => schema.clone(),
            };
            (name.clone(), source)
        };
        Value::Object(self.0.iter().map(one).collect::<Map<_, _>>())
    }

    fn schema() -> Value {
        json!({
            "type": "object",
            "propertyNames": {"pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"},
            "additionalProperties": {"anyOf": [HostPath::schema(), {"type": "object"}]},
            "maxProperties": SCHEMAS_MAX,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::words::List;

    #[test]
    fn profiles_are_words_and_a_mistyped_one_is_told_the_nearest() {
        assert_eq!(Profile::read("strict").unwrap(), Profile::Strict);
        let reason = Profile::read("data-science").unwrap_err();
        assert!(reason.contains("Did you mean `data_science`?"), "{reason}");
        let all = List::<Profile>::read("all").unwrap();
        assert_eq!(all.len(), Profile::ALL.len());
        assert!(List::<Profile>::read("").unwrap().is_empty());
        // a toolset's name is no profile, and is not told to be one of another version
        let reason = List::<Profile>::read("web").unwrap_err();
        assert!(!reason.contains("version"), "{reason}");
    }

    #[test]
    fn modules_are_dotted_names() {
        let check = |text: &str, good: bool| {
            assert_eq!(List::<ModuleName>::read(text).is_ok(), good, "{text:?}");
        };
        check("math, os.path,_x", true);
        check("", true);
        check("os..path", false);
        check("1a", false);
        check("a-b", false);
    }

    #[test]
    fn known_imports_are_names_with_a_statement() {
        let read = |text: &str| KnownImports::read(text).map(|imports| imports.json());
        let expect = json!({"np": "import numpy as np", "sleep": "from time import sleep"});
        assert_eq!(
            read("np = import numpy as np; sleep=from time import sleep;").unwrap(),
            expect
        );
        assert_eq!(read("").unwrap(), json!({}));
        for bad in [
            "np",
            "a=import a;a=import a",
            &format!("a=import {}", "a".repeat(600)),
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn schemas_are_files_in_a_variable() {
        let read = |text: &str| Schemas::read(text).map(|schemas| schemas.json());
        assert_eq!(
            read("order=/s/order.json, x=~/x.json").unwrap(),
            json!({"order": "/s/order.json", "x": "~/x.json"})
        );
        for bad in ["order", "order=rel.json", "a=/a,a=/b", "../a=/a", "=/a"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
