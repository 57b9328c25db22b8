//! The tools that look at code and data without running anything.

use super::{Answer, Answered, Offer, call::Call};
use crate::{
    api::{Object, ValidateCode, ValidateCsv, ValidateJson, invalid},
    render::diagnostics::{self, Bounds, Style},
};
use ringfence_engine::{CodeRequest, CsvQuestion, Fixing, SchemaChoice};
use ringfence_types::{CsvReport, JsonReport, Language, Namespace, Profile, RequestError, Validation};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

const HEADERS_MAX: usize = 1000;
/// The frames' name for a document that came without one.
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

/// Findings that were told with a refusal: the frames that stand below its words.
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
        let wish = CodeRequest {
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
        let found = self.engine().validate_code(self.caller(), wish).await?;
        let text = about_code(name_of(language), &given.code, &found);
        Ok(Answer::plain(text, json!(found)))
    }

    pub(super) async fn validate_json(&self, given: ValidateJson, namespace: Namespace) -> Answered {
        let schema = schema_of(given.schema_name_or_dict)?;
        let data = given.data.unwrap_or_default();
        let check = async |schema: SchemaChoice, text: &str| {
            let engine = self.engine();
            engine
                .validate_json(self.caller(), &namespace, schema, text)
                .await
        };
        let report = match JsonText::of(data) {
            JsonText::Sure(text) => check(schema, &text).await?,
            JsonText::Broken { value, text } => {
                // Valid as a string, if the schema wants one; otherwise the error in it as JSON helps.
                let as_value = check(schema.clone(), &value).await?;
                if as_value.valid {
                    as_value
                } else {
                    check(schema, &text).await?
                }
            }
        };
        let text = about_json(JSON_NAME, &report);
        Ok(Answer::plain(text, json!(report)))
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
        let engine = self.engine();
        let report = engine
            .validate_csv(self.caller(), &namespace, question, content.as_bytes())
            .await?;
        let text = about_csv(CSV_NAME, &report);
        Ok(Answer::plain(text, json!(report)))
    }
}

/// The name of a registered schema, or a schema; one that comes as text is a schema, too.
pub(super) fn schema_of(given: Value) -> Result<SchemaChoice, RequestError> {
    match given {
        Value::String(text) => Ok(match serde_json::from_str::<Object>(&text) {
            Ok(schema) => SchemaChoice::Inline(Value::Object(schema)),
            Err(_) => SchemaChoice::Named(text),
        }),
        schema @ (Value::Object(_) | Value::Bool(_)) => Ok(SchemaChoice::Inline(schema)),
        _ => Err(invalid(
            "`schema_name_or_dict` is neither a registered name nor a JSON Schema.",
            "The resource `sandbox://schemas` has the names.",
        )),
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum JsonText {
    Sure(String),
    /// A string that begins as an object or a list and is not valid JSON.
    Broken {
        value: String,
        text: String,
    },
}

impl JsonText {
    /// A string with a JSON object or array in it is that, as it was written.
    pub(super) fn of(data: Value) -> Self {
        let Value::String(text) = data else {
            return Self::Sure(data.to_string());
        };
        if !text.trim_start().starts_with(['{', '[']) {
            return Self::Sure(Value::String(text).to_string());
        }
        match serde_json::from_str::<IgnoredAny>(&text) {
            Ok(IgnoredAny) => Self::Sure(text),
            Err(_) => Self::Broken {
                value: Value::String(text.clone()).to_string(),
                text,
            },
        }
    }
}

/// One character; a tab may be spelled out.
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
    let mut painting = diagnostics::summary(name, found);
    painting.append(diagnostics::of_code(name, code, found, Bounds::ANSWER));
    if let Some(fixed) = &found.fixed_code {
        painting.append(diagnostics::difference(name, code, fixed));
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
    painting.line(Style::Plain, &crate::terminal::neutral::line(&counts));
    painting.plain()
}

pub(super) fn about_json(name: &str, report: &JsonReport) -> String {
    let mut painting = diagnostics::json_summary(name, report);
    painting.append(diagnostics::of_json(name, report, Bounds::ANSWER));
    painting.plain()
}

pub(super) fn about_csv(name: &str, report: &CsvReport) -> String {
    let mut painting = diagnostics::csv_summary(name, report);
    painting.append(diagnostics::of_csv(name, report, Bounds::ANSWER));
    painting.plain()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_json_is_json_and_other_text_is_a_string() {
        let sure = |value: Value, expect: &str| {
            assert_eq!(
                JsonText::of(value.clone()),
                JsonText::Sure(expect.to_owned()),
                "{value}"
            );
        };
        sure(json!({"a": 1}), r#"{"a":1}"#);
        sure(json!(null), "null");
        sure(json!(" {\"a\": 1e400, \"a\": 2}"), " {\"a\": 1e400, \"a\": 2}");
        sure(json!("[1]"), "[1]");
        sure(json!("plain"), "\"plain\"");
        sure(json!("5"), "\"5\"");
        assert!(matches!(JsonText::of(json!("{\"a\": ")), JsonText::Broken { .. }));
    }

    #[test]
    fn a_schema_is_named_or_given_as_an_object_or_as_text() {
        let named = |value: Value| matches!(schema_of(value), Ok(SchemaChoice::Named(_)));
        let inline = |value: Value| matches!(schema_of(value), Ok(SchemaChoice::Inline(_)));
        assert!(named(json!("user")) && inline(json!({})) && inline(json!("{\"type\": \"object\"}")));
        assert!(schema_of(json!(5)).is_err() && schema_of(json!([])).is_err());
    }

    #[test]
    fn a_delimiter_is_one_character() {
        assert_eq!(delimiter(";").unwrap(), ';');
        assert_eq!(delimiter("\\t").unwrap(), '\t');
        for bad in ["", ",,", "\"", "\n", "é"] {
            assert!(delimiter(bad).is_err(), "{bad:?}");
        }
    }
}
