//! Package layers: directories of files, installed once, never written again, and shared by any number of sandboxes. A
//! layer is named by the digest of its contents, a set of requirements by that of its text; a signed record joins them.
//!
//! ```text
//! layers/<layer>/          the files, modes 0755 and 0644, owned by this user
//! manifests/<layer>        signed: every file with its size, mode and SHA-256
//! sets/<set>               signed: the layer, and the packages downloaded for it
//! locks/<layer>            shared by the users of the layer; its mtime is the last use
//! locks/<set>              held while the set is installed, then removed
//! locks/places             held while layers are moved into place or removed
//! making/                  layers being built
//! clock.json               the last time seen
//! ```

mod lock;
mod manifest;
mod sweep;
mod tree;

pub use lock::SetLock;
pub use manifest::Package;
pub use sweep::{LayerRetention, LayersSwept};

use crate::{
    Signer,
    digest::to_hex,
    make_own_directory, signer,
    tree::TreeError,
    whole_file::{Directory, FileError, IfExists},
};
use lock::LayerLock;
use manifest::{LayerManifest, Resolved};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    fs, io,
    os::{fd::BorrowedFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

const LAYERS: &str = "layers";
const MANIFESTS: &str = "manifests";
const SETS: &str = "sets";
const LOCKS: &str = "locks";
const MAKING: &str = "making";

#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    #[error("the layers of packages: {0}")]
    Io(#[from] FileError),
    #[error("the installed files cannot be kept: {0}")]
    Refused(String),
    #[error("the packages have more than {bytes_max} bytes")]
    TooLarge { bytes_max: u64 },
    /// The name of a layer, or of the record of a set.
    #[error("the layer {name} is not what was signed: {what}")]
    Damaged { name: String, what: String },
}

impl LayerError {
    fn damaged(name: &str, what: impl Into<String>) -> Self {
        let (name, what) = (name.to_owned(), what.into());
        Self::Damaged { name, what }
    }
}

impl From<TreeError> for LayerError {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Io(error) => Self::Io(error),
            other => Self::Refused(other.to_string()),
        }
    }
}

#[derive(Debug)]
pub struct Layers {
    directory: PathBuf,
    locks: Directory,
    signer: Signer,
    /// Layers that this process has verified byte by byte, with their stamps at that time.
    checked: Mutex<HashMap<String, [u8; 32]>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SetName(String);

impl SetName {
    /// Hashes everything that decides the contents of the set.
    pub fn of(parts: &[&str]) -> Self {
        let statement = signer::statement(b"ringfence set v1\0", parts);
        Self(to_hex(&Sha256::digest(statement)))
    }

    /// 64 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A verified layer, which no sweep removes while this exists.
#[derive(Debug)]
pub struct Layer {
    name: String,
    packages: Vec<Package>,
    _in_use: LayerLock,
}

impl Layer {
    /// The name of its directory: 64 hexadecimal digits.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn packages(&self) -> &[Package] {
        &self.packages
    }
}

impl Layers {
    pub fn open(directory: PathBuf, signer: Signer) -> Result<Self, LayerError> {
        make_own_directory(&directory).map_err(FileError::at("open", &directory))?;
        for place in [LAYERS, MANIFESTS, SETS, LOCKS, MAKING] {
            let path = directory.join(place);
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(FileError::at("make", &path))?;
        }
        Ok(Self {
            locks: Directory::private(directory.join(LOCKS))?,
            directory,
            signer,
            checked: Mutex::default(),
        })
    }

    /// Returns the directory of the layers of a store.
    pub fn below(directory: &Path) -> PathBuf {
        directory.join(LAYERS)
    }

    /// Returns the layer of a set, verified. `None` if it has none, or a sweep has removed it or is removing it.
    pub fn find(&self, set: &SetName) -> Result<Option<Layer>, LayerError> {
        let record = self.place(SETS, set.as_str());
        let Some(resolved) = manifest::read::<Resolved>(&self.signer, &record)? else {
            return Ok(None);
        };
        if resolved.set != set.0 {
            return Err(LayerError::damaged(&set.0, "it is the record of another set"));
        }
        // Locked before the check, so that no sweep removes it meanwhile.
        let in_use = self.try_lock_shared(&resolved.layer)?;
        let Some(in_use) = in_use else { return Ok(None) };
        if !self.place(MANIFESTS, &resolved.layer).exists() {
            return Ok(None); // swept away
        }
        self.check(&resolved.layer)?;
        in_use.touch()?;
        Ok(Some(Layer {
            name: resolved.layer,
            packages: resolved.packages,
            _in_use: in_use,
        }))
    }

