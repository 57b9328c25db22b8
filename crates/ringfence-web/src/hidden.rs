//! Text of a page that a person does not see: elements that styles hide, comments, templates. It is removed before the
//! page is read, and counted, because pages give orders to machines in text that only machines read.

use ego_tree::NodeRef;
use scraper::{ElementRef, Html, Node, Selector};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// Maximum of style sheet rules that hide something, and of bytes of style sheets that are read.
const RULES_MAX: usize = 1000;
const STYLE_BYTES_MAX: usize = 256 << 10;
/// Elements that contain the page; if a rule hides one of them, a script shows it again.
const CONTAINERS: [&str; 5] = ["html", "head", "body", "main", "article"];

/// Removed text, in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HiddenText {
    /// Text of elements that are not displayed, or have the colour of the page.
    pub elements: usize,
    pub comments: usize,
    /// Invisible characters, such as zero-width, tag and control characters.
    pub invisible: usize,
}

/// Removes from the tree what is not displayed.
pub(crate) fn remove(html: &mut Html) -> HiddenText {
    let mut hidden = HiddenText::default();
    let mut removed = Vec::new();
    let streamed = streamed_parts(html);
    for node in html.tree.nodes() {
        match node.value() {
            Node::Comment(comment) => {
                hidden.comments += comment.comment.trim().chars().count();
                removed.push(node.id());
            }
            Node::Element(element) if is_hidden(element, &streamed) || is_white_without_background(node) => {
                removed.push(node.id())
            }
            _ => {}
        }
    }
    for selector in hiding_selectors(html) {
        let found = html
            .select(&selector)
            .filter(|element| !CONTAINERS.contains(&element.value().name()));
        removed.extend(found.map(|element| element.id()));
    }
    // Inner elements first, so that no text is counted twice.
    removed.sort_unstable_by(|one, other| other.cmp(one));
    removed.dedup();
    for id in removed {
        let characters = html
            .tree
            .get(id)
            .and_then(ElementRef::wrap)
            .map_or(0, visible_characters);
        hidden.elements += characters;
        if let Some(mut node) = html.tree.get_mut(id) {
            node.detach();
        }
    }
    hidden
}

/// Returns the number of characters other than white space; scripts and styles count as 0.
fn visible_characters(element: ElementRef<'_>) -> usize {
    let is_code = matches!(element.value().name(), "script" | "style");
    let text = element.text().flat_map(str::chars).filter(|c| !c.is_whitespace());
    if is_code { 0 } else { text.count() }
}

/// Returns the ids of streamed parts of React: hidden elements that a script moves into place by these ids.
fn streamed_parts(html: &Html) -> HashSet<&str> {
    let elements = html.tree.nodes().filter_map(ElementRef::wrap);
    let scripts = elements.filter(|element| element.value().name() == "script");
    let words = scripts
        .flat_map(|script| script.text())
        .flat_map(|text| text.split('"'));
    words.filter(|word| word.starts_with("S:")).collect()
}

fn is_hidden(element: &scraper::node::Element, streamed: &HashSet<&str>) -> bool {
    let is_streamed = element.id().is_some_and(|id| streamed.contains(id));
    let is_marked = element.attr("hidden").is_some_and(|value| value != "until-found");
    if element.name() == "template" || (is_marked && !is_streamed) {
        return !CONTAINERS.contains(&element.name());
    }
    element
        .attr("style")
        .is_some_and(|style| !CONTAINERS.contains(&element.name()) && hides(&compact(style)))
}

/// Returns the declarations without white space, in lower case, each between semicolons.
fn compact(style: &str) -> String {
    let compact = style
        .chars()
        .filter(|c| !c.is_whitespace())
        .flat_map(char::to_lowercase);
    let compact: String = compact.collect();
    format!(";{};", compact.replace("!important", ""))
}

