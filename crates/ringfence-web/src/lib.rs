//! Pages and searches for agents. One half makes requests: it reads URLs, sends requests over connections that it is
//! given, follows redirects, drives a browser, and knows the search providers. The other half reads the answers, and
//! runs only inside a jailed worker ([`read_document`]): codings, charsets, HTML, PDF.
//!
//! Nothing here opens a connection. The caller supplies a [`Dial`], which judges every destination.
#![forbid(unsafe_code)]
#![expect(
    missing_docs,
    reason = "an internal crate: names that explain themselves have no comment"
)]

mod browser;
mod cdp;
mod charset;
mod coding;
mod dial;
mod document;
mod exchange;
mod fence;
mod fetch;
mod hidden;
mod html;
mod kind;
mod pace;
mod pdf;
mod results;
mod robots;
mod search;
mod target;

pub use browser::{BrowserError, BrowserPage, BrowserRequest, WaitUntil, browse, chromium_arguments};
pub use dial::{ConnectFuture, Dial, DialError, Stream};
pub use document::{Question, Reads, Refusal, parse_answer, question, read_document};
pub use exchange::ExchangeError;
pub use fence::{Fence, clean};
pub use fetch::{Fetch, FetchError, FetchLimits, Fetched, Fetcher, Robots};
pub use hidden::HiddenText;
pub use html::{Document, main_text};
pub use kind::{DocumentKind, Extraction};
pub use results::Hit;
pub use search::{
    Attempt, KeyFuture, Outcome, ParsedFuture, Provider, ProviderKind, Recency, SearchQuery, SearchServices,
    Searched, Searcher,
};
pub use target::{Target, TargetError, URL_BYTES_MAX};
