//! The secrets of requests, and the redactors that keep them out of output.

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
    vault::{self, SecretValue, Vault, VaultError},
};
use ringfence_types::{EnvName, ErrorCode, Namespace, RequestError};
use serde_json::json;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

/// Most cached redactors. They are cached because making one takes longer than a run with a few secrets.
const KEPT_MAX: usize = 16;
/// Most states of all cached redactors; each takes nine bytes.
const STATES_MAX: usize = 6 << 20;
/// Up to this many bytes of secrets a redactor is made in a millisecond.
const QUICK_BYTES: usize = 512;
/// From this many bytes of secrets on, redactors are made one at a time: each byte takes 300 bytes to 1.7 kB.
const LARGE_BYTES: usize = 16 << 10;
const FILE_VAULT: &str = "file";
const MEMORY_VAULT: &str = "memory";

/// Secrets of one request. They are wiped with their last owner.
pub(crate) struct SecretLease {
    pub(crate) secrets: Vec<(EnvName, Arc<SecretValue>)>,
    pub(crate) redactor: Redactor,
    /// TLS inspection: for secrets put into requests instead of given to the program, and for rules about requests.
    pub(crate) inspection: Option<Arc<Inspection>>,
}

/// The secrets that the redactor of a lease finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redacted {
    Leased,
    /// Also all others of the namespace: an earlier program may have left them where this one can read them.
    All,
}

/// The last redactor of a session, and the vault's generation that it is of. The next call replaces an old one.
#[derive(Default)]
pub(crate) struct KeptRedactor(Mutex<Option<(u64, Redactor)>>);

