//! Quoting errors that the CSV parser accepts silently: text after a closing quote, which it appends to the field, and
//! an unclosed quote, which swallows the rest of the table.

/// An error in the quotes of a row, with the index of the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misquoted {
    TextAfter(usize),
    NeverClosed(usize),
}

/// Checks the bytes of one row, with or without its line end. A row without a quote has no such errors.
pub(super) fn check(row: &[u8], delimiter: u8) -> Option<Misquoted> {
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
    /// After a quote in a quoted field: the closing quote, or the first of a doubled one.
    Closed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misused_quotes_are_found() {
        let check =
            |row: &str, want: Option<Misquoted>| assert_eq!(check(row.as_bytes(), b','), want, "{row}");
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
