//! The engine's door for code and data that are looked at and not run. Each question goes on record, with a digest of what
//! was looked at.

use crate::{
    check,
    engine::{Caller, Engine},
    imports,
};
use ringfence_check::{Answer, CodeQuestion, CsvQuestion, JsonQuestion, Question, Rule};
use ringfence_store::audit::{Action, Outcome};
use ringfence_types::{
    CODE_BYTES_MAX, CsvReport, ErrorCode, JsonReport, Language, ModuleName, Namespace, Profile, RequestError,
    Validation,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// The longest JSON or CSV text, in bytes.
pub const DATA_BYTES_MAX: usize = 16 << 20;

/// Code that somebody wants to know about.
#[derive(Clone, Debug)]
pub struct CodeWish {
    /// Tenant.
    pub namespace: Namespace,
    /// Of the code.
    pub language: Language,
    /// Its text.
    pub code: String,
    /// Are missing imports added.
    pub fixing: Fixing,
    /// As [`ringfence_types::ExecuteRequest::profile`].
    pub profile: Option<Profile>,
    /// As [`ringfence_types::ExecuteRequest::allowed_imports`].
    pub allowed_imports: Option<BTreeSet<ModuleName>>,
}

/// Are missing imports added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fixing {
    /// They are.
    Apply,
    /// They are told.
    No,
}

/// A JSON Schema.
#[derive(Clone, Debug)]
pub enum SchemaWish {
    /// A registered one.
    Named(String),
    /// This one.
    Inline(Value),
}

impl Engine {
    /// What is found of code, without running it.
    pub async fn validate_code(&self, caller: &Caller, wish: CodeWish) -> Result<Validation, RequestError> {
        if wish.code.len() > CODE_BYTES_MAX {
            return Err(RequestError::invalid(
                "the code is longer than 1 MiB.",
                "Send it in parts.",
            ));
        }
        let house = self.house();
        let settings = &house.policy().check;
        let rules = imports::rules(
            settings,
            wish.language,
            wish.profile,
            wish.allowed_imports.as_ref(),
        )?;
        let mut details = json!({"language": wish.language, "profile": rules.profile.as_str()});
        let question = CodeQuestion {
            language: wish.language,
            rules,
            auto_fix: wish.fixing == Fixing::Apply,
            is_fragment: false,
            known_imports: settings.known_imports.clone(),
            local_modules: BTreeSet::new(),
        };
        let found = check::code(house, &wish.namespace, question, wish.code.as_bytes()).await;
        if let Ok(answer) = &found {
            details["verdict"] = json!(answer.validation.verdict);
            details["issues"] = json!(answer.validation.issues_total);
        }
        let text = wish.code.as_bytes();
        self.note_check(
            caller,
            Action::CodeValidated,
            &wish.namespace,
            text,
            details,
            found.as_ref().err(),
        )
        .await?;
        found.map(|answer| answer.validation)
    }

    /// What is found of JSON text.
    pub async fn validate_json(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        schema: SchemaWish,
        data: &str,
    ) -> Result<JsonReport, RequestError> {
        check_size(data)?;
        let (name, schema) = match schema {
            SchemaWish::Inline(schema) => ("inline".to_owned(), schema),
            SchemaWish::Named(name) => {
                let schema = self.schema(&name)?;
                (name, schema)
            }
        };
        let details = json!({"kind": "json", "schema": name});
        let question = Question::Json(JsonQuestion { name, schema });
        match self.data(caller, namespace, &question, data, details).await? {
            Answer::Json(report) => Ok(report),
            _ => Err(check::nonsense()),
        }
    }

    /// What is found of a table.
    pub async fn validate_csv(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        question: CsvQuestion,
        content: &str,
    ) -> Result<CsvReport, RequestError> {
        check_size(content)?;
        let question = Question::Csv(question);
        match self
            .data(caller, namespace, &question, content, json!({"kind": "csv"}))
            .await?
        {
            Answer::Csv(report) => Ok(report),
            _ => Err(check::nonsense()),
        }
    }

    async fn data(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        question: &Question,
        text: &str,
        mut details: Value,
    ) -> Result<Answer, RequestError> {
        let found = check::ask(self.house(), namespace, question, text.as_bytes()).await;
        let valid = match &found {
            Ok(Answer::Json(report)) => Some((report.valid, report.errors_total)),
            Ok(Answer::Csv(report)) => Some((report.valid, report.errors_total)),
            _ => None,
        };
        if let Some((valid, errors)) = valid {
            details["valid"] = json!(valid);
            details["errors"] = json!(errors);
        }
        self.note_check(
            caller,
            Action::DataValidated,
            namespace,
            text.as_bytes(),
            details,
            found.as_ref().err(),
        )
        .await?;
        found
    }

    /// No record, no answer.
    async fn note_check(
        &self,
        caller: &Caller,
        action: Action,
        namespace: &Namespace,
        text: &[u8],
        mut details: Value,
        error: Option<&RequestError>,
    ) -> Result<(), RequestError> {
        let digest = Sha256::digest(text);
        details["sha256"] = json!(
            digest
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        );
        details["bytes"] = json!(text.len());
        if let Some(error) = error {
            details["code"] = json!(error.code.as_str());
        }
        let outcome = match error {
            None => Outcome::Ok,
            Some(_) => Outcome::Failed,
        };
        self.note(caller, action, outcome, namespace, details).await
    }

    /// The registered JSON Schemas, by name: the operator's before the built-in ones.
    pub fn schemas(&self) -> Vec<(String, Value)> {
        let own = &self.house().policy().check.schemas;
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

    fn schema(&self, name: &str) -> Result<Value, RequestError> {
        let all = self.schemas();
        let names: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
        let found = all.into_iter().find(|(known, _)| known == name);
        found.map(|(_, schema)| schema).ok_or_else(|| {
            RequestError::new(
                ErrorCode::NotFound,
                format!(
                    "there is no schema `{}`.",
                    name.chars().take(64).collect::<String>()
                ),
                format!("There are: {}. Or send a schema in its place.", names.join(", ")),
            )
        })
    }
}

fn check_size(text: &str) -> Result<(), RequestError> {
    if text.len() > DATA_BYTES_MAX {
        return Err(RequestError::invalid(
            "the data are larger than 16 MiB.",
            "Send a part, or have a program look at the file.",
        ));
    }
    Ok(())
}

/// Every rule by which code is read.
pub fn check_rules() -> impl Iterator<Item = &'static Rule> {
    ringfence_check::rules()
}
