//! Secrets by namespace, and a run is given those that it may have. They are kept in memory, or taken from the
//! environment that the operator gave, or sealed in a file that several processes share.
//!
//! What is not claimed: a user who may write to the directory of a vault's file can remove it or put an older one there
//! (and can neither read nor change a secret), and times to live follow the clock of the machine.

mod contents;
mod encoding;
mod environment;
mod error;
mod file;
mod key;
mod place;
mod seal;
mod value;

pub use environment::{VARIABLE_PREFIXES, split_variable};
pub use error::{
    BYTES_MAX, Damage, Limit, NAMESPACE_BYTES_MAX, NAMESPACE_SECRETS_MAX, SECRETS_MAX, VariableError,
    VaultError,
};
pub use key::FileKey;
pub use value::{SECRET_BYTES_MAX, SecretError, SecretValue};

use contents::{Contents, Kept};
use file::{SealedFile, SeenFile};
use key::Cost;
use ringfence_types::{EnvName, Namespace};
use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

const TTL_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

#[derive(Clone, Debug)]
pub enum VaultSettings {
    /// Here, and gone with the process.
    Memory,
    /// In these variables, by the names that [`split_variable`] takes apart. Nothing is added to them.
    Environment(Vec<(String, Arc<SecretValue>)>),
    /// In a sealed file, of mode 0600, that is made if it is missing.
    File {
        /// Its directory exists. `<path>.lock` is made beside it and stays.
        path: PathBuf,
        key: FileKey,
    },
}

/// Keeps secrets. All of its operations see what other processes have put into the same file.
pub struct Vault {
    keeper: Keeper,
    clock: Clock,
    /// Held from reading to writing, so that no change is lost. Never taken while `state` is held.
    turn: Mutex<()>,
    state: Mutex<State>,
}

enum Keeper {
    Memory,
    Environment,
    File(SealedFile),
}

type Clock = Box<dyn Fn() -> SystemTime + Send + Sync>;

struct State {
    contents: Contents,
    generation: u64,
    seen: Option<SeenFile>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    pub replaced: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretEntry {
    /// Its name, and the variable inside.
    pub key: EnvName,
    pub bytes: usize,
    /// When its value was put; none in the environment.
    pub created_unix_s: Option<u64>,
    /// None: it stays until it is deleted.
    pub expires_unix_s: Option<u64>,
}

impl Vault {
    /// Opens what the settings name, whole or not at all.
    pub fn open(settings: VaultSettings) -> Result<Self, VaultError> {
        Self::open_with(settings, Box::new(SystemTime::now), Cost::RECOMMENDED)
    }

    fn open_with(settings: VaultSettings, clock: Clock, cost: Cost) -> Result<Self, VaultError> {
        let (keeper, contents, seen) = match settings {
            VaultSettings::Memory => (Keeper::Memory, Contents::default(), None),
            VaultSettings::Environment(variables) => {
                (Keeper::Environment, environment::collect(variables)?, None)
            }
            VaultSettings::File { path, key } => {
                let (file, contents, seen) = SealedFile::open(&path, key, cost)?;
                (Keeper::File(file), contents, Some(seen))
            }
        };
        let state = State {
            contents,
            generation: 1,
            seen,
        };
        let vault = Self {
            keeper,
            clock,
            turn: Mutex::new(()),
            state: Mutex::new(state),
        };
        if vault.state().contents.sweep(vault.now_unix_ms()) {
            // gone from the file too
            vault.change(|_| Ok(((), true)))?;
        }
        Ok(vault)
    }

    /// Keeps a value; with a time to live it is not given out after that. From memory it is wiped by the next operation
    /// of any kind, from a file by the next change or opening.
    pub fn put(
        &self,
        namespace: &Namespace,
        key: &EnvName,
        value: SecretValue,
        ttl: Option<Duration>,
    ) -> Result<Put, VaultError> {
        let now_unix_ms = self.now_unix_ms();
        let kept = Kept {
            value: Arc::new(value),
            created_unix_ms: Some(now_unix_ms),
            expires_unix_ms: ttl.map(|ttl| expiry(now_unix_ms, ttl)).transpose()?,
        };
        let replaced = self.change(|contents| Ok((contents.put(namespace, key, kept)?, true)))?;
        Ok(Put { replaced })
    }

    pub fn delete(&self, namespace: &Namespace, key: &EnvName) -> Result<bool, VaultError> {
        self.change(|contents| {
            let deleted = contents.delete(namespace, key);
            Ok((deleted, deleted))
        })
    }

    /// The secrets of a namespace in the order of their names.
    pub fn list(&self, namespace: &Namespace) -> Result<Vec<SecretEntry>, VaultError> {
        let state = self.current()?;
        let entry = |(key, kept): (&EnvName, &Kept)| SecretEntry {
            key: key.clone(),
            bytes: kept.value.len(),
            created_unix_s: kept.created_unix_ms.map(|ms| ms / 1000),
            expires_unix_s: kept.expires_unix_ms.map(|ms| ms / 1000),
        };
        Ok(state.contents.of(namespace).map(entry).collect())
    }

