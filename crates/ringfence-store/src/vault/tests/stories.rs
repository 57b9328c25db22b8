//! The vault from its callers' point of view, with every backend.

use crate::{
    vault::{
        tests::fixture::{Directory, cheap, key, namespace, passphrase, value},
        *,
    },
    whole_file::FileError,
};
use std::{
    fs,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

const NOW_MS: u64 = 1_700_000_000_000;

fn open(settings: VaultSettings) -> (Vault, Arc<AtomicU64>) {
    let now_ms = Arc::new(AtomicU64::new(NOW_MS));
    let shared = Arc::clone(&now_ms);
    let clock = move || UNIX_EPOCH + Duration::from_millis(shared.load(Ordering::Relaxed));
    (
        Vault::open_with(settings, Box::new(clock), cheap()).unwrap(),
        now_ms,
    )
}

fn in_file(directory: &Directory) -> VaultSettings {
    VaultSettings::File {
        path: directory.path("vault"),
        key: directory.key_file(),
    }
}

fn with_passphrase(directory: &Directory) -> VaultSettings {
    VaultSettings::File {
        path: directory.path("vault"),
        key: passphrase("words"),
    }
}

fn leased(vault: &Vault, of: &str, name: &str) -> Option<String> {
    match vault.lease(&namespace(of), &[key(name)]) {
        Ok(leased) => Some(leased[0].1.expose().to_owned()),
        Err(VaultError::NotFound { key }) if key.as_str() == name => None,
        Err(other) => panic!("{other:?}"),
    }
}

fn put(vault: &Vault, of: &str, name: &str, text: &str) -> Put {
    vault.put(&namespace(of), &key(name), value(text), None).unwrap()
}

#[test]
fn all_secrets_are_returned_at_once_until_the_file_changes() {
    let directory = Directory::new();
    let (vault, now_ms) = open(in_file(&directory));
    let (other, _) = open(in_file(&directory));
    let now = || {
        let names = |(key, _): &(EnvName, _)| key.as_str().to_owned();
        let secrets = vault.all_now(&namespace("a"))?;
        Some(secrets.iter().map(names).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(now().as_deref(), Some(""));
    let ttl = Some(Duration::from_secs(1));
    vault
        .put(&namespace("a"), &key("K"), value("first"), ttl)
        .unwrap();
    assert_eq!(now().as_deref(), Some("K"));
    let before = vault.all(&namespace("a")).unwrap();
    put(&vault, "a", "J", "another");
    let after = vault.all(&namespace("a")).unwrap();
    assert!(
        Arc::ptr_eq(&before[0].1, &after[1].1),
        "a change keeps other values"
    );
    put(&other, "a", "L", "second");
    assert_eq!(now(), None);
    assert_eq!(vault.all(&namespace("a")).unwrap().len(), 3);
    assert_eq!(now().as_deref(), Some("J K L"));
    now_ms.fetch_add(1000, Ordering::Relaxed);
    assert_eq!(now().as_deref(), Some("J L"));
    let held = vault.state();
    assert_eq!(now(), None, "another thread uses it");
    drop(held);
    fs::write(directory.path("vault"), "damaged").unwrap();
    assert!(now().is_none() && vault.all(&namespace("a")).is_err());
}

#[test]
fn writable_backends_store_and_delete_secrets() {
    let (one, two) = (Directory::new(), Directory::new());
    for settings in [VaultSettings::Memory, in_file(&one), with_passphrase(&two)] {
        let (vault, _) = open(settings);
        assert!(vault.is_empty());
        let first = vault.generation();
        assert!(!put(&vault, "a", "K", "first").replaced);
        let second = vault.generation();
        assert!(put(&vault, "a", "K", "second").replaced);
        assert!(!put(&vault, "b", "K", "other").replaced);
        let third = vault.generation();
        assert!(first != second && second != third && third == vault.generation());
        assert_eq!(leased(&vault, "a", "K").as_deref(), Some("second"));
        let entry = SecretEntry {
            key: key("K"),
            bytes: 6,
            created_unix_s: Some(NOW_MS / 1000),
            expires_unix_s: None,
        };
        assert_eq!(vault.list(&namespace("a")).unwrap(), [entry]);
        assert_eq!(vault.values().unwrap().len(), 2);
        assert!(vault.delete(&namespace("a"), &key("K")).unwrap());
        assert!(!vault.delete(&namespace("a"), &key("K")).unwrap());
        assert_eq!(leased(&vault, "a", "K"), None);
        assert_eq!(leased(&vault, "b", "K").as_deref(), Some("other"));
        assert_ne!(vault.generation(), third);
        assert!(!vault.is_empty());
    }
}

#[test]
fn values_after_returns_only_changes_and_waits_at_most_its_timeout() {
    const TIMEOUT: Duration = Duration::from_millis(20);
    let (vault, _) = open(VaultSettings::Memory);
    put(&vault, "a", "K", "x");
    put(&vault, "b", "K", "y");
    let (generation, values) = vault.values_after(0, TIMEOUT).unwrap();
    assert_eq!(values.len(), 2);
    assert!(vault.values_after(generation, TIMEOUT).is_none());
    put(&vault, "a", "L", "z");
    let held = vault.state();
    let begun = Instant::now();
    assert!(vault.values_after(generation, TIMEOUT).is_none());
    assert!(begun.elapsed() >= TIMEOUT);
    drop(held);
    assert_eq!(vault.values_after(generation, TIMEOUT).unwrap().1.len(), 3);
}

#[test]
fn lease_is_all_or_nothing_within_one_namespace() {
    let (vault, _) = open(VaultSettings::Memory);
    put(&vault, "a", "K", "x");
    put(&vault, "a", "L", "y");
    put(&vault, "b", "M", "z");
    let both = vault.lease(&namespace("a"), &[key("L"), key("K")]).unwrap();
    let both: Vec<_> = both
        .iter()
        .map(|(key, value)| (key.as_str(), value.expose()))
        .collect();
    assert_eq!(both, [("L", "y"), ("K", "x")]);
    let missing = |name: &str| {
        vault
            .lease(&namespace("a"), &[key("K"), key(name)])
            .unwrap_err()
            .to_string()
    };
    // `M` exists in another namespace, `N` in none.
    assert_eq!(missing("M").replace('M', "N"), missing("N"));
    assert!(vault.lease(&namespace("a"), &[]).unwrap().is_empty());
}

#[test]
fn expired_secret_is_absent_from_every_operation() {
    let directory = Directory::new();
    for settings in [VaultSettings::Memory, in_file(&directory)] {
        let (vault, now_ms) = open(settings);
        let brief = Some(Duration::from_millis(1_500));
        vault
            .put(&namespace("a"), &key("K"), value("canary"), brief)
            .unwrap();
        let entry = &vault.list(&namespace("a")).unwrap()[0];
        assert_eq!(entry.expires_unix_s, Some((NOW_MS + 1_500) / 1000));
        now_ms.store(NOW_MS + 1_499, Ordering::Relaxed);
        let held = vault.values().unwrap().remove(0);
        let before = vault.generation();
        assert_eq!(Arc::strong_count(&held), 2, "the vault and we");
        now_ms.store(NOW_MS + 1_500, Ordering::Relaxed);
        assert_ne!(vault.generation(), before);
        assert_eq!(Arc::strong_count(&held), 1, "the vault has let go");
        assert_eq!(leased(&vault, "a", "K"), None);
        assert!(vault.list(&namespace("a")).unwrap().is_empty());
        assert!(vault.values().unwrap().is_empty() && vault.is_empty());
        assert!(!put(&vault, "a", "K", "new").replaced);
        assert!(vault.delete(&namespace("a"), &key("K")).unwrap());
    }
}

#[test]
fn opening_removes_expired_secrets_from_file() {
    let directory = Directory::new();
    let (vault, _) = open(in_file(&directory));
    let empty_bytes = fs::metadata(directory.path("vault")).unwrap().len();
    let brief = Some(Duration::from_millis(1));
    vault
        .put(&namespace("a"), &key("K"), value("canary"), brief)
        .unwrap();
    assert!(fs::metadata(directory.path("vault")).unwrap().len() > empty_bytes);
    drop(Vault::open(in_file(&directory)).unwrap());
    assert_eq!(fs::metadata(directory.path("vault")).unwrap().len(), empty_bytes);
    assert!(vault.is_empty());
}

#[test]
fn lifetime_is_bounded() {
    let (vault, _) = open(VaultSettings::Memory);
    let check = |ttl: Duration, good: bool| {
        let outcome = vault.put(&namespace("a"), &key("K"), value("x"), Some(ttl));
        match outcome {
            Ok(_) => assert!(good, "{ttl:?}"),
            Err(VaultError::Lifetime) => assert!(!good, "{ttl:?}"),
            Err(other) => panic!("{other:?}"),
        }
    };
    check(Duration::from_millis(1), true);
    check(TTL_MAX, true);
    check(Duration::ZERO, false);
    check(Duration::from_micros(999), false);
    check(TTL_MAX + Duration::from_millis(1), false);
    check(Duration::MAX, false);
}

#[test]
fn two_vaults_on_one_file_lose_no_changes() {
    let directory = Directory::new();
    let vaults = [open(in_file(&directory)).0, open(in_file(&directory)).0];
    std::thread::scope(|scope| {
        for (index, vault) in vaults.iter().enumerate() {
            for thread in 0..2 {
                scope.spawn(move || {
                    for number in 0..25 {
                        put(vault, "a", &format!("K{index}_{thread}_{number}"), "x");
                        put(vault, "a", "SHARED", &format!("{index} {thread} {number}"));
                    }
                });
            }
        }
    });
    let (third, _) = open(in_file(&directory));
    let listed = third.list(&namespace("a")).unwrap();
    assert_eq!(listed.len(), 2 * 2 * 25 + 1);
    for vault in &vaults {
        assert_eq!(vault.list(&namespace("a")).unwrap(), listed);
        assert_eq!(leased(vault, "a", "SHARED"), leased(&third, "a", "SHARED"));
    }
    assert_eq!(
        directory.names(),
        ["key", "vault", "vault.lock", "vault.lock.next"]
    );
}

#[test]
fn threads_on_one_vault_lose_no_changes() {
    let (vault, _) = open(VaultSettings::Memory);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let vault = &vault;
            scope.spawn(move || {
                (0..200).for_each(|number| {
                    put(vault, "a", &format!("K{thread}_{number}"), "x");
                })
            });
        }
    });
    assert_eq!(vault.list(&namespace("a")).unwrap().len(), 4 * 200);
}

