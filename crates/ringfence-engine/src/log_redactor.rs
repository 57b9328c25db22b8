//! Keeps every value of the vault out of the operator's log, in every namespace and whatever a message repeats. It
//! costs one look at the vault for a line as long as nothing has changed.

use crate::sync::lock;
use ringfence_redact::{Forms, Personal, Redactor};
use ringfence_store::vault::{SecretValue, Vault};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use zeroize::Zeroizing;

/// A thread that panics while it holds the vault writes with what was known before.
const PATIENCE: Duration = Duration::from_millis(50);

/// Takes the vault's values out of lines, each whole. People's addresses and numbers stay: a log is full of numbers,
/// and it never holds what a program printed.
pub struct LogRedactor {
    vault: Arc<Vault>,
    known: Mutex<Known>,
}

#[derive(Clone)]
struct Known {
    generation: u64,
    redactor: Redactor,
}

impl LogRedactor {
    pub(crate) fn new(vault: &Arc<Vault>) -> Self {
        let known = Known {
            generation: 0,
            redactor: Redactor::none(),
        };
        Self {
            vault: vault.clone(),
            known: Mutex::new(known),
        }
    }

    pub fn bytes(&self, line: &[u8]) -> Vec<u8> {
        self.redactor().bytes(line).into_owned()
    }

    pub fn text(&self, text: &str) -> String {
        self.redactor().text(text).into_owned()
    }

    /// The lock is never held while something else is called, which may log or panic itself.
    fn redactor(&self) -> Redactor {
        let known = lock(&self.known).clone();
        let Some((generation, values)) = self.vault.values_after(known.generation, PATIENCE) else {
            return known.redactor;
        };
        let redactor = redactor_of(&values);
        let mut known = lock(&self.known);
        if known.generation < generation {
            *known = Known {
                generation,
                redactor: redactor.clone(),
            };
        }
        redactor
    }
}

/// Each value as it is, and as `{:?}` writes it; the redactor adds how either stands in JSON.
fn redactor_of(values: &[Arc<SecretValue>]) -> Redactor {
    let quoted: Vec<Zeroizing<String>> = values
        .iter()
        .map(|value| Zeroizing::new(format!("{:?}", value.expose())))
        .collect();
    let plain = values.iter().map(|value| value.expose());
    let quoted = quoted.iter().map(|text| text.trim_matches('"'));
    Redactor::new(plain.chain(quoted), Forms::Plain, Personal::Keep)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_store::vault::VaultSettings;
    use ringfence_types::{EnvName, Namespace};

    fn put(vault: &Vault, name: &str, text: &str) {
        let (namespace, key) = (
            Namespace::try_from("team".to_owned()).unwrap(),
            EnvName::try_from(name.to_owned()).unwrap(),
        );
        let value = SecretValue::new(text.to_owned()).unwrap();
        vault.put(&namespace, &key, value, None).unwrap();
    }

    #[test]
    fn values_that_come_later_are_taken_out_too() {
        let vault = Arc::new(Vault::open(VaultSettings::Memory).unwrap());
        let redactor = LogRedactor::new(&vault);
        assert_eq!(redactor.text("first-canary"), "first-canary");
        put(&vault, "ONE", "first-canary");
        assert_eq!(redactor.text("a first-canary b"), "a ***REDACTED*** b");
        put(&vault, "TWO", "second-canary");
        assert_eq!(redactor.bytes(b"second-canary\n"), b"***REDACTED***\n");
    }

    #[test]
    fn values_are_found_as_messages_quote_them() {
        let vault = Arc::new(Vault::open(VaultSettings::Memory).unwrap());
        let secret = "pass\"word\\with\tall";
        put(&vault, "ONE", secret);
        let redactor = LogRedactor::new(&vault);
        let quoted = format!("{secret:?}");
        for said in [secret.to_owned(), quoted] {
            let line = serde_json::json!({"message": said}).to_string();
            let clean = redactor.text(&line);
            assert!(
                clean.contains("***REDACTED***") && !clean.contains("word"),
                "{clean}"
            );
        }
    }
}
