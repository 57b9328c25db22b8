//! The tools that look at code and data without running anything, and the arguments by which a program is looked at before it
//! runs.

use super::{
    Answer, Offer,
    arguments::{Arguments, Name, invalid, wrong_type},
    execute_code::{CODE, LANGUAGE, PROFILE, VALIDATE, language},
    observe::{Answered, Call, Object},
};
use crate::frames::{self, Bounds, Ink};
use ringfence_engine::{CodeWish, CsvQuestion, Fixing, SchemaWish};
use ringfence_types::nearest::suggestion;
use ringfence_types::{
    CsvReport, IMPORTS_MAX, JsonReport, Language, ModuleName, Profile, RequestError, Validate, Validation,
};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

pub(super) const AUTO_FIX: Name = ("auto_fix", &[]);
pub(super) const ALLOWED_IMPORTS: Name = ("allowed_imports", &[]);
pub(super) const DATA: Name = ("data", &[]);
pub(super) const SCHEMA: Name = ("schema_name_or_dict", &[]);
pub(super) const CSV: Name = ("csv_content", &[]);
pub(super) const REQUIRED_HEADERS: Name = ("required_headers", &[]);
pub(super) const TYPES: Name = ("type_constraints", &[]);
pub(super) const DELIMITER: Name = ("delimiter", &[]);

/// The most columns that may be required.
pub(super) const HEADERS_MAX: usize = 1000;
/// The frames' name for a document that came without one.
const JSON_NAME: &str = "data";
const CSV_NAME: &str = "csv_content";

/// Is a program looked at before it runs, where the caller says so.
pub(super) fn validate(arguments: &mut Arguments) -> Result<Option<Validate>, RequestError> {
    word(arguments, VALIDATE, Validate::WORDS)
}

/// The profile that a caller names; whether it may be chosen is for the policy to say.
pub(super) fn profile(arguments: &mut Arguments) -> Result<Option<Profile>, RequestError> {
    word(arguments, PROFILE, Profile::WORDS)
}

fn word<T: std::str::FromStr>(
    arguments: &mut Arguments,
    name: Name,
    words: &[&'static str],
) -> Result<Option<T>, RequestError> {
    let Some(text) = arguments.text(name)? else {
        return Ok(None);
    };
    text.parse().map(Some).map_err(|_| {
        let shown: String = text.chars().take(64).collect();
        let near = suggestion(&text, words.iter().copied());
        invalid(
            format!("`{}` = `{}` is not known.{near}", name.0, shown.escape_default()),
            format!("Known: {}.", words.join(", ")),
        )
    })
}

/// Modules of Python; an empty list asks for nothing.
pub(super) fn allowed_imports(
    arguments: &mut Arguments,
) -> Result<Option<BTreeSet<ModuleName>>, RequestError> {
    let items = arguments.texts(ALLOWED_IMPORTS)?.unwrap_or_default();
    if items.len() > IMPORTS_MAX {
        return Err(invalid(
            format!("`allowed_imports` has more than {IMPORTS_MAX} modules."),
            "Name packages; what lies below them comes with them.",
        ));
    }
    let module = |text: String| {
        ModuleName::try_from(text)
            .map_err(|reason| invalid(format!("`allowed_imports`: {reason}."), "Write math or os.path."))
    };
    let modules: BTreeSet<ModuleName> = items.into_iter().map(module).collect::<Result<_, _>>()?;
    Ok((!modules.is_empty()).then_some(modules))
}

/// The profiles that a caller may choose here.
pub(super) fn offered(offer: &Offer) -> Vec<&'static str> {
    let check = &offer.policy.borrow().check;
    check.offered().map(Profile::as_str).collect()
}

/// What code is called in frames.
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
            frames::of_code(name_of(language), code, found, Bounds::ANSWER).plain()
        ),
        None => String::new(),
    }
}

