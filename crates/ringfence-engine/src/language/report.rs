//! Reports of drivers: records of a tag, a length and text. The program can forge them; reading them must not fail or
//! use unbounded memory.

use crate::streams::whole_characters;
use ringfence_types::{Display, ProgramError};
use serde::Deserialize;

/// A program's own report of its result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgramReport {
    /// Value of the last expression, if it is JSON.
    pub result: Option<serde_json::Value>,
    pub result_repr: Option<String>,
    /// Displayed values. Their artifacts may not exist.
    pub display: Vec<Display>,
    pub variables: Vec<String>,
    pub error: Option<ProgramError>,
    /// Modules that it was refused, in order of the imports; at most 100.
    pub security_events: Vec<Blocked>,
    /// Names for which an import was added.
    pub patched: Vec<String>,
    /// True if a text was longer than its limit and was cut at an arbitrary place.
    pub is_cut: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Its dotted name: letters, digits, `_` and dots, with `?` for any other character.
    pub module: String,
    /// The line in the caller's code; `None` if no frame of the import is in that file.
    pub line: Option<u32>,
}

const VARIABLES_MAX: usize = 1000;
const REPR_BYTES_MAX: usize = 64 << 10;
const RESULT_BYTES_MAX: usize = 1 << 20;
const TRACEBACK_BYTES_MAX: usize = 256 << 10;
const NAME_BYTES_MAX: usize = 1024;
const VARIABLE_BYTES_MAX: usize = 256;
const DISPLAYS_MAX: usize = 32;
const DISPLAY_BYTES_MAX: usize = 1 << 20;
const PATH_BYTES_MAX: usize = 4096;
const BLOCKED_MAX: usize = 100;
const BLOCKED_BYTES_MAX: usize = 1024;

/// Reads all complete records; the rest is dropped. Of a repeated record the last one counts.
pub fn read_report(bytes: &[u8]) -> ProgramReport {
    let mut report = ProgramReport::default();
    let mut rest = bytes;
    while let Some((tag, payload, after)) = record(rest) {
        take(&mut report, tag, payload);
        rest = after;
    }
    // An error without its type is dropped.
    report.error = report.error.filter(|error| !error.kind.is_empty());
    report
}

pub(super) fn record(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<5>()?;
    let length = usize::try_from(u32::from_be_bytes([head[1], head[2], head[3], head[4]])).ok()?;
    let (payload, after) = rest.split_at_checked(length)?;
    Some((head[0], payload, after))
}

/// Adds a record to the report. A driver sends one byte more than the limit of a text that it cut.
fn take(report: &mut ProgramReport, tag: u8, payload: &[u8]) {
    let is_cut = &mut report.is_cut;
    let mut text = |max: usize| {
        *is_cut |= payload.len() > max;
        String::from_utf8_lossy(beginning(payload, max)).into_owned()
    };
    match tag {
        b'R' if payload.len() <= RESULT_BYTES_MAX => report.result = serde_json::from_slice(payload).ok(),
        b'P' => report.result_repr = Some(text(REPR_BYTES_MAX)),
        b'V' if report.variables.len() < VARIABLES_MAX => report.variables.push(text(VARIABLE_BYTES_MAX)),
        b'A' | b'D' if report.display.len() < DISPLAYS_MAX => {
            let taken = report.display.iter().filter_map(|display| display.text.as_ref());
            let room = DISPLAY_BYTES_MAX - taken.map(String::len).sum::<usize>();
            report.display.extend(display(tag, payload, room));
        }
        b'F' if report.patched.len() < VARIABLES_MAX => report.patched.push(text(VARIABLE_BYTES_MAX)),
        b'S' if report.security_events.len() < BLOCKED_MAX => report.security_events.extend(blocked(payload)),
        b'E' => report.error.get_or_insert_default().kind = text(NAME_BYTES_MAX),
        b'M' => report.error.get_or_insert_default().message = text(REPR_BYTES_MAX),
        b'T' => report.error.get_or_insert_default().traceback = text(TRACEBACK_BYTES_MAX),
        b'L' => report.error.get_or_insert_default().line = text(16).parse().ok(),
        _ => {}
    }
}

