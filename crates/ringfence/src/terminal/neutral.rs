//! Neutralises untrusted text for a terminal: no escape sequences, no control characters except newline and tab, no
//! characters that reorder the line or are invisible. A program could otherwise change the window's title, paste into
//! the shell, or show a reviewer something other than the real text (CVE-2021-42574).

/// True for characters that change the order of others (Unicode Bidirectional Algorithm, UAX #9).
fn reorders(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// True for characters that are not visible, or that end a line without counting as a newline. The joiners of emoji and
/// scripts are text.
fn invisible(c: char) -> bool {
    matches!(c, '\u{00ad}' | '\u{2028}' | '\u{2029}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{115f}' | '\u{1160}'
        | '\u{3164}' | '\u{ffa0}' | '\u{180e}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn harmless(c: char) -> bool {
    matches!(c, '\n' | '\t') || !(c.is_control() || reorders(c) || invisible(c))
}

/// Appends a visible form: Unicode's control pictures for C0 and DEL, the code point for others.
fn push_visible(out: &mut String, c: char) {
    match c {
        '\0'..='\x1f' => out.extend(char::from_u32(0x2400 + u32::from(c))),
        '\x7f' => out.push('\u{2421}'),
        other => out.push_str(&format!("<U+{:04X}>", u32::from(other))),
    }
}

pub(crate) fn text(hostile: &str) -> String {
    if hostile.chars().all(harmless) {
        return hostile.to_owned();
    }
    let mut out = String::with_capacity(hostile.len() + 16);
    for c in hostile.chars() {
        if harmless(c) {
            out.push(c)
        } else {
            push_visible(&mut out, c)
        }
    }
    out
}

/// Neutralises text of one line: newlines become pictures, tabs become spaces.
pub(crate) fn line(hostile: &str) -> String {
    text(hostile).replace('\n', "\u{240a}").replace('\t', " ")
}

/// Neutralises a JSON document with JSON escapes, so that it decodes to the same document. (The escaped characters
/// occur only inside strings, and JSON itself already escapes C0.)
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
    fn control_bidi_and_invisible_characters_are_spelled_out() {
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
    fn neutralised_json_decodes_to_the_same_document() {
        let value = serde_json::json!({"out": "a\u{1b}[0m\u{9b}\u{202e}\u{7f}\u{200b}\u{e0041}\n"});
        let shown = json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(shown.chars().all(harmless));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
