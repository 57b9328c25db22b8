//! The secrets that one request has been lent, and what keeps them out of what leaves.

use crate::{
    error::Result,
    events::{Bus, EventKind},
    policy::Grant,
    record::{self, AuditScope},
    store,
    sync::lock,
};
use ringfence_egress::{BoundSecret, Inspection};
use ringfence_redact::{Forms, Personal, Redactor};
use ringfence_store::{
    audit::Action,
    vault::{SecretValue, Vault, VaultError},
};
use ringfence_types::{EnvName, ErrorCode, Namespace, RequestError};
use serde_json::json;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

/// Redactors that were made lately, because making one takes longer than a run with a few secrets.
const KEPT_MAX: usize = 16;
/// States of all of them together; nine bytes each.
const STATES_MAX: usize = 4 << 20;
/// From so few bytes of secrets one is made in a millisecond.
const QUICK_BYTES: usize = 8 << 10;
const IN_A_FILE: &str = "file";
const IN_MEMORY: &str = "memory";

/// Secrets of one request. They are wiped with their last holder.
pub(crate) struct SecretLease {
    pub(crate) secrets: Vec<(EnvName, Arc<SecretValue>)>,
    pub(crate) redactor: Redactor,
    /// What TLS is read with: for secrets that leave and are not handed in, and for rules about what is asked.
    pub(crate) inspection: Option<Arc<Inspection>>,
}

/// The secrets of a server, and the redactors that look for them.
pub(crate) struct Secrets {
    /// Shared with whatever writes the log.
    pub(crate) vault: Arc<Vault>,
    /// The redactors that were made last.
    kept: Mutex<VecDeque<(Source, Redactor)>>,
    /// For requests without secrets.
    personal: Redactor,
    takes_personal: Personal,
    bus: Bus,
}

/// What a redactor was made from.
#[derive(Clone, PartialEq, Eq)]
struct Source {
    namespace: Namespace,
    names: Vec<EnvName>,
    generation: u64,
}

impl Secrets {
    pub(crate) fn new(vault: Vault, takes_personal: Personal, bus: Bus) -> Self {
        Self {
            vault: Arc::new(vault),
            kept: Mutex::default(),
            personal: Redactor::new([], Forms::All, takes_personal),
            takes_personal,
            bus,
        }
    }

    /// What the vault no longer has is not kept here either.
    pub(crate) fn forget_old(&self) {
        let mut kept = lock(&self.kept);
        if !kept.is_empty() {
            let now = self.vault.generation();
            kept.retain(|(known, _)| known.generation == now);
        }
    }

    /// Lends a request what its grant says. That it was lent is on record before it is.
    pub(crate) async fn lease(&self, opened: &AuditScope, grant: &Grant) -> Result<SecretLease> {
        let request = &grant.request;
        if request.secrets.is_empty() {
            return Ok(SecretLease {
                secrets: Vec::new(),
                redactor: self.personal.clone(),
                inspection: None,
            });
        }
        let names: Vec<EnvName> = request.secrets.iter().cloned().collect();
        let shown: Vec<&str> = names.iter().map(EnvName::as_str).collect();
        let (namespace, wanted) = (request.namespace.clone(), names.clone());
        let (leased, generation) = self
            .with_vault(move |vault| of_generation(vault, || vault.lease(&namespace, &wanted)))
            .await?;
        let mut details = json!({"secrets": record::secret_names(shown.iter().copied())});
        if let Err(error) = &leased {
            details["why"] = json!(error.to_string());
        }
        let outcome = record::outcome_of(&leased);
        opened.step(Action::VaultAccessed, outcome, details).await?;
        let secrets = leased.map_err(|error| self.refusal(&request.namespace, &error))?;
        let event = EventKind::VaultAccessed {
            secrets: shown.iter().map(|name| (*name).to_owned()).collect(),
        };
        let bus = &self.bus;
        bus.publish(&request.namespace, Some(opened.id()), event);
        let source = generation.map(|generation| Source {
            namespace: request.namespace.clone(),
            names,
            generation,
        });
        Ok(SecretLease {
            redactor: self.redactor(source, &secrets).await?,
            inspection: None,
            secrets,
        })
    }

    /// What keeps every secret that a namespace's programs may have had out of a file that they have left: those it has
    /// now, and those that were lent before.
    pub(crate) async fn redactor_of_all(
        &self,
        namespace: &Namespace,
        lent: &[(EnvName, Arc<SecretValue>)],
    ) -> Result<Redactor> {
        let of = namespace.clone();
        let (leased, generation) = self
            .with_vault(move |vault| {
                of_generation(vault, || {
                    let listed = vault.list(&of)?.into_iter();
                    let names: Vec<EnvName> = listed.map(|entry| entry.key).collect();
                    vault.lease(&of, &names)
                })
            })
            .await?;
        let mut secrets = leased.map_err(|error| self.refusal(namespace, &error))?;
        let is_known = |(name, value): &&(EnvName, Arc<SecretValue>)| {
            let same =
                |(own, now): &(EnvName, Arc<SecretValue>)| own == name && now.expose() == value.expose();
            secrets.iter().any(same)
        };
        let old: Vec<_> = lent.iter().filter(|one| !is_known(one)).cloned().collect();
        // A redactor that knows more than the vault is used once.
        let generation = generation.filter(|_| old.is_empty());
        secrets.extend(old);
        if secrets.is_empty() {
            return Ok(self.personal.clone());
        }
        let source = generation.map(|generation| Source {
            namespace: namespace.clone(),
            names: secrets.iter().map(|(name, _)| name.clone()).collect(),
            generation,
        });
        self.redactor(source, &secrets).await
    }

