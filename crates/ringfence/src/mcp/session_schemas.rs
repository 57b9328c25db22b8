//! JSON Schemas of the toolset `sessions`.

use super::{
    Offer, egress_schemas, package_schemas,
    schemas::{flag, input, list, number, or_null, record, resource_limits, said, seconds, string, whole},
};
use ringfence_types::{Language, SessionEnd};
use serde_json::{Value, json};

/// A session's id.
pub(super) fn session_id() -> Value {
    json!({"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"})
}

/// Why a session has ended, or null.
pub(super) fn ended() -> Value {
    let words = [
        SessionEnd::Terminated,
        SessionEnd::Idle,
        SessionEnd::Age,
        SessionEnd::Exited,
        SessionEnd::Crashed,
        SessionEnd::OutOfMemory,
        SessionEnd::Limit,
        SessionEnd::Stuck,
        SessionEnd::Server,
    ];
    or_null(json!({"enum": words.map(SessionEnd::as_str)}))
}

/// Input of `create_session`.
pub(super) fn create_session(offer: &Offer) -> Value {
    let languages = Language::NAMES.map(|(name, _)| name);
    let idle = json!({"type": "number", "minimum": 1});
    input(
        offer,
        vec![
            (
                "language",
                "Whose interpreter stays alive.",
                json!({"type": "string", "enum": languages, "default": "python"}),
            ),
            (
                "timeout_seconds",
                "Wall-clock limit of each call that names none.",
                seconds(offer),
            ),
            ("timeout", "The same as timeout_seconds.", seconds(offer)),
            ("timeout_sec", "The same as timeout_seconds.", seconds(offer)),
            (
                "idle_timeout_seconds",
                "It ends when nobody has used it for so long.",
                idle.clone(),
            ),
            ("idle_timeout", "The same as idle_timeout_seconds.", idle),
            (
                "packages",
                "Packages that the session can import, as `numpy` or `lodash@4`; install_package adds more.",
                package_schemas::requirements(),
            ),
            egress_schemas::allowed_domains(),
            (
                "env",
                "Environment variables of the session.",
                json!({"type": "object", "additionalProperties": string()}),
            ),
            (
                "env_vars",
                "The same as env.",
                json!({"type": "object", "additionalProperties": string()}),
            ),
            (
                "secrets",
                "Names of secrets that it gets as environment variables; vault_list has them.",
                json!({"type": "array", "items": string(), "maxItems": 1000}),
            ),
            (
                "memory_limit",
                "Memory of the session as 256m or 1g; the same as resource_limits.max_ram_mb.",
                json!({"type": "string", "pattern": "^[0-9]+ ?([kKmMgG]([iI]?[bB])?|[bB])?$"}),
            ),
            (
                "resource_limits",
                "What the session may use; timeout_seconds and max_output_bytes hold for each call.",
                resource_limits(offer),
            ),
            (
                "workspace",
                "What is behind /workspace: private (empty, gone with the session), namespace (kept for this namespace), or a directory that the operator has listed.",
                json!({"type": "string", "default": "private"}),
            ),
        ],
        &[],
    )
}

/// A session that lives.
pub(super) fn session() -> Value {
    json!({
        "session_id": session_id(),
        "namespace": string(),
        "language": {"enum": ["python", "node", "typescript", "shell"]},
        "state": {"enum": ["idle", "busy"]},
        "created_unix_ms": whole(),
        "used_unix_ms": whole(),
        "idle_until_unix_ms": said("When it ends if nobody uses it.", whole()),
        "ends_unix_ms": said("When it ends in any case.", whole()),
        "calls": whole(),
        "waiting": said("Calls that wait for their turn.", whole()),
        "tier": string(),
        "memory_bytes_max": whole(),
        "timeout_seconds": number(),
        "workspace": said("private, namespace, or directory: with ro, rw or overlay.", string()),
        "packages": list(string()),
    })
}

/// Output of `create_session`.
pub(super) fn created() -> Value {
    let mut fields = session();
    fields["success"] = flag();
    record(fields)
}

/// Output of `list_sessions`.
pub(super) fn sessions() -> Value {
    record(json!({"success": flag(), "sessions": list(record(session()))}))
}

/// Input of tools that take a session.
pub(super) fn one_session(offer: &Offer) -> Value {
    input(
        offer,
        vec![("session_id", "What create_session gave.", session_id())],
        &["session_id"],
    )
}

/// Output of `terminate_session`.
pub(super) fn terminated() -> Value {
    record(json!({
        "success": flag(), "killed": said("False: it had ended before, or was never there.", flag()),
        "existed": said("False: there is no such session in this namespace.", flag()),
    }))
}

/// Output of `interrupt_session`.
pub(super) fn interrupted() -> Value {
    record(json!({"success": flag(), "interrupted": said("False: nothing ran in it.", flag())}))
}

/// Input of `bridge_data`.
pub(super) fn bridge_data(offer: &Offer) -> Value {
    let name = json!({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,255}$"});
    input(
        offer,
        vec![
            ("data", "A JSON value to give to the session.", json!({})),
            ("from_session", "Or the session that has the value.", session_id()),
            (
                "name",
                "The variable: of from_session, or what `data` is to be called.",
                name.clone(),
            ),
            (
                "as",
                "What the variable is to be called in to_session, if not the same.",
                name,
            ),
            ("to_session", "The session that gets it.", session_id()),
        ],
        &["to_session"],
    )
}

/// Output of `bridge_data`.
pub(super) fn bridged() -> Value {
    record(json!({
        "success": flag(), "to_session": session_id(), "name": string(),
        "bytes": said("Of the value as JSON.", whole()),
    }))
}
