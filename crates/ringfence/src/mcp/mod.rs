//! The MCP server, and its transport on standard input and output. `rmcp` supports both eras of the protocol on one
//! stream: the handshake revisions up to 2025-11-25, and the stateless revision 2026-07-28, whose requests carry
//! everything themselves. Only this module and `http` depend on `rmcp`.
//!
//! Standard output carries the protocol and nothing else. If the client is gone (end of file on our input, or a closed
//! output), its runs are cancelled, unless the operator has them detached.

mod bounded;
mod call;
mod call_order;
mod changes;
mod elicitation;
mod execute_code;
mod executions;
mod files;
mod hints;
mod host;
mod install_package;
mod lines;
mod listings;
mod logging;
pub(crate) mod malformed;
mod observe;
mod progress;
mod prompts;
mod request_egress;
pub(crate) mod request_ids;
mod request_state;
mod required_toolsets;
mod resources;
mod result_text;
pub(crate) mod service;
mod sessions;
pub(crate) mod startup;
mod tasks;
mod tools;
mod traceback;
mod validate;
mod web;

pub(crate) use required_toolsets::toolsets_of;
pub(crate) use validate::delimiter;

use crate::{
    api,
    lock::lock,
    render::Rendered,
    settings::{Calls, Config, Namespaces, OnHangUp, Toolset},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use call::Call;
use lines::Lines;
use ringfence_engine::{CallEnd, Caller, Engine, EngineSettings, Picture, PolicySettings};
use ringfence_types::{ErrorCode, LimitsRequest, RequestError};
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock,
        CreateTaskResult, CustomRequest, CustomResult, GetPromptRequestParams, GetPromptResponse,
        GetTaskParams, GetTaskResult, Implementation, InitializeRequestParams, InitializeResult,
        ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
        PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
        ServerCapabilities, ServerConfig, SubscriptionFilter, TASKS_EXTENSION_ID, UpdateTaskParams,
    },
    service::{NotificationContext, RequestContext, ServerInitializeError, SubscriptionContext},
    transport::io::stdio_pipes,
};
use serde_json::{Value, json};
use service::{Server, ServerFactory};
use startup::{Startup, stop_signal};
use std::time::Instant;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) toolsets: Vec<Toolset>,
    pub(crate) namespaces: Namespaces,
    pub(crate) text_max: usize,
    pub(crate) calls: Calls,
    /// Caps of this client's programs, where they are below the server's.
    pub(crate) limits: LimitsRequest,
    pub(crate) policy: watch::Receiver<PolicySettings>,
}

impl Offer {
    pub(crate) fn of(config: &Config, policy: watch::Receiver<PolicySettings>) -> Self {
        Self {
            toolsets: config.toolsets.clone(),
            namespaces: config.namespaces.clone(),
            text_max: config.text_max,
            calls: config.calls,
            limits: LimitsRequest::default(),
            policy,
        }
    }

    /// Returns true if the caller may see other namespaces: it may name any of them.
    fn shows_others(&self) -> bool {
        self.namespaces == Namespaces::CallerChooses
    }

    /// Figures of the whole server reveal namespaces that some callers may not know of.
    fn shows_server(&self) -> bool {
        !matches!(self.namespaces, Namespaces::Of(_))
    }

    fn has(&self, toolset: Toolset) -> bool {
        self.toolsets.contains(&toolset)
    }
}

const INSTRUCTIONS: &str = "Runs untrusted code, each time in a fresh sandbox that the Linux kernel \
    enforces: no network but to hosts that the operator has named, none of the host's files, bounded memory, time and processes. Call execute_code with complete \
    programs, or with the session_id of a session to keep variables and files between calls. A program that fails is a result with success = false; a call that is \
    refused is an error with a code and a hint.";

