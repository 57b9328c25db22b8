//! What is done with a page that is open: wait for it, read it, draw it.

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

/// The events that matter here.
pub(super) const HEARD: &[&str] = &[
    "Inspector.targetCrashed",
    "Log.entryAdded",
    "Network.responseReceived",
    "Page.lifecycleEvent",
    "Runtime.consoleAPICalled",
    "Runtime.exceptionThrown",
];

/// Scripts run in a world of their own, where the page's have replaced nothing; and documents and elements are asked by
/// their prototypes, because names of elements stand in front of their methods.
const WORLD: &str = "ringfence";
/// Marks what is not displayed, and text that is too small, transparent or outside of the page; and gives the rest.
/// `MOST` is the length.
const READ: &str = "(() => {
  const skip = new Set(['SCRIPT', 'STYLE', 'NOSCRIPT', 'TEMPLATE', 'BR', 'WBR']);
  const {checkVisibility, setAttribute, getBoundingClientRect} = Element.prototype;
  const {querySelectorAll, createElement} = Document.prototype;
  const all = selector => [...querySelectorAll.call(document, selector)];
  const texts = e => [...e.childNodes].filter(node => node.nodeType === 3 && node.data.trim());
  const unseen = e => {
    const style = getComputedStyle(e), box = getBoundingClientRect.call(e);
    return parseFloat(style.fontSize) < 2 || /^rgba.*,\\s*0\\)$/.test(style.color)
      || box.right + scrollX < 0 || box.bottom + scrollY < 0;
  };
  const mark = e => {
    if (!checkVisibility.call(e, {opacityProperty: true, visibilityProperty: true})) setAttribute.call(e, 'hidden', '');
    else if (texts(e).length && unseen(e))
      for (const text of texts(e)) {
        const span = createElement.call(document, 'span');
        setAttribute.call(span, 'hidden', '');
        text.replaceWith(span);
        span.append(text);
      }
  };
  for (const e of all('body *').slice(0, 50000)) try { if (!skip.has(e.tagName)) mark(e); } catch {}
  const html = all('html')[0].outerHTML;
  return [location.href, html.slice(0, MOST), html.length > MOST];
})()";
/// Ends when an element is there; `false`: that is not a selector.
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

/// What was heard of the page.
#[derive(Debug, Default)]
pub(super) struct Watch {
    frame: String,
    loader: String,
    pub(super) status: Option<u16>,
    pub(super) console_errors: Vec<String>,
    /// What the present document has come to.
    reached: Vec<String>,
}

