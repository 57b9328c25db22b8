//! The state directory. If it is not set and the default one cannot be written (no HOME, or a read-only root), a
//! private directory replaces it, with a warning that names the setting.

use super::{Environment, Faults, Origin, expand, keys::Effective};
use ringfence_store::make_own_directory;
use ringfence_types::RequestError;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::path::{Path, PathBuf};

/// The directory, and a warning if it is not the default one.
type Found = Result<(PathBuf, Option<String>), RequestError>;

pub(super) fn of(environment: &Environment, effective: &Effective, faults: &Faults) -> Found {
    let setting = &effective.state_dir;
    let directory = expand(environment, &setting.value, &setting.origin)?;
    match setting.origin {
        Origin::Default if !faults.has("state_dir") => usual_or_private(environment, directory),
        _ => Ok((directory, None)),
    }
}

fn usual_or_private(environment: &Environment, usual: PathBuf) -> Found {
    let Err(refusal) = may_write(&usual) else {
        return Ok((usual, None));
    };
    let usual = usual.display();
    let mut tried = format!("{usual}: {refusal}");
    for private in environment.fallback_state_dirs() {
        match make_own_directory(&private) {
            Ok(()) => {
                let warning = format!(
                    "{usual} cannot be written ({refusal}), so state and the audit record are in {}, which may not \
                     outlive a restart; set `state_dir` (RINGFENCE_STATE_DIR) to a directory that does.",
                    private.display()
                );
                return Ok((private, Some(warning)));
            }
            Err(error) => tried += &format!("; {}: {error}", private.display()),
        }
    }
    Err(RequestError::store_fault(
        format!("there is no directory for state: {tried}."),
        "Set `state_dir` (RINGFENCE_STATE_DIR) to a directory that can be written; in a container, mount one: `--tmpfs /tmp` \
         or a volume.",
    ))
}

/// Checks that this process may write to the directory or make it, without changing anything (faccessat(2)).
fn may_write(directory: &Path) -> rustix::io::Result<()> {
    let existing = directory.ancestors().find(|path| path.symlink_metadata().is_ok());
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, existing.unwrap_or(directory), wanted, AtFlags::EACCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::OsString, fs, os::unix::fs::PermissionsExt};

    #[test]
    fn unwritable_state_directory_is_replaced_by_a_private_one_with_a_warning() {
        let base = std::env::temp_dir().join(format!("ringfence-state-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        let runtime = OsString::from(&base);
        let environment = Environment::of([("XDG_RUNTIME_DIR".to_owned(), runtime)]);
        let usual = base.join("not/yet/there");
        let found = usual_or_private(&environment, usual.clone()).ok().unwrap();
        assert_eq!(found, (usual.clone(), None));
        assert!(!usual.exists(), "the check has made it");

        // Not even root can write below a device.
        let (found, warning) = usual_or_private(&environment, "/dev/null/ringfence".into())
            .ok()
            .unwrap();
        assert_eq!(found, base.join("ringfence"));
        assert!(warning.unwrap().contains("RINGFENCE_STATE_DIR"));
        let mode = fs::metadata(&found).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);

        // A directory that other users may read is not used.
        fs::set_permissions(&found, fs::Permissions::from_mode(0o755)).unwrap();
        match usual_or_private(&environment, "/dev/null/ringfence".into()) {
            Ok((other, _)) => assert_ne!(other, found),
            Err(error) => assert!(error.hint.contains("RINGFENCE_STATE_DIR"), "{error}"),
        }
        fs::remove_dir_all(&base).unwrap();
    }
}
