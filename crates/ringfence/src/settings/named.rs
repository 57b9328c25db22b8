//! Settings that map names to values: a mapping in a file, a separated list of `NAME=VALUE` in a flag or a variable.

use super::words::SettingValue;
use ringfence_types::yaml::{Fault, Node};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fmt::{Debug, Display},
};

pub(crate) trait NamedValue: Clone + Debug + Serialize + DeserializeOwned + 'static {
    type Name: Clone + Debug + Ord + Display + Serialize + DeserializeOwned + TryFrom<String, Error: Display>;
    const ITEMS_MAX: usize;
    const SEPARATOR: char = ',';
    /// Form of one item in a variable, for messages.
    const FORM: &'static str;
    /// Pattern of a name, for the schema.
    const NAMES: Option<&'static str> = Some("^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$");

    fn read(text: &str) -> Result<Self, String>;
    /// Checks the value and its name, for each source.
    fn check(&self, name: &Self::Name) -> Result<(), String>;
    fn schema() -> Value;
}

#[derive(Clone, Debug)]
pub(crate) struct Named<V: NamedValue>(BTreeMap<V::Name, V>);

impl<V: NamedValue> Default for Named<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V: NamedValue> Named<V> {
    pub(crate) fn items(&self) -> &BTreeMap<V::Name, V> {
        &self.0
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<V>) -> Result<Self, String> {
        self.0.insert(name_of::<V>(name)?, value.into());
        Self::checked(self.0)
    }

    fn checked(values: BTreeMap<V::Name, V>) -> Result<Self, String> {
        if values.len() > V::ITEMS_MAX {
            return Err(format!("more than {} names", V::ITEMS_MAX));
        }
        for (name, value) in &values {
            value
                .check(name)
                .map_err(|reason| format!("`{name}`: {reason}"))?;
        }
        Ok(Self(values))
    }
}

fn name_of<V: NamedValue>(name: &str) -> Result<V::Name, String> {
    V::Name::try_from(name.to_owned()).map_err(|reason| reason.to_string())
}

impl<V: NamedValue> SettingValue for Named<V> {
    fn read(text: &str) -> Result<Self, String> {
        let mut values = BTreeMap::new();
        let items = text.split(V::SEPARATOR).map(str::trim);
        for item in items.filter(|item| !item.is_empty()) {
            let (name, value) = item
                .split_once('=')
                .ok_or_else(|| format!("`{item}` is not {}", V::FORM))?;
            let (name, value) = (name.trim(), V::read(value.trim())?);
            if values.insert(name_of::<V>(name)?, value).is_some() {
                return Err(format!("`{name}` is listed twice"));
            }
        }
        Self::checked(values)
    }

    fn of(node: &Node) -> Result<Self, Fault> {
        Self::checked(BTreeMap::deserialize(node)?).map_err(|reason| node.fault(reason))
    }

    fn json(&self) -> Value {
        json!(self.0)
    }

    fn schema() -> Value {
        let mut schema = json!({
            "type": "object",
            "additionalProperties": V::schema(),
            "maxProperties": V::ITEMS_MAX,
        });
        if let Some(pattern) = V::NAMES {
            schema["propertyNames"] = json!({"pattern": pattern});
        }
        schema
    }
}