    /// The one that was made for the same secrets before, or a new one, which for long secrets takes most of a second.
    async fn redactor(
        &self,
        source: Option<Source>,
        secrets: &[(EnvName, Arc<SecretValue>)],
    ) -> Result<Redactor> {
        if let Some(known) = source.as_ref().and_then(|source| self.known(source)) {
            return Ok(known);
        }
        let personal = self.takes_personal;
        let values: Vec<Arc<SecretValue>> = secrets.iter().map(|(_, value)| value.clone()).collect();
        let bytes: usize = values.iter().map(|value| value.len()).sum();
        let make = move || Redactor::new(values.iter().map(|value| value.expose()), Forms::All, personal);
        let made = if bytes <= QUICK_BYTES {
            make()
        } else {
            store::blocking(make).await?
        };
        if let Some(source) = source {
            self.keep(source, made.clone());
        }
        Ok(made)
    }

    /// Asks the vault something of a namespace.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        namespace: &Namespace,
        ask: impl FnOnce(&Vault, &Namespace) -> Result<T, VaultError> + Send + 'static,
    ) -> Result<T> {
        let of = namespace.clone();
        let asked = self.with_vault(move |vault| ask(vault, &of)).await?;
        asked.map_err(|error| self.refusal(namespace, &error))
    }

    /// What a caller may know of a vault's refusal.
    pub(crate) fn refusal(&self, namespace: &Namespace, error: &VaultError) -> RequestError {
        match error {
            VaultError::NotFound { key } => RequestError::new(
                ErrorCode::SecretUnavailable,
                format!(
                    "there is no secret {} in the namespace `{namespace}`.",
                    key.as_str()
                ),
                match self.vault.kind() {
                    IN_MEMORY => {
                        "The operator adds one with `ringfence vault add` to the memory of a running server, for its calls alone; \
                         for `ringfence run` there is `vault.store: file` (RINGFENCE_VAULT_STORE=file)."
                    }
                    _ => "`vault_list` names those it has; the operator adds one with `ringfence vault add`.",
                },
            ),
            _ => RequestError::store_fault(
                format!("the vault cannot do that: {error}."),
                "`ringfence vault list` on the host says more.",
            ),
        }
    }

    /// Asks the vault. One that lies in a file is read, written and waited for off the runtime's threads.
    pub(crate) async fn with_vault<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Vault) -> T + Send + 'static,
    ) -> Result<T> {
        if self.vault.kind() != IN_A_FILE {
            return Ok(ask(&self.vault));
        }
        let vault = self.vault.clone();
        store::blocking(move || ask(&vault)).await
    }

    fn known(&self, source: &Source) -> Option<Redactor> {
        let mut kept = lock(&self.kept);
        let at = kept.iter().position(|(known, _)| known == source)?;
        let (source, redactor) = kept.remove(at)?;
        kept.push_back((source, redactor.clone()));
        Some(redactor)
    }

    fn keep(&self, source: Source, redactor: Redactor) {
        let mut kept = lock(&self.kept);
        kept.retain(|(known, _)| known.generation == source.generation);
        kept.push_back((source, redactor));
        let states =
            |kept: &VecDeque<(Source, Redactor)>| kept.iter().map(|(_, one)| one.states()).sum::<usize>();
        while kept.len() > KEPT_MAX || (kept.len() > 1 && states(&kept) > STATES_MAX) {
            kept.pop_front();
        }
    }
}

impl SecretLease {
    /// What a program has by the names of its secrets: the values, or what stands for those that leave without it.
    pub(crate) fn handed_in(&self) -> impl Iterator<Item = (&str, &str)> {
        let bound = self.inspection.as_ref().map(|inspection| inspection.secrets());
        self.secrets.iter().map(move |(name, value)| {
            let word = bound
                .into_iter()
                .flatten()
                .find(|secret| secret.name() == name.as_str());
            (name.as_str(), word.map_or(value.expose(), BoundSecret::word))
        })
    }

    /// Names of secrets that are too short to be looked for.
    pub(crate) fn unredactable(&self) -> Vec<(&EnvName, &'static str)> {
        let reason = |value: &SecretValue| Redactor::is_redactable(value.expose()).err();
        let secrets = self.secrets.iter();
        secrets
            .filter_map(|(name, value)| Some((name, reason(value)?)))
            .collect()
    }
}

/// What the vault says, and of which generation that is; none: a value was changed in between.
fn of_generation<T>(vault: &Vault, ask: impl FnOnce() -> T) -> (T, Option<u64>) {
    let before = vault.generation();
    let answer = ask();
    (
        answer,
        Some(before).filter(|before| *before == vault.generation()),
    )
}
