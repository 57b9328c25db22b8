//! The files a program left: staged from outside once its tree is dead, so that nothing changes while they are read.
//! No link is followed; what is not a plain file is refused and named.

use crate::backend::Doors;
use base64::Engine as _;
use ringfence_jail::harvest::{self, Bounds, Found, Stamp, Walk};
use ringfence_types::{Artifact, Denial, WorkspacePath};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

/// Bounds of what is collected from one run.
const ENTRIES_MAX: usize = 20_000;
const DEPTH_MAX: usize = 32;
const ARTIFACTS_MAX: usize = 1_000;
const ARTIFACT_BYTES_MAX: u64 = 256 << 20;
const TOTAL_BYTES_MAX: u64 = 1 << 30;
/// Names are the program's words, of which a client gets no more than this many bytes.
const NAMES_BYTES_MAX: usize = 256 << 10;
const REFUSED_MAX: usize = 20;
const WHAT_CHARS_MAX: usize = 1024;
const INLINE_BYTES_MAX: u64 = 64 << 10;
const INLINE_TOTAL_MAX: u64 = 1 << 20;

const BOUNDS: Bounds = Bounds {
    entries: ENTRIES_MAX,
    depth: DEPTH_MAX,
};

/// What the workspace held before the program started.
#[derive(Debug, Default)]
pub(crate) struct Before {
    stamps: BTreeMap<PathBuf, Stamp>,
    inputs: BTreeMap<PathBuf, [u8; 32]>,
}

impl Before {
    /// A fresh workspace with only these input files.
    pub(crate) fn inputs<'a>(files: impl Iterator<Item = (&'a WorkspacePath, &'a [u8])>) -> Self {
        let inputs = files.map(|(path, bytes)| (PathBuf::from(path.as_str()), Sha256::digest(bytes).into()));
        Self {
            stamps: BTreeMap::new(),
            inputs: inputs.collect(),
        }
    }

    /// A directory of the host's, as it is now.
    pub(crate) fn look(&mut self, directory: &Path) -> io::Result<()> {
        self.stamps = harvest::stamps(&harvest::walk(File::open(directory)?.as_fd(), BOUNDS));
        Ok(())
    }
}

/// Artifacts and what was refused.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    pub(crate) artifacts: Vec<Artifact>,
    pub(crate) denials: Vec<Denial>,
}

/// Are there no files at all.
pub(crate) fn has_nothing(doors: &Doors) -> bool {
    [&doors.changes, &doors.output]
        .into_iter()
        .all(|directory| harvest::is_empty(directory.as_fd()))
}

/// Collects what is new or changed. Blocking: reads every artifact once.
pub(crate) fn stage(doors: &Doors, before: &Before, copy_to: Option<&Path>, total_max: u64) -> Staged {
    let mut staging = Staging {
        staged: Staged::default(),
        names: 0,
        refused: 0,
        total_max: total_max.min(TOTAL_BYTES_MAX),
        total: 0,
        inline: 0,
        copy_to,
    };
    let changes = harvest::walk(doors.changes.as_fd(), BOUNDS);
    staging.add(doors.changes.as_fd(), &changes, "", before);
    let output = harvest::walk(doors.output.as_fd(), BOUNDS);
    staging.add(doors.output.as_fd(), &output, "output/", &Before::default());
    staging.conclude()
}

struct Staging<'a> {
    staged: Staged,
    names: usize,
    refused: usize,
    total_max: u64,
    total: u64,
    inline: u64,
    copy_to: Option<&'a Path>,
}

