//! A JSON text as a tree, which is small even for hostile texts (an empty object takes 24 bytes), and its flaws:
//! duplicate names in an object, and numbers that were rounded.

use super::{excerpt, numbers};
use jsonschema::paths::{Location, LocationSegment};
use ringfence_types::ISSUES_MAX;
use serde::{
    Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Number, Value};
use std::{borrow::Cow, fmt, iter::Peekable, vec::IntoIter};

/// A value; texts without escapes are borrowed from the body.
#[derive(Debug, Default)]
pub(super) enum Tree<'a> {
    #[default]
    Null,
    Boolean(bool),
    Number(Number),
    Text(Cow<'a, str>),
    Array(Box<[Tree<'a>]>),
    Object(Members<'a>),
}

pub(super) type Member<'a> = (Cow<'a, str>, Tree<'a>);

/// The members of an object, sorted by name, each name once.
#[derive(Debug, Default)]
pub(super) struct Members<'a>(pub(super) Box<[Member<'a>]>);

impl<'a> Members<'a> {
    pub(super) fn get(&self, name: &str) -> Option<&Tree<'a>> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        self.0.get(at).map(|(_, tree)| tree)
    }
}

impl<'a> Tree<'a> {
    pub(super) fn at(&self, pointer: &str) -> Option<&Self> {
        let mut segments = pointer.split('/').skip(1);
        segments.try_fold(self, |tree, segment| match tree {
            Tree::Array(items) => items.get(segment.parse::<usize>().ok()?),
            Tree::Object(members) => members.get(&segment.replace("~1", "/").replace("~0", "~")),
            _ => None,
        })
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Tree::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn excerpt(&self) -> Value {
        excerpt::of(self, self.as_text())
    }
}

impl Serialize for Tree<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Tree::Null => serializer.serialize_unit(),
            Tree::Boolean(truth) => serializer.serialize_bool(*truth),
            Tree::Number(number) => number.serialize(serializer),
            Tree::Text(text) => serializer.serialize_str(text),
            Tree::Array(items) => serializer.collect_seq(items),
            Tree::Object(members) => {
                serializer.collect_map(members.0.iter().map(|(name, tree)| (name, tree)))
            }
        }
    }
}

/// An error of the text itself, with any schema.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Flaw<'a> {
    pub(super) path: Location,
    /// The digits of a number that is rounded; `None` for a member with the name of an earlier one.
    pub(super) rounded: Option<&'a str>,
}

#[derive(Debug, Default)]
pub(super) struct Document<'a> {
    pub(super) tree: Tree<'a>,
    /// The first flaws, up to a limit.
    pub(super) flaws: Vec<Flaw<'a>>,
    pub(super) flaws_total: u64,
    /// Length in bytes of the longest JSON Pointer into the document.
    pub(super) longest_path: usize,
}

pub(super) fn read(text: &str) -> Result<Document<'_>, serde_json::Error> {
    let mut reading = Reading {
        path: Vec::new(),
        numbers: 0,
        rounded: numbers::rounded(text).into_iter().peekable(),
        document: Document::default(),
        path_bytes: 0,
        kept_bytes: 0,
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let tree = Reader(&mut reading).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(Document {
        tree,
        ..reading.document
    })
}

/// Length of the paths of kept flaws from which on no more are kept.
const PATHS_BYTES_MAX: usize = 1 << 20;

struct Reading<'a> {
    path: Vec<LocationSegment<'a>>,
    path_bytes: usize,
    numbers: usize,
    /// Rounded numbers that are still to come, each with the number of numbers before it.
    rounded: Peekable<IntoIter<(usize, &'a str)>>,
    document: Document<'a>,
    kept_bytes: usize,
}

impl<'a> Reading<'a> {
    fn note(&mut self, rounded: Option<&'a str>) {
        self.document.flaws_total += 1;
        if self.document.flaws.len() < ISSUES_MAX && self.kept_bytes < PATHS_BYTES_MAX {
            let path: Location = self.path.iter().cloned().collect();
            self.kept_bytes += path.as_str().len();
            self.document.flaws.push(Flaw { path, rounded });
        }
    }

    fn count(&mut self, tree: &Tree<'a>) {
        self.document.longest_path = self.document.longest_path.max(self.path_bytes);
        if !matches!(tree, Tree::Number(_)) {
            return;
        }
        if let Some((_, digits)) = self.rounded.next_if(|(before, _)| *before == self.numbers) {
            self.note(Some(digits));
        }
        self.numbers += 1;
    }

    /// Reads a value below a path segment of this length.
    fn below<T>(
        &mut self,
        segment: LocationSegment<'a>,
        bytes: usize,
        read: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.path.push(segment);
        self.path_bytes += bytes + 1;
        let value = read(self);
        self.path_bytes -= bytes + 1;
        self.path.pop();
        value
    }
}

struct Reader<'r, 'a>(&'r mut Reading<'a>);

impl<'a> DeserializeSeed<'a> for Reader<'_, 'a> {
    type Value = Tree<'a>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Tree<'a>, D::Error> {
        let tree = deserializer.deserialize_any(Reader(self.0))?;
        self.0.count(&tree);
        Ok(tree)
    }
}

