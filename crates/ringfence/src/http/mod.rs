//! MCP over streamable HTTP, for many clients. `rmcp` implements the protocol; this module adds sockets, connections
//! and their limits, and authentication. Each principal has an endpoint of its own, whose server offers only what the
//! principal may use, so that no code below this module compares principals.

mod authenticator;
mod body;
pub(crate) mod connect;
mod connection;
mod endpoint;
mod endpoints;
mod jwks;
mod listener;
mod names;
mod oauth;
mod principal;
mod sessions;
mod signature;
mod sse;
mod tls;

use crate::{
    mcp::{
        Offer,
        service::ServerFactory,
        startup::{Starting, Startup, stop_signal},
        toolsets_of,
    },
    settings::{self, HttpAuthentication, HttpListen, HttpSettings, refusal, token_line},
};
use authenticator::{Authenticator, token_fault};
use body::{Guard, HttpResponse, invalid, refused, response, text};
use connection::{Connection, ConnectionSlots, handshake, serve_connection};
use endpoint::McpEndpoint;
use endpoints::Endpoints;
use hyper::{
    Method, Request, StatusCode,
    body::Incoming,
    header::{ALLOW, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};
use listener::{HttpListener, Stream};
use names::{AllowedNames, NameRefused};
use oauth::{OAuth, scope_of};
use principal::{Denied, Identity, PartialScope, Principal};
use ringfence_engine::{Engine, EngineSettings};
use ringfence_store::vault::SecretValue;
use ringfence_types::{ErrorCode, RequestError};
use rmcp::ServerHandler;
use sse::{MESSAGES, SSE};
use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use tls::Tls;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Delay after a failed accept, which happens when file descriptors have run out.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Interval at which streams and calls of revoked principals are ended. Their requests are refused at once.
const REVOCATION_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Forbidden mode bits of `http.token_file`.
const WRITTEN_BY_OTHERS: u32 = 0o022;

/// Principals served at once; a rule for access tokens may make any number of them.
const PRINCIPALS_MAX: usize = 2000;

pub(crate) const MCP: &str = "/mcp";
/// Query parameters in which clients send tokens (RFC 6750, section 2.3, and common names).
const TOKEN_PARAMETERS: [&str; 6] = [
    "access_token",
    "token",
    "api_key",
    "apikey",
    "key",
    "authorization",
];

type MakeEndpoint = dyn Fn(&Arc<Principal>) -> Result<McpEndpoint, RequestError> + Send + Sync;

struct HttpServer {
    settings: HttpSettings,
    names: AllowedNames,
    engine: Starting,
    authenticator: Authenticator,
    endpoints: Endpoints,
    make: Box<MakeEndpoint>,
    connections: ConnectionSlots,
    answers: TaskTracker,
    /// Once cancelled, new calls are refused.
    closing: CancellationToken,
    /// Once cancelled, connections end.
    leaving: CancellationToken,
}

/// Serves until a signal stops the server, or the engine fails to start (a host below the floor does not end it).
/// `attend` gets the engine before the first request.
pub(crate) async fn serve(
    engine: EngineSettings,
    offer: Offer,
    settings: HttpSettings,
    attend: impl FnOnce(&Engine) + Send + 'static,
) -> Result<(), RequestError> {
    let is_required = AtomicBool::new(settings.authentication == HttpAuthentication::Required);
    let api_token = api_token(&settings)?;
    let oauth = settings.oauth.clone().map(OAuth::new).transpose()?;
    let authenticator = Authenticator::open(&engine.state_dir, api_token.as_deref(), oauth, is_required)?;
    let tls = settings.tls.clone().map(Tls::open).transpose()?.map(Arc::new);
    let listeners = match settings.activated {
        0 => vec![HttpListener::bind(&settings.listen).await?],
        count => HttpListener::activated(count)?,
    };
    for listener in &listeners {
        check_exposure(listener, &authenticator, tls.as_ref())?;
    }
    let startup = Startup::begin(engine, attend);
    let closing = CancellationToken::new();
    let make = {
        let (engine, closing, settings) = (startup.engine.clone(), closing.clone(), settings.clone());
        move |principal: &Arc<Principal>| {
            let (offer, name) = (principal.offer(&offer), Some(principal.name.clone()));
            let mut factory = ServerFactory::new(offer, engine.clone(), name);
            factory.closing = closing.clone();
            let gone = factory.gone.clone();
            let make = move || factory.make();
            Ok(McpEndpoint::new(principal.clone(), make, gone, &settings))
        }
    };
    let server = HttpServer::new(settings, authenticator, startup.engine.clone(), Box::new(make));
    let server = Arc::new(HttpServer { closing, ..server });
    let (serving, open) = begin(&server, listeners, tls);
    let outcome = tokio::select! {
        error = startup.failure() => Err(error),
        () = stop_signal() => { server.drain().await; Ok(()) }
    };
    server.closing.cancel();
    server.leaving.cancel();
    drop(serving);
    server.endpoints.end();
    open.close();
    startup.finish(async move { open.wait().await }).await;
    outcome
}

/// Serves another protocol handler over the same transport, at `address` of this host, without authentication: the
/// official conformance suite needs tools that no product has.
pub async fn serve_fixtures<H: ServerHandler + Clone + Sync>(
    address: SocketAddr,
    state_dir: &Path,
    handler: H,
) -> Result<(), RequestError> {
    let settings = HttpSettings {
        listen: HttpListen::Tcp(address),
        drain: Duration::from_secs(1),
        has_sse: true,
        ..settings::default_config()?.http
    };
    let authenticator = Authenticator::open(state_dir, None, None, AtomicBool::new(false))?;
    let listener = HttpListener::bind(&settings.listen).await?;
    check_exposure(&listener, &authenticator, None)?;
    let of_principal = settings.clone();
    let make = move |principal: &Arc<Principal>| {
        let (handler, gone) = (handler.clone(), CancellationToken::new());
        let make = move || handler.clone();
        Ok(McpEndpoint::new(principal.clone(), make, gone, &of_principal))
    };
    let engine = watch::channel(None).1;
    let server = Arc::new(HttpServer::new(settings, authenticator, engine, Box::new(make)));
    let _serving = begin(&server, vec![listener], None);
    stop_signal().await;
    Ok(())
}

/// Starts serving. Dropping the tasks stops accepting; the tracker counts the open connections.
fn begin(
    server: &Arc<HttpServer>,
    listeners: Vec<HttpListener>,
    tls: Option<Arc<Tls>>,
) -> (JoinSet<()>, TaskTracker) {
    let (mut serving, open) = (JoinSet::new(), TaskTracker::new());
    if let Some(tls) = tls.clone() {
        serving.spawn(tls.reload_on_sighup());
    }
    for listener in listeners {
        let (place, authentication) = (listener.address(), server.authenticator.is_required());
        tracing::info!(place, path = MCP, authentication, "serving MCP over HTTP");
        serving.spawn(accept(server.clone(), listener, tls.clone(), open.clone()));
    }
    serving.spawn(server.clone().watch_principals());
    (serving, open)
}

fn api_token(settings: &HttpSettings) -> Result<Option<Arc<SecretValue>>, RequestError> {
    let refused = |reason: String| {
        refusal(
            format!("`http.token_file`: {reason}."),
            "Name a file of yours or root's that others cannot write, with a token in its first line, and leave \
             SANDBOX_API_TOKEN out.",
        )
    };
    match (&settings.token_file, &settings.api_token) {
        (None, token) => Ok(token.clone()),
        (Some(_), Some(_)) => Err(refused("SANDBOX_API_TOKEN is set, too".to_owned())),
        (Some(path), None) => {
            // Container engines make secrets readable to every user in the container.
            let line = token_line(path, WRITTEN_BY_OTHERS, "other users may write to it");
            let text = line.map_err(|error| refused(error.to_string()))?;
            if let Some(reason) = token_fault(&text) {
                return Err(refused(format!("its token {reason}")));
            }
            let token = SecretValue::new(text.to_string()).map_err(|error| refused(error.to_string()))?;
            Ok(Some(Arc::new(token)))
        }
    }
}

/// Refuses to listen beyond this host without authentication: every host that reaches the server could run programs.
fn check_exposure(
    listener: &HttpListener,
    authenticator: &Authenticator,
    tls: Option<&Arc<Tls>>,
) -> Result<(), RequestError> {
    if !listener.is_public() {
        return Ok(());
    }
    if authenticator.is_required() {
        if tls.is_none() {
            tracing::warn!("tokens and programs travel unencrypted: set `http.tls_cert` and `http.tls_key`");
        }
        return Ok(());
    }
    Err(refusal(
        format!(
            "listening at {} without authentication is refused: every host that reaches it could run programs.",
            listener.address()
        ),
        "Make a token with `ringfence token create NAME`, or listen at 127.0.0.1 or unix:PATH.",
    ))
}

async fn accept(server: Arc<HttpServer>, listener: HttpListener, tls: Option<Arc<Tls>>, open: TaskTracker) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(Some(accepted)) => accepted,
            Ok(None) => continue,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let Some(connection) = server.connections.acquire(peer).await else {
            return;
        };
        let (server, connection) = (server.clone(), Arc::new(connection));
        let acceptor = tls.as_ref().map(|tls| tls.acceptor());
        open.spawn(async move {
            match (stream, acceptor) {
                (Stream::Tcp(stream), Some(tls)) => {
                    if let Some(stream) = handshake(tls, stream, &connection).await {
                        serve_connection(server, stream, connection).await;
                    }
                }
                (Stream::Tcp(stream), None) => serve_connection(server, stream, connection).await,
                (Stream::Unix(stream), _) => serve_connection(server, stream, connection).await,
            }
        });
    }
}

