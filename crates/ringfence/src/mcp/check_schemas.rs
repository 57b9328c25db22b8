//! JSON Schemas of the tools that look at code and data.

use super::{
    Offer,
    schemas::{Property, flag, input, list, or_null, record, said, string, whole},
    validate::{HEADERS_MAX, offered},
};
use ringfence_types::{CODE_BYTES_MAX, IMPORTS_MAX, ISSUES_MAX, Language, Severity, Validate, Verdict};
use serde_json::{Value, json};

/// By which rules Python is read, and what it may import.
pub(super) fn profile(offer: &Offer) -> Property {
    let default = offer.policy.borrow().check.profile.as_str();
    (
        "profile",
        "Python only: a set of modules that it may import, enforced before and while it runs. basic: modules that compute; data_science, network, filesystem: basic and more; strict: basic, and no eval, exec or reflection; unrestricted: everything, the kernel is the wall.",
        json!({"type": "string", "enum": offered(offer), "default": default}),
    )
}

/// Modules besides.
pub(super) fn allowed_imports() -> Property {
    let module = json!({"type": "string", "minLength": 1, "maxLength": 256});
    (
        "allowed_imports",
        "Python only: modules that it may import besides those of the profile, as yaml or os.path; under unrestricted nothing but these.",
        json!({"type": "array", "items": module, "maxItems": IMPORTS_MAX}),
    )
}

/// Is a program looked at before it runs.
pub(super) fn validate() -> Property {
    (
        "validate",
        "Look at the code first. off: no. warn: findings come with the result, what the profile forbids is refused. fix: the same, and missing imports are added. strict: warnings are refused, too.",
        json!({"type": "string", "enum": Validate::WORDS, "default": Validate::Warn.as_str()}),
    )
}

/// Input of `validate_code`.
pub(super) fn validate_code(offer: &Offer) -> Value {
    let languages = Language::NAMES.map(|(name, _)| name);
    let fields = vec![
        (
            "code",
            "The complete program. It is not run.",
            json!({"type": "string", "maxLength": CODE_BYTES_MAX}),
        ),
        (
            "language",
            "javascript and js mean node, ts typescript, bash and sh shell, py python.",
            json!({"type": "string", "enum": languages, "default": "python"}),
        ),
        (
            "auto_fix",
            "Add imports that are missing (Python); nothing else is ever changed.",
            json!({"type": "boolean", "default": true}),
        ),
        profile(offer),
        allowed_imports(),
    ];
    input(offer, fields, &["code"])
}

/// Output of `validate_code`, and `validation` of a result.
pub(super) fn validation() -> Value {
    let issue = record(json!({
        "line": said("From 1.", whole()),
        "column": said("From 1, in characters.", whole()),
        "end_line": whole(),
        "end_column": said("The first character behind it.", whole()),
        "rule": said("Its name; the reference explains each.", string()),
        "severity": said("error: it cannot run, or the profile forbids it. warning: strict refuses it.", json!({"enum": Severity::WORDS})),
        "message": said("What it is, and why that matters.", string()),
        "hint": said("What to do about it.", string()),
    }));
    let analysis = record(json!({
        "line_count": whole(), "character_count": whole(), "functions": whole(), "classes": whole(),
        "imports": list(string()),
        "domains": said("Hosts that the code names. Naming one opens nothing.", list(string())),
        "cyclomatic_complexity": said("Decisions plus one.", whole()),
        "estimated_complexity": json!({"enum": ["low", "medium", "high"]}),
    }));
    let summary = record(json!({"valid": flag(), "errors": list(string()), "message": string()}));
    record(json!({
        "valid": said("The verdict is not reject.", flag()),
        "verdict": said("fixed: no finding is an error once fixed_code takes its place.", json!({"enum": Verdict::WORDS})),
        "issues": said(&format!("By position, at most {ISSUES_MAX}."), list(issue)),
        "issues_total": said("All of them.", whole()),
        "fixes_applied": said("Imports that were added.", list(string())),
        "fixed_code": said("The code with them; null: there is nothing to fix.", or_null(string())),
        "validation": said("Errors alone, one line each.", summary),
        "analysis": analysis,
        "recommendations": said("What to do, by what was found.", list(string())),
    }))
}

