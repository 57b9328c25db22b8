//! The tools: a row for each operation, with its handler.

use super::{Answer, Offer, Refused, call::Call};
use crate::{
    api::{self, Effect, Object, Operation},
    settings::{Namespaces, Toolset},
};
use ringfence_types::{Limits, RequestError};
use rmcp::model::{CallToolResponse, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};
use std::{
    pin::Pin,
    sync::{Arc, LazyLock},
};

type Replying<'a> = Pin<Box<dyn Future<Output = Result<CallToolResponse, Refused>> + Send + 'a>>;

pub(super) struct ToolEntry {
    pub(super) name: &'static str,
    toolset: Toolset,
    tool: Tool,
    pub(super) handle: for<'a> fn(&'a Call<'a>, Object) -> Replying<'a>,
    #[cfg(test)]
    reference: fn() -> api::Reference,
}

macro_rules! rows {
    ($($request:ident => $handler:ident),* $(,)?) => {
        static ROWS: LazyLock<Vec<ToolEntry>> = LazyLock::new(|| vec![$(ToolEntry {
            name: api::$request::NAME,
            toolset: api::$request::TOOLSET,
            tool: tool::<api::$request>(),
            handle: |call, arguments| Box::pin(async move {
                let (request, namespace) = api::read::<api::$request>(arguments, &call.offer().namespaces)?;
                Ok(call.$handler(request, namespace).await?.into())
            }),
            #[cfg(test)]
            reference: api::reference_of::<api::$request>,
        }),*]);
    };
}

rows! {
    ExecuteCode => execute_code,
    RunSandboxCode => run_sandbox_code,
    GetExecution => get_execution,
    ListExecutions => list_executions,
    CancelExecution => cancel_execution,
    ValidateCode => validate_code,
    InstallPackage => install_package,
    ListRuntimes => list_runtimes,
    GetSandboxInfo => sandbox_info,
    CreateSession => create_session,
    ListSessions => list_sessions,
    InterruptSession => interrupt_session,
    TerminateSession => terminate_session,
    BridgeData => bridge_data,
    PutFile => put_file,
    EditFile => edit_file,
    GetFile => get_file,
    ListFiles => list_files,
    CreateStateSnapshot => create_snapshot,
    RestoreStateSnapshot => restore_snapshot,
    ListStateSnapshots => list_snapshots,
    DeleteStateSnapshot => delete_snapshot,
    DiffWorkspace => diff,
    ValidateJson => validate_json,
    ValidateCsv => validate_csv,
    GetArtifacts => artifacts,
    SetResourceLimits => set_limits,
    SandboxStats => stats,
    GetSandboxMetrics => metrics,
    InspectState => inspect,
    AuditExecution => audit,
    VaultList => vault_list,
    VaultDelete => vault_delete,
    RequestEgress => request_egress,
    HostExec => host_exec,
    RequestHostAccess => request_host_access,
    ListHostAccess => list_host_access,
    HostFileRead => host_file_read,
    HostFileWrite => host_file_write,
    HostFileList => host_file_list,
    HostFileCopy => host_file_copy,
    WebSearch => web_search,
    FetchWebpage => fetch_webpage,
    BrowserFetch => browser_fetch,
}

pub(super) fn find(name: &str, offer: &Offer) -> Result<&'static ToolEntry, Vec<&'static str>> {
    let offered = || ROWS.iter().filter(|row| is_offered(row, offer));
    let found = offered().find(|row| row.name == name);
    found.ok_or_else(|| offered().map(|row| row.name).collect())
}

pub(super) fn missing_in(text: &str, offer: &Offer) -> Option<&'static str> {
    let mut words = text.split(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
    words.find_map(|word| {
        let row = ROWS.iter().find(|row| row.name == word)?;
        (!is_offered(row, offer)).then_some(row.name)
    })
}

#[cfg(test)]
pub(crate) fn reference_of(name: &str) -> api::Reference {
    let row = ROWS.iter().find(|row| row.name == name).unwrap();
    (row.reference)()
}

/// Returns the toolset of a tool, also of one that is not offered.
pub(super) fn toolset_of(name: &str) -> Option<Toolset> {
    ROWS.iter().find(|row| row.name == name).map(|row| row.toolset)
}

/// Figures of the whole server are not offered to a caller with namespaces of its own.
fn is_offered(row: &ToolEntry, offer: &Offer) -> bool {
    let is_of_server = [api::SandboxStats::NAME, api::GetSandboxMetrics::NAME].contains(&row.name);
    offer.has(row.toolset) && (offer.shows_server() || !is_of_server)
}

pub(super) fn list(offer: &Offer) -> Vec<Tool> {
    let of = |toolset: &Toolset| {
        ROWS.iter()
            .filter(move |row| row.toolset == *toolset && is_offered(row, offer))
            .collect::<Vec<_>>()
    };
    let rows = offer.toolsets.iter().flat_map(of);
    rows.map(|row| {
        let mut tool = row.tool.clone();
        fit(Arc::make_mut(&mut tool.input_schema), offer);
        tool
    })
    .collect()
}