impl Call<'_> {
    pub(super) async fn validate_code(&self, arguments: Object) -> Answered {
        let (mut arguments, namespace) =
            self.open(arguments, &[CODE, LANGUAGE, AUTO_FIX, PROFILE, ALLOWED_IMPORTS])?;
        let code = arguments.text(CODE)?.ok_or_else(|| missing(CODE))?;
        let language = language(&mut arguments)?.unwrap_or(Language::Python);
        let wish = CodeWish {
            namespace,
            language,
            code: code.clone(),
            fixing: match arguments.flag(AUTO_FIX)? {
                Some(false) => Fixing::No,
                Some(true) | None => Fixing::Apply,
            },
            profile: profile(&mut arguments)?,
            allowed_imports: allowed_imports(&mut arguments)?,
            beside: Vec::new(),
        };
        let found = self.engine().validate_code(self.caller(), wish).await?;
        let text = about_code(name_of(language), &code, &found);
        Ok(Answer::plain(text, json!(found)))
    }

    pub(super) async fn validate_json(&self, arguments: Object) -> Answered {
        // `null` is a value here, and elsewhere the same as nothing.
        let is_given = arguments.contains_key(DATA.0);
        let (mut arguments, namespace) = self.open(arguments, &[DATA, SCHEMA])?;
        if !is_given {
            return Err(missing(DATA));
        }
        let (_, schema) = arguments.take(SCHEMA)?.ok_or_else(|| missing(SCHEMA))?;
        let schema = schema_of(schema)?;
        let data = arguments.take(DATA)?.map_or(Value::Null, |(_, data)| data);
        let check = async |schema: SchemaWish, text: &str| {
            let engine = self.engine();
            engine
                .validate_json(self.caller(), &namespace, schema, text)
                .await
        };
        let report = match JsonText::of(data) {
            JsonText::Sure(text) => check(schema, &text).await?,
            JsonText::Broken { value, text } => {
                // A text for whoever expects one; else what is wrong with it as JSON is what helps.
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

    pub(super) async fn validate_csv(&self, arguments: Object) -> Answered {
        let (mut arguments, namespace) = self.open(arguments, &[CSV, REQUIRED_HEADERS, TYPES, DELIMITER])?;
        let content = arguments.text(CSV)?.ok_or_else(|| missing(CSV))?;
        let question = CsvQuestion {
            required_headers: headers(arguments.texts(REQUIRED_HEADERS)?.unwrap_or_default())?,
            type_constraints: arguments.object(TYPES)?.unwrap_or_default(),
            delimiter: arguments
                .text(DELIMITER)?
                .map(|text| delimiter(&text))
                .transpose()?,
        };
        let engine = self.engine();
        let report = engine
            .validate_csv(self.caller(), &namespace, question, content.as_bytes())
            .await?;
        let text = about_csv(CSV_NAME, &report);
        Ok(Answer::plain(text, json!(report)))
    }
}

fn missing((name, _): Name) -> RequestError {
    invalid(format!("`{name}` is missing."), "See the tool's input schema.")
}

/// The name of a registered schema, or a schema; one that comes as text is a schema, too.
pub(super) fn schema_of(given: Value) -> Result<SchemaWish, RequestError> {
    match given {
        Value::String(text) => Ok(match serde_json::from_str::<Map<String, Value>>(&text) {
            Ok(schema) => SchemaWish::Inline(Value::Object(schema)),
            Err(_) => SchemaWish::Named(text),
        }),
        schema @ (Value::Object(_) | Value::Bool(_)) => Ok(SchemaWish::Inline(schema)),
        other => Err(wrong_type(SCHEMA.0, "a registered name or a JSON Schema", &other)),
    }
}

/// The document that is meant by a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JsonText {
    Sure(String),
    /// A string that begins as an object or a list and is none.
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

fn headers(items: Vec<String>) -> Result<Vec<String>, RequestError> {
    if items.len() > HEADERS_MAX {
        return Err(invalid(
            format!("`required_headers` has more than {HEADERS_MAX} names."),
            "Name those that the work needs.",
        ));
    }
    Ok(items)
}

/// One character; a tab may be spelled out.
pub(crate) fn delimiter(text: &str) -> Result<char, RequestError> {
    let mut characters = text.chars();
    match (text, characters.next(), characters.next()) {
        ("\\t" | "tab", ..) => Ok('\t'),
        (_, Some(one), None) if one.is_ascii() && !matches!(one, '"' | '\r' | '\n') => Ok(one),
        _ => Err(invalid(
            "`delimiter` is not one ASCII character.".to_owned(),
            "Write `,`, `;`, `|` or a tab, or leave it out to have it found.",
        )),
    }
}

/// What was found of code, in words.
pub(super) fn about_code(name: &str, code: &str, found: &Validation) -> String {
    let mut painting = frames::summary(name, found);
    painting.append(frames::of_code(name, code, found, Bounds::ANSWER));
    if let Some(fixed) = &found.fixed_code {
        painting.append(frames::difference(name, code, fixed));
    }
    let analysis = &found.analysis;
    let list = |names: &[String]| frames::beginning(&names.join(", "), 500);
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
    painting.line(Ink::Plain, &crate::terminal::neutral::line(&counts));
    painting.plain()
}

/// The same of JSON.
pub(super) fn about_json(name: &str, report: &JsonReport) -> String {
    let mut painting = frames::json_summary(name, report);
    painting.append(frames::of_json(name, report, Bounds::ANSWER));
    painting.plain()
}

/// The same of a table.
pub(super) fn about_csv(name: &str, report: &CsvReport) -> String {
    let mut painting = frames::csv_summary(name, report);
    painting.append(frames::of_csv(name, report, Bounds::ANSWER));
    painting.plain()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Arguments {
        let Value::Object(object) = value else {
            panic!("an object")
        };
        Arguments::open(object, "", &[VALIDATE, PROFILE, ALLOWED_IMPORTS]).unwrap()
    }

    #[test]
    fn words_are_read_and_a_mistyped_one_is_told_the_nearest() {
        let mut arguments = read(json!({"validate": "strict", "profile": "data_science"}));
        assert_eq!(validate(&mut arguments).unwrap(), Some(Validate::Strict));
        assert_eq!(profile(&mut arguments).unwrap(), Some(Profile::DataScience));
        assert_eq!(profile(&mut arguments).unwrap(), None);
        let error = profile(&mut read(json!({"profile": "basik"}))).unwrap_err();
        assert!(error.message.contains("Did you mean `basic`?"), "{error}");
        assert!(validate(&mut read(json!({"validate": true}))).is_err());
    }

    #[test]
    fn imports_are_modules_and_none_of_them_is_no_wish() {
        let imports = |value: Value| allowed_imports(&mut read(json!({"allowed_imports": value})));
        assert_eq!(imports(json!([])).unwrap(), None);
        assert_eq!(imports(json!("math")).unwrap().unwrap().len(), 1);
        assert_eq!(imports(json!(["a.b", "a.b", "c"])).unwrap().unwrap().len(), 2);
        for bad in [json!(["a-b"]), json!([1]), json!({}), json!(vec!["a"; 1001])] {
            assert!(imports(bad.clone()).is_err(), "{bad}");
        }
    }

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
        let named = |value: Value| matches!(schema_of(value), Ok(SchemaWish::Named(_)));
        let inline = |value: Value| matches!(schema_of(value), Ok(SchemaWish::Inline(_)));
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
