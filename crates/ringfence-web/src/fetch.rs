//! A page by its URL: redirects followed one by one, each judged as if it had been asked for; robots.txt where the
//! operator wants it; nothing that belongs to one host sent to the next.

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
/// RFC 9309, section 2.3.1.2.
const ROBOTS_REDIRECTS_MAX: usize = 5;
/// RFC 9309, section 2.4: no longer than a day.
const ROBOTS_AGE_MAX: Duration = Duration::from_secs(3600);
/// After a failure on the side of the site.
const FAILURE_AGE_MAX: Duration = Duration::from_secs(60);
/// Sites whose rules are kept, of one owner and of all.
const SITES_MAX: [usize; 2] = [64, 512];
/// Of a header that goes on to the worker.
const HEADER_CHARS_MAX: usize = 256;

/// Whether robots.txt is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Robots {
    Obeyed,
    Ignored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    /// The body as it is on the wire.
    pub wire_bytes: usize,
    /// All of it: robots.txt, redirects, body.
    pub time: Duration,
}

pub struct Fetch<'a> {
    pub url: &'a Target,
    pub limits: FetchLimits,
    pub robots: Robots,
    pub dial: &'a dyn Dial,
    /// Who asks: each has a pace and a memory of robots.txt of its own.
    pub owner: &'a str,
}

/// What a host sent, not looked at yet.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Where the redirects have led.
    pub url: Target,
    pub redirects: Vec<String>,
    pub status: u16,
    pub content_type: String,
    /// `Content-Encoding`, as it was sent.
    pub coding: String,
    pub body: Vec<u8>,
    /// It was longer than the limit, and the rest was not read.
    pub is_cut: bool,
}

/// Why there is no page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// A rule refuses the host, or an address of it.
    #[error("{0}")]
    Denied(DialError),
    #[error("it redirects to `{}`, which {error}", to.escape_debug())]
    Redirect { to: String, error: TargetError },
    #[error("it redirects more than {REDIRECTS_MAX} times")]
    TooManyRedirects,
    /// This caller asks this host too often.
    #[error("{host} was asked too often")]
    Busy { host: String },
    #[error("the robots.txt of {host} does not allow it")]
    Robots { host: String },
    /// The host cannot be reached, or does not answer as it should.
    #[error("{url} cannot be had: {why}")]
    Failed { url: String, why: ExchangeError },
}

/// What fetches share: TLS, pace and robots.txt of hosts.
pub struct Fetcher {
    tls: Arc<ClientConfig>,
    pace: Pace,
    robots: Mutex<KnownRobots>,
}

/// By owner and site: what one of them was told is neither used nor seen by another. Until when, and the rules.
type KnownRobots = HashMap<(String, String), (Instant, Arc<RobotRules>)>;

impl Fetcher {
    /// `tls` offers no other protocol than HTTP/1.1.
    pub fn new(tls: Arc<ClientConfig>) -> Self {
        Self {
            tls,
            pace: Pace::default(),
            robots: Mutex::default(),
        }
    }

    pub async fn fetch(&self, wanted: &Fetch<'_>) -> Result<Fetched, FetchError> {
        let until = Instant::now() + wanted.limits.time;
        let mut url = wanted.url.clone();
        let mut redirects = Vec::new();
        loop {
            if wanted.robots == Robots::Obeyed
                && !self
                    .rules_of(&url, wanted, until)
                    .await?
                    .allow(&url.path_and_query())
            {
                return Err(FetchError::Robots {
                    host: url.host().to_owned(),
                });
            }
            self.paced(&url, wanted, until).await?;
            let headers = [
                (ACCEPT, "text/html,application/xhtml+xml,*/*;q=0.8"),
                (ACCEPT_LANGUAGE, "en,*;q=0.5"),
                (ACCEPT_ENCODING, "gzip, br, zstd"),
            ];
            let asked = get(&url, &headers, wanted.limits.wire_bytes, until);
            let answer = asked.run(wanted.dial, &self.tls).await;
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

    async fn paced(&self, url: &Target, wanted: &Fetch<'_>, until: Instant) -> Result<(), FetchError> {
        match self.pace.wait(wanted.owner, url.host(), until).await {
            true => Ok(()),
            false => Err(FetchError::Busy {
                host: url.host().to_owned(),
            }),
        }
    }

    /// What a site's robots.txt says, asked once an hour.
    async fn rules_of(
        &self,
        url: &Target,
        wanted: &Fetch<'_>,
        until: Instant,
    ) -> Result<Arc<RobotRules>, FetchError> {
        let site = (
            wanted.owner.to_owned(),
            url.as_url().origin().ascii_serialization(),
        );
        let now = Instant::now();
        let known = self.known().get(&site).cloned();
        if let Some((_, rules)) = known.filter(|(until, _)| now < *until) {
            return Ok(rules);
        }
        let rules = Arc::new(self.ask_robots(url, wanted, until).await?);
        let mut robots = self.known();
        robots.retain(|_, (until, _)| now < *until);
        if robots.keys().filter(|(owner, _)| *owner == site.0).count() >= SITES_MAX[0] {
            robots.retain(|(owner, _), _| *owner != site.0);
        }
        let age = match *rules == RobotRules::deny_all() {
            true => FAILURE_AGE_MAX,
            false => ROBOTS_AGE_MAX,
        };
        if robots.len() >= SITES_MAX[1] {
            robots.clear();
        }
        robots.insert(site, (now + age, rules.clone()));
        Ok(rules)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, KnownRobots> {
        self.robots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask_robots(
        &self,
        url: &Target,
        wanted: &Fetch<'_>,
        until: Instant,
    ) -> Result<RobotRules, FetchError> {
        let mut at = url.join("/robots.txt").map_err(|error| FetchError::Redirect {
            to: "/robots.txt".to_owned(),
            error,
        })?;
        for _ in 0..=ROBOTS_REDIRECTS_MAX {
            self.paced(&at, wanted, until).await?;
            // It is read here, and nothing is unpacked here.
            let headers = [(ACCEPT, "text/plain,*/*;q=0.8"), (ACCEPT_ENCODING, "identity")];
            let asked = get(&at, &headers, ROBOTS_BYTES_MAX, until);
            let answer = match asked.run(wanted.dial, &self.tls).await {
                Ok(answer) => answer,
                // A rule about paths, which the page itself has to keep: what may not be asked is not there.
                Err(ExchangeError::Refused(error)) if error.rule == "egress.request" => {
                    return Ok(RobotRules::default());
                }
                // The page itself is not reached either; what failed is not remembered.
                Err(why) => return Err(failed(&at, why)),
            };
            // A redirect that leads nowhere is a file that is not there.
            match redirect(&at, &answer) {
                Ok(Some(next)) => at = next,
                Ok(None) => return Ok(rules_in(&answer)),
                Err(_) => return Ok(RobotRules::default()),
            }
        }
        Ok(RobotRules::default())
    }
}

/// Each request is built anew: no cookie, key or referrer of one host is in that to another.
fn get(
    to: &Target,
    headers: &[(HeaderName, &'static str)],
    wire_bytes_max: usize,
    until: Instant,
) -> Exchange {
    let of_each = [(USER_AGENT, AGENT)];
    let headers = of_each.iter().chain(headers);
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

/// Section 2.3.1: what is not there forbids nothing; what fails on the site's side forbids everything.
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

/// Where an answer leads on.
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
