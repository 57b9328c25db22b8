//! The name of a layer of packages, and the path at which a program finds it.

use serde::{Deserialize, Serialize};

/// The directory of a program's packages, in the tier `full`: `python`, `node_modules` and `bin` are below.
pub const PACKAGES: &str = "/packages/layer";

const NAME_CHARS: usize = 64;

/// The name of a layer's directory: 64 hexadecimal digits, so that it is one component of a path and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LayerName(String);

impl LayerName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for LayerName {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        if text.len() == NAME_CHARS && text.bytes().all(is_digit) {
            Ok(Self(text))
        } else {
            Err("a layer is named by 64 hexadecimal digits".to_owned())
        }
    }
}

impl From<LayerName> for String {
    fn from(name: LayerName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_name_is_a_single_path_component() {
        let good = "0123456789abcdef".repeat(4);
        assert_eq!(LayerName::try_from(good.clone()).unwrap().as_str(), good);
        for bad in [
            "",
            ".",
            "..",
            "/",
            &good[1..],
            &good.to_uppercase(),
            &good.replace("01", "/."),
        ] {
            assert!(LayerName::try_from(bad.to_owned()).is_err(), "{bad}");
            assert!(
                serde_json::from_str::<LayerName>(&format!("{bad:?}")).is_err(),
                "{bad}"
            );
        }
    }
}
