//! The same as SARIF 2.1.0 (OASIS, Static Analysis Results Interchange Format): what code hosts and editors read.

use super::{Checked, Report};
use crate::render::diagnostics;
use ringfence_engine::check_rules;
use ringfence_types::{CsvReport, Issue, JsonReport, Language, Severity, Validation};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";
/// Of a fix that was not asked for by any finding that is left.
const MISSING_IMPORT: &str = "python.missing_import";

pub(super) fn of(looked: &[Checked]) -> Value {
    let mut rules = Rules::new();
    let mut results = Vec::new();
    let mut artifacts = Vec::new();
    let mut unread = Vec::new();
    for (index, one) in looked.iter().enumerate() {
        let place = json!({"uri": uri(&one.name), "index": index});
        let mut artifact = json!({"location": {"uri": uri(&one.name)}});
        match &one.report {
            Report::Code {
                language,
                code,
                found,
            } => {
                artifact["sourceLanguage"] = json!(source_language(*language));
                results.extend(
                    found
                        .issues
                        .iter()
                        .map(|issue| of_issue(&mut rules, &place, issue)),
                );
                results.extend(of_fix(&mut rules, &place, code, found));
            }
            Report::Json(report) => of_json(&mut rules, &place, report, &mut results),
            Report::Csv(report) => of_csv(&mut rules, &place, report, &mut results),
            Report::Unread(error) => unread.push(json!({
                "level": "error",
                "message": {"text": format!("{} {}", error.message, error.hint)},
                "locations": [{"physicalLocation": {"artifactLocation": place}}],
            })),
        }
        artifacts.push(artifact);
    }
    let version = env!("CARGO_PKG_VERSION");
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "Ringfence", "version": version, "semanticVersion": version, "rules": rules.listed,
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

/// Every rule of ours, and those of schemas and tables that were broken.
struct Rules {
    listed: Vec<Value>,
    places: BTreeMap<String, usize>,
}

impl Rules {
    fn new() -> Self {
        let mut rules = Self {
            listed: Vec::new(),
            places: BTreeMap::new(),
        };
        for rule in check_rules() {
            rules.add(rule.id, rule.severity, [rule.title, rule.why, rule.hint]);
        }
        rules
    }

    fn add(&mut self, id: &str, severity: Severity, texts: [&str; 3]) -> usize {
        let [title, why, hint] = texts.map(|text| if text.is_empty() { texts[0] } else { text });
        self.listed.push(json!({
            "id": id,
            "shortDescription": {"text": title},
            "fullDescription": {"text": why},
            "help": {"text": hint},
            "defaultConfiguration": {"level": level(severity)},
        }));
        self.places.insert(id.to_owned(), self.listed.len() - 1);
        self.listed.len() - 1
    }

    /// Its place; one that is not known is described by its first finding.
    fn place(&mut self, id: &str, severity: Severity, texts: [&str; 3]) -> usize {
        match self.places.get(id) {
            Some(place) => *place,
            None => self.add(id, severity, texts),
        }
    }
}

fn of_issue(rules: &mut Rules, place: &Value, issue: &Issue) -> Value {
    let texts = [issue.rule.as_str(), issue.message.as_str(), issue.hint.as_str()];
    let index = rules.place(&issue.rule, issue.severity, texts);
    let region = json!({
        "startLine": issue.line, "startColumn": issue.column,
        "endLine": issue.end_line, "endColumn": issue.end_column,
    });
    let message = match issue.hint.as_str() {
        "" => issue.message.clone(),
        hint => format!("{} {hint}", crate::sentence::sentence(&issue.message)),
    };
    json!({
        "ruleId": issue.rule, "ruleIndex": index, "level": level(issue.severity),
        "message": {"text": message},
        "locations": [{"physicalLocation": {"artifactLocation": place, "region": region}}],
    })
}

/// Imports that were added: findings that are mended have none of their own left.
fn of_fix(rules: &mut Rules, place: &Value, code: &str, found: &Validation) -> Option<Value> {
    let fixed = found.fixed_code.as_ref()?;
    let texts = [
        "An import is missing",
        "A name is used that nothing binds, and that is well known",
        "Add the import.",
    ];
    let index = rules.place(MISSING_IMPORT, Severity::Info, texts);
    let change = Change::between(code, fixed);
    let statements = found.fixes_applied.join("; ");
    let region = json!({
        "startLine": change.start.0, "startColumn": change.start.1,
        "endLine": change.end.0, "endColumn": change.end.1,
    });
    let replacement = json!({"deletedRegion": region, "insertedContent": {"text": change.inserted}});
    Some(json!({
        "ruleId": MISSING_IMPORT, "ruleIndex": index, "level": "note",
        "message": {"text": format!("Missing: {statements}")},
        "locations": [{"physicalLocation": {"artifactLocation": place, "region": region}}],
        "fixes": [{
            "description": {"text": format!("Add {statements}")},
            "artifactChanges": [{"artifactLocation": place, "replacements": [replacement]}],
        }],
    }))
}

/// What of one text has to be replaced to have the other: whole lines, and positions from 1 in characters.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    start: (usize, usize),
    end: (usize, usize),
    inserted: String,
}

