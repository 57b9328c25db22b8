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
    vault::{SecretValue, Vault, VaultError},
};
use ringfence_types::{EnvName, ErrorCode, Namespace, RequestError};
use serde_json::json;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, Weak},
};

/// Most cached redactors. They are cached because making one takes longer than a run with a few secrets.
const KEPT_MAX: usize = 64;
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

pub(crate) struct Secrets {
    /// Shared with the log writer.
    pub(crate) vault: Arc<Vault>,
    /// The most recently used redactors.
    kept: Mutex<VecDeque<KeptRedactor>>,
    /// Held while a large redactor is made.
    making: Arc<tokio::sync::Mutex<()>>,
    /// The redactor of requests without secrets.
    personal: Redactor,
    takes_personal: Personal,
    bus: Bus,
}

/// A cached redactor, as long as the vault or a lease has all of its values.
struct KeptRedactor {
    values: Vec<Weak<SecretValue>>,
    personal: Personal,
    redactor: Redactor,
}

impl KeptRedactor {
    fn is_of(&self, secrets: &[(EnvName, Arc<SecretValue>)]) -> bool {
        let is_same = |(own, (_, value)): (&Weak<SecretValue>, &(EnvName, Arc<SecretValue>))| {
            Weak::as_ptr(own) == Arc::as_ptr(value)
        };
        self.values.len() == secrets.len() && self.values.iter().zip(secrets).all(is_same)
    }

    fn is_needed(&self) -> bool {
        self.values.iter().all(|value| value.strong_count() > 0)
    }
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

