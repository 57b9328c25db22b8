//! Private directories for persistent state.

use rustix::{
    fs::{Mode, OFlags},
    process::geteuid,
};
use std::{
    fs, io,
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, MetadataExt},
    },
    path::Path,
};

/// Creates a directory of mode 0700, and missing parents of mode 0755. An existing one must be a directory of this user
/// (not a link) that is closed to others. Fails if another user could replace it in its parent.
pub fn make_own_directory(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        // Less what the umask of this process removes.
        fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
        check_parent(&fs::metadata(parent)?)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory));
    }
    if found.mode() & 0o077 != 0 {
        return Err(io::Error::other("others may look into it; chmod it to 0700"));
    }
    if found.uid() != geteuid().as_raw() {
        return Err(io::Error::other("it belongs to another user"));
    }
    Ok(())
}

/// Creates a directory that programs may change, or sets an existing one of this user back to mode 0700. Its parent
/// must be out of the programs' reach; it is neither created nor checked.
pub fn reclaim_own_directory(path: &Path) -> io::Result<()> {
    const CLOSED: u32 = 0o700;
    match fs::DirBuilder::new().mode(CLOSED).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    // An `O_PATH` handle needs no permission on the directory, and no other directory can take its place.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::open(path, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&handle)?;
    if found.st_uid != geteuid().as_raw() {
        return Err(io::Error::other("it belongs to another user"));
    }
    if found.st_mode & 0o7777 != CLOSED {
        let name = format!("/proc/self/fd/{}", handle.as_raw_fd());
        rustix::fs::chmod(name, Mode::from_raw_mode(CLOSED))?;
    }
    Ok(())
}

/// Refuses a parent writable by others without the sticky bit, or of a user other than this one and root.
fn check_parent(parent: &fs::Metadata) -> io::Result<()> {
    const OTHERS_WRITE: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    if parent.mode() & OTHERS_WRITE != 0 && parent.mode() & STICKY == 0 {
        return Err(io::Error::other("others may write to the directory above it"));
    }
    if parent.uid() != geteuid().as_raw() && parent.uid() != 0 {
        return Err(io::Error::other("the directory above it belongs to another user"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::TestDir;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn directory_open_to_others_and_symlink_are_refused() {
        let base = TestDir::new();
        let own = base.join("state/record");
        make_own_directory(&own).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        make_own_directory(&own).unwrap();
        std::os::unix::fs::symlink(&own, base.join("link")).unwrap();
        assert!(make_own_directory(&base.join("link")).is_err());
        fs::set_permissions(&own, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(
            make_own_directory(&own)
                .unwrap_err()
                .to_string()
                .contains("chmod")
        );
        fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(base.join("state"), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(
            make_own_directory(&own)
                .unwrap_err()
                .to_string()
                .contains("above")
        );
    }

    #[test]
    fn directory_of_programs_is_reset_to_mode_0700() {
        let base = TestDir::new();
        let own = base.join("default");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        reclaim_own_directory(&own).unwrap();
        assert_eq!(mode(&own), 0o700);
        for made in [0o755, 0o777, 0o1777, 0o2770, 0o500, 0] {
            fs::set_permissions(&own, fs::Permissions::from_mode(made)).unwrap();
            reclaim_own_directory(&own).unwrap();
            assert_eq!(mode(&own), 0o700, "{made:o}");
        }
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
        let link = base.join("link");
        std::os::unix::fs::symlink(&own, &link).unwrap();
        assert!(reclaim_own_directory(&link).is_err());
        assert_eq!(mode(&own), 0o755, "no link is followed");
        fs::write(base.join("file"), "").unwrap();
        assert!(reclaim_own_directory(&base.join("file")).is_err());
    }
}
