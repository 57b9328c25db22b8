//! The secrets of a vault, by namespace, within the limits. Pure: time is a parameter, and there is no I/O. Copies
//! share the values, so a change is made on a copy, which then replaces the original.

use super::{
    error::{BYTES_MAX, Limit, NAMESPACE_BYTES_MAX, NAMESPACE_SECRETS_MAX, SECRETS_MAX, VaultError},
    value::SecretValue,
};
use ringfence_types::{EnvName, Namespace};
use std::{collections::BTreeMap, sync::Arc};

#[derive(Clone, Copy, Default)]
struct Total {
    secrets: usize,
    bytes: usize,
}

impl Total {
    fn add(&mut self, value: &SecretValue) {
        self.secrets += 1;
        self.bytes += value.len();
    }

    fn remove(&mut self, value: &SecretValue) {
        self.secrets -= 1;
        self.bytes -= value.len();
    }
}

impl Limit {
    /// Returns the first limit that the counts of a namespace and of the whole vault exceed.
    fn passed(own: Total, all: Total) -> Option<Self> {
        let limits = [
            (own.secrets > NAMESPACE_SECRETS_MAX, Self::NamespaceSecrets),
            (own.bytes > NAMESPACE_BYTES_MAX, Self::NamespaceBytes),
            (all.secrets > SECRETS_MAX, Self::Secrets),
            (all.bytes > BYTES_MAX, Self::Bytes),
        ];
        let passed = limits.into_iter().find(|(passed, _)| *passed);
        passed.map(|(_, limit)| limit)
    }
}

#[derive(Clone, Default)]
pub(super) struct Contents {
    namespaces: BTreeMap<Namespace, BTreeMap<EnvName, StoredSecret>>,
    count: Total,
    /// The earliest expiry or before, so that most sweeps need not visit all secrets.
    expires_from_unix_ms: Option<u64>,
}

#[derive(Clone)]
pub(super) struct StoredSecret {
    pub(super) value: Arc<SecretValue>,
    /// None if unknown: the value is from the environment.
    pub(super) created_unix_ms: Option<u64>,
    /// The secret has expired from this moment on; None if it does not expire.
    pub(super) expires_unix_ms: Option<u64>,
}

impl Contents {
    /// Stores a secret; returns true if it replaced one. On error nothing has changed.
    pub(super) fn put(
        &mut self,
        namespace: &Namespace,
        key: &EnvName,
        secret: StoredSecret,
    ) -> Result<bool, VaultError> {
        let secrets = self.namespaces.entry(namespace.clone()).or_default();
        let (mut own, mut all) = (Total::default(), self.count);
        for (_, other) in secrets.iter().filter(|(other, _)| *other != key) {
            own.add(&other.value);
        }
        if let Some(replaced) = secrets.get(key) {
            all.remove(&replaced.value);
        }
        own.add(&secret.value);
        all.add(&secret.value);
        if let Some(limit) = Limit::passed(own, all) {
            return Err(VaultError::Full { limit });
        }
        let ends = [self.expires_from_unix_ms, secret.expires_unix_ms];
        self.expires_from_unix_ms = ends.into_iter().flatten().min();
        self.count = all;
        Ok(secrets.insert(key.clone(), secret).is_some())
    }

    pub(super) fn delete(&mut self, namespace: &Namespace, key: &EnvName) -> bool {
        let secrets = self.namespaces.get_mut(namespace);
        let deleted = secrets.and_then(|secrets| secrets.remove(key));
        if let Some(deleted) = &deleted {
            self.count.remove(&deleted.value);
        }
        deleted.is_some()
    }

    /// Removes expired secrets; returns true if there were any.
    pub(super) fn sweep(&mut self, now_unix_ms: u64) -> bool {
        let expired = |end: u64| end <= now_unix_ms;
        if !self.expires_from_unix_ms.is_some_and(expired) {
            return false;
        }
        let before = self.len();
        for secrets in self.namespaces.values_mut() {
            let gone = secrets.extract_if(.., |_, secret| secret.expires_unix_ms.is_some_and(expired));
            gone.for_each(|(_, secret)| self.count.remove(&secret.value));
        }
        self.expires_from_unix_ms = self.each().filter_map(|(_, _, one)| one.expires_unix_ms).min();
        self.len() < before
    }

    pub(super) fn get(&self, namespace: &Namespace, key: &EnvName) -> Option<&StoredSecret> {
        self.namespaces.get(namespace)?.get(key)
    }

    /// The secrets of a namespace, in the order of their keys.
    pub(super) fn of(&self, namespace: &Namespace) -> impl Iterator<Item = (&EnvName, &StoredSecret)> {
        self.namespaces.get(namespace).into_iter().flatten()
    }

    /// All secrets, in the order of namespaces and keys.
    pub(super) fn each(&self) -> impl Iterator<Item = (&Namespace, &EnvName, &StoredSecret)> {
        let each = |(namespace, secrets)| Iterator::zip(std::iter::repeat(namespace), secrets);
        let all = self.namespaces.iter().flat_map(each);
        all.map(|(namespace, (key, secret))| (namespace, key, secret))
    }

