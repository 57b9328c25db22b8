//! Secrets in JSON values: in strings, in the keys of objects, and in the text of numbers.

use crate::{Found, Redactor, Stream};
use serde_json::{Map, Value};
use std::{
    collections::{HashMap, HashSet},
    mem,
};

impl Redactor {
    /// Redacts all strings, keys and numbers. A number that contains a find becomes a string. Keys that become equal
    /// are all kept: the second gets the suffix `#2`, and so on.
    pub fn json(&self, value: &mut Value) -> Found {
        if self.is_idle() {
            return Found::default();
        }
        let mut stream = self.stream();
        // no recursion: nested values must not exhaust the stack
        let mut pending = vec![value];
        while let Some(value) = pending.pop() {
            match value {
                Value::Null | Value::Bool(_) => {}
                Value::String(text) => {
                    if let Some(clean) = cleaned(&mut stream, text) {
                        *text = clean;
                    }
                }
                Value::Number(number) => {
                    if let Some(clean) = cleaned(&mut stream, &number.to_string()) {
                        *value = Value::String(clean);
                    }
                }
                Value::Array(items) => pending.extend(items),
                Value::Object(map) => {
                    rename(map, &mut stream);
                    pending.extend(map.values_mut());
                }
            }
        }
        stream.found()
    }
}

/// Returns the redacted text. `None`: nothing was found.
fn cleaned(stream: &mut Stream, text: &str) -> Option<String> {
    let before = stream.found();
    let mut out = Vec::with_capacity(text.len());
    stream.push(text.as_bytes(), &mut out);
    stream.finish(&mut out);
    (stream.found() != before).then(|| crate::into_text(out))
}

fn rename(map: &mut Map<String, Value>, stream: &mut Stream) {
    let names: Vec<Option<String>> = map.keys().map(|key| cleaned(stream, key)).collect();
    if names.iter().all(Option::is_none) {
        return;
    }
    let old = mem::take(map);
    let kept = old.keys().zip(&names).filter(|(_, name)| name.is_none());
    let mut taken: HashSet<String> = kept.map(|(key, _)| key.clone()).collect();
    let mut copies: HashMap<String, usize> = HashMap::new();
    for ((key, value), name) in old.into_iter().zip(names) {
        let name = name.map_or(key, |name| {
            let copy = copies.entry(name.clone()).or_insert(0);
            loop {
                *copy += 1;
                let numbered = match copy {
                    1 => name.clone(),
                    _ => format!("{name}#{copy}"),
                };
                if taken.insert(numbered.clone()) {
                    return numbered;
                }
            }
        });
        map.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Forms, Personal};
    use serde_json::json;

    fn redacted(mut value: Value) -> (Value, Found) {
        let redactor = Redactor::new(["hunter22", "31337"], Forms::All, Personal::Remove);
        let found = redactor.json(&mut value);
        (value, found)
    }

    #[test]
    fn strings_keys_and_numbers_are_searched() {
        let (value, found) = redacted(json!({
            "the hunter22 key": [1, true, null, "is hunter22"],
            "port": 313_370,
            "card": 4_111_111_111_111_111_u64,
            "same": 12,
        }));
        let expect = json!({
            "the ***REDACTED*** key": [1, true, null, "is ***REDACTED***"],
            "port": "***REDACTED***0",
            "card": "***REDACTED***",
            "same": 12,
        });
        assert_eq!(value, expect);
        assert_eq!((found.secrets, found.personal), (3, 1));
    }

    #[test]
    fn equal_redacted_keys_are_all_kept() {
        let (value, _) = redacted(json!({
            "hunter22": 1, "22retnuh": 2, "31337": 3, "***REDACTED***": 4, "***REDACTED***#3": 5
        }));
        let map = value.as_object().unwrap();
        assert_eq!(map.len(), 5);
        assert_eq!(map["***REDACTED***"], 4);
        assert_eq!(map["***REDACTED***#3"], 5);
        let mut rest: Vec<i64> = ["#2", "#4", "#5"]
            .iter()
            .map(|n| map[&format!("***REDACTED***{n}")].as_i64().unwrap())
            .collect();
        rest.sort_unstable();
        assert_eq!(rest, [1, 2, 3]);
    }

    #[test]
    fn secret_split_over_two_values_is_not_found() {
        let (value, found) = redacted(json!(["hunt", "er22"]));
        assert_eq!((value, found), (json!(["hunt", "er22"]), Found::default()));
    }

    #[test]
    fn deep_nesting_does_not_use_the_stack() {
        let mut value = json!("hunter22");
        for _ in 0..200_000 {
            value = Value::Array(vec![value]);
        }
        let redactor = Redactor::new(["hunter22"], Forms::Plain, Personal::Keep);
        assert_eq!(redactor.json(&mut value).secrets, 1);
        // serde_json's own drop would recurse
        while let Value::Array(mut items) = value {
            value = items.pop().unwrap();
        }
    }
}
