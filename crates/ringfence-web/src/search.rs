//! Searches: providers in the operator's order, each with a time limit and a back-off. Every answer lists the providers
//! that were tried and their outcomes; `no_results` is reported only if a provider answered so.

mod providers;

use crate::{Dial, Hit, Target, document, exchange::ExchangeError, fence, results::HITS_MAX};
use ringfence_redact::Redactor;
use ringfence_types::{UnknownWord, closed_words};
use rustls::ClientConfig;
use std::{
    collections::HashMap,
    fmt,
    pin::Pin,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;
use zeroize::Zeroizing;

const TITLE_CHARS_MAX: usize = 200;
const SNIPPET_CHARS_MAX: usize = 500;
const DATE_CHARS_MAX: usize = 40;
const CACHED_MAX: usize = 64;
const CACHE_AGE_MAX: Duration = Duration::from_secs(300);
/// Back-off after the first refusal of a provider; it doubles with each further one.
const BACK_OFF: Duration = Duration::from_secs(30);
const BACK_OFF_MAX: Duration = Duration::from_secs(900);
const DOUBLINGS_MAX: u32 = 5;
/// Maximum number of refused accounts; one over it is asked again at once.
const REFUSED_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProviderKind {
    Searxng,
    Brave,
    Tavily,
    Mojeek,
    DuckDuckGo,
}

closed_words!(ProviderKind: Searxng = "searxng", Brave = "brave", Tavily = "tavily", Mojeek = "mojeek",
    DuckDuckGo = "duckduckgo");

impl ProviderKind {
    /// Returns the default URL. SearXNG has none, because it is self-hosted.
    pub fn usual(self) -> Option<&'static str> {
        match self {
            Self::Searxng => None,
            Self::Brave => Some("https://api.search.brave.com/"),
            Self::Tavily => Some("https://api.tavily.com/"),
            Self::Mojeek => Some("https://api.mojeek.com/"),
            Self::DuckDuckGo => Some("https://html.duckduckgo.com/"),
        }
    }

    pub fn needs_key(self) -> bool {
        matches!(self, Self::Brave | Self::Tavily | Self::Mojeek)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    pub kind: ProviderKind,
    /// Base URL; only its host is contacted and gets the key.
    pub at: Target,
    /// Name of the key in the vault.
    pub key: Option<String>,
}

/// `KIND` or `KIND=URL`, and for a provider with an account ` key NAME`, a secret's name in the vault.
impl FromStr for Provider {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (place, key) = match text.split_once(" key ") {
            Some((place, key)) => (place.trim(), Some(key.trim().to_owned())),
            None => (text.trim(), None),
        };
        let (name, url) = match place.split_once('=') {
            Some((name, url)) => (name, Some(url)),
            None => (place, None),
        };
        let unknown =
            |UnknownWord(known)| format!("`{}` is not one of {}", name.escape_debug(), known.join(", "));
        let kind: ProviderKind = name.parse().map_err(unknown)?;
        let url = url
            .or(kind.usual())
            .ok_or_else(|| format!("{name} needs a URL, as `{name}=https://search.example.com/`"))?;
        let at = Target::read(url).map_err(|error| format!("the URL of {name} {error}"))?;
        match (kind.needs_key(), &key) {
            (true, None) => Err(format!(
                "{name} needs a key: `{place} key NAME`, a secret's name in the vault"
            )),
            (false, Some(_)) => Err(format!("{name} takes no key")),
            _ => Ok(Self { kind, at, key }),
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.as_str())?;
        if self.kind.usual() != Some(self.at.as_str()) {
            write!(f, "={}", self.at)?;
        }
        self.key.as_ref().map_or(Ok(()), |key| write!(f, " key {key}"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recency {
    Day,
    Week,
    Month,
    Year,
}

closed_words!(Recency: Day = "day", Week = "week", Month = "month", Year = "year");

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SearchQuery {
    pub text: String,
    pub results_max: usize,
    pub recency: Option<Recency>,
}

/// Outcome of a request to a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Found,
    /// The provider answered that there are no results.
    NoResults,
    /// It blocks programs: it sent a challenge, or its engines did not answer it.
    Blocked,
    /// The form of its answer has changed.
    Changed,
    Quota,
    KeyRefused,
    KeyMissing,
    Denied,
    Unreachable,
    TimedOut,
    /// It refused recently, and no request was made.
    BackingOff,
}

closed_words!(Outcome: Found = "ok", NoResults = "no_results", Blocked = "provider_blocked",
    Changed = "provider_changed", Quota = "quota", KeyRefused = "key_refused", KeyMissing = "key_missing",
    Denied = "denied", Unreachable = "unreachable", TimedOut = "timed_out", BackingOff = "backing_off");

impl Outcome {
    /// True if the outcome starts a back-off.
    fn backs_off(self) -> bool {
        matches!(self, Self::Blocked | Self::Quota)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub provider: ProviderKind,
    pub outcome: Outcome,
    pub detail: Option<String>,
    pub ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Searched {
    /// The provider that found the hits.
    pub provider: Option<ProviderKind>,
    pub hits: Vec<Hit>,
    pub attempts: Vec<Attempt>,
    pub is_cached: bool,
}

impl Searched {
    /// True if a provider has answered, with or without results.
    pub fn is_answered(&self) -> bool {
        let answers = |one: &Attempt| one.outcome == Outcome::NoResults;
        self.provider.is_some() || self.attempts.iter().any(answers)
    }

    /// Redacts every text of the providers and pages.
    pub fn redact(&mut self, redactor: &Redactor) {
        for hit in &mut self.hits {
            fence::redact(&mut hit.title, TITLE_CHARS_MAX, redactor);
            fence::redact(&mut hit.url, usize::MAX, redactor);
            fence::redact(&mut hit.snippet, SNIPPET_CHARS_MAX, redactor);
            if let Some(date) = &mut hit.published {
                fence::redact(date, DATE_CHARS_MAX, redactor);
            }
        }
        for detail in self.attempts.iter_mut().filter_map(|one| one.detail.as_mut()) {
            fence::redact(detail, TITLE_CHARS_MAX, redactor);
        }
    }
}

pub type ParsedFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send + 'a>>;
pub type KeyFuture<'a> = Pin<Box<dyn Future<Output = Result<Zeroizing<String>, String>> + Send + 'a>>;

/// Services of the caller that a search needs.
pub trait SearchServices: Send + Sync {
    /// Returns a dialler for this provider's host only.
    fn dial(&self, provider: &Provider) -> Box<dyn Dial>;
    fn key<'a>(&'a self, name: &'a str) -> KeyFuture<'a>;
    /// Runs [`crate::read_document`] in a worker.
    fn parse(&self, question: Vec<u8>) -> ParsedFuture<'_>;
}

pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    pub(crate) hits: Vec<Hit>,
    pub(crate) detail: Option<String>,
}

impl Verdict {
    pub(crate) fn of(outcome: Outcome, detail: impl Into<Option<String>>) -> Self {
        Self {
            outcome,
            hits: Vec::new(),
            detail: detail.into(),
        }
    }

    /// Returns the hits, or `NoResults` if there are none.
    pub(crate) fn found(hits: Vec<Hit>) -> Self {
        Self {
            outcome: match hits.is_empty() {
                true => Outcome::NoResults,
                false => Outcome::Found,
            },
            hits,
            detail: None,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct CacheKey {
    namespace: String,
    query: SearchQuery,
}

type Cached = HashMap<CacheKey, (Instant, Searched)>;

/// State shared by searches: recent results, and recent refusals by account.
pub struct Searcher {
    tls: Arc<ClientConfig>,
    cache: Mutex<Cached>,
    refused: Mutex<HashMap<String, (Instant, u32)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Searcher {
    pub fn new(tls: Arc<ClientConfig>) -> Self {
        Self {
            tls,
            cache: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// Asks one provider after the other until one has results. Cached results are per namespace.
    pub async fn search(
        &self,
        namespace: &str,
        query: &SearchQuery,
        providers: &[Provider],
        services: &dyn SearchServices,
    ) -> Searched {
        let key = CacheKey {
            namespace: namespace.to_owned(),
            query: query.clone(),
        };
        if let Some(found) = self.cached(&key) {
            return found;
        }
        let mut attempts = Vec::new();
        for provider in providers {
            let begun = Instant::now();
            let verdict = match self.is_backing_off(namespace, provider) {
                true => Verdict::of(Outcome::BackingOff, None),
                false => self.ask(provider, query, services).await,
            };
            self.record_outcome(namespace, provider, verdict.outcome);
            attempts.push(Attempt {
                provider: provider.kind,
                outcome: verdict.outcome,
                detail: verdict.detail.map(|detail| line(&detail, TITLE_CHARS_MAX)),
                ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            });
            let hits = sanitised(verdict.hits, query.results_max);
            if !hits.is_empty() {
                let found = Searched {
                    provider: Some(provider.kind),
                    hits,
                    attempts,
                    is_cached: false,
                };
                self.keep(key, &found);
                return found;
            }
        }
        Searched {
            provider: None,
            hits: Vec::new(),
            attempts,
            is_cached: false,
        }
    }

    fn cached(&self, key: &CacheKey) -> Option<Searched> {
        let mut cache = lock(&self.cache);
        cache.retain(|_, (found, _)| found.elapsed() < CACHE_AGE_MAX);
        let (_, found) = cache.get(key)?;
        Some(Searched {
            is_cached: true,
            ..found.clone()
        })
    }

    fn keep(&self, key: CacheKey, found: &Searched) {
        let mut cache = lock(&self.cache);
        if cache.len() >= CACHED_MAX
            && let Some(oldest) = cache
                .iter()
                .min_by_key(|(_, (found, _))| *found)
                .map(|(key, _)| key.clone())
        {
            cache.remove(&oldest);
        }
        cache.insert(key, (Instant::now(), found.clone()));
    }

    fn is_backing_off(&self, namespace: &str, provider: &Provider) -> bool {
        let until = lock(&self.refused)
            .get(&account(namespace, provider))
            .map(|(until, _)| *until);
        until.is_some_and(|until| Instant::now() < until)
    }

    fn record_outcome(&self, namespace: &str, provider: &Provider, outcome: Outcome) {
        let mut refused = lock(&self.refused);
        if refused.len() >= REFUSED_MAX {
            refused.retain(|_, (until, _)| Instant::now() < *until);
        }
        let account = account(namespace, provider);
        if outcome.backs_off() {
            if refused.len() >= REFUSED_MAX && !refused.contains_key(&account) {
                return;
            }
            let (until, times) = refused.entry(account).or_insert((Instant::now(), 0));
            *until = Instant::now() + (BACK_OFF * 2_u32.pow((*times).min(DOUBLINGS_MAX))).min(BACK_OFF_MAX);
            *times += 1;
        } else if outcome != Outcome::BackingOff {
            refused.remove(&account);
        }
    }

    async fn ask(&self, provider: &Provider, query: &SearchQuery, services: &dyn SearchServices) -> Verdict {
        let key = match &provider.key {
            Some(name) => match services.key(name).await {
                Ok(key) => Some(key),
                Err(why) => return Verdict::of(Outcome::KeyMissing, why),
            },
            None => None,
        };
        let Some(request) = providers::request(provider, query, key.as_deref().map(String::as_str)) else {
            return Verdict::of(Outcome::KeyMissing, "its key cannot be sent".to_owned());
        };
        let dial = services.dial(provider);
        let answer = match request.run(&*dial, &self.tls).await {
            Ok(answer) => answer,
            Err(ExchangeError::TimedOut) => return Verdict::of(Outcome::TimedOut, None),
            Err(ExchangeError::Refused(error)) if !error.is_unreachable() => {
                return Verdict::of(Outcome::Denied, error.what);
            }
            // The error text never contains the request, which may hold a key.
            Err(error) => return Verdict::of(Outcome::Unreachable, error.to_string()),
        };
        match answer.status {
            200 => {}
            401 | 403 if key.is_some() => return Verdict::of(Outcome::KeyRefused, None),
            status => return providers::refusal(provider.kind, status),
        }
        match provider.kind {
            ProviderKind::DuckDuckGo => self.read_page(&answer, services).await,
            kind => providers::read(kind, &answer.body),
        }
    }

    /// Reads a page of results in a worker, because HTML is hostile.
    async fn read_page(&self, answer: &crate::exchange::Answer, services: &dyn SearchServices) -> Verdict {
        let head = document::Question {
            url: String::new(),
            content_type: "text/html; charset=utf-8".to_owned(),
            coding: String::new(),
            is_cut: answer.is_cut,
            reads: document::Reads::Results,
        };
        let question = match document::question(&head, &answer.body) {
            Ok(question) => question,
            Err(error) => return Verdict::of(Outcome::Changed, error.to_string()),
        };
        let page = match services.parse(question).await {
            Ok(answer) => document::parse_results(&answer),
            Err(why) => return Verdict::of(Outcome::Changed, why),
        };
        match page {
            Ok(page) if page.is_challenge => {
                Verdict::of(Outcome::Blocked, "it asks whether this is a person".to_owned())
            }
            Ok(page) if page.hits.is_empty() && !page.says_none => Verdict::of(Outcome::Changed, None),
            Ok(page) => Verdict::found(page.hits),
            Err(refusal) => Verdict::of(Outcome::Changed, refusal.why),
        }
    }
}

/// Returns the account that a refusal is for: with a key the namespace's, without one that of all namespaces.
fn account(namespace: &str, provider: &Provider) -> String {
    match provider.key {
        Some(_) => format!("{} {namespace}", provider.at),
        None => provider.at.to_string(),
    }
}

/// Returns each page once, with texts of one line; hits without an HTTP or HTTPS URL are left out.
fn sanitised(hits: Vec<Hit>, max: usize) -> Vec<Hit> {
    let mut seen = Vec::new();
    let mut kept = Vec::new();
    for hit in hits {
        let Ok(url) = Target::read(&hit.url) else { continue };
        let same = url.as_str().trim_end_matches('/').to_owned();
        if seen.contains(&same) {
            continue;
        }
        seen.push(same);
        kept.push(Hit {
            title: line(&hit.title, TITLE_CHARS_MAX),
            url: url.as_str().to_owned(),
            snippet: line(&hit.snippet, SNIPPET_CHARS_MAX),
            published: hit
                .published
                .map(|date| line(&date, DATE_CHARS_MAX))
                .filter(|date| !date.is_empty()),
        });
        if kept.len() == max.min(HITS_MAX) {
            break;
        }
    }
    kept
}

/// Returns a provider's text without markup and invisible characters, in one line.
fn line(text: &str, max: usize) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        plain.push_str(before);
        match after.split_once('>') {
            Some((tag, after)) if tag.len() < 64 => rest = after,
            _ => {
                plain.push('<');
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    for (entity, character) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&#x27;", "'"),
        ("&nbsp;", " "),
        ("&amp;", "&"),
    ] {
        plain = plain.replace(entity, character);
    }
    fence::line(&plain, max)
}

#[cfg(test)]
mod tests;
