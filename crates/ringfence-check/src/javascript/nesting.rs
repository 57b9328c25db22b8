//! A linear look at how deeply a recursive parser would have to go down in a text that is broken, from above: brackets, and what
//! nests without brackets (`!!!a`, `a => b => c`, `if (a) if (b)`). Texts and comments are not told apart, so that it is a
//! guess; a parser that dies nevertheless costs one answer.

/// Deeper than this nobody writes who wants to be read.
const DEPTH_MAX: usize = 400;

/// Words after which an expression or a statement goes on one level down.
const WORDS: &[&str] = &[
    "if", "else", "for", "while", "do", "with", "typeof", "void", "delete", "await", "new", "yield", "async",
    "function", "class",
];

/// Should a recursive parser better not be asked.
pub(super) fn is_deep(code: &str) -> bool {
    let mut levels: Vec<usize> = Vec::new();
    let mut here = 0_usize;
    let mut above = 0_usize;
    let mut word = 0_usize;
    let mut ends_statement = false;
    let bytes = code.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let in_word = byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'$';
        if !in_word && word < at {
            let goes_on = WORDS.contains(&code.get(word..at).unwrap_or_default());
            here += usize::from(goes_on);
            ends_statement = !goes_on;
        }
        if !in_word {
            word = at + 1;
        }
        match byte {
            b'(' | b'[' | b'{' => {
                levels.push(here);
                above += here + 1;
                here = 0;
                ends_statement = false;
            }
            b')' | b']' | b'}' => {
                here = levels.pop().unwrap_or(0);
                above = above.saturating_sub(here + 1);
                ends_statement = *byte != b')';
            }
            b';' | b',' => here = 0,
            b'\n' if ends_statement => here = 0,
            b'?' | b'!' | b'~' | b'=' | b'+' | b'-' | b':' | b'<' | b'*' => {
                here += 1;
                ends_statement = false;
            }
            b'\'' | b'"' | b'`' => ends_statement = true,
            b'&' | b'|' | b'/' | b'%' | b'>' | b'^' | b'.' => ends_statement = false,
            _ => {}
        }
        if above + here > DEPTH_MAX {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nests_is_counted_with_and_without_brackets() {
        for piece in [
            "(",
            "!",
            "(x)=>",
            "if(a)",
            "a?b:",
            "typeof ",
            "a=",
            "[{",
            "new ",
            "`${",
            "else if(a)\n",
            "(x)=>\n",
        ] {
            assert!(is_deep(&piece.repeat(1000)), "{piece}");
        }
        for piece in [
            "f(a, b);",
            "const a = b ? c : d\n",
            "if (a) { b() }\n",
            "() => { f(!x) };",
            "x = 'a' + 'b'\nreturn 1\n",
        ] {
            assert!(!is_deep(&piece.repeat(1000)), "{piece}");
        }
    }
}
