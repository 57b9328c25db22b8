//! The workspace that a request may use.

use crate::{error::Result, settings::PolicySettings};
use ringfence_types::{Namespace, RequestError, WorkspaceName, WorkspaceSource};
use std::path::{Path, PathBuf};

/// Resolves the name of a workspace, and refuses directories of the host that must not be shared.
pub(crate) fn workspace(
    policy: &PolicySettings,
    private: &[PathBuf],
    namespace: &Namespace,
    source: WorkspaceSource,
) -> Result<WorkspaceSource> {
    let source = match source {
        WorkspaceSource::Listed(name) => listed(policy, namespace, &name)?,
        other => other,
    };
    if let WorkspaceSource::Host { directory, .. } = &source {
        check_workspace(directory, private)?;
    }
    Ok(source)
}

/// Finds a listed workspace. One of another namespace is answered like one that does not exist.
fn listed(policy: &PolicySettings, namespace: &Namespace, name: &WorkspaceName) -> Result<WorkspaceSource> {
    let mut own = policy.workspaces.iter().filter(|listed| listed.is_for(namespace));
    if let Some(found) = own.clone().find(|listed| listed.name == *name) {
        return Ok(WorkspaceSource::Host {
            directory: found.directory.clone(),
            mode: found.mode,
        });
    }
    let mut names = vec!["private".to_owned(), "namespace".to_owned()];
    names.extend(own.by_ref().map(|listed| listed.name.to_string()));
    let names = names.join(", ");
    Err(RequestError::not_found(
        format!("the namespace `{namespace}` has no workspace `{name}`."),
        format!("There are: {names}. The operator lists directories under `workspaces`."),
    ))
}

/// Directories that hold the system itself rather than a user's work.
const NEVER_A_WORKSPACE: [&str; 5] = ["/", "/home", "/root", "/usr", "/var"];
const NEVER_BELOW: [&str; 9] = [
    "/bin", "/boot", "/dev", "/etc", "/lib", "/proc", "/run", "/sbin", "/sys",
];
/// Names that no component of the path may have.
const NEVER_NAMED: [&str; 6] = [".aws", ".azure", ".docker", ".gnupg", ".kube", ".ssh"];

fn check_workspace(directory: &Path, private: &[PathBuf]) -> Result<()> {
    let overlaps = |own: &PathBuf| own.starts_with(directory) || directory.starts_with(own);
    if let Some(own) = private.iter().find(|own| overlaps(own)) {
        return Err(RequestError::denied(
            format!(
                "{} cannot be a workspace: the server keeps its record and its keys in {}.",
                directory.display(),
                own.display()
            ),
            "Name a project directory, or set `state_dir` elsewhere.",
        ));
    }
    let forbidden = NEVER_A_WORKSPACE.iter().any(|path| directory == Path::new(path))
        || NEVER_BELOW.iter().any(|path| directory.starts_with(path))
        || directory
            .components()
            .any(|part| NEVER_NAMED.iter().any(|name| part.as_os_str() == *name))
        || directory.parent() == Some(Path::new("/home"));
    if !directory.is_absolute() || forbidden {
        return Err(RequestError::denied(
            format!("{} cannot be a workspace.", directory.display()),
            "Name a project directory.",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_types::ErrorCode;

    /// claim: [REC-7]
    #[test]
    fn workspace_must_not_overlap_server_directories() {
        let private = [PathBuf::from("/home/alice/.local/state/ringfence")];
        let check = |path: &str| check_workspace(Path::new(path), &private).map_err(|error| error.code);
        for path in [
            "/home/alice/.local/state/ringfence",
            "/home/alice/.local/state/ringfence/record",
            "/home/alice/.local",
        ] {
            assert_eq!(check(path), Err(ErrorCode::PolicyDenied), "{path}");
        }
        assert_eq!(check("/home/alice/.local/share"), Ok(()));
        assert_eq!(check("/home/alice/.local/state/ringfence-notes"), Ok(()));
    }

    #[test]
    fn system_directory_is_never_a_workspace() {
        for path in [
            "/",
            "/etc",
            "/etc/ssh",
            "/home",
            "/home/alice",
            "/home/alice/.ssh/keys",
            "relative",
            "/usr",
        ] {
            assert!(check_workspace(Path::new(path), &[]).is_err(), "{path}");
        }
        assert!(check_workspace(Path::new("/home/alice/project"), &[]).is_ok());
    }
}
