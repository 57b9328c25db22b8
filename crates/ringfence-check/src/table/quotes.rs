//! What the parser forgives without a word: text after a closing quote, which it glues to the field, and a quote that
//! is never closed, which swallows the rest of the table.

/// Something wrong with the quotes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misquoted {
    /// In the field of this index.
    TextAfter(usize),
    /// In the field of this index.
    NeverClosed(usize),
}

/// The bytes of one row, with its line end or without. Only rows that have a quote need be looked at.
pub(super) fn look(row: &[u8], delimiter: u8) -> Option<Misquoted> {
    let mut state = State::Start;
    let mut field = 0;
    for &byte in row {
        state = match (state, byte) {
            (State::Quoted, b'"') => State::Closed,
            (State::Quoted, _) => State::Quoted,
            (State::Closed, b'"') => State::Quoted,
            (_, byte) if byte == delimiter => {
                field += 1;
                State::Start
            }
            (State::Start, b'"') => State::Quoted,
            (state, b'\r' | b'\n') => state,
            (State::Closed, _) => return Some(Misquoted::TextAfter(field)),
            _ => State::Plain,
        };
    }
    matches!(state, State::Quoted).then_some(Misquoted::NeverClosed(field))
}

#[derive(Clone, Copy)]
enum State {
    Start,
    Plain,
    Quoted,
    /// After a quote inside of quotes: the end of them, or the first of two.
    Closed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misused_quotes_are_found() {
        let check =
            |row: &str, expect: Option<Misquoted>| assert_eq!(look(row.as_bytes(), b','), expect, "{row}");
        check("a,b\n", None);
        check("\"a\",\"b\"\r\n", None);
        check("\"a,\"\"b\"\"\n\",c", None);
        check("5\" disk,a\"b", None);
        check("\"\",\"\"", None);
        check("a,\"b\"c", Some(Misquoted::TextAfter(1)));
        check("\"a\" ,b", Some(Misquoted::TextAfter(0)));
        check("a,\"b", Some(Misquoted::NeverClosed(1)));
        check("\"", Some(Misquoted::NeverClosed(0)));
        check("\"a\"\"\n", Some(Misquoted::NeverClosed(0)));
    }
}
