//! Where secrets lie, whatever a directory rule says. Paths are judged after they were resolved, so no link hides one.

use std::path::{Component, Path};

/// Names of directories and files that hold secrets, wherever they are.
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

/// Beginnings and endings of names of private keys and of files of variables.
const BEGINNINGS: [&str; 4] = [".env.", "id_dsa", "id_ecdsa", "id_ed25519"];
const ENDINGS: [&str; 6] = [".key", ".kdbx", ".p12", ".pem", ".pfx", "_rsa"];

/// Trees that are never looked into.
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

/// The part of an absolute, resolved path that names a place of secrets; none: there is no such part.
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
        || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        || (ENDINGS.iter().any(|ending| name.ends_with(ending)) && !name.ends_with(".pub"))
}

/// Whether a text holds a private key (RFC 7468 and OpenSSH).
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
    fn places_of_secrets_are_known_by_any_part_of_the_path() {
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
