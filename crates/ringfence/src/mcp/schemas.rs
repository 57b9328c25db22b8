//! JSON Schemas of what the tools take and give. Written by hand, because a model reads them: every field has a word of
//! explanation, every bound is the operator's, and nothing is allowed that is not named.

use super::{
    Offer, check_schemas, egress_schemas,
    execute_code::LIMIT_NAMES,
    observe, package_schemas,
    session_schemas::{ended, session, session_id},
};
use crate::settings::Namespaces;
use ringfence_types::{CODE_BYTES_MAX, Display, FILES_MAX, Language, Profile};
use serde_json::{Map, Value, json};

/// An object in which every field is required and no other is allowed.
pub(super) fn record(fields: Value) -> Value {
    let required: Vec<String> = fields
        .as_object()
        .map(|fields| fields.keys().cloned().collect())
        .unwrap_or_default();
    json!({"type": "object", "properties": fields, "required": required, "additionalProperties": false})
}

pub(super) fn or_null(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

pub(super) fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

pub(super) fn said(about: &str, mut schema: Value) -> Value {
    schema["description"] = json!(about);
    schema
}

pub(super) fn string() -> Value {
    json!({"type": "string"})
}

pub(super) fn whole() -> Value {
    json!({"type": "integer", "minimum": 0})
}

pub(super) fn number() -> Value {
    json!({"type": "number", "minimum": 0})
}

pub(super) fn flag() -> Value {
    json!({"type": "boolean"})
}

/// The tenant's argument, where callers may choose.
pub(super) fn namespace(offer: &Offer, properties: &mut Map<String, Value>) {
    if offer.namespaces == Namespaces::CallerChooses {
        let schema =
            json!({"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$", "default": "default"});
        properties.insert(
            "namespace".to_owned(),
            said("Tenant; callers of one namespace share its queue.", schema),
        );
    }
}

/// Input of a tool that takes nothing.
pub(super) fn nothing(offer: &Offer) -> Value {
    let mut properties = Map::new();
    namespace(offer, &mut properties);
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

/// Input of `execute_code`.
pub(super) fn execute_code(offer: &Offer) -> Value {
    let mut properties = Map::new();
    let looked_at = [
        check_schemas::validate(),
        check_schemas::profile(offer),
        check_schemas::allowed_imports(),
    ];
    let properties_of = program().into_iter().chain(looked_at).chain(bounds(offer));
    for (name, about, schema) in properties_of.chain(single_values()) {
        properties.insert(name.to_owned(), said(about, schema));
    }
    for (alias, name) in [
        ("timeout", "timeout_seconds"),
        ("timeout_sec", "timeout_seconds"),
        ("env_vars", "env"),
    ] {
        let mut schema = said(&format!("The same as {name}."), properties[name].clone());
        if let Some(fields) = schema.as_object_mut() {
            fields.remove("default");
        }
        properties.insert(alias.to_owned(), schema);
    }
    namespace(offer, &mut properties);
    json!({"type": "object", "properties": properties, "required": ["code"], "additionalProperties": false})
}

pub(super) type Property = (&'static str, &'static str, Value);

/// The program and what it is given.
fn program() -> Vec<Property> {
    let code = json!({"type": "string", "minLength": 1, "maxLength": CODE_BYTES_MAX});
    let languages = Language::NAMES.map(|(name, _)| name);
    let language = json!({"type": "string", "enum": languages, "default": "python"});
    let env = json!({"type": "object", "additionalProperties": string()});
    let capture = json!({"type": "boolean", "default": true});
    vec![
        ("code", "The complete program.", code),
        (
            "language",
            "javascript and js mean node, ts typescript, bash and sh shell, py python; left out, a session's own.",
            language,
        ),
        ("files", "Files to put into the working directory first.", files()),
        (
            "env",
            "Environment variables; the environment is otherwise built from nothing. In a session they stay set.",
            env,
        ),
        (
            "secrets",
            "Names of secrets that the program gets as environment variables; vault_list has them.",
            json!({"type": "array", "items": string(), "maxItems": 1000}),
        ),
        (
            "session_id",
            "A session of create_session in which it runs; without one it runs in a sandbox of its own.",
            session_id(),
        ),
        (
            "packages",
            "Packages that it imports, as `numpy`, `pandas>=2` or `lodash@4`; installed once, then there at once.",
            package_schemas::requirements(),
        ),
        egress_schemas::allowed_domains(),
        super::workspace_schemas::workspace(),
        ("args", "Command-line arguments of the program.", list(string())),
        (
            "stdin",
            "Text that the program can read from its standard input.",
            string(),
        ),
        (
            "capture_output",
            "false: stdout and stderr are counted and not kept; progress still shows them.",
            capture,
        ),
    ]
}

/// What it may use.
fn bounds(offer: &Offer) -> Vec<Property> {
    let size = json!({"type": "string", "pattern": "^[0-9]+ ?([kKmMgG]([iI]?[bB])?|[bB])?$"});
    vec![
        (
            "timeout_seconds",
            "Wall-clock limit. What was printed before it is kept.",
            seconds(offer),
        ),
        (
            "memory_limit",
            "Memory limit as 256m or 1g; the same as resource_limits.max_ram_mb.",
            size,
        ),
        (
            "resource_limits",
            "Limits that differ from the defaults.",
            resource_limits(offer),
        ),
    ]
}

/// Arguments that have one value in this version.
fn single_values() -> Vec<Property> {
    let only = |value: &str| json!({"type": "string", "enum": [value]});
    vec![
        ("backend", "What makes the sandbox.", only("native")),
        (
            "use_container",
            "Only the native sandbox exists in this version.",
            json!({"type": "boolean", "enum": [false]}),
        ),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "days in milliseconds")]
pub(super) fn seconds(offer: &Offer) -> Value {
    let policy = offer.policy.borrow();
    let (default, cap) = (policy.defaults.timeout_ms, policy.caps.timeout_ms);
    json!({"type": "number", "minimum": 0.1, "maximum": plain(cap as f64 / 1000.0), "default": plain(default as f64 / 1000.0)})
}

/// 60 rather than 60.0.
#[expect(clippy::cast_possible_truncation, reason = "limits are far below 2^53")]
fn plain(number: f64) -> Value {
    if number.fract() == 0.0 {
        json!(number as i64)
    } else {
        json!(number)
    }
}

/// One of `text` and `base64` is required; the schema says it in words, because not every client knows `oneOf`.
fn files() -> Value {
    let file = json!({
        "type": "object",
        "properties": {
            "path": said("Relative to the working directory, as data/in.csv.", json!({"type": "string", "minLength": 1})),
            "text": said("Content of a text file. Give either text or base64.", string()),
            "base64": said("Content of any other file, in standard base64.", string()),
        },
        "required": ["path"],
        "additionalProperties": false,
    });
    json!({"type": "array", "maxItems": FILES_MAX, "items": file})
}

const MEBIBYTE: u64 = 1 << 20;

pub(super) fn resource_limits(offer: &Offer) -> Value {
    let policy = offer.policy.borrow().clone();
    let (limits, caps) = (&policy.defaults, &policy.caps);
    let whole = |least: u64, most: u64, default: u64| json!({"type": "integer", "minimum": least, "maximum": most, "default": default});
    let cores = |millicores: u32| plain(f64::from(millicores) / 1000.0);
    let fields = [
        whole(16, caps.memory_bytes / MEBIBYTE, limits.memory_bytes / MEBIBYTE),
        json!({"type": "number", "minimum": 0.01, "maximum": cores(caps.cpu_millicores), "default": cores(limits.cpu_millicores)}),
        seconds(offer),
        whole(1, caps.processes.into(), limits.processes.into()),
        whole(0, caps.output_bytes, limits.output_bytes),
        whole(1, caps.disk_bytes / MEBIBYTE, limits.disk_bytes / MEBIBYTE),
    ];
    let properties: Map<String, Value> = LIMIT_NAMES.map(str::to_owned).into_iter().zip(fields).collect();
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

/// `isolation` of a result.
fn isolation() -> Value {
    let layer = record(json!({"active": flag(), "detail": string()}));
    record(json!({
        "tier": said("Strength of the sandbox by name.", json!({"enum": ["full", "landlock"]})),
        "layers": {"type": "object", "additionalProperties": layer},
    }))
}

fn denials() -> Value {
    list(record(
        json!({"rule": string(), "layer": string(), "what": string(), "hint": string()}),
    ))
}

/// Output of `execute_code`.
pub(super) fn execution_result() -> Value {
    let both = |schema: Value| record(json!({"stdout": schema, "stderr": schema}));
    record(json!({
        "execution_id": string(),
        "request_id": string(),
        "namespace": string(),
        "session_id": or_null(string()),
        "session_ended": said("Why the session has ended with this call; null: it lives, or there is none.", ended()),
        "language": {"enum": ["python", "node", "typescript", "shell"]},
        "backend": string(),
        "success": said("The program ended by itself with status 0 and without an error of its language.", flag()),
        "exit": exit(),
        "exit_code": said("Status, or 128 + signal; 124: out of time, 137: out of memory.", json!({"type": "integer"})),
        "stdout": string(),
        "stderr": string(),
        "stdout_bytes": said("Written by the program, kept or not.", whole()),
        "stderr_bytes": said("Written by the program, kept or not.", whole()),
        "truncated": said("Was output dropped past the limit.", both(flag())),
        "lossy": said("Was output not UTF-8; U+FFFD stands in its place.", both(flag())),
        "result": said("Value of the last expression, else of result, _ or output; JSON where it can be.", json!({})),
        "result_repr": or_null(string()),
        "display": said("What the result looks like, and figures that were left open; each has an artifact or a text.", list(display())),
        "variables": said("Names that the program defined.", list(string())),
        "error": or_null(record(json!({
            "type": string(), "message": string(), "traceback": string(), "line": or_null(whole()),
        }))),
        "artifacts": said("Files that the program left in its working or output directory.", list(artifact())),
        "duration_ms": number(),
        "phases": record(json!({
            "queued_ms": number(), "start_ms": number(), "run_ms": number(), "finish_ms": number(),
        })),
        "resource_usage": record(json!({
            "cpu_user_ms": number(), "cpu_system_ms": number(), "max_rss_bytes": whole(),
            "processes_peak": or_null(whole()), "disk_bytes": whole(),
        })),
        "isolation": isolation(),
        "denials": said("What was refused, and the smallest change that would allow it.", denials()),
        "security_events": denials(),
        "validation": said("What was found of the code before it ran; null: it was not looked at.", or_null(check_schemas::validation())),
    }))
}

fn exit() -> Value {
    record(json!({
        "kind": {"enum": ["code", "signal", "timeout", "out_of_memory", "limit", "cancelled"]},
        "code": or_null(json!({"type": "integer"})),
        "signal": or_null(json!({"type": "integer"})),
        "limit": or_null(string()),
    }))
}

/// Its content is in the artifact of that name or in the text.
fn display() -> Value {
    let mut schema = record(json!({"mime": {"enum": Display::MIMES}}));
    schema["properties"]["artifact"] = string();
    schema["properties"]["text"] = string();
    schema
}

/// The content of a large file is left out.
fn artifact() -> Value {
    let mut schema = record(json!({
        "name": string(), "size_bytes": whole(), "sha256": string(), "mime": string(),
        "signature": said("Ed25519, in base64; null where the file was not kept.", or_null(string())),
        "uri": said("Where it can be read as a resource; null where it was not kept.", or_null(string())),
    }));
    schema["properties"]["content_b64"] = string();
    schema
}

/// Output of `list_runtimes`.
pub(super) fn runtimes() -> Value {
    let runtime = record(json!({
        "language": {"enum": ["python", "node", "typescript", "shell"]},
        "available": flag(),
        "path": or_null(string()),
        "version": or_null(string()),
        "backends": list(string()),
        "tier": string(),
        "warm": said("Does a sandbox stand ready for it.", flag()),
        "ready": said("How many do.", whole()),
        "trouble": said("Why none could be made ready, when that was tried last.", or_null(string())),
        "preloaded": said("Packages that are imported ahead.", list(string())),
        "memory_bytes": said("What its sandboxes that wait take of the host's memory, with their templates.", whole()),
        "reason": said("Why it is not available.", or_null(string())),
    }));
    record(json!({"success": flag(), "runtimes": list(runtime)}))
}

/// Output of `get_sandbox_info`.
pub(super) fn sandbox_info() -> Value {
    let profile = record(json!({"enabled": flag(), "modules": list(string())}));
    let profiles: Map<String, Value> = Profile::WORDS
        .iter()
        .map(|name| ((*name).to_owned(), profile.clone()))
        .collect();
    let limits: Map<String, Value> = LIMIT_NAMES
        .iter()
        .map(|name| ((*name).to_owned(), number()))
        .collect();
    let limits = record(Value::Object(limits));
    record(json!({
        "success": flag(),
        "security_profiles": said("What Python may import under each; enabled: callers may choose it. unrestricted has no list.", record(Value::Object(profiles))),
        "resource_limits": said("Limits of a call that asks for none.", limits.clone()),
        "container_mode": record(json!({"available": flag(), "enabled": flag(), "runtimes": list(string())})),
        "isolation": isolation(),
        "limits": record(json!({"defaults": limits, "caps": limits})),
    }))
}

/// Input with these fields and a namespace.
pub(super) fn input(offer: &Offer, fields: Vec<Property>, required: &[&str]) -> Value {
    let mut properties = Map::new();
    for (name, about, schema) in fields {
        properties.insert(name.to_owned(), said(about, schema));
    }
    namespace(offer, &mut properties);
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// Input of `get_artifacts`. One of the two is required; the schema says it in words.
pub(super) fn get_artifacts(offer: &Offer) -> Value {
    let id = || json!({"type": "string", "maxLength": 64});
    let fields = vec![
        (
            "request_id",
            "The execution_id of a result. Required, under this name or the other.",
            id(),
        ),
        ("execution_id", "The same as request_id.", id()),
    ];
    input(offer, fields, &[])
}

/// Output of `get_artifacts`.
pub(super) fn artifacts() -> Value {
    let item = record(json!({
        "name": string(), "size_bytes": whole(), "sha256": string(), "signature": string(), "mime": string(),
        "uri": string(),
    }));
    let manifest = record(json!({
        "namespace": string(), "created_unix_ms": whole(), "public_key": string(), "signature": string(),
    }));
    record(json!({
        "success": flag(),
        "execution_id": string(),
        "artifacts": list(item),
        "manifest": said("Signed as a whole; `ringfence verify` checks it.", manifest),
    }))
}

/// Input of `set_resource_limits`.
pub(super) fn set_limits(offer: &Offer) -> Value {
    let mut schema = resource_limits(offer);
    if let Some(properties) = schema["properties"].as_object_mut() {
        for limit in properties.values_mut() {
            if let Some(limit) = limit.as_object_mut() {
                limit.remove("default");
            }
        }
        namespace(offer, properties);
    }
    schema
}

fn limits_in_words() -> Value {
    let limits: Map<String, Value> = LIMIT_NAMES
        .iter()
        .map(|name| ((*name).to_owned(), number()))
        .collect();
    let limits = record(Value::Object(limits));
    record(json!({"defaults": limits, "caps": limits}))
}

/// Output of `set_resource_limits`.
pub(super) fn limits_now() -> Value {
    record(json!({"success": flag(), "namespace": string(), "limits": limits_in_words()}))
}

/// Output of `sandbox_stats`.
pub(super) fn stats() -> Value {
    let line = record(json!({"namespace": string(), "waiting": whole()}));
    let queue = record(json!({
        "running": whole(), "concurrency": whole(), "waiting": whole(), "waiting_max": whole(),
        "refused": said("Turned away since the start.", whole()), "lines": list(line),
    }));
    let warm = record(json!({"language": string(), "ready": whole(), "memory_bytes": whole()}));
    record(json!({
        "success": flag(),
        "server_id": said("Stands in the audit records of this server.", string()),
        "version": string(),
        "pid": whole(),
        "tier": string(),
        "queue": queue,
        "warm": list(warm),
        "sessions": said("Sessions that live.", whole()),
        "vault": said("Where secrets come from.", json!({"enum": ["memory", "env", "file"]})),
        "artifacts_bytes": whole(),
        "not_recorded": said("Actions that are not on the audit record although they were done.", whole()),
        "memory_bytes": said("What the server itself takes.", whole()),
    }))
}

/// Output of `get_sandbox_metrics`.
pub(super) fn metrics() -> Value {
    let counts = || json!({"type": "object", "additionalProperties": whole()});
    let percentiles = record(json!({"count": whole(), "p50": number(), "p90": number(), "p99": number()}));
    record(json!({
        "success": flag(),
        "uptime_seconds": number(),
        "executions": said(
            "By language and outcome.",
            json!({"type": "object", "additionalProperties": counts()}),
        ),
        "refusals": said("By error code.", counts()),
        "limits_exceeded": said("By limit.", counts()),
        "duration_ms": said(
            "Of the last thousand executions of each language.",
            json!({"type": "object", "additionalProperties": percentiles}),
        ),
        "cpu_seconds": number(),
        "stdout_bytes": whole(),
        "stderr_bytes": whole(),
        "redactions": said("Secrets that were taken out of what left.", whole()),
        "artifacts": whole(),
    }))
}

/// Output of `inspect_state`.
pub(super) fn inspection() -> Value {
    let running = record(json!({"execution_id": string(), "language": string(), "for_ms": whole()}));
    let event = json!({"type": "object", "additionalProperties": json!({})});
    record(json!({
        "success": flag(),
        "namespace": string(),
        "running": said("Requests that are on their way.", list(running)),
        "waiting": whole(),
        "sessions": list(record(session())),
        "limits": limits_in_words(),
        "is_narrowed": said("Has the namespace given up some of what the operator allows.", flag()),
        "approved": said("Hosts that a person has approved for all of it.", list(string())),
        "secrets": said("Names only.", list(string())),
        "recent_events": said("Oldest first.", list(event)),
    }))
}

/// Input of `audit_execution`.
pub(super) fn audit_execution(offer: &Offer) -> Value {
    let limit = json!({"type": "integer", "minimum": 1, "maximum": observe::RECORDS_MAX, "default": observe::RECORDS});
    let outcomes = ["ok", "failed", "denied", "pending"];
    let fields = vec![
        ("limit", "How many records.", limit),
        (
            "action",
            "One action, as execution.failed, or a group of them, as execution.",
            string(),
        ),
        (
            "since",
            "Not before 2026-01-31T12:00:00Z, 2026-01-31, or so long ago as 15m, 2h or 7d.",
            string(),
        ),
        (
            "outcome",
            "Records with this outcome.",
            json!({"type": "string", "enum": outcomes}),
        ),
        (
            "before",
            "Records with a smaller seq: next_before of the page before.",
            whole(),
        ),
    ];
    input(offer, fields, &[])
}

/// Output of `audit_execution`.
pub(super) fn records() -> Value {
    let one = record(json!({
        "seq": whole(), "time": string(), "action": string(), "outcome": string(), "namespace": string(),
        "execution_id": or_null(string()), "caller": string(), "hash": string(),
        "details": json!({"type": "object", "additionalProperties": json!({})}),
    }));
    record(json!({
        "success": flag(),
        "records": list(one),
        "next_before": said("For the next page; null: there is none.", or_null(whole())),
    }))
}

/// Output of `vault_list`.
pub(super) fn secrets() -> Value {
    let one = record(json!({
        "key": string(), "bytes": whole(), "created": or_null(string()), "expires": or_null(string()),
        "redactable": said("Long enough to be kept out of output.", flag()),
    }));
    record(json!({
        "success": flag(), "namespace": string(), "vault": json!({"enum": ["memory", "env", "file"]}),
        "secrets": list(one),
    }))
}

/// Input of `vault_delete`.
pub(super) fn vault_delete(offer: &Offer) -> Value {
    let key = json!({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "maxLength": 256});
    input(offer, vec![("key", "The secret's name.", key)], &["key"])
}

/// Output of `vault_delete`.
pub(super) fn deleted() -> Value {
    record(json!({"success": flag(), "existed": flag()}))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A small validator of exactly the schema words that are used here; an unknown word fails.
    pub(crate) fn conforms(schema: &Value, value: &Value) {
        if let Err(reason) = check(schema, value, "$") {
            panic!("{reason}\n{value:#}");
        }
    }

    fn check(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        for (word, rule) in schema.as_object().unwrap() {
            let good = match word.as_str() {
                "description" | "default" => true,
                "type" => match rule.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "number" => value.is_number(),
                    "boolean" => value.is_boolean(),
                    "null" => value.is_null(),
                    other => panic!("type {other}"),
                },
                "enum" => rule.as_array().unwrap().contains(value),
                "minimum" => value
                    .as_f64()
                    .is_none_or(|number| number >= rule.as_f64().unwrap()),
                "anyOf" => rule
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|rule| check(rule, value, at).is_ok()),
                "items" => {
                    for item in value.as_array().into_iter().flatten() {
                        check(rule, item, &format!("{at}[]"))?;
                    }
                    true
                }
                "required" => rule
                    .as_array()
                    .unwrap()
                    .iter()
                    .all(|name| value.get(name.as_str().unwrap()).is_some()),
                "properties" => {
                    for (name, rule) in rule.as_object().unwrap() {
                        if let Some(value) = value.get(name) {
                            check(rule, value, &format!("{at}.{name}"))?;
                        }
                    }
                    true
                }
                "additionalProperties" => {
                    let known = |name: &str| schema.get("properties").is_some_and(|p| p.get(name).is_some());
                    for (name, value) in value
                        .as_object()
                        .into_iter()
                        .flatten()
                        .filter(|(name, _)| !known(name))
                    {
                        if *rule == json!(false) {
                            return Err(format!("{at}.{name} is not in the schema"));
                        }
                        check(rule, value, &format!("{at}.{name}"))?;
                    }
                    true
                }
                other => panic!("the word {other} is not one that this test knows"),
            };
            if !good {
                return Err(format!("{at} breaks {word}: {rule}, found {value}"));
            }
        }
        Ok(())
    }

    #[test]
    fn the_validator_itself_can_say_no() {
        let schema = record(json!({"a": whole()}));
        assert!(check(&schema, &json!({"a": 1}), "$").is_ok());
        for bad in [
            json!({}),
            json!({"a": -1}),
            json!({"a": "x"}),
            json!({"a": 1, "b": 2}),
            json!([]),
        ] {
            assert!(check(&schema, &bad, "$").is_err(), "{bad}");
        }
    }
}
