//! Bounds structured answers, since some clients give them to a model: long fields are cut and named in `truncated`.

use serde_json::{Map, Value, json};

/// The inline content of an artifact, which the resource at its `uri` has, too.
const INLINE: &str = "content_b64";

/// Cuts these fields to `room` bytes of JSON, except for those in `kept`. Lists lose their end and strings their
/// middle; a `result`, which is the program's own value, is kept whole or left out.
pub(super) fn fit(answer: &mut Value, kept: &[&str], room: usize) {
    let Value::Object(fields) = answer else { return };
    let is_kept = |name: &str| kept.contains(&name);
    let cut = fit_fields(fields, is_kept, room);
    if cut.is_empty() {
        return;
    }
    let truncated = fields.entry("truncated").or_insert_with(|| json!({}));
    for name in cut {
        truncated[name] = json!(true);
    }
}

fn fit_fields(fields: &mut Map<String, Value>, is_kept: impl Fn(&str) -> bool, room: usize) -> Vec<String> {
    let wants: Vec<usize> = fields
        .iter()
        .map(|(name, value)| if is_kept(name) { 0 } else { size(value) })
        .collect();
    let mut cut = Vec::new();
    let rooms = shares(wants.clone(), room);
    for ((name, value), (want, room)) in fields.iter_mut().zip(wants.into_iter().zip(rooms)) {
        if want > room {
            match name.as_str() {
                "result" => *value = Value::Null,
                _ => shorten(value, room),
            }
            cut.push(name.clone());
        }
    }
    cut
}

fn size(value: &Value) -> usize {
    value.to_string().len()
}

fn shorten(value: &mut Value, room: usize) {
    match value {
        Value::String(text) => {
            let (whole, mut kept) = (std::mem::take(text), room);
            *value = json!(cut(&whole, kept));
            // Escapes make a string longer as JSON.
            while kept > 0 && size(value) > room {
                kept /= 2;
                *value = json!(cut(&whole, kept));
            }
        }
        Value::Array(items) => {
            let mut wants: usize = items.iter().map(|item| size(item) + 1).sum();
            for item in items.iter_mut().rev().filter_map(Value::as_object_mut) {
                if wants > room
                    && let Some(inline) = item.remove(INLINE)
                {
                    wants -= size(&inline);
                }
            }
            while wants > room
                && let Some(last) = items.pop()
            {
                wants = wants.saturating_sub(size(&last) + 1);
            }
        }
        Value::Object(fields) => drop(fit_fields(fields, |_| false, room)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Divides the room: parts that want little leave the rest of their share to the others.
pub(super) fn shares<W: AsMut<[usize]>>(mut wants: W, room: usize) -> W {
    let shares = wants.as_mut();
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by_key(|at| shares[*at]);
    let mut left = room;
    for (done, at) in order.into_iter().enumerate() {
        shares[at] = shares[at].min(left / (shares.len() - done));
        left -= shares[at];
    }
    wants
}

/// Returns both ends of a text, at most half of the room each, cut at line ends if near; `None` if all of it has room.
pub(super) fn ends(text: &str, room: usize) -> Option<(&str, &str)> {
    if text.len() <= room {
        return None;
    }
    let first = beginning(text, room / 2);
    let first = match first.rfind('\n') {
        Some(at) if at >= first.len() / 2 => &first[..=at],
        _ => first,
    };
    let last = &text[text.ceil_char_boundary(text.len() - room / 2)..];
    let last = match last.find('\n') {
        Some(at) if at < last.len() / 2 => &last[at + 1..],
        _ => last,
    };
    Some((first, last))
}

pub(super) fn cut(text: &str, room: usize) -> String {
    match ends(text, room) {
        None => text.to_owned(),
        Some((first, last)) => {
            let between = text.len() - first.len() - last.len();
            format!("{first}\n[... {between} bytes ...]\n{last}")
        }
    }
}

/// Returns at most this many bytes, cut between characters.
pub(super) fn beginning(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