impl HttpServer {
    fn new(
        settings: HttpSettings,
        authenticator: Authenticator,
        engine: Starting,
        make: Box<MakeEndpoint>,
    ) -> Self {
        Self {
            connections: ConnectionSlots::new(settings.connections_max),
            names: AllowedNames::new(&settings.allowed_hosts),
            settings,
            engine,
            authenticator,
            endpoints: Endpoints::new(PRINCIPALS_MAX),
            make,
            answers: TaskTracker::new(),
            closing: CancellationToken::new(),
            leaving: CancellationToken::new(),
        }
    }

    /// Refuses new calls and waits up to `http.drain_seconds` for those in progress; a second signal ends the wait.
    async fn drain(&self) {
        self.closing.cancel();
        self.answers.close();
        tracing::info!(
            answers = self.answers.len(),
            "stopping as soon as the calls in progress have ended"
        );
        tokio::select! {
            done = timeout(self.settings.drain, self.answers.wait()) => if done.is_err() {
                tracing::warn!(answers = self.answers.len(), "calls are cut off: they took longer than `http.drain_seconds`");
            },
            () = stop_signal() => tracing::warn!("calls are cut off"),
        }
    }

    async fn watch_principals(self: Arc<Self>) {
        let mut ticks = interval(REVOCATION_CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.endpoints
                .retain(|principal| self.authenticator.is_still_valid(principal));
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        connection: &Connection,
        guard: Guard,
    ) -> HttpResponse {
        let is_read = [Method::GET, Method::HEAD].contains(request.method());
        match request.uri().path() {
            MCP => self.mcp(request, connection, guard).await,
            SSE | MESSAGES if self.settings.has_sse => self.mcp(request, connection, guard).await,
            "/healthz" | "/readyz" if !is_read => {
                let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "Use GET.\n");
                answer
                    .headers_mut()
                    .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                answer
            }
            "/healthz" => text(StatusCode::OK, "ok\n"),
            "/readyz" if self.is_ready() => text(StatusCode::OK, "ready\n"),
            "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
            path => match self
                .authenticator
                .oauth
                .as_ref()
                .and_then(|oauth| oauth.metadata(path))
            {
                Some(metadata) if is_read => response(StatusCode::OK, "application/json", metadata.into()),
                _ => text(StatusCode::NOT_FOUND, "There is /mcp.\n"),
            },
        }
    }

