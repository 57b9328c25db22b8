//! Text that a person who looks at the page does not see: elements that styles hide, comments, templates. It is taken
//! out before the page is read, and counted, because what only a machine reads is how pages give orders to machines.

use ego_tree::NodeRef;
use scraper::{ElementRef, Html, Node, Selector};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// Rules of style sheets that are looked at, and their length.
const RULES_MAX: usize = 1000;
const STYLE_BYTES_MAX: usize = 256 << 10;
/// Elements that hold the page: a rule that hides one of them is undone by a script.
const HOLDERS: [&str; 5] = ["html", "head", "body", "main", "article"];

/// What was taken out, in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HiddenText {
    /// Of elements that are not displayed, or that have the colour of the page.
    pub elements: usize,
    pub comments: usize,
    /// Zero width, tags, controls.
    pub invisible: usize,
}

/// Takes out of the tree what is not displayed.
pub(crate) fn remove(html: &mut Html) -> HiddenText {
    let mut hidden = HiddenText::default();
    let mut gone = Vec::new();
    let streamed = streamed_parts(html);
    for node in html.tree.nodes() {
        match node.value() {
            Node::Comment(comment) => {
                hidden.comments += comment.comment.trim().chars().count();
                gone.push(node.id());
            }
            Node::Element(element) if is_hidden(element, &streamed) || is_white_on_nothing(node) => {
                gone.push(node.id())
            }
            _ => {}
        }
    }
    for selector in hiding_selectors(html) {
        let found = html
            .select(&selector)
            .filter(|element| !HOLDERS.contains(&element.value().name()));
        gone.extend(found.map(|element| element.id()));
    }
    // From the inside out, so that no text is counted with two elements.
    gone.sort_unstable_by(|one, other| other.cmp(one));
    gone.dedup();
    for id in gone {
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

/// Characters that are not space.
fn visible_characters(element: ElementRef<'_>) -> usize {
    let is_code = matches!(element.value().name(), "script" | "style");
    let text = element.text().flat_map(str::chars).filter(|c| !c.is_whitespace());
    if is_code { 0 } else { text.count() }
}

/// The ids of parts that React streams: hidden elements, which a script of the page moves to their places by these ids.
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
        return !HOLDERS.contains(&element.name());
    }
    element
        .attr("style")
        .is_some_and(|style| !HOLDERS.contains(&element.name()) && hides(&compact(style)))
}

/// Declarations without spaces, in small letters, each ended by a semicolon.
fn compact(style: &str) -> String {
    let compact = style
        .chars()
        .filter(|c| !c.is_whitespace())
        .flat_map(char::to_lowercase);
    let compact: String = compact.collect();
    format!(";{};", compact.replace("!important", ""))
}

fn hides(style: &str) -> bool {
    const DECLARATIONS: [&str; 16] = [
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
        ";clip-path:inset(100%);",
        ";clip-path:inset(50%);",
        ";transform:scale(0);",
        ";color:transparent;",
        ";-webkit-text-fill-color:transparent;",
    ];
    let is_empty_box =
        (style.contains(";height:0;") || style.contains(";height:0px;") || style.contains(";width:0;"))
            && style.contains(";overflow:hidden;");
    let is_elsewhere = [";left:-", ";top:-", ";text-indent:-", ";margin-left:-"]
        .iter()
        .any(|begins| {
            let number = style.split_once(begins).map(|(_, rest)| rest);
            let digits = number.map_or(0, |rest| rest.chars().take_while(char::is_ascii_digit).count());
            digits >= 4
        });
    DECLARATIONS.iter().any(|declaration| style.contains(declaration)) || is_empty_box || is_elsewhere
}

/// White text where no element above says that there is a background.
fn is_white_on_nothing(node: NodeRef<'_, Node>) -> bool {
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

/// The selectors of the page's own style sheets whose rule hides. What depends on the device or on a state of the
/// element is left alone, and so is what fades in.
fn hiding_selectors(html: &Html) -> Vec<Selector> {
    let Ok(styles) = Selector::parse("style") else {
        return Vec::new();
    };
    let sheets: Vec<String> = html
        .select(&styles)
        .map(|style| style.text().collect::<String>())
        .collect();
    let sheet = sheets.join("\n");
    let sheet = without_comments(&sheet[..sheet.floor_char_boundary(STYLE_BYTES_MAX)]);
    let mut found = Vec::new();
    let mut depth = 0_usize;
    for rule in sheet.split_inclusive('}').take(RULES_MAX) {
        let opened = rule.matches('{').count();
        let is_plain = depth == 0 && opened == 1 && !rule.contains('@');
        depth = (depth + opened).saturating_sub(1);
        if let (true, Some((selectors, body))) = (is_plain, rule.split_once('{'))
            && hides(&compact(body.trim_end_matches('}')).replace(";opacity:0;", ";"))
        {
            let plain = selectors.split(',').filter(|selector| !selector.contains(':'));
            found.extend(plain.filter_map(|selector| Selector::parse(selector.trim()).ok()));
        }
    }
    found
}

fn without_comments(sheet: &str) -> String {
    let mut left = String::new();
    let mut rest = sheet;
    while let Some((before, after)) = rest.split_once("/*") {
        left.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, rest)| rest);
    }
    left + rest
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
    fn what_styles_hide_is_taken_out_and_counted() {
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
            "color:white",
            "color: #FFF",
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
        check(
            "<p>seen<!-- ORDER -->",
            HiddenText {
                comments: 5,
                ..HiddenText::default()
            },
        );
    }

    #[test]
    fn what_is_seen_stays() {
        let check = |html: &str| {
            let mut page = Html::parse_document(html);
            assert_eq!(remove(&mut page), HiddenText::default(), "{html}");
        };
        check("<style>body{display:none} .a:hover{display:none}</style><p>seen");
        check("<style>@media print { .x { display:none } }</style><p class=x>seen");
        check("<div style='background:#000'><p style='color:#fff'>seen</div>");
        check("<table bgcolor=black><td style='color:white'>seen</table>");
        check("<div hidden id=S:0>seen</div><script>$RC(\"B:0\",\"S:0\")</script>");
        check("<p style='opacity:0.5; left:-1px; font-size:0.9em; color:whitesmoke'>seen");
    }

    #[test]
    fn many_parts_and_much_script_are_looked_at_once() {
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
