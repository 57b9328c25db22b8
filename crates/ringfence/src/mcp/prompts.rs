//! The prompts: instructions for a model to write a program for a sandbox, or to correct input that a check has
//! refused. Their rules, limits, schemas and errors are this server's current ones, never a text that could differ.

use super::{
    Offer,
    validate::{self, about_code, about_csv, about_json, offered, schema_of},
};
use crate::{
    api::{self, LIMIT_NAMES, OneOf, invalid},
    render::{diagnostics, in_words},
    settings::Toolset,
    terminal::neutral,
};
use ringfence_engine::{Caller, CodeRequest, CsvQuestion, Engine, Fixing, SchemaChoice, check_rules};
use ringfence_types::{Language, Namespace, Profile, RequestError, Severity, nearest::suggestion};
use rmcp::model::{GetPromptRequestParams, GetPromptResult, Prompt, PromptArgument, PromptMessage, Role};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) const GENERATE: &str = "generate_secure_script";
pub(super) const DIAGNOSE: &str = "diagnose_validation_error";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Generate {
    task: String,
    profile: Option<OneOf<Profile>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Diagnose {
    error: String,
    data: Option<String>,
    schema: Option<String>,
    language: Option<OneOf<Language>>,
    profile: Option<OneOf<Profile>>,
}

const TEXT_CHARS_MAX: usize = 16 << 10;
const DATA_CHARS_SHOWN: usize = 8 << 10;
const SCHEMA_CHARS_SHOWN: usize = 16 << 10;

fn generates(offer: &Offer) -> bool {
    offer.has(Toolset::Execute)
}

fn diagnoses(offer: &Offer) -> bool {
    generates(offer) || offer.has(Toolset::Data)
}

pub(super) fn list(offer: &Offer) -> Vec<Prompt> {
    let required = |name: &str, about: &str| {
        PromptArgument::new(name)
            .with_description(about)
            .with_required(true)
    };
    let optional = |name: &str, about: &str| required(name, about).with_required(false);
    let profiles = format!("One of {}.", offered(offer).join(", "));
    let generate = Prompt::new(
        GENERATE,
        Some("Write a Python program that passes the checks of a profile of this server."),
        Some(vec![
            required("task", "What the program is to do."),
            optional("profile", &profiles),
        ]),
    );
    let diagnose = Prompt::new(
        DIAGNOSE,
        Some("Explain why code, JSON or a table was refused, by checking it again, and mend it."),
        Some(vec![
            required("error", "The message of the refusal."),
            optional("data", "The code, the JSON or the table."),
            optional(
                "schema",
                "The registered name of a JSON Schema, or one as JSON text; of a table, its type_constraints as JSON text, or {}.",
            ),
            optional(
                "language",
                "The language of code without a `#!` line; Python if left out.",
            ),
            optional(
                "profile",
                &format!("{profiles} Left out, the one that the error names."),
            ),
        ]),
    );
    let generate = generates(offer).then(|| generate.with_title("Write a program for the sandbox"));
    let diagnose = diagnoses(offer).then(|| diagnose.with_title("Explain what a check refused"));
    generate.into_iter().chain(diagnose).collect()
}

pub(super) fn name(text: &str, offer: &Offer) -> Result<&'static str, RequestError> {
    match text {
        GENERATE if generates(offer) => Ok(GENERATE),
        DIAGNOSE if diagnoses(offer) => Ok(DIAGNOSE),
        other => {
            let names = list(offer);
            let near = suggestion(other, names.iter().map(|prompt| prompt.name.as_str()));
            let excerpt: String = other.chars().take(64).collect();
            Err(RequestError::not_found(
                format!("there is no prompt `{}`.{near}", excerpt.escape_default()),
                "`prompts/list` names them.",
            ))
        }
    }
}

pub(super) async fn get(
    engine: &Engine,
    caller: &Caller,
    offer: &Offer,
    request: GetPromptRequestParams,
) -> Result<GetPromptResult, RequestError> {
    let name = name(&request.name, offer)?;
    let arguments = request.arguments.unwrap_or_default();
    let (about, text) = if name == GENERATE {
        let given: Generate = api::parse(arguments)?;
        let task = required("task", &given.task)?;
        let default = offer.policy.borrow().check.profile;
        let profile = may_choose(given.profile.map_or(default, |word| word.0), offer)?;
        let text = generate(engine, offer, &task, profile);
        ("A program for the sandbox", text)
    } else {
        let given: Diagnose = api::parse(arguments)?;
        let error = required("error", &given.error)?;
        let named = given.profile.map(|word| word.0).or_else(|| profile_in(&error));
        let schema = given.schema.map(|text| schema_of(Value::String(text)));
        let case = Case {
            profile: named.map(|profile| may_choose(profile, offer)).transpose()?,
            error,
            data: given.data,
            schema: schema.transpose()?,
            language: given.language.map(|word| word.0),
            namespace: offer.namespaces.default_namespace(),
        };
        ("What a check refused", case.diagnose(engine, caller).await?)
    };
    let namespace = offer.namespaces.default_namespace();
    engine
        .note_call(caller, namespace.as_str(), &format!("prompt {name}"))
        .await?;
    let message = PromptMessage::new_text(Role::User, text);
    Ok(GetPromptResult::new(vec![message]).with_description(about))
}

