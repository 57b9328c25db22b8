//! Which file a program's name means. It is looked for in the system's directories, never in the caller's or the
//! server's path; it and every directory above it belong to root and are written by no other; what is found is opened,
//! and it is this descriptor that is run.

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

/// Where programs are looked for.
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

/// A program that was found and opened.
#[derive(Debug)]
pub struct Resolved {
    /// Where it really is.
    pub path: PathBuf,
    pub identity: Identity,
    pub(crate) handle: OwnedFd,
    /// What the kernel loads first, where it is not a static program.
    pub(crate) loader: Option<PathBuf>,
    /// The program that runs it, where it is a script.
    pub(crate) interpreter: Option<Box<Resolved>>,
}

/// Finds and opens a program. A script is one only with the interpreter that its rule names.
pub(crate) fn resolve(name: &str, interpreter: Option<&str>) -> Result<Resolved, RequestError> {
    let path = find(name)?;
    let handle = rustix::fs::open(
        &path,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|error| missing(name, &error.to_string()))?;
    let again = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let found = fs::metadata(&again).map_err(|error| missing(name, &error.to_string()))?;
    check(&path, &found)?;
    let mut opened = File::open(&again).map_err(|error| missing(name, &error.to_string()))?;
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
            let behind = behind_shim(&path, &head);
            return Err(RequestError::denied(
                format!(
                    "{} is a script that starts another program{behind}.",
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
    let there = candidates.into_iter().find(|path| path.exists());
    let there = there.ok_or_else(|| missing(name, "no such file"))?;
    // The link that leads there is as good as the file.
    if let Some(directory) = there.parent() {
        let above = directory
            .canonicalize()
            .map_err(|error| missing(name, &error.to_string()))?;
        check_above(&above.join("program"), &there)?;
    }
    there
        .canonicalize()
        .map_err(|error| missing(name, &error.to_string()))
}

/// The file and all that is above it are root's alone.
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
        return refused("would run as somebody else (set-id)");
    }
    if !is_roots_alone(found) {
        return refused("does not belong to root alone");
    }
    check_above(path, path)
}

fn check_above(path: &Path, whose: &Path) -> Result<(), RequestError> {
    for above in path.ancestors().skip(1) {
        let found = fs::symlink_metadata(above);
        if !found.is_ok_and(|found| found.is_dir() && is_roots_alone(&found)) {
            return Err(RequestError::denied(
                format!(
                    "{} lies in {}, which others than root can write.",
                    whose.display(),
                    above.display()
                ),
                "Name a program in the system's directories.",
            ));
        }
    }
    Ok(())
}

fn is_roots_alone(found: &Metadata) -> bool {
    let group_writes = found.mode() & 0o020 != 0 && found.gid() != 0;
    found.uid() == 0 && !group_writes && found.mode() & 0o002 == 0
}

/// Where a version manager's shim leads, as far as its directory says.
fn behind_shim(path: &Path, head: &[u8]) -> String {
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

/// The interpreter that a 64-bit ELF file asks for (elf(5), `PT_INTERP`). The head of the file has it, by every linker.
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
    fn a_program_of_the_system_is_found_with_its_loader() {
        let found = resolve("cat", None).unwrap();
        assert!(found.path.is_absolute() && found.loader.is_some(), "{found:?}");
        let same = resolve("/bin/cat", None).unwrap();
        assert_eq!(same.identity, found.identity);
    }

    #[test]
    fn what_others_can_change_is_not_run() {
        let directory = std::env::temp_dir().join(format!("ringfence-program-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let own = directory.join("cat");
        fs::copy("/bin/cat", &own).unwrap();
        // Below /tmp, which everybody writes.
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
    fn a_shim_is_refused_with_the_program_behind_it() {
        if !rustix::process::geteuid().is_root() {
            println!("only root can lay a shim where programs are run from");
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
