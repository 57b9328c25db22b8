//! Packages that a sandbox is shown: one layer, which is a directory of files that nobody writes any more, below one
//! directory of the host that holds them all. That directory lies in every place from the beginning, below `/proc`, so
//! that nobody inside reaches it. When a claim or an order names a layer, the supervisor's child goes into the sandbox's
//! namespaces and attaches that one, read-only, where the program looks for packages. Nothing else is ever attached late.

use crate::{
    enter::step,
    visit,
    wire::{Door, Failure},
};
use ringfence_sys::{
    file,
    mount::{self, Attributes, Reach},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

/// Where a program finds its packages, in the tier `full`: `python`, `node_modules` and `bin` are below.
pub const PACKAGES: &str = "/packages/layer";

/// Characters of a name.
const NAME_CHARS: usize = 64;

/// The name of a layer's directory: 64 hexadecimal digits, so that it is one component of a path and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LayerName(String);

impl LayerName {
    /// The text.
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

/// What the supervisor needs to attach a layer.
#[derive(Debug)]
pub(crate) struct Shelf {
    layers: OwnedFd,
    user: OwnedFd,
    mount: OwnedFd,
}

impl Shelf {
    /// From the doors of a place that has one; the namespaces stay for whoever else goes through them.
    pub(crate) fn of(doors: &mut HashMap<Door, OwnedFd>) -> Result<Option<Self>, Failure> {
        let Some(layers) = doors.remove(&Door::Layers) else {
            return Ok(None);
        };
        let kept = |door| match doors.get(&door) {
            Some(shared) => step("doors of the layers", shared.try_clone()),
            None => Err(Failure::new(
                "doors of the layers",
                &io::Error::other("pid 1 has not handed over its namespaces"),
            )),
        };
        Ok(Some(Self {
            layers,
            user: kept(Door::User)?,
            mount: kept(Door::Mount)?,
        }))
    }

    /// Shows the sandbox this layer, upon whatever it was shown before.
    pub(crate) fn attach(shelf: Option<&Self>, layer: &LayerName) -> Result<(), Failure> {
        let attached = match shelf {
            None => Err(io::Error::other("this place has no layers")),
            Some(shelf) => visit::send_in([&shelf.user, &shelf.mount], || shelf.show(layer)),
        };
        step("attach the packages", attached)
    }

    /// In the sandbox.
    fn show(&self, layer: &LayerName) -> io::Result<()> {
        let tree = mount::clone_tree(self.layers.as_fd(), Path::new(layer.as_str()))?;
        let attributes = Attributes {
            read_only: true,
            no_devices: true,
            no_exec: false,
        };
        mount::restrict(tree.as_fd(), attributes, Reach::AllBelow)?;
        let path = Path::new(PACKAGES)
            .strip_prefix("/")
            .unwrap_or(Path::new(PACKAGES));
        // Where this process stands now is the sandbox's root.
        mount::attach(tree.as_fd(), file::current_directory(), path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layers_name_is_one_component_and_nothing_else() {
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