#[test]
fn change_by_another_process_is_visible_to_every_operation() {
    let directory = Directory::new();
    let (ours, _) = open(with_passphrase(&directory));
    let (theirs, _) = open(with_passphrase(&directory));
    for number in 0..200 {
        // Values of the same length, faster than a clock tick: only the file's identity differs.
        let text = format!("{number:04}");
        let before = ours.generation();
        put(&theirs, "a", "K", &text);
        assert_ne!(ours.generation(), before);
        assert_eq!(leased(&ours, "a", "K").as_deref(), Some(text.as_str()));
    }
    assert!(theirs.delete(&namespace("a"), &key("K")).unwrap());
    assert!(ours.is_empty());
}

#[test]
fn damage_to_file_of_open_vault_is_reported_and_file_left_unchanged() {
    let directory = Directory::new();
    let (vault, _) = open(in_file(&directory));
    put(&vault, "a", "K", "canary");
    let vault_path = directory.path("vault");
    let good = fs::read(&vault_path).unwrap();
    let refuses = |vault: &Vault| {
        assert!(vault.lease(&namespace("a"), &[key("K")]).is_err());
        assert!(vault.values().is_err() && vault.list(&namespace("a")).is_err());
        assert!(vault.put(&namespace("a"), &key("L"), value("x"), None).is_err());
        assert!(vault.delete(&namespace("a"), &key("K")).is_err());
        assert!(!vault.is_empty());
    };
    // Overwritten in place: the same length, name and inode number.
    fs::write(&vault_path, vec![b'x'; good.len()]).unwrap();
    fs::File::open(&vault_path)
        .unwrap()
        .set_modified(UNIX_EPOCH)
        .unwrap();
    refuses(&vault);
    fs::write(&vault_path, &good[..good.len() - 1]).unwrap();
    refuses(&vault);
    assert_eq!(fs::read(&vault_path).unwrap(), good[..good.len() - 1]);
    fs::remove_file(&vault_path).unwrap();
    refuses(&vault);
    assert!(
        !vault_path.exists(),
        "a vault that is gone is not made again behind its owner's back"
    );
    fs::write(&vault_path, &good).unwrap();
    assert_eq!(leased(&vault, "a", "K").as_deref(), Some("canary"));
}

