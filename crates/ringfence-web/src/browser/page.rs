//! Operations on an open page: wait for it, read it, take its screenshot.

use super::BrowserError;
use crate::{
    cdp::{Cdp, CdpError, CdpEvent},
    fence::line,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ringfence_redact::Redactor;
use serde_json::{Value, json};

const ERRORS_MAX: usize = 20;
const NODES_MAX: usize = 2000;
const NAME_CHARS_MAX: usize = 120;
const DEPTH_MAX: usize = 40;

/// Events that are kept.
pub(super) const KEPT_EVENTS: &[&str] = &[
    "Inspector.targetCrashed",
    "Log.entryAdded",
    "Network.responseReceived",
    "Page.lifecycleEvent",
    "Runtime.consoleAPICalled",
    "Runtime.exceptionThrown",
];

/// Isolated world of our scripts, in which the page's scripts cannot have replaced anything. They call methods of
/// prototypes, because the names of elements shadow the methods of documents and forms.
const WORLD: &str = "ringfence";
/// Marks elements that are not displayed, and text that is too small, transparent or outside of the page, as hidden,
/// and removes elements beyond 50,000. Returns the URL, up to `MOST` characters of HTML, and whether there was more.
const READ: &str = "(() => {
  const skip = new Set(['SCRIPT', 'STYLE', 'NOSCRIPT', 'TEMPLATE', 'BR', 'WBR']);
  const {checkVisibility, setAttribute, getBoundingClientRect, remove} = Element.prototype;
  const {querySelectorAll, createElement} = Document.prototype;
  const all = selector => [...querySelectorAll.call(document, selector)];
  const texts = e => [...e.childNodes].filter(node => node.nodeType === 3 && node.data.trim());
  const parent = Object.getOwnPropertyDescriptor(Node.prototype, 'parentElement').get;
  const isPainted = e => {
    for (; e; e = parent.call(e)) {
      const {webkitBackgroundClip, backgroundImage, backgroundSize} = getComputedStyle(e);
      const seen = backgroundImage.replace(/rgba\\([^()]*, 0\\)|[a-z]+\\([^()]*\\/ 0\\)/g, '');
      if (webkitBackgroundClip === 'text' && /(url|rgba?|color|lab|lch)\\(/.test(seen)
        && !/(^| )0[.\\d]*(px|%)/.test(backgroundSize)) return true;
    }
    return false;
  };
  const unseen = e => {
    const style = getComputedStyle(e), box = getBoundingClientRect.call(e);
    return parseFloat(style.fontSize) < 2 || parseFloat(style.textIndent) < -999
      || [style.color, style.webkitTextFillColor].some(color => /^rgba.*,\\s*0\\)$/.test(color)) && !isPainted(e)
      || box.right + scrollX < 0 || box.bottom + scrollY < 0;
  };
  const clipped = ({position, clip, clipPath, transform, scale}) =>
    /absolute|fixed/.test(position)
      && /^rect\\(([-\\d.]+px), .*, \\1, .*\\)$|^rect\\(.*, ([-\\d.]+px), .*, \\2\\)$/.test(clip)
      || /^inset\\((50|100)%\\)$/.test(clipPath) || /^matrix\\(0, 0, 0, 0,/.test(transform) || scale === '0';
  const mark = e => {
    if (!checkVisibility.call(e, {opacityProperty: true, visibilityProperty: true}) || clipped(getComputedStyle(e)))
      setAttribute.call(e, 'hidden', '');
    else if (texts(e).length && unseen(e))
      for (const text of texts(e)) {
        const span = createElement.call(document, 'span');
        setAttribute.call(span, 'hidden', '');
        text.replaceWith(span);
        span.append(text);
      }
  };
  const elements = all('body *'), rest = elements.splice(50000);
  for (const e of rest) remove.call(e);
  for (const e of elements) try { if (!skip.has(e.tagName)) mark(e); } catch {}
  const html = all('html')[0].outerHTML;
  return [location.href, html.slice(0, MOST), html.length > MOST || rest.length > 0];
})()";
/// Resolves when an element matches; with `false` if the text is not a selector.
const SELECTED: &str = "new Promise(done => {
  const find = () => Document.prototype.querySelector.call(document, SELECTOR);
  const look = () => { if (find()) { watch.disconnect(); done(true); } };
  const watch = new MutationObserver(look);
  try { find() } catch { done(false); return; }
  watch.observe(document, {childList: true, subtree: true, attributes: true});
  look();
})";

pub(super) struct PageTree {
    pub(super) url: String,
    pub(super) html: String,
    pub(super) is_cut: bool,
}

/// State of the page, from its events.
#[derive(Debug, Default)]
pub(super) struct Page {
    frame: String,
    loader: String,
    pub(super) status: Option<u16>,
    pub(super) console_errors: Vec<String>,
    /// Lifecycle events of the current document so far.
    reached: Vec<String>,
}

