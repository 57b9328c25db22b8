//! The toolsets that a message needs, known before the protocol is served: a scope of OAuth is valid for some of them.

use super::{resources, tools};
use crate::settings::Toolset;
use serde::Deserialize;

#[derive(Deserialize)]
struct Message {
    method: Option<String>,
    params: Option<Params>,
}

#[derive(Deserialize)]
struct Params {
    name: Option<String>,
    uri: Option<String>,
}

/// Returns the toolsets of which the message needs one, or none. `None`: not a single message, or a field twice.
pub(crate) fn toolsets_of(message: &[u8]) -> Option<Vec<Toolset>> {
    let Message { method, params } = serde_json::from_slice(message).ok()?;
    let (name, uri) = params.map_or((None, None), |params| (params.name, params.uri));
    Some(match method.as_deref() {
        Some("tools/call") => tools::toolset_of(name.as_deref()?).into_iter().collect(),
        Some("resources/read") => resources::toolsets_of(uri.as_deref()?),
        Some("logging/setLevel") => vec![Toolset::Execute, Toolset::Observe],
        // Prompts show schemas and limits, and run checks.
        Some("prompts/get") => vec![Toolset::Execute, Toolset::Data],
        Some(method) if method.starts_with("tasks/") => vec![Toolset::Execute],
        _ => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_needs_the_toolset_of_its_tool_or_resource() {
        let check = |text: &str, expect: Option<&[Toolset]>| {
            assert_eq!(toolsets_of(text.as_bytes()).as_deref(), expect, "{text}");
        };
        check(r#"{"method":"ping"}"#, Some(&[]));
        check(r#"{"id":1,"result":{}}"#, Some(&[]));
        check(r#"{"method":"tools/list","params":{}}"#, Some(&[]));
        check(
            r#"{"method":"tools/call","params":{"name":"vault_list","arguments":{"name":1}}}"#,
            Some(&[Toolset::Vault]),
        );
        check(
            r#"{"method":"tools/c\u0061ll","params":{"name":"vault_lis\u0074"}}"#,
            Some(&[Toolset::Vault]),
        );
        check(r#"{"method":"tools/call","params":{"name":"none"}}"#, Some(&[]));
        check(
            r#"{"method":"prompts/get","params":{"name":"diagnose_validation_error"}}"#,
            Some(&[Toolset::Execute, Toolset::Data]),
        );
        check(
            r#"{"method":"tasks/get","params":{"taskId":"x"}}"#,
            Some(&[Toolset::Execute]),
        );
        for (uri, expect) in [
            ("sandbox://audit", vec![Toolset::Observe]),
            ("sandbox://schemas", vec![Toolset::Data]),
            ("sandbox://snapshots/1?namespace=a", vec![Toolset::Snapshots]),
            (
                "sandbox://artifacts/1/a",
                vec![Toolset::Observe, Toolset::Execute],
            ),
        ] {
            let text = format!(r#"{{"method":"resources/read","params":{{"uri":"{uri}"}}}}"#);
            check(&text, Some(&expect));
        }
        for wrong in [
            "",
            "[]",
            r#"[{"method":"tools/call","params":{"name":"vault_list"}}]"#,
            r#"{"method":"ping","method":"tools/call","params":{"name":"vault_list"}}"#,
            r#"{"method":"tools/call","params":{"name":"ping","name":"vault_list"}}"#,
            r#"{"method":"tools/call","params":{}}"#,
            r#"{"method":"tools/call","params":{"name":1}}"#,
            r#"{"method":"tools/call"}"#,
        ] {
            check(wrong, None);
        }
    }
}
