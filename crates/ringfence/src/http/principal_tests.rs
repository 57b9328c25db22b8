//! Tokens for tests.

use super::*;

/// A token whose only namespace has the token's name.
pub(in crate::http) fn entry(name: &str, role: PrincipalRole, expires_unix_ms: Option<u64>) -> TokenEntry {
    let name = Namespace::try_from(name.to_owned()).unwrap();
    TokenEntry {
        namespaces: vec![name.clone()],
        name,
        sha256: String::new(),
        toolsets: Vec::new(),
        rate_per_minute: 0,
        detach_after_ms: None,
        limits: LimitsRequest::default(),
        role,
        created_unix_ms: 1,
        expires_unix_ms,
    }
}
