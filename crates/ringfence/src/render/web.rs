//! Results of the web tools, as text and as facts.

use super::Rendered;
use ringfence_engine::{Fence, Searched, WebPage, tried};
use ringfence_types::RequestError;
use serde_json::{Value, json};

const DENIALS_SHOWN: usize = 5;

/// Search results, fenced because their text is untrusted.
pub(crate) fn search(query: &str, found: &Searched) -> Result<Rendered, RequestError> {
    let fence = Fence::random().map_err(|why| {
        RequestError::fault(format!("there are no random bytes: {why}."), "Ask again later.")
    })?;
    let mut list = String::new();
    for (number, hit) in found.hits.iter().enumerate() {
        let date = hit.published.as_ref();
        let date = date.map_or_else(String::new, |date| format!(" ({date})"));
        list += &format!(
            "{}. {}{date}\n   {}\n   {}\n",
            number + 1,
            hit.title,
            hit.url,
            hit.snippet
        );
    }
    let tried = tried(found);
    let mut text = match found.provider {
        Some(provider) => fence.around(provider.as_str(), &list),
        None => "No results.".to_owned(),
    };
    for attempt in tried
        .as_array()
        .into_iter()
        .flatten()
        .filter(|attempt| attempt["outcome"] != "ok")
    {
        let detail = attempt["detail"]
            .as_str()
            .map_or_else(String::new, |detail| format!(" ({detail})"));
        let word = |name: &str| attempt[name].as_str().unwrap_or_default().to_owned();
        text += &format!("\n{}: {}{detail}", word("provider"), word("outcome"));
    }
    let facts = json!({
        "query": query,
        "provider": found.provider.map(|provider| provider.as_str()),
        "results": found.hits,
        "tried": tried,
        "cached": found.is_cached,
        "mark": fence.mark(),
    });
    Ok(Rendered { text, facts })
}

fn fact_line(name: &str, value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(format!("{name}: {text}")),
        other => Some(format!("{name}: {other}")),
    }
}

/// A page: facts about it, then its text. `browser` is the tool or command to name if the page needs scripts.
pub(crate) fn page(page: &WebPage, browser: Option<&str>) -> Rendered {
    let facts = &page.facts;
    let mut head = Vec::new();
    head.extend(fact_line("url", &facts["url"]));
    if facts["status"].as_u64().is_some_and(|status| status >= 400) {
        head.extend(fact_line("HTTP status", &facts["status"]));
    }
    if facts["extraction"] == "fallback" {
        head.extend(fact_line("extraction", &facts["extraction"]));
    }
    let hidden = &facts["hidden"];
    let dropped = hidden["elements"].as_u64().unwrap_or(0) + hidden["invisible"].as_u64().unwrap_or(0);
    if dropped > 0 {
        head.extend(fact_line("hidden characters dropped", &json!(dropped)));
    }
    head.extend(fact_line("pages left out", &facts["pages_left_out"]));
    if facts["needs_script"] == true {
        let next = browser.map_or_else(String::new, |browser| format!(": use {browser}"));
        head.push(format!("its text is made by scripts, which did not run{next}"));
    }
    if facts["timed_out"] == true {
        head.push("the awaited event did not happen in time".to_owned());
    }
    for denial in page.denials.iter().take(DENIALS_SHOWN) {
        head.push(format!("refused: {} ({})", denial.what, denial.rule));
    }
    if let Some(cursor) = facts["cursor"].as_str() {
        let (from, to, all) = (&facts["from"], &facts["to"], &facts["characters"]);
        head.push(format!(
            "characters {from} to {to} of {all}; cursor for more: {cursor}"
        ));
    }
    let text = format!("{}\n{}", head.join("\n"), page.text);
    let mut facts = facts.clone();
    if facts.get("timed_out").is_some() {
        facts["denials"] = json!(page.denials);
        for absent in ["cursor", "pages", "pages_left_out"] {
            facts.as_object_mut().map(|facts| facts.remove(absent));
        }
    }
    Rendered { text, facts }
}