    fn is_ready(&self) -> bool {
        !self.closing.is_cancelled() && matches!(&*self.engine.borrow(), Some(Ok(_)))
    }

    async fn mcp(
        &self,
        request: Request<Incoming>,
        connection: &Connection,
        mut guard: Guard,
    ) -> HttpResponse {
        if let Err(refused) = self.names.check(request.uri(), request.headers()) {
            return name_refusal(refused);
        }
        if request.uri().query().is_some_and(has_token) {
            return invalid(
                "a token does not belong in a URL, which may be logged: send it as `Authorization: Bearer TOKEN`",
            );
        }
        let identified = self.authenticator.identify(request.headers(), connection.peer);
        let Identity {
            principal,
            expires_unix_ms,
            scope,
        } = match identified.await {
            Ok(identity) => identity,
            Err(denied) => return self.denied(&denied),
        };
        self.connections.protect(connection);
        guard.expires_unix_ms = expires_unix_ms;
        let check_body = |body: &[u8]| self.check_scope(scope.as_ref()?, body);
        match self.endpoints.begin_request(&principal, &*self.make) {
            Ok((endpoint, permit)) => {
                guard.permit = permit;
                endpoint.answer(request, guard, &check_body).await
            }
            Err(error) => unserved(&error),
        }
    }

