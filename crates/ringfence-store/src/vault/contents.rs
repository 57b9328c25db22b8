//! What a vault holds, by namespace, within its limits. Pure: time is given, nothing is read or written. A copy shares
//! the values, so a change is made on a copy and takes its place whole.

use super::{
    error::{BYTES_MAX, Limit, NAMESPACE_BYTES_MAX, NAMESPACE_SECRETS_MAX, SECRETS_MAX, VaultError},
    value::SecretValue,
};
use ringfence_types::{EnvName, Namespace};
use std::{collections::BTreeMap, sync::Arc};

/// What is counted against the limits.
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
    /// The first limit that a namespace with so much, in a vault with so much, has passed.
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
    namespaces: BTreeMap<Namespace, BTreeMap<EnvName, Kept>>,
    count: Total,
    /// Nothing expires before it, so that the time is nearly always told without a look at everything.
    expires_from_unix_ms: Option<u64>,
}

#[derive(Clone)]
pub(super) struct Kept {
    pub(super) value: Arc<SecretValue>,
    /// None: unknown, it came from the environment.
    pub(super) created_unix_ms: Option<u64>,
    /// None: it stays until it is deleted. From this moment on it is gone.
    pub(super) expires_unix_ms: Option<u64>,
}

impl Contents {
    /// True: it took the place of another. On refusal nothing has changed.
    pub(super) fn put(
        &mut self,
        namespace: &Namespace,
        key: &EnvName,
        kept: Kept,
    ) -> Result<bool, VaultError> {
        let secrets = self.namespaces.entry(namespace.clone()).or_default();
        let (mut own, mut all) = (Total::default(), self.count);
        for (_, other) in secrets.iter().filter(|(other, _)| *other != key) {
            own.add(&other.value);
        }
        if let Some(replaced) = secrets.get(key) {
            all.remove(&replaced.value);
        }
        own.add(&kept.value);
        all.add(&kept.value);
        if let Some(limit) = Limit::passed(own, all) {
            return Err(VaultError::Full { limit });
        }
        let ends = self.expires_from_unix_ms.into_iter().chain(kept.expires_unix_ms);
        self.expires_from_unix_ms = ends.min();
        self.count = all;
        Ok(secrets.insert(key.clone(), kept).is_some())
    }

    /// False: there was none.
    pub(super) fn delete(&mut self, namespace: &Namespace, key: &EnvName) -> bool {
        let secrets = self.namespaces.get_mut(namespace);
        let deleted = secrets.and_then(|secrets| secrets.remove(key));
        if let Some(deleted) = &deleted {
            self.count.remove(&deleted.value);
        }
        deleted.is_some()
    }

    /// Drops what has expired; true when there was any.
    pub(super) fn sweep(&mut self, now_unix_ms: u64) -> bool {
        let expired = |end: u64| end <= now_unix_ms;
        if !self.expires_from_unix_ms.is_some_and(expired) {
            return false;
        }
        let before = self.len();
        for secrets in self.namespaces.values_mut() {
            let gone = secrets.extract_if(.., |_, kept| kept.expires_unix_ms.is_some_and(expired));
            gone.for_each(|(_, kept)| self.count.remove(&kept.value));
        }
        self.expires_from_unix_ms = self.each().filter_map(|(_, _, kept)| kept.expires_unix_ms).min();
        self.len() < before
    }

    pub(super) fn get(&self, namespace: &Namespace, key: &EnvName) -> Option<&Kept> {
        self.namespaces.get(namespace)?.get(key)
    }

    /// One namespace, in the order of its keys.
    pub(super) fn of(&self, namespace: &Namespace) -> impl Iterator<Item = (&EnvName, &Kept)> {
        self.namespaces.get(namespace).into_iter().flatten()
    }

