//! The setting `workspaces`: directories of the host that the operator lends to programs, by name.

use super::{
    record_words::is_pattern,
    words::{HostPath, SettingValue, choice},
};
use ringfence_types::{WorkspaceMode, WorkspaceName};
use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const SHARES_MAX: usize = 64;
const PATTERNS_MAX: usize = 64;

choice! {
    WorkspaceMode {
        Ro = "ro",
        Rw = "rw",
        Overlay = "overlay",
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shares(BTreeMap<WorkspaceName, Share>);

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Share {
    pub(crate) path: HostPath,
    pub(crate) mode: WorkspaceMode,
    /// Namespaces, or beginnings followed by `*`.
    #[serde(default = "everybody")]
    pub(crate) namespaces: Vec<String>,
}

fn everybody() -> Vec<String> {
    vec!["*".to_owned()]
}

impl Shares {
    pub(crate) fn items(&self) -> impl Iterator<Item = (&WorkspaceName, &Share)> {
        self.0.iter()
    }

    fn checked(shares: BTreeMap<WorkspaceName, Share>) -> Result<Self, String> {
        if shares.len() > SHARES_MAX {
            return Err(format!("more than {SHARES_MAX} workspaces"));
        }
        for (name, share) in &shares {
            let of_namespace = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
            let bad = share
                .namespaces
                .iter()
                .find(|text| !is_pattern(text, of_namespace));
            if let Some(bad) = bad {
                return Err(format!(
                    "workspace `{name}`: `{bad}` is no namespace, nor a beginning followed by `*`"
                ));
            }
            if share.namespaces.is_empty() || share.namespaces.len() > PATTERNS_MAX {
                return Err(format!(
                    "workspace `{name}`: name 1 to {PATTERNS_MAX} namespaces, or leave them out for all"
                ));
            }
        }
        Ok(Self(shares))
    }
}

impl SettingValue for Shares {
    /// `NAME=DIR:MODE,NAME=DIR:MODE`, for every namespace.
    fn read(text: &str) -> Result<Self, String> {
        let mut shares = BTreeMap::new();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let refused = || format!("`{item}` is not NAME=DIR:ro, NAME=DIR:rw or NAME=DIR:overlay");
            let (name, rest) = item.split_once('=').ok_or_else(refused)?;
            let (path, mode) = rest.rsplit_once(':').ok_or_else(refused)?;
            let mode = WorkspaceMode::read(mode).map_err(|_| refused())?;
            let share = Share {
                path: HostPath::read(path)?,
                mode,
                namespaces: everybody(),
            };
            if shares
                .insert(WorkspaceName::try_from(name.to_owned())?, share)
                .is_some()
            {
                return Err(format!("the workspace `{name}` is listed twice"));
            }
        }
        Self::checked(shares)
    }

    fn typed<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::checked(BTreeMap::deserialize(from)?).map_err(de::Error::custom)
    }

    fn json(&self) -> Value {
        let one = |(name, share): (&WorkspaceName, &Share)| {
            let share = json!({
                "path": share.path.json(), "mode": share.mode.json(), "namespaces": share.namespaces,
            });
            (name.to_string(), share)
        };
        Value::Object(self.0.iter().map(one).collect::<Map<_, _>>())
    }

    fn schema() -> Value {
        let share = json!({
            "type": "object",
            "properties": {
                "path": HostPath::schema(),
                "mode": WorkspaceMode::schema(),
                "namespaces": {
                    "type": "array", "items": {"type": "string", "pattern": r"^[A-Za-z0-9_.-]*\*?$"},
                    "minItems": 1, "maxItems": PATTERNS_MAX, "default": ["*"],
                },
            },
            "required": ["path", "mode"],
            "additionalProperties": false,
        });
        json!({
            "type": "object",
            "propertyNames": {"pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"},
            "additionalProperties": share,
            "maxProperties": SHARES_MAX,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_directories_is_read_and_what_it_cannot_be_is_refused() {
        let read = |text: &str| Shares::read(text).map(|shares| shares.json());
        let expect = json!({
            "code": {"path": "/srv/a:b", "mode": "rw", "namespaces": ["*"]},
            "data": {"path": "~/data", "mode": "ro", "namespaces": ["*"]},
        });
        assert_eq!(read("data=~/data:ro, code=/srv/a:b:rw").unwrap(), expect);
        assert_eq!(read("").unwrap(), json!({}));
        for bad in [
            "x",
            "x=/x",
            "x=/x:wo",
            "x=rel:ro",
            "private=/x:ro",
            "../x=/x:ro",
            "x=/x:ro,x=/y:ro",
        ] {
            assert!(Shares::read(bad).is_err(), "{bad}");
        }
    }
}