    fn check_scope(&self, scope: &PartialScope, body: &[u8]) -> Option<HttpResponse> {
        let Some(needed) = toolsets_of(body) else {
            return Some(invalid("the body is not one message, or has a duplicate member"));
        };
        let wanted = scope_of(*needed.first()?);
        let is_enough = needed.iter().any(|one| scope.toolsets.contains(one));
        let held = scope.held.clone();
        (!is_enough).then(|| self.denied(&Denied::Scope { held, wanted }))
    }

    /// The challenge (RFC 6750, section 3): a request without a token learns that it needs one and where to get it.
    fn denied(&self, denied: &Denied) -> HttpResponse {
        const REALM: &str = r#"Bearer realm="ringfence""#;
        let oauth = self.authenticator.oauth.as_ref();
        let metadata = oauth.map(OAuth::challenge).unwrap_or_default();
        let (status, message, challenge) = match denied {
            Denied::Missing => (
                StatusCode::UNAUTHORIZED,
                "a token is needed: send `Authorization: Bearer TOKEN`",
                format!("{REALM}{metadata}"),
            ),
            Denied::Invalid => (
                StatusCode::UNAUTHORIZED,
                "the token is not accepted",
                format!(
                    r#"{REALM}, error="invalid_token", error_description="The token is unknown, expired or revoked"{metadata}"#
                ),
            ),
            Denied::Scope { held, wanted } => (
                StatusCode::FORBIDDEN,
                "the scopes of the token are not enough for this",
                oauth.map_or_else(String::new, |oauth| oauth.scope_challenge(held, wanted)),
            ),
            Denied::Unknown => (
                StatusCode::FORBIDDEN,
                "the token is valid, but no rule of `http.oauth_principals` matches it",
                REALM.to_owned(),
            ),
        };
        let mut answer = refused(status, "unauthorized", message);
        if let Ok(challenge) = HeaderValue::from_str(&challenge) {
            answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        answer
    }
}

/// The response to a principal without an endpoint: the server serves as many as it can, or cannot make one.
fn unserved(error: &RequestError) -> HttpResponse {
    if error.code != ErrorCode::Busy {
        tracing::error!(%error, "a principal cannot be served");
        let message = "the server cannot serve this principal";
        return refused(StatusCode::INTERNAL_SERVER_ERROR, error.code.as_str(), message);
    }
    tracing::warn!(%error, "a principal is not served");
    let message = error.message.trim_end_matches('.');
    let mut answer = refused(StatusCode::SERVICE_UNAVAILABLE, error.code.as_str(), message);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(5));
    answer
}

/// Gives no details, so that a hostile page learns nothing.
fn name_refusal(refused_for: NameRefused) -> HttpResponse {
    let message = match refused_for {
        NameRefused::Malformed => return invalid("the request has no valid Host"),
        NameRefused::Host => "this host name is not allowed: see `http.allowed_hosts`",
        NameRefused::Origin => "pages of this origin may not call the server: see `http.allowed_hosts`",
    };
    refused(StatusCode::FORBIDDEN, ErrorCode::PolicyDenied.as_str(), message)
}

fn has_token(query: &str) -> bool {
    let mut names = query
        .split('&')
        .map(|pair| pair.split('=').next().unwrap_or(pair));
    names.any(|name| {
        TOKEN_PARAMETERS
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principal_beyond_the_limit_is_told_to_come_back() {
        let busy = unserved(&RequestError::new(ErrorCode::Busy, "there are 2000.", "Wait."));
        assert_eq!(busy.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(busy.headers().contains_key(RETRY_AFTER));
        let fault = unserved(&RequestError::fault("no randomness.".to_owned(), "x"));
        assert_eq!(fault.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }

    #[test]
    fn token_in_query_string_is_detected() {
        for (query, is_there) in [
            ("access_token=x", true),
            ("a=1&Token=x", true),
            ("API_KEY", true),
            ("a=token", false),
            ("tokens=1", false),
            ("", false),
        ] {
            assert_eq!(has_token(query), is_there, "{query}");
        }
    }
}
