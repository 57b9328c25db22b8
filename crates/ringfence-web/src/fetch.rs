//! Fetching a page by its URL: redirects are followed one by one, each judged like a requested URL; robots.txt is
//! obeyed where the operator wants it; nothing that belongs to one host is sent to the next.

use crate::{
    Dial, DialError, Target, TargetError,
    exchange::{AGENT, Answer, Exchange, ExchangeError},
    pace::Pace,
    robots::{ROBOTS_BYTES_MAX, RobotRules},
};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue,
    LOCATION, USER_AGENT,
};
use rustls::ClientConfig;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

const REDIRECTS_MAX: usize = 10;
/// Maximum redirects of robots.txt (RFC 9309, section 2.3.1.2).
const ROBOTS_REDIRECTS_MAX: usize = 5;
/// Lifetime of rules; RFC 9309, section 2.4, allows a day.
const ROBOTS_AGE_MAX: Duration = Duration::from_secs(3600);
/// Lifetime of a refusal after a server error of the site.
const FAILURE_AGE_MAX: Duration = Duration::from_secs(60);
/// Maximum weight of the rules that are kept, for an owner and in total.
const WEIGHTS_MAX: [usize; 2] = [64, 512];
/// Maximum characters of a header value that is passed to the worker.
const HEADER_CHARS_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Robots {
    Obeyed,
    Ignored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    /// Bytes of the body on the wire.
    pub wire_bytes: usize,
    /// Time for all requests together: robots.txt, redirects, body.
    pub time: Duration,
}

pub struct Fetch<'a> {
    pub url: &'a Target,
    pub limits: FetchLimits,
    pub robots: Robots,
    pub dial: &'a dyn Dial,
    /// Owner of the request; each owner has its own pace and cache of robots.txt.
    pub owner: &'a str,
}

/// The answer of a host, not parsed yet.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// URL after redirects.
    pub url: Target,
    pub redirects: Vec<String>,
    pub status: u16,
    pub content_type: String,
    /// `Content-Encoding` as received.
    pub coding: String,
    pub body: Vec<u8>,
    /// True if the body was longer than the limit and the rest was not read.
    pub is_cut: bool,
}

/// The reason why there is no page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// A rule refuses the host or one of its addresses.
    #[error("{0}")]
    Denied(DialError),
    #[error("it redirects to `{}`, which {error}", to.escape_debug())]
    Redirect { to: String, error: TargetError },
    #[error("it redirects more than {REDIRECTS_MAX} times")]
    TooManyRedirects,
    /// This owner makes too many requests to this host.
    #[error("{host} was asked too often")]
    Busy { host: String },
    #[error("the robots.txt of {host} does not allow it")]
    Robots { host: String },
    /// The host cannot be reached, or its answer is invalid.
    #[error("{url} cannot be fetched: {why}")]
    Failed { url: String, why: ExchangeError },
}

/// State shared by fetches: TLS, pace, and robots.txt of hosts.
pub struct Fetcher {
    tls: Arc<ClientConfig>,
    pace: Pace,
    robots: Mutex<RobotsCache>,
}

/// Expiry and rules by owner and site, so that an owner neither uses nor observes the rules that another has fetched.
type RobotsCache = HashMap<(String, String), (Instant, Arc<RobotRules>)>;

impl Fetcher {
    /// `tls` must offer no protocol but HTTP/1.1.
    pub fn new(tls: Arc<ClientConfig>) -> Self {
        Self {
            tls,
            pace: Pace::default(),
            robots: Mutex::default(),
        }
    }

    pub async fn fetch(&self, request: &Fetch<'_>) -> Result<Fetched, FetchError> {
        let until = Instant::now() + request.limits.time;
        let mut url = request.url.clone();
        let mut redirects = Vec::new();
        loop {
            if request.robots == Robots::Obeyed
                && !self
                    .robots_rules(&url, request, until)
                    .await?
                    .allow(&url.path_and_query())
            {
                return Err(FetchError::Robots {
                    host: url.host().to_owned(),
                });
            }
            self.wait_for_turn(&url, request, until).await?;
            let headers = [
                (ACCEPT, "text/html,application/xhtml+xml,*/*;q=0.8"),
                (ACCEPT_LANGUAGE, "en,*;q=0.5"),
                (ACCEPT_ENCODING, "gzip, br, zstd"),
            ];
            let exchange = get(&url, &headers, request.limits.wire_bytes, until);
            let answer = exchange.run(request.dial, &self.tls).await;
            let answer = answer.map_err(|why| failed(&url, why))?;
            let Some(next) = redirect(&url, &answer)? else {
                return Ok(fetched(url, redirects, answer));
            };
            if redirects.len() == REDIRECTS_MAX {
                return Err(FetchError::TooManyRedirects);
            }
            redirects.push(next.as_str().to_owned());
            url = next;
        }
    }

    async fn wait_for_turn(&self, url: &Target, of: &Fetch<'_>, until: Instant) -> Result<(), FetchError> {
        match self.pace.wait(of.owner, url.host(), until).await {
            true => Ok(()),
            false => Err(FetchError::Busy {
                host: url.host().to_owned(),
            }),
        }
    }

