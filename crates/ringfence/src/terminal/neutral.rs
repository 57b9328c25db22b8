//! Makes a stranger's text harmless for a terminal: no escape sequence, no control character but newline and tab, no
//! character that reorders the line or takes no room in it. A program could otherwise retitle the window, paste into
//! the shell, or show a reviewer something else than what stands there (CVE-2021-42574).

/// Characters that change the order in which others are shown (Unicode Bidirectional Algorithm, UAX #9).
fn reorders(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Characters that show nothing at all, or end a line where none is counted. Those that emoji and scripts are joined
/// with are text.
fn invisible(c: char) -> bool {
    matches!(c, '\u{00ad}' | '\u{2028}' | '\u{2029}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{115f}' | '\u{1160}'
        | '\u{3164}' | '\u{ffa0}' | '\u{180e}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn harmless(c: char) -> bool {
    matches!(c, '\n' | '\t') || !(c.is_control() || reorders(c) || invisible(c))
}

/// C0 has pictures of its own in Unicode; the rest is spelled out.
fn show(out: &mut String, c: char) {
    match c {
        '\0'..='\x1f' => out.extend(char::from_u32(0x2400 + u32::from(c))),
        '\x7f' => out.push('\u{2421}'),
        other => out.push_str(&format!("<U+{:04X}>", u32::from(other))),
    }
}

/// Harmless text of several lines.
pub(crate) fn text(hostile: &str) -> String {
    if hostile.chars().all(harmless) {
        return hostile.to_owned();
    }
    let mut out = String::with_capacity(hostile.len() + 16);
    for c in hostile.chars() {
        if harmless(c) {
            out.push(c)
        } else {
            show(&mut out, c)
        }
    }
    out
}

/// Harmless text of one line.
pub(crate) fn line(hostile: &str) -> String {
    text(hostile).replace('\n', "\u{240a}").replace('\t', " ")
}

/// A JSON document with everything harmful written as JSON escapes: the same document, harmless to look at. (Such
/// characters occur only inside strings, and JSON itself already escapes C0.)
pub(crate) fn json(document: &str) -> String {
    let mut out = String::with_capacity(document.len());
    for c in document.chars() {
        if harmless(c) {
            out.push(c)
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out += &format!("\\u{unit:04x}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_the_cursor_or_reorders_text_survives() {
        let check = |hostile: &str, expect: &str| assert_eq!(text(hostile), expect);
        check("plain\n\ttext é 漢 🎉", "plain\n\ttext é 漢 🎉");
        check("\x1b[31mred", "␛[31mred");
        check("a\rb\x08c\x07d\x7f\0", "a␍b␈c␇d␡␀");
        check("\u{9b}31m", "<U+009B>31m");
        check("x\u{202e}y\u{2066}z\u{200f}", "x<U+202E>y<U+2066>z<U+200F>");
        check("a\u{200b}b\u{e0041}\u{feff}", "a<U+200B>b<U+E0041><U+FEFF>");
        check("👩\u{200d}💻 ❤\u{fe0f}", "👩\u{200d}💻 ❤\u{fe0f}");
        assert_eq!(line("a\nb\tc"), "a␊b c");
    }

    #[test]
    fn a_shown_document_is_the_same_document() {
        let value = serde_json::json!({"out": "a\u{1b}[0m\u{9b}\u{202e}\u{7f}\u{200b}\u{e0041}\n"});
        let shown = json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(shown.chars().all(harmless));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
