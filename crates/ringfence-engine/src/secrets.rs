//! The secrets that one request has been lent, and what keeps them out of what leaves.

use crate::{engine::House, events::EventKind, policy::Grant, record::Opened};
use ringfence_redact::{Forms, Redactor};
use ringfence_store::{
    audit::{Action, Outcome},
    vault::{SecretValue, VaultError},
};
use ringfence_types::{EnvName, ErrorCode, Namespace, RequestError};
use serde_json::json;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

/// Redactors that were made lately, because making one takes longer than a run with a few secrets.
const KEPT_MAX: usize = 16;

/// Secrets of one request. They are wiped when nobody holds them any more.
pub(crate) struct SecretLease {
    pub(crate) secrets: Vec<(EnvName, Arc<SecretValue>)>,
    pub(crate) redactor: Redactor,
}

/// What a redactor was made from.
#[derive(Clone, PartialEq, Eq)]
struct Source {
    namespace: Namespace,
    names: Vec<EnvName>,
    generation: u64,
}

/// Redactors by what they look for.
#[derive(Default)]
pub(crate) struct Redactors {
    kept: Mutex<VecDeque<(Source, Redactor)>>,
}

/// Lends a request what its grant says. That it was lent is on record before it is.
pub(crate) async fn lease(
    house: &House,
    opened: &Opened,
    grant: &Grant,
) -> Result<SecretLease, RequestError> {
    let request = grant.request();
    if request.secrets.is_empty() {
        return Ok(SecretLease {
            secrets: Vec::new(),
            redactor: house.personal.clone(),
        });
    }
    let names: Vec<EnvName> = request.secrets.iter().cloned().collect();
    let shown: Vec<&str> = names.iter().map(EnvName::as_str).collect();
    let generation = house.vault.generation();
    let leased = house.vault.lease(&request.namespace, &names);
    let (outcome, details) = match &leased {
        Ok(_) => (Outcome::Ok, json!({"secrets": shown})),
        Err(error) => (
            Outcome::Failed,
            json!({"secrets": shown, "why": error.to_string()}),
        ),
    };
    opened.step(Action::VaultAccessed, outcome, details).await?;
    let secrets = leased.map_err(|error| refusal(&request.namespace, &error))?;
    let event = EventKind::VaultAccessed {
        secrets: shown.iter().map(|name| (*name).to_owned()).collect(),
    };
    house
        .bus
        .tell(request.namespace.as_str(), Some(opened.id()), event);
    let source = Source {
        namespace: request.namespace.clone(),
        names,
        generation,
    };
    let make = || {
        let values = secrets.iter().map(|(_, value)| value.expose());
        Redactor::new(values, Forms::All, house.settings.record.personal)
    };
    Ok(SecretLease {
        redactor: house.redactors.get(source, make),
        secrets,
    })
}

impl SecretLease {
    /// Names of secrets that are too short to be looked for.
    pub(crate) fn unredactable(&self) -> Vec<(&EnvName, &'static str)> {
        let reason = |value: &SecretValue| Redactor::is_redactable(value.expose()).err();
        let secrets = self.secrets.iter();
        secrets
            .filter_map(|(name, value)| Some((name, reason(value)?)))
            .collect()
    }
}

impl Redactors {
    fn get(&self, source: Source, make: impl FnOnce() -> Redactor) -> Redactor {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // What the vault no longer has is not kept here either.
        kept.retain(|(known, _)| known.generation == source.generation);
        if let Some(at) = kept.iter().position(|(known, _)| *known == source)
            && let Some((source, redactor)) = kept.remove(at)
        {
            kept.push_back((source, redactor.clone()));
            return redactor;
        }
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        let redactor = make();
        kept.push_back((source, redactor.clone()));
        redactor
    }
}

/// What a caller may know of a vault's refusal.
pub(crate) fn refusal(namespace: &Namespace, error: &VaultError) -> RequestError {
    match error {
        VaultError::NotFound { .. } => RequestError::new(
            ErrorCode::SecretUnavailable,
            format!("the namespace `{namespace}` has no such secret: {error}."),
            "`vault_list` names those it has; the operator adds one with `ringfence vault add`.",
        ),
        _ => RequestError::new(
            ErrorCode::StoreFault,
            format!("the vault cannot do that: {error}."),
            "`ringfence vault list` on the host says more.",
        ),
    }
}