fn tool<T: Operation>() -> Tool {
    let (about, input) = api::listed_input::<T>();
    Tool::new(T::NAME, about, input)
        .with_title(T::TITLE)
        .with_annotations(hints(T::EFFECT))
        .with_raw_output_schema(Arc::new(api::output::<T::Response>()))
}

/// For a tool that only reads, the destructive and idempotent hints have no meaning (MCP, `ToolAnnotations`).
fn hints(effect: Effect) -> ToolAnnotations {
    let hints = ToolAnnotations::new()
        .read_only(effect == Effect::Reads)
        .open_world(matches!(effect, Effect::Reaches | Effect::Starts | Effect::Runs));
    let changes_each_time = matches!(
        effect,
        Effect::Adds | Effect::Starts | Effect::Edits | Effect::Runs
    );
    match effect {
        Effect::Reads => hints,
        _ => hints
            .destructive(matches!(effect, Effect::Replaces | Effect::Edits | Effect::Runs))
            .idempotent(!changes_each_time),
    }
}

/// Fills in the operator's choices: the caps, the profiles on offer, and a namespace argument if callers choose one.
fn fit(input: &mut Map<String, Value>, offer: &Offer) {
    let policy = offer.policy.borrow();
    let own = offer.limits.caps();
    let for_client = |limits: &Limits| crate::render::in_words(&limits.least(&own));
    let (caps, defaults) = (for_client(&policy.caps), for_client(&policy.defaults));
    let Some(Value::Object(properties)) = input.get_mut("properties") else {
        return;
    };
    if let Some(timeout) = properties.get_mut("timeout_seconds") {
        timeout["maximum"] = whole(&caps["timeout_seconds"]);
    }
    if let Some(limits) = properties.get_mut("resource_limits") {
        let (ram, processes) = (&defaults["max_ram_mb"], &defaults["max_processes"]);
        limits["description"] = json!(format!("Default: {ram} MiB, {processes} processes."));
    }
    if let Some(profile) = properties.get_mut("profile") {
        let offered = policy.check.offered().map(|profile| profile.as_str());
        profile["enum"] = json!(offered.collect::<Vec<_>>());
    }
    let namespace = match &offer.namespaces {
        Namespaces::CallerChooses => json!({"type": "string"}),
        Namespaces::Of(names) if names.len() > 1 => json!({"type": "string", "enum": names}),
        Namespaces::Of(_) | Namespaces::Fixed => return,
    };
    properties.insert("namespace".to_owned(), namespace);
}

#[expect(clippy::cast_possible_truncation, reason = "limits are far below 2^53")]
fn whole(number: &Value) -> Value {
    match number.as_f64() {
        Some(float) if float.fract() == 0.0 => json!(float as i64),
        _ => number.clone(),
    }
}

impl From<Answer> for CallToolResponse {
    fn from(mut answer: Answer) -> Self {
        match answer.task.take() {
            Some(task) => Self::Task(*task),
            None => Self::Complete(answer.into_result()),
        }
    }
}

