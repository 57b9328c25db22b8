//! Finding the file of a program. A name is looked up in the system's directories, never in the caller's or the
//! server's `PATH`; the file and every directory above it must belong to root and be writable by root only; the file is
//! opened once, and this descriptor is run.

use crate::words::escaped;
use ringfence_sys::file;
use ringfence_types::RequestError;
use rustix::fs::{Mode, OFlags};
use std::{
    fs::{self, File, Metadata},
    io::Read,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

/// Search path of programs.
pub(crate) const DIRECTORIES: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];
const HEAD_BYTES: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
}

#[derive(Debug)]
pub struct Resolved {
    /// Canonical path.
    pub path: PathBuf,
    pub identity: Identity,
    pub(crate) handle: OwnedFd,
    /// The dynamic loader. `None`: a static program or a script.
    pub(crate) loader: Option<PathBuf>,
    /// The program that runs it. `None`: it is not a script.
    pub(crate) interpreter: Option<Box<Resolved>>,
}

/// Finds and opens a program. Refuses a script whose rule names no interpreter.
pub(crate) fn resolve(name: &str, interpreter: Option<&str>) -> Result<Resolved, RequestError> {
    let path = find(name)?;
    let handle = rustix::fs::open(
        &path,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|error| missing(name, &error.to_string()))?;
    let descriptor_path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let found = fs::metadata(&descriptor_path).map_err(|error| missing(name, &error.to_string()))?;
    check(&path, &found)?;
    let mut opened = File::open(&descriptor_path).map_err(|error| missing(name, &error.to_string()))?;
    let mut head = Vec::new();
    let read = Read::by_ref(&mut opened).take(HEAD_BYTES).read_to_end(&mut head);
    read.map_err(|error| missing(name, &error.to_string()))?;
    let is_script = head.starts_with(b"#!");
    let interpreter = match (is_script, interpreter) {
        (false, _) => None,
        (true, Some(interpreter)) => {
            let found = resolve(interpreter, None)?;
            Some(Box::new(found))
        }
        (true, None) => {
            let target = shim_target(&path, &head);
            return Err(RequestError::denied(
                format!(
                    "{} is a script that starts another program{target}.",
                    path.display()
                ),
                "Let a rule name the program that it starts by its path, or the script's `interpreter`.",
            ));
        }
    };
    let loader = if is_script { None } else { loader(&head, &path)? };
    let (device, inode) =
        file::identity(handle.as_fd()).map_err(|error| missing(name, &error.to_string()))?;
    Ok(Resolved {
        path,
        identity: Identity { device, inode },
        handle,
        loader,
        interpreter,
    })
}

fn missing(name: &str, why: &str) -> RequestError {
    RequestError::not_found(
        format!("there is no program {} here: {why}.", escaped(name)),
        format!(
            "Programs are looked for in {}; a rule may name one by its path.",
            DIRECTORIES.join(", ")
        ),
    )
}

fn find(name: &str) -> Result<PathBuf, RequestError> {
    let is_name = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
    let candidates = match (name.starts_with('/'), is_name) {
        (true, _) => vec![PathBuf::from(name)],
        (false, true) => DIRECTORIES
            .iter()
            .map(|directory| Path::new(directory).join(name))
            .collect(),
        (false, false) => return Err(missing(name, "it is neither a name nor an absolute path")),
    };
    let found = candidates.into_iter().find(|path| path.exists());
    let found = found.ok_or_else(|| missing(name, "no such file"))?;
    // A link there decides which file is run, so its directory must pass the same checks.
    if let Some(directory) = found.parent() {
        let above = directory
            .canonicalize()
            .map_err(|error| missing(name, &error.to_string()))?;
        check_above(&above.join("program"), &found)?;
    }
    found
        .canonicalize()
        .map_err(|error| missing(name, &error.to_string()))
}

/// Refuses a program that is not an executable regular file, is set-id, or can be written by others than root; no
/// directory above it may be writable by others either.
fn check(path: &Path, found: &Metadata) -> Result<(), RequestError> {
    let refused = |what: &str| {
        Err(RequestError::denied(
            format!("{} {what}, so it is not run.", path.display()),
            "A program of the host is run if it and the directories above it belong to root and no other can write them.",
        ))
    };
    if !found.is_file() {
        return refused("is not a file");
    }
    if found.mode() & 0o111 == 0 {
        return refused("is not executable");
    }
    if found.mode() & 0o6000 != 0 {
        return refused("would run as another user (set-id)");
    }
    if !is_writable_by_root_only(found) {
        return refused("does not belong to root alone");
    }
    check_above(path, path)
}

fn check_above(path: &Path, reported: &Path) -> Result<(), RequestError> {
    for above in path.ancestors().skip(1) {
        let found = fs::symlink_metadata(above);
        if !found.is_ok_and(|found| found.is_dir() && is_writable_by_root_only(&found)) {
            return Err(RequestError::denied(
                format!(
                    "{} lies in {}, which others than root can write.",
                    reported.display(),
                    above.display()
                ),
                "Name a program in the system's directories.",
            ));
        }
    }
    Ok(())
}

fn is_writable_by_root_only(found: &Metadata) -> bool {
    let group_writes = found.mode() & 0o020 != 0 && found.gid() != 0;
    found.uid() == 0 && !group_writes && found.mode() & 0o002 == 0
}

