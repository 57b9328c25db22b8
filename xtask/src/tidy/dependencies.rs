//! Allowed dependencies of each crate. The table is the design; a new dependency is a new line here, seen in review.

use super::Finding;
use serde_json::Value;

/// Crates that one crate may use.
struct Allowed {
    name: &'static str,
    /// Crates of this workspace.
    workspace_crates: &'static [&'static str],
    /// External crates.
    others: &'static [&'static str],
    /// External crates in tests only.
    tests: &'static [&'static str],
}

#[rustfmt::skip]
const TABLE: &[Allowed] = &[
    Allowed { name: "ringfence-types", workspace_crates: &[], others: &["granit-parser", "schemars", "serde", "serde_json", "similar", "strsim", "thiserror"], tests: &[] },
    Allowed { name: "ringfence-sys", workspace_crates: &[], others: &["landlock", "libc", "rustix"], tests: &[] },
    Allowed { name: "ringfence-jail",
        workspace_crates: &["ringfence-sys", "ringfence-types"],
        others: &["libc", "serde", "serde_json", "thiserror", "zeroize"],
        tests: &["seccompiler"] },
    Allowed { name: "ringfence-check",
        workspace_crates: &["ringfence-types"],
        others: &["base64", "csv", "image", "jiff", "jsonschema", "oxc*", "regex", "ruff*", "serde", "serde_json", "stacker",
            "url"],
        tests: &["proptest"] },
    Allowed { name: "ringfence-redact",
        workspace_crates: &[],
        others: &["serde_json", "zeroize"],
        tests: &["base64", "proptest"] },
    // the database, ciphers, signatures, chunking, compression and archives: no other crate stores anything
    Allowed { name: "ringfence-store",
        workspace_crates: &["ringfence-types"],
        others: &["argon2", "base64", "blake3", "chacha20poly1305", "data-encoding", "ed25519-dalek", "fastcdc", "flate2",
            "getrandom", "rusqlite", "rustix", "serde", "serde_json", "sha2", "subtle", "tar", "thiserror", "tracing", "uuid",
            "zeroize", "zstd"],
        tests: &["proptest"] },
    // names, HTTP and TLS of egress
    Allowed { name: "ringfence-egress",
        workspace_crates: &["ringfence-redact", "ringfence-types"],
        others: &["base64", "getrandom", "hickory-proto", "hickory-resolver", "http-body-util", "hyper", "hyper-util", "idna", "ipnet",
            "rcgen", "rustix", "rustls", "rustls-native-certs", "thiserror", "tokio", "tokio-rustls", "tracing", "url", "zeroize"],
        tests: &["proptest"] },
    // rule files; the walls around commands of the host
    Allowed { name: "ringfence-host",
        workspace_crates: &["ringfence-jail", "ringfence-sys", "ringfence-types"],
        others: &["libc", "rustix", "serde", "serde_json", "sha2"],
        tests: &["proptest"] },
    // pages: HTTP over connections that the caller opens, codings, charsets, HTML, PDF
    Allowed { name: "ringfence-web",
        workspace_crates: &["ringfence-redact", "ringfence-types"],
        others: &["base64", "brotli-decompressor", "chardetng", "ego-tree", "encoding_rs", "flate2", "getrandom", "html5ever", "htmd", "http-body-util",
            "hyper", "hyper-util", "infer", "markup5ever_rcdom", "pdf-extract", "rustls", "scraper", "serde", "serde_json", "sha2", "thiserror", "tokio",
            "tokio-rustls", "trafilatura", "url", "whatlang", "zeroize", "zstd"],
        tests: &[] },
    // the container engine's API
    Allowed { name: "ringfence-backend",
        workspace_crates: &["ringfence-jail", "ringfence-types"],
        others: &["bollard", "futures-util", "serde_json", "thiserror", "tokio", "tracing", "uuid"],
        tests: &["proptest"] },
    Allowed { name: "ringfence-engine",
        workspace_crates: &["ringfence-backend", "ringfence-check", "ringfence-egress", "ringfence-host", "ringfence-jail", "ringfence-redact",
            "ringfence-store", "ringfence-types", "ringfence-web"],
        others: &["base64", "governor", "infer", "mime_guess", "prometheus-client", "rustls", "serde", "serde_json", "sha2", "tokio",
            "tracing", "url", "uuid", "zeroize"],
        tests: &[] },
    // rmcp, clap, HTTP, OpenTelemetry and the log's printer: no other crate knows the protocols, the command line or
    // the files
    Allowed { name: "ringfence",
        workspace_crates: &["ringfence-engine", "ringfence-jail", "ringfence-store", "ringfence-types"],
        others: &["base64", "clap", "clap_complete", "clap_mangen", "futures-core", "governor", "http-body-util", "hyper", "hyper-util", "jiff", "jsonwebtoken", "opentelemetry*", "percent-encoding", "prost",
            "ring", "rmcp", "rustix", "rustls", "rustls-native-certs", "schemars", "serde", "serde_json", "serde_path_to_error", "textwrap", "tokio", "tokio-rustls", "tokio-util", "tracing", "tracing-subscriber",
            "unicode-width", "zeroize"],
        tests: &["flate2", "proptest", "rcgen", "rusqlite", "tar"] },
    Allowed { name: "ringfence-fuzz",
        workspace_crates: &["ringfence", "ringfence-check", "ringfence-egress", "ringfence-engine", "ringfence-jail", "ringfence-redact",
            "ringfence-store", "ringfence-types", "ringfence-web"],
        others: &["libfuzzer-sys", "serde", "serde_json"],
        tests: &[] },
    Allowed { name: "xtask", workspace_crates: &[], others: &["proc-macro2", "serde_json", "syn"], tests: &[] },
];

