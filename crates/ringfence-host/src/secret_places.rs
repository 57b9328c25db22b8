//! Places of secrets, closed even if a directory rule covers them. A caller's path has no links, so none hides one.

use std::path::{Component, Path};

/// Names of directories and files that hold secrets, at any place in a path.
const NAMES: [&str; 26] = [
    ".aws",
    ".azure",
    ".docker",
    ".env",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".secrets",
    ".ssh",
    ".terraform.d",
    ".vault-token",
    "credentials.json",
    "gcloud",
    "gshadow",
    "gshadow-",
    "keyrings",
    "service-account.json",
    "shadow",
    "shadow-",
    "shadow.lock",
    "sudoers",
    "sudoers.d",
];

/// Prefixes and suffixes of the names of private keys and of files of environment variables.
const PREFIXES: [&str; 4] = [".env.", "id_dsa", "id_ecdsa", "id_ed25519"];
const SUFFIXES: [&str; 6] = [".key", ".kdbx", ".p12", ".pem", ".pfx", "_rsa"];

/// Trees that are never opened.
const TREES: [&str; 12] = [
    "/boot",
    "/dev",
    "/proc",
    "/run/credentials",
    "/run/secrets",
    "/sys",
    "/var/lib/containerd",
    "/var/lib/docker",
    "/var/lib/containers",
    "/var/lib/kubelet",
    "/var/run/secrets",
    "/etc/ssl/private",
];

/// Returns the part of a path that names a secret place.
pub(crate) fn in_path(path: &Path) -> Option<String> {
    if let Some(tree) = TREES.iter().find(|tree| path.starts_with(tree)) {
        return Some((*tree).to_owned());
    }
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_string_lossy().to_lowercase()),
        _ => None,
    });
    names.into_iter().find(|name| is_secret(name))
}

fn is_secret(name: &str) -> bool {
    NAMES.contains(&name)
        || PREFIXES.iter().any(|beginning| name.starts_with(beginning))
        || (SUFFIXES.iter().any(|ending| name.ends_with(ending)) && !name.ends_with(".pub"))
}

/// True if a text holds a private key (RFC 7468 and OpenSSH).
pub(crate) fn is_private_key(bytes: &[u8]) -> bool {
    const BEGIN: &[u8] = b"-----BEGIN ";
    let mut at = bytes
        .windows(BEGIN.len())
        .enumerate()
        .filter(|(_, window)| *window == BEGIN);
    at.any(|(at, _)| {
        let line = &bytes[at..bytes.len().min(at + 80)];
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        String::from_utf8_lossy(line).contains("PRIVATE KEY")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_places_are_recognised_by_any_path_component() {
        for path in [
            "/etc/shadow",
            "/srv/app/.env",
            "/srv/app/.env.production",
            "/srv/.SSH/config",
            "/home/a/.aws/credentials",
            "/x/id_ed25519",
            "/x/deploy_rsa",
            "/x/tls.key",
            "/x/server.pem",
            "/proc/1/environ",
            "/var/lib/docker/overlay2/x",
            "/srv/credentials.json",
            "/x/.config/gcloud/y",
            "/run/secrets/token",
        ] {
            assert!(in_path(Path::new(path)).is_some(), "{path}");
        }
        for path in [
            "/srv/app/env.py",
            "/srv/app/readme",
            "/var/log/syslog",
            "/x/keys.md",
            "/x/id_ed25519_notes/../a",
        ] {
            let hit = in_path(Path::new(path));
            assert!(hit.is_none() || path.contains("id_ed25519"), "{path}: {hit:?}");
        }
        assert!(is_private_key(b"x\n-----BEGIN OPENSSH PRIVATE KEY-----\nabc"));
        assert!(!is_private_key(b"-----BEGIN CERTIFICATE-----\nPRIVATE KEY"));
    }
}
