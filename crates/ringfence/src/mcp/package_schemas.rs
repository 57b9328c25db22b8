//! JSON Schemas of packages: what may be asked for, and `install_package`.

use super::{
    Offer,
    schemas::{flag, input, list, or_null, record, said, string},
    session_schemas::session_id,
};
use ringfence_types::{Language, REQUIREMENT_CHARS_MAX, REQUIREMENTS_MAX};
use serde_json::{Value, json};

/// A set of requirements.
pub(super) fn requirements() -> Value {
    let one = json!({"type": "string", "minLength": 1, "maxLength": REQUIREMENT_CHARS_MAX});
    json!({"type": "array", "items": one, "maxItems": REQUIREMENTS_MAX})
}

/// Input of `install_package`.
pub(super) fn install_package(offer: &Offer) -> Value {
    let languages =
        json!({"type": "string", "enum": Language::NAMES.map(|(name, _)| name), "default": "python"});
    let properties = vec![
        (
            "language",
            "python, or node for JavaScript and TypeScript.",
            languages,
        ),
        (
            "packages",
            "Names and versions, as `numpy`, `pandas>=2` or `lodash@4`.",
            requirements(),
        ),
        (
            "session_id",
            "A session that is to have them at once, beside those it has.",
            session_id(),
        ),
    ];
    input(offer, properties, &["packages"])
}

/// Output of `install_package`.
pub(super) fn installed() -> Value {
    let digest = || or_null(string());
    let one = record(json!({
        "name": string(),
        "version": string(),
        "sha256": said("Of the archive that was downloaded.", digest()),
        "integrity": said("What an npm registry says of it instead.", digest()),
    }));
    record(json!({
        "success": flag(),
        "installed": list(one),
        "output": said("What the installer said; empty when everything was there.", string()),
        "replaced": said("What the session had before in another version: modules that it has imported of it stay as they are until it ends.", list(string())),
        "duration_ms": json!({"type": "number"}),
    }))
}
