//! Secrets by namespace. They are kept in memory, or taken from environment variables of the operator, or sealed in a
//! file that several processes share.
//!
//! Not claimed: a user with write access to the directory of a vault's file can remove it or replace it by an older one
//! (but can neither read nor change a secret), and times to live follow the clock of the machine.

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

use contents::{Contents, StoredSecret};
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

pub type Secrets = Vec<(EnvName, Arc<SecretValue>)>;

#[derive(Clone, Debug)]
pub enum VaultSettings {
    Memory,
    /// In these variables, whose names [`split_variable`] splits. Read-only.
    Environment(Vec<(String, Arc<SecretValue>)>),
    /// In a sealed file of mode 0600, which is created if it is missing.
    File {
        /// The file. Its directory must exist. `<path>.lock` is created beside it and stays.
        path: PathBuf,
        key: FileKey,
    },
}

/// A store of secrets. All operations see the changes that other processes make to the same file.
pub struct Vault {
    backend: Backend,
    clock: Clock,
    /// Held by a writer from reading to writing, so that no change is lost. Never taken while `state` is held.
    write_lock: Mutex<()>,
    state: Mutex<State>,
}

enum Backend {
    Memory,
    Environment,
    File(SealedFile),
}

type Clock = Box<dyn Fn() -> SystemTime + Send + Sync>;

struct State {
    contents: Contents,
    /// Grows whenever a value may have been added, changed or removed.
    generation: u64,
    seen: Option<SeenFile>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    pub replaced: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretEntry {
    /// Name of the secret, and of its variable in the sandbox.
    pub key: EnvName,
    pub bytes: usize,
    /// Time at which the value was put; None for one from the environment.
    pub created_unix_s: Option<u64>,
    pub expires_unix_s: Option<u64>,
}

impl Vault {
    /// Opens the vault of these settings, and removes expired secrets.
    pub fn open(settings: VaultSettings) -> Result<Self, VaultError> {
        Self::open_with(settings, Box::new(SystemTime::now), Cost::RECOMMENDED)
    }

    fn open_with(settings: VaultSettings, clock: Clock, cost: Cost) -> Result<Self, VaultError> {
        let (backend, contents, seen) = match settings {
            VaultSettings::Memory => (Backend::Memory, Contents::default(), None),
            VaultSettings::Environment(variables) => {
                (Backend::Environment, environment::collect(variables)?, None)
            }
            VaultSettings::File { path, key } => {
                let (file, contents, seen) = SealedFile::open(&path, key, cost)?;
                (Backend::File(file), contents, Some(seen))
            }
        };
        let state = State {
            contents,
            generation: 1,
            seen,
        };
        let vault = Self {
            backend,
            clock,
            write_lock: Mutex::new(()),
            state: Mutex::new(state),
        };
        if vault.state().contents.sweep(vault.now_unix_ms()) {
            // Removes them from the file too.
            vault.change(|_| Ok(((), true)))?;
        }
        Ok(vault)
    }

    /// Stores a value. After its time to live it is no longer returned; the next operation of any kind removes it from
    /// memory, and the next change or opening from a file.
    pub fn put(
        &self,
        namespace: &Namespace,
        key: &EnvName,
        value: SecretValue,
        ttl: Option<Duration>,
    ) -> Result<Put, VaultError> {
        let now_unix_ms = self.now_unix_ms();
        let secret = StoredSecret {
            value: Arc::new(value),
            created_unix_ms: Some(now_unix_ms),
            expires_unix_ms: ttl.map(|ttl| expiry(now_unix_ms, ttl)).transpose()?,
        };
        let replaced = self.change(|contents| Ok((contents.put(namespace, key, secret)?, true)))?;
        Ok(Put { replaced })
    }

    pub fn delete(&self, namespace: &Namespace, key: &EnvName) -> Result<bool, VaultError> {
        self.change(|contents| {
            let deleted = contents.delete(namespace, key);
            Ok((deleted, deleted))
        })
    }

    /// Lists the secrets of a namespace in the order of their names.
    pub fn list(&self, namespace: &Namespace) -> Result<Vec<SecretEntry>, VaultError> {
        let state = self.current()?;
        let entry = |(key, secret): (&EnvName, &StoredSecret)| SecretEntry {
            key: key.clone(),
            bytes: secret.value.len(),
            created_unix_s: secret.created_unix_ms.map(|ms| ms / 1000),
            expires_unix_s: secret.expires_unix_ms.map(|ms| ms / 1000),
        };
        Ok(state.contents.of(namespace).map(entry).collect())
    }

