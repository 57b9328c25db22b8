//! State directories of earlier versions remain readable. [`write_state`] wrote the one in
//! `tests/golden/state-1.tar.gz.base64`; a new format gets another file there, and this one stays.

use crate::{
    Signer,
    artifacts::{ArtifactStore, Item, Published, Retention, verify_manifest},
    audit::{Action, Audit, Durability, Entry, Keep, Outcome, Query, Storage, query, verify},
    layers::{LayerError, Layers, Package, SetName},
    snapshots::{About, SnapshotLimits, SnapshotStore, Source},
    tests::TestDir,
    vault::{FileKey, SecretValue, Vault, VaultSettings},
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use flate2::read::GzDecoder;
use ringfence_types::{EnvName, Namespace};
use std::{
    fs::{self, File},
    io::Write,
    os::{fd::AsFd, unix::fs::PermissionsExt},
    path::Path,
    sync::Arc,
    time::Duration,
};

const STATE: &str = include_str!("../tests/golden/state-1.tar.gz.base64");
const TIME_UNIX_MS: u64 = 1_780_000_000_000;
const KEPT: Retention = Retention {
    age: Duration::MAX,
    bytes: u64::MAX,
};
const LIMITS: SnapshotLimits = SnapshotLimits {
    entries: 1000,
    bytes: 1 << 30,
    stored_bytes: 1 << 30,
    total_bytes: 1 << 30,
    snapshots: 10,
};

fn namespace() -> Namespace {
    "golden".to_owned().try_into().unwrap()
}

fn key() -> EnvName {
    "KEY".to_owned().try_into().unwrap()
}

fn set() -> SetName {
    SetName::of(&["python", "pkg==1.0"])
}

/// Bytes that do not compress.
fn noise() -> Vec<u8> {
    let mut bytes = vec![0; 17_000];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

fn vault(directory: &Path, name: &str) -> Vault {
    let key = match name {
        "vault" => FileKey::KeyFile(directory.join("vault.key")),
        _ => FileKey::Passphrase(Arc::new(SecretValue::new("golden words".to_owned()).unwrap())),
    };
    let path = directory.join(name);
    Vault::open(VaultSettings::File { path, key }).unwrap()
}

fn audit(directory: &Path, signer: &Signer) -> Audit {
    let place = Storage::File(directory.join("audit.db"));
    Audit::open(place, Durability::Process, signer.clone(), "golden".to_owned()).unwrap()
}

#[test]
#[ignore = "writes a state directory of this version, to be packed by hand"]
fn write_state() {
    let directory = std::env::temp_dir().join("ringfence-golden");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    let signer = Signer::load_or_create(&directory.join("signing.key")).unwrap();
    write_artifacts(&directory, &signer);
    write_layer(&directory, &signer);
    write_snapshots(&directory, &signer);
    for name in ["vault", "vault.passphrase"] {
        let value = SecretValue::new(format!("the secret of {name}")).unwrap();
        vault(&directory, name)
            .put(&namespace(), &key(), value, None)
            .unwrap();
    }
    let audit = audit(&directory, &signer);
    audit.set_keep(Keep {
        segment_bytes: 1,
        ..Keep::default()
    });
    for number in 0..4 {
        let entry = Entry {
            action: Action::ExecutionCompleted,
            outcome: Outcome::Ok,
            namespace: "golden".to_owned(),
            execution_id: Some(format!("execution-{number}")),
            caller: "stdio".to_owned(),
            details: [("number".to_owned(), number.into())].into_iter().collect(),
        };
        audit.append_and_wait(entry).unwrap();
        if number == 1 {
            audit.archive().unwrap();
        }
    }
}

fn write_artifacts(directory: &Path, signer: &Signer) {
    let store = ArtifactStore::open(directory.join("artifacts"), signer.clone(), KEPT).unwrap();
    let item = |name: &str, bytes: &[u8]| {
        let mut incoming = store.receive().unwrap();
        incoming.write_all(bytes).unwrap();
        Item {
            name: name.to_owned(),
            mime: "application/octet-stream".to_owned(),
            content: incoming.finish().unwrap(),
        }
    };
    for (number, bytes) in [noise(), b"words\n".to_vec()].into_iter().enumerate() {
        let published = Published {
            execution_id: format!("execution-{number}"),
            namespace: namespace(),
            time_unix_ms: TIME_UNIX_MS + number as u64,
        };
        let items = vec![item("own", &bytes), item("shared", b"shared")];
        store.publish(published, items).unwrap();
    }
    // The state after a crash.
    std::mem::forget(item("lost", b"lost"));
    assert!(!store.sweep().unwrap().busy);
}

fn write_layer(directory: &Path, signer: &Signer) {
    let from = directory.join("installed");
    fs::create_dir_all(from.join("pkg")).unwrap();
    fs::write(from.join("pkg/__init__.py"), "value = 1\n").unwrap();
    fs::write(from.join("tool"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(from.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("../tool", from.join("pkg/tool")).unwrap();
    let layers = Layers::open(directory.join("packages"), signer.clone()).unwrap();
    let making = layers.begin(&set()).unwrap().unwrap();
    let opened = File::open(&from).unwrap();
    let package = Package {
        name: "pkg".to_owned(),
        version: "1.0".to_owned(),
        sha256: Some("ab".repeat(32)),
        integrity: None,
    };
    layers
        .put(&making, opened.as_fd(), vec![package], 1 << 20)
        .unwrap();
    fs::remove_dir_all(from).unwrap();
}

fn write_snapshots(directory: &Path, signer: &Signer) {
    let inside = directory.join("inside");
    fs::create_dir_all(inside.join("deep")).unwrap();
    fs::write(inside.join("deep/noise"), noise()).unwrap();
    let store = SnapshotStore::open(directory.join("snapshots"), signer.clone(), LIMITS).unwrap();
    for (number, text) in ["first\n", "second\n"].into_iter().enumerate() {
        fs::write(inside.join("text"), text.repeat(2000)).unwrap();
        let root = File::open(&inside).unwrap();
        let about = About {
            namespace: namespace(),
            description: text.trim().to_owned(),
            source: Source::Session("session-1".to_owned()),
            time_unix_ms: TIME_UNIX_MS + number as u64,
        };
        store.create(root.as_fd(), about).unwrap();
    }
    let id = store.list(&namespace()).unwrap()[0].id;
    // A restore of a session whose server has died.
    let journal = format!(
        r#"S{{"snapshot":"{id}","namespace":"golden","staging":".ringfence-restore-00","root_mtime":[1,2],"root":{{"inode":1,"device":1,"born":null}},"dies_with":{{"pid":4194305,"started":1}}}}"#
    );
    fs::write(directory.join("snapshots/journals/1-1"), journal).unwrap();
    fs::remove_dir_all(inside).unwrap();
}

/// The golden state directory, unpacked.
struct Unpacked {
    directory: TestDir,
    signer: Signer,
}

impl Unpacked {
    fn new() -> Self {
        let directory = TestDir::new();
        let packed = BASE64.decode(STATE.replace('\n', "")).unwrap();
        let mut archive = tar::Archive::new(GzDecoder::new(packed.as_slice()));
        archive.set_preserve_permissions(true);
        archive.unpack(&directory).unwrap();
        let signer = Signer::load_existing(&directory.join("signing.key")).unwrap();
        Self {
            signer: signer.unwrap(),
            directory,
        }
    }
}

#[test]
fn artifacts_of_an_earlier_version_are_read_and_swept() {
    let state = Unpacked::new();
    let store = ArtifactStore::open(state.directory.join("artifacts"), state.signer.clone(), KEPT).unwrap();
    assert!(store.bytes() > 0);
    let check = || {
        let listed = store.executions(&namespace(), 10).unwrap();
        let ids: Vec<&str> = listed.iter().map(|one| one.execution_id.as_str()).collect();
        assert_eq!(ids, ["execution-1", "execution-0"]);
        for (execution_id, expect) in [("execution-0", noise()), ("execution-1", b"words\n".to_vec())] {
            let manifest = store.manifest(execution_id, &namespace()).unwrap().unwrap();
            verify_manifest(&manifest, Some(&state.signer.public_key())).unwrap();
            let read = |name| {
                store
                    .read_whole(execution_id, &namespace(), name, 1 << 20)
                    .unwrap()
                    .unwrap()
            };
            assert_eq!(read("own").1, expect);
            assert_eq!(read("shared").1, b"shared");
        }
    };
    check();
    let swept = store.sweep().unwrap();
    assert_eq!((swept.busy, swept.executions), (false, 0));
    check();
}

#[test]
fn layer_of_an_earlier_version_is_found_and_verified() {
    let state = Unpacked::new();
    let directory = state.directory.join("packages");
    let open = || Layers::open(directory.clone(), state.signer.clone()).unwrap();
    let layer = open().find(&set()).unwrap().unwrap();
    assert_eq!(layer.packages()[0].name, "pkg");
    let tool = Layers::below(&directory).join(layer.name()).join("pkg/tool");
    assert_eq!(fs::read_to_string(&tool).unwrap(), "#!/bin/sh\n");
    fs::write(&tool, "#!/bin/sh\nevil\n").unwrap();
    assert!(matches!(open().find(&set()), Err(LayerError::Damaged { .. })));
}

#[test]
fn snapshots_of_an_earlier_version_are_listed_restored_and_added_to() {
    let state = Unpacked::new();
    let inside = state.directory.join("inside");
    fs::create_dir(&inside).unwrap();
    let root = File::open(&inside).unwrap();
    let journal = state.directory.join("snapshots/journals/1-1");
    assert!(journal.exists());
    let store = SnapshotStore::open(state.directory.join("snapshots"), state.signer.clone(), LIMITS).unwrap();
    assert!(!journal.exists());
    let listed = store.list(&namespace()).unwrap();
    assert_eq!(listed.len(), 2);
    for one in &listed {
        store
            .restore(&Source::Namespace, one.id, &namespace(), root.as_fd())
            .unwrap();
        let text = fs::read_to_string(inside.join("text")).unwrap();
        assert_eq!(text, format!("{}\n", one.description).repeat(2000));
        assert_eq!(fs::read(inside.join("deep/noise")).unwrap(), noise());
    }
    let about = About {
        namespace: namespace(),
        description: "third".to_owned(),
        source: Source::Namespace,
        time_unix_ms: TIME_UNIX_MS,
    };
    assert_eq!(store.create(root.as_fd(), about).unwrap().new_bytes, 0);
    store.delete(listed[0].id, &namespace()).unwrap();
    store
        .restore(&Source::Namespace, listed[1].id, &namespace(), root.as_fd())
        .unwrap();
}

#[test]
fn vaults_of_an_earlier_version_are_opened() {
    let state = Unpacked::new();
    for name in ["vault", "vault.passphrase"] {
        let vault = vault(&state.directory, name);
        let leased = vault.lease(&namespace(), &[key()]).unwrap();
        assert_eq!(leased[0].1.expose(), format!("the secret of {name}"));
        assert!(vault.delete(&namespace(), &leased[0].0).unwrap());
    }
}

#[test]
fn audit_record_of_an_earlier_version_is_verified_and_continued() {
    let state = Unpacked::new();
    let database = state.directory.join("audit.db");
    let check = || {
        let key = state.signer.public_key();
        let verdict = verify(&database, Some(&key), None, &mut |_, _| {}).unwrap();
        assert!(verdict.bad.is_none(), "{verdict:?}");
        verdict.records
    };
    let before = check();
    let records = query(&database, &Query::default()).unwrap().records;
    assert_eq!(records.len() as u64, before);
    let last = records.iter().rev().find(|record| record.execution_id.is_some());
    assert_eq!(last.unwrap().details, r#"{"number":3}"#);
    let audit = audit(&state.directory, &state.signer);
    assert_eq!(audit.head().seq, before);
    audit.archive().unwrap();
    drop(audit);
    assert_eq!(check(), before + 1);
}