    /// Drops redactors with values that neither the vault nor a lease has.
    pub(crate) fn forget_old(&self) {
        if lock(&self.kept).is_empty() {
            return;
        }
        // Every operation of the vault removes expired values.
        self.vault.is_empty();
        lock(&self.kept).retain(KeptRedactor::is_needed);
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
        let leased = self
            .with_vault(move |vault| vault.lease(&namespace, &wanted))
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
        let redactor = match redacted {
            Redacted::Leased => self.redactor_of(&secrets, self.takes_personal).await?,
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
        let mut secrets = match self.vault.all_now(namespace) {
            Some(secrets) => secrets,
            None => self.ask(namespace, Vault::all).await?,
        };
        let is_old = |(_, value): &&(EnvName, Arc<SecretValue>)| {
            !secrets.iter().any(|(_, now)| now.expose() == value.expose())
        };
        let old: Vec<_> = earlier.iter().filter(is_old).cloned().collect();
        secrets.extend(old);
        if secrets.is_empty() {
            return Ok(self.personal.clone());
        }
        self.redactor_of(&secrets, self.takes_personal).await
    }

    /// Returns the redactor of leased secrets that are bound to hosts, for the answers of these.
    pub(crate) async fn redactor_of_bound(
        &self,
        secrets: &[(EnvName, Arc<SecretValue>)],
    ) -> Result<Redactor> {
        if secrets.is_empty() {
            return Ok(Redactor::none());
        }
        self.redactor_of(secrets, Personal::Keep).await
    }

    /// Returns the cached redactor for the same values, or a new one, which for long secrets takes most of a second.
    async fn redactor_of(
        &self,
        secrets: &[(EnvName, Arc<SecretValue>)],
        personal: Personal,
    ) -> Result<Redactor> {
        if let Some(known) = self.known(secrets, personal) {
            return Ok(known);
        }
        let values: Vec<Arc<SecretValue>> = secrets.iter().map(|(_, value)| value.clone()).collect();
        let bytes: usize = values.iter().map(|value| value.len()).sum();
        let mut turn = None;
        if bytes >= LARGE_BYTES {
            turn = Some(self.making.clone().lock_owned().await);
            // Another request may have made it meanwhile.
            if let Some(known) = self.known(secrets, personal) {
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
        self.keep(secrets, personal, made.clone());
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

    fn known(&self, secrets: &[(EnvName, Arc<SecretValue>)], personal: Personal) -> Option<Redactor> {
        let mut kept = lock(&self.kept);
        kept.retain(KeptRedactor::is_needed);
        let at = kept
            .iter()
            .position(|one| one.personal == personal && one.is_of(secrets))?;
        let found = kept.remove(at)?;
        let redactor = found.redactor.clone();
        kept.push_back(found);
        Some(redactor)
    }

    fn keep(&self, secrets: &[(EnvName, Arc<SecretValue>)], personal: Personal, redactor: Redactor) {
        let mut kept = lock(&self.kept);
        kept.push_back(KeptRedactor {
            values: secrets.iter().map(|(_, value)| Arc::downgrade(value)).collect(),
            personal,
            redactor,
        });
        while kept.len() > KEPT_MAX
            || (kept.len() > 1 && kept.iter().map(|one| one.redactor.states()).sum::<usize>() > STATES_MAX)
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

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_store::vault::VaultSettings;
    use std::{future::Future, pin::pin, task};

    #[tokio::test]
    async fn large_redactors_are_made_one_at_a_time_and_equal_ones_once() {
        let vault = Vault::open(VaultSettings::Memory).unwrap();
        let secrets = Secrets::new(vault, Personal::Keep, Bus::new());
        let of_bytes = |bytes: usize| {
            let value = SecretValue::new("x".repeat(bytes)).unwrap();
            [("KEY".parse::<EnvName>().unwrap(), Arc::new(value))]
        };
        let (large, smaller) = (of_bytes(LARGE_BYTES), of_bytes(LARGE_BYTES - 1));
        let turn = secrets.making.clone().lock_owned().await;
        let mut waiting = pin!(secrets.redactor_of(&large, Personal::Keep));
        let mut context = task::Context::from_waker(task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        // A smaller one does not wait.
        secrets.redactor_of(&smaller, Personal::Keep).await.unwrap();
        let made = Redactor::new(["another one"], Forms::All, Personal::Keep);
        secrets.keep(&large, Personal::Keep, made.clone());
        drop(turn);
        let got = waiting.await.unwrap();
        assert_eq!(got.states(), made.states());
    }

    /// A vault in memory with secrets of one namespace.
    struct Fixture {
        secrets: Secrets,
        namespace: Namespace,
    }

    impl Fixture {
        fn new(personal: Personal) -> Self {
            let vault = Vault::open(VaultSettings::Memory).unwrap();
            Self {
                secrets: Secrets::new(vault, personal, Bus::new()),
                namespace: Namespace::default_name(),
            }
        }

        fn put(&self, name: &str, text: &str) {
            let (name, value) = (name.parse().unwrap(), SecretValue::new(text.to_owned()).unwrap());
            let vault = &self.secrets.vault;
            vault.put(&self.namespace, &name, value, None).unwrap();
        }

        fn lease(&self, name: &str) -> Vec<(EnvName, Arc<SecretValue>)> {
            let names = [name.parse().unwrap()];
            self.secrets.vault.lease(&self.namespace, &names).unwrap()
        }

        async fn all(&self, earlier: &[(EnvName, Arc<SecretValue>)]) -> Redactor {
            let all = self.secrets.redactor_of_all(&self.namespace, earlier);
            all.await.unwrap()
        }
    }

    #[tokio::test]
    async fn redactor_of_bound_secrets_is_cached_and_keeps_personal_data() {
        let fixture = Fixture::new(Personal::Remove);
        let secrets = &fixture.secrets;
        fixture.put("KEY", "first-canary");
        let bound = fixture.lease("KEY");
        let made = secrets.redactor_of_bound(&bound).await.unwrap();
        let text = made.text("first-canary of one@example.com");
        assert_eq!(text, "***REDACTED*** of one@example.com");
        assert!(secrets.known(&bound, Personal::Keep).is_some());
        assert!(secrets.known(&bound, Personal::Remove).is_none());
        // A lease keeps it; with the last owner of a value it is dropped.
        fixture.put("KEY", "second-canary");
        secrets.forget_old();
        assert!(secrets.known(&bound, Personal::Keep).is_some());
        drop(bound);
        secrets.forget_old();
        assert!(lock(&secrets.kept).is_empty());
    }

    #[tokio::test]
    async fn added_secret_is_redacted_at_once_and_an_expired_one_drops_its_redactor() {
        let fixture = Fixture::new(Personal::Keep);
        fixture.put("KEY", "first-canary");
        assert_eq!(fixture.all(&[]).await.text("first-canary"), "***REDACTED***");
        fixture.put("OTHER", "second-canary");
        assert_eq!(fixture.all(&[]).await.text("second-canary"), "***REDACTED***");
        assert_eq!(lock(&fixture.secrets.kept).len(), 2);
        let name = "OTHER".parse().unwrap();
        fixture.secrets.vault.delete(&fixture.namespace, &name).unwrap();
        fixture.secrets.forget_old();
        assert_eq!(lock(&fixture.secrets.kept).len(), 1);
        assert_eq!(fixture.all(&[]).await.text("second-canary"), "second-canary");
        let (name, short) = (
            "SHORT".parse().unwrap(),
            SecretValue::new("third-canary".to_owned()).unwrap(),
        );
        let ttl = Some(std::time::Duration::from_secs(1));
        fixture
            .secrets
            .vault
            .put(&fixture.namespace, &name, short, ttl)
            .unwrap();
        fixture.all(&[]).await;
        assert_eq!(lock(&fixture.secrets.kept).len(), 2);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while lock(&fixture.secrets.kept).len() > 1 {
            assert!(std::time::Instant::now() < deadline, "it has expired");
            tokio::task::yield_now().await;
            fixture.secrets.forget_old();
        }
    }

    #[tokio::test]
    async fn session_gets_a_new_redactor_only_if_its_values_have_changed() {
        let fixture = Fixture::new(Personal::Keep);
        fixture.put("KEY", "old-value");
        let earlier = fixture.lease("KEY");
        fixture.put("KEY", &"x".repeat(LARGE_BYTES));
        let got = fixture.all(&earlier).await;
        assert!(!got.text("an old-value").contains("old-value"));
        // A large redactor cannot be made meanwhile.
        let turn = fixture.secrets.making.clone().lock_owned().await;
        let mut context = task::Context::from_waker(task::Waker::noop());
        let mut again = pin!(fixture.all(&earlier));
        assert!(again.as_mut().poll(&mut context).is_ready());
        fixture.put("OTHER", "another-value");
        let mut changed = pin!(fixture.all(&earlier));
        assert!(changed.as_mut().poll(&mut context).is_pending());
        drop(turn);
        assert!(!changed.await.text("another-value").contains("another"));
    }
}