    /// The values of these keys in their order, all or none. A holder keeps a value past its deletion and expiry.
    pub fn lease(
        &self,
        namespace: &Namespace,
        keys: &[EnvName],
    ) -> Result<Vec<(EnvName, Arc<SecretValue>)>, VaultError> {
        if matches!(self.keeper, Keeper::Environment) && !keys.is_empty() && !environment::serves(namespace) {
            return Err(VaultError::NotServed {
                namespace: namespace.clone(),
            });
        }
        let state = self.current()?;
        let leased = |key: &EnvName| match state.contents.get(namespace, key) {
            Some(kept) => Ok((key.clone(), Arc::clone(&kept.value))),
            None => Err(VaultError::NotFound { key: key.clone() }),
        };
        keys.iter().map(leased).collect()
    }

    /// Every value of every namespace, to keep them out of logs, and their generation, if it is another than this one.
    /// For the writer of the log: that may be a thread that holds this vault and panics, so no lock is waited for
    /// longer than `patience`. `None` also when the vault cannot be read.
    pub fn values_after(&self, generation: u64, patience: Duration) -> Option<(u64, Vec<Arc<SecretValue>>)> {
        let mut state = self.state_within(patience)?;
        self.refresh(&mut state).ok()?;
        if state.generation == generation {
            return None;
        }
        Some((state.generation, state.values().collect()))
    }

    /// Another number whenever a value may have come, changed or gone since the last; also each time that the file
    /// cannot be read, so that a caller that remembers values by it asks again and gets the error.
    pub fn generation(&self) -> u64 {
        if let Ok(state) = self.current() {
            return state.generation;
        }
        let mut state = self.state();
        state.generation += 1;
        state.generation
    }

    /// No namespace has any. False when the file cannot be read.
    pub fn is_empty(&self) -> bool {
        self.current().is_ok_and(|state| state.contents.len() == 0)
    }

    pub fn kind(&self) -> &'static str {
        match self.keeper {
            Keeper::Memory => "memory",
            Keeper::Environment => "env",
            Keeper::File(_) => "file",
        }
    }

    /// What is there now: read again when another process changed the file, and without what has expired.
    fn current(&self) -> Result<MutexGuard<'_, State>, VaultError> {
        let mut state = self.state();
        self.refresh(&mut state)?;
        Ok(state)
    }

    fn refresh(&self, state: &mut State) -> Result<(), VaultError> {
        if let Keeper::File(file) = &self.keeper {
            let same = match &state.seen {
                Some(seen) => file.is(seen)?,
                None => false,
            };
            if !same {
                let (contents, seen) = file.read()?;
                state.take(contents, Some(seen));
            }
        }
        if state.contents.sweep(self.now_unix_ms()) {
            state.generation += 1;
        }
        Ok(())
    }

    /// Makes a change on a copy, writes it, and lets it be seen. The step says whether it has changed anything.
    /// Readers never wait for the writing.
    fn change<T>(
        &self,
        step: impl FnOnce(&mut Contents) -> Result<(T, bool), VaultError>,
    ) -> Result<T, VaultError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let _alone = match &self.keeper {
            Keeper::Memory => None,
            Keeper::Environment => return Err(VaultError::ReadOnly),
            Keeper::File(file) => Some(file.lock()?),
        };
        let mut contents = self.current()?.contents.clone();
        let (outcome, changed) = step(&mut contents)?;
        if changed {
            let seen = match &self.keeper {
                Keeper::File(file) => Some(file.write(&contents)?),
                Keeper::Memory | Keeper::Environment => None,
            };
            self.state().take(contents, seen);
        }
        Ok(outcome)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_within(&self, patience: Duration) -> Option<MutexGuard<'_, State>> {
        let begun = Instant::now();
        loop {
            match self.state.try_lock() {
                Ok(state) => return Some(state),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if begun.elapsed() < patience => std::thread::yield_now(),
                Err(TryLockError::WouldBlock) => return None,
            }
        }
    }

    fn now_unix_ms(&self) -> u64 {
        let since = (self.clock)().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

impl State {
    fn values(&self) -> impl Iterator<Item = Arc<SecretValue>> {
        self.contents.each().map(|(_, _, kept)| Arc::clone(&kept.value))
    }

    fn take(&mut self, contents: Contents, seen: Option<SeenFile>) {
        self.contents = contents;
        self.seen = seen;
        self.generation += 1;
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault")
            .field("kind", &self.kind())
            .finish_non_exhaustive()
    }
}

fn expiry(now_unix_ms: u64, ttl: Duration) -> Result<u64, VaultError> {
    let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(0);
    if ttl_ms == 0 || ttl > TTL_MAX {
        return Err(VaultError::Lifetime);
    }
    Ok(now_unix_ms.saturating_add(ttl_ms).min(u64::MAX - 1))
}

#[cfg(test)]
mod tests {
    pub(super) mod fixture;
    mod stories;
}
