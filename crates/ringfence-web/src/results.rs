//! Search results, and DuckDuckGo's page of results, which is read in the jailed worker.

use scraper::{ElementRef, Html, Selector};
use serde::{Deserialize, Serialize};
use url::Url;

pub(crate) const HITS_MAX: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hit {
    pub title: String,
    pub url: String,
    pub snippet: String,
    pub published: Option<String>,
}

/// A page of results, as the worker reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResultsPage {
    pub(crate) hits: Vec<Hit>,
    pub(crate) says_none: bool,
    pub(crate) is_challenge: bool,
}

/// Reads DuckDuckGo's page of results in the version without scripts.
pub(crate) fn duckduckgo_page(text: &str) -> ResultsPage {
    let html = Html::parse_document(text);
    let (Ok(result), Ok(link), Ok(snippet), Ok(none), Ok(challenge)) = (
        Selector::parse(".result"),
        Selector::parse("a.result__a"),
        Selector::parse(".result__snippet"),
        Selector::parse(".no-results, .result--no-result"),
        Selector::parse(".anomaly-modal__title, #challenge-form"),
    ) else {
        return ResultsPage::default();
    };
    let words = |element: ElementRef<'_>| element.text().collect::<String>();
    let is_ad = |element: &ElementRef<'_>| element.value().classes().any(|class| class == "result--ad");
    let hit = |element: ElementRef<'_>| {
        let link = element.select(&link).next()?;
        Some(Hit {
            title: words(link),
            url: link_target(link.attr("href")?)?,
            snippet: element.select(&snippet).next().map(words).unwrap_or_default(),
            published: None,
        })
    };
    let found = html
        .select(&result)
        .filter(|element| !is_ad(element))
        .filter_map(hit);
    ResultsPage {
        hits: found.take(2 * HITS_MAX).collect(),
        says_none: html.select(&none).next().is_some(),
        is_challenge: html.select(&challenge).next().is_some(),
    }
}

/// Returns the target of a link. Links may go through a redirect of DuckDuckGo, whose parameter `uddg` is the target.
fn link_target(href: &str) -> Option<String> {
    let base = Url::parse("https://duckduckgo.com/").ok()?;
    let url = base.join(href).ok()?;
    let redirects = url.domain().is_some_and(|name| name.ends_with("duckduckgo.com")) && url.path() == "/l/";
    if !redirects {
        return Some(url.into());
    }
    url.query_pairs()
        .find(|(name, _)| name == "uddg")
        .map(|(_, value)| value.into_owned())
}
