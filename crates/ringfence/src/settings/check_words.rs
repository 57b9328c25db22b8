//! Values of the settings about checks of code and data before a run.

use super::{
    named::{Named, NamedValue},
    words::{HostPath, SettingValue},
};
use ringfence_types::{IMPORTS_MAX, ModuleName};
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_json::{Value, json};
use std::ops::RangeInclusive;

const STATEMENT_BYTES_MAX: usize = 512;
const NAME_BYTES_MAX: usize = 64;

impl SettingValue for ModuleName {
    const ITEMS: RangeInclusive<usize> = 0..=IMPORTS_MAX;

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

/// Statements that import names: `np=import numpy as np; pd=import pandas as pd`.
pub(crate) type KnownImports = Named<String>;

impl NamedValue for String {
    type Name = String;
    const ITEMS_MAX: usize = 1000;
    const SEPARATOR: char = ';';
    const FORM: &'static str = "NAME=IMPORT, as np=import numpy as np";
    const NAMES: Option<&'static str> = None;

    fn read(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn check(&self, name: &String) -> Result<(), String> {
        if self.len() > STATEMENT_BYTES_MAX {
            return Err(format!("the import is longer than {STATEMENT_BYTES_MAX} bytes"));
        }
        ringfence_engine::check_known_import(name, self)
    }

    fn schema() -> Value {
        json!({"type": "string", "maxLength": STATEMENT_BYTES_MAX})
    }
}

/// `NAME=FILE,NAME=FILE`.
pub(crate) type Schemas = Named<SchemaSource>;

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum SchemaSource {
    File(HostPath),
    Here(Value),
}

impl From<Value> for SchemaSource {
    fn from(schema: Value) -> Self {
        Self::Here(schema)
    }
}

impl<'de> Deserialize<'de> for SchemaSource {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Value::deserialize(from)? {
            Value::String(path) => Self::read(&path).map_err(D::Error::custom),
            schema @ Value::Object(_) => Ok(Self::Here(schema)),
            _ => Err(D::Error::custom(
                "it is neither the path of a file nor a JSON Schema",
            )),
        }
    }
}

impl NamedValue for SchemaSource {
    type Name = String;
    const ITEMS_MAX: usize = 64;
    const FORM: &'static str = "NAME=FILE";

    fn read(text: &str) -> Result<Self, String> {
        HostPath::read(text).map(Self::File)
    }

    fn check(&self, name: &String) -> Result<(), String> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        let is_name = name.len() <= NAME_BYTES_MAX
            && name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && name.chars().all(is_part);
        match is_name {
            true => Ok(()),
            false => Err(format!(
                "the name of a schema has letters, digits, `_`, `.` and `-`, at most {NAME_BYTES_MAX}"
            )),
        }
    }

    fn schema() -> Value {
        json!({"anyOf": [HostPath::schema(), {"type": "object"}]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::words::List;
    use ringfence_types::Profile;

    #[test]
    fn mistyped_profile_is_refused_with_the_nearest_name() {
        assert_eq!(Profile::read("strict").unwrap(), Profile::Strict);
        let reason = Profile::read("data-science").unwrap_err();
        assert!(reason.contains("Did you mean `data_science`?"), "{reason}");
        let all = List::<Profile>::read("all").unwrap();
        assert_eq!(all.len(), Profile::ALL.len());
        assert!(List::<Profile>::read("").unwrap().is_empty());
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
    fn schemas_in_a_variable_are_files() {
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
