//! JSON Schemas of `request_egress`, and of the argument by which programs are given hosts.

use super::{
    Offer,
    schemas::{Property, flag, input, or_null, record, said, string},
    session_schemas::session_id,
};
use ringfence_engine::{REASON_CHARS_MAX, Scope};
use ringfence_types::DOMAINS_MAX;
use serde_json::{Value, json};

const DOMAIN_CHARS_MAX: usize = 1024;

/// The argument by which the hosts that a program may reach are named.
pub(super) fn allowed_domains() -> Property {
    let one = json!({"type": "string", "minLength": 1, "maxLength": DOMAIN_CHARS_MAX});
    (
        "allowed_domains",
        "Hosts that it may reach, as `example.com`, `*.example.com` or `example.com:8443`: of those that the operator lets this \
         namespace reach, only these. Left out: all of them. Empty: nobody. In a session: of those that the session has, for this call.",
        json!({"type": "array", "items": one, "maxItems": DOMAINS_MAX}),
    )
}

/// Input of `request_egress`.
pub(super) fn request_egress(offer: &Offer) -> Value {
    let properties = vec![
        (
            "domain",
            "One host, with a port or without: `api.example.com`, `example.com:8443`. Without one, 80 and 443.",
            json!({"type": "string", "minLength": 1, "maxLength": 320}),
        ),
        (
            "reason",
            "What it is needed for, in a sentence. A person reads it before the answer.",
            json!({"type": "string", "maxLength": REASON_CHARS_MAX}),
        ),
        (
            "session_id",
            "A session that is to reach it; only then can it be approved for that session alone.",
            session_id(),
        ),
    ];
    input(offer, properties, &["domain"])
}

/// Output of `request_egress`.
pub(super) fn decided() -> Value {
    let scopes: Vec<&str> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
    record(json!({
        "success": flag(),
        "domain": string(),
        "approved": flag(),
        "scope": said(
            "Where it was approved: for the next run, for the session, or for every run of the namespace until expires_at.",
            or_null(json!({"type": "string", "enum": scopes})),
        ),
        "decided_by": said("Who has answered; where nobody has, why it is denied.", string()),
        "expires_at": said("When an approval for the namespace ends.", or_null(string())),
    }))
}
