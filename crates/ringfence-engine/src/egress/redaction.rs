//! Keeps a program's secrets out of what is told of its connections: in results, in events, and on record. A name is
//! told in lower case, so that secrets are looked for in lower case, too.

use crate::{events::EgressFacts, secrets::SecretLease};
use ringfence_egress::EgressReport;
use ringfence_redact::{REDACTED, Redactor};
use std::{borrow::Cow, sync::Arc};
use zeroize::Zeroizing;

#[derive(Clone)]
pub(super) struct EgressRedactor {
    redactor: Redactor,
    /// The secrets that are long enough to be looked for, in lower case.
    lowered: Arc<[Zeroizing<String>]>,
}

impl EgressRedactor {
    pub(super) fn of(lease: &SecretLease) -> Self {
        let secrets = lease.secrets.iter().map(|(_, value)| value.expose());
        let long_enough = secrets.filter(|secret| Redactor::is_redactable(secret).is_ok());
        Self {
            redactor: lease.redactor.clone(),
            lowered: long_enough
                .map(|secret| Zeroizing::new(secret.to_ascii_lowercase()))
                .collect(),
        }
    }

    fn over(&self, text: &mut String) {
        if self.redactor.is_idle() {
            return;
        }
        if let Cow::Owned(clean) = self.redactor.text(text) {
            *text = clean;
        }
        let low = Zeroizing::new(text.to_ascii_lowercase());
        if self.lowered.iter().any(|secret| low.contains(secret.as_str())) {
            *text = REDACTED.to_owned();
        }
    }

    pub(super) fn hides(&self, text: &str) -> bool {
        let mut over = text.to_owned();
        self.over(&mut over);
        over != text
    }

    pub(super) fn over_traffic(&self, traffic: &mut EgressReport) {
        traffic
            .reached
            .iter_mut()
            .for_each(|reached| self.over(&mut reached.end.name));
        for denial in &mut traffic.denials {
            self.over(&mut denial.what);
            self.over(&mut denial.hint);
        }
    }

    pub(super) fn over_facts(&self, facts: &mut EgressFacts) {
        let texts = [
            &mut facts.host,
            &mut facts.method,
            &mut facts.path,
            &mut facts.what,
            &mut facts.hint,
        ];
        texts.into_iter().flatten().for_each(|text| self.over(text));
    }
}
