//! Atomic replacement of a file: a reader sees the old or the new content, also after a power cut.

use ringfence_types::{ErrorCode, RequestError};
use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Replaces the content of a file; with `known`, only if the file still has this content.
pub(super) fn replace(file: &Path, bytes: &[u8], known: Option<&[u8]>) -> Result<(), RequestError> {
    let refused = |error: io::Error| {
        RequestError::invalid(
            format!("could not write {}: {error}.", file.display()),
            "Make the file and its directory writable.",
        )
    };
    // The target of a symlink is replaced, since its content was read.
    let place = file.canonicalize().or_else(|error| match (error.kind(), known) {
        (io::ErrorKind::NotFound, None) => std::path::absolute(file),
        _ => Err(error),
    });
    let place = place.map_err(refused)?;
    if let Some(known) = known
        && fs::read(&place).map_err(refused)? != known
    {
        return Err(RequestError::new(
            ErrorCode::Conflict,
            format!(
                "{} has changed since it was read, and was not written.",
                file.display()
            ),
            "Look at it again.",
        ));
    }
    // In the same directory, thus on the same file system.
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let beside = place.with_file_name(format!(".{name}.ringfence-{}", std::process::id()));
    let written = write_beside(&place, &beside, bytes);
    if written.is_err() {
        drop(fs::remove_file(&beside));
    }
    written.map_err(refused)
}

fn write_beside(place: &Path, beside: &Path, bytes: &[u8]) -> io::Result<()> {
    let old = fs::metadata(place).ok();
    let mut file = create(beside, old.as_ref())?;
    file.write_all(bytes)?;
    if let Some(old) = old {
        if !old.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file"));
        }
        file.set_permissions(old.permissions())?;
    }
    file.sync_all()?;
    fs::rename(beside, place)?;
    // The rename is durable once the directory is synced.
    place
        .parent()
        .map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

/// Creates the new file. Until it has the permissions of the file that it replaces, only its owner can open it.
fn create(beside: &Path, old: Option<&Metadata>) -> io::Result<File> {
    let mode = if old.is_some() { 0o600 } else { 0o666 };
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode).open(beside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn replacement_is_private_until_it_has_the_permissions_of_the_old_file() {
        let directory = std::env::temp_dir().join(format!("ringfence-private-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let old = File::create(directory.join("old")).unwrap().metadata().unwrap();
        let mode = |name: &str, old: Option<&Metadata>| {
            let created = create(&directory.join(name), old).unwrap();
            created.metadata().unwrap().permissions().mode() & 0o777
        };
        assert_eq!(mode("replacement", Some(&old)), 0o600);
        assert_eq!(mode("fresh", None), old.permissions().mode() & 0o777);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn replaced_file_keeps_permissions_links_and_concurrent_changes() {
        let directory = std::env::temp_dir().join(format!("ringfence-write-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (file, link) = (directory.join("a.py"), directory.join("link.py"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o750)).unwrap();
        symlink(&file, &link).unwrap();
        replace(&link, b"new", Some(b"old")).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o750);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let error = replace(&file, b"newer", Some(b"old")).unwrap_err();
        assert_eq!(error.code, ErrorCode::Conflict);
        assert_eq!(fs::read(&file).unwrap(), b"new");
        replace(&directory.join("fresh"), b"x", None).unwrap();
        assert!(replace(&directory, b"x", None).is_err());
        assert_eq!(
            fs::read_dir(&directory).unwrap().count(),
            3,
            "nothing is left behind"
        );
        fs::remove_dir_all(&directory).unwrap();
    }
}
