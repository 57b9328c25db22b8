//! The tools that check code and data without running anything.

use super::{Answer, Answered, Offer, bounded, call::Call};
use crate::{
    api::{ValidateCode, ValidateCsv, ValidateJson, invalid},
    render::diagnostics::{self, Bounds, Style},
};
use ringfence_engine::{CodeRequest, CsvQuestion, Fixing, SchemaChoice};
use ringfence_types::{CsvReport, JsonReport, Language, Namespace, Profile, RequestError, Validation};
use serde_json::{Value, json};

const HEADERS_MAX: usize = 1000;
/// Names of unnamed documents in source frames.
const JSON_NAME: &str = "data";
const CSV_NAME: &str = "csv_content";

pub(super) fn offered(offer: &Offer) -> Vec<&'static str> {
    let check = &offer.policy.borrow().check;
    check.offered().map(Profile::as_str).collect()
}

pub(super) fn name_of(language: Language) -> &'static str {
    match language {
        Language::Python => "main.py",
        Language::Node => "main.js",
        Language::Typescript => "main.ts",
        Language::Shell => "main.sh",
    }
}

pub(super) fn below(error: &RequestError, language: Language, code: &str) -> String {
    match &error.validation {
        Some(found) => format!(
            "\n\n{}",
            diagnostics::of_code(name_of(language), code, found, Bounds::ANSWER).plain()
        ),
        None => String::new(),
    }
}

impl Call<'_> {
    pub(super) async fn validate_code(&self, given: ValidateCode, namespace: Namespace) -> Answered {
        let language = given.language.map_or(Language::Python, |word| word.0);
        let request = CodeRequest {
            namespace,
            language,
            code: given.code.clone(),
            fixing: match given.auto_fix {
                Some(false) => Fixing::No,
                Some(true) | None => Fixing::Apply,
            },
            profile: given.profile.map(|word| word.0),
            allowed_imports: given
                .allowed_imports
                .map(|modules| modules.0)
                .filter(|modules| !modules.is_empty()),
            beside: Vec::new(),
        };
        let found = self.engine().validate_code(self.caller(), request).await?;
        let text = about_code(name_of(language), &given.code, &found);
        Ok(self.findings(text, json!(found)))
    }

    pub(super) async fn validate_json(&self, given: ValidateJson, namespace: Namespace) -> Answered {
        let schema = schema_of(given.schema_name_or_dict)?;
        let text = json_text(given.data.unwrap_or_default());
        let report = self.namespace(&namespace).validate_json(schema, &text).await?;
        let text = about_json(JSON_NAME, &report);
        Ok(self.findings(text, json!(report)))
    }

    pub(super) async fn validate_csv(&self, given: ValidateCsv, namespace: Namespace) -> Answered {
        let content = given.csv_content;
        let required_headers = given.required_headers.unwrap_or_default().0;
        if required_headers.len() > HEADERS_MAX {
            return Err(invalid(
                format!("`required_headers` has more than {HEADERS_MAX} names."),
                "Name those that the work needs.",
            ));
        }
        let question = CsvQuestion {
            required_headers,
            type_constraints: given.type_constraints.unwrap_or_default(),
            delimiter: given.delimiter.map(|text| delimiter(&text)).transpose()?,
        };
        let access = self.namespace(&namespace);
        let report = access.validate_csv(question, content.as_bytes()).await?;
        let text = about_csv(CSV_NAME, &report);
        Ok(self.findings(text, json!(report)))
    }

    /// Builds the answer with as many findings as have room; the counts include the others.
    fn findings(&self, text: String, mut found: Value) -> Answer {
        bounded::fit(&mut found, &["fixed_code"], 2 * self.offer().text_max);
        Answer::plain(text, found)
    }
}

pub(super) fn schema_of(given: Value) -> Result<SchemaChoice, RequestError> {
    match given {
        Value::String(text) if !text.trim_start().starts_with('{') => Ok(SchemaChoice::Named(text)),
        Value::String(text) => ringfence_engine::read_exactly(&text)
            .map(SchemaChoice::Inline)
            .map_err(|error| {
                invalid(
                    format!("`schema_name_or_dict` {error}."),
                    "Send a JSON Schema, or the name of one.",
                )
            }),
        schema @ (Value::Object(_) | Value::Bool(_)) => Ok(SchemaChoice::Inline(schema)),
        _ => Err(invalid(
            "`schema_name_or_dict` is neither a registered name nor a JSON Schema.",
            "The resource `sandbox://schemas` has the names.",
        )),
    }
}

