//! The fixtures as `fixtures.json` has them. `@WORD` is what stands under `words`, `{name}` an argument of the call or
//! a value that the client's user has given, and `{}` all answers.

use rmcp::{
    ErrorData,
    model::{CallToolResult, ContentBlock, InputRequest, InputRequests, Tool},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const TEXT: &str = include_str!("fixtures.json");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixtures {
    pub tools: BTreeMap<String, Fixture>,
    pub prompts: BTreeMap<String, Fixture>,
    pub resources: BTreeMap<String, Map<String, Value>>,
    pub template: Template,
    #[serde(rename = "words")]
    _words: Value,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixture {
    pub about: String,
    /// Members of its input schema.
    #[serde(default)]
    input: Map<String, Value>,
    #[serde(default)]
    content: Vec<Value>,
    #[serde(default)]
    pub arguments: Vec<String>,
    #[serde(default)]
    say: String,
    #[serde(default)]
    is_error: bool,
    /// Its end is an error of the protocol.
    #[serde(default)]
    breaks: bool,
    #[serde(default)]
    pub logs: Vec<String>,
    #[serde(default)]
    pub logs_if_asked: bool,
    #[serde(default)]
    pub progress: Vec<f64>,
    #[serde(default)]
    pub wait_ms: u64,
    pub triggers: Option<String>,
    /// A capability of the client.
    pub requires: Option<String>,
    /// A request to a client of the handshake revisions.
    pub asks: Option<Value>,
    /// What a client of revision 2026-07-28 brings before the answer.
    #[serde(default)]
    pub rounds: Vec<Questions>,
    #[serde(default)]
    pub seals: bool,
    #[serde(default)]
    pub only_declared: bool,
    /// `allowed` or `required`.
    pub task: Option<String>,
    #[serde(default)]
    pub task_asks: Questions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    before: String,
    after: String,
}

/// Questions by their keys.
#[derive(Clone, Default, Deserialize)]
pub struct Questions(BTreeMap<String, Value>);

impl Fixtures {
    pub fn read() -> Result<Self, String> {
        let mut all: Value = serde_json::from_str(TEXT).map_err(|error| error.to_string())?;
        let words = all["words"].clone();
        expand(&mut all, &words);
        serde_json::from_value(all).map_err(|error| format!("fixtures.json: {error}"))
    }

    pub fn resource(&self, uri: &str) -> Option<Value> {
        let mut found = match self.resources.get(uri) {
            Some(found) => Value::Object(found.clone()),
            None => {
                let id = uri
                    .strip_prefix(&self.template.before)?
                    .strip_suffix(&self.template.after)?;
                let text = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
                json!({"mimeType": "application/json", "text": text.to_string()})
            }
        };
        found["uri"] = json!(uri);
        Some(found)
    }
}

fn expand(value: &mut Value, words: &Value) {
    match value {
        Value::String(text) => {
            if let Some(meant) = text.strip_prefix('@').and_then(|word| words.get(word)) {
                *value = meant.clone();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| expand(item, words)),
        Value::Object(members) => members.values_mut().for_each(|member| expand(member, words)),
        _ => {}
    }
}

impl Template {
    pub fn address(&self, id: &str) -> String {
        format!("{}{id}{}", self.before, self.after)
    }
}

impl Questions {
    pub fn is_answered(&self, answers: &Map<String, Value>) -> bool {
        self.0.keys().all(|key| answers.contains_key(key))
    }

    /// Those with a method that is wanted.
    pub fn requests(&self, is_wanted: impl Fn(&str) -> bool) -> Result<InputRequests, serde_json::Error> {
        let method = |request: &Value| request["method"].as_str().unwrap_or_default().to_owned();
        let wanted = self.0.iter().filter(|(_, request)| is_wanted(&method(request)));
        let read = |(key, request): (&String, &Value)| {
            Ok((
                key.clone(),
                serde_json::from_value::<InputRequest>(request.clone())?,
            ))
        };
        wanted.map(read).collect()
    }
}

impl Fixture {
    pub fn tool(&self, name: &str) -> Tool {
        let mut schema = self.input.clone();
        schema.insert("type".to_owned(), json!("object"));
        schema.entry("properties").or_insert_with(|| json!({}));
        Tool::new(name.to_owned(), self.about.clone(), schema)
    }

    pub fn contents(&self, words: &Map<String, Value>) -> Result<Vec<ContentBlock>, serde_json::Error> {
        let contents = self.content.iter().map(|content| filled(content, words));
        contents.map(serde_json::from_value).collect()
    }

    pub fn result(&self, words: &Map<String, Value>) -> Result<CallToolResult, ErrorData> {
        let say = text(&self.say, words);
        if self.breaks {
            return Err(ErrorData::internal_error(say, None));
        }
        let mut contents = self
            .contents(words)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        if !say.is_empty() {
            contents.push(ContentBlock::text(say));
        }
        Ok(match self.is_error {
            true => CallToolResult::error(contents),
            false => CallToolResult::success(contents),
        })
    }
}

/// With its words put in.
pub fn filled(value: &Value, words: &Map<String, Value>) -> Value {
    match value {
        Value::String(pattern) => json!(text(pattern, words)),
        Value::Array(items) => items.iter().map(|item| filled(item, words)).collect(),
        Value::Object(members) => {
            let filled = members
                .iter()
                .map(|(name, member)| (name.clone(), filled(member, words)));
            Value::Object(filled.collect())
        }
        other => other.clone(),
    }
}

fn text(pattern: &str, words: &Map<String, Value>) -> String {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut text = pattern.replace("{}", &json!(words).to_string());
    for (name, value) in words {
        text = text.replace(&format!("{{{name}}}"), &plain(value));
        for (name, value) in value["content"].as_object().into_iter().flatten() {
            text = text.replace(&format!("{{{name}}}"), &plain(value));
        }
    }
    text
}