/// Returns the first `max` bytes, without a partial character at the end.
fn beginning(payload: &[u8], max: usize) -> &[u8] {
    payload.get(..max).map_or(payload, whole_characters)
}

/// Reads a MIME type's line, then an artifact's name or a text; a too long one is dropped: a part would mislead.
fn display(tag: u8, payload: &[u8], room: usize) -> Option<Display> {
    let (mime, content) = std::str::from_utf8(payload).ok()?.split_once('\n')?;
    let most = if tag == b'A' { PATH_BYTES_MAX } else { room };
    if !Display::MIMES.contains(&mime) || content.is_empty() || content.len() > most {
        return None;
    }
    let content = |of| (tag == of).then(|| content.to_owned());
    Some(Display {
        mime: mime.to_owned(),
        artifact: content(b'A'),
        text: content(b'D'),
    })
}

/// Reads a refusal of the driver; any other payload is dropped.
fn blocked(payload: &[u8]) -> Option<Blocked> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Refusal<'a> {
        rule: &'a str,
        what: &'a str,
        line: Option<u32>,
    }
    if payload.len() > BLOCKED_BYTES_MAX {
        return None;
    }
    let refusal: Refusal<'_> = serde_json::from_slice(payload).ok()?;
    let is_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.' | '?');
    if refusal.rule != "blocked_import" || refusal.what.is_empty() || !refusal.what.chars().all(is_name) {
        return None;
    }
    Some(Blocked {
        module: refusal.what.to_owned(),
        line: refusal.line,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rec(tag: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[tag][..], &length, payload].concat()
    }

    #[test]
    fn cut_text_is_distinguished_from_text_that_just_fits() {
        let read = |tag: u8, bytes: usize| {
            read_report(&rec(
                tag,
                "é".repeat(bytes / 2 + 1).as_bytes().get(..bytes).unwrap(),
            ))
        };
        for (tag, most) in [
            (b'P', REPR_BYTES_MAX),
            (b'V', VARIABLE_BYTES_MAX),
            (b'E', NAME_BYTES_MAX),
        ] {
            assert!(!read(tag, most).is_cut);
            assert!(read(tag, most + 1).is_cut);
        }
        // No partial character at the end, which would hide the half of a secret before it.
        let text = format!("x{}", "é".repeat(REPR_BYTES_MAX));
        let cut = read_report(&rec(b'P', text.as_bytes())).result_repr.unwrap();
        assert_eq!(cut.len(), REPR_BYTES_MAX - 1);
        assert!(!cut.contains('\u{fffd}'));
    }

    #[test]
    fn incomplete_record_is_dropped() {
        let bytes = [
            rec(b'R', b"{\"a\":1}"),
            rec(b'P', b"{'a': 1}"),
            rec(b'V', b"a"),
            vec![b'V', 0, 0, 0, 9, b'x'],
        ]
        .concat();
        let report = read_report(&bytes);
        assert_eq!(report.result, Some(serde_json::json!({"a": 1})));
        assert_eq!(report.result_repr.as_deref(), Some("{'a': 1}"));
        assert_eq!(report.variables, ["a"]);
        assert_eq!(report.error, None);
    }

    #[test]
    fn forged_report_neither_fails_nor_grows() {
        for bytes in [
            &[][..],
            b"R",
            &[b'R', 255, 255, 255, 255],
            &[0; 1000],
            &[255; 4096],
        ] {
            let report = read_report(bytes);
            assert!(report.result.is_none() && report.error.is_none());
        }
        let many: Vec<u8> = (0..5000).flat_map(|_| rec(b'V', b"x")).collect();
        assert_eq!(read_report(&many).variables.len(), VARIABLES_MAX);
        let deep = "[".repeat(100_000);
        assert_eq!(read_report(&rec(b'R', deep.as_bytes())).result, None);
        assert_eq!(read_report(&rec(b'M', b"message without a type")).error, None);
    }

    #[test]
    fn malformed_refusal_is_dropped() {
        let check = |payload: &str, expect: Option<(&str, Option<u32>)>| {
            let events = read_report(&rec(b'S', payload.as_bytes())).security_events;
            let read = events.first().map(|one| (one.module.as_str(), one.line));
            assert_eq!(read, expect, "{payload}");
        };
        check(
            r#"{"rule":"blocked_import","what":"os.path","line":3}"#,
            Some(("os.path", Some(3))),
        );
        check(
            r#"{"rule":"blocked_import","what":"größe?","line":null}"#,
            Some(("größe?", None)),
        );
        check(r#"{"rule":"blocked_import","what":"os"}"#, Some(("os", None)));
        check(r#"{"rule":"anything","what":"os","line":3}"#, None);
        check(r#"{"rule":"blocked_import","what":"","line":3}"#, None);
        check(
            r#"{"rule":"blocked_import","what":"`os` is fine","line":3}"#,
            None,
        );
        check(
            r#"{"rule":"blocked_import","what":"a
b","line":3}"#,
            None,
        );
        check(r#"{"rule":"blocked_import","what":["os"],"line":3}"#, None);
        check(r#"{"rule":"blocked_import","what":"os","line":-1}"#, None);
        check(r#"{"rule":"blocked_import","what":"os","line":4294967296}"#, None);
        check(
            r#"{"rule":"blocked_import","what":"os","line":1,"layer":"x"}"#,
            None,
        );
        check("", None);
        check(&"[".repeat(1000), None);
        let long = format!(r#"{{"rule":"blocked_import","what":"{}"}}"#, "a".repeat(1024));
        check(&long, None);
        let one = rec(b'S', br#"{"rule":"blocked_import","what":"os","line":1}"#);
        assert_eq!(read_report(&one.repeat(5000)).security_events.len(), BLOCKED_MAX);
    }

    #[test]
    fn malformed_display_is_dropped() {
        let check = |tag: u8, payload: &[u8], expect: Option<(&str, Option<&str>, Option<&str>)>| {
            let display = read_report(&rec(tag, payload)).display;
            let read = display.first();
            let read = read.map(|one| (one.mime.as_str(), one.artifact.as_deref(), one.text.as_deref()));
            assert_eq!(read, expect, "{}", String::from_utf8_lossy(payload));
        };
        check(
            b'D',
            b"text/html\n<b>\n</b>",
            Some(("text/html", None, Some("<b>\n</b>"))),
        );
        check(
            b'A',
            b"image/png\noutput/a\nb.png",
            Some(("image/png", Some("output/a\nb.png"), None)),
        );
        check(b'D', b"text/html", None);
        check(b'D', b"text/html\n", None);
        check(b'D', b"text/html\n\xff", None);
        check(b'D', b"text/javascript\n1", None);
        check(b'D', b"text/html;x=y\n1", None);
        check(b'A', &[&b"image/png\n"[..], &[b'a'; 5000]].concat(), None);
    }

    #[test]
    fn displays_are_bounded() {
        let one = |bytes: usize| rec(b'D', &[&b"text/html\n"[..], &vec![b'x'; bytes]].concat());
        assert_eq!(read_report(&one(1).repeat(100)).display.len(), DISPLAYS_MAX);
        // A display that does not fit does not exclude a smaller one.
        let report = read_report(&[one(DISPLAY_BYTES_MAX - 5), one(6), one(5), one(1)].concat());
        let lengths = report.display.iter().map(|one| one.text.as_ref().unwrap().len());
        assert_eq!(lengths.collect::<Vec<_>>(), [DISPLAY_BYTES_MAX - 5, 5]);
        assert_eq!(read_report(&one(DISPLAY_BYTES_MAX + 1)).display, []);
    }
}
