//! The MCP server on standard input and output. `rmcp` speaks both eras of the protocol on one stream: the handshake up
//! to 2025-11-25, and the stateless revision 2026-07-28, whose requests carry everything themselves. Nothing outside
//! this module knows it.
//!
//! Standard output carries the protocol and nothing else. A client that is gone (end of file on our input, or nobody at
//! the other end of our output) takes its runs with it.

mod arguments;
mod arrivals;
mod asked;
mod changes;
mod check_schemas;
mod egress_schemas;
mod execute_code;
mod files;
mod install_package;
mod lines;
mod listings;
mod logging;
mod observe;
mod package_schemas;
mod pledges;
mod progress;
mod prompts;
mod request_egress;
mod resources;
mod run_sandbox_code;
mod schemas;
mod session_schemas;
mod sessions;
mod snapshots;
mod tools;
mod validate;
mod wires;
mod workspace_schemas;

pub(crate) use execute_code::LIMIT_NAMES;
pub(crate) use validate::delimiter;

use crate::{
    control::{self, Socket},
    settings::{Namespaces, Toolset},
};
use arrivals::InOrder;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use logging::{Before, Level};
use pledges::Pledges;
use request_egress::Reply;
use ringfence_engine::{Caller, Engine, EngineSettings, Hears, Picture, PolicySettings};
use ringfence_types::{ErrorCode, RequestError};
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, GetPromptRequestParams,
        GetPromptResponse, Implementation, ListPromptsResult, ListResourceTemplatesResult,
        ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
        ReadResourceResponse, ReadResourceResult, ServerCapabilities, ServerConfig, SubscriptionFilter,
    },
    service::{NotificationContext, RequestContext, ServerInitializeError, SubscriptionContext},
};
use serde_json::{Value, json};
use std::{
    borrow::Cow,
    future::pending,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// What the tools are told of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) toolsets: Vec<Toolset>,
    pub(crate) namespaces: Namespaces,
    /// What is in force, which may change.
    pub(crate) policy: watch::Receiver<PolicySettings>,
}

impl Offer {
    /// A caller who may name any namespace may as well see who is there.
    fn shows_others(&self) -> bool {
        self.namespaces == Namespaces::CallerChooses
    }

    fn snapshots(&self) -> bool {
        self.toolsets.contains(&Toolset::Snapshots)
    }

    fn checks_data(&self) -> bool {
        self.toolsets.contains(&Toolset::Data)
    }

    fn observes(&self) -> bool {
        self.toolsets.contains(&Toolset::Observe)
    }
}

/// What stands on record for a resource that was asked for and is none.
const RESOURCE: &str = "resource";
/// The same of a prompt.
const PROMPT: &str = "prompt";
/// How long answers that are ready may take to leave after the client has.
const FAREWELL: Duration = Duration::from_millis(700);

const INSTRUCTIONS: &str = "Runs code that nobody has read yet, each time in a fresh sandbox that the Linux kernel \
    enforces: no way out but to hosts that the operator has named, none of the host's files, bounded memory, time and processes. Call execute_code with complete \
    programs, or with the session_id of create_session to keep variables and files between calls. A program that fails is a result with success = false; a call that is \
    refused is an error with a code and a hint.";

/// The engine, as soon as it has started.
type Starting = watch::Receiver<Option<Result<Engine, RequestError>>>;