/// Serves one client until it leaves or a signal stops the server. The protocol is served while the engine starts.
/// `on_started` receives the engine before the first request.
pub(crate) async fn serve_stdio(
    settings: EngineSettings,
    offer: Offer,
    on_started: impl FnOnce(&Engine) + Send + 'static,
) -> Result<(), RequestError> {
    let (gone, stop) = (CancellationToken::new(), CancellationToken::new());
    let on_disconnect = offer.calls.on_disconnect;
    let startup = Startup::begin(settings, on_started);
    let mut factory = ServerFactory::new(offer, startup.engine.clone(), None);
    factory.gone = gone.clone();
    let server = factory.server(gone.clone(), None);
    let mut service = tokio::spawn(serve(server, gone.clone(), stop.clone()));
    let served = async {
        let outcome = tokio::select! {
            error = startup.failure() => { stop.cancel(); return Err(error) }
            ended = &mut service => ended.unwrap_or(Ok(())),
            () = gone.cancelled() => Ok(()),
        };
        gone.cancel();
        if on_disconnect == OnHangUp::Detach {
            startup.wait_for_programs(&mut service).await;
        }
        outcome
    };
    let outcome = tokio::select! {
        outcome = served => outcome,
        () = stop_signal() => { stop.cancel(); Ok(()) }
    };
    gone.cancel();
    let abort = service.abort_handle();
    let service_end = async {
        if !service.is_finished() {
            drop(service.await);
        }
    };
    startup.finish(service_end).await;
    abort.abort();
    outcome
}

/// Serves the protocol from the first message to the last. An error never repeats what a client sent: it may hold code.
async fn serve(server: Server, gone: CancellationToken, stop: CancellationToken) -> Result<(), RequestError> {
    let refused = |message: &str| {
        Err(RequestError::invalid(
            message,
            "Speak MCP: `initialize` first, or requests of revision 2026-07-28.",
        ))
    };
    let (reader, writer) = stdio_pipes();
    match server.serve_with_ct(Lines::new(reader, writer, gone), stop).await {
        Ok(service) => service
            .waiting()
            .await
            .map(drop)
            .or_else(|_| refused("the protocol's task died.")),
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
        Err(ServerInitializeError::TransportError { .. }) => Ok(()),
        Err(ServerInitializeError::ExpectedInitializeRequest(_)) => {
            refused("the first message is not a request.")
        }
        Err(_) => refused("the handshake failed."),
    }
}

/// A tool's answer: the same facts for a person and for a program.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) structured: Value,
    pub(crate) links: Vec<ContentBlock>,
    pub(crate) pictures: Vec<Picture>,
    /// Sent instead to a client that supports tasks.
    pub(crate) task: Option<Box<CreateTaskResult>>,
}

type Answered = Result<Answer, RequestError>;

impl From<Rendered> for Answer {
    fn from(Rendered { text, mut facts }: Rendered) -> Self {
        if facts.get("success").is_none() {
            facts["success"] = json!(true);
        }
        Self::plain(text, facts)
    }
}

impl Answer {
    pub(crate) fn plain(text: String, structured: Value) -> Self {
        Self {
            text,
            structured,
            ..Self::default()
        }
    }

    fn into_result(mut self) -> CallToolResult {
        api::without_nulls(&mut self.structured);
        let mut content = vec![ContentBlock::text(self.text)];
        content.extend(self.links);
        for picture in self.pictures {
            content.push(ContentBlock::image(STANDARD.encode(&picture.bytes), picture.mime));
        }
        let mut result = CallToolResult::success(content);
        result.structured_content = Some(self.structured);
        result
    }
}

