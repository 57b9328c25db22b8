//! Typical uses and attacks on a real directory.

use super::*;
pub(super) use crate::tests::{TestDir, namespace};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
};

pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);
pub(super) const LARGE: Retention = Retention {
    age: Duration::from_secs(30 * 24 * 3600),
    bytes: 1 << 30,
};
pub(super) const NOTHING: Retention = Retention {
    age: Duration::ZERO,
    bytes: 0,
};

/// A store and its directory.
pub(super) struct Scratch {
    pub(super) path: PathBuf,
    _around: TestDir,
}

impl Scratch {
    pub(super) fn new() -> Self {
        let around = TestDir::new();
        Self {
            path: around.join("store"),
            _around: around,
        }
    }

    pub(super) fn open(&self, signer: &Signer, retention: Retention) -> ArtifactStore {
        ArtifactStore::open(self.path.clone(), signer.clone(), retention).unwrap()
    }

    pub(super) fn store(&self) -> ArtifactStore {
        self.open(&Signer::in_memory().unwrap(), LARGE)
    }

    /// Returns all files, relative to the store.
    pub(super) fn files(&self) -> Vec<String> {
        fn walk(directory: &Path, files: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.is_symlink() {
                    walk(&path, files);
                } else {
                    files.push(path);
                }
            }
        }
        let mut files = Vec::new();
        walk(&self.path, &mut files);
        let relative = |path: &PathBuf| path.strip_prefix(&self.path).unwrap().display().to_string();
        let mut files: Vec<String> = files.iter().map(relative).collect();
        files.sort();
        files
    }

    pub(super) fn blob(&self, bytes: &[u8]) -> PathBuf {
        let hex = digest(bytes).unwrap().0;
        self.path.join("blobs").join(&hex[..2]).join(hex)
    }

    pub(super) fn manifest(&self, execution_id: &str) -> PathBuf {
        self.path.join("executions").join(format!("{execution_id}.json"))
    }
}

pub(super) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

pub(super) fn put(store: &ArtifactStore, bytes: &[u8]) -> Content {
    let mut incoming = store.receive().unwrap();
    incoming.write_all(bytes).unwrap();
    incoming.finish().unwrap()
}

pub(super) fn item(store: &ArtifactStore, name: &str, bytes: &[u8]) -> Item {
    Item {
        name: name.to_owned(),
        mime: "text/plain".to_owned(),
        content: put(store, bytes),
    }
}

pub(super) fn published(execution_id: &str, time: SystemTime) -> Published {
    Published {
        execution_id: execution_id.to_owned(),
        namespace: namespace("ours"),
        time_unix_ms: unix_ms(time),
    }
}

pub(super) fn publish_at(
    store: &ArtifactStore,
    execution_id: &str,
    bytes: &[u8],
    time: SystemTime,
) -> Manifest {
    let items = vec![item(store, "out.txt", bytes)];
    store.publish(published(execution_id, time), items).unwrap()
}

pub(super) fn publish(store: &ArtifactStore, execution_id: &str, bytes: &[u8]) -> Manifest {
    publish_at(store, execution_id, bytes, SystemTime::now())
}

pub(super) fn read(store: &ArtifactStore, execution_id: &str) -> Result<Option<Vec<u8>>, ArtifactError> {
    let found = store.read(execution_id, &namespace("ours"), "out.txt")?;
    Ok(found.map(|(item, mut file)| {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(item.content.size_bytes, bytes.len() as u64);
        bytes
    }))
}

pub(super) fn is_damaged<T>(result: Result<T, ArtifactError>) -> bool {
    matches!(result, Err(ArtifactError::Damaged { .. }))
}