impl Staging<'_> {
    fn add(&mut self, directory: std::os::fd::BorrowedFd<'_>, walk: &Walk, prefix: &str, before: &Before) {
        for (path, what) in &walk.refused {
            self.refuse(
                format!("{prefix}{}: {what}", path.display()),
                "Only plain files become artifacts.",
            );
        }
        if walk.incomplete {
            self.refuse(
                format!("{prefix}: more than {ENTRIES_MAX} entries, deeper than {DEPTH_MAX}, or unreadable directories"),
                "Pack many files into an archive.",
            );
        }
        for found in &walk.files {
            if before.stamps.get(&found.path) == Some(&found.stamp) {
                continue;
            }
            self.names += found.path.as_os_str().len();
            if self.staged.artifacts.len() == ARTIFACTS_MAX || self.names > NAMES_BYTES_MAX {
                self.refuse(
                    format!("more than {ARTIFACTS_MAX} artifacts, or {NAMES_BYTES_MAX} bytes of names"),
                    "Pack many files into an archive.",
                );
                return;
            }
            self.take(directory, found, prefix, before);
        }
    }

    fn take(&mut self, directory: std::os::fd::BorrowedFd<'_>, found: &Found, prefix: &str, before: &Before) {
        let name = format!("{prefix}{}", found.path.to_string_lossy());
        if found.size > ARTIFACT_BYTES_MAX || self.total + found.size > self.total_max {
            self.refuse(
                format!("{name}: {} bytes", found.size),
                "An artifact may have 256 MiB, all of them 1 GiB and no more than the private disk.",
            );
            return;
        }
        match self.read(directory, found, &name) {
            Ok((artifact, digest)) => {
                if before.inputs.get(&found.path) != Some(&digest) {
                    self.total += found.size;
                    self.staged.artifacts.push(artifact);
                }
            }
            Err(error) => self.refuse(
                format!("{name}: {error}"),
                "The file could not be read by the server.",
            ),
        }
    }

    fn read(
        &mut self,
        directory: std::os::fd::BorrowedFd<'_>,
        found: &Found,
        name: &str,
    ) -> io::Result<(Artifact, [u8; 32])> {
        let mut file = harvest::open(directory, found)?.take(ARTIFACT_BYTES_MAX);
        let mut copy = match self.copy_to.map(|to| create_below(to, name)) {
            Some(Ok(copy)) => Some(copy),
            Some(Err(error)) => {
                self.not_copied(name, &error);
                None
            }
            None => None,
        };
        let (mut hasher, mut head, mut size) = (Sha256::new(), Vec::new(), 0_u64);
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = file.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            hasher.update(&buffer[..count]);
            size += count as u64;
            if size <= INLINE_BYTES_MAX {
                head.extend_from_slice(&buffer[..count]);
            }
            if let Some(Err(error)) = copy.as_mut().map(|copy| copy.write_all(&buffer[..count])) {
                self.not_copied(name, &error);
                copy = None;
            }
        }
        let digest: [u8; 32] = hasher.finalize().into();
        let inline = size <= INLINE_BYTES_MAX && self.inline + size <= INLINE_TOTAL_MAX;
        self.inline += if inline { size } else { 0 };
        let artifact = Artifact {
            name: name.to_owned(),
            size_bytes: size,
            sha256: hex(&digest),
            mime: mime(&head, name),
            content_b64: inline.then(|| base64::engine::general_purpose::STANDARD.encode(&head)),
        };
        Ok((artifact, digest))
    }

    fn not_copied(&mut self, name: &str, error: &io::Error) {
        self.staged.denials.push(Denial {
            rule: "artifacts.copy".to_owned(),
            layer: "artifacts".to_owned(),
            what: format!("{name} was not copied: {error}"),
            hint: "Nothing that is there is replaced; name an empty directory with room.".to_owned(),
        });
    }

    fn conclude(mut self) -> Staged {
        if self.refused > REFUSED_MAX {
            let more = self.refused - REFUSED_MAX;
            self.refused = 0;
            self.refuse(format!("{more} more"), "Only plain files become artifacts.");
        }
        self.staged
    }

    /// The first few by name, since names are the program's words.
    fn refuse(&mut self, what: String, hint: &str) {
        self.refused += 1;
        if self.refused > REFUSED_MAX {
            return;
        }
        let what: String = what.chars().take(WHAT_CHARS_MAX).collect();
        let (rule, layer) = ("artifacts.plain_files".to_owned(), "artifacts".to_owned());
        self.staged.denials.push(Denial {
            rule,
            layer,
            what,
            hint: hint.to_owned(),
        });
    }
}

/// By content first, since a name is only the program's word.
fn mime(head: &[u8], name: &str) -> String {
    match infer::get(head) {
        Some(kind) => kind.mime_type().to_owned(),
        None => mime_guess::from_path(name)
            .first_raw()
            .unwrap_or("application/octet-stream")
            .to_owned(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The operator's directory is the operator's; the name is a stranger's. It must be a plain path below it, replaces
/// nothing, and is not hidden: what lies in `.git` or `.bashrc` is run by people's tools.
fn create_below(directory: &Path, name: &str) -> io::Result<File> {
    let plain = WorkspacePath::try_from(name.to_owned()).map_err(io::Error::other)?;
    if plain.as_str().split('/').any(|part| part.starts_with('.')) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "hidden names are not copied",
        ));
    }
    let path = directory.join(plain.as_str());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    File::options().write(true).create_new(true).open(path)
}

/// Makes the directory for copies, and sees that it can be written, before anything runs.
pub(crate) fn prepare_copies(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let probe = directory.join(format!(".ringfence-{}", std::process::id()));
    File::options().write(true).create_new(true).open(&probe)?;
    std::fs::remove_file(probe)
}