    /// Returns the values of these keys in their order, all or none. The caller may keep one past deletion and expiry.
    pub fn lease(&self, namespace: &Namespace, keys: &[EnvName]) -> Result<Secrets, VaultError> {
        if matches!(self.backend, Backend::Environment) && !keys.is_empty() && !environment::serves(namespace)
        {
            return Err(VaultError::NotServed {
                namespace: namespace.clone(),
            });
        }
        let state = self.current()?;
        let leased = |key: &EnvName| match state.contents.get(namespace, key) {
            Some(secret) => Ok((key.clone(), Arc::clone(&secret.value))),
            None => Err(VaultError::NotFound { key: key.clone() }),
        };
        keys.iter().map(leased).collect()
    }

    /// Returns all secrets of a namespace. Unchanged values are the same [`Arc`]s as before, unless another process has
    /// changed the file.
    pub fn all(&self, namespace: &Namespace) -> Result<Secrets, VaultError> {
        Ok(self.current()?.all(namespace))
    }

    /// Returns the same without waiting or reading the file. `None`: another thread uses the vault, or its file has
    /// changed or cannot be looked at.
    pub fn all_now(&self, namespace: &Namespace) -> Option<Secrets> {
        let mut state = self.state_within(Duration::ZERO)?;
        if let Backend::File(file) = &self.backend {
            let is_same = file.is(state.seen.as_ref()?).unwrap_or(false);
            is_same.then_some(())?;
        }
        self.sweep(&mut state);
        Some(state.all(namespace))
    }

    /// Returns every value of every namespace, to keep them out of logs, and their generation; None if the generation
    /// is still this one, or if the vault cannot be read. The writer of the log calls this, possibly on a thread that
    /// holds this vault and panics, so it waits for the lock at most for `timeout`.
    pub fn values_after(&self, generation: u64, timeout: Duration) -> Option<(u64, Vec<Arc<SecretValue>>)> {
        let mut state = self.state_within(timeout)?;
        self.refresh(&mut state).ok()?;
        if state.generation == generation {
            return None;
        }
        Some((state.generation, state.values().collect()))
    }

    /// True if no namespace has a secret. False if the file cannot be read.
    pub fn is_empty(&self) -> bool {
        self.current().is_ok_and(|state| state.contents.len() == 0)
    }

    pub fn kind(&self) -> &'static str {
        match self.backend {
            Backend::Memory => "memory",
            Backend::Environment => "env",
            Backend::File(_) => "file",
        }
    }

    /// Returns the present state: read again if another process changed the file, and without expired secrets.
    fn current(&self) -> Result<MutexGuard<'_, State>, VaultError> {
        let mut state = self.state();
        self.refresh(&mut state)?;
        Ok(state)
    }

    fn refresh(&self, state: &mut State) -> Result<(), VaultError> {
        if let Backend::File(file) = &self.backend {
            let same = match &state.seen {
                Some(seen) => file.is(seen)?,
                None => false,
            };
            if !same {
                let (contents, seen) = file.read()?;
                state.take(contents, Some(seen));
            }
        }
        self.sweep(state);
        Ok(())
    }

    fn sweep(&self, state: &mut State) {
        if state.contents.sweep(self.now_unix_ms()) {
            state.generation += 1;
        }
    }

    /// Changes a copy, writes it, then publishes it. `step` also tells if it changed anything. Readers never wait.
    fn change<T>(
        &self,
        step: impl FnOnce(&mut Contents) -> Result<(T, bool), VaultError>,
    ) -> Result<T, VaultError> {
        let _write_lock = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let _file_lock = match &self.backend {
            Backend::Memory => None,
            Backend::Environment => return Err(VaultError::ReadOnly),
            Backend::File(file) => Some(file.lock()?),
        };
        let mut contents = self.current()?.contents.clone();
        let (outcome, changed) = step(&mut contents)?;
        if changed {
            let seen = match &self.backend {
                Backend::File(file) => Some(file.write(&contents)?),
                Backend::Memory | Backend::Environment => None,
            };
            self.state().take(contents, seen);
        }
        Ok(outcome)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_within(&self, timeout: Duration) -> Option<MutexGuard<'_, State>> {
        let begun = Instant::now();
        loop {
            match self.state.try_lock() {
                Ok(state) => return Some(state),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if begun.elapsed() < timeout => std::thread::yield_now(),
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
    fn all(&self, namespace: &Namespace) -> Secrets {
        let copy = |(key, one): (&EnvName, &StoredSecret)| (key.clone(), Arc::clone(&one.value));
        self.contents.of(namespace).map(copy).collect()
    }

    fn values(&self) -> impl Iterator<Item = Arc<SecretValue>> {
        self.contents.each().map(|(_, _, one)| Arc::clone(&one.value))
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