impl<'a> Visitor<'a> for Reader<'_, 'a> {
    type Value = Tree<'a>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Tree<'a>, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Tree<'a>, E> {
        Ok(Tree::Boolean(truth))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Tree<'a>, E> {
        Ok(Tree::Number(number.into()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Tree<'a>, E> {
        Ok(Tree::Number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Tree<'a>, E> {
        let number = Number::from_f64(number).map(Tree::Number);
        number.ok_or_else(|| E::custom("a number is too large"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Tree<'a>, E> {
        Ok(Tree::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'a str) -> Result<Tree<'a>, E> {
        Ok(Tree::Text(Cow::Borrowed(text)))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut list: A) -> Result<Tree<'a>, A::Error> {
        let mut items = Vec::new();
        loop {
            let at = items.len();
            let digits = at.checked_ilog10().map_or(1, |digits| digits as usize + 1);
            let read = |reading: &mut Reading<'a>| list.next_element_seed(Reader(reading));
            match self.0.below(LocationSegment::Index(at), digits, read)? {
                Some(item) => items.push(item),
                None => return Ok(Tree::Array(items.into_boxed_slice())),
            }
        }
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Tree<'a>, A::Error> {
        let Reader(reading) = self;
        let mut members: Vec<Member<'a>> = Vec::new();
        while let Some(Tree::Text(name)) = map.next_key_seed(Reader(reading))? {
            let read = |reading: &mut Reading<'a>| map.next_value_seed(Reader(reading));
            let value = reading.below(LocationSegment::Property(name.clone()), name.len(), read)?;
            members.push((name, value));
        }
        // Of members with the same name the last is kept, as most readers do.
        members.reverse();
        members.sort_by(|one, other| one.0.cmp(&other.0));
        members.dedup_by(|earlier, last| {
            let is_same = earlier.0 == last.0;
            if is_same {
                let segment = LocationSegment::Property(last.0.clone());
                reading.below(segment, last.0.len(), |reading| reading.note(None));
            }
            is_same
        });
        Ok(Tree::Object(Members(members.into_boxed_slice())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> Document<'_> {
        read(text).expect(text)
    }

    #[test]
    fn json_text_is_read_with_the_last_of_duplicate_members() {
        let check = |text: &str, expect: &str| {
            let written = serde_json::to_string(&document(text).tree).expect("JSON");
            assert_eq!(written, expect, "{text}");
        };
        check("null", "null");
        check(" [1, -2, 1.50, true, \"a\\u00e9\"] ", r#"[1,-2,1.5,true,"aé"]"#);
        check(r#"{"b": {}, "a": [[]]}"#, r#"{"a":[[]],"b":{}}"#);
        check(r#"{"a": 1, "b": 2, "a": 3}"#, r#"{"a":3,"b":2}"#);
        check(r#"{"a": 1, "a": 2, "\u0061": 3}"#, r#"{"a":3}"#);
    }

    #[test]
    fn duplicate_names_are_reported_with_their_path() {
        let check = |text: &str, expect: &[&str]| {
            let document = document(text);
            let paths: Vec<&str> = document.flaws.iter().map(|flaw| flaw.path.as_str()).collect();
            assert_eq!(paths, expect, "{text}");
            assert_eq!(document.flaws_total, expect.len() as u64, "{text}");
        };
        check(r#"{"a": 1, "b": {"a": 1}}"#, &[]);
        check(r#"{"a": 1, "a": 2}"#, &["/a"]);
        check(
            r#"[{"a": 1}, {"x/y~": 1, "x/y~": 2, "x/y~": 3}]"#,
            &["/1/x~1y~0", "/1/x~1y~0"],
        );
        let many: Vec<String> = (0..20).map(|at| format!("\"{}\": 0", at % 19)).collect();
        check(&format!("{{{}}}", many.join(", ")), &["/0"]);
    }

    #[test]
    fn rounded_number_is_reported_with_its_path() {
        let text = r#"{"a": [1, 18446744073709551617], "b": 18446744073709551617, "c": 3}"#;
        let document = document(text);
        let paths: Vec<&str> = document.flaws.iter().map(|flaw| flaw.path.as_str()).collect();
        assert_eq!(paths, ["/a/1", "/b"]);
    }

    #[test]
    fn json_pointer_resolves_to_its_value() {
        let document = document(r#"{"a/b": [{"~": 7}]}"#);
        let value = document.tree.at("/a~1b/0/~0").map(serde_json::to_string);
        assert_eq!(value.expect("there").expect("JSON"), "7");
        assert!(document.tree.at("/a~1b/1").is_none());
        assert!(document.tree.at("").is_some());
    }

    #[test]
    fn longest_path_is_measured() {
        let check = |text: &str, expect: usize| assert_eq!(document(text).longest_path, expect, "{text}");
        check("1", 0);
        check("[]", 0);
        check(r#"{"abc": [1], "d": 2}"#, "/abc/0".len());
    }

    #[test]
    fn flaws_are_counted_beyond_the_kept_ones() {
        let object = format!("{{{}}}", vec!["\"a\":0"; 5001].join(","));
        let document = document(&object);
        assert_eq!((document.flaws.len(), document.flaws_total), (ISSUES_MAX, 5000));
    }
}
