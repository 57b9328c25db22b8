//! What the official conformance suite asks of a server's tools, prompts and resources, on the HTTP transport of
//! Ringfence: `cargo run --example conformance -- 127.0.0.1:8000 STATE_DIR`. Nothing here runs programs. What each
//! fixture does stands in `fixtures.json`; `cargo xtask conformance` runs the suite.
#![expect(
    deprecated,
    reason = "the handshake revisions have logging and sampling, and the suite asks for them"
)]

mod fixture;

use fixture::{Fixture, Fixtures};
use ringfence::RequestError;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams,
        ClientCapabilities, CompleteRequestParams, CompleteResult, CompletionInfo, ContentBlock,
        CreateTaskResult, GetPromptRequestParams, GetPromptResponse, GetPromptResult, GetTaskParams,
        GetTaskResult, Implementation, InputRequiredResult, InputResponses, ListPromptsResult,
        ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, LoggingLevel,
        LoggingMessageNotificationParam, PaginatedRequestParams, ProgressNotificationParam, Prompt,
        PromptArgument, PromptMessage, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
        RequestStateCodec, Resource, ResourceTemplate, Role, ServerCapabilities, ServerConfig, ServerRequest,
        SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
        UpdateTaskParams,
    },
    service::{RequestContext, SubscriptionContext, SubscriptionSink},
    task_manager::{TaskExit, TaskManager, TaskOptions},
};
use serde_json::{Map, Value, json};
use std::{
    path::Path,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

const CACHE_TTL_MS: u64 = 60_000;
/// Nothing is secret here.
const STATE_KEY: [u8; 32] = [7; 32];
const LISTENERS_MAX: usize = 64;

#[derive(Clone)]
struct Conformance {
    fixtures: Arc<Fixtures>,
    states: RequestStateCodec,
    tasks: TaskManager,
    listeners: Arc<Mutex<Vec<SubscriptionSink>>>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let served = match words.as_slice() {
        [address, state_dir] => serve(address, Path::new(state_dir)),
        _ => Err("usage: conformance ADDRESS:PORT STATE_DIR".to_owned()),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn serve(address: &str, state_dir: &Path) -> Result<(), String> {
    let address = address.parse().map_err(|error| format!("{address}: {error}"))?;
    let handler = Conformance {
        fixtures: Arc::new(Fixtures::read()?),
        states: RequestStateCodec::try_new(STATE_KEY.to_vec()).map_err(|error| error.to_string())?,
        tasks: TaskManager::new(),
        listeners: Arc::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let serving = ringfence::serve_fixtures(address, state_dir, handler);
    runtime
        .block_on(serving)
        .map_err(|error: RequestError| error.to_string())
}

fn broken(reason: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(reason.to_string(), None)
}

/// What comes back for each key, as an object.
fn answers(given: Option<&InputResponses>) -> Map<String, Value> {
    let given = given.into_iter().flatten();
    let objects = given.filter(|(_, answer)| answer.is_object());
    objects
        .map(|(key, answer)| (key.clone(), answer.clone()))
        .collect()
}

/// A response ready, or inputs to be asked for first.
enum Gathered {
    All(Map<String, Value>),
    Wants(Box<InputRequiredResult>),
}

impl Conformance {
    /// The answers to the rounds of a fixture, or the next round's questions.
    fn gather(
        &self,
        fixture: &Fixture,
        given: Option<&InputResponses>,
        state: Option<&str>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Gathered, ErrorData> {
        let answers = answers(given);
        let tampered = |_| ErrorData::invalid_params("the request state is not what was given", None);
        let done = match state {
            Some(sealed) => self.states.open_json::<usize>(sealed).map_err(tampered)?,
            None => 0,
        };
        // A state says which rounds are over; without one, the answers do.
        let at = match (fixture.seals, fixture.rounds.get(done)) {
            (_, None) => return Ok(Gathered::All(answers)),
            (true, Some(round)) if state.is_some() && round.is_answered(&answers) => done + 1,
            (false, Some(round)) if round.is_answered(&answers) => done + 1,
            (false, Some(_)) if fixture.only_declared && !answers.is_empty() => done + 1,
            (_, Some(_)) => done,
        };
        let Some(round) = fixture.rounds.get(at) else {
            return Ok(Gathered::All(answers));
        };
        let able = context.meta.client_capabilities().unwrap_or_default();
        let wanted = round.requests(|method| !fixture.only_declared || is_able(&able, method));
        let wanted = wanted.map_err(broken)?;
        if wanted.is_empty() {
            return Ok(Gathered::All(answers));
        }
        let sealed = fixture.seals.then(|| self.states.seal_json(&at));
        let sealed = sealed.transpose().map_err(broken)?;
        Ok(Gathered::Wants(Box::new(InputRequiredResult::new(
            Some(wanted),
            sealed,
        ))))
    }

    /// What a tool does before it answers.
    async fn act(&self, fixture: &Fixture, context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
        let log = async |level, text: &str| {
            let told = LoggingMessageNotificationParam::new(level, json!(text)).with_logger("conformance");
            context.peer.notify_logging_message(told).await.map_err(broken)
        };
        for text in &fixture.logs {
            log(LoggingLevel::Info, text).await?;
        }
        if let (true, Some(level)) = (fixture.logs_if_asked, context.meta.log_level()) {
            log(level, "it was asked for").await?;
        }
        if let Some(token) = context.meta.get_progress_token() {
            for progress in &fixture.progress {
                let told = ProgressNotificationParam::new(token.clone(), *progress).with_total(100.0);
                context.peer.notify_progress(told).await.map_err(broken)?;
            }
        }
        if let Some(what) = &fixture.triggers {
            self.trigger(what).await;
        }
        tokio::time::sleep(Duration::from_millis(fixture.wait_ms)).await;
        Ok(())
    }

    /// A listener that has gone is forgotten.
    async fn trigger(&self, what: &str) {
        let listeners = std::mem::take(&mut *self.listeners.lock().unwrap_or_else(PoisonError::into_inner));
        let mut still = Vec::new();
        for listener in listeners {
            let told = match what {
                "tools" => listener.notify_tool_list_changed().await,
                _ => listener.notify_prompt_list_changed().await,
            };
            if told.is_ok() {
                still.push(listener);
            }
        }
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(still);
    }

    /// A task that answers as the tool would, after what it asks for.
    fn begin_task(&self, fixture: &Fixture, arguments: Map<String, Value>) -> CreateTaskResult {
        let fixture = fixture.clone();
        let seconds = arguments
            .get("seconds")
            .and_then(Value::as_f64)
            .unwrap_or_default();
        let wait = Duration::from_millis(fixture.wait_ms) + Duration::from_secs_f64(seconds.clamp(0.0, 60.0));
        let task = self.tasks.spawn(TaskOptions::default(), move |context| {
            Box::pin(async move {
                let mut answers = arguments;
                let questions = fixture.task_asks.requests(|_| true);
                let questions = questions.map_err(|reason| TaskExit::Error(broken(reason)))?;
                let asked = questions.into_iter().map(|(key, question)| {
                    let context = context.clone();
                    tokio::spawn(async move { (key.clone(), context.request_input(key, question).await) })
                });
                // All of them are open before the first is waited for.
                for question in asked.collect::<Vec<_>>() {
                    let (key, answer) = question.await.map_err(|error| TaskExit::Error(broken(error)))?;
                    answers.insert(key, answer?);
                }
                tokio::select! {
                    () = context.cancelled() => Err(TaskExit::Cancelled),
                    () = tokio::time::sleep(wait) => fixture.result(&answers).map_err(TaskExit::Error),
                }
            })
        });
        CreateTaskResult::new(task)
    }
}

fn is_able(able: &ClientCapabilities, method: &str) -> bool {
    match method {
        "elicitation/create" => able.elicitation.is_some(),
        "sampling/createMessage" => able.sampling.is_some(),
        _ => able.roots.is_some(),
    }
}

impl ServerHandler for Conformance {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_logging()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_tasks();
        ServerConfig::new(capabilities.build()).with_server_info(Implementation::new("conformance", "1"))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.fixtures.tools.get(name).map(|fixture| fixture.tool(name))
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, listener: SubscriptionContext) -> Result<(), ErrorData> {
        {
            let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
            if listeners.len() >= LISTENERS_MAX {
                listeners.remove(0);
            }
            listeners.push(listener.sink().clone());
        }
        listener.cancelled().await;
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        // The suite calls the first one for scenarios about something else.
        let mut tools: Vec<_> = self.fixtures.tools.iter().collect();
        tools.sort_by_key(|(_, fixture)| fixture.task.is_some() || !fixture.rounds.is_empty());
        let tools = tools.into_iter().map(|(name, fixture)| fixture.tool(name));
        let all = ListToolsResult::with_all_items(tools.collect());
        Ok(all.with_ttl_ms(CACHE_TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let fixture = self.fixtures.tools.get(request.name.as_ref());
        let fixture = fixture.ok_or_else(|| ErrorData::invalid_params("there is no such tool", None))?;
        let able = context.client_capabilities().unwrap_or_default();
        if fixture.requires.as_deref() == Some("sampling") && able.sampling.is_none() {
            let needed = ClientCapabilities::builder().enable_sampling().build();
            return Err(ErrorData::missing_required_client_capability(needed));
        }
        if fixture.task.as_deref() == Some("required") && !able.supports_tasks() {
            let needed = ClientCapabilities::builder().enable_tasks().build();
            return Err(ErrorData::missing_required_client_capability(needed));
        }
        let state = request.request_state.as_deref();
        let mut words = match self.gather(fixture, request.input_responses.as_ref(), state, &context)? {
            Gathered::All(answers) => answers,
            Gathered::Wants(wanted) => return Ok((*wanted).into()),
        };
        words.extend(request.arguments.unwrap_or_default());
        if fixture.task.is_some() && able.supports_tasks() {
            return Ok(CallToolResponse::Task(self.begin_task(fixture, words)));
        }
        self.act(fixture, &context).await?;
        if let Some(question) = &fixture.asks {
            let question = serde_json::from_value::<ServerRequest>(fixture::filled(question, &words));
            let answer = context.peer.send_request(question.map_err(broken)?).await;
            let answer = serde_json::to_value(answer.map_err(broken)?).map_err(broken)?;
            words.insert("answer".to_owned(), answer);
        }
        fixture.result(&words).map(CallToolResult::into)
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.tasks.get_task(&request.task_id).map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resources = self.fixtures.resources.keys();
        let resources = resources.map(|uri| Resource::new(uri, uri).with_description("A fixture."));
        let all = ListResourcesResult::with_all_items(resources.collect());
        Ok(all.with_ttl_ms(CACHE_TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = ResourceTemplate::new(self.fixtures.template.address("{id}"), "template");
        let all = ListResourceTemplatesResult::with_all_items(vec![template.with_description("A fixture.")]);
        Ok(all.with_ttl_ms(CACHE_TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let found = self.fixtures.resource(&request.uri);
        let facts = Some(json!({"uri": request.uri}));
        let found = found.ok_or_else(|| ErrorData::resource_not_found("there is no such resource", facts))?;
        let contents = serde_json::from_value(found).map_err(broken)?;
        let read = ReadResourceResult::new(vec![contents]);
        Ok(read
            .with_ttl_ms(CACHE_TTL_MS)
            .with_cache_scope(CacheScope::Public)
            .into())
    }

    async fn subscribe(
        &self,
        _: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompts = self.fixtures.prompts.iter().map(|(name, fixture)| {
            let argument = |name: &String| {
                PromptArgument::new(name)
                    .with_description("A word.")
                    .with_required(true)
            };
            let arguments: Vec<_> = fixture.arguments.iter().map(argument).collect();
            let arguments = (!arguments.is_empty()).then_some(arguments);
            Prompt::new(name, Some(fixture.about.as_str()), arguments)
        });
        let all = ListPromptsResult::with_all_items(prompts.collect());
        Ok(all.with_ttl_ms(CACHE_TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let fixture = self.fixtures.prompts.get(request.name.as_str());
        let fixture = fixture.ok_or_else(|| ErrorData::invalid_params("there is no such prompt", None))?;
        let state = request.request_state.as_deref();
        let mut words = match self.gather(fixture, request.input_responses.as_ref(), state, &context)? {
            Gathered::All(answers) => answers,
            Gathered::Wants(wanted) => return Ok((*wanted).into()),
        };
        words.extend(request.arguments.unwrap_or_default());
        let contents: Vec<ContentBlock> = fixture.contents(&words).map_err(broken)?;
        let messages = contents
            .into_iter()
            .map(|content| PromptMessage::new(Role::User, content));
        Ok(GetPromptResult::new(messages.collect::<Vec<_>>()).into())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let completion = CompletionInfo::new(vec!["paris".to_owned(), "park".to_owned()]);
        Ok(CompleteResult::new(completion.map_err(broken)?))
    }

    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }
}