impl From<RequestError> for Refused {
    fn from(error: RequestError) -> Self {
        Self {
            error,
            below: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::tests::offer;

    #[test]
    fn tool_list_matches_its_golden_file() {
        let text = serde_json::to_string_pretty(&list(&offer())).unwrap() + "\n";
        crate::golden::compare("tools-list.json", &text);
    }

    /// An offer of the tools of the host, which are not offered by default.
    fn host_offer() -> Offer {
        Offer {
            toolsets: vec![Toolset::Host],
            ..offer()
        }
    }

    #[test]
    fn host_tool_list_matches_its_golden_file_and_is_small() {
        let text = serde_json::to_string_pretty(&list(&host_offer())).unwrap() + "\n";
        crate::golden::compare("tools-list-host.json", &text);
        let (_, read) = sizes(&host_offer());
        assert!(read <= 3_000, "{read} bytes for a model");
    }

    /// Returns the size of the list, and that of the part that a model reads: names, descriptions and inputs.
    fn sizes(offer: &Offer) -> (usize, usize) {
        let tools = list(offer);
        let read = |tool: &Tool| {
            let about = tool.description.as_ref().map_or(0, |about| about.len());
            tool.name.len() + about + json!(tool.input_schema).to_string().len()
        };
        (
            json!({"tools": tools}).to_string().len(),
            tools.iter().map(read).sum(),
        )
    }

    #[test]
    fn tool_lists_are_small() {
        let (all, read) = sizes(&offer());
        assert!(
            all <= 30_000 && read <= 14_000,
            "{all} bytes, {read} of them for a model"
        );
        let execute = Offer {
            toolsets: vec![Toolset::Execute],
            namespaces: Namespaces::Fixed,
            ..offer()
        };
        let (_, read) = sizes(&execute);
        assert!(read <= 4_000, "{read} bytes for a model");
        println!("all tools: {all} bytes, {read} for a model of the toolset execute");
    }

    /// Visits this schema and each one below it.
    fn each<'a>(schema: &'a Value, at: &str, visit: &mut impl FnMut(&'a Value, &str)) {
        visit(schema, at);
        for (name, below) in schema["properties"].as_object().into_iter().flatten() {
            each(below, &format!("{at}.{name}"), visit);
        }
        for below in schema["anyOf"].as_array().into_iter().flatten() {
            each(below, at, visit);
        }
        for word in ["items", "additionalProperties"] {
            if schema[word].is_object() {
                each(&schema[word], &format!("{at}[]"), visit);
            }
        }
    }

    /// Google's converter refuses an enum of anything but strings, the Inspector warns of properties without a type,
    /// pydantic of fields that are its own methods, OpenAI's strict mode requires closed objects, and few follow
    /// references or understand unions.
    #[test]
    fn input_schemas_suit_every_converter() {
        const PYDANTIC_METHODS: [&str; 7] = [
            "validate",
            "copy",
            "json",
            "dict",
            "schema",
            "construct",
            "fields",
        ];
        const KNOWN: [&str; 9] = [
            "type",
            "description",
            "properties",
            "required",
            "items",
            "additionalProperties",
            "enum",
            "maximum",
            "anyOf",
        ];
        for tool in list(&offer()).into_iter().chain(list(&host_offer())) {
            let schema = json!(tool.input_schema);
            assert_eq!(schema["additionalProperties"], json!(false), "{}", tool.name);
            each(&schema, &tool.name, &mut |schema, at| {
                let words = schema.as_object().unwrap();
                let strange = words.keys().find(|word| !KNOWN.contains(&word.as_str()));
                assert_eq!(strange, None, "{at}");
                assert_ne!(
                    schema["type"].is_string(),
                    schema["anyOf"].is_array(),
                    "{at} needs one type"
                );
                // An open object makes OpenAI's converters give up their strict mode, and Google's warn.
                assert!(!schema["additionalProperties"].is_object(), "{at} is a map");
                assert!(
                    schema["type"] != "array" || schema["items"].is_object(),
                    "{at} has no items"
                );
                let values = schema["enum"].as_array().into_iter().flatten();
                assert!(values.into_iter().all(Value::is_string), "{at}");
                for (name, _) in schema["properties"].as_object().into_iter().flatten() {
                    assert!(!PYDANTIC_METHODS.contains(&name.as_str()), "{at}.{name}");
                }
            });
            let output = json!(tool.output_schema);
            let mut count = 0;
            each(&output, &tool.name, &mut |schema, at| {
                count += 1;
                assert_ne!(
                    schema["type"].is_string(),
                    schema["anyOf"].is_array(),
                    "{at} needs one type"
                );
            });
            assert!(count <= 60, "{} has {count} schemas in its output", tool.name);
        }
    }

    #[test]
    fn every_tool_has_a_description_and_annotations() {
        for tool in list(&offer()).into_iter().chain(list(&host_offer())) {
            let about = tool.description.as_deref().unwrap();
            assert!(
                about.len() >= 40 && about.ends_with('.'),
                "{}: {about}",
                tool.name
            );
            let hints = tool.annotations.as_ref().unwrap();
            let reaches = [
                "execute_code",
                "run_sandbox_code",
                "create_session",
                "host_exec",
                "install_package",
                "request_egress",
                "request_host_access",
                "web_search",
                "fetch_webpage",
                "browser_fetch",
            ];
            let reaches = reaches.contains(&tool.name.as_ref());
            assert_eq!(hints.open_world_hint, Some(reaches), "{}", tool.name);
            let destroys = [
                "execute_code",
                "run_sandbox_code",
                "host_exec",
                "host_file_write",
                "host_file_copy",
                "put_file",
                "edit_file",
                "bridge_data",
                "cancel_execution",
                "interrupt_session",
                "terminate_session",
                "restore_state_snapshot",
                "delete_state_snapshot",
                "vault_delete",
            ];
            let destroys = destroys.contains(&tool.name.as_ref());
            assert_eq!(hints.destructive_hint == Some(true), destroys, "{}", tool.name);
        }
    }

    #[test]
    fn fixed_namespace_is_not_an_argument() {
        let fixed = Offer {
            namespaces: Namespaces::Fixed,
            ..offer()
        };
        let has = |tool: &Tool| tool.input_schema["properties"].get("namespace").is_some();
        assert!(list(&offer()).iter().all(has));
        assert!(!list(&fixed).iter().any(has));
    }
}