/// Replaces a read-only file, as an editor or a restored backup does.
pub(super) fn overwrite(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn published_artifact_is_read_back_and_stored_once() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let key = store.signer.public_key();
    let first = publish(&store, "one", b"words");
    let second = publish(&store, "two", b"words");
    assert_eq!(store.manifest("one", &namespace("ours")).unwrap().unwrap(), first);
    assert_eq!(read(&store, "two").unwrap().unwrap(), b"words");
    verify_manifest(&second, Some(&key)).unwrap();
    let hex = digest(&b"words"[..]).unwrap().0;
    let expected = [
        format!("blobs/{}/{hex}", &hex[..2]),
        "executions/one.json".to_owned(),
        "executions/two.json".to_owned(),
        "lock".to_owned(),
    ];
    assert_eq!(scratch.files(), expected);
    assert_eq!(fs::metadata(&scratch.path).unwrap().mode() & 0o7777, 0o700);
    let blob = fs::metadata(scratch.blob(b"words")).unwrap();
    assert_eq!((blob.mode() & 0o7777, blob.nlink()), (0o400, 1));
    assert_eq!(store.bytes(), 3 * 4096);
    let swept = store.sweep().unwrap();
    assert_eq!((swept.held_bytes, swept.bytes, swept.busy), (3 * 4096, 0, false));
}

#[test]
fn statements_match_the_documentation() {
    let statement = artifact_statement("ab", "n\0", 258, "ff");
    let expected = b"ringfence artifact v1\0\
        \0\0\0\0\0\0\0\x02ab\
        \0\0\0\0\0\0\0\x02n\0\
        \0\0\0\0\0\0\0\x08\0\0\0\0\0\0\x01\x02\
        \0\0\0\0\0\0\0\x02ff";
    assert_eq!(statement, expected);
    let artifact = SignedItem {
        name: "n".to_owned(),
        mime: "m".to_owned(),
        size_bytes: 1,
        sha256: "d".to_owned(),
        signature: "s".to_owned(),
    };
    let manifest = Manifest {
        execution_id: "e".to_owned(),
        namespace: namespace("o"),
        created_unix_ms: 2,
        artifacts: vec![artifact],
        public_key: "k".to_owned(),
        signature: "not signed".to_owned(),
    };
    let expected = b"ringfence manifest v1\0\
        \0\0\0\0\0\0\0\x01e\
        \0\0\0\0\0\0\0\x01o\
        \0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\x02\
        \0\0\0\0\0\0\0\x01k\
        \0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\x01\
        \0\0\0\0\0\0\0\x01n\
        \0\0\0\0\0\0\0\x01m\
        \0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\x01\
        \0\0\0\0\0\0\0\x01d\
        \0\0\0\0\0\0\0\x01s";
    assert_eq!(manifest_statement(&manifest), expected);
}

/// claim: [ART-1]
#[test]
fn edited_manifest_is_reported_as_damaged() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let key = store.signer.public_key();
    let honest = serde_json::to_value(publish(&store, "one", b"words")).unwrap();
    let other = publish(&store, "two", b"other words");
    let path = scratch.manifest("one");
    overwrite(&path, &serde_json::to_vec_pretty(&honest).unwrap());
    assert_eq!(
        read(&store, "one").unwrap().unwrap(),
        b"words",
        "the edit itself does no harm"
    );

    let check = |pointer: &str, value: Value| {
        let mut edited = honest.clone();
        let place = edited.pointer_mut(pointer).unwrap();
        assert_ne!(*place, value, "{pointer}");
        *place = value;
        overwrite(&path, &serde_json::to_vec(&edited).unwrap());
        assert!(is_damaged(store.manifest("one", &namespace("ours"))), "{pointer}");
        assert!(is_damaged(read(&store, "one")), "{pointer}");
        let forged: Manifest = serde_json::from_value(edited).unwrap();
        assert!(verify_manifest(&forged, Some(&key)).is_err(), "{pointer}");
        assert!(verify_manifest(&forged, None).is_err(), "{pointer}");
    };
    let foreign = serde_json::to_value(&other.artifacts[0]).unwrap();
    check("/artifacts/0/name", json!("out2.txt"));
    check("/artifacts/0/mime", json!("text/html"));
    check("/artifacts/0/size_bytes", json!(6));
    check("/artifacts/0/sha256", foreign["sha256"].clone());
    check("/artifacts/0/sha256", json!("../../../../etc/passwd"));
    check("/artifacts/0/sha256", json!("é"));
    check("/artifacts/0/signature", foreign["signature"].clone());
    check("/artifacts/0", foreign);
    check("/artifacts", json!([]));
    check("/created_unix_ms", json!(1));
    check("/execution_id", json!("two"));
    check("/public_key", json!("AAAA"));
    check("/signature", json!(other.signature));
    check("/signature", json!(""));
}