#[test]
fn recreated_vault_must_be_reopened() {
    let directory = Directory::new();
    let (vault, _) = open(with_passphrase(&directory));
    fs::remove_file(directory.path("vault")).unwrap();
    let (anew, _) = open(with_passphrase(&directory));
    put(&anew, "a", "K", "x");
    let error = vault
        .put(&namespace("a"), &key("L"), value("y"), None)
        .unwrap_err();
    assert!(matches!(error, VaultError::OtherKey { .. }), "{error}");
    assert_eq!(anew.list(&namespace("a")).unwrap().len(), 1);
}

#[test]
fn change_that_cannot_be_written_is_not_visible() {
    let directory = Directory::new();
    put(&open(in_file(&directory)).0, "a", "K", "old");
    // Long enough that `.lock` can be appended, but not the suffix of a temporary file.
    let vault_path = directory.path(&"v".repeat(245));
    fs::rename(directory.path("vault"), &vault_path).unwrap();
    let (vault, _) = open(VaultSettings::File {
        path: vault_path.clone(),
        key: directory.key_file(),
    });
    let (good, generation) = (fs::read(&vault_path).unwrap(), vault.generation());
    let failed = vault.put(&namespace("a"), &key("K"), value("new"), None);
    assert!(
        matches!(failed, Err(VaultError::File(FileError { step: "make", .. }))),
        "{failed:?}"
    );
    assert!(vault.delete(&namespace("a"), &key("K")).is_err());
    assert_eq!(leased(&vault, "a", "K").as_deref(), Some("old"));
    assert_eq!(
        (fs::read(&vault_path).unwrap(), vault.generation()),
        (good, generation)
    );
}