const PRODUCT: &str = "ringfence";

/// Compares the packages of the workspace with the table.
pub fn check(packages: &[Value]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let place = format!("{name}/Cargo.toml");
        let Some(allowed) = TABLE.iter().find(|allowed| allowed.name == name) else {
            findings.push(Finding::new(
                &place,
                1,
                "dependencies",
                "the crate is not in xtask's table of dependencies",
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            if let Some(why) = refused(allowed, used, dependency["kind"].as_str()) {
                findings.push(Finding::new(
                    &place,
                    1,
                    "dependencies",
                    format!("`{name}` may not use `{used}`: {why}"),
                ));
            }
        }
    }
    findings
}

/// Returns the reason if the table does not allow a dependency. `kind` is cargo's: none for an ordinary dependency,
/// else `dev` or `build`.
fn refused(allowed: &Allowed, used: &str, kind: Option<&str>) -> Option<&'static str> {
    let is_ours = used == PRODUCT || used.starts_with("ringfence-");
    let listed = |list: &[&str]| list.iter().any(|name| matches(name, used));
    if is_ours {
        return (!listed(allowed.workspace_crates)).then_some("the design does not allow it");
    }
    match kind {
        None => (!listed(allowed.others)).then_some("it is not in xtask's table of dependencies"),
        Some("dev") => (!listed(allowed.tests) && !listed(allowed.others))
            .then_some("xtask's table does not allow it in tests either"),
        Some(_) => Some("build dependencies are not used in this workspace"),
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern
        .strip_suffix('*')
        .map_or(pattern == name, |prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn findings(name: &str, used: &str, kind: Option<&str>) -> usize {
        check(&[json!({"name": name, "dependencies": [{"name": used, "kind": kind}]})]).len()
    }

    #[test]
    fn crate_dependency_outside_the_table_is_refused() {
        assert_eq!(findings("ringfence-engine", "ringfence-jail", None), 0);
        assert_eq!(findings("ringfence-jail", "ringfence-engine", None), 1);
        assert_eq!(findings("ringfence-types", "ringfence-sys", Some("dev")), 1);
        assert_eq!(findings("ringfence-engine", "ringfence-sys", None), 1);
        assert_eq!(findings("xtask", "ringfence", None), 1);
    }

    #[test]
    fn unlisted_library_is_refused() {
        assert_eq!(findings("ringfence-check", "oxc_parser", None), 0);
        assert_eq!(findings("ringfence-types", "tokio", None), 1);
        assert_eq!(findings("ringfence", "proptest", Some("dev")), 0);
        assert_eq!(findings("ringfence", "proptest", None), 1);
        assert_eq!(findings("ringfence", "cc", Some("build")), 1);
    }

    #[test]
    fn crate_missing_from_the_table_is_found() {
        assert_eq!(
            check(&[json!({"name": "ringfence-extra", "dependencies": []})]).len(),
            1
        );
    }
}