/// Serves one client until it leaves or we are told to stop. The protocol is spoken while the engine still starts.
/// Whoever else follows the engine is handed it before the first request.
pub(crate) async fn serve_stdio(
    settings: EngineSettings,
    offer: Offer,
    attend: impl FnOnce(&Engine) + Send + 'static,
) -> Result<(), RequestError> {
    let (gone, stop) = (CancellationToken::new(), CancellationToken::new());
    let (started, engine) = watch::channel(None);
    let control = Arc::new(Mutex::new(None));
    let socket = control.clone();
    let starter = tokio::spawn(async move {
        let state_dir = settings.state_dir.clone();
        let outcome = start(settings, attend).await;
        if let Ok(engine) = &outcome {
            let listening = listen(&state_dir, engine).await;
            *lock(&socket) = listening;
        }
        started.send_replace(Some(outcome));
        // the value is read as long as the channel lives
        started.closed().await;
    });
    let pledges = Pledges::new().map_err(|error| {
        let message = format!("there is no randomness: {error}.");
        RequestError::new(ErrorCode::SandboxFault, message, "Run `ringfence doctor`.")
    })?;
    let names = tools::list(&offer).into_iter().map(|tool| tool.name).collect();
    let server = Server {
        names,
        offer,
        engine: engine.clone(),
        gone: gone.clone(),
        level: Level::default(),
        pledges,
    };
    let mut service = tokio::spawn(speak(server, gone.clone(), stop.clone()));
    let outcome = tokio::select! {
        error = start_failure(engine.clone()) => { stop.cancel(); Err(error) }
        spoken = &mut service => spoken.unwrap_or(Ok(())),
        () = gone.cancelled() => Ok(()),
        () = told_to_stop() => { stop.cancel(); Ok(()) }
    };
    gone.cancel();
    // Nothing new is begun, and the end of the server is the last on record.
    drop(lock(&control).take());
    farewell(&engine, service).await;
    starter.abort();
    outcome
}

/// The engine, with the proof that it can make a sandbox of the tier.
async fn start(settings: EngineSettings, attend: impl FnOnce(&Engine)) -> Result<Engine, RequestError> {
    let engine = Engine::open(settings)?;
    attend(&engine);
    engine.prove().await?;
    engine.warm_up();
    Ok(engine)
}

