//! Keeps all values of the vault, of all namespaces, out of the operator's log, at one check of the vault per line.

use crate::sync::lock;
use ringfence_redact::{Forms, Personal, Redactor};
use ringfence_store::vault::{SecretValue, Vault};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use zeroize::Zeroizing;

/// Maximum wait for the vault. After it the values known before are used: a thread may panic while it holds the vault.
const PATIENCE: Duration = Duration::from_millis(50);

/// Removes the vault's values from whole lines. Personal data stay: a log is full of numbers, and it never contains the
/// output of a program.
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

    /// Returns the current redactor. The lock is never held across calls of other code, which may itself log or panic.
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

/// Builds a redactor of each value as it is and as `{:?}` formats it; the redactor itself adds the JSON form of both.
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
    fn values_stored_later_are_redacted_too() {
        let vault = Arc::new(Vault::open(VaultSettings::Memory).unwrap());
        let redactor = LogRedactor::new(&vault);
        assert_eq!(redactor.text("first-canary"), "first-canary");
        put(&vault, "ONE", "first-canary");
        assert_eq!(redactor.text("a first-canary b"), "a ***REDACTED*** b");
        put(&vault, "TWO", "second-canary");
        assert_eq!(redactor.bytes(b"second-canary\n"), b"***REDACTED***\n");
    }

    #[test]
    fn values_are_redacted_as_messages_quote_them() {
        let vault = Arc::new(Vault::open(VaultSettings::Memory).unwrap());
        let secret = "pass\"word\\with\tall";
        put(&vault, "ONE", secret);
        let redactor = LogRedactor::new(&vault);
        let quoted = format!("{secret:?}");
        for message in [secret.to_owned(), quoted] {
            let line = serde_json::json!({"message": message}).to_string();
            let clean = redactor.text(&line);
            assert!(
                clean.contains("***REDACTED***") && !clean.contains("word"),
                "{clean}"
            );
        }
    }
}
