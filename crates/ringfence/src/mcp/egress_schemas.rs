//! JSON Schemas of the toolset `egress`, and of the argument by which programs are given hosts.

use super::schemas::Property;
use ringfence_types::DOMAINS_MAX;
use serde_json::json;

const DOMAIN_CHARS_MAX: usize = 1024;

/// The argument by which the hosts that a program may reach are named.
pub(super) fn allowed_domains() -> Property {
    let one = json!({"type": "string", "minLength": 1, "maxLength": DOMAIN_CHARS_MAX});
    (
        "allowed_domains",
        "Hosts that it may reach, as `example.com`, `*.example.com` or `example.com:8443`: of those that the operator lets this \
         namespace reach, only these. Left out: all of them. Empty: nobody.",
        json!({"type": "array", "items": one, "maxItems": DOMAINS_MAX}),
    )
}
