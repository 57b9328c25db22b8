//! MCP over streamable HTTP, for many clients. `rmcp` speaks the protocol; here is everything around it: sockets,
//! connections and what bounds them, and who a request is from. A principal has an endpoint of its own, with a server
//! that is offered what the principal may have, so that nothing below this module ever compares one with another.

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
        startup::{Starting, Startup, told_to_stop},
        toolsets_of,
    },
    settings::{self, HttpAuthentication, HttpListen, HttpSettings, token_line},
};
use authenticator::{Authenticator, token_fault};
use body::{Guard, HttpResponse, invalid, refused, text};
use connection::{Connection, ConnectionSlots, converse, handshake};
use endpoint::McpEndpoint;
use endpoints::Endpoints;
use hyper::{
    Method, Request, StatusCode,
    body::Incoming,
    header::{ALLOW, HeaderValue, WWW_AUTHENTICATE},
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

/// After a connection could not be accepted, which is when descriptors have run out.
const RECOVERY: Duration = Duration::from_secs(1);
/// How soon the streams and calls of a principal end that is known no more. Its requests are refused at once.
const REVOCATION: Duration = Duration::from_secs(1);

/// Bits of the mode of a file of a token.
const WRITTEN_BY_OTHERS: u32 = 0o022;

/// Principals that are served at once; a rule for access tokens may make any number of them.
const PRINCIPALS_MAX: usize = 2000;

pub(crate) const MCP: &str = "/mcp";
/// Names of parameters in which clients have sent tokens (RFC 6750, section 2.3, and what is common).
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
    /// Answers on their way.
    answers: TaskTracker,
    /// From its cancellation on new calls are refused.
    closing: CancellationToken,
    /// From its cancellation on connections end.
    leaving: CancellationToken,
}

/// Serves until the server is told to stop, or there is nothing to serve. `attend` is given the engine before the first
/// request.
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
            let mut factory = ServerFactory::new(offer, engine.clone(), name)?;
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
        () = told_to_stop() => { server.drain().await; Ok(()) }
    };
    server.closing.cancel();
    server.leaving.cancel();
    drop(serving);
    server.endpoints.end();
    open.close();
    startup.farewell(async move { open.wait().await }).await;
    outcome
}

/// Serves another handler of the protocol by the same transport, at `address` of this host, to anyone there: the
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
        ..settings::usual()?.http
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
    told_to_stop().await;
    Ok(())
}

/// Serves as long as the tasks are kept; the connections are tracked.
fn begin(
    server: &Arc<HttpServer>,
    listeners: Vec<HttpListener>,
    tls: Option<Arc<Tls>>,
) -> (JoinSet<()>, TaskTracker) {
    let (mut serving, open) = (JoinSet::new(), TaskTracker::new());
    if let Some(tls) = tls.clone() {
        serving.spawn(tls.follow());
    }
    for listener in listeners {
        let (place, authentication) = (listener.place(), server.authenticator.is_required());
        tracing::info!(place, path = MCP, authentication, "MCP over HTTP is answered");
        serving.spawn(accept(server.clone(), listener, tls.clone(), open.clone()));
    }
    serving.spawn(server.clone().watch_principals());
    (serving, open)
}

/// Of the environment, or of a file as container engines give secrets in.
fn api_token(settings: &HttpSettings) -> Result<Option<Arc<SecretValue>>, RequestError> {
    let refused = |reason: String| {
        RequestError::new(
            ErrorCode::InvalidConfiguration,
            format!("`http.token_file`: {reason}."),
            "Name a file of yours or root's that others cannot write, with a token in its first line, and leave \
             SANDBOX_API_TOKEN out.",
        )
    };
    match (&settings.token_file, &settings.api_token) {
        (None, token) => Ok(token.clone()),
        (Some(_), Some(_)) => Err(refused("SANDBOX_API_TOKEN is set, too".to_owned())),
        (Some(path), None) => {
            // Container engines let everyone in the container read their secrets.
            let line = token_line(path, WRITTEN_BY_OTHERS, "others than its owner may write it");
            let text = line.map_err(|error| refused(error.to_string()))?;
            if let Some(reason) = token_fault(&text) {
                return Err(refused(format!("its token {reason}")));
            }
            let token = SecretValue::new(text.to_string()).map_err(|error| refused(error.to_string()))?;
            Ok(Some(Arc::new(token)))
        }
    }
}

