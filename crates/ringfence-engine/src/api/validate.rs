//! Checks of code and data without running them, each recorded with a digest of its input.

use super::{Engine, NamespaceAccess};
use crate::{caller::Caller, check, error::Result, imports, record::hex, services::Services};
use ringfence_check::{Answer, CodeQuestion, CsvQuestion, JsonQuestion, Question, Rule};
use ringfence_store::audit::Action;
use ringfence_types::{
    CODE_BYTES_MAX, CsvReport, JsonReport, Language, ModuleName, Namespace, Profile, RequestError, Validation,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// Maximum bytes of a JSON or CSV text.
pub const DATA_BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Debug)]
pub struct CodeRequest {
    pub namespace: Namespace,
    pub language: Language,
    pub code: String,
    pub fixing: Fixing,
    /// As [`ringfence_types::ExecuteRequest::profile`].
    pub profile: Option<Profile>,
    /// As [`ringfence_types::ExecuteRequest::allowed_imports`].
    pub allowed_imports: Option<BTreeSet<ModuleName>>,
    /// Paths of files beside it, which it may import.
    pub beside: Vec<String>,
}

/// The handling of missing imports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fixing {
    Apply,
    /// They are only reported.
    No,
}

#[derive(Clone, Debug)]
pub enum SchemaChoice {
    Named(String),
    Inline(Value),
}

impl Engine {
    pub async fn validate_code(&self, caller: &Caller, request: CodeRequest) -> Result<Validation> {
        let mut details = json!({"language": request.language});
        let found = self.check_code(&request, &mut details).await;
        let namespace = self.namespace(caller, &request.namespace);
        namespace
            .checked(Action::CodeValidated, details, request.code.as_bytes(), found)
            .await
    }

    async fn check_code(&self, request: &CodeRequest, details: &mut Value) -> Result<Validation> {
        if request.code.len() > CODE_BYTES_MAX {
            return Err(RequestError::invalid(
                "the code is longer than 1 MiB.",
                "Put its data into files.",
            ));
        }
        let services = &self.services;
        let settings = &services.policy.current().check;
        let named = request.allowed_imports.as_ref();
        let rules = imports::rules(settings, request.language, request.profile, named)?;
        details["profile"] = json!(rules.profile.as_str());
        let question = CodeQuestion {
            language: request.language,
            rules,
            auto_fix: request.fixing == Fixing::Apply,
            is_fragment: false,
            has_workspace: false,
            python: services.checkers.python(),
            known_imports: settings.known_imports.clone(),
            local_modules: imports::of_files(request.beside.iter().map(String::as_str)),
        };
        let answer = services
            .checkers
            .code(&request.namespace, question, request.code.as_bytes())
            .await?;
        let found = answer.validation;
        details["verdict"] = json!(found.verdict);
        details["issues"] = json!(found.issues_total);
        Ok(found)
    }

    /// Returns the registered JSON Schemas by name; the operator's replace built-in ones of the same name.
    pub fn schemas(&self) -> Vec<(String, Value)> {
        schemas(&self.services)
    }
}

impl NamespaceAccess<'_> {
    pub async fn validate_json(self, schema: SchemaChoice, data: &str) -> Result<JsonReport> {
        let (name, schema) = match schema {
            SchemaChoice::Inline(schema) => ("inline".to_owned(), Ok(schema)),
            SchemaChoice::Named(name) => {
                let found = schema_of(self.services, &name);
                (name, found)
            }
        };
        let mut details = json!({"kind": "json", "schema": excerpt(&name)});
        let found = async {
            let schema = schema?;
            let question = Question::Json(JsonQuestion { name, schema });
            match self.ask(&question, data.as_bytes()).await? {
                Answer::Json(report) => Ok(report),
                _ => Err(check::unexpected_answer()),
            }
        };
        let found = found.await;
        if let Ok(report) = &found {
            details["valid"] = json!(report.valid);
            details["errors"] = json!(report.errors_total);
        }
        self.checked(Action::DataValidated, details, data.as_bytes(), found)
            .await
    }

    /// Checks a CSV table of any encoding.
    pub async fn validate_csv(self, question: CsvQuestion, content: &[u8]) -> Result<CsvReport> {
        let found = match self.ask(&Question::Csv(question), content).await {
            Ok(Answer::Csv(report)) => Ok(report),
            Ok(_) => Err(check::unexpected_answer()),
            Err(error) => Err(error),
        };
        let mut details = json!({"kind": "csv"});
        if let Ok(report) = &found {
            details["valid"] = json!(report.valid);
            details["errors"] = json!(report.errors_total);
        }
        self.checked(Action::DataValidated, details, content, found).await
    }

    async fn ask(&self, question: &Question, text: &[u8]) -> Result<Answer> {
        if text.len() > DATA_BYTES_MAX {
            return Err(RequestError::invalid(
                "the data are larger than 16 MiB.",
                "Send a part, or have a program look at the file.",
            ));
        }
        self.services.checkers.ask(self.namespace, question, text).await
    }

    /// Records a check, including a refused one, before it is answered.
    async fn checked<T>(
        &self,
        action: Action,
        mut details: Value,
        text: &[u8],
        found: Result<T>,
    ) -> Result<T> {
        details["sha256"] = json!(hex(&Sha256::digest(text)));
        details["bytes"] = json!(text.len());
        if let Err(error) = &found {
            details["code"] = json!(error.code.as_str());
        }
        self.read(action, details, found).await
    }
}

fn schemas(services: &Services) -> Vec<(String, Value)> {
    let own = &services.policy.current().check.schemas;
    let built_in = ringfence_check::schemas()
        .iter()
        .filter(|(name, _)| !own.contains_key(*name));
    let parsed =
        built_in.filter_map(|(name, text)| Some(((*name).to_owned(), serde_json::from_str(text).ok()?)));
    let mut all: Vec<(String, Value)> = parsed.collect();
    all.extend(own.iter().map(|(name, schema)| (name.clone(), schema.clone())));
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

fn schema_of(services: &Services, name: &str) -> Result<Value> {
    let all = schemas(services);
    let names: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
    let found = all.into_iter().find(|(known, _)| known == name);
    found.map(|(_, schema)| schema).ok_or_else(|| {
        RequestError::not_found(
            format!("there is no schema `{}`.", excerpt(name)),
            format!("There are: {}. Or send a schema in its place.", names.join(", ")),
        )
    })
}

fn excerpt(name: &str) -> String {
    name.chars().take(64).collect()
}

pub fn check_rules() -> impl Iterator<Item = &'static Rule> {
    ringfence_check::rules()
}
