//! Requests that the protocol library cannot parse. It takes those with malformed parameters for methods that it does
//! not know; the error here says what is wrong with one. No value is repeated: it may be a secret.

use rmcp::{
    ErrorData,
    model::{CustomRequest, ErrorCode},
};
use serde_json::Value;

const METHOD_CHARS_MAX: usize = 64;

/// For each method, the text parameter that it requires, and a parameter that must be an object.
const FORMS: [(&str, &str, &str); 15] = [
    ("ping", "", ""),
    ("initialize", "protocolVersion", "capabilities"),
    ("server/discover", "", ""),
    ("tools/list", "", ""),
    ("tools/call", "name", "arguments"),
    ("prompts/list", "", ""),
    ("prompts/get", "name", "arguments"),
    ("resources/list", "", ""),
    ("resources/templates/list", "", ""),
    ("resources/read", "uri", ""),
    ("logging/setLevel", "level", ""),
    ("subscriptions/listen", "", "notifications"),
    ("tasks/get", "taskId", ""),
    ("tasks/update", "taskId", ""),
    ("tasks/cancel", "taskId", ""),
];

/// Returns the error for a request: invalid parameters if the method exists, else method not found.
pub(super) fn error(request: &CustomRequest) -> ErrorData {
    let method = request.method.as_str();
    if let Some((_, text, object)) = FORMS.iter().find(|(known, ..)| *known == method) {
        let what = wrong(&request.params, text, object);
        return ErrorData::invalid_params(format!("{method}: {what}."), None);
    }
    let shown: String = method.chars().take(METHOD_CHARS_MAX).collect();
    let message = format!("there is no method `{shown}`.");
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None)
}

fn wrong(params: &Option<Value>, text: &str, object: &str) -> String {
    let given = |name| params.as_ref().and_then(|params| params.get(name));
    match given(text) {
        Some(Value::String(_)) => {}
        None if text.is_empty() => {}
        None => return format!("`params` has no `{text}`"),
        Some(other) => return format!("`{text}` is {}, not a text", kind(other)),
    }
    match given(object).filter(|value| !value.is_object()) {
        Some(other) => format!("`{object}` is {}, not an object", kind(other)),
        None if text == "level" => {
            "`level` is not one of debug, info, notice, warning, error, critical, alert, emergency".to_owned()
        }
        None => "`params` has a field of a wrong form".to_owned(),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
