//! Requests to providers, and the meaning of their answers.

use super::{providers::read, *};
use crate::results::duckduckgo_page;

fn provider(text: &str) -> Provider {
    text.parse().unwrap()
}

fn query() -> SearchQuery {
    SearchQuery {
        text: "a & b".to_owned(),
        results_max: 5,
        recency: Some(Recency::Week),
    }
}

#[test]
fn requests_follow_the_api_of_each_provider() {
    let check = |text: &str, key: Option<&str>, expect: &str| {
        let request = providers::request(&provider(text), &query(), key).unwrap();
        assert_eq!(request.to.as_str(), expect);
        request
    };
    check(
        "searxng=http://127.0.0.1:8888/x/",
        None,
        "http://127.0.0.1:8888/x/search?q=a+%26+b&format=json&time_range=week",
    );
    let brave = check(
        "brave key K",
        Some("s3cret"),
        "https://api.search.brave.com/res/v1/web/search?q=a+%26+b&count=5&freshness=pw",
    );
    assert!(
        brave
            .headers
            .iter()
            .any(|(name, value)| name == "x-subscription-token" && value == "s3cret")
    );
    let tavily = check("tavily key K", Some("s3cret"), "https://api.tavily.com/search");
    assert_eq!(tavily.method, "POST");
    assert!(tavily.headers.iter().any(|(_, value)| value == "Bearer s3cret"));
    check(
        "mojeek key K",
        Some("s3cret"),
        "https://api.mojeek.com/search?q=a+%26+b&fmt=json&t=5&api_key=s3cret&since=week",
    );
    check(
        "duckduckgo",
        None,
        "https://html.duckduckgo.com/html/?q=a+%26+b&df=w",
    );
    assert!(providers::request(&provider("brave key K"), &query(), None).is_none());
    assert!(providers::request(&provider("brave key K"), &query(), Some("a\r\nb: c")).is_none());
}

#[test]
fn provider_answers_map_to_outcomes() {
    let check = |kind: ProviderKind, body: &str, outcome: Outcome, hits: usize| {
        let verdict = read(kind, body.as_bytes());
        assert_eq!((verdict.outcome, verdict.hits.len()), (outcome, hits), "{body}");
    };
    use ProviderKind::{Brave, Mojeek, Searxng, Tavily};
    let result = r#"{"url":"https://a.test/","title":"A","content":"c"}"#;
    check(Searxng, &format!("{{\"results\":[{result}]}}"), Outcome::Found, 1);
    check(
        Searxng,
        r#"{"results":[],"unresponsive_engines":[]}"#,
        Outcome::NoResults,
        0,
    );
    check(
        Searxng,
        r#"{"results":[],"unresponsive_engines":[["google","CAPTCHA"]]}"#,
        Outcome::Blocked,
        0,
    );
    check(Searxng, "<html>", Outcome::Changed, 0);
    check(
        Brave,
        r#"{"query":{},"web":{"results":[{"url":"https://a.test/","title":"A","description":"d","page_age":"2025-01-01"}]}}"#,
        Outcome::Found,
        1,
    );
    check(Brave, r#"{"query":{}}"#, Outcome::NoResults, 0);
    check(Brave, r#"{"found":[]}"#, Outcome::Changed, 0);
    check(Tavily, &format!("{{\"results\":[{result}]}}"), Outcome::Found, 1);
    check(
        Tavily,
        r#"{"results":[{"link":"https://a.test/"}]}"#,
        Outcome::Changed,
        0,
    );
    check(
        Mojeek,
        r#"{"response":{"status":"OK","results":[{"url":"https://a.test/","title":"A","desc":"d"}]}}"#,
        Outcome::Found,
        1,
    );
    check(
        Mojeek,
        r#"{"response":{"status":"Invalid API key"}}"#,
        Outcome::KeyRefused,
        0,
    );
}

#[test]
fn error_status_means_blocked_only_for_some_providers() {
    use ProviderKind::{Brave, DuckDuckGo, Mojeek, Searxng, Tavily};
    for (kind, status, outcome) in [
        (DuckDuckGo, 202, Outcome::Blocked),
        (DuckDuckGo, 400, Outcome::Blocked),
        (Brave, 400, Outcome::Changed),
        (Tavily, 400, Outcome::Changed),
        (Mojeek, 400, Outcome::Changed),
        (Searxng, 403, Outcome::Blocked),
        (Brave, 429, Outcome::Quota),
        (Brave, 503, Outcome::Unreachable),
        (Brave, 302, Outcome::Changed),
    ] {
        let verdict = providers::refusal(kind, status);
        assert_eq!(verdict.outcome, outcome, "{status}");
    }
}

#[test]
fn duckduckgo_page_is_read_and_its_redirect_links_resolved() {
    let page = duckduckgo_page(
        "<div class='result result--ad'><a class=result__a href='https://ad.test/'>Ad</a></div>\
         <div class='result'><h2><a class='result__a' href='//duckduckgo.com/l/?uddg=https%3A%2F%2Fa.test%2Fx%3Fy%3D1&amp;rut=0'>\
         The <b>A</b></a></h2><a class='result__snippet'>words &amp; <b>more</b></a></div>\
         <div class='result'><a class='result__a' href='https://b.test/'>B</a></div>",
    );
    let urls: Vec<&str> = page.hits.iter().map(|hit| hit.url.as_str()).collect();
    assert_eq!(urls, ["https://a.test/x?y=1", "https://b.test/"]);
    assert_eq!(
        (page.hits[0].title.as_str(), page.hits[0].snippet.as_str()),
        ("The A", "words & more")
    );
    assert!(duckduckgo_page("<div class='no-results'>No results.</div>").says_none);
    assert!(duckduckgo_page("<form id='challenge-form'></form>").is_challenge);
}

#[test]
fn hits_are_plain_text_with_web_urls() {
    let hit = |url: &str, title: &str| Hit {
        title: title.to_owned(),
        url: url.to_owned(),
        snippet: "a\u{200b} <strong>b</strong> &lt;i&gt;\n c".to_owned(),
        published: None,
    };
    let sanitised = sanitised(
        vec![
            hit("https://a.test/", "A"),
            hit("https://a.test", "A again"),
            hit("javascript:alert(1)", "no"),
            hit("https://user:pw@b.test/", "no"),
            hit("https://c.test/", "x < y"),
        ],
        10,
    );
    let lines: Vec<String> = sanitised
        .iter()
        .map(|hit| format!("{} {} {}", hit.url, hit.title, hit.snippet))
        .collect();
    assert_eq!(
        lines,
        ["https://a.test/ A a b <i> c", "https://c.test/ x < y a b <i> c"]
    );
}