impl Page {
    /// Takes the result of `Page.navigate`.
    pub(super) fn begin(&mut self, navigated: &Value) {
        let text = |name: &str| navigated[name].as_str().unwrap_or_default().to_owned();
        (self.frame, self.loader) = (text("frameId"), text("loaderId"));
    }

    /// Handles an event, unless it is a lifecycle event of another document.
    pub(super) fn handle_if_current(&mut self, event: &CdpEvent) {
        let is_lifecycle = event.method == "Page.lifecycleEvent";
        if !is_lifecycle || event.params["loaderId"] == self.loader.as_str() {
            self.handle(event);
        }
    }

    fn handle(&mut self, event: &CdpEvent) {
        let params = &event.params;
        match event.method.as_str() {
            "Page.lifecycleEvent" if params["frameId"] == self.frame.as_str() => {
                let name = params["name"].as_str().unwrap_or_default();
                // A script or a refresh has started another document.
                if name == "init" || params["loaderId"] != self.loader.as_str() {
                    self.reached.clear();
                    self.loader = params["loaderId"].as_str().unwrap_or_default().to_owned();
                }
                if self.reached.len() < ERRORS_MAX && !self.has_reached(name) {
                    self.reached.push(name.to_owned());
                }
            }
            "Network.responseReceived"
                if params["type"] == "Document" && params["frameId"] == self.frame.as_str() =>
            {
                self.status = params["response"]["status"]
                    .as_u64()
                    .and_then(|status| u16::try_from(status).ok());
            }
            "Runtime.exceptionThrown" => {
                let details = &params["exceptionDetails"];
                let thrown = details["exception"]["description"]
                    .as_str()
                    .or(details["text"].as_str());
                self.error(thrown.unwrap_or_default());
            }
            "Runtime.consoleAPICalled" if params["type"] == "error" => {
                let texts = params["args"].as_array().into_iter().flatten();
                let texts = texts.filter_map(|it| it["value"].as_str().or(it["description"].as_str()));
                self.error(&texts.collect::<Vec<_>>().join(" "));
            }
            "Log.entryAdded" if params["entry"]["level"] == "error" => {
                let entry = &params["entry"];
                let [text, url] = ["text", "url"].map(|name| entry[name].as_str().unwrap_or_default());
                self.error(&format!("{text} {url}"));
            }
            _ => {}
        }
    }

    fn error(&mut self, text: &str) {
        if self.console_errors.len() < ERRORS_MAX {
            self.console_errors.push(text.to_owned());
        }
    }

    fn has_reached(&self, name: &str) -> bool {
        self.reached.iter().any(|reached| reached == name)
    }
}

/// Waits for a lifecycle event of the document.
pub(super) async fn wait_for(browser: &mut Cdp, state: &mut Page, name: &str) -> Result<(), BrowserError> {
    while !state.has_reached(name) {
        let event = browser.event().await?;
        if event.method == "Inspector.targetCrashed" {
            return Err(BrowserError::Gone("the page has crashed".to_owned()));
        }
        state.handle(&event);
    }
    Ok(())
}