    pub(super) fn len(&self) -> usize {
        self.count.secrets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::namespace;

    fn key(number: usize) -> EnvName {
        EnvName::try_from(format!("K{number}")).unwrap()
    }

    fn secret(bytes: usize) -> StoredSecret {
        StoredSecret {
            value: SecretValue::new("x".repeat(bytes)).unwrap().into(),
            created_unix_ms: Some(0),
            expires_unix_ms: None,
        }
    }

    fn refused(put: Result<bool, VaultError>) -> Limit {
        match put {
            Err(VaultError::Full { limit }) => limit,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn secrets_per_namespace_are_limited() {
        let (mut contents, a) = (Contents::default(), namespace("a"));
        for number in 0..NAMESPACE_SECRETS_MAX {
            assert!(!contents.put(&a, &key(number), secret(1)).unwrap());
        }
        assert_eq!(
            refused(contents.put(&a, &key(5_000), secret(1))),
            Limit::NamespaceSecrets
        );
        assert!(
            contents.put(&a, &key(7), secret(2)).unwrap(),
            "a full namespace still takes a replacement"
        );
        assert!(!contents.put(&namespace("b"), &key(0), secret(1)).unwrap());
        assert!(contents.delete(&a, &key(0)));
        assert!(!contents.put(&a, &key(5_000), secret(1)).unwrap());
    }

    #[test]
    fn secrets_in_total_are_limited() {
        let mut contents = Contents::default();
        for number in 0..SECRETS_MAX {
            contents
                .put(&namespace(&format!("n{}", number / 900)), &key(number), secret(1))
                .unwrap();
        }
        assert_eq!(contents.len(), SECRETS_MAX);
        assert_eq!(
            refused(contents.put(&namespace("new"), &key(0), secret(1))),
            Limit::Secrets
        );
        assert!(contents.of(&namespace("new")).next().is_none());
    }

    #[test]
    fn bytes_are_limited_per_namespace_and_in_total() {
        let mut contents = Contents::default();
        for name in ["a", "b", "c", "d"] {
            for number in 0..4 {
                contents
                    .put(&namespace(name), &key(number), secret(64 << 10))
                    .unwrap();
            }
        }
        assert_eq!(
            refused(contents.put(&namespace("a"), &key(9), secret(1))),
            Limit::NamespaceBytes
        );
        assert_eq!(
            refused(contents.put(&namespace("e"), &key(9), secret(1))),
            Limit::Bytes
        );
        assert!(
            contents
                .put(&namespace("a"), &key(0), secret((64 << 10) - 1))
                .unwrap()
        );
        assert!(!contents.put(&namespace("e"), &key(9), secret(1)).unwrap());
        assert_eq!(
            refused(contents.put(&namespace("a"), &key(0), secret(64 << 10))),
            Limit::Bytes
        );
        assert_eq!(
            contents.get(&namespace("a"), &key(0)).unwrap().value.len(),
            (64 << 10) - 1
        );
    }

    #[test]
    fn expired_secrets_free_their_space() {
        let (mut contents, a) = (Contents::default(), namespace("a"));
        // Not in the order of expiry, and one that does not expire.
        for (number, end) in [Some(2_000), Some(1_000), None, Some(3_000)]
            .into_iter()
            .enumerate()
        {
            let mut secret = secret(64 << 10);
            secret.expires_unix_ms = end;
            contents.put(&a, &key(number), secret).unwrap();
        }
        let mut check = |now_unix_ms: u64, swept: bool, left: usize| {
            assert_eq!(
                (contents.sweep(now_unix_ms), contents.len()),
                (swept, left),
                "{now_unix_ms}"
            );
        };
        check(999, false, 4);
        check(1_000, true, 3);
        check(1_999, false, 3);
        check(5_000, true, 1);
        check(u64::MAX, false, 1);
        assert!(contents.put(&a, &key(2), secret(64 << 10)).unwrap());
        for number in 3..6 {
            assert!(!contents.put(&a, &key(number), secret(64 << 10)).unwrap());
        }
        assert_eq!(
            refused(contents.put(&a, &key(6), secret(1))),
            Limit::NamespaceBytes
        );
    }

    #[test]
    fn replaced_or_deleted_secret_does_not_expire() {
        let (mut contents, a) = (Contents::default(), namespace("a"));
        for number in 0..2 {
            let mut brief = secret(1);
            brief.expires_unix_ms = Some(1_000);
            contents.put(&a, &key(number), brief).unwrap();
        }
        contents.put(&a, &key(0), secret(1)).unwrap();
        assert!(contents.delete(&a, &key(1)) && !contents.delete(&a, &key(1)));
        assert!(!contents.sweep(2_000));
        assert_eq!(contents.len(), 1);
        assert!(contents.delete(&a, &key(0)) && contents.each().next().is_none());
    }
}
