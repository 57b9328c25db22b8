//! The current policy: the operator's, and the limits of namespaces.

use crate::{
    policy::{self, OwnLimits},
    settings::PolicySettings,
    sync::lock,
};
use ringfence_types::{Limits, Namespace};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

pub(crate) struct PolicyStore {
    policy: RwLock<Arc<PolicySettings>>,
    own_limits: Mutex<HashMap<Namespace, OwnLimits>>,
    /// Serializes changes, so that the record matches the state.
    pub(crate) changing_limits: tokio::sync::Mutex<()>,
    /// Directories of the host that are never shown to programs: keys and the record are in them.
    pub(crate) private: Vec<PathBuf>,
}

impl PolicyStore {
    pub(crate) fn new(policy: PolicySettings, private: Vec<PathBuf>) -> Self {
        Self {
            policy: RwLock::new(Arc::new(policy)),
            own_limits: Mutex::default(),
            changing_limits: tokio::sync::Mutex::default(),
            private,
        }
    }

    pub(crate) fn current(&self) -> Arc<PolicySettings> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn replace(&self, policy: PolicySettings) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    pub(crate) fn all_own_limits(&self) -> MutexGuard<'_, HashMap<Namespace, OwnLimits>> {
        lock(&self.own_limits)
    }

    pub(crate) fn own_limits(&self, namespace: &Namespace) -> OwnLimits {
        self.all_own_limits().get(namespace).cloned().unwrap_or_default()
    }

    pub(crate) fn limits_of(&self, namespace: &Namespace) -> (Limits, Limits) {
        policy::limits_of(&self.current(), &self.own_limits(namespace))
    }
}
