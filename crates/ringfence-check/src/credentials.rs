//! Paths and URLs where people and machines keep credentials: keys, passwords, tokens.

use crate::lists::{LISTS, is_within};

/// Certainty that a path holds nothing but secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secret {
    Certain,
    /// The file, such as `.env`, may be an ordinary program's own.
    Perhaps,
}

/// Returns all listed places, without leading and trailing slashes.
pub(crate) fn places() -> impl Iterator<Item = &'static str> {
    let all = [&LISTS.secrets, &LISTS.perhaps_secrets, &LISTS.around_secrets];
    all.into_iter().flatten().map(|place| place.trim_matches('/'))
}

/// Returns the kind of secret at a path or at the end of a URL, if there is one.
pub(crate) fn secret_at(path: &str) -> Option<Secret> {
    // A text this long is not a path, and every listed place has a dot or a slash.
    if path.len() > 512 || path.contains('\n') || !path.contains(['.', '/']) {
        return None;
    }
    let certain = LISTS.secrets.iter().any(|place| has_place(path, place));
    // A copy of a whole directory includes its keys.
    let whole = [".ssh", ".aws", ".gnupg", ".kube"];
    let home = ["~/", "/root/", "/home/"]; // tidy: machine path, because it is where secrets lie
    let last = path.trim_end_matches(['/', '*']).rsplit_once('/');
    let whole =
        home.iter().any(|home| path.starts_with(home)) && last.is_some_and(|(_, name)| whole.contains(&name));
    let of_process = path.starts_with("/proc/") && path.ends_with("/environ");
    if certain || whole || of_process {
        return Some(Secret::Certain);
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let example = [".example", ".sample", ".template", ".dist"];
    let is_secret = LISTS.perhaps_secrets.iter().any(|secret| is_within(name, secret))
        && !example.iter().any(|ending| name.ends_with(ending));
    is_secret.then_some(Secret::Perhaps)
}

/// True if the path has the place as whole names: `.netrc` in any directory and `/etc/shadow-`, but not `my.netrc.txt`.
fn has_place(path: &str, place: &str) -> bool {
    path.match_indices(place).any(|(at, _)| {
        let begins = place.starts_with('/') || at == 0 || path.as_bytes()[at - 1] == b'/';
        let after = path.as_bytes().get(at + place.len());
        let ends = place.ends_with('/')
            || after.is_none_or(|byte| !byte.is_ascii_alphanumeric())
            || place.contains("gcloud")
            || place.contains("azure");
        let public = path[at + place.len()..].starts_with(".pub");
        begins && ends && !public
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expect: Option<Secret>) {
        assert_eq!(secret_at(path), expect, "{path}");
    }

    #[test]
    fn secrets_are_recognized_by_their_paths() {
        for path in [
            "~/.ssh/id_rsa",
            "/home/a/.ssh/id_ed25519",
            "/etc/shadow",
            "/etc/shadow-",
            "~/.aws/credentials",
            "/root/.ssh", // tidy: machine path, because it is where secrets lie
            "~/.ssh/*",
            "/proc/self/environ",
            "/proc/1/environ",
            ".ssh/id_rsa",
            "http://169.254.169.254/latest/meta-data",
            "~/.netrc",
            "~/.gnupg/secring.gpg",
        ] {
            check(path, Some(Secret::Certain));
        }
        for path in [".env", "./.env", "app/.env.local", "~/.npmrc"] {
            check(path, Some(Secret::Perhaps));
        }
        for path in [
            "~/.ssh/id_rsa.pub",
            "etc/shadow.css",
            ".env.example",
            "environment",
            "process.env",
            "my.netrcs",
            "/proc/self/status",
            "shadow",
            "~/.ssh/known_hosts",
            "a\n.env",
        ] {
            check(path, None);
        }
    }
}
