//! MCP over streamable HTTP, for many clients. `rmcp` speaks the protocol; here is everything around it: sockets,
//! connections and what bounds them, and who a request is from. A principal has an endpoint of its own, with a server
//! that is offered what the principal may have, so that nothing below this module ever compares one with another.

mod authenticator;
mod body;
pub(crate) mod connect;
mod connection;
mod endpoint;
mod jwks;
mod listener;
mod oauth;
mod outgoing;
mod principal;
mod sessions;
mod signature;
mod tls;

use crate::{
    mcp::{
        Offer,
        service::ServerFactory,
        startup::{Starting, Startup, told_to_stop},
    },
    settings::{HttpAuthentication, HttpSettings},
};
use authenticator::{Authenticator, Denied};
use body::{Guard, HttpResponse, refused, text};
use connection::{Connection, ConnectionSlots, converse, handshake};
use endpoint::McpEndpoint;
use hyper::{
    Method, Request, StatusCode,
    body::Incoming,
    header::{ALLOW, HeaderValue, WWW_AUTHENTICATE},
};
use listener::{HttpListener, Stream};
use oauth::OAuth;
use principal::Principal;
use ringfence_engine::{Engine, EngineSettings};
use ringfence_store::tokens::PrincipalRole;
use ringfence_types::{ErrorCode, RequestError};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::Duration,
};
use tls::Tls;
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// After a connection could not be accepted, which is when descriptors have run out.
const RECOVERY: Duration = Duration::from_secs(1);
/// How soon the streams and calls of a principal end that is known no more. Its requests are refused at once.
const REVOCATION: Duration = Duration::from_secs(1);

/// Principals that are served at once; a rule for access tokens may make any number of them.
const PRINCIPALS_MAX: usize = 2000;

/// Where clients find the protocol.
const MCP: &str = "/mcp";
/// Names of parameters in which clients have sent tokens (RFC 6750, section 2.3, and what is common).
const TOKEN_PARAMETERS: [&str; 6] = [
    "access_token",
    "token",
    "api_key",
    "apikey",
    "key",
    "authorization",
];

/// By the name and the role of the principal: an issuer may give one name both.
type Endpoints = HashMap<(Arc<str>, PrincipalRole), Arc<McpEndpoint>>;

struct HttpServer {
    settings: HttpSettings,
    offer: Offer,
    engine: Starting,
    authenticator: Authenticator,
    endpoints: Mutex<Endpoints>,
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
    let api_token = settings.api_token.as_deref();
    let oauth = settings.oauth.clone().map(OAuth::new).transpose()?;
    let authenticator = Authenticator::open(&engine.state_dir, api_token, oauth, is_required)?;
    let tls = settings.tls.clone().map(Tls::open).transpose()?.map(Arc::new);
    let listeners = match settings.activated {
        0 => vec![HttpListener::bind(&settings.listen).await?],
        count => HttpListener::activated(count)?,
    };
    for listener in &listeners {
        check_exposure(listener, &authenticator, tls.as_ref())?;
    }
    let startup = Startup::begin(engine, attend);
    let server = Arc::new(HttpServer {
        connections: ConnectionSlots::new(settings.connections_max),
        settings,
        offer,
        engine: startup.engine.clone(),
        authenticator,
        endpoints: Mutex::default(),
        answers: TaskTracker::new(),
        closing: CancellationToken::new(),
        leaving: CancellationToken::new(),
    });
    let open = TaskTracker::new();
    let renewing = tls.clone().map(|tls| tokio::spawn(tls.follow()));
    let mut accepting = JoinSet::new();
    for listener in listeners {
        let (place, authentication) = (listener.place(), server.authenticator.is_required());
        tracing::info!(place, path = MCP, authentication, "MCP over HTTP is answered");
        accepting.spawn(accept(server.clone(), listener, tls.clone(), open.clone()));
    }
    let watching = tokio::spawn(server.clone().watch_principals());
    let outcome = tokio::select! {
        error = startup.failure() => Err(error),
        () = told_to_stop() => { server.drain().await; Ok(()) }
    };
    server.closing.cancel();
    server.leaving.cancel();
    accepting.abort_all();
    watching.abort();
    if let Some(renewing) = renewing {
        renewing.abort();
    }
    for (_, endpoint) in server.endpoints().drain() {
        endpoint.end();
    }
    open.close();
    startup.farewell(async move { open.wait().await }).await;
    outcome
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
    fn endpoints(&self) -> MutexGuard<'_, Endpoints> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
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
            self.endpoints().retain(|_, endpoint| {
                let is_known = self.authenticator.still_knows(&endpoint.principal);
                if !is_known {
                    endpoint.end();
                }
                is_known
            });
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

    async fn mcp(&self, request: Request<Incoming>, connection: &Connection, guard: Guard) -> HttpResponse {
        if request.uri().query().is_some_and(has_token) {
            return refused(
                StatusCode::BAD_REQUEST,
                "invalid_argument",
                "a token does not belong in an address, which is logged on its way: send it as `Authorization: Bearer TOKEN`",
            );
        }
        let principal = match self
            .authenticator
            .identify(request.headers(), connection.peer)
            .await
        {
            Ok(principal) => principal,
            Err(denied) => return self.denied(&denied),
        };
        self.connections.prove(connection);
        match self.endpoint(&principal) {
            Ok(endpoint) => endpoint.answer(request, guard).await,
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
            Denied::Scope(held) => (
                StatusCode::FORBIDDEN,
                "the token may not call the tools",
                oauth.map_or_else(String::new, |oauth| oauth.scope_challenge(held)),
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

    /// That of the principal as it is now; a change of what it may do ends what it has.
    fn endpoint(&self, principal: &Arc<Principal>) -> Result<Arc<McpEndpoint>, RequestError> {
        let mut endpoints = self.endpoints();
        let key = (principal.name.clone(), principal.role);
        if let Some(endpoint) = endpoints.get(&key)
            && *endpoint.principal == **principal
        {
            return Ok(endpoint.clone());
        }
        if endpoints.len() >= PRINCIPALS_MAX
            && let Some(unused) = endpoints.iter().find(|(_, endpoint)| endpoint.is_unused())
        {
            let unused = unused.0.clone();
            endpoints.remove(&unused);
        }
        if endpoints.len() >= PRINCIPALS_MAX {
            let message = format!("{PRINCIPALS_MAX} principals are served.");
            return Err(RequestError::new(ErrorCode::Busy, message, "Use another server."));
        }
        let offer = principal.offer(&self.offer);
        let mut factory = ServerFactory::new(offer, self.engine.clone(), Some(principal.name.clone()))?;
        factory.closing = self.closing.clone();
        let endpoint = Arc::new(McpEndpoint::new(principal.clone(), factory, &self.settings));
        if let Some(before) = endpoints.insert(key, endpoint.clone()) {
            before.end();
        }
        Ok(endpoint)
    }
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
