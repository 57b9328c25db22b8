//! Findings as SARIF 2.1.0 (OASIS, Static Analysis Results Interchange Format), which code hosts and editors read.

use super::{Checked, Report};
use crate::sentence::sentence;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ringfence_engine::check_rules;
use ringfence_types::{CsvReport, Issue, JsonError, Language, Severity, Validation};
use serde_json::{Value, json};

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// Characters that are escaped in the path of a URI reference.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

pub(super) fn of(checked: &[Checked]) -> Value {
    let (mut artifacts, mut results, mut unread) = (Vec::new(), Vec::new(), Vec::new());
    for (index, one) in checked.iter().enumerate() {
        let place = json!({"uri": uri(&one.name), "index": index});
        let mut artifact = json!({"location": {"uri": uri(&one.name)}});
        match &one.report {
            Report::Code {
                language,
                code,
                found,
            } => {
                artifact["sourceLanguage"] = json!(source_language(*language));
                results.extend(found.issues.iter().map(|issue| of_issue(&place, issue)));
                results.extend(of_fix(&place, code, found));
            }
            Report::Json(report) => results.extend(report.errors.iter().map(|error| of_json(&place, error))),
            Report::Csv(report) => results.extend(of_csv(&place, report)),
            Report::Unread(error) => unread.push(json!({
                "level": "error",
                "message": {"text": format!("{} {}", error.message, error.hint)},
                "locations": [{"physicalLocation": {"artifactLocation": place}}],
            })),
        }
        artifacts.push(artifact);
    }
    let version = env!("CARGO_PKG_VERSION");
    let rules = rules_of(&mut results);
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "Ringfence", "version": version, "semanticVersion": version, "rules": rules,
            }},
            "invocations": [{
                "executionSuccessful": unread.is_empty(), "toolExecutionNotifications": unread,
            }],
            "columnKind": "unicodeCodePoints",
            "artifacts": artifacts,
            "results": results,
        }],
    })
}

/// Returns all rules of ours, and other rules with results, described by their first result. Sets the `ruleIndex` of
/// each result.
fn rules_of(results: &mut [Value]) -> Vec<Value> {
    let ours = check_rules().map(|rule| {
        json!({
            "id": rule.id,
            "shortDescription": {"text": rule.title},
            "fullDescription": {"text": rule.why},
            "help": {"text": rule.hint},
            "defaultConfiguration": {"level": level(rule.severity)},
        })
    });
    let mut rules: Vec<Value> = ours.collect();
    for result in results {
        let known = rules.iter().position(|rule| rule["id"] == result["ruleId"]);
        result["ruleIndex"] = json!(known.unwrap_or(rules.len()));
        if known.is_none() {
            rules.push(json!({
                "id": result["ruleId"],
                "shortDescription": result["message"],
                "defaultConfiguration": {"level": result["level"]},
            }));
        }
    }
    rules
}

fn source_language(language: Language) -> &'static str {
    match language {
        Language::Python => "python",
        Language::Node => "javascript",
        Language::Typescript => "typescript",
        Language::Shell => "shellscript",
    }
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    }
}

fn result(rule: &str, severity: Severity, message: &str, place: &Value) -> Value {
    json!({
        "ruleId": rule, "level": level(severity), "message": {"text": message},
        "locations": [{"physicalLocation": {"artifactLocation": place}}],
    })
}

fn of_issue(place: &Value, issue: &Issue) -> Value {
    let message = match issue.hint.as_str() {
        "" => issue.message.clone(),
        hint => format!("{} {hint}", sentence(&issue.message)),
    };
    let mut result = result(&issue.rule, issue.severity, &message, place);
    result["locations"][0]["physicalLocation"]["region"] = json!({
        "startLine": issue.line, "startColumn": issue.column,
        "endLine": issue.end_line, "endColumn": issue.end_column,
    });
    result
}

/// A result with the added imports as its fix: findings that were fixed are no longer listed themselves.
fn of_fix(place: &Value, code: &str, found: &Validation) -> Option<Value> {
    let (region, inserted) = change(code, found.fixed_code.as_ref()?);
    let statements = found.fixes_applied.join("; ");
    let message = format!("Missing: {statements}");
    let mut result = result("python.missing_import", Severity::Info, &message, place);
    result["locations"][0]["physicalLocation"]["region"] = region.clone();
    let replacement = json!({"deletedRegion": region, "insertedContent": {"text": inserted}});
    result["fixes"] = json!([{
        "description": {"text": format!("Add {statements}")},
        "artifactChanges": [{"artifactLocation": place, "replacements": [replacement]}],
    }]);
    Some(result)
}