impl Server {
    async fn answer(
        &self,
        mut request: CallToolRequestParams,
        row: &tools::ToolEntry,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, Refused> {
        let arguments = request.arguments.take().unwrap_or_default();
        let engine = self.engine().await?;
        let call = Call::new(self, &engine, context, &request, row.name);
        let handled = (row.handle)(&call, arguments);
        let handled = match &call.reporter {
            Some(reporter) => reporter.with_heartbeat(handled).await,
            None => handled.await,
        };
        match handled {
            Ok(reply) => Ok(reply),
            Err(Refused { error, below }) => Err(Refused {
                error: hints::of_error(call.refused(error).await, self.offer()),
                below,
            }),
        }
    }

    /// Records a call of an unknown tool, or with invalid parameters, without its name, which is the client's text.
    async fn note_unnamed(
        &self,
        context: &RequestContext<RoleServer>,
        code: ErrorCode,
    ) -> Result<(), ErrorData> {
        let Ok(engine) = self.engine().await else {
            return Ok(());
        };
        let noted = engine.note_refusal(&self.caller(context), "", code).await;
        noted.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }
}

/// Records a refusal that did not reach the engine. If it cannot be recorded, returns that error instead.
async fn record_refusal(engine: &Engine, caller: &Caller, tool: &str, error: RequestError) -> RequestError {
    match engine.note_refusal(caller, tool, error.code).await {
        Ok(()) => error,
        Err(unavailable) => unavailable,
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        #[expect(
            deprecated,
            reason = "clients of the handshake revisions have no other way to receive events"
        )]
        let capabilities = ServerCapabilities::builder()
            .enable_logging()
            .enable_prompts()
            .enable_resources()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_tasks();
        let mut capabilities = capabilities.build();
        // A gateway takes an empty object for a missing capability, and lists nothing.
        if let Some(resources) = &mut capabilities.resources {
            resources.list_changed = Some(false);
        }
        if let Some(prompts) = &mut capabilities.prompts {
            prompts.list_changed = Some(false);
        }
        ServerConfig::new(capabilities)
            .with_server_info(
                Implementation::new("ringfence", env!("CARGO_PKG_VERSION")).with_title("Ringfence"),
            )
            .with_instructions(INSTRUCTIONS)
    }

    /// Leaves out the tasks extension, which the handshake revisions do not have.
    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let mut result = self.negotiate_initialize(&request)?;
        let extensions = &mut result.capabilities.extensions;
        if let Some(extensions) = extensions {
            extensions.remove(TASKS_EXTENSION_ID);
        }
        extensions.take_if(|extensions| extensions.is_empty());
        Ok(result)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let changes = changes::notify(self.offer().policy.clone(), context.peer);
        tokio::spawn(self.gone.clone().run_until_cancelled_owned(changes));
    }

    #[expect(
        deprecated,
        reason = "clients of the handshake revisions have no other way to ask for it"
    )]
    async fn set_level(
        &self,
        request: rmcp::model::SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // Events contain what programs print.
        if !self.offer().has(Toolset::Observe) && !self.offer().has(Toolset::Execute) {
            return Err(ErrorData::invalid_request(
                "there are no events for you here",
                None,
            ));
        }
        let events = match self.engine().await {
            Ok(engine) => engine.subscribe(logging::subscription(request.level)),
            Err(error) => return Err(ErrorData::internal_error(error.to_string(), None)),
        };
        let filter = logging::EventFilter::Namespaces(self.offer().namespaces.clone());
        let forward = logging::forward(events, context.peer, request.level, filter);
        let task = tokio::spawn(self.gone.clone().run_until_cancelled_owned(forward));
        if let Some(before) = lock(&self.forwarder).replace(task.abort_handle()) {
            before.abort();
        }
        Ok(())
    }

    /// Returns the filter unchanged: the library keeps the parts that were requested and announced.
    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, listener: SubscriptionContext) -> Result<(), ErrorData> {
        let changes = changes::notify_listener(self.offer().policy.clone(), &listener);
        let until_closing = self.shared.closing.run_until_cancelled(changes);
        self.gone.run_until_cancelled(until_closing).await;
        Ok(())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::list(self.offer())))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = resources::templates(self.offer());
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let read = async {
            let (engine, caller) = (self.engine().await?, self.caller(&context));
            match resources::parse(&request.uri, self.offer()) {
                Ok(wanted) => {
                    let room = self.large_answer(&context).await?;
                    let contents = resources::read(&engine, &caller, self.offer(), wanted).await?;
                    room.keep_for(resources::bytes_of(&contents));
                    Ok(contents)
                }
                Err(error) => Err(record_refusal(&engine, &caller, "resource", error).await),
            }
        };
        match read.await {
            Ok(contents) => Ok(ReadResourceResult::new(vec![contents]).into()),
            Err(error) if error.code == ErrorCode::NotFound => {
                let error = hints::of_error(error, self.offer());
                let facts = serde_json::to_value(&error).ok();
                Err(ErrorData::resource_not_found(error.to_string(), facts))
            }
            Err(error) => Err(wrong_parameters(error, self.offer())),
        }
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(prompts::list(self.offer())))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let got = async {
            let (engine, caller) = (self.engine().await?, self.caller(&context));
            match prompts::get(&engine, &caller, self.offer(), request).await {
                Err(error) => Err(record_refusal(&engine, &caller, "prompt", error).await),
                got => got,
            }
        };
        got.await
            .map(Into::into)
            .map_err(|error| wrong_parameters(error, self.offer()))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.detailed_task(&request.task_id, &context).await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // No task ever waits for input, so there is nothing to update.
        self.engine_of_task(&request.task_id, &context).await.map(drop)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let (engine, namespace) = self.engine_of_task(&request.task_id, &context).await?;
        let caller = self.caller(&context);
        let access = engine.namespace(&caller, &namespace);
        let stopped = access.cancel_execution(&request.task_id);
        stopped.await.map(drop).map_err(|error| tasks::internal(&error))
    }

    /// Answers a request that the library cannot parse as one of its methods.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let error = malformed::error(&request);
        if error.code == rmcp::model::ErrorCode::INVALID_PARAMS {
            self.note_unnamed(&context, ErrorCode::InvalidArgument).await?;
        }
        Err(error)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::list(self.offer())))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let row = match tools::find(&request.name, self.offer()) {
            Ok(row) => row,
            Err(names) => {
                let near = ringfence_types::nearest::suggestion(&request.name, names);
                let name: String = request.name.chars().take(64).collect();
                self.note_unnamed(&context, ErrorCode::NotFound).await?;
                let message = match tools::toolset_of(&request.name) {
                    Some(toolset) => format!(
                        "the tool `{name}` is not offered to you: it is in the toolset `{}`, which the operator decides on.",
                        toolset.as_str()
                    ),
                    None => format!("there is no tool `{name}`.{near}"),
                };
                return Err(ErrorData::invalid_params(message, None));
            }
        };
        let begun = Instant::now();
        let result: CallToolResponse = match self.answer(request, row, &context).await {
            Ok(question @ CallToolResponse::InputRequired(_)) => return Ok(question),
            Ok(answered) => answered,
            Err(Refused { error, below }) => refusal(&error, &below).into(),
        };
        if let Ok(engine) = self.engine().await {
            let end = match &result {
                CallToolResponse::Complete(result) if result.is_error == Some(true) => CallEnd::Refused,
                _ => CallEnd::Answered,
            };
            engine.count_call(row.name, end, begun.elapsed());
        }
        Ok(result)
    }
}

struct Refused {
    error: RequestError,
    below: String,
}

fn wrong_parameters(error: RequestError, offer: &Offer) -> ErrorData {
    let error = hints::of_error(error, offer);
    ErrorData::invalid_params(error.to_string(), serde_json::to_value(&error).ok())
}

/// Key of a refusal's facts for programs, in `_meta`.
const ERROR_META: &str = "io.ringfence/error";

/// Formats a refusal as a result that the model sees. It has no structured content: clients validate that against the
/// tool's output schema, also in an error, and drop a refusal that does not match.
fn refusal(error: &RequestError, below: &str) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(format!("{error}{below}"))]);
    let meta = result.meta.get_or_insert_default();
    meta.insert(ERROR_META.to_owned(), json!(error));
    result
}

#[cfg(test)]
pub(crate) mod tests;
