//! Artifacts: files that a program left. They are staged from outside after its processes have ended, so that nothing
//! changes while they are read. No link is followed; an entry that is not a plain file is refused and named. Artifacts
//! are stored by content and signed, without the request's secrets.

use crate::{
    backend::SandboxDirs,
    error::denial,
    events::{Bus, EventKind, now_ms},
    record::hex,
    streams::whole_characters,
};
use base64::Engine as _;
use ringfence_jail::ExportDirectory;
use ringfence_jail::harvest::{self, Bounds, Found as FoundFile, Stamp, Walk};
use ringfence_redact::{Found, Redactor, Stream};
use ringfence_store::{
    artifacts::{ArtifactStore, Content, Incoming, Item, NAME_BYTES_MAX, Published},
    tree::AsOwner,
};
use ringfence_types::{Artifact, Denial, Namespace, WorkspacePath};
use sha2::{Digest, Sha256};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

const ENTRIES_MAX: usize = 20_000;
const DEPTH_MAX: usize = 32;
/// Maximum time of the search for files, after the program's end.
const WALK_TIME_MAX: Duration = Duration::from_secs(10);
const ARTIFACTS_MAX: usize = 1_000;
const ARTIFACT_BYTES_MAX: u64 = 256 << 20;
const TOTAL_BYTES_MAX: u64 = 1 << 30;
/// Maximum bytes of all names: they are chosen by the program.
const NAMES_BYTES_MAX: usize = 256 << 10;
const REFUSED_MAX: usize = 20;
const WHAT_CHARS_MAX: usize = 1024;
const INLINE_BYTES_MAX: u64 = 64 << 10;
const INLINE_TOTAL_MAX: u64 = 1 << 20;
/// The prefix that the drivers give to figures still open at a program's end.
const FIGURES: &str = "output/figure-";
const READ_BYTES: usize = 64 << 10;

const BOUNDS: Bounds = Bounds {
    entries: ENTRIES_MAX,
    depth: DEPTH_MAX,
    time: WALK_TIME_MAX,
};

/// The files that existed before the program started.
#[derive(Debug, Default)]
pub(crate) struct Baseline {
    changes: DirectoryState,
    output: DirectoryState,
    inputs: BTreeMap<PathBuf, [u8; 32]>,
}

#[derive(Debug, Default)]
struct DirectoryState {
    stamps: BTreeMap<PathBuf, Stamp>,
    refused: BTreeSet<PathBuf>,
}

impl DirectoryState {
    fn of(directory: BorrowedFd<'_>) -> Self {
        Self::by(walk(directory))
    }

    fn by(walk: Walk) -> Self {
        Self {
            stamps: walk
                .files
                .into_iter()
                .map(|found| (found.path, found.stamp))
                .collect(),
            refused: walk.refused.into_iter().map(|(path, _)| path).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.stamps.is_empty() && self.refused.is_empty()
    }
}

/// Walks a directory with the rights of its owner if the server is root.
fn walk(directory: BorrowedFd<'_>) -> Walk {
    match AsOwner::of(directory) {
        Ok(_acting) => harvest::walk(directory, BOUNDS),
        Err(error) => {
            tracing::warn!(%error, "no artifacts are collected");
            Walk {
                incomplete: true,
                ..Walk::default()
            }
        }
    }
}

fn open(directory: BorrowedFd<'_>, found: &FoundFile) -> io::Result<File> {
    let _acting = AsOwner::of(directory).map_err(io::Error::other)?;
    harvest::open(directory, found)
}

impl Baseline {
    /// The baseline of a fresh workspace with only these input files.
    pub(crate) fn inputs<'a>(files: impl Iterator<Item = (&'a WorkspacePath, &'a [u8])>) -> Self {
        let inputs = files.map(|(path, bytes)| (PathBuf::from(path.as_str()), Sha256::digest(bytes).into()));
        Self {
            inputs: inputs.collect(),
            ..Self::default()
        }
    }

