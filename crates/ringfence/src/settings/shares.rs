//! The setting `workspaces`: directories of the host that the operator shares with programs, by name.

use super::{
    named::{Named, NamedValue},
    record_words::is_pattern,
    words::{HostPath, SettingValue},
};
use ringfence_types::{WorkspaceMode, WorkspaceName};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const PATTERNS_MAX: usize = 64;

/// `NAME=DIR:MODE,NAME=DIR:MODE`, for every namespace.
pub(crate) type Shares = Named<Share>;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Share {
    pub(crate) path: HostPath,
    pub(crate) mode: WorkspaceMode,
    /// Namespaces, or prefixes followed by `*`.
    #[serde(default = "all_namespaces")]
    pub(crate) namespaces: Vec<String>,
}

fn all_namespaces() -> Vec<String> {
    vec!["*".to_owned()]
}

impl NamedValue for Share {
    type Name = WorkspaceName;
    const ITEMS_MAX: usize = 64;
    const FORM: &'static str = "NAME=DIR:ro, NAME=DIR:rw or NAME=DIR:overlay";

    fn read(text: &str) -> Result<Self, String> {
        let refused = || format!("`{text}` is not DIR:ro, DIR:rw or DIR:overlay");
        let (path, mode) = text.rsplit_once(':').ok_or_else(refused)?;
        Ok(Self {
            path: HostPath::read(path)?,
            mode: WorkspaceMode::read(mode).map_err(|_| refused())?,
            namespaces: all_namespaces(),
        })
    }

    fn check(&self, _name: &WorkspaceName) -> Result<(), String> {
        let of_namespace = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        let mut namespaces = self.namespaces.iter();
        if let Some(bad) = namespaces.find(|text| !is_pattern(text, of_namespace)) {
            return Err(format!(
                "`{bad}` is not a namespace, nor a prefix followed by `*`"
            ));
        }
        match (1..=PATTERNS_MAX).contains(&self.namespaces.len()) {
            true => Ok(()),
            false => Err(format!(
                "name 1 to {PATTERNS_MAX} namespaces, or leave them out for all"
            )),
        }
    }

    fn schema() -> Value {
        json!({
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
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspace_list_is_read_and_malformed_ones_are_refused() {
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