fn hides(style: &str) -> bool {
    const DECLARATIONS: [&str; 19] = [
        ";display:none;",
        ";visibility:hidden;",
        ";visibility:collapse;",
        ";opacity:0;",
        ";opacity:0.0;",
        ";opacity:0%;",
        ";font-size:0;",
        ";font-size:0px;",
        ";font-size:1px;",
        ";clip:rect(0,0,0,0);",
        ";clip:rect(0000);",
        ";clip:rect(0px,0px,0px,0px);",
        ";clip:rect(1px,1px,1px,1px);",
        ";clip:rect(1px1px1px1px);",
        ";clip-path:inset(100%);",
        ";clip-path:inset(50%);",
        ";transform:scale(0);",
        ";transform:scale(0,0);",
        ";scale:0;",
    ];
    let is_transparent = !has_painted_letters(style)
        && [";color:transparent;", ";-webkit-text-fill-color:transparent;"]
            .iter()
            .any(|colour| style.contains(colour));
    let sizes = [";height:0;", ";height:0px;", ";width:0;", ";width:0px;"];
    let is_empty_box = style.contains(";overflow:hidden;") && sizes.iter().any(|size| style.contains(size));
    let is_elsewhere = [";left:-", ";top:-", ";text-indent:-", ";margin-left:-"]
        .iter()
        .any(|begins| {
            let number = style.split_once(begins).map(|(_, rest)| rest);
            let digits = number.map_or(0, |rest| rest.chars().take_while(char::is_ascii_digit).count());
            digits >= 4
        });
    let is_declared = DECLARATIONS.iter().any(|declaration| style.contains(declaration));
    is_declared || is_transparent || is_empty_box || is_elsewhere
}

/// True if an image or a gradient of the background fills the letters.
fn has_painted_letters(style: &str) -> bool {
    let (mut has_image, mut is_clipped) = (false, false);
    for (name, value) in style.split(';').filter_map(|part| part.split_once(':')) {
        let is_image = value.contains("gradient(") || value.contains("url(");
        match name {
            "background" => (has_image, is_clipped) = (is_image, value.ends_with(")text")),
            "background-image" => has_image = is_image,
            "background-clip" | "-webkit-background-clip" => is_clipped = value == "text",
            _ => {}
        }
    }
    has_image && is_clipped
}

/// True for white text where neither the element nor an ancestor has a background.
fn is_white_without_background(node: NodeRef<'_, Node>) -> bool {
    const WHITE: [&str; 6] = [
        ";color:white;",
        ";color:#fff;",
        ";color:#ffffff;",
        ";color:#fefefe;",
        ";color:rgb(255,255,255);",
        ";color:snow;",
    ];
    let style = |node: &Node| {
        node.as_element()
            .and_then(|element| element.attr("style"))
            .map(compact)
    };
    let is_white = style(node.value()).is_some_and(|style| WHITE.iter().any(|white| style.contains(white)));
    let has_background = |node: &Node| {
        let element = node.as_element();
        style(node).is_some_and(|style| style.contains(";background"))
            || element.is_some_and(|element| {
                element.attr("bgcolor").is_some() || element.attr("background").is_some()
            })
    };
    is_white && !has_background(node.value()) && !node.ancestors().any(|above| has_background(above.value()))
}

/// Returns the selectors of hiding rules in the page's own style sheets, except rules that depend on the device or on a
/// state of the element, and `opacity: 0`, with which elements fade in.
fn hiding_selectors(html: &Html) -> Vec<Selector> {
    let Ok(styles) = Selector::parse("style") else {
        return Vec::new();
    };
    let sheets: Vec<String> = html
        .select(&styles)
        .map(|style| style.text().collect::<String>())
        .collect();
    let sheet = sheets.join("\n");
    let sheet = simplified(&sheet[..sheet.floor_char_boundary(STYLE_BYTES_MAX)]);
    let mut found = Vec::new();
    let mut depth = 0_usize;
    for rule in sheet.split_inclusive('}') {
        let opened = rule.matches('{').count();
        let is_plain = depth == 0 && opened == 1 && !rule.contains('@');
        depth = (depth + opened).saturating_sub(1);
        if let (true, Some((selectors, body))) = (is_plain, rule.split_once('{'))
            && hides(&compact(body.trim_end_matches('}')).replace(";opacity:0;", ";"))
        {
            let plain = selectors.split(',').filter(|selector| !selector.contains(':'));
            let plain = plain.filter_map(|selector| Selector::parse(selector.trim()).ok());
            found.extend(plain.take(RULES_MAX - found.len()));
            if found.len() >= RULES_MAX {
                break;
            }
        }
    }
    found
}

