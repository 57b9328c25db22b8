//! What is in force now: the operator's policy, and the limits that namespaces have set for themselves.

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
    /// One change at a time, so that the record says what is so.
    pub(crate) changing_limits: tokio::sync::Mutex<()>,
    /// Directories of the host that no program is ever shown: keys and the record lie in them.
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

    /// Limits of namespaces that differ from the operator's.
    pub(crate) fn all_own_limits(&self) -> MutexGuard<'_, HashMap<Namespace, OwnLimits>> {
        lock(&self.own_limits)
    }

    pub(crate) fn own_limits(&self, namespace: &Namespace) -> OwnLimits {
        self.all_own_limits().get(namespace).cloned().unwrap_or_default()
    }

    /// Default and greatest limits of a namespace.
    pub(crate) fn limits_of(&self, namespace: &Namespace) -> (Limits, Limits) {
        policy::limits_of(&self.current(), &self.own_limits(namespace))
    }
}