fn required(name: &str, text: &str) -> Result<String, RequestError> {
    if text.trim().is_empty() {
        let message = format!("`{name}` is empty.");
        return Err(invalid(message, "`prompts/list` names the arguments."));
    }
    Ok(diagnostics::beginning(text, TEXT_CHARS_MAX))
}

fn may_choose(profile: Profile, offer: &Offer) -> Result<Profile, RequestError> {
    offer.policy.borrow().check.choose(Some(profile))
}

fn generate(engine: &Engine, offer: &Offer, task: &str, profile: Profile) -> String {
    let imports = match offer.policy.borrow().check.modules(profile) {
        None => "everything that is installed, and what execute_code names in `packages`".to_owned(),
        Some(modules) => {
            let modules: Vec<String> = modules.into_iter().map(String::from).collect();
            let modules = modules.join(", ");
            format!("only these modules and what lies below them, before the run and again inside: {modules}")
        }
    };
    let (limits, _) = engine.limits_of(&offer.namespaces.default_namespace());
    let limits = in_words(&limits.least(&offer.limits.caps()));
    let limits = LIMIT_NAMES.map(|name| format!("{name} {}", limits[name]));
    let hosts = engine.hosts_of(&offer.namespaces.default_namespace());
    let network = match hosts.is_empty() {
        true => "none. No host can be reached, and names are not resolved".to_owned(),
        false => format!("only these hosts: {}", hosts.join(", ")),
    };
    let forbidden = match profile {
        Profile::Unrestricted => "This profile forbids nothing by itself; the kernel is the wall.",
        _ => "This profile refuses what it forbids, regardless of the rule above.",
    };
    // The task is inserted last, so that a placeholder in it stays as it is.
    include_str!("generate_prompt.txt")
        .replace("{profile}", profile.as_str())
        .replace("{imports}", &imports)
        .replace("{network}", &network)
        .replace("{limits}", &limits.join("; "))
        .replace("{rules}", &rules(profile))
        .replace("{forbidden}", forbidden)
        .replace("{task}", task)
}

fn rules(profile: Profile) -> String {
    let of_python = |id: &str| id.starts_with("python.") || id.starts_with("profile.");
    let mut text = String::new();
    for rule in check_rules().filter(|rule| of_python(rule.id)) {
        let refused = match rule.worst(profile) {
            Severity::Error if rule.severity == Severity::Error => "refused",
            Severity::Error => "refused, but for what is harmless",
            Severity::Warning => "usually refused by `validate: \"strict\"`, else reported",
            Severity::Info => "reported",
        };
        text += &format!("- `{}` ({refused}): {}. {}\n", rule.id, rule.title, rule.hint);
    }
    text
}

struct Case {
    error: String,
    data: Option<String>,
    schema: Option<SchemaChoice>,
    language: Option<Language>,
    profile: Option<Profile>,
    namespace: Namespace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Json,
    Csv,
    Code(Language),
}

impl Case {
    async fn diagnose(self, engine: &Engine, caller: &Caller) -> Result<String, RequestError> {
        let mut text = format!(
            "A check has refused something. Say in a few sentences what is wrong and why, then give the whole of it \
             corrected; change nothing that was not objected to.\n\n<error>\n{}\n</error>\n",
            neutral::text(&self.error)
        );
        if let Some(data) = &self.data {
            text += "\nWhat the checks of this server say of it now:\n\n";
            let (found, is_refused) = self.check(engine, caller, data).await?;
            text += &found;
            if !is_refused {
                text += "\nNothing of this is the refusal: the error is of another profile, `validate: \"strict\"`, another schema, or \
                    of the run itself.\n";
            }
        }
        if let Some((name, schema)) = self.schema(engine)? {
            let schema = diagnostics::beginning(&format!("{schema:#}"), SCHEMA_CHARS_SHOWN);
            text += &format!(
                "\nThe schema ({}):\n\n<schema>\n{}\n</schema>\n",
                name,
                neutral::text(&schema)
            );
        }
        if let Some(data) = &self.data {
            let total = data.chars().count();
            let excerpt = neutral::text(&diagnostics::beginning(data, DATA_CHARS_SHOWN));
            let how_much = if total > DATA_CHARS_SHOWN {
                format!("Its first {DATA_CHARS_SHOWN} of {total} characters")
            } else {
                "All of it".to_owned()
            };
            text += &format!("\n{how_much}:\n\n<data>\n{excerpt}\n</data>\n");
        }
        Ok(text)
    }