    pub(crate) fn of(dirs: &SandboxDirs) -> Self {
        Self {
            changes: DirectoryState::of(dirs.changes.as_fd()),
            output: DirectoryState::of(dirs.output.as_fd()),
            inputs: BTreeMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.output.is_empty() && self.inputs.is_empty()
    }

    pub(crate) fn add_host_directory(&mut self, directory: BorrowedFd<'_>) {
        self.changes.stamps = DirectoryState::of(directory).stamps;
    }
}

#[derive(Debug, Default)]
pub(crate) struct Staged {
    pub(crate) artifacts: Vec<Artifact>,
    pub(crate) denials: Vec<Denial>,
    pub(crate) security_events: Vec<Denial>,
    /// Count of redacted secrets and personal data.
    pub(crate) found: u64,
    /// Figures that the program also saved itself, each with the name of that file.
    pub(crate) saved: BTreeMap<String, String>,
}

pub(crate) struct StageOptions {
    pub(crate) store: Arc<ArtifactStore>,
    pub(crate) bus: Bus,
    pub(crate) namespace: Namespace,
    pub(crate) execution_id: String,
    pub(crate) redactor: Redactor,
    pub(crate) total_max: u64,
    pub(crate) copy_to: Option<ExportDirectory>,
    pub(crate) workspace: FilesKept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilesKept {
    InStore,
    /// In its directory, which the operator shared for writing; it is not copied to the store.
    InPlace,
}

pub(crate) fn dirs_are_empty(dirs: &SandboxDirs) -> bool {
    [&dirs.changes, &dirs.output]
        .into_iter()
        .all(|directory| harvest::is_empty(directory.as_fd()))
}

/// Collects new and changed files, and returns the next baseline. Blocking: reads every artifact once.
pub(crate) fn stage(dirs: &SandboxDirs, before: &Baseline, options: StageOptions) -> (Staged, Baseline) {
    let mut staging = Staging {
        staged: Staged::default(),
        kept: Vec::new(),
        names: BTreeSet::new(),
        name_bytes: 0,
        refused: 0,
        total: 0,
        inline: 0,
        options,
    };
    let kept = staging.options.workspace;
    let changes = staging.add(&Source {
        directory: dirs.changes.as_fd(),
        prefix: "",
        kept,
        before: &before.changes,
        inputs: &before.inputs,
    });
    let output = staging.add(&Source {
        directory: dirs.output.as_fd(),
        prefix: "output/",
        kept: FilesKept::InStore,
        before: &before.output,
        inputs: &BTreeMap::new(),
    });
    let now = Baseline {
        changes,
        output,
        inputs: BTreeMap::new(),
    };
    (staging.conclude(), now)
}

struct Source<'a> {
    directory: BorrowedFd<'a>,
    prefix: &'static str,
    kept: FilesKept,
    before: &'a DirectoryState,
    inputs: &'a BTreeMap<PathBuf, [u8; 32]>,
}

struct Staging {
    staged: Staged,
    /// Contents in the store, each with the index of its artifact.
    kept: Vec<(usize, Content)>,
    names: BTreeSet<String>,
    name_bytes: usize,
    refused: usize,
    total: u64,
    inline: u64,
    options: StageOptions,
}

struct ArtifactWriter {
    redaction: Option<Stream>,
    clean: Vec<u8>,
    /// The digest before redaction, if there was an input of that name.
    raw: Option<Sha256>,
    hasher: Sha256,
    head: Vec<u8>,
    size: u64,
    incoming: Option<Incoming>,
    copy: Option<File>,
    failures: Vec<(&'static str, String)>,
}

impl ArtifactWriter {
    fn push(&mut self, bytes: &[u8]) {
        if let Some(raw) = &mut self.raw {
            raw.update(bytes);
        }
        match &mut self.redaction {
            None => self.write(bytes),
            Some(redaction) => {
                let mut clean = std::mem::take(&mut self.clean);
                clean.clear();
                redaction.push(bytes, &mut clean);
                self.write(&clean);
                self.clean = clean;
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        if self.size <= INLINE_BYTES_MAX {
            self.head.extend_from_slice(bytes);
        }
        if let Some(Err(error)) = self.incoming.as_mut().map(|incoming| incoming.write_all(bytes)) {
            self.failures.push(("artifacts.not_kept", error.to_string()));
            self.incoming = None;
        }
        if let Some(Err(error)) = self.copy.as_mut().map(|copy| copy.write_all(bytes)) {
            self.failures.push(("artifacts.copy", error.to_string()));
            self.copy = None;
        }
    }

    /// Writes the last bytes, and returns the counts of all redactions.
    fn end(&mut self) -> Found {
        let Some(mut redaction) = self.redaction.take() else {
            return Found::default();
        };
        let mut clean = Vec::new();
        redaction.finish(&mut clean);
        self.write(&clean);
        redaction.found()
    }
}

impl Staging {
    fn add(&mut self, source: &Source<'_>) -> DirectoryState {
        let walk = walk(source.directory);
        self.add_new(source, &walk);
        DirectoryState::by(walk)
    }

    fn add_new(&mut self, source: &Source<'_>, walk: &Walk) {
        let prefix = source.prefix;
        let is_new = |path: &PathBuf| !source.before.refused.contains(path);
        for (path, what) in walk.refused.iter().filter(|(path, _)| is_new(path)) {
            self.refuse(
                format!("{prefix}{}: {what}", path.display()),
                "Only plain files become artifacts.",
            );
        }
        if walk.incomplete {
            self.refuse(
                format!(
                    "{}: more than {ENTRIES_MAX} entries, deeper than {DEPTH_MAX}, slow or unreadable directories",
                    if prefix.is_empty() {
                        "the workspace"
                    } else {
                        prefix
                    },
                ),
                "Pack many files into an archive.",
            );
        }
        for found in &walk.files {
            if source.before.stamps.get(&found.path) == Some(&found.stamp) {
                continue;
            }
            self.name_bytes += found.path.as_os_str().len();
            if self.staged.artifacts.len() == ARTIFACTS_MAX || self.name_bytes > NAMES_BYTES_MAX {
                self.refuse(
                    format!("more than {ARTIFACTS_MAX} artifacts, or {NAMES_BYTES_MAX} bytes of names"),
                    "Pack many files into an archive.",
                );
                return;
            }
            self.take(source, found);
        }
    }

    fn take(&mut self, source: &Source<'_>, found: &FoundFile) {
        let name = self.name(&format!("{}{}", source.prefix, found.path.to_string_lossy()));
        if name.len() > NAME_BYTES_MAX {
            self.refuse(
                format!("{name}: a name of {} bytes", name.len()),
                "The name of an artifact may have 1024 bytes, its directories included.",
            );
            return;
        }
        let total_max = self.options.total_max.min(TOTAL_BYTES_MAX);
        if found.size > ARTIFACT_BYTES_MAX || self.total + found.size > total_max {
            self.refuse(
                format!("{name}: {} bytes", found.size),
                "An artifact may have 256 MiB, all of them 1 GiB and no more than the private disk.",
            );
            return;
        }
        match self.read(source, found, &name) {
            Ok(Some((artifact, content))) => {
                if let Some(saved) = self.saved(&artifact) {
                    self.staged.saved.insert(name, saved);
                    return;
                }
                self.total += artifact.size_bytes;
                if let Some(content) = content {
                    self.kept.push((self.staged.artifacts.len(), content));
                }
                self.names.insert(name);
                self.staged.artifacts.push(artifact);
            }
            Ok(None) => {}
            Err(error) => self.refuse(
                format!("{name}: {error}"),
                "The file could not be read by the server.",
            ),
        }
    }

    /// Returns the name under which the program saved the same picture, if this is a figure drawn by the driver.
    fn saved(&self, artifact: &Artifact) -> Option<String> {
        let mut others = self.staged.artifacts.iter();
        let same = others.find(|other| other.sha256 == artifact.sha256)?;
        artifact.name.starts_with(FIGURES).then(|| same.name.clone())
    }

    /// Returns the redacted name, numbered if it equals another (both with a secret, or with bytes that are not UTF-8).
    fn name(&mut self, name: &str) -> String {
        const NUMBERED: usize = 2000;
        let clean = self.options.redactor.text(name);
        self.staged.found += u64::from(matches!(clean, Cow::Owned(_)));
        let mut unique = clean.clone().into_owned();
        let mut number = 2;
        while self.names.contains(&unique) || matches!(self.options.redactor.text(&unique), Cow::Owned(_)) {
            unique = match number {
                ..NUMBERED => format!("{clean}~{number}"),
                _ => format!("artifact {number}"), // the number itself makes the secret
            };
            number += 1;
        }
        unique
    }

    /// Reads one file to its end, once. `None`: it is an unchanged input.
    fn read(
        &mut self,
        source: &Source<'_>,
        found: &FoundFile,
        name: &str,
    ) -> io::Result<Option<(Artifact, Option<Content>)>> {
        let input = source.inputs.get(&found.path);
        let mut file = open(source.directory, found)?.take(ARTIFACT_BYTES_MAX);
        let mut buffer = vec![0; READ_BYTES];
        let mut count = file.read(&mut buffer)?;
        let redactor = if is_text(&buffer[..count]) {
            self.options.redactor.clone()
        } else {
            // The replacement has the same length: a binary file may contain offsets of its parts.
            self.options.redactor.filled()
        };
        let mut writer = self.writer(source, name, &redactor);
        writer.raw = input.is_some().then(Sha256::new);
        while count > 0 {
            writer.push(&buffer[..count]);
            count = file.read(&mut buffer)?;
        }
        let raw = writer.raw.take().map(|raw| <[u8; 32]>::from(raw.finalize()));
        if input.is_some() && raw.as_ref() == input {
            return Ok(None);
        }
        let redacted = writer.end();
        self.staged.found += redacted.secrets + redacted.personal;
        self.report_secrets(name, redacted.secrets);
        for (rule, why) in std::mem::take(&mut writer.failures) {
            self.not_kept(rule, name, &why);
        }
        let content = writer.incoming.take().map(Incoming::finish).transpose();
        let content = content.unwrap_or_else(|error| {
            self.not_kept("artifacts.not_kept", name, &error.to_string());
            None
        });
        let size = writer.size;
        let is_inline = size <= INLINE_BYTES_MAX && self.inline + size <= INLINE_TOTAL_MAX;
        self.inline += if is_inline { size } else { 0 };
        let artifact = Artifact {
            name: name.to_owned(),
            size_bytes: size,
            sha256: hex(&writer.hasher.finalize()),
            mime: mime(&writer.head, name),
            signature: None,
            uri: None,
            content_b64: is_inline.then(|| base64::engine::general_purpose::STANDARD.encode(&writer.head)),
        };
        Ok(Some((artifact, content)))
    }

    fn writer(&mut self, source: &Source<'_>, name: &str, redactor: &Redactor) -> ArtifactWriter {
        let options = &self.options;
        let keep = source.kept == FilesKept::InStore;
        let redaction = (!redactor.is_idle()).then(|| redactor.stream());
        let incoming = keep.then(|| options.store.receive()).transpose();
        let copy = options
            .copy_to
            .as_ref()
            .map(|to| create_below(to, name))
            .transpose();
        let incoming = incoming.unwrap_or_else(|error| {
            self.not_kept("artifacts.not_kept", name, &error.to_string());
            None
        });
        let copy = copy.unwrap_or_else(|error| {
            let why = match error.kind() {
                io::ErrorKind::AlreadyExists => "there is a file of that name".to_owned(),
                _ => error.to_string(),
            };
            self.not_kept("artifacts.copy", name, &why);
            None
        });
        ArtifactWriter {
            redaction,
            clean: Vec::new(),
            raw: None,
            hasher: Sha256::new(),
            head: Vec::new(),
            size: 0,
            incoming,
            copy,
            failures: Vec::new(),
        }
    }

    fn report_secrets(&mut self, name: &str, secrets: u64) {
        if secrets > 0 && self.staged.security_events.len() < REFUSED_MAX {
            let what = format!("{name} held secrets, {secrets} in all, which were taken out");
            let hint = "Have the program write no secrets into files.";
            let event = denial("redact.artifact", "redact", what, hint);
            self.staged.security_events.push(event);
        }
    }

    /// Denies `artifacts.copy` (into the operator's directory) or `artifacts.not_kept` (in the store).
    fn not_kept(&mut self, rule: &str, name: &str, why: &str) {
        if self.staged.denials.len() >= 2 * REFUSED_MAX {
            return;
        }
        let (what, hint) = match rule {
            "artifacts.copy" => (
                format!("{name} was not copied: {why}"),
                "No file is overwritten; name an empty directory with room.",
            ),
            _ => (
                format!("{name} was not kept: {why}"),
                "Give the state directory room, or keep artifacts for a shorter time.",
            ),
        };
        self.staged.denials.push(denial(rule, "artifacts", what, hint));
    }

    /// Signs the stored artifacts, and publishes an event for each.
    fn publish(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        let items = self.kept.drain(..).map(|(at, content)| {
            let artifact = &self.staged.artifacts[at];
            (
                at,
                Item {
                    name: artifact.name.clone(),
                    mime: artifact.mime.clone(),
                    content,
                },
            )
        });
        let (indices, items): (Vec<usize>, Vec<Item>) = items.unzip();
        let options = &self.options;
        let published = Published {
            execution_id: options.execution_id.clone(),
            namespace: options.namespace.clone(),
            time_unix_ms: now_ms(),
        };
        match options.store.publish(published, items) {
            Ok(manifest) => {
                for (at, signed) in indices.into_iter().zip(manifest.artifacts) {
                    let artifact = &mut self.staged.artifacts[at];
                    artifact.signature = Some(signed.signature);
                    let uri = artifact_uri(&options.namespace, &options.execution_id, &artifact.name);
                    // Percent-encoding may produce a secret that the name does not contain.
                    artifact.uri = matches!(options.redactor.text(&uri), Cow::Borrowed(_)).then_some(uri);
                    let kind = EventKind::ArtifactSigned {
                        name: artifact.name.clone(),
                        sha256: artifact.sha256.clone(),
                        size_bytes: artifact.size_bytes,
                    };
                    options
                        .bus
                        .publish(&options.namespace, Some(&options.execution_id), kind);
                }
            }
            Err(error) => {
                let name = format!("{} artifacts", indices.len());
                self.not_kept("artifacts.not_kept", &name, &error.to_string());
            }
        }
    }

    fn conclude(mut self) -> Staged {
        self.publish();
        if self.refused > REFUSED_MAX {
            let more = self.refused - REFUSED_MAX;
            self.refused = 0;
            self.refuse(format!("{more} more"), "Only plain files become artifacts.");
        }
        self.staged
    }

    /// Denies a file; only the first few by name, because names are chosen by the program.
    fn refuse(&mut self, what: String, hint: &str) {
        self.refused += 1;
        if self.refused > REFUSED_MAX {
            return;
        }
        // Redaction comes before the cut: half of a secret would not be found.
        let what = self.options.redactor.text(&what);
        let what: String = what.chars().take(WHAT_CHARS_MAX).collect();
        let denied = denial("artifacts.plain_files", "artifacts", what, hint);
        self.staged.denials.push(denied);
    }
}

/// Returns true if the beginning of a file is UTF-8 text without NUL.
fn is_text(head: &[u8]) -> bool {
    std::str::from_utf8(whole_characters(head)).is_ok() && !head.contains(&0)
}

/// Determines the MIME type, by content first, because the name is chosen by the program.
fn mime(head: &[u8], name: &str) -> String {
    match infer::get(head) {
        Some(kind) => kind.mime_type().to_owned(),
        None => mime_guess::from_path(name)
            .first_raw()
            .unwrap_or("application/octet-stream")
            .to_owned(),
    }
}

/// Returns the URI of a stored artifact, percent-encoded (RFC 3986) but for `/`, with the namespace unless default.
pub fn artifact_uri(namespace: &Namespace, execution_id: &str, name: &str) -> String {
    let mut uri = format!("sandbox://artifacts/{execution_id}/");
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(char::from(byte))
            }
            other => uri += &format!("%{other:02X}"),
        }
    }
    if *namespace != Namespace::default_name() {
        uri += &format!("?namespace={namespace}");
    }
    uri
}

/// Creates a file below the operator's directory under an untrusted name. The name must be a plain relative path, must
/// not exist yet, and must not be hidden: tools of people run the contents of `.git` or `.bashrc`.
pub fn create_below(export: &ExportDirectory, name: &str) -> io::Result<File> {
    let plain = WorkspacePath::try_from(name.to_owned()).map_err(io::Error::other)?;
    if plain.as_str().split('/').any(|part| part.starts_with('.')) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "hidden names are not copied",
        ));
    }
    export.create(Path::new(plain.as_str()))
}

/// Opens the directory for copies, and checks that it is writable, before anything runs.
pub(crate) fn prepare_copies(directory: &Path) -> io::Result<ExportDirectory> {
    let export = ExportDirectory::open(directory)?;
    let probe = PathBuf::from(format!(".ringfence-{}", std::process::id()));
    drop(export.create(&probe)?);
    export.remove(&probe)?;
    Ok(export)
}