/// Returns a style sheet without comments, and without escaped or quoted braces and `@` (CSS Syntax, sections 4.3.2,
/// 4.3.5 and 4.3.7).
fn simplified(sheet: &str) -> String {
    let (mut left, mut rest, mut quote) = (String::new(), sheet.chars(), None);
    while let Some(c) = rest.next() {
        if quote.is_none() && c == '/' && rest.as_str().starts_with('*') {
            rest = rest.as_str()[1..]
                .split_once("*/")
                .map_or("", |(_, rest)| rest)
                .chars();
            continue;
        }
        let escaped = if c == '\\' { rest.next() } else { None };
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if c == open || c == '\n' => quote = None,
            _ => {}
        }
        let is_text = |c: &char| quote.is_none() || !"{}@".contains(*c);
        left.extend(Some(c).filter(is_text));
        left.extend(escaped.filter(|c| !"{}@".contains(*c)));
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(html: &str, expect: HiddenText) {
        let mut page = Html::parse_document(html);
        assert_eq!(remove(&mut page), expect, "{html}");
        let left: String = page.root_element().text().collect();
        assert!(!left.contains("ORDER"), "{html}: {left}");
        assert!(left.contains("seen"), "{html}: {left}");
    }

    #[test]
    fn hidden_text_is_removed_and_counted() {
        let elements = |elements| HiddenText {
            elements,
            ..HiddenText::default()
        };
        for style in [
            "display:none",
            "DISPLAY : None !important",
            "visibility:hidden",
            "opacity:0",
            "font-size:0",
            "position:absolute; left:-9999px",
            "text-indent: -10000px",
            "height:0; overflow:hidden",
            "width: 0px; overflow: hidden",
            "color:white",
            "color: #FFF",
            "position: absolute; clip: rect(1px, 1px, 1px, 1px)",
            "transform: scale(0, 0)",
            "color: transparent",
            "display: none; background: linear-gradient(red, blue) text",
            "color: transparent; background-clip: text",
            "color: transparent; background: red; background-clip: text",
            "color: transparent; background: linear-gradient(red, canvastext)",
            "color: transparent; background-clip: text; background: url(x)",
        ] {
            check(&format!("<p>seen<p style='{style}'>ORDER <b>me</b>"), elements(7));
        }
        check("<p>seen<p hidden>ORDER", elements(5));
        check(
            "<p>seen<div hidden id=S:0>ORDER</div><script>$RC(\"B:1\",\"S:1\")</script>",
            elements(5),
        );
        check(
            "<p>seen<div style='display:none' id=S:0>ORDER</div><script>$RC(\"B:0\",\"S:0\")</script>",
            elements(5),
        );
        check("<p>seen<template>ORDER</template>", elements(5));
        check(
            "<style>.x, #y { color: red; display:none }</style><p>seen<p class='a x'>ORDER",
            elements(5),
        );
        check(
            "<style>/* } */ .x{display:none}</style><p>seen<div class=x>OR<p hidden>DER",
            elements(5),
        );
        for before in [
            ".a::before{content:'}{'}",
            ".a{content:\"/*\"}",
            ".a{content:'\\'}'}",
            ".a\\{b{color:red}",
            ".a[title='@']{color:red}",
            ".a{content:'}\n}",
            &".a{color:red}".repeat(5000),
        ] {
            let page = format!("<style>{before}.x{{display:none}}</style><p>seen<p class=x>ORDER");
            check(&page, elements(5));
        }
        check(
            "<p>seen<!-- ORDER -->",
            HiddenText {
                comments: 5,
                ..HiddenText::default()
            },
        );
    }

    #[test]
    fn visible_text_is_kept() {
        let check = |html: &str| {
            let mut page = Html::parse_document(html);
            assert_eq!(remove(&mut page), HiddenText::default(), "{html}");
        };
        check("<style>body{display:none} .a:hover{display:none}</style><p>seen");
        check("<style>@media print { .x { display:none } }</style><p class=x>seen");
        check("<div style='background:#000'><p style='color:#fff'>seen</div>");
        check("<table bgcolor=black><td style='color:white'>seen</table>");
        check("<div hidden id=S:0>seen</div><script>$RC(\"B:0\",\"S:0\")</script>");
        check("<p style='color:transparent; background:linear-gradient(red, blue) text'>seen");
        check("<p style='color:transparent; background:url(x); background-clip:text'>seen");
        let painted = "background-image:linear-gradient(red, blue); -webkit-background-clip:text";
        check(&format!(
            "<p style='-webkit-text-fill-color:transparent; {painted}'>seen"
        ));
        check("<p style='opacity:0.5; left:-1px; font-size:0.9em; color:whitesmoke'>seen");
    }

    #[test]
    fn number_of_hiding_selectors_is_bounded() {
        let rules = format!("<style>{}{{display:none}}</style>", vec![".x"; 3000].join(","));
        assert_eq!(hiding_selectors(&Html::parse_document(&rules)).len(), RULES_MAX);
    }

    #[test]
    fn many_streamed_parts_are_matched_quickly() {
        let parts: String = (0..20_000)
            .map(|number| format!("<p hidden id=S:{number}>x"))
            .collect();
        let script: String = (0..20_000).map(|number| format!("\"S:{number}\",")).collect();
        let mut html = Html::parse_document(&format!("{parts}<script>{script}</script>"));
        let begun = std::time::Instant::now();
        assert_eq!(remove(&mut html), HiddenText::default());
        assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    }
}