/// Everyone who reaches a server without authentication can run programs: that is for this host alone.
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
    Err(RequestError::new(
        ErrorCode::InvalidConfiguration,
        format!(
            "listening at {} without authentication is refused: every host that reaches it could run programs.",
            listener.place()
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
                tokio::time::sleep(RECOVERY).await;
                continue;
            }
        };
        let Some(connection) = server.connections.place(peer).await else {
            return;
        };
        let (server, connection) = (server.clone(), Arc::new(connection));
        let acceptor = tls.as_ref().map(|tls| tls.acceptor());
        open.spawn(async move {
            match (stream, acceptor) {
                (Stream::Tcp(stream), Some(tls)) => {
                    if let Some(stream) = handshake(tls, stream, &connection).await {
                        converse(server, stream, connection).await;
                    }
                }
                (Stream::Tcp(stream), None) => converse(server, stream, connection).await,
                (Stream::Unix(stream), _) => converse(server, stream, connection).await,
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

    /// New calls are refused, and those on their way may end in time. A second signal ends the wait.
    async fn drain(&self) {
        self.closing.cancel();
        self.answers.close();
        tracing::info!(
            answers = self.answers.len(),
            "stopping, when the calls on their way have ended"
        );
        tokio::select! {
            done = timeout(self.settings.drain, self.answers.wait()) => if done.is_err() {
                tracing::warn!(answers = self.answers.len(), "calls are cut off: they took longer than `http.drain_seconds`");
            },
            () = told_to_stop() => tracing::warn!("calls are cut off"),
        }
    }

    /// Ends the streams and calls of principals that are known no more.
    async fn watch_principals(self: Arc<Self>) {
        let mut ticks = interval(REVOCATION);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.endpoints
                .retain(|principal| self.authenticator.still_knows(principal));
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
                Some(metadata) if is_read => body::of(StatusCode::OK, "application/json", metadata.into()),
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
            return unnamed(refused);
        }
        if request.uri().query().is_some_and(has_token) {
            return invalid(
                "a token does not belong in an address, which is logged on its way: send it as `Authorization: Bearer TOKEN`",
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
        self.connections.prove(connection);
        guard.expires_unix_ms = expires_unix_ms;
        let judge = |body: &[u8]| self.beyond(scope.as_ref()?, body);
        match self.endpoints.begin_request(&principal, &*self.make) {
            Ok((endpoint, place)) => {
                guard.permit = place;
                endpoint.answer(request, guard, &judge).await
            }
            Err(error) => {
                tracing::error!(%error, "a principal cannot be served");
                refused(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    error.code.as_str(),
                    "the server cannot serve this principal",
                )
            }
        }
    }

    /// The refusal of a message that the scopes of a token are not enough for.
    fn beyond(&self, scope: &PartialScope, body: &[u8]) -> Option<HttpResponse> {
        let Some(needed) = toolsets_of(body) else {
            return Some(invalid("the body is no single message, or says something twice"));
        };
        let wanted = scope_of(*needed.first()?);
        let is_enough = needed.iter().any(|one| scope.toolsets.contains(one));
        let held = scope.held.clone();
        (!is_enough).then(|| self.denied(&Denied::Scope { held, wanted }))
    }

    /// RFC 6750, section 3: a request without a token is told nothing but that it needs one, and where to get it.
    fn denied(&self, denied: &Denied) -> HttpResponse {
        const REALM: &str = r#"Bearer realm="ringfence""#;
        let oauth = self.authenticator.oauth.as_ref();
        let where_to = oauth.map(OAuth::challenge).unwrap_or_default();
        let (status, message, challenge) = match denied {
            Denied::Missing => (
                StatusCode::UNAUTHORIZED,
                "a token is needed: send `Authorization: Bearer TOKEN`",
                format!("{REALM}{where_to}"),
            ),
            Denied::Invalid => (
                StatusCode::UNAUTHORIZED,
                "the token is not accepted",
                format!(
                    r#"{REALM}, error="invalid_token", error_description="The token is unknown, expired or revoked"{where_to}"#
                ),
            ),
            Denied::Scope { held, wanted } => (
                StatusCode::FORBIDDEN,
                "the scopes of the token are not enough for this",
                oauth.map_or_else(String::new, |oauth| oauth.scope_challenge(held, wanted)),
            ),
            Denied::Unknown => (
                StatusCode::FORBIDDEN,
                "the token is good, and `http.oauth_principals` does not know its bearer",
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

/// Says no more than that: a page gets nothing out of it.
fn unnamed(refused_for: NameRefused) -> HttpResponse {
    let message = match refused_for {
        NameRefused::Malformed => return invalid("the request does not say by which name it calls"),
        NameRefused::Host => "this server is not called by that name: see `http.allowed_hosts`",
        NameRefused::Origin => "pages of that host may not call: see `http.allowed_hosts`",
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
    fn tokens_in_addresses_are_seen() {
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
