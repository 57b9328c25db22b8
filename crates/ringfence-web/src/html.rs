//! The text of a page as Markdown: the main part that an extractor finds, or else the whole body.

use crate::{DocumentKind, Extraction, HiddenText, fence, hidden};
use ego_tree::{NodeId, NodeMut, iter::Edge};
use htmd::{
    Element, HtmlToMarkdown,
    element_handler::{HandlerResult, Handlers},
};
use html5ever::{ParseOpts, QualName, driver, ns, tendril::TendrilSink, tree_builder::Tracer};
use markup5ever_rcdom::NodeData;
use scraper::{ElementRef, Html, HtmlTreeSink, Node, Selector};
use serde::{Deserialize, Serialize};
use std::{cell::Cell, rc::Rc};
use trafilatura::{ExtractResult, Options};
use url::Url;

/// Maximum nesting depth for Markdown; a deeper page becomes plain text, because the converters recurse.
const DEPTH_MAX: usize = 400;
/// Maximum of elements open at once. A page with more is refused, because parsers search all of them for each tag.
const OPEN_ELEMENTS_MAX: usize = 2000;
/// Bytes of a page that are parsed before its open elements are counted.
const PIECE_BYTES: usize = 4 << 10;
/// Minimum characters of a main part; a shorter one is ignored.
const MAIN_CHARS_MIN: usize = 60;
/// A page with scripts and less text than this counts as made by scripts.
const SCRIPTED_CHARS_MAX: usize = 200;
const FIELD_CHARS_MAX: usize = 300;
/// Elements whose content is never text.
const TEXTLESS: [&str; 9] = [
    "script", "style", "noscript", "svg", "iframe", "object", "head", "canvas", "math",
];

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    pub kind: DocumentKind,
    /// Markdown; empty for an image.
    pub text: String,
    pub extraction: Extraction,
    pub title: Option<String>,
    pub author: Option<String>,
    pub date: Option<String>,
    pub language: Option<String>,
    pub charset: Option<String>,
    pub hidden: HiddenText,
    pub needs_script: bool,
    pub pages: Option<usize>,
    pub pages_left_out: Option<usize>,
    /// True if text beyond a limit was left out.
    pub is_cut: bool,
}

pub(crate) fn read(text: &str, url: Option<&Url>) -> Result<Document, String> {
    let mut html = parsed(text)
        .ok_or_else(|| format!("more than {OPEN_ELEMENTS_MAX} elements of the page are open at once"))?;
    let mut hidden = hidden::remove(&mut html);
    let mut page = match depth(&html) {
        0..=DEPTH_MAX => extracted(&mut html, url),
        _ => Document {
            text: plain_text(&html),
            extraction: Extraction::Fallback,
            ..Document::default()
        },
    };
    page.needs_script = is_made_by_scripts(&html);
    let (text, invisible) = fence::clean(&page.text);
    hidden.invisible = invisible;
    page.language = page.language.or_else(|| language(&html, &text));
    page.title = page.title.or_else(|| title(&html));
    Ok(Document {
        kind: DocumentKind::Html,
        text,
        hidden,
        ..page
    })
}

/// Parses a page. `None`: too many elements are open at once.
fn parsed(text: &str) -> Option<Html> {
    struct Count(Cell<usize>);
    impl Tracer for Count {
        type Handle = NodeId;
        fn trace_handle(&self, _: &NodeId) {
            self.0.set(self.0.get() + 1);
        }
    }
    let sink = HtmlTreeSink::new(Html::new_document());
    let (mut parser, mut rest) = (driver::parse_document(sink, ParseOpts::default()), text);
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
        parser.process(piece.into());
        let open = Count(Cell::new(0));
        parser.tokenizer.sink.trace_handles(&open);
        if open.0.get() > OPEN_ELEMENTS_MAX {
            return None;
        }
        rest = tail;
    }
    Some(parser.finish())
}

fn extract(html: &mut Html, url: Option<&Url>) -> Option<ExtractResult> {
    move_captions(html);
    let options = Options::default().with_fallback(true);
    let mut options = options.with_links(true).with_images(true);
    options.original_url = url.cloned();
    trafilatura::extract(&html.html(), &options).ok()
}

