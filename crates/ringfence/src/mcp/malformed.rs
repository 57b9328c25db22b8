//! Messages that the protocol library cannot parse. It takes requests with malformed parameters for methods that it
//! does not know; the error here says what is wrong with one. No value is repeated: it may be a secret.

use rmcp::{
    ErrorData,
    model::{CustomRequest, ErrorCode, RequestId},
};
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::Value;

const METHOD_CHARS_MAX: usize = 64;

/// The members of a message that tell what it is. Skipped values need not be valid: half of a surrogate pair, or a
/// number out of range.
#[derive(Deserialize)]
struct Envelope {
    /// `Some(None)`: null, which is no id.
    #[serde(default, deserialize_with = "present")]
    id: Option<Option<RequestId>>,
    method: Option<IgnoredAny>,
    result: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

fn present<'de, D: Deserializer<'de>>(given: D) -> Result<Option<Option<RequestId>>, D::Error> {
    Option::deserialize(given).map(Some)
}

/// The parameters of a message that is JSON and not a request; those of any method are an object.
#[derive(Deserialize)]
struct Parameters {
    jsonrpc: String,
    params: Value,
}

impl Parameters {
    fn are_wrong(&self) -> bool {
        let meta = self.params.get("_meta");
        self.jsonrpc == "2.0" && !(self.params.is_object() && meta.is_none_or(Value::is_object))
    }
}

/// Returns the error for a text that could not be read as a message, and the id of its request if that can be read.
/// Errors in notifications and responses get no answer.
pub(crate) fn unreadable(text: &[u8], error: &serde_json::Error) -> Option<(ErrorData, Option<RequestId>)> {
    let id = match serde_json::from_slice::<Envelope>(text) {
        Ok(Envelope {
            id: None,
            method: Some(_),
            ..
        }) => return None,
        Ok(Envelope {
            method: None,
            result,
            error,
            ..
        }) if result.is_some() || error.is_some() => return None,
        Ok(envelope) => envelope.id.flatten(),
        Err(_) => None,
    };
    let parameters = || serde_json::from_slice::<Parameters>(text);
    let error = match error.is_data() {
        true if id.is_some() && parameters().is_ok_and(|given| given.are_wrong()) => {
            ErrorData::invalid_params("`params` is not an object, or its `_meta` is not one", None)
        }
        true => ErrorData::invalid_request(format!("not a request: {error}"), None),
        false => ErrorData::parse_error(format!("not readable as JSON: {error}"), None),
    };
    Some((error, id))
}

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