    /// Everything, in the order of namespaces and keys.
    pub(super) fn each(&self) -> impl Iterator<Item = (&Namespace, &EnvName, &Kept)> {
        let each = |(namespace, secrets)| Iterator::zip(std::iter::repeat(namespace), secrets);
        let all = self.namespaces.iter().flat_map(each);
        all.map(|(namespace, (key, kept))| (namespace, key, kept))
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

    fn kept(bytes: usize) -> Kept {
        Kept {
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
    fn a_namespace_has_a_number_of_secrets() {
        let (mut contents, a) = (Contents::default(), namespace("a"));
        for number in 0..NAMESPACE_SECRETS_MAX {
            assert!(!contents.put(&a, &key(number), kept(1)).unwrap());
        }
        assert_eq!(
            refused(contents.put(&a, &key(5_000), kept(1))),
            Limit::NamespaceSecrets
        );
        assert!(
            contents.put(&a, &key(7), kept(2)).unwrap(),
            "a full namespace still takes a replacement"
        );
        assert!(!contents.put(&namespace("b"), &key(0), kept(1)).unwrap());
        assert!(contents.delete(&a, &key(0)));
        assert!(!contents.put(&a, &key(5_000), kept(1)).unwrap());
    }

    #[test]
    fn all_namespaces_together_have_a_number_of_secrets() {
        let mut contents = Contents::default();
        for number in 0..SECRETS_MAX {
            contents
                .put(&namespace(&format!("n{}", number / 900)), &key(number), kept(1))
                .unwrap();
        }
        assert_eq!(contents.len(), SECRETS_MAX);
        assert_eq!(
            refused(contents.put(&namespace("new"), &key(0), kept(1))),
            Limit::Secrets
        );
        assert!(contents.of(&namespace("new")).next().is_none());
    }

    #[test]
    fn bytes_are_counted_by_namespace_and_in_all() {
        let mut contents = Contents::default();
        for name in ["a", "b", "c", "d"] {
            for number in 0..4 {
                contents
                    .put(&namespace(name), &key(number), kept(64 << 10))
                    .unwrap();
            }
        }
        assert_eq!(
            refused(contents.put(&namespace("a"), &key(9), kept(1))),
            Limit::NamespaceBytes
        );
        assert_eq!(
            refused(contents.put(&namespace("e"), &key(9), kept(1))),
            Limit::Bytes
        );
        assert!(
            contents
                .put(&namespace("a"), &key(0), kept((64 << 10) - 1))
                .unwrap()
        );
        assert!(!contents.put(&namespace("e"), &key(9), kept(1)).unwrap());
        assert_eq!(
            refused(contents.put(&namespace("a"), &key(0), kept(64 << 10))),
            Limit::Bytes
        );
        assert_eq!(
            contents.get(&namespace("a"), &key(0)).unwrap().value.len(),
            (64 << 10) - 1
        );
    }

    #[test]
    fn what_expires_gives_its_room_back() {
        let (mut contents, a) = (Contents::default(), namespace("a"));
        // put in no order of time, one of them for ever
        for (number, end) in [Some(2_000), Some(1_000), None, Some(3_000)]
            .into_iter()
            .enumerate()
        {
            let mut kept = kept(64 << 10);
            kept.expires_unix_ms = end;
            contents.put(&a, &key(number), kept).unwrap();
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
        assert!(contents.put(&a, &key(2), kept(64 << 10)).unwrap());
        for number in 3..6 {
            assert!(!contents.put(&a, &key(number), kept(64 << 10)).unwrap());
        }
        assert_eq!(refused(contents.put(&a, &key(6), kept(1))), Limit::NamespaceBytes);
    }

    #[test]
    fn what_is_replaced_or_deleted_before_its_end_does_not_expire() {
        let (mut contents, a) = (Contents::default(), namespace("a"));
        for number in 0..2 {
            let mut brief = kept(1);
            brief.expires_unix_ms = Some(1_000);
            contents.put(&a, &key(number), brief).unwrap();
        }
        contents.put(&a, &key(0), kept(1)).unwrap();
        assert!(contents.delete(&a, &key(1)) && !contents.delete(&a, &key(1)));
        assert!(!contents.sweep(2_000));
        assert_eq!(contents.len(), 1);
        assert!(contents.delete(&a, &key(0)) && contents.each().next().is_none());
    }
}