    /// Says what the data is: by the schema, by the language, or by its beginning.
    fn kind(&self, data: &str) -> Kind {
        let is_json = data.trim_start().starts_with(['{', '[', '"']);
        let is_of_json = |schema: &Value| {
            schema["type"].is_string()
                || ["$schema", "properties"]
                    .iter()
                    .any(|name| schema.get(name).is_some())
        };
        match (&self.schema, self.language) {
            (Some(SchemaChoice::Inline(schema)), None) if !is_json && !is_of_json(schema) => Kind::Csv,
            (Some(_), _) => Kind::Json,
            (None, Some(language)) => Kind::Code(language),
            (None, None) if is_json => Kind::Json,
            (None, None) => Kind::Code(Language::from_shebang(data).unwrap_or(Language::Python)),
        }
    }

    async fn check(
        &self,
        engine: &Engine,
        caller: &Caller,
        data: &str,
    ) -> Result<(String, bool), RequestError> {
        let access = engine.namespace(caller, &self.namespace);
        match self.kind(data) {
            Kind::Json => {
                // Without a schema, only the JSON syntax is checked.
                let schema = self.schema.clone().unwrap_or(SchemaChoice::Inline(json!({})));
                let report = access.validate_json(schema, data).await?;
                Ok((about_json("data", &report), !report.valid))
            }
            Kind::Csv => {
                let question = CsvQuestion {
                    type_constraints: match &self.schema {
                        Some(SchemaChoice::Inline(Value::Object(constraints))) => constraints.clone(),
                        _ => serde_json::Map::new(),
                    },
                    ..CsvQuestion::default()
                };
                let report = access.validate_csv(question, data.as_bytes()).await?;
                Ok((about_csv("data", &report), !report.valid))
            }
            Kind::Code(language) => {
                let request = CodeRequest {
                    namespace: self.namespace.clone(),
                    language,
                    code: data.to_owned(),
                    fixing: Fixing::Apply,
                    profile: self.profile.filter(|_| language == Language::Python),
                    allowed_imports: None,
                    beside: Vec::new(),
                };
                let found = engine.validate_code(caller, request).await?;
                let is_refused = found.issues.iter().any(|issue| issue.severity > Severity::Info);
                Ok((about_code(validate::name_of(language), data, &found), is_refused))
            }
        }
    }

    fn schema(&self, engine: &Engine) -> Result<Option<(String, Value)>, RequestError> {
        match &self.schema {
            None => Ok(None),
            Some(SchemaChoice::Inline(schema)) => Ok(Some(("inline".to_owned(), schema.clone()))),
            Some(SchemaChoice::Named(name)) => {
                let found = engine.schemas().into_iter().find(|(known, _)| known == name);
                found.map(Some).ok_or_else(|| {
                    RequestError::not_found(
                        "there is no such schema.",
                        "The resource `sandbox://schemas` has them.",
                    )
                })
            }
        }
    }
}

/// Finds the profile in a refusal such as `under the profile basic`.
fn profile_in(error: &str) -> Option<Profile> {
    let (_, rest) = error.split_once("profile ")?;
    let word = rest.trim_start_matches('`');
    let end = word.find(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
    word[..end.unwrap_or(word.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::tests::offer;

    #[test]
    fn kind_follows_the_schema_the_language_and_the_beginning() {
        let check = |schema: Option<Value>, language: Option<Language>, data: &str, expect: Kind| {
            let case = Case {
                error: String::new(),
                data: None,
                schema: schema.map(SchemaChoice::Inline),
                language,
                profile: None,
                namespace: Namespace::default_name(),
            };
            assert_eq!(case.kind(data), expect, "{data:?}");
        };
        check(None, None, "{\"a\": ", Kind::Json);
        check(None, None, "print(1)\n", Kind::Code(Language::Python));
        check(None, None, "#!/bin/bash\nls", Kind::Code(Language::Shell));
        check(
            None,
            Some(Language::Node),
            "[1].map(f)",
            Kind::Code(Language::Node),
        );
        check(Some(json!({})), None, "a,b\n1,2\n", Kind::Csv);
        check(Some(json!({})), None, " [1]", Kind::Json);
        check(Some(json!({"type": "object"})), None, "Sure: {}", Kind::Json);
    }

    #[test]
    fn profile_is_found_in_a_refusal() {
        let refusal = "line 1: `os` is imported under the profile `basic`";
        assert_eq!(profile_in(refusal), Some(Profile::Basic));
        assert_eq!(
            profile_in("is not in the profile data_science (x)"),
            Some(Profile::DataScience)
        );
        assert_eq!(profile_in("a profile of mine"), None);
    }

    #[test]
    fn prompts_follow_the_toolsets_and_a_mistyped_name_gets_a_suggestion() {
        let names = |offer: &Offer| {
            list(offer)
                .into_iter()
                .map(|prompt| prompt.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&offer()), [GENERATE, DIAGNOSE]);
        let data = Offer {
            toolsets: vec![Toolset::Data],
            ..offer()
        };
        assert_eq!(names(&data), [DIAGNOSE]);
        let none = Offer {
            toolsets: vec![Toolset::Vault],
            ..offer()
        };
        assert!(list(&none).is_empty() && name(GENERATE, &none).is_err());
        let error = name("generate_script", &offer()).unwrap_err();
        assert!(error.message.contains("generate_secure_script"), "{error}");
    }
}