    /// Verifies every byte the first time, and again if the stamps have changed since.
    fn check(&self, name: &str) -> Result<(), LayerError> {
        let path = self.place(LAYERS, name);
        let now = tree::stamps(name, &path).map_err(|error| damage_of(name, error))?;
        if self.checked().get(name) == Some(&now) {
            return Ok(());
        }
        let manifest = manifest::read::<LayerManifest>(&self.signer, &self.place(MANIFESTS, name))?
            .ok_or_else(|| LayerError::damaged(name, "it has no manifest"))?;
        if manifest.name() != name {
            return Err(LayerError::damaged(name, "its manifest is another layer's"));
        }
        tree::check(name, &path, &manifest).map_err(|error| damage_of(name, error))?;
        self.checked().insert(name.to_owned(), now);
        Ok(())
    }

    fn checked(&self) -> std::sync::MutexGuard<'_, HashMap<String, [u8; 32]>> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn put(
        &self,
        making: &SetLock,
        installed: BorrowedFd<'_>,
        packages: Vec<Package>,
        bytes_max: u64,
    ) -> Result<Layer, LayerError> {
        let set = making.set();
        let making = self.place(MAKING, set.as_str());
        remove(&making)?;
        let manifest = tree::import(installed, &making, bytes_max).inspect_err(|_| drop(remove(&making)))?;
        let name = manifest.name();
        if self.place(MANIFESTS, &name).exists() {
            // Verifies every byte before others have to wait; `install` reports the error.
            drop(self.check(&name));
        }
        // Held until `find` has locked the layer, so that no sweep comes between.
        let _places = self.lock_places()?;
        self.install(&name, &making, &manifest)?;
        let resolved = Resolved {
            set: set.as_str().to_owned(),
            layer: name,
            packages,
        };
        self.write(SETS, set.as_str(), &manifest::signed(&self.signer, &resolved)?)?;
        self.find(set)?
            .ok_or_else(|| LayerError::damaged(&resolved.layer, "it has gone at once"))
    }

    /// Moves a layer into place, unless an intact copy is there.
    fn install(&self, name: &str, making: &Path, manifest: &LayerManifest) -> Result<(), LayerError> {
        let path = self.place(LAYERS, name);
        if self.place(MANIFESTS, name).exists() {
            match self.check(name) {
                Ok(()) => return remove(making),
                Err(LayerError::Damaged { .. }) => {}
                // The layer may be intact, and in use.
                Err(error) => return Err(error),
            }
        }
        // A damaged layer is not used any more.
        self.checked().remove(name);
        remove(&path)?;
        fs::rename(making, &path).map_err(FileError::at("put in place", &path))?;
        self.write(MANIFESTS, name, &manifest::signed(&self.signer, manifest)?)?;
        // Its bytes were hashed while they were copied.
        let now = tree::stamps(name, &path)?;
        self.checked().insert(name.to_owned(), now);
        Ok(())
    }

    pub fn forget(&self, set: &SetName) -> Result<(), LayerError> {
        remove(&self.place(SETS, set.as_str()))
    }

    fn place(&self, part: &str, name: &str) -> PathBuf {
        self.directory.join(part).join(name)
    }

    fn write(&self, part: &str, name: &str, text: &[u8]) -> Result<(), LayerError> {
        let (directory, name) = Directory::of_file(&self.place(part, name))?;
        Ok(directory.write_unsynced(&name, text, IfExists::Replace)?)
    }
}

/// `Damaged` for errors that no intact layer causes: refused contents, missing or inaccessible entries. Others stay.
fn damage_of(name: &str, error: LayerError) -> LayerError {
    use io::ErrorKind::{NotFound, PermissionDenied};
    match error {
        LayerError::Refused(what) => LayerError::damaged(name, what),
        LayerError::Io(FileError { path, error, .. })
            if matches!(error.kind(), NotFound | PermissionDenied) =>
        {
            LayerError::damaged(name, format!("{path:?}: {error}"))
        }
        error => error,
    }
}

fn remove(path: &Path) -> Result<(), LayerError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FileError::at("remove", path)(error).into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