/// Returns `: ` and the program behind a version manager's shim, if the directory of the shim tells it.
fn shim_target(path: &Path, head: &[u8]) -> String {
    let text = String::from_utf8_lossy(head);
    let known = ["pyenv", "nodenv", "rbenv", "asdf"]
        .iter()
        .any(|name| text.contains(name));
    let root = path
        .parent()
        .filter(|parent| parent.ends_with("shims"))
        .and_then(Path::parent);
    let (Some(root), Some(name), true) = (root, path.file_name(), known) else {
        return String::new();
    };
    let version = fs::read_to_string(root.join("version")).unwrap_or_default();
    let Some(version) = version
        .lines()
        .next()
        .map(str::trim)
        .filter(|version| !version.contains('/'))
    else {
        return String::new();
    };
    let real = root.join("versions").join(version).join("bin").join(name);
    match real.canonicalize() {
        Ok(real) => format!(": {}", real.display()),
        Err(_) => String::new(),
    }
}

/// Returns the interpreter that a 64-bit ELF file requests (elf(5), `PT_INTERP`); every linker places it in the head.
fn loader(head: &[u8], path: &Path) -> Result<Option<PathBuf>, RequestError> {
    let unknown = || {
        RequestError::denied(
            format!(
                "{} is not a program of this machine (64-bit ELF).",
                path.display()
            ),
            "Name the program itself.",
        )
    };
    if head.get(..5) != Some(b"\x7fELF\x02") || head.get(5) != Some(&1) {
        return Err(unknown());
    }
    let number = |at: usize, bytes: usize| -> Option<usize> {
        let slice = head.get(at..at.checked_add(bytes)?)?;
        let mut all = [0; 8];
        all[..bytes].copy_from_slice(slice);
        usize::try_from(u64::from_le_bytes(all)).ok()
    };
    let (Some(table), Some(size), Some(count)) = (number(32, 8), number(54, 2), number(56, 2)) else {
        return Err(unknown());
    };
    for entry in 0..count.min(64) {
        let at = entry
            .checked_mul(size)
            .and_then(|at| at.checked_add(table))
            .ok_or_else(unknown)?;
        if number(at, 4).ok_or_else(unknown)? != 3 {
            continue;
        }
        let (Some(from), Some(length)) = (number(at + 8, 8), number(at + 32, 8)) else {
            return Err(unknown());
        };
        let bytes = from
            .checked_add(length)
            .and_then(|end| head.get(from..end))
            .ok_or_else(unknown)?;
        let text = bytes
            .strip_suffix(b"\0")
            .and_then(|text| std::str::from_utf8(text).ok());
        let loader = Path::new(text.ok_or_else(unknown)?)
            .canonicalize()
            .map_err(|_| unknown())?;
        check(&loader, &fs::metadata(&loader).map_err(|_| unknown())?)?;
        return Ok(Some(loader));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_types::ErrorCode;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn system_program_resolves_with_its_loader() {
        let found = resolve("cat", None).unwrap();
        assert!(found.path.is_absolute() && found.loader.is_some(), "{found:?}");
        let same = resolve("/bin/cat", None).unwrap();
        assert_eq!(same.identity, found.identity);
    }

    #[test]
    fn program_in_a_directory_writable_by_others_is_not_run() {
        let directory = std::env::temp_dir().join(format!("ringfence-program-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let own = directory.join("cat");
        fs::copy("/bin/cat", &own).unwrap();
        // Below /tmp, which is writable by all users.
        let refused = resolve(own.to_str().unwrap(), None).unwrap_err();
        assert!(
            refused.message.contains("which others than root can write"),
            "{refused}"
        );
        let link = directory.join("link");
        std::os::unix::fs::symlink("/bin/cat", &link).unwrap();
        let refused = resolve(link.to_str().unwrap(), None).unwrap_err();
        assert!(
            refused.message.contains("which others than root can write"),
            "{refused}"
        );
        fs::remove_dir_all(&directory).unwrap();
        for bad in ["no-such-program-here", "a/b", "..", ""] {
            assert_eq!(resolve(bad, None).unwrap_err().code, ErrorCode::NotFound, "{bad}");
        }
    }

    #[test]
    fn shim_is_refused_with_the_path_of_its_program() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can make a shim in a directory from which programs are run");
            return;
        }
        let root = PathBuf::from(format!("/opt/ringfence-shim-{}", std::process::id()));
        fs::create_dir_all(root.join("shims")).unwrap();
        fs::create_dir_all(root.join("versions/3.0/bin")).unwrap();
        fs::write(root.join("version"), "3.0\n").unwrap();
        fs::copy("/bin/cat", root.join("versions/3.0/bin/tool")).unwrap();
        let shim = root.join("shims/tool");
        fs::write(&shim, "#!/bin/sh\nexec pyenv exec tool\n").unwrap();
        fs::set_permissions(&shim, fs::Permissions::from_mode(0o755)).unwrap();
        let refused = resolve(shim.to_str().unwrap(), None).unwrap_err();
        fs::remove_dir_all(&root).unwrap();
        assert!(refused.message.contains("versions/3.0/bin/tool"), "{refused}");
    }
}
