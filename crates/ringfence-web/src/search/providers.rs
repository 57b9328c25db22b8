//! Requests to each provider, and the meaning of its answers.

use super::{Hit, Outcome, Provider, ProviderKind, Recency, SearchQuery, Verdict};
use crate::{
    Target,
    exchange::{AGENT, Exchange},
    results::HITS_MAX,
};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

const TIME_MAX: Duration = Duration::from_secs(8);
const ANSWER_BYTES_MAX: usize = 4 << 20;
const BRAVE_KEY: HeaderName = HeaderName::from_static("x-subscription-token");

/// Builds the request of a search. `None`: the key is missing or cannot be sent.
pub(super) fn request(provider: &Provider, query: &SearchQuery, key: Option<&str>) -> Option<Exchange> {
    let mut headers = vec![
        (ACCEPT, HeaderValue::from_static("application/json")),
        (USER_AGENT, HeaderValue::from_static(AGENT)),
    ];
    let mut pairs: Vec<(&str, String)> = Vec::new();
    let (mut method, mut body) = ("GET", Vec::new());
    let count = query.results_max.min(HITS_MAX);
    let recency = query.recency.map(|recency| recency.as_str().to_owned());
    let path = match provider.kind {
        ProviderKind::Searxng => {
            pairs.extend([("q", query.text.clone()), ("format", "json".to_owned())]);
            pairs.extend(recency.map(|recency| ("time_range", recency)));
            "search"
        }
        ProviderKind::Brave => {
            pairs.extend([("q", query.text.clone()), ("count", count.to_string())]);
            let letter = query.recency.map(letter);
            pairs.extend(letter.map(|letter| ("freshness", format!("p{letter}"))));
            headers.push((BRAVE_KEY, secret(key?)?));
            "res/v1/web/search"
        }
        ProviderKind::Tavily => {
            let mut payload = json!({"query": query.text, "max_results": count});
            if let Some(recency) = recency {
                payload["time_range"] = json!(recency);
            }
            (method, body) = ("POST", payload.to_string().into_bytes());
            headers.push((CONTENT_TYPE, HeaderValue::from_static("application/json")));
            headers.push((AUTHORIZATION, secret(&format!("Bearer {}", key?))?));
            "search"
        }
        ProviderKind::Mojeek => {
            pairs.extend([
                ("q", query.text.clone()),
                ("fmt", "json".to_owned()),
                ("t", count.to_string()),
                ("api_key", key?.to_owned()),
            ]);
            pairs.extend(recency.map(|recency| ("since", recency)));
            "search"
        }
        ProviderKind::DuckDuckGo => {
            headers[0].1 = HeaderValue::from_static("text/html");
            pairs.push(("q", query.text.clone()));
            pairs.extend(query.recency.map(|recency| ("df", letter(recency).to_string())));
            "html/"
        }
    };
    let mut url = provider.at.join(path).ok()?.as_url().clone();
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
    Some(Exchange {
        to: Target::read(url.as_str()).ok()?,
        method,
        headers,
        body,
        wire_bytes_max: ANSWER_BYTES_MAX,
        until: Instant::now() + TIME_MAX,
    })
}

fn letter(recency: Recency) -> char {
    match recency {
        Recency::Day => 'd',
        Recency::Week => 'w',
        Recency::Month => 'm',
        Recency::Year => 'y',
    }
}

fn secret(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns the meaning of a status that is not 200.
pub(super) fn refusal(kind: ProviderKind, status: u16) -> Verdict {
    let outcome = match status {
        402 | 429 | 432 | 433 => return Verdict::of(Outcome::Quota, None),
        // DuckDuckGo's answers to programs.
        202 | 400 | 418 if kind == ProviderKind::DuckDuckGo => Outcome::Blocked,
        // SearXNG with JSON turned off.
        403 => Outcome::Blocked,
        500..=599 => Outcome::Unreachable,
        _ => Outcome::Changed,
    };
    Verdict::of(outcome, format!("HTTP {status}"))
}

/// A result, under the names that providers use.
#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    title: String,
    url: String,
    #[serde(default, alias = "description", alias = "desc", alias = "content")]
    snippet: Option<String>,
    #[serde(
        default,
        alias = "publishedDate",
        alias = "page_age",
        alias = "published_date",
        alias = "date"
    )]
    published: Option<String>,
}

pub(super) fn read(kind: ProviderKind, body: &[u8]) -> Verdict {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else {
        return Verdict::of(Outcome::Changed, "its answer is not JSON".to_owned());
    };
    let list = match kind {
        ProviderKind::Searxng | ProviderKind::Tavily => answer.get("results"),
        ProviderKind::Brave => match (answer.get("web"), answer.get("query")) {
            (Some(web), _) => web.get("results"),
            // An answer without results has no `web`.
            (None, Some(_)) => return Verdict::found(Vec::new()),
            (None, None) => None,
        },
        ProviderKind::Mojeek => match answer["response"]["status"].as_str() {
            Some("OK") => answer["response"].get("results"),
            Some(status) if status.to_lowercase().contains("key") => {
                return Verdict::of(Outcome::KeyRefused, None);
            }
            _ => None,
        },
        ProviderKind::DuckDuckGo => None,
    };
    let Some(list) = list.and_then(Value::as_array) else {
        return Verdict::of(Outcome::Changed, "its answer has no list of results".to_owned());
    };
    let items = list
        .iter()
        .map(|item| serde_json::from_value::<Item>(item.clone()));
    let hits: Vec<Hit> = items
        .flatten()
        .map(|item| Hit {
            title: item.title,
            url: item.url,
            snippet: item.snippet.unwrap_or_default(),
            published: item.published,
        })
        .collect();
    if hits.is_empty() && !list.is_empty() {
        return Verdict::of(Outcome::Changed, "its results have no URLs".to_owned());
    }
    match silent_engines(&answer) {
        Some(engines) if hits.is_empty() => Verdict::of(Outcome::Blocked, engines),
        _ => Verdict::found(hits),
    }
}

/// Returns the engines that did not answer SearXNG. With any, an empty list does not mean that there are no results.
fn silent_engines(answer: &Value) -> Option<String> {
    let engines = answer.get("unresponsive_engines")?.as_array()?;
    let names = engines
        .iter()
        .filter_map(|engine| engine.get(0).or(Some(engine))?.as_str());
    let names: Vec<&str> = names.take(8).collect();
    (!engines.is_empty()).then(|| format!("its engines did not answer: {}", names.join(", ")))
}