#[test]
fn full_vault_keeps_its_secrets() {
    let directory = Directory::new();
    let (vault, _) = open(in_file(&directory));
    for number in 0..5 {
        let most = value(&"x".repeat(SECRET_BYTES_MAX));
        let outcome = vault.put(&namespace("a"), &key(&format!("K{number}")), most, None);
        match outcome {
            Ok(_) => assert!(number < 4),
            Err(VaultError::Full { limit }) => assert_eq!((limit, number), (Limit::NamespaceBytes, 4)),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(open(in_file(&directory)).0.values().unwrap().len(), 4);
}

#[test]
fn readers_do_not_wait_for_waiting_writer() {
    let directory = Directory::new();
    let (vault, _) = open(in_file(&directory));
    put(&vault, "a", "K", "old");
    let elsewhere = place::lock(&directory.path("vault.lock"), place::LOCK_TIMEOUT).unwrap();
    let since = Instant::now();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| put(&vault, "a", "K", "new"));
        while vault.write_lock.try_lock().is_ok() {
            assert!(
                since.elapsed() < Duration::from_secs(20),
                "the writer does not hold the write lock"
            );
            std::thread::yield_now();
        }
        assert_eq!(leased(&vault, "a", "K").as_deref(), Some("old"));
        drop(elsewhere);
        assert!(writer.join().unwrap().replaced);
    });
    assert_eq!(leased(&vault, "a", "K").as_deref(), Some("new"));
}

#[test]
fn environment_backend_is_read_only() {
    let variables = [("RINGFENCE_SECRET_A_B_C", "x"), ("SANDBOXMCP_SECRET_B_K", "y")];
    let variables = variables.map(|(name, text)| (name.to_owned(), Arc::new(value(text))));
    let (vault, _) = open(VaultSettings::Environment(variables.into()));
    assert_eq!((vault.kind(), vault.is_empty()), ("env", false));
    assert_eq!(leased(&vault, "a", "B_C").as_deref(), Some("x"));
    assert_eq!(leased(&vault, "b", "K").as_deref(), Some("y"));
    assert_eq!(leased(&vault, "b", "B_C"), None);
    assert_eq!(vault.list(&namespace("a")).unwrap()[0].created_unix_s, None);
    assert!(vault.list(&namespace("a_b")).unwrap().is_empty());
    for unserved in ["a_b", "A", "a-b", "a.b"] {
        let refused = vault.lease(&namespace(unserved), &[key("C")]);
        assert!(matches!(refused, Err(VaultError::NotServed { .. })), "{unserved}");
    }
    let put = vault.put(&namespace("a"), &key("K"), value("x"), None);
    assert!(matches!(put, Err(VaultError::ReadOnly)));
    assert!(matches!(
        vault.delete(&namespace("a"), &key("B_C")),
        Err(VaultError::ReadOnly)
    ));
    assert_eq!(vault.values().unwrap().len(), 2);
}

#[test]
fn debug_output_contains_no_values() {
    let directory = Directory::new();
    let mut said = format!("{:?} {:?}", value("canary"), passphrase("canary"));
    let variables = vec![("RINGFENCE_SECRET_A_K".to_owned(), Arc::new(value("canary")))];
    let settings = VaultSettings::Environment(variables);
    said += &format!("{settings:?}");
    for settings in [settings, VaultSettings::Memory, in_file(&directory)] {
        let (vault, _) = open(settings);
        if vault.kind() != "env" {
            put(&vault, "a", "K", "canary");
        }
        let leased = vault.lease(&namespace("a"), &[key("K")]).unwrap();
        said += &format!("{vault:?} {leased:?} {:?}", vault.values().unwrap());
        said += &format!("{:?}", vault.list(&namespace("a")).unwrap());
        said += &format!("{:?}", vault.lease(&namespace("b"), &[key("K")]).unwrap_err());
    }
    assert!(said.contains("SecretValue") && said.contains("RINGFENCE_SECRET_A_K"));
    assert!(!said.contains("canary"), "{said}");
}

#[test]
fn vault_is_send_and_sync() {
    fn shared<T: Send + Sync>() {}
    shared::<Vault>();
}