/// Returns JSON text: a string is JSON as it was written; some clients send the value in its place.
pub(super) fn json_text(data: Value) -> String {
    match data {
        Value::String(text) => text,
        value => value.to_string(),
    }
}

/// Reads a delimiter: one character; a tab may be written as `\t` or `tab`.
pub(crate) fn delimiter(text: &str) -> Result<char, RequestError> {
    let mut characters = text.chars();
    match (text, characters.next(), characters.next()) {
        ("\\t" | "tab", ..) => Ok('\t'),
        (_, Some(one), None) if one.is_ascii() && !matches!(one, '"' | '\r' | '\n') => Ok(one),
        _ => Err(invalid(
            "`delimiter` is not one ASCII character.",
            "Write `,`, `;`, `|` or a tab, or leave it out to have it found.",
        )),
    }
}

pub(super) fn about_code(name: &str, code: &str, found: &Validation) -> String {
    let mut rendered = diagnostics::summary(name, found);
    rendered.append(diagnostics::of_code(name, code, found, Bounds::ANSWER));
    if let Some(fixed) = &found.fixed_code {
        rendered.append(diagnostics::difference(name, code, fixed));
    }
    let analysis = &found.analysis;
    let list = |names: &[String]| diagnostics::beginning(&names.join(", "), 500);
    let mut counts = format!(
        "lines {}, functions {}, classes {}, cyclomatic complexity {}",
        analysis.line_count, analysis.functions, analysis.classes, analysis.cyclomatic_complexity
    );
    if !analysis.imports.is_empty() {
        counts += &format!("; imports {}", list(&analysis.imports));
    }
    if !analysis.domains.is_empty() {
        counts += &format!(
            "; names the hosts {} (which opens nothing)",
            list(&analysis.domains)
        );
    }
    rendered.line(Style::Plain, &crate::terminal::neutral::line(&counts));
    rendered.plain()
}

pub(super) fn about_json(name: &str, report: &JsonReport) -> String {
    let mut rendered = diagnostics::json_summary(name, report);
    rendered.append(diagnostics::of_json(name, report, Bounds::ANSWER));
    rendered.plain()
}

pub(super) fn about_csv(name: &str, report: &CsvReport) -> String {
    let mut rendered = diagnostics::csv_summary(name, report);
    rendered.append(diagnostics::of_csv(name, report, Bounds::ANSWER));
    rendered.plain()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_string_is_used_as_written() {
        let check = |value: Value, expect: &str| assert_eq!(json_text(value), expect);
        check(json!({"a": 1}), r#"{"a":1}"#);
        check(json!(null), "null");
        check(json!(5), "5");
        for text in [
            " {\"a\": 1e400, \"a\": 2}",
            "[1]",
            "\"plain\"",
            "5",
            "{\"a\": ",
            "plain",
        ] {
            check(json!(text), text);
        }
    }

    #[test]
    fn schema_is_a_name_or_an_object_or_text() {
        let named = |value: Value| matches!(schema_of(value), Ok(SchemaChoice::Named(_)));
        let inline = |value: Value| matches!(schema_of(value), Ok(SchemaChoice::Inline(_)));
        assert!(named(json!("user")) && inline(json!({})) && inline(json!("{\"type\": \"object\"}")));
        let broken = schema_of(json!("{\"type\": }")).unwrap_err();
        assert!(broken.message.contains("line 1 column 10"), "{broken}");
        let rounded = schema_of(json!("{\"const\": 18446744073709551617}")).unwrap_err();
        assert!(rounded.message.contains("rounded: `/const`"), "{rounded}");
        assert!(schema_of(json!("{\"a\": 1, \"a\": 2}")).is_err());
        assert!(schema_of(json!(5)).is_err() && schema_of(json!([])).is_err());
    }

    #[test]
    fn delimiter_is_one_character() {
        assert_eq!(delimiter(";").unwrap(), ';');
        assert_eq!(delimiter("\\t").unwrap(), '\t');
        for bad in ["", ",,", "\"", "\n", "é"] {
            assert!(delimiter(bad).is_err(), "{bad:?}");
        }
    }
}