#[test]
fn manifest_of_another_namespace_execution_or_key_is_rejected() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let mut manifest = publish(&store, "one", b"words");
    fs::copy(scratch.manifest("one"), scratch.manifest("two")).unwrap();
    assert!(is_damaged(read(&store, "two")), "the words of another execution");

    let other_key = Signer::in_memory().unwrap();
    let items = [item(&store, "out.txt", b"words")];
    let forged = Manifest::sign(&other_key, published("one", SystemTime::now()), &items);
    verify_manifest(&forged, None).unwrap();
    overwrite(&scratch.manifest("one"), &forged.to_json().unwrap());
    assert!(is_damaged(read(&store, "one")), "signed by another key");

    manifest.namespace = namespace("thief");
    overwrite(&scratch.manifest("one"), &manifest.to_json().unwrap());
    assert!(is_damaged(store.manifest("one", &namespace("thief"))));
    assert!(store.manifest("one", &namespace("ours")).unwrap().is_none());
}

#[test]
fn truncated_and_oversized_manifests_are_reported_as_damaged() {
    let scratch = Scratch::new();
    let store = scratch.store();
    publish(&store, "one", b"words");
    let path = scratch.manifest("one");
    let whole = fs::read(&path).unwrap();
    let mut more = whole.clone();
    more.truncate(whole.len() - 1);
    more.extend(b",\"note\":\"unsigned\"}");
    for text in [&whole[..whole.len() / 2], b"", &vec![0; whole.len()], &more] {
        overwrite(&path, text);
        assert!(is_damaged(read(&store, "one")));
    }
    overwrite(&path, b"");
    let huge = File::options().write(true).open(&path).unwrap();
    huge.set_len(1 << 40).unwrap();
    assert!(is_damaged(read(&store, "one")));
    assert_eq!(store.executions(&namespace("ours"), 10).unwrap(), []);
    assert!(!store.sweep().unwrap().busy);
}

#[test]
fn replaced_blob_is_reported_and_repaired_by_the_same_content() {
    let scratch = Scratch::new();
    let store = scratch.store();
    publish(&store, "one", b"words");
    let blob = scratch.blob(b"words");
    let elsewhere = scratch.path.join("elsewhere");
    fs::write(&elsewhere, b"words").unwrap();
    let pipe = || {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &blob, kind, mode, 0).unwrap();
    };
    let attacks: [(&str, &dyn Fn()); 6] = [
        ("of the same size", &|| fs::write(&blob, b"wards").unwrap()),
        ("shorter", &|| fs::write(&blob, b"").unwrap()),
        ("longer", &|| fs::write(&blob, b"words and more").unwrap()),
        ("missing", &|| {}),
        ("a link to the right bytes", &|| {
            symlink(&elsewhere, &blob).unwrap()
        }),
        ("a pipe", &pipe),
    ];
    for (number, (what, attack)) in attacks.iter().enumerate() {
        assert_eq!(read(&store, "one").unwrap().unwrap(), b"words", "before {what}");
        fs::remove_file(&blob).unwrap();
        attack();
        assert!(is_damaged(read(&store, "one")), "{what}");
        publish(&store, &format!("mended-{number}"), b"words");
    }
    fs::remove_file(&blob).unwrap();
    fs::create_dir(&blob).unwrap();
    assert!(is_damaged(read(&store, "one")), "a directory");
    let mut incoming = store.receive().unwrap();
    incoming.write_all(b"words").unwrap();
    assert!(matches!(incoming.finish(), Err(ArtifactError::Io(_))));
    assert_eq!(fs::read_dir(scratch.path.join("incoming")).unwrap().count(), 0);
}

