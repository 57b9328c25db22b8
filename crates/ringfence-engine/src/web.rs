//! The web tools: pages, searches and a browser for agents. Their connections go through egress, responses are parsed
//! in workers, and the browser runs in a sandbox like any program.

mod browser;
mod page;

pub use browser::BrowseRequest;
pub use page::{PageRequest, WebPage};

use crate::{
    admission::{Demand, Permit, Queue},
    caller::{Caller, Client, Requester},
    egress::Egress,
    error::{Result, busy},
    sandbox::Sandboxes,
    secrets::Secrets,
    settings::WebSettings,
    sync::lock,
    worker,
};
use ringfence_egress::{ClientLease, Destination};
use ringfence_types::{Denial, EnvName, ErrorCode, Namespace, RequestError};
use ringfence_web::{
    ConnectFuture, Dial, DialError, Fetcher, KeyFuture, ParsedFuture, Provider, SearchServices, Searched,
    Searcher, Stream, Target,
};
use serde_json::{Value, json};
use std::{
    borrow::Borrow,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::OnceCell;
use zeroize::Zeroizing;

pub(crate) const DOCUMENT: &str = "document";
const PAGES_AT_ONCE: usize = 8;
/// Pages of one namespace, so that others can fetch too.
const PAGES_AT_ONCE_OF_ONE: usize = 6;
const WAITING_MAX: usize = 64;
/// Concurrent browsers; each takes some hundreds of megabytes.
const BROWSERS_AT_ONCE: usize = 2;
const QUEUE_TIME: Duration = Duration::from_secs(5);
const RETRY_AFTER_MS: u64 = 1000;
const QUERY_CHARS_MAX: usize = 500;

pub(crate) struct Web {
    settings: WebSettings,
    egress: Arc<Egress>,
    sandboxes: Arc<Sandboxes>,
    secrets: Arc<Secrets>,
    /// The queue of runs, whose memory browsers share.
    runs: Queue,
    clients: OnceCell<(Fetcher, Searcher)>,
    pages: Mutex<page::PageCache>,
    fetching: Queue,
    browsing: Queue,
}

#[derive(Clone, Debug)]
pub struct SearchRequest {
    pub namespace: Namespace,
    pub query: ringfence_web::SearchQuery,
}

/// The result of a web tool, with details for the record.
pub(crate) struct WebOutcome<T> {
    pub(crate) result: Result<T>,
    pub(crate) details: Value,
}

impl Web {
    pub(crate) fn new(
        settings: WebSettings,
        egress: Arc<Egress>,
        sandboxes: Arc<Sandboxes>,
        secrets: Arc<Secrets>,
        runs: Queue,
    ) -> Self {
        Self {
            settings,
            egress,
            sandboxes,
            secrets,
            runs,
            clients: OnceCell::new(),
            pages: Mutex::default(),
            fetching: Queue::of_places(PAGES_AT_ONCE, PAGES_AT_ONCE_OF_ONE, WAITING_MAX),
            browsing: Queue::of_places(BROWSERS_AT_ONCE, BROWSERS_AT_ONCE - 1, WAITING_MAX),
        }
    }

    async fn clients(&self) -> Result<&(Fetcher, Searcher)> {
        let make = async || {
            let tls = self.egress.client_config().await?;
            Ok((Fetcher::new(tls.clone()), Searcher::new(tls)))
        };
        self.clients.get_or_try_init(make).await
    }

    pub(crate) async fn search(&self, wanted: &SearchRequest) -> WebOutcome<Searched> {
        let result = self.ask_providers(wanted).await;
        let found = |found: &Searched| json!({"results": found.hits.len(), "tried": tried(found), "cached": found.is_cached});
        let details = result.as_ref().map_or_else(|_| json!({}), found);
        let result = result.and_then(answered);
        WebOutcome { result, details }
    }

    async fn ask_providers(&self, wanted: &SearchRequest) -> Result<Searched> {
        let text = &wanted.query.text;
        if text.trim().is_empty()
            || text.chars().count() > QUERY_CHARS_MAX
            || text.chars().any(char::is_control)
        {
            return Err(RequestError::invalid(
                format!(
                    "`query` is empty, holds control characters, or is longer than {QUERY_CHARS_MAX} characters."
                ),
                "Ask in a few words.",
            ));
        }
        if self.settings.search.is_empty() {
            return Err(RequestError::denied(
                "the operator has configured no search provider.",
                "Have them name providers in `web.search`.",
            ));
        }
        // A query leaves the host too: a namespace that may reach no host of the web may not search.
        if self.egress.web_rules(&wanted.namespace).is_empty() {
            return Err(RequestError::denied(
                "this namespace may reach no host of the web.",
                "Have the operator add a rule for it to `web.allow`.",
            ));
        }
        let _permit = self.fetch_permit(&wanted.namespace).await?;
        let (_, searcher) = self.clients().await?;
        let services = Services {
            web: self,
            namespace: &wanted.namespace,
        };
        let namespace = wanted.namespace.as_str();
        let mut found = searcher
            .search(namespace, &wanted.query, &self.settings.search, &services)
            .await;
        // A provider that repeats its key must not reveal it to the model.
        let redactor = self.secrets.redactor_of_all(&wanted.namespace, &[]).await?;
        found.redact(&redactor);
        Ok(found)
    }

    async fn fetch_permit(&self, namespace: &Namespace) -> Result<Permit> {
        let permit = self.fetching.permit(namespace, Demand::default(), QUEUE_TIME);
        permit.await.map_err(|_| {
            busy(
                "too many pages are being fetched.",
                "Ask again later.",
                RETRY_AFTER_MS,
            )
        })
    }

    fn provider_hosts(&self) -> Vec<Destination> {
        let providers = self.settings.search.iter();
        providers
            .filter_map(|provider| destination(&provider.at).ok())
            .collect()
    }

    /// Parses an untrusted response in a worker.
    async fn read(&self, question: Vec<u8>) -> Result<Vec<u8>, String> {
        match worker::run(&self.sandboxes, DOCUMENT, None, question).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(cause)) => Err(format!("it ended its parser ({cause:?})")),
            Err(error) => Err(error.message.trim_end_matches('.').to_owned()),
        }
    }
}

