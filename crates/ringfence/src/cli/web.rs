//! `ringfence web`: the searches and pages that agents get.

use super::{CommandResult, Context, live, request};
use crate::{
    render::{Rendered, web},
    terminal::neutral,
};
use clap::{Args, Subcommand};
use ringfence_engine::{
    BrowseRequest, Caller, PageRequest, Recency, SearchQuery, SearchRequest, WaitUntil, WebPage,
};
use ringfence_types::{Namespace, RequestError};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

const CALLER: &str = "cli web";

#[derive(Debug, Subcommand)]
pub(super) enum WebAction {
    /// Ask the configured search providers
    Search(SearchArguments),
    /// Fetch a page, a PDF or a picture, as text
    Fetch(FetchArguments),
    /// Open a page in a sandboxed browser, which runs its scripts
    Browser(BrowserArguments),
}

#[derive(Debug, Args)]
pub(super) struct WebOutput {
    /// Namespace whose rules and secrets are used
    #[arg(long, default_value = "default", value_name = "NAME")]
    namespace: Namespace,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct SearchArguments {
    /// Search terms
    query: String,
    /// Maximum number of results
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=20))]
    max_results: u8,
    /// Maximum age of results: day, week, month or year
    #[arg(long, value_name = "AGE")]
    recency: Option<Recency>,
    #[command(flatten)]
    output: WebOutput,
}

#[derive(Debug, Args)]
pub(super) struct FetchArguments {
    /// URL of the page
    url: String,
    /// Maximum number of characters of its text
    #[arg(long, value_name = "N", value_parser = request::whole::<usize>)]
    max_length: Option<usize>,
    /// Continue where an earlier answer ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// Write the picture at the URL to a file
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    #[command(flatten)]
    output: WebOutput,
}

#[derive(Debug, Args)]
pub(super) struct BrowserArguments {
    /// URL of the page
    url: String,
    /// Wait for an element (CSS selector)
    #[arg(long, value_name = "SELECTOR")]
    wait_for_selector: Option<String>,
    /// Wait for: domcontentloaded, load (default with a selector) or networkidle (default without)
    #[arg(long, value_name = "EVENT")]
    wait_until: Option<WaitUntil>,
    /// Milliseconds to wait
    #[arg(long, default_value_t = 30_000, value_name = "N", value_parser = request::whole::<u64>)]
    timeout_ms: u64,
    /// Write a screenshot (PNG) to a file
    #[arg(long, value_name = "FILE")]
    screenshot: Option<PathBuf>,
    /// Add the accessibility tree to the text
    #[arg(long)]
    accessibility_tree: bool,
    /// Maximum number of characters of its text
    #[arg(long, value_name = "N", value_parser = request::whole::<usize>)]
    max_length: Option<usize>,
    #[command(flatten)]
    output: WebOutput,
}

pub(super) fn web(context: &Context, action: WebAction) -> CommandResult {
    let settings = context.begin()?.engine;
    let caller = &Caller::new(CALLER);
    let (json, shown) = match action {
        WebAction::Search(arguments) => {
            let query = SearchQuery {
                text: arguments.query.clone(),
                results_max: usize::from(arguments.max_results),
                recency: arguments.recency,
            };
            let namespace = arguments.output.namespace;
            let wanted = SearchRequest { namespace, query };
            let found = live::with_engine(settings, async |engine| engine.web_search(caller, wanted).await)?;
            let mut shown = web::search(&arguments.query, &found)?;
            shown.text.push('\n');
            (arguments.output.json, shown)
        }
        WebAction::Fetch(arguments) => {
            let wanted = PageRequest {
                namespace: arguments.output.namespace,
                url: arguments.url,
                max_length: arguments.max_length,
                cursor: arguments.cursor,
            };
            let page = live::with_engine(settings, async |engine| engine.fetch_page(caller, wanted).await)?;
            (arguments.output.json, render(page, arguments.picture.as_deref())?)
        }
        WebAction::Browser(arguments) => {
            let wanted = BrowseRequest {
                namespace: arguments.output.namespace,
                url: arguments.url,
                selector: arguments.wait_for_selector,
                wait_until: arguments.wait_until,
                timeout: Duration::from_millis(arguments.timeout_ms),
                screenshot: arguments.screenshot.is_some(),
                accessibility: arguments.accessibility_tree,
                max_length: arguments.max_length,
            };
            let page = live::with_engine(settings, async |engine| engine.browse_page(caller, wanted).await)?;
            let shown = render(page, arguments.screenshot.as_deref())?;
            (arguments.output.json, shown)
        }
    };
    context.show(json, &shown)
}

fn render(page: WebPage, file: Option<&Path>) -> Result<Rendered, RequestError> {
    let mut shown = web::page(&page, Some("`ringfence web browser`"));
    if let (Some(file), Some(picture)) = (file, &page.picture) {
        fs::write(file, &picture.bytes)
            .map_err(|error| super::fault(&format!("write {}", file.display()), &error))?;
        shown.text += &format!(
            "picture: {} ({} x {})\n",
            neutral::line(&file.display().to_string()),
            picture.width,
            picture.height
        );
        shown.facts["picture"] = serde_json::json!(file);
    }
    if !shown.text.ends_with('\n') {
        shown.text.push('\n');
    }
    Ok(shown)
}