    /// Returns the robots.txt rules of a site, which are fetched once an hour.
    async fn robots_rules(
        &self,
        url: &Target,
        request: &Fetch<'_>,
        until: Instant,
    ) -> Result<Arc<RobotRules>, FetchError> {
        let site = (
            request.owner.to_owned(),
            url.as_url().origin().ascii_serialization(),
        );
        let now = Instant::now();
        let known = self.cached_robots().get(&site).cloned();
        if let Some((_, rules)) = known.filter(|(until, _)| now < *until) {
            return Ok(rules);
        }
        let rules = Arc::new(self.fetch_robots(url, request, until).await?);
        let mut robots = self.cached_robots();
        robots.retain(|_, (until, _)| now < *until);
        let own = robots.iter().filter(|((owner, _), _)| *owner == site.0);
        if own.map(|(_, (_, rules))| rules.weight()).sum::<usize>() >= WEIGHTS_MAX[0] {
            robots.retain(|(owner, _), _| *owner != site.0);
        }
        let age = match *rules == RobotRules::deny_all() {
            true => FAILURE_AGE_MAX,
            false => ROBOTS_AGE_MAX,
        };
        if robots.values().map(|(_, rules)| rules.weight()).sum::<usize>() >= WEIGHTS_MAX[1] {
            robots.clear();
        }
        robots.insert(site, (now + age, rules.clone()));
        Ok(rules)
    }

    fn cached_robots(&self) -> std::sync::MutexGuard<'_, RobotsCache> {
        self.robots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn fetch_robots(
        &self,
        url: &Target,
        request: &Fetch<'_>,
        until: Instant,
    ) -> Result<RobotRules, FetchError> {
        let mut at = url.join("/robots.txt").map_err(|error| FetchError::Redirect {
            to: "/robots.txt".to_owned(),
            error,
        })?;
        for _ in 0..=ROBOTS_REDIRECTS_MAX {
            self.wait_for_turn(&at, request, until).await?;
            // Without a coding, because it is parsed in this process, where nothing is decoded.
            let headers = [(ACCEPT, "text/plain,*/*;q=0.8"), (ACCEPT_ENCODING, "identity")];
            let exchange = get(&at, &headers, ROBOTS_BYTES_MAX, until);
            let answer = match exchange.run(request.dial, &self.tls).await {
                Ok(answer) => answer,
                // A rule on paths refuses robots.txt: it counts as absent, and the rule judges the page itself.
                Err(ExchangeError::Refused(error)) if error.rule == "egress.request" => {
                    return Ok(RobotRules::default());
                }
                // The page cannot be reached either; failures are not cached.
                Err(why) => return Err(failed(&at, why)),
            };
            // An invalid redirect counts as an absent file.
            match redirect(&at, &answer) {
                Ok(Some(next)) => at = next,
                Ok(None) => return Ok(rules_in(&answer)),
                Err(_) => return Ok(RobotRules::default()),
            }
        }
        Ok(RobotRules::default())
    }
}

/// Builds a new request, which has no cookie, key or referrer of another host.
fn get(
    to: &Target,
    headers: &[(HeaderName, &'static str)],
    wire_bytes_max: usize,
    until: Instant,
) -> Exchange {
    let common = [(USER_AGENT, AGENT)];
    let headers = common.iter().chain(headers);
    Exchange {
        to: to.clone(),
        method: "GET",
        headers: headers
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect(),
        body: Vec::new(),
        wire_bytes_max,
        until,
    }
}

/// Section 2.3.1: a missing file allows everything; a server error, and a file with a coding, denies everything.
fn rules_in(answer: &Answer) -> RobotRules {
    match answer.status {
        200..=299 if is_plain(&answer.headers) => RobotRules::parse(&answer.body),
        500..=599 | 200..=299 => RobotRules::deny_all(),
        _ => RobotRules::default(),
    }
}

fn is_plain(headers: &hyper::HeaderMap) -> bool {
    headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

fn failed(url: &Target, why: ExchangeError) -> FetchError {
    match why {
        ExchangeError::Refused(error) if !error.is_unreachable() => FetchError::Denied(error),
        why => FetchError::Failed {
            url: url.as_str().to_owned(),
            why,
        },
    }
}

fn redirect(from: &Target, answer: &Answer) -> Result<Option<Target>, FetchError> {
    if !matches!(answer.status, 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = answer.headers.get(LOCATION) else {
        return Ok(None);
    };
    let to = String::from_utf8_lossy(location.as_bytes()).into_owned();
    match from.join(&to) {
        Ok(next) => Ok(Some(next)),
        Err(error) => Err(FetchError::Redirect {
            to: to.chars().take(HEADER_CHARS_MAX).collect(),
            error,
        }),
    }
}

fn fetched(url: Target, redirects: Vec<String>, answer: Answer) -> Fetched {
    let text = |name: &HeaderName| {
        let values = answer.headers.get_all(name).iter();
        let values: Vec<_> = values
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .collect();
        values
            .join(",")
            .chars()
            .take(HEADER_CHARS_MAX)
            .collect::<String>()
    };
    Fetched {
        url,
        redirects,
        status: answer.status,
        content_type: text(&CONTENT_TYPE),
        coding: text(&CONTENT_ENCODING),
        body: answer.body,
        is_cut: answer.is_cut,
    }
}

#[cfg(test)]
mod tests;