fn of_json(place: &Value, error: &JsonError) -> Value {
    let rule = format!("json.{}", error.keyword);
    let mut result = result(&rule, Severity::Error, &error.message, place);
    result["locations"][0]["logicalLocations"] = json!([{"fullyQualifiedName": error.path, "kind": "value"}]);
    result
}

fn of_csv(place: &Value, report: &CsvReport) -> Vec<Value> {
    let errors = report.errors.iter().map(|error| {
        let rule = if error.row == 0 { "csv.header" } else { "csv.value" };
        let mut result = result(rule, Severity::Error, &error.message, place);
        result["properties"] = json!({"row": error.row, "column": error.column});
        result
    });
    errors.collect()
}

/// Returns the region of `old` to replace to get `new`, and the replacement: whole lines, characters counted from 1.
fn change(old: &str, new: &str) -> (Value, String) {
    let (old, new): (Vec<&str>, Vec<&str>) = (
        old.split_inclusive('\n').collect(),
        new.split_inclusive('\n').collect(),
    );
    let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
    let head = old.iter().zip(&new).take_while(same).count();
    let rest = old.len().min(new.len()) - head;
    let ends = old.iter().rev().zip(new.iter().rev());
    let tail = ends.take(rest).take_while(same).count();
    let (start, end) = (position(&old, head), position(&old, old.len() - tail));
    let region = json!({
        "startLine": start.0, "startColumn": start.1, "endLine": end.0, "endColumn": end.1,
    });
    (region, new[head..new.len() - tail].concat())
}

fn position(lines: &[&str], count: usize) -> (usize, usize) {
    match lines[..count].last() {
        Some(last) if !last.ends_with('\n') => (count, last.chars().count() + 1),
        _ => (count + 1, 1),
    }
}

/// URI reference (RFC 3986) to a file, by its path as given.
fn uri(path: &str) -> String {
    if path == "<stdin>" {
        return "stdin".to_owned();
    }
    let scheme = if path.starts_with('/') { "file://" } else { "" };
    format!("{scheme}{}", utf8_percent_encode(path, PATH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::diagnostics::tests::{issue, validation};

    #[test]
    fn change_is_one_region_of_whole_lines() {
        let check = |old: &str, new: &str, start: (u32, u32), end: (u32, u32), inserted: &str| {
            let region = json!({
                "startLine": start.0, "startColumn": start.1, "endLine": end.0, "endColumn": end.1,
            });
            assert_eq!(change(old, new), (region, inserted.to_owned()), "{old:?}");
        };
        check("x\n", "import a\nx\n", (1, 1), (1, 1), "import a\n");
        check("'d'\nx\n", "'d'\nimport a\nx\n", (2, 1), (2, 1), "import a\n");
        check("'d'; x", "'d'; import a\nx", (1, 1), (1, 7), "'d'; import a\nx");
        check("", "import a\n", (1, 1), (1, 1), "import a\n");
    }

    #[test]
    fn paths_are_encoded_as_uri_references() {
        assert_eq!(uri("a b/ü.py"), "a%20b/%C3%BC.py");
        assert_eq!(uri("/x/a.py"), "file:///x/a.py");
        assert_eq!(uri("a:b%.py"), "a%3Ab%25.py");
    }

    #[test]
    fn result_refers_to_its_rule_by_index() {
        let found = validation(vec![issue((3, 5), (3, 6), Severity::Warning)]);
        let checked = [Checked {
            name: "a.py".to_owned(),
            report: Report::Code {
                language: Language::Python,
                code: String::new(),
                found: Box::new(found),
            },
            code: 0,
            facts: Value::Null,
        }];
        let document = of(&checked);
        let run = &document["runs"][0];
        let result = &run["results"][0];
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(run["tool"]["driver"]["rules"][index]["id"], result["ruleId"]);
        assert_eq!(result["level"], "warning");
        assert_eq!(result["message"]["text"], "it is so. do otherwise");
        let region = &result["locations"][0]["physicalLocation"]["region"];
        assert_eq!(
            (&region["startLine"], &region["startColumn"]),
            (&json!(3), &json!(5))
        );
    }
}