/// Turns a search that no provider answered into an error, rather than a result without hits.
fn answered(found: Searched) -> Result<Searched> {
    if found.is_answered() {
        return Ok(found);
    }
    let said = found.attempts.iter().map(|attempt| {
        let detail = attempt.detail.as_ref();
        let detail = detail.map_or_else(String::new, |detail| format!(" ({detail})"));
        format!(
            "{}: {}{detail}",
            attempt.provider.as_str(),
            attempt.outcome.as_str()
        )
    });
    Err(RequestError::new(
        ErrorCode::PageUnavailable,
        format!(
            "no search provider has answered: {}.",
            said.collect::<Vec<_>>().join("; ")
        ),
        "Try again later, fetch a page whose URL you know, or have the operator name another provider in `web.search`.",
    ))
}

/// Returns the attempts at each provider, as in results.
pub fn tried(found: &Searched) -> Value {
    let attempts = found.attempts.iter().map(|attempt| {
        json!({
            "provider": attempt.provider.as_str(), "outcome": attempt.outcome.as_str(), "detail": attempt.detail,
            "ms": attempt.ms,
        })
    });
    attempts.collect()
}

/// Returns a requester that gets no notices or questions.
fn requester(caller: &Caller) -> Requester {
    Requester {
        caller: caller.clone(),
        execution_id: Some(uuid::Uuid::now_v7().to_string()),
        client: Client::absent(),
    }
}

/// Connections that are subject to egress rules, for the web crate.
struct EgressDial<L>(Result<L, DialError>);

impl<L: Borrow<ClientLease> + Send + Sync> Dial for EgressDial<L> {
    fn connect<'a>(&'a self, to: &'a Target, method: &'a str) -> ConnectFuture<'a> {
        Box::pin(async move {
            let lease = self.0.as_ref().map_err(Clone::clone)?.borrow();
            let connected = lease
                .connect(&destination(to)?, method, &to.path_and_query())
                .await;
            let stream = connected.map_err(dial_error)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

fn dial_error(Denial { rule, what, hint, .. }: Denial) -> DialError {
    DialError { rule, what, hint }
}

fn destination(to: &Target) -> Result<Destination, DialError> {
    Destination::read(&to.authority(), None).map_err(|error| DialError {
        rule: "egress.name".to_owned(),
        what: format!("`{}` {error}", to.authority()),
        hint: "Give a host by its name.".to_owned(),
    })
}

struct Services<'a> {
    web: &'a Web,
    namespace: &'a Namespace,
}

impl SearchServices for Services<'_> {
    fn dial(&self, provider: &Provider) -> Box<dyn Dial> {
        let lease = destination(&provider.at).and_then(|to| {
            self.web
                .egress
                .open_provider(self.namespace, &self.web.provider_hosts(), &to)
                .map_err(|error| DialError {
                    rule: "egress.limit".to_owned(),
                    what: error.message,
                    hint: error.hint,
                })
        });
        Box::new(EgressDial(lease))
    }

    fn key<'a>(&'a self, name: &'a str) -> KeyFuture<'a> {
        Box::pin(async move {
            let name = EnvName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
            let policy = self.web.sandboxes.policy.current();
            let mut rules = policy.secrets.iter();
            if !rules.any(|rule| rule.allows(self.namespace, &name)) {
                let (namespace, name) = (self.namespace, name.as_str());
                return Err(format!("`vault.allow` does not give {namespace}/{name}"));
            }
            let (namespace, wanted) = (self.namespace.clone(), vec![name]);
            let secrets = &self.web.secrets;
            let leased = secrets.with_vault(move |vault| vault.lease(&namespace, &wanted));
            let leased = leased
                .await
                .map_err(|error| error.message)?
                .map_err(|error| error.to_string())?;
            let value = leased
                .first()
                .map(|(_, value)| Zeroizing::new(value.expose().to_owned()));
            value.ok_or_else(|| "it is not in the vault".to_owned())
        })
    }

    fn parse(&self, question: Vec<u8>) -> ParsedFuture<'_> {
        Box::pin(self.web.read(question))
    }
}

/// Turns a denial of egress into an error of the call.
fn denied(error: DialError) -> RequestError {
    let code = match error.is_unreachable() {
        true => ErrorCode::PageUnavailable,
        false => ErrorCode::PolicyDenied,
    };
    let hint = match error.rule.as_str() {
        "egress.address" => "Pages at addresses that are not public, or at addresses instead of names, are the \
                             operator's to allow: `egress.private` names a service, `web.allow` an address or network."
            .to_owned(),
        _ if error.hint.is_empty() => "Check the URL, or try another page.".to_owned(),
        _ => error.hint,
    };
    RequestError::new(code, format!("{} ({}).", error.what, error.rule), hint)
}

fn target(url: &str) -> Result<Target> {
    Target::read(url).map_err(|error| {
        RequestError::invalid(
            format!("`url` {error}."),
            "Give a whole URL, as `https://example.com/page`, with spaces and non-ASCII characters encoded.",
        )
    })
}
