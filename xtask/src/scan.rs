//! Lexical scan of Rust source: the same lines with comments and literals blanked, so that a rule about code does not
//! match a word in a sentence.

/// Returns the text with comments, strings and character literals replaced by spaces; line breaks are kept.
pub fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end > at {
            code.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        } else {
            code.push(chars[at]);
            at += 1;
        }
    }
    code
}

/// Returns the words of code (identifiers and keywords), each with its line number from 1.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.lines().enumerate().flat_map(|(number, line)| {
        line.split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .filter(|word| !word.is_empty())
            .map(move |word| (number + 1, word))
    })
}

/// Returns the end of the comment or literal that begins at `at`, or `at` if none begins there.
fn literal_end(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    let after_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match (chars[at], next) {
        ('/', Some('/')) => find(chars, at, |c| c == '\n'),
        ('/', Some('*')) => block_comment_end(chars, at),
        ('"', _) => string_end(chars, at + 1),
        ('r' | 'b' | 'c', _) if !after_word => prefixed_string_end(chars, at).unwrap_or(at),
        ('\'', _) => character_end(chars, at).unwrap_or(at),
        _ => at,
    }
}

fn find(chars: &[char], from: usize, is_it: impl Fn(char) -> bool) -> usize {
    (from..chars.len())
        .find(|at| is_it(chars[*at]))
        .unwrap_or(chars.len())
}

fn block_comment_end(chars: &[char], from: usize) -> usize {
    let (mut depth, mut at) = (0_usize, from);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth.saturating_sub(1), at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], from: usize) -> usize {
    let mut at = from;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// Returns the end of a string with a prefix: `r"..."`, `r#"..."#`, `b"..."`, `br#"..."#`, `c"..."`.
fn prefixed_string_end(chars: &[char], from: usize) -> Option<usize> {
    let prefix = find(chars, from, |c| !matches!(c, 'r' | 'b' | 'c'));
    let raw = chars[from..prefix].contains(&'r');
    let quote = find(chars, prefix, |c| c != '#');
    let hashes = quote - prefix;
    if prefix - from > 2 || chars.get(quote) != Some(&'"') || (hashes > 0 && !raw) {
        return None;
    }
    if !raw {
        return Some(string_end(chars, quote + 1));
    }
    let closes = |at: usize| chars[at] == '"' && (1..=hashes).all(|n| chars.get(at + n) == Some(&'#'));
    let end = (quote + 1..chars.len()).find(|at| closes(*at));
    Some(end.map_or(chars.len(), |at| at + 1 + hashes))
}

/// Returns the end of a character literal, or `None` for a lifetime.
fn character_end(chars: &[char], from: usize) -> Option<usize> {
    match (chars.get(from + 1)?, chars.get(from + 2)?) {
        ('\\', _) => Some((from + 3..chars.len()).find(|at| chars[*at] == '\'')? + 1),
        (_, '\'') => Some(from + 3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_code_is_not() {
        let check = |text: &str, expect: &str| {
            assert_eq!(
                code_only(text).split_whitespace().collect::<Vec<_>>().join(" "),
                expect,
                "{text}"
            )
        };
        check("let a = 1; // unsafe", "let a = 1;");
        check("/* unsafe /* nested */ still */ b", "b");
        check("f(\"unsafe \\\" more\") + c", "f( ) + c");
        check("r#\"unsafe \" quote\"# d", "d");
        check("br\"unsafe\" e", "e");
        check("let x: &'a str = '\\''; g", "let x: &'a str = ; g");
        check("match c { '\"' => h, _ => i }", "match c { => h, _ => i }");
        check("for r in rows { r }", "for r in rows { r }");
        check("unsafe { x() }", "unsafe { x() }");
    }

    #[test]
    fn line_numbers_are_kept() {
        let code = code_only("a\n/* b\n c */ d\n\"e\nf\" g");
        let found: Vec<(usize, &str)> = words(&code).collect();
        assert_eq!(found, [(1, "a"), (3, "d"), (5, "g")]);
    }
}