/// Input of `validate_json_data`. Any JSON is data.
pub(super) fn validate_json(offer: &Offer) -> Value {
    let schema = json!({"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": {}}]});
    let fields = vec![
        (
            "data",
            "Any JSON value. A string with a JSON object or array in it is read as that.",
            json!({}),
        ),
        (
            "schema_name_or_dict",
            "The name of a registered schema (config, user, dataset and the operator's own; resource sandbox://schemas), or a JSON Schema.",
            schema,
        ),
    ];
    input(offer, fields, &["data", "schema_name_or_dict"])
}

/// Output of `validate_json_data`.
pub(super) fn json_report() -> Value {
    let error = record(json!({
        "path": said("JSON Pointer to the value; empty: the whole.", string()),
        "message": string(),
        "keyword": said("Of the schema, which it breaks; syntax: it is no JSON.", string()),
        "expected": said("What that keyword says.", json!({})),
        "actual": said("The value, or its beginning.", json!({})),
    }));
    record(json!({
        "valid": flag(),
        "schema": said("Its registered name, or inline.", string()),
        "errors": said(&format!("At most {ISSUES_MAX}."), list(error)),
        "errors_total": said("All of them.", whole()),
    }))
}

/// Input of `validate_csv_data`.
pub(super) fn validate_csv(offer: &Offer) -> Value {
    let constraint = json!({"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": {}}]});
    let fields = vec![
        ("csv_content", "The table with its header, as text.", string()),
        (
            "required_headers",
            "Columns that have to be there.",
            json!({"type": "array", "items": string(), "maxItems": HEADERS_MAX}),
        ),
        (
            "type_constraints",
            "By column: string, integer, float, boolean, date, datetime, email, url or uuid; or an object with type, required, min, max, pattern, enum, unique.",
            json!({"type": "object", "additionalProperties": constraint}),
        ),
        (
            "delimiter",
            "One character; left out, it is found among comma, semicolon, tab and bar.",
            json!({"type": "string", "minLength": 1, "maxLength": 3}),
        ),
    ];
    input(offer, fields, &["csv_content"])
}

/// Output of `validate_csv_data`.
pub(super) fn csv_report() -> Value {
    let error = record(json!({
        "row": said("From 1, without the header; 0 is the header.", whole()),
        "column": said("Its header; null: the whole row.", or_null(string())),
        "value": said("The field, or its beginning.", string()),
        "expected": string(),
        "message": string(),
    }));
    record(json!({
        "valid": flag(),
        "row_count": said("Without the header.", whole()),
        "column_count": whole(),
        "headers": list(string()),
        "missing_headers": list(string()),
        "errors": said(&format!("At most {ISSUES_MAX}, in the order of the rows."), list(error)),
        "errors_total": said("All of them, but for missing headers.", whole()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        frames::tests::{issue, validation as found},
        mcp::schemas::tests::conforms,
    };
    use ringfence_types::{CsvError, CsvReport, JsonError, JsonReport};

    #[test]
    fn answers_are_as_their_schemas_say() {
        let mut code = found(vec![issue((1, 1), (1, 2), Severity::Error)]);
        conforms(&validation(), &json!(code));
        code.fixed_code = Some("import json".to_owned());
        conforms(&validation(), &json!(code));
        let report = JsonReport {
            valid: false,
            schema: "inline".to_owned(),
            errors: vec![JsonError {
                path: "/a".to_owned(),
                message: "no".to_owned(),
                keyword: "type".to_owned(),
                expected: json!(["string"]),
                actual: json!(null),
            }],
            errors_total: 1,
        };
        conforms(&json_report(), &json!(report));
        let report = CsvReport {
            valid: false,
            row_count: 1,
            column_count: 1,
            headers: vec!["a".to_owned()],
            missing_headers: Vec::new(),
            errors: vec![CsvError {
                row: 1,
                column: None,
                value: "x".to_owned(),
                expected: "1 field".to_owned(),
                message: "2 fields".to_owned(),
            }],
            errors_total: 1,
        };
        conforms(&csv_report(), &json!(report));
    }
}