impl Watch {
    /// The answer of `Page.navigate`.
    pub(super) fn begin(&mut self, went: &Value) {
        went["frameId"]
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut self.frame);
        went["loaderId"]
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut self.loader);
    }

    /// Hears what is not about another document.
    pub(super) fn hear_of_present(&mut self, event: &CdpEvent) {
        let is_lifecycle = event.method == "Page.lifecycleEvent";
        if !is_lifecycle || event.params["loaderId"] == self.loader.as_str() {
            self.hear(event);
        }
    }

    fn hear(&mut self, event: &CdpEvent) {
        let params = &event.params;
        match event.method.as_str() {
            "Page.lifecycleEvent" if params["frameId"] == self.frame.as_str() => {
                let name = params["name"].as_str().unwrap_or_default();
                // A script, or a refresh, has led on to another document.
                if name == "init" || params["loaderId"] != self.loader.as_str() {
                    self.reached.clear();
                    self.loader = params["loaderId"].as_str().unwrap_or_default().to_owned();
                }
                if self.reached.len() < ERRORS_MAX {
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
                let said = params["args"].as_array().into_iter().flatten();
                let said = said.filter_map(|value| value["value"].as_str().or(value["description"].as_str()));
                self.error(&said.collect::<Vec<_>>().join(" "));
            }
            "Log.entryAdded" if params["entry"]["level"] == "error" => {
                let entry = &params["entry"];
                let (text, url) = (entry["text"].as_str(), entry["url"].as_str());
                self.error(&format!(
                    "{} {}",
                    text.unwrap_or_default(),
                    url.unwrap_or_default()
                ));
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

/// Until the document has come so far.
pub(super) async fn wait_for(browser: &mut Cdp, watch: &mut Watch, name: &str) -> Result<(), BrowserError> {
    while !watch.has_reached(name) {
        let event = browser.event().await?;
        if event.method == "Inspector.targetCrashed" {
            return Err(BrowserError::Gone("the page has crashed it".to_owned()));
        }
        watch.hear(&event);
    }
    Ok(())
}

/// Until an element is there, in this document or one that follows it.
pub(super) async fn wait_for_selector(
    browser: &mut Cdp,
    watch: &mut Watch,
    selector: &str,
) -> Result<(), BrowserError> {
    let expression = SELECTED.replace("SELECTOR", &json!(selector).to_string());
    loop {
        match in_own_world(browser, watch, &expression).await {
            Ok(answer) if answer["result"]["value"] == true => return Ok(()),
            Ok(_) => return Err(BrowserError::Selector),
            // The document was replaced; the next one is waited for.
            Err(CdpError::Refused(_)) => {
                let event = browser.event().await?;
                watch.hear(&event);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn in_own_world(browser: &mut Cdp, watch: &Watch, expression: &str) -> Result<Value, CdpError> {
    let world = json!({"frameId": watch.frame, "worldName": WORLD});
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
    let drawn = browser
        .call("Page.captureScreenshot", json!({"format": "png"}))
        .await?;
    let data = drawn["data"].as_str().unwrap_or_default();
    STANDARD
        .decode(data)
        .map_err(|error| BrowserError::Gone(format!("its picture cannot be read: {error}")))
}

/// The page's URL and its tree.
pub(super) async fn html(
    browser: &mut Cdp,
    watch: &mut Watch,
    most: usize,
) -> Result<PageTree, BrowserError> {
    let read = in_own_world(browser, watch, &READ.replace("MOST", &most.to_string())).await?;
    let values = &read["result"]["value"];
    let text = |at: usize| {
        values[at]
            .as_str()
            .ok_or_else(|| BrowserError::Gone("it gave no document".to_owned()))
    };
    let tree = PageTree {
        url: text(0)?.to_owned(),
        // It says what it likes, whatever was asked for.
        html: text(1)?.chars().take(most).collect(),
        is_cut: values[2] == true,
    };
    // What was said meanwhile.
    while let Some(event) = browser.said() {
        watch.hear(&event);
    }
    Ok(tree)
}

/// Roles and names, a node to a line.
pub(super) async fn accessibility(browser: &mut Cdp, redactor: &Redactor) -> Result<String, BrowserError> {
    browser.call("Accessibility.enable", json!({})).await?;
    let tree = browser.call("Accessibility.getFullAXTree", json!({})).await?;
    Ok(outline(
        tree["nodes"].as_array().map(Vec::as_slice).unwrap_or_default(),
        redactor,
    ))
}

/// Names of nodes, in one line each. Each line of a secret may be the name of another: together they are searched.
fn names(nodes: &[&Value], redactor: &Redactor) -> Vec<String> {
    let own = |node: &&Value| {
        redactor
            .text(node["name"]["value"].as_str().unwrap_or_default())
            .into_owned()
    };
    let own: Vec<String> = nodes.iter().map(own).collect();
    // A find keeps its length, so each name stays where it is.
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
    let told = nodes
        .iter()
        .filter(|node| node["role"]["value"] != "InlineTextBox");
    let told: Vec<&Value> = told.take(NODES_MAX).collect();
    for (node, name) in told.iter().zip(names(&told, redactor)) {
        let above = node["parentId"]
            .as_str()
            .and_then(|parent| depths.get(parent))
            .copied()
            .unwrap_or(0_usize);
        let role = node["role"]["value"].as_str().unwrap_or_default();
        let is_told = node["ignored"] != true
            && !matches!(role, "none" | "generic" | "")
            && !(role == "StaticText" && name.is_empty());
        depths.insert(
            node["nodeId"].as_str().unwrap_or_default(),
            above + usize::from(is_told),
        );
        if is_told {
            let indent = "  ".repeat(above.min(DEPTH_MAX));
            text.push_str(&format!(
                "{indent}- {} {}\n",
                line(role, NAME_CHARS_MAX),
                json!(name)
            ));
        }
    }
    if nodes.len() > NODES_MAX {
        text.push_str(&format!("... {} more nodes\n", nodes.len() - NODES_MAX));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_redact::{Forms, Personal};

    #[test]
    fn a_secret_is_in_no_names_that_follow_each_other() {
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
}