/// Waits until an element matches, in this document or one that replaces it.
pub(super) async fn wait_for_selector(
    browser: &mut Cdp,
    state: &mut Page,
    selector: &str,
) -> Result<(), BrowserError> {
    let expression = SELECTED.replace("SELECTOR", &json!(selector).to_string());
    loop {
        match evaluate_isolated(browser, state, &expression).await {
            Ok(answer) if answer["result"]["value"] == true => return Ok(()),
            Ok(_) => return Err(BrowserError::Selector),
            // The document was replaced: try again after the next event.
            Err(CdpError::Refused(_)) => {
                let event = browser.event().await?;
                state.handle(&event);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn evaluate_isolated(browser: &mut Cdp, state: &Page, expression: &str) -> Result<Value, CdpError> {
    let world = json!({"frameId": state.frame, "worldName": WORLD});
    let world = browser.call("Page.createIsolatedWorld", world).await?;
    let evaluate = json!({
        "expression": expression,
        "contextId": world["executionContextId"],
        "awaitPromise": true,
        "returnByValue": true,
    });
    browser.call("Runtime.evaluate", evaluate).await
}

pub(super) async fn screenshot(browser: &mut Cdp) -> Result<Vec<u8>, BrowserError> {
    let captured = browser
        .call("Page.captureScreenshot", json!({"format": "png"}))
        .await?;
    let data = captured["data"].as_str().unwrap_or_default();
    STANDARD
        .decode(data)
        .map_err(|error| BrowserError::Gone(format!("its screenshot cannot be decoded: {error}")))
}

pub(super) async fn html(
    browser: &mut Cdp,
    state: &mut Page,
    chars_max: usize,
) -> Result<PageTree, BrowserError> {
    let read = evaluate_isolated(browser, state, &READ.replace("MOST", &chars_max.to_string())).await?;
    let values = &read["result"]["value"];
    let text = |at: usize| {
        values[at]
            .as_str()
            .ok_or_else(|| BrowserError::Gone("it gave no document".to_owned()))
    };
    let tree = PageTree {
        url: text(0)?.to_owned(),
        // A hostile browser may send more than it was asked for.
        html: text(1)?.chars().take(chars_max).collect(),
        is_cut: values[2] == true,
    };
    // Events that arrived meanwhile.
    while let Some(event) = browser.buffered_event() {
        state.handle(&event);
    }
    Ok(tree)
}

/// Returns the roles and names of the accessibility tree, a node per line.
pub(super) async fn accessibility(browser: &mut Cdp, redactor: &Redactor) -> Result<String, BrowserError> {
    browser.call("Accessibility.enable", json!({})).await?;
    let tree = browser.call("Accessibility.getFullAXTree", json!({})).await?;
    let nodes = tree["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(outline(nodes, redactor))
}

/// Returns the redacted names of nodes, each in one line. Each line of a secret may be a name: all are searched as one.
fn names(nodes: &[&Value], redactor: &Redactor) -> Vec<String> {
    let own = |node: &&Value| {
        redactor
            .text(node["name"]["value"].as_str().unwrap_or_default())
            .into_owned()
    };
    let own: Vec<String> = nodes.iter().map(own).collect();
    // Filling keeps the lengths, so each name keeps its place.
    let filled = redactor.filled().text(&own.join("\n")).into_owned();
    let mut end = 0;
    let name = |name: &String| {
        let start = end;
        end += name.len() + 1;
        line(filled.get(start..end - 1).unwrap_or_default(), NAME_CHARS_MAX)
    };
    own.iter().map(name).collect()
}

fn outline(nodes: &[Value], redactor: &Redactor) -> String {
    let mut depths = std::collections::HashMap::new();
    let mut text = String::new();
    let listed: Vec<&Value> = nodes.iter().filter(|node| is_in_outline(node)).collect();
    let first = &listed[..listed.len().min(NODES_MAX)];
    let mut names = names(first, redactor).into_iter();
    for node in nodes {
        let above = node["parentId"]
            .as_str()
            .and_then(|parent| depths.get(parent))
            .copied()
            .unwrap_or(0_usize);
        let is_in_outline = is_in_outline(node);
        depths.insert(
            node["nodeId"].as_str().unwrap_or_default(),
            above + usize::from(is_in_outline),
        );
        if is_in_outline {
            let Some(name) = names.next() else { break };
            let indent = "  ".repeat(above.min(DEPTH_MAX));
            let role = line(node["role"]["value"].as_str().unwrap_or_default(), NAME_CHARS_MAX);
            text.push_str(&format!("{indent}- {role} {}\n", json!(name)));
        }
    }
    if listed.len() > NODES_MAX {
        text.push_str(&format!("... {} more nodes\n", listed.len() - NODES_MAX));
    }
    text
}

/// False for ignored nodes, nodes of layout only, and text without visible characters.
fn is_in_outline(node: &Value) -> bool {
    let name = node["name"]["value"].as_str().unwrap_or_default();
    match node["role"]["value"].as_str().unwrap_or_default() {
        "" | "InlineTextBox" | "generic" | "none" => false,
        "StaticText" if line(name, NAME_CHARS_MAX).is_empty() => false,
        _ => node["ignored"] != true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_redact::{Forms, Personal};

    #[test]
    fn secret_across_adjacent_node_names_is_redacted() {
        let redactor = Redactor::new(
            ["first line é\nsecond line", "a word"],
            Forms::All,
            Personal::Keep,
        );
        let node =
            |name: &str| json!({"nodeId": name, "role": {"value": "StaticText"}, "name": {"value": name}});
        let nodes = ["the first line é", "second line!", "a word", "other"].map(node);
        assert_eq!(
            outline(&nodes, &redactor),
            "- StaticText \"the *************\"\n- StaticText \"***********!\"\n- StaticText \"***REDACTED***\"\n\
             - StaticText \"other\"\n"
        );
    }

    #[test]
    fn outline_counts_only_the_nodes_left_out() {
        let redactor = Redactor::new([""; 0], Forms::All, Personal::Keep);
        let node = |number: usize, role: &str| json!({"nodeId": number.to_string(), "role": {"value": role}, "name": {"value": "x"}});
        let mut nodes: Vec<Value> = (0..NODES_MAX + 500)
            .map(|number| node(number, "generic"))
            .collect();
        nodes.extend((0..NODES_MAX).map(|number| node(number, "InlineTextBox")));
        nodes.extend((0..NODES_MAX).map(|number| node(number, "link")));
        let text = outline(&nodes, &redactor);
        assert_eq!(text.lines().count(), NODES_MAX);
        nodes.extend((0..3).map(|number| node(number, "link")));
        assert_eq!(outline(&nodes, &redactor), format!("{text}... 3 more nodes\n"));
    }
}