/// Moves a caption into the `alt` text of its image; otherwise the extractor takes it for a paragraph of the main part.
fn move_captions(html: &mut Html) {
    let selectors = ["figure > figcaption:first-of-type", "img"].map(Selector::parse);
    let [Ok(captions), Ok(pictures)] = selectors else {
        return;
    };
    let of_picture = |caption: ElementRef<'_>| {
        let figure = caption.parent().and_then(ElementRef::wrap)?;
        let picture = figure.select(&pictures).next()?;
        Some((caption.id(), picture.id(), caption.text().collect::<String>()))
    };
    let moves: Vec<_> = html.select(&captions).filter_map(of_picture).collect();
    for (caption, picture, text) in moves {
        if let Some(mut caption) = html.tree.get_mut(caption) {
            caption.detach();
        }
        if let Some(Node::Element(picture)) = html.tree.get_mut(picture).as_mut().map(NodeMut::value) {
            let text = format!("{} {text}", picture.attr("alt").unwrap_or_default());
            picture.attrs.retain(|(name, _)| &*name.local != "alt");
            picture
                .attrs
                .push((QualName::new(None, ns!(), "alt".into()), text.into()));
            picture.attrs.sort_unstable();
        }
    }
}

fn extracted(html: &mut Html, url: Option<&Url>) -> Document {
    let found = extract(html, url);
    let meta = found
        .as_ref()
        .map(|found| found.metadata.clone())
        .unwrap_or_default();
    let markdown = found
        .filter(|found| found.content_text.chars().count() >= MAIN_CHARS_MIN)
        .map(|found| markdown(&found.content_html, url))
        .filter(|markdown| !markdown.trim().is_empty());
    Document {
        extraction: markdown
            .as_ref()
            .map_or(Extraction::Fallback, |_| Extraction::Main),
        text: markdown.unwrap_or_else(|| self::markdown(&html.html(), url)),
        title: field(&meta.title),
        author: field(&meta.author),
        date: meta.date.map(|date| date.to_string()),
        language: field(&meta.language),
        ..Document::default()
    }
}

/// Returns the main text of a page as plain text, which benchmarks of extractors compare.
pub fn main_text(text: &str, url: Option<&Url>) -> String {
    let mut html = Html::parse_document(text);
    hidden::remove(&mut html);
    let found = extract(&mut html, url).map(|found| found.content_text);
    let main = found.filter(|text| text.chars().count() >= MAIN_CHARS_MIN);
    main.unwrap_or_else(|| plain_text(&html))
}

fn markdown(html: &str, url: Option<&Url>) -> String {
    let (links, pictures) = (url.cloned(), url.cloned());
    let converter = HtmlToMarkdown::builder()
        .skip_tags(TEXTLESS.to_vec())
        .add_handler(vec!["a"], move |handlers: &dyn Handlers, element: Element<'_>| {
            Some(link(handlers, &element, links.as_ref()))
        })
        .add_handler(vec!["code", "pre"], code)
        .add_handler(vec!["img"], move |_: &dyn Handlers, element: Element<'_>| {
            Some(picture(&element, pictures.as_ref()))
        })
        .build();
    converter.convert(html).unwrap_or_default()
}

/// Renders a link with its absolute URL; a link that is not HTTP or HTTPS becomes its text.
fn link(handlers: &dyn Handlers, element: &Element<'_>, base: Option<&Url>) -> HandlerResult {
    let text = handlers.walk_children(element.node).content;
    let text = text.trim();
    match attribute(element, "href").and_then(|href| absolute(&href, base)) {
        Some(url) if !text.is_empty() => format!("[{text}]({url})").into(),
        _ => text.into(),
    }
}

/// Renders code as a block if it is preformatted or has several lines. The extractor nests `code`, and drops `pre`.
fn code(handlers: &dyn Handlers, element: Element<'_>) -> Option<HandlerResult> {
    let mut node = element.node.clone();
    while let Some(inner) = only_code(&node) {
        node = inner;
    }
    let content = handlers.walk_children(&node).content;
    let content = content.trim_matches('\n');
    if element.tag == "pre" || content.contains('\n') {
        return Some(format!("\n\n{}\n", fence::block("", content)).into());
    }
    match Rc::ptr_eq(&node, element.node) {
        true => handlers.fallback(element),
        false => handlers.handle(&node),
    }
}