impl Change {
    fn between(old: &str, new: &str) -> Self {
        let (old, new): (Vec<&str>, Vec<&str>) = (
            old.split_inclusive('\n').collect(),
            new.split_inclusive('\n').collect(),
        );
        let (head, tail) = diagnostics::common(&old, &new);
        Self {
            start: position(&old, head),
            end: position(&old, old.len() - tail),
            inserted: new[head..new.len() - tail].concat(),
        }
    }
}

/// Where so many lines end.
fn position(lines: &[&str], count: usize) -> (usize, usize) {
    match lines[..count].last() {
        Some(last) if !last.ends_with('\n') => (count, last.chars().count() + 1),
        _ => (count + 1, 1),
    }
}

fn of_json(rules: &mut Rules, place: &Value, report: &JsonReport, results: &mut Vec<Value>) {
    for error in &report.errors {
        let id = format!("json.{}", error.keyword);
        let what = format!("The keyword `{}` of a JSON Schema", error.keyword);
        let index = rules.place(&id, Severity::Error, [&what, "", ""]);
        let location = json!({
            "physicalLocation": {"artifactLocation": place},
            "logicalLocations": [{"fullyQualifiedName": error.path, "kind": "value"}],
        });
        results.push(json!({
            "ruleId": id, "ruleIndex": index, "level": "error", "message": {"text": error.message},
            "locations": [location],
        }));
    }
}

fn of_csv(rules: &mut Rules, place: &Value, report: &CsvReport, results: &mut Vec<Value>) {
    let mut add = |id: &str, title: &str, text: String, properties: Map<String, Value>| {
        let index = rules.place(id, Severity::Error, [title, "", ""]);
        results.push(json!({
            "ruleId": id, "ruleIndex": index, "level": "error", "message": {"text": text},
            "locations": [{"physicalLocation": {"artifactLocation": place}}],
            "properties": properties,
        }));
    };
    for header in &report.missing_headers {
        let text = format!("The column `{header}` is missing.");
        add(
            "csv.header",
            "The header is not what it should be",
            text,
            Map::new(),
        );
    }
    for error in &report.errors {
        let properties = Map::from_iter([
            ("row".to_owned(), json!(error.row)),
            ("column".to_owned(), json!(error.column)),
        ]);
        let (id, title) = match error.row {
            0 => ("csv.header", "The header is not what it should be"),
            _ => ("csv.value", "A field is not what it should be"),
        };
        add(id, title, error.message.clone(), properties);
    }
}

/// A reference (RFC 3986) to a file by its path, as it was typed.
fn uri(path: &str) -> String {
    if path == "<stdin>" {
        return "stdin".to_owned();
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let mut uri = if path.starts_with('/') {
        "file://".to_owned()
    } else {
        String::new()
    };
    for byte in path.bytes() {
        match byte {
            byte if plain(byte) => uri.push(char::from(byte)),
            byte => uri += &format!("%{byte:02X}"),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::diagnostics::tests::{issue, validation};

    #[test]
    fn a_change_is_whole_lines_in_one_place() {
        let check = |old: &str, new: &str, start, end, inserted: &str| {
            let expect = Change {
                start,
                end,
                inserted: inserted.to_owned(),
            };
            assert_eq!(Change::between(old, new), expect, "{old:?}");
        };
        check("x\n", "import a\nx\n", (1, 1), (1, 1), "import a\n");
        check("'d'\nx\n", "'d'\nimport a\nx\n", (2, 1), (2, 1), "import a\n");
        check("'d'; x", "'d'; import a\nx", (1, 1), (1, 7), "'d'; import a\nx");
        check("", "import a\n", (1, 1), (1, 1), "import a\n");
    }

    #[test]
    fn paths_are_references() {
        assert_eq!(uri("a b/ü.py"), "a%20b/%C3%BC.py");
        assert_eq!(uri("/x/a.py"), "file:///x/a.py");
        assert_eq!(uri("a:b%.py"), "a%3Ab%25.py");
    }

    #[test]
    fn a_finding_names_its_rule_by_its_place() {
        let found = validation(vec![issue((3, 5), (3, 6), Severity::Warning)]);
        let looked = [Checked {
            name: "a.py".to_owned(),
            report: Report::Code {
                language: Language::Python,
                code: String::new(),
                found: Box::new(found),
            },
        }];
        let document = of(&looked);
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
