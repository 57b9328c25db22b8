//! Tools that read the web.

use super::{Answer, Answered, Offer, call::Call, tools};
use crate::{
    api::{BrowserFetch, FetchWebpage, Operation as _, WebSearch, invalid},
    render::web,
};
use ringfence_engine::{BrowseRequest, PageRequest, SearchQuery, SearchRequest, WebPage};
use ringfence_types::{Namespace, RequestError};
use std::time::Duration;

const RESULTS: u64 = 10;
const RESULTS_MAX: u64 = 20;
const TIMEOUT_MS: u64 = 30_000;

impl Call<'_> {
    pub(super) async fn web_search(&self, given: WebSearch, namespace: Namespace) -> Answered {
        let query = SearchQuery {
            text: given.query.clone(),
            results_max: results(given.max_results.map(|number| number.0))?,
            recency: given.recency.map(|word| word.0),
        };
        let request = SearchRequest { namespace, query };
        let found = self
            .until_left(self.engine().web_search(self.caller(), request), CANCELLED)
            .await?;
        Ok(web::search(&given.query, &found)?.into())
    }

    pub(super) async fn fetch_webpage(&self, given: FetchWebpage, namespace: Namespace) -> Answered {
        let request = PageRequest {
            namespace,
            url: given.url,
            max_length: length(given.max_length.map(|number| number.0)),
            cursor: given.cursor,
        };
        let page = self
            .until_left(self.engine().fetch_page(self.caller(), request), CANCELLED)
            .await?;
        Ok(answer(page, self.offer()))
    }

    pub(super) async fn browser_fetch(&self, given: BrowserFetch, namespace: Namespace) -> Answered {
        let request = BrowseRequest {
            namespace,
            url: given.url,
            selector: given.wait_for_selector,
            wait_until: given.wait_until.map(|word| word.0),
            timeout: Duration::from_millis(given.timeout_ms.map_or(TIMEOUT_MS, |number| number.0)),
            screenshot: given.screenshot == Some(true),
            accessibility: given.accessibility_tree == Some(true),
            max_length: length(given.max_length.map(|number| number.0)),
        };
        let page = self
            .until_left(self.engine().browse_page(self.caller(), request), CANCELLED)
            .await?;
        Ok(answer(page, self.offer()))
    }
}

/// The refusal if the caller stops waiting; dropping the work closes the page.
const CANCELLED: [&str; 2] = ["the call was cancelled.", "Call again."];

fn answer(page: WebPage, offer: &Offer) -> Answer {
    let browser = BrowserFetch::NAME;
    let browser = tools::find(browser, offer).is_ok().then_some(browser);
    let mut answer: Answer = web::page(&page, browser).into();
    answer.pictures.extend(page.picture);
    answer
}

fn results(requested: Option<u64>) -> Result<usize, RequestError> {
    match requested.unwrap_or(RESULTS) {
        number @ 1..=RESULTS_MAX => Ok(usize::try_from(number).unwrap_or_default()),
        _ => Err(invalid(
            format!("`max_results` is not from 1 to {RESULTS_MAX}."),
            "Leave it out for 10.",
        )),
    }
}

/// Returns the length, which the engine refuses if it is too large.
fn length(requested: Option<u64>) -> Option<usize> {
    requested.map(|number| usize::try_from(number).unwrap_or(usize::MAX))
}