/// The operator's way to this server. One that cannot be reached serves all the same, and the log says so.
async fn listen(state_dir: &Path, engine: &Engine) -> Option<Socket> {
    let opened = control::open(state_dir, engine.clone()).await;
    let told = |error| tracing::error!(%error, "NO CONTROL SOCKET: the commands cannot reach this server");
    opened.map_err(told).ok()
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last answers leave while the runs of a client that is gone are killed.
async fn farewell(engine: &Starting, service: JoinHandle<Result<(), RequestError>>) {
    let engine = match &*engine.borrow() {
        Some(Ok(engine)) => Some(engine.clone()),
        _ => None,
    };
    let left = engine.clone();
    let stop = async {
        if let Some(engine) = engine {
            engine.shutdown().await;
        }
    };
    let abort = service.abort_handle();
    let both = async {
        tokio::join!(stop, async {
            if !service.is_finished() {
                drop(service.await);
            }
        })
    };
    if tokio::time::timeout(FAREWELL, both).await.is_err() {
        tracing::warn!("the last answers could not be delivered in time");
        abort.abort();
        // Which puts the end of the server on record, without waiting for its runs.
        if let Some(engine) = left {
            engine.leave();
        }
    }
}

async fn start_failure(mut engine: Starting) -> RequestError {
    if engine.wait_for(Option::is_some).await.is_ok()
        && let Some(Err(error)) = &*engine.borrow()
    {
        return error.clone();
    }
    pending().await
}

async fn told_to_stop() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("cannot listen for signals");
        return pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// From the first message to the last. What a client sent is never repeated in an error: it may hold code.
async fn speak(server: Server, gone: CancellationToken, stop: CancellationToken) -> Result<(), RequestError> {
    let refused = |message: &str| {
        Err(RequestError::invalid(
            message,
            "Speak MCP: `initialize` first, or requests of revision 2026-07-28.",
        ))
    };
    match server.serve_with_ct(InOrder::new(wires::stdio(gone)), stop).await {
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

/// What answers requests.
struct Server {
    offer: Offer,
    /// Of the tools on offer.
    names: Vec<Cow<'static, str>>,
    engine: Starting,
    gone: CancellationToken,
    /// Of the log messages that the client wants.
    level: Level,
    /// Questions whose answers the client brings.
    pledges: Pledges,
}

/// A tool's answer: the same facts for a person and for a program.
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) structured: Value,
    /// What is too large to stand here.
    pub(crate) links: Vec<ContentBlock>,
    /// For whoever can see.
    pub(crate) pictures: Vec<Picture>,
}

impl Answer {
    /// Words and facts.
    pub(crate) fn plain(text: String, structured: Value) -> Self {
        Self {
            text,
            structured,
            links: Vec::new(),
            pictures: Vec::new(),
        }
    }

    /// The text, then the pictures.
    fn into_result(self) -> CallToolResult {
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
    /// The engine, once it has started.
    async fn engine(&self) -> Result<Engine, RequestError> {
        let stopping =
            || RequestError::new(ErrorCode::Cancelled, "the server is stopping.", "Start it again.");
        let mut engine = self.engine.clone();
        let started = tokio::select! {
            started = engine.wait_for(Option::is_some) => started.map_err(|_| stopping())?.clone(),
            () = self.gone.cancelled() => None,
        };
        started.unwrap_or_else(|| Err(stopping()))
    }

    /// Until nobody waits for this answer any more.
    async fn hung_up(&self, context: &RequestContext<RoleServer>) {
        tokio::select! {
            () = context.ct.cancelled() => {}
            () = self.gone.cancelled() => {}
        }
    }

    async fn answer(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Answer, Refused> {
        let arguments = request.arguments.unwrap_or_default();
        let caller = &caller(context);
        let engine = &self.engine().await?;
        let offer = &self.offer;
        let tool = tools::name(&request.name).unwrap_or_default();
        let language_of = |namespace: &_, id: &_| engine.language_of(namespace, id);
        let parsed = match tool {
            tools::EXECUTE_CODE => Some(execute_code::parse(arguments.clone(), offer, language_of)),
            tools::RUN_SANDBOX_CODE => Some(run_sandbox_code::parse(arguments.clone(), offer)),
            _ => None,
        };
        if let Some(parsed) = parsed {
            let code = arguments.get("code").and_then(Value::as_str).unwrap_or_default();
            return match parsed {
                Ok(request) => {
                    let language = request.language;
                    let called = execute_code::call(engine, caller, request, code, context, &self.gone).await;
                    called.map_err(|error| Refused {
                        below: validate::below(&error, language, code),
                        error,
                    })
                }
                Err(error) => Err(on_record(engine, caller, tool, error).await.into()),
            };
        }
        if tool == tools::INSTALL_PACKAGE {
            let answered = match install_package::parse(arguments, offer, caller) {
                Ok(wish) => install_package::call(engine, wish, tool, context, &self.gone).await,
                Err(error) => Err(on_record(engine, caller, tool, error).await),
            };
            return answered.map_err(Refused::from);
        }
        let call = observe::Call::new(engine, caller, offer, tool);
        let answered = tokio::select! {
            answered = self.look(&call, arguments) => answered,
            // Nobody is left who could use it.
            () = self.hung_up(context), if tool == tools::CREATE_SESSION => Err(RequestError::new(
                ErrorCode::Cancelled,
                "the session was cancelled while it was made.",
                "Ask again when it is wanted.",
            )),
        };
        match answered {
            Err(error) if !call.has_asked() => Err(on_record(engine, caller, tool, error).await.into()),
            answered => answered.map_err(Refused::from),
        }
    }

    async fn request_egress(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Reply, Refused> {
        let (engine, caller) = (self.engine().await?, caller(context));
        let called = request_egress::call(self, &engine, &caller, request, context).await;
        called.map_err(Refused::from)
    }

    /// Every tool but those that run programs.
    async fn look(
        &self,
        call: &observe::Call<'_>,
        arguments: serde_json::Map<String, Value>,
    ) -> Result<Answer, RequestError> {
        match call.tool {
            tools::SANDBOX_STATS => call.stats(arguments).await,
            tools::GET_SANDBOX_METRICS => call.metrics(arguments).await,
            tools::INSPECT_STATE => call.inspect(arguments).await,
            tools::SET_RESOURCE_LIMITS => call.set_limits(arguments).await,
            tools::GET_ARTIFACTS => call.artifacts(arguments).await,
            tools::AUDIT_EXECUTION => call.audit(arguments).await,
            tools::CREATE_SESSION => call.create_session(arguments).await,
            tools::LIST_SESSIONS => call.list_sessions(arguments).await,
            tools::TERMINATE_SESSION => call.terminate_session(arguments).await,
            tools::INTERRUPT_SESSION => call.interrupt_session(arguments).await,
            tools::BRIDGE_DATA => call.bridge_data(arguments).await,
            tools::VAULT_LIST => call.vault_list(arguments).await,
            tools::VAULT_DELETE => call.vault_delete(arguments).await,
            tools::PUT_FILE => call.put_file(arguments).await,
            tools::GET_FILE => call.get_file(arguments).await,
            tools::LIST_FILES => call.list_files(arguments).await,
            tools::CREATE_STATE_SNAPSHOT => call.create_snapshot(arguments).await,
            tools::RESTORE_STATE_SNAPSHOT => call.restore_snapshot(arguments).await,
            tools::LIST_STATE_SNAPSHOTS => call.list_snapshots(arguments).await,
            tools::DIFF_WORKSPACE => call.diff(arguments).await,
            tools::DELETE_STATE_SNAPSHOT => call.delete_snapshot(arguments).await,
            tools::VALIDATE_CODE => call.validate_code(arguments).await,
            tools::VALIDATE_JSON => call.validate_json(arguments).await,
            tools::VALIDATE_CSV => call.validate_csv(arguments).await,
            tools::LIST_RUNTIMES => {
                call.look(arguments).await?;
                Ok(listings::runtimes(&call.engine().runtimes().await))
            }
            _ => {
                call.look(arguments).await?;
                let check = self.offer.policy.borrow().check.clone();
                Ok(listings::sandbox(&call.engine().info()?, &check))
            }
        }
    }
}

/// Notes a call that the engine was never asked for. Who cannot be told so on record is told of that instead.
async fn on_record(engine: &Engine, caller: &Caller, tool: &str, error: RequestError) -> RequestError {
    match engine.note_refusal(caller, tool, error.code).await {
        Ok(()) => error,
        Err(unavailable) => unavailable,
    }
}

/// Who calls, as the client says it.
fn caller(context: &RequestContext<RoleServer>) -> Caller {
    let client = context.meta.client_info();
    let client = client.or_else(|| context.peer.peer_info().map(|info| info.client_info.clone()));
    match client {
        Some(client) => Caller::new(&format!("mcp {} {}", client.name, client.version)),
        None => Caller::new("mcp"),
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        #[expect(
            deprecated,
            reason = "clients of the handshake revisions have no other way to hear of events"
        )]
        let capabilities = ServerCapabilities::builder()
            .enable_logging()
            .enable_prompts()
            .enable_resources()
            .enable_tools()
            .enable_tool_list_changed();
        ServerConfig::new(capabilities.build())
            .with_server_info(
                Implementation::new("ringfence", env!("CARGO_PKG_VERSION")).with_title("Ringfence"),
            )
            .with_instructions(INSTRUCTIONS)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let changes = changes::tell(self.offer.policy.clone(), context.peer);
        let gone = self.gone.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = changes => {}
                () = gone.cancelled() => {}
            }
        });
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
        if self.level.set(request.level) == Before::Unset {
            let events = match self.engine().await {
                Ok(engine) => engine.subscribe(Hears::AllButOutput),
                Err(error) => return Err(ErrorData::internal_error(error.to_string(), None)),
            };
            let forward = logging::forward(events, context.peer, self.level.clone(), None);
            let gone = self.gone.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = forward => {}
                    () = gone.cancelled() => {}
                }
            });
        }
        Ok(())
    }

    /// The library keeps of it what was asked for and what we announce.
    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, listener: SubscriptionContext) -> Result<(), ErrorData> {
        tokio::select! {
            () = changes::tell_listener(self.offer.policy.clone(), &listener) => {}
            () = self.gone.cancelled() => {}
        }
        Ok(())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::list(&self.offer)))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = resources::templates(&self.offer);
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let read = async {
            let (engine, caller) = (self.engine().await?, caller(&context));
            match resources::parse(&request.uri, &self.offer) {
                Ok(wanted) => resources::read(&engine, &caller, &self.offer, wanted).await,
                Err(error) => Err(on_record(&engine, &caller, RESOURCE, error).await),
            }
        };
        match read.await {
            Ok(contents) => Ok(ReadResourceResult::new(vec![contents]).into()),
            Err(error) if error.code == ErrorCode::NotFound => {
                let facts = serde_json::to_value(&error).ok();
                Err(ErrorData::resource_not_found(error.to_string(), facts))
            }
            Err(error) => Err(wrong_parameters(&error)),
        }
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(prompts::list(&self.offer)))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let got = async {
            let (engine, caller) = (self.engine().await?, caller(&context));
            match prompts::get(&engine, &caller, &self.offer, request).await {
                Err(error) => Err(on_record(&engine, &caller, PROMPT, error).await),
                got => got,
            }
        };
        got.await
            .map(Into::into)
            .map_err(|error| wrong_parameters(&error))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::list(&self.offer)))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !self.names.contains(&request.name) {
            let names = self.names.iter().map(AsRef::as_ref);
            let near = ringfence_types::nearest::suggestion(&request.name, names);
            let name: String = request.name.chars().take(64).collect();
            if let Ok(engine) = self.engine().await {
                // The name is a stranger's; the record has none of it.
                let caller = caller(&context);
                if let Err(error) = engine.note_refusal(&caller, "", ErrorCode::NotFound).await {
                    return Err(ErrorData::internal_error(error.to_string(), None));
                }
            }
            return Err(ErrorData::invalid_params(
                format!("there is no tool `{name}`.{near}"),
                None,
            ));
        }
        let replied = if request.name == tools::REQUEST_EGRESS {
            self.request_egress(request, &context).await
        } else {
            self.answer(request, &context).await.map(Reply::Answer)
        };
        let result = match replied {
            Ok(Reply::Answer(answer)) => answer.into_result(),
            Ok(Reply::Ask(asked)) => return Ok((*asked).into()),
            Err(Refused { error, below }) => refusal(&error, &below),
        };
        Ok(result.into())
    }
}

/// A refusal, and what stands below its words.
struct Refused {
    error: RequestError,
    below: String,
}

impl From<RequestError> for Refused {
    fn from(error: RequestError) -> Self {
        Self {
            error,
            below: String::new(),
        }
    }
}

/// A refusal of what is no tool.
fn wrong_parameters(error: &RequestError) -> ErrorData {
    ErrorData::invalid_params(error.to_string(), serde_json::to_value(error).ok())
}

/// A refusal of ours, as a result that the model sees.
fn refusal(error: &RequestError, below: &str) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(format!("{error}{below}"))]);
    result.structured_content = Some(serde_json::to_value(error).unwrap_or_else(
        |_| json!({"code": error.code.as_str(), "message": error.message, "hint": error.hint}),
    ));
    result
}

/// The prompts of a server with the default configuration.
#[cfg(test)]
pub(crate) fn prompts_of_the_reference() -> Vec<rmcp::model::Prompt> {
    prompts::list(&execute_code::tests::offer())
}

/// The tools of a server with the default configuration.
#[cfg(test)]
pub(crate) fn tools_of_the_reference() -> Vec<rmcp::model::Tool> {
    tools::list(&execute_code::tests::offer())
}