/// claim: [ART-2]
#[test]
fn execution_id_cannot_be_a_path() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let long = "x".repeat(65);
    for bad in [
        "", "..", "../one", "a/b", "/one", "one.json", "a b", "a\0b", "a\nb", "é", &long,
    ] {
        let refused = |error| matches!(error, Some(ArtifactError::Refused(_)));
        let items = vec![item(&store, "out.txt", b"words")];
        let publish = store.publish(published(bad, SystemTime::now()), items);
        assert!(refused(publish.err()), "{bad:?}");
        assert!(refused(store.manifest(bad, &namespace("ours")).err()), "{bad:?}");
        assert!(refused(read(&store, bad).err()), "{bad:?}");
    }
    publish(&store, &"x".repeat(64), b"words");
}

/// claim: [ART-2]
#[test]
fn artifact_names_are_not_used_as_paths() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let names = [
        "..",
        "../../x",
        "/etc/passwd",
        "a\0b",
        "a\nb",
        "\u{202e}txt",
        "lock",
        "\"",
        " ",
    ];
    let items = names.map(|name| item(&store, name, b"words")).to_vec();
    let manifest = store.publish(published("one", SystemTime::now()), items).unwrap();
    verify_manifest(&manifest, None).unwrap();
    assert_eq!(scratch.files().len(), 3, "a blob, a manifest, the lock");
    for name in names {
        let (found, _) = store.read("one", &namespace("ours"), name).unwrap().unwrap();
        assert_eq!(found.name, name);
    }
    assert!(store.read("one", &namespace("ours"), "x").unwrap().is_none());
}

#[test]
fn excessive_and_duplicate_items_are_refused_and_leave_nothing() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let content = put(&store, b"words");
    let named = |name: String| Item {
        name,
        mime: String::new(),
        content: content.clone(),
    };
    let try_to = |items| store.publish(published("one", SystemTime::now()), items);
    let numbered = |count| (0..count).map(|n: u32| named(n.to_string())).collect::<Vec<_>>();
    let mut wide_mime = named("a".to_owned());
    wide_mime.mime = "m".repeat(256);
    let refused = [
        numbered(2001),
        vec![named(String::new())],
        vec![named("n".repeat(1025))],
        vec![wide_mime],
        vec![named("a".to_owned()), named("a".to_owned())],
    ];
    for items in refused {
        assert!(matches!(try_to(items), Err(ArtifactError::Refused(_))));
    }
    assert!(store.manifest("one", &namespace("ours")).unwrap().is_none());
    let most = numbered(2000);
    check_items(&most).unwrap();
    // A manifest fits even if JSON makes its names and media types six times longer.
    let mut widest = most[0].clone();
    widest.name = "\u{1}".repeat(1024);
    widest.mime = "\u{1}".repeat(255);
    let mut manifest = try_to(vec![widest]).unwrap();
    manifest.artifacts = vec![manifest.artifacts[0].clone(); 2000];
    Manifest::from_json(&manifest.to_json().unwrap()).unwrap();
    let none = store
        .publish(published("two", SystemTime::now()), Vec::new())
        .unwrap();
    verify_manifest(&none, None).unwrap();
}

/// claim: [ART-1]
#[test]
fn execution_of_another_namespace_looks_like_a_missing_one() {
    let scratch = Scratch::new();
    let store = scratch.store();
    publish(&store, "one", b"words");
    let other = namespace("other");
    for execution_id in ["one", "none"] {
        assert!(store.manifest(execution_id, &other).unwrap().is_none());
        assert!(store.read(execution_id, &other, "out.txt").unwrap().is_none());
    }
    assert_eq!(store.executions(&other, 10).unwrap(), []);
    assert_eq!(store.executions(&namespace("ours"), 10).unwrap().len(), 1);
}

#[test]
fn execution_id_is_used_only_once() {
    let scratch = Scratch::new();
    let store = scratch.store();
    publish(&store, "one", b"words");
    let items = vec![item(&store, "out.txt", b"other")];
    let again = store.publish(published("one", SystemTime::now()), items);
    assert!(matches!(again, Err(ArtifactError::Taken(_))));
    assert_eq!(read(&store, "one").unwrap().unwrap(), b"words");
    assert_eq!(fs::read_dir(scratch.path.join("incoming")).unwrap().count(), 0);
}
