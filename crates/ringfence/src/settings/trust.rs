//! Trust in files. A configuration decides what programs may do, so only the user who runs Ringfence, or root, may be
//! able to change it; and neither it nor other files that decide about runs may be where programs write.

use super::{
    check_words::SchemaSource,
    environment::Environment,
    expand,
    keys::{Effective, Origin},
    refusal,
    words::HostPath,
};
use ringfence_types::RequestError;
use rustix::fs::{Mode, OFlags};
use std::{
    fs::{File, Metadata},
    io::{self, Read as _},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

#[derive(Clone, Copy)]
struct User {
    uid: u32,
    gid: u32,
}

pub(super) fn check(path: &Path, found: &Metadata) -> Result<(), RequestError> {
    let own = User {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    };
    let of_file = User {
        uid: found.uid(),
        gid: found.gid(),
    };
    // A device or a pipe (`--config /dev/stdin`) belongs to the user who named it.
    let trouble = if found.is_file() {
        let own = foreign_access(own, of_file, found.mode());
        let own = own.map(|(what, change)| (what, format!("{change} {}", path.display())));
        own.or_else(|| replaceable(path))
    } else {
        None
    };
    match trouble {
        None => Ok(()),
        Some((what, change)) => Err(refusal(
            format!("the configuration {} {what}.", path.display()),
            &format!("Check its contents, then run `{change}`."),
        )),
    }
}

/// Returns who else can change the file, and the command that prevents it.
fn foreign_access(own: User, of_file: User, mode: u32) -> Option<(String, String)> {
    if of_file.uid != own.uid && of_file.uid != 0 {
        let what = format!("belongs to another user (uid {}), who can change it", of_file.uid);
        return Some((what, format!("chown {}", own.uid)));
    }
    if mode & 0o002 != 0 {
        return Some(("can be changed by every user".to_owned(), "chmod go-w".to_owned()));
    }
    // A user's own group, as many distributions make it, has no other members.
    if mode & 0o020 != 0 && of_file.gid != own.gid {
        let what = format!("can be changed by another group (gid {})", of_file.gid);
        return Some((what, "chmod g-w".to_owned()));
    }
    None
}

/// Returns how every user could replace the file, and the command that prevents it.
fn replaceable(path: &Path) -> Option<(String, String)> {
    const STICKY: u32 = 0o1000;
    let real = path.canonicalize().ok()?;
    let is_open = |found: Metadata| found.mode() & (STICKY | 0o002) == 0o002;
    let open = real
        .ancestors()
        .skip(1)
        .find(|above| above.metadata().is_ok_and(is_open))?
        .display();
    let what = format!("can be replaced by every user, because of the permissions of {open}");
    Some((what, format!("chmod o-w {open}")))
}

/// Reads the first line of a token file of this user or root. `why`: the refusal of a mode with `forbidden` bits.
pub(crate) fn token_line(path: &Path, forbidden: u32, why: &str) -> io::Result<Zeroizing<String>> {
    const FILE_BYTES_MAX: usize = 16 << 10;
    // Without O_NONBLOCK, opening a FIFO for reading waits for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let about = file.metadata()?;
    let wrong = match about.uid() {
        _ if !about.is_file() => Some("it is not a regular file"),
        _ if about.mode() & forbidden != 0 => Some(why),
        uid if uid != 0 && uid != rustix::process::geteuid().as_raw() => Some("it belongs to another user"),
        _ => None,
    };
    if let Some(wrong) = wrong {
        return Err(io::Error::other(wrong));
    }
    let mut text = Zeroizing::new(String::with_capacity(FILE_BYTES_MAX));
    file.take(FILE_BYTES_MAX as u64).read_to_string(&mut text)?;
    Ok(Zeroizing::new(
        text.lines().next().unwrap_or_default().trim().to_owned(),
    ))
}

/// Returns the files that decide what is run and allowed, existing or not: no program may write to them.
pub(super) fn guarded(environment: &Environment, settings: &Effective, file: Option<&Path>) -> Vec<PathBuf> {
    let schemas = settings.check_schemas.items().values();
    let schemas = schemas.filter_map(|source| match source {
        SchemaSource::File(path) => Some(path),
        SchemaSource::Here(_) => None,
    });
    let named = schemas
        .chain(&settings.host_rules.0)
        .chain(&settings.http_tls_cert.0);
    let files = expanded(environment, named).chain(private(environment, file));
    files.chain(std::env::current_exe()).collect()
}

pub(super) fn secret(environment: &Environment, settings: &Effective) -> Vec<PathBuf> {
    let files = settings.http_token_file.0.iter().chain(&settings.http_tls_key.0);
    expanded(environment, files).collect()
}

fn expanded<'a>(
    environment: &Environment,
    paths: impl Iterator<Item = &'a HostPath>,
) -> impl Iterator<Item = PathBuf> {
    paths.filter_map(|path| expand(environment, path, &Origin::Default).ok())
}

/// Returns the configuration files of Ringfence and of package installers, which may hold credentials.
pub(super) fn private(environment: &Environment, file: Option<&Path>) -> Vec<PathBuf> {
    let files = file.map(Path::to_owned).into_iter();
    let files = files.chain(environment.default_config_file());
    let files = files.chain(environment.package_files());
    files
        .map(|path| std::path::absolute(&path).unwrap_or(path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_another_user_can_change_is_refused() {
        let user = |uid, gid| User { uid, gid };
        let check = |own: User, of_file: User, mode: u32, expect: Option<&str>| {
            let change = foreign_access(own, of_file, mode).map(|(_, change)| change);
            assert_eq!(change.as_deref(), expect, "{mode:o}");
        };
        let (root, ada, bob) = (user(0, 0), user(1000, 1000), user(1001, 1001));
        check(ada, ada, 0o100_644, None);
        check(ada, root, 0o100_644, None);
        check(ada, ada, 0o100_664, None);
        check(root, root, 0o100_664, None);
        check(ada, user(1000, 50), 0o100_664, Some("chmod g-w"));
        check(ada, ada, 0o100_666, Some("chmod go-w"));
        check(ada, bob, 0o100_600, Some("chown 1000"));
        check(root, ada, 0o100_644, Some("chown 0"));
        check(root, root, 0o100_602, Some("chmod go-w"));
    }

    #[test]
    fn file_in_a_world_writable_directory_is_refused() {
        use std::{fs, os::unix::fs::PermissionsExt};
        let directory = std::env::temp_dir().join(format!("ringfence-trust-{}", std::process::id()));
        let file = directory.join("below/ringfence.yaml");
        fs::create_dir_all(directory.join("below")).unwrap();
        fs::write(&file, "").unwrap();
        for (mode, is_used) in [(0o755, true), (0o777, false), (0o1777, true)] {
            fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
            let read = check(&file, &file.metadata().unwrap());
            let refused = read.map_err(|error| error.hint);
            assert_eq!(refused.is_ok(), is_used, "{mode:o}: {refused:?}");
            let change = format!("chmod o-w {}", directory.display());
            assert!(refused.err().is_none_or(|hint| hint.contains(&change)));
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
