//! A linear look at how deeply brackets are nested, before a recursive parser sees them. Strings and comments are not
//! told apart (that would need the parser), so the bound is generous.

/// Deeper than this no person writes; the parser's stack holds several times as much.
const DEPTH_MAX: usize = 1000;

/// Are the brackets of this text nested deeper than a parser should be asked to follow. Unbalanced ones inside strings
/// can only raise the count, never hide a level.
pub(crate) fn too_deep(code: &str) -> bool {
    let mut depth = 0_usize;
    for byte in code.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_not_guessed() {
        assert!(!too_deep("f({a: [1, 2]})"));
        assert!(!too_deep(&"()".repeat(1_000_000)));
        assert!(too_deep(&"(".repeat(1001)));
        assert!(!too_deep(&format!("{}{}", "(".repeat(1000), ")".repeat(1000))));
    }
}