/// Returns the `code` element that is the only child of a node.
fn only_code(node: &htmd::Node) -> Option<Rc<htmd::Node>> {
    match node.children.borrow().as_slice() {
        [only] if matches!(&only.data, NodeData::Element { name, .. } if &*name.local == "code") => {
            Some(only.clone())
        }
        _ => None,
    }
}

/// Renders an image as text, because a client that renders Markdown would fetch it and so send a request to its host.
fn picture(element: &Element<'_>, base: Option<&Url>) -> HandlerResult {
    let alt = attribute(element, "alt").unwrap_or_default();
    let mut alt = alt.split_whitespace().collect::<Vec<_>>().join(" ");
    for mark in ["\\", "`", "[", "]", "<", "*", "_"] {
        alt = alt.replace(mark, &format!("\\{mark}"));
    }
    let url = attribute(element, "src").and_then(|src| absolute(&src, base));
    match (alt.is_empty(), url) {
        (_, None) if alt.is_empty() => "".into(),
        (_, None) => format!("(picture: {alt})").into(),
        (true, Some(url)) => format!("(picture: `{url}`)").into(),
        (false, Some(url)) => format!("(picture: {alt}, `{url}`)").into(),
    }
}

fn attribute(element: &Element<'_>, name: &str) -> Option<String> {
    let found = element
        .attrs
        .iter()
        .find(|attribute| &*attribute.name.local == name)?;
    Some(found.value.to_string())
}

fn absolute(link: &str, base: Option<&Url>) -> Option<String> {
    let url = match base {
        Some(base) => base.join(link).ok()?,
        None => Url::parse(link).ok()?,
    };
    let is_web =
        matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
    is_web.then(|| {
        url.as_str()
            .replace('`', "%60")
            .replace('(', "%28")
            .replace(')', "%29")
    })
}

/// Returns the nesting depth, without recursion.
fn depth(html: &Html) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for edge in html.tree.root().traverse() {
        match edge {
            Edge::Open(_) => depth += 1,
            Edge::Close(_) => depth = depth.saturating_sub(1),
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Returns the text of the body, a line for each text node.
fn plain_text(html: &Html) -> String {
    let mut skipped = std::collections::HashSet::new();
    let mut text = String::new();
    for node in html.tree.root().descendants() {
        let below = node.parent().is_some_and(|parent| skipped.contains(&parent.id()));
        match node.value() {
            Node::Element(element) if below || TEXTLESS.contains(&element.name()) => {
                skipped.insert(node.id());
            }
            Node::Text(piece) if !below => {
                let piece = piece.split_whitespace().collect::<Vec<_>>().join(" ");
                if !piece.is_empty() {
                    text.push_str(&piece);
                    text.push('\n');
                }
            }
            _ => {}
        }
    }
    text
}

fn is_made_by_scripts(html: &Html) -> bool {
    let Ok(scripts) = Selector::parse("script") else {
        return false;
    };
    let text = plain_text(html);
    html.select(&scripts).next().is_some()
        && text.chars().filter(|c| !c.is_whitespace()).count() < SCRIPTED_CHARS_MAX
}

fn title(html: &Html) -> Option<String> {
    let title = Selector::parse("title").ok()?;
    let title: String = html.select(&title).next()?.text().collect();
    field(&title)
}

fn language(html: &Html, text: &str) -> Option<String> {
    let root: ElementRef<'_> = html.root_element();
    let declared = root.attr("lang").map(|lang| {
        lang.split(['-', '_'])
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    });
    let is_code =
        |code: &String| (2..=3).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_lowercase());
    declared.filter(is_code).or_else(|| {
        let found = whatlang::detect(text)?;
        found.is_reliable().then(|| found.lang().code().to_owned())
    })
}

/// Returns the text as one line, cut at `FIELD_CHARS_MAX`. `None`: it is empty.
fn field(text: &str) -> Option<String> {
    let text = fence::line(text, FIELD_CHARS_MAX);
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
