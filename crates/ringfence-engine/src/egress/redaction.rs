//! Redacts reports of a program's connections. Host names are in lower case there, so secrets are searched in it, too.

use crate::{events::EgressFacts, secrets::SecretLease};
use ringfence_egress::EgressReport;
use ringfence_redact::{REDACTED, Redactor};
use std::{borrow::Cow, sync::Arc};
use zeroize::Zeroizing;

#[derive(Clone)]
pub(super) struct EgressRedactor {
    redactor: Redactor,
    /// The secrets that are long enough to be redacted, in lower case.
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

    fn redact(&self, text: &mut String) {
        if self.redactor.is_idle() {
            return;
        }
        if let Cow::Owned(clean) = self.redactor.text(text) {
            *text = clean;
        }
        let lower = Zeroizing::new(text.to_ascii_lowercase());
        if self.lowered.iter().any(|secret| lower.contains(secret.as_str())) {
            *text = REDACTED.to_owned();
        }
    }

    pub(super) fn redacts(&self, text: &str) -> bool {
        let mut redacted = text.to_owned();
        self.redact(&mut redacted);
        redacted != text
    }

    pub(super) fn redact_report(&self, report: &mut EgressReport) {
        report
            .reached
            .iter_mut()
            .for_each(|reached| self.redact(&mut reached.end.name));
        for denial in &mut report.denials {
            self.redact(&mut denial.what);
            self.redact(&mut denial.hint);
        }
    }

    pub(super) fn redact_facts(&self, facts: &mut EgressFacts) {
        let texts = [
            &mut facts.host,
            &mut facts.method,
            &mut facts.path,
            &mut facts.what,
            &mut facts.hint,
        ];
        texts.into_iter().flatten().for_each(|text| self.redact(text));
    }
}