pub(crate) struct Secrets {
    /// Shared with the log writer.
    pub(crate) vault: Arc<Vault>,
    /// The most recently used redactors.
    kept: Mutex<VecDeque<(Source, Personal, Redactor)>>,
    /// Held while a large redactor is made.
    making: Arc<tokio::sync::Mutex<()>>,
    /// The redactor of requests without secrets.
    personal: Redactor,
    takes_personal: Personal,
    bus: Bus,
}

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
            making: Arc::default(),
            personal: Redactor::new([], Forms::All, takes_personal),
            takes_personal,
            bus,
        }
    }

    /// Drops redactors with secrets that the vault no longer has.
    pub(crate) fn forget_old(&self) {
        let mut kept = lock(&self.kept);
        if !kept.is_empty() {
            let now = self.vault.generation();
            kept.retain(|(known, ..)| known.generation == now);
        }
    }

    /// Leases the secrets of a grant to a request. The lease is on record before it is used.
    pub(crate) async fn lease(
        &self,
        opened: &AuditScope,
        grant: &Grant,
        redacted: Redacted,
    ) -> Result<SecretLease> {
        let request = &grant.request;
        if request.secrets.is_empty() {
            return Ok(SecretLease {
                secrets: Vec::new(),
                redactor: match redacted {
                    Redacted::Leased => self.personal.clone(),
                    Redacted::All => self.redactor_of_all(&request.namespace, &[]).await?,
                },
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
        let redactor = match redacted {
            Redacted::Leased => self.redactor(source, &secrets).await?,
            Redacted::All => self.redactor_of_all(&request.namespace, &secrets).await?,
        };
        Ok(SecretLease {
            redactor,
            inspection: None,
            secrets,
        })
    }

    /// Returns the redactor for what a namespace's programs left: of its secrets, current and of earlier leases.
    pub(crate) async fn redactor_of_all(
        &self,
        namespace: &Namespace,
        earlier: &[(EnvName, Arc<SecretValue>)],
    ) -> Result<Redactor> {
        let (secrets, generation) = self.ask(namespace, Vault::all).await?;
        self.redactor_with_earlier(namespace, secrets, generation, earlier)
            .await
    }

    /// Returns the same; a new one only if the vault has changed since the last.
    pub(crate) async fn kept_redactor(
        &self,
        kept: &KeptRedactor,
        namespace: &Namespace,
        earlier: &[(EnvName, Arc<SecretValue>)],
    ) -> Result<Redactor> {
        let known = lock(&kept.0).clone();
        if let Some((_, redactor)) = known.filter(|(generation, _)| self.vault.is_still(*generation)) {
            return Ok(redactor);
        }
        let (secrets, generation) = self.ask(namespace, Vault::all).await?;
        // The vault was only in use by another call.
        let known = lock(&kept.0).clone();
        if let Some((_, redactor)) = known.filter(|(of, _)| *of == generation) {
            return Ok(redactor);
        }
        let redactor = self
            .redactor_with_earlier(namespace, secrets, generation, earlier)
            .await?;
        let mut kept = lock(&kept.0);
        if kept.as_ref().is_none_or(|(of, _)| *of < generation) {
            *kept = Some((generation, redactor.clone()));
        }
        Ok(redactor)
    }

    /// Returns the redactor of all secrets of a generation, and of earlier leases.
    async fn redactor_with_earlier(
        &self,
        namespace: &Namespace,
        mut secrets: vault::Secrets,
        generation: u64,
        earlier: &[(EnvName, Arc<SecretValue>)],
    ) -> Result<Redactor> {
        let is_known = |(name, value): &&(EnvName, Arc<SecretValue>)| {
            let same =
                |(own, now): &(EnvName, Arc<SecretValue>)| own == name && now.expose() == value.expose();
            secrets.iter().any(same)
        };
        let old: Vec<_> = earlier.iter().filter(|one| !is_known(one)).cloned().collect();
        // A redactor with secrets that the vault no longer has is not cached.
        let is_current = old.is_empty();
        secrets.extend(old);
        if secrets.is_empty() {
            return Ok(self.personal.clone());
        }
        let source = is_current.then(|| Source {
            namespace: namespace.clone(),
            names: secrets.iter().map(|(name, _)| name.clone()).collect(),
            generation,
        });
        self.redactor(source, &secrets).await
    }

    /// Returns the redactor of leased secrets that are bound to hosts, for the answers of these.
    pub(crate) async fn redactor_of_bound(
        &self,
        namespace: &Namespace,
        secrets: &[(EnvName, Arc<SecretValue>)],
    ) -> Result<Redactor> {
        if secrets.is_empty() {
            return Ok(Redactor::none());
        }
        let names: Vec<EnvName> = secrets.iter().map(|(name, _)| name.clone()).collect();
        let (of, wanted) = (namespace.clone(), names.clone());
        let (now, generation) = self
            .with_vault(move |vault| of_generation(vault, || vault.lease(&of, &wanted)))
            .await?;
        let mut pairs = now.iter().flatten().zip(secrets);
        let is_same = now.is_ok() && pairs.all(|(now, own)| now.1.expose() == own.1.expose());
        let source = generation.filter(|_| is_same).map(|generation| Source {
            namespace: namespace.clone(),
            names,
            generation,
        });
        self.redactor_with(source, secrets, Personal::Keep).await
    }

    async fn redactor(
        &self,
        source: Option<Source>,
        secrets: &[(EnvName, Arc<SecretValue>)],
    ) -> Result<Redactor> {
        self.redactor_with(source, secrets, self.takes_personal).await
    }

    /// Returns the cached redactor for the same secrets, or a new one, which for long secrets takes most of a second.
    async fn redactor_with(
        &self,
        source: Option<Source>,
        secrets: &[(EnvName, Arc<SecretValue>)],
        personal: Personal,
    ) -> Result<Redactor> {
        let known = || source.as_ref().and_then(|source| self.known(source, personal));
        if let Some(known) = known() {
            return Ok(known);
        }
        let values: Vec<Arc<SecretValue>> = secrets.iter().map(|(_, value)| value.clone()).collect();
        let bytes: usize = values.iter().map(|value| value.len()).sum();
        let mut turn = None;
        if bytes >= LARGE_BYTES {
            turn = Some(self.making.clone().lock_owned().await);
            // Another request may have made it meanwhile.
            if let Some(known) = known() {
                return Ok(known);
            }
        }
        let make = move || Redactor::new(values.iter().map(|value| value.expose()), Forms::All, personal);
        let (made, _turn) = if bytes <= QUICK_BYTES {
            (make(), None)
        } else {
            // The turn goes along: a request that is cancelled meanwhile must not give it up.
            store::blocking(move || (make(), turn)).await?
        };
        if let Some(source) = source {
            self.keep(source, personal, made.clone());
        }
        Ok(made)
    }

    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        namespace: &Namespace,
        ask: impl FnOnce(&Vault, &Namespace) -> Result<T, VaultError> + Send + 'static,
    ) -> Result<T> {
        let of = namespace.clone();
        let asked = self.with_vault(move |vault| ask(vault, &of)).await?;
        asked.map_err(|error| self.refusal(namespace, &error))
    }

    /// Returns the part of a vault error that a caller may know.
    pub(crate) fn refusal(&self, namespace: &Namespace, error: &VaultError) -> RequestError {
        match error {
            VaultError::NotFound { key } => RequestError::new(
                ErrorCode::SecretUnavailable,
                format!(
                    "there is no secret {} in the namespace `{namespace}`.",
                    key.as_str()
                ),
                match self.vault.kind() {
                    MEMORY_VAULT => {
                        "The operator adds one to a running server with `ringfence vault add`, for its calls alone; \
                         `ringfence run` needs `vault.store: file` (RINGFENCE_VAULT_STORE=file)."
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

    /// Runs a vault operation; for a vault in a file on a blocking thread.
    pub(crate) async fn with_vault<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Vault) -> T + Send + 'static,
    ) -> Result<T> {
        if self.vault.kind() != FILE_VAULT {
            return Ok(ask(&self.vault));
        }
        let vault = self.vault.clone();
        store::blocking(move || ask(&vault)).await
    }

    fn known(&self, source: &Source, personal: Personal) -> Option<Redactor> {
        let mut kept = lock(&self.kept);
        let at = kept
            .iter()
            .position(|(known, of, _)| known == source && *of == personal)?;
        let found = kept.remove(at)?;
        let redactor = found.2.clone();
        kept.push_back(found);
        Some(redactor)
    }

    fn keep(&self, source: Source, personal: Personal, redactor: Redactor) {
        let mut kept = lock(&self.kept);
        // A request that waited for its turn may have older secrets.
        if kept
            .iter()
            .any(|(known, ..)| known.generation > source.generation)
        {
            return;
        }
        kept.retain(|(known, ..)| known.generation == source.generation);
        kept.push_back((source, personal, redactor));
        while kept.len() > KEPT_MAX
            || (kept.len() > 1 && kept.iter().map(|(.., one)| one.states()).sum::<usize>() > STATES_MAX)
        {
            kept.pop_front();
        }
    }
}

impl SecretLease {
    /// Returns the values of a program's secret variables: secrets, or placeholders for those put into requests.
    pub(crate) fn environment_values(&self) -> impl Iterator<Item = (&str, &str)> {
        let bound = self.inspection.as_ref().map(|inspection| inspection.secrets());
        self.secrets.iter().map(move |(name, value)| {
            let mut bound = bound.into_iter().flatten();
            let bound = bound.find(|secret| secret.name() == name.as_str());
            let value = bound.map_or(value.expose(), BoundSecret::placeholder);
            (name.as_str(), value)
        })
    }

    /// Returns the names of secrets that cannot be redacted, with the reason.
    pub(crate) fn unredactable(&self) -> Vec<(&EnvName, &'static str)> {
        let reason = |value: &SecretValue| Redactor::is_redactable(value.expose()).err();
        let secrets = self.secrets.iter();
        secrets
            .filter_map(|(name, value)| Some((name, reason(value)?)))
            .collect()
    }
}

/// Returns the vault's answer and its generation; `None`: a value was changed meanwhile.
fn of_generation<T>(vault: &Vault, ask: impl FnOnce() -> T) -> (T, Option<u64>) {
    let before = vault.generation();
    let answer = ask();
    (
        answer,
        Some(before).filter(|before| *before == vault.generation()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_store::vault::VaultSettings;
    use std::{future::Future, pin::pin, task};

    #[tokio::test]
    async fn large_redactors_are_made_one_at_a_time_and_equal_ones_once() {
        let vault = Vault::open(VaultSettings::Memory).unwrap();
        let secrets = Secrets::new(vault, Personal::Keep, Bus::new());
        let source = Source {
            namespace: Namespace::default_name(),
            names: Vec::new(),
            generation: 1,
        };
        let of_bytes = |bytes: usize| {
            let value = SecretValue::new("x".repeat(bytes)).unwrap();
            [("KEY".parse::<EnvName>().unwrap(), Arc::new(value))]
        };
        let large = of_bytes(LARGE_BYTES);
        let turn = secrets.making.clone().lock_owned().await;
        let mut waiting = pin!(secrets.redactor(Some(source.clone()), &large));
        let mut context = task::Context::from_waker(task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        // A smaller one does not wait.
        secrets.redactor(None, &of_bytes(LARGE_BYTES - 1)).await.unwrap();
        let made = Redactor::new(["another one"], Forms::All, Personal::Keep);
        secrets.keep(source.clone(), Personal::Keep, made.clone());
        drop(turn);
        let got = waiting.await.unwrap();
        assert_eq!(got.states(), made.states());
        // One that waited with older secrets takes nothing from the newer.
        let older = Source {
            generation: 0,
            ..source.clone()
        };
        secrets.keep(older.clone(), Personal::Keep, made);
        assert!(secrets.known(&source, Personal::Keep).is_some());
        assert!(secrets.known(&older, Personal::Keep).is_none());
    }

    #[tokio::test]
    async fn redactor_of_bound_secrets_is_cached_and_keeps_personal_data() {
        let vault = Vault::open(VaultSettings::Memory).unwrap();
        let (namespace, name) = (Namespace::default_name(), "KEY".parse::<EnvName>().unwrap());
        let put = |vault: &Vault, value: &str| {
            let value = SecretValue::new(value.to_owned()).unwrap();
            vault.put(&namespace, &name, value, None).unwrap();
        };
        put(&vault, "first-canary");
        let secrets = Secrets::new(vault, Personal::Remove, Bus::new());
        let bound = secrets
            .vault
            .lease(&namespace, std::slice::from_ref(&name))
            .unwrap();
        let source = Source {
            namespace: namespace.clone(),
            names: vec![name.clone()],
            generation: secrets.vault.generation(),
        };
        let redactor = || secrets.redactor_of_bound(&namespace, &bound);
        let made = redactor().await.unwrap();
        let text = made.text("first-canary of one@example.com");
        assert_eq!(text, "***REDACTED*** of one@example.com");
        assert!(secrets.known(&source, Personal::Keep).is_some());
        assert!(secrets.known(&source, Personal::Remove).is_none());
        let other = Redactor::new(["another one"], Forms::All, Personal::Keep);
        secrets.keep(source.clone(), Personal::Keep, other);
        lock(&secrets.kept).pop_front();
        assert_eq!(redactor().await.unwrap().text("another one"), "***REDACTED***");
        // A value that the vault no longer has is not cached.
        put(&secrets.vault, "second-canary");
        secrets.forget_old();
        assert_eq!(redactor().await.unwrap().text("first-canary"), "***REDACTED***");
        assert!(lock(&secrets.kept).is_empty());
    }

    #[tokio::test]
    async fn session_gets_a_new_redactor_only_if_the_vault_has_changed() {
        let vault = Vault::open(VaultSettings::Memory).unwrap();
        let secrets = Secrets::new(vault, Personal::Keep, Bus::new());
        let (namespace, key) = (Namespace::default_name(), "KEY".parse::<EnvName>().unwrap());
        let put = |name: &str, text: String| {
            let (name, value) = (name.parse().unwrap(), SecretValue::new(text).unwrap());
            secrets.vault.put(&namespace, &name, value, None).unwrap();
        };
        put("KEY", "old-value".to_owned());
        let earlier = secrets.vault.lease(&namespace, &[key]).unwrap();
        put("KEY", "x".repeat(LARGE_BYTES));
        let kept = KeptRedactor::default();
        let got = secrets.kept_redactor(&kept, &namespace, &earlier).await.unwrap();
        assert!(!got.text("an old-value").contains("old-value"));
        // A large redactor cannot be made meanwhile.
        let turn = secrets.making.clone().lock_owned().await;
        let mut context = task::Context::from_waker(task::Waker::noop());
        let mut again = pin!(secrets.kept_redactor(&kept, &namespace, &earlier));
        assert!(again.as_mut().poll(&mut context).is_ready());
        put("OTHER", "another-value".to_owned());
        let mut changed = pin!(secrets.kept_redactor(&kept, &namespace, &earlier));
        assert!(changed.as_mut().poll(&mut context).is_pending());
        drop(turn);
        assert!(!changed.await.unwrap().text("another-value").contains("another"));
    }
}
