//! A JSON text as a tree: small for hostile texts too (an empty object takes 24 bytes), and with a note of every name
//! that stands twice in one object and every number that was rounded.

use super::text::{Oddities, Rounded};
use ringfence_types::ISSUES_MAX;
use serde::{
    Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
    ser::{SerializeMap, SerializeSeq},
};
use serde_json::Number;
use std::{borrow::Cow, fmt};

/// A value; texts without escapes are those of the body.
#[derive(Debug, Default)]
pub(super) enum Tree<'a> {
    #[default]
    Null,
    Boolean(bool),
    Number(Number),
    Text(Cow<'a, str>),
    /// Of a member, while it is looked at as if it were a value.
    Name(String),
    Array(Box<[Tree<'a>]>),
    Object(Members<'a>),
}

/// Of an object; in the order of their names, each name once.
#[derive(Debug, Default)]
pub(super) struct Members<'a>(Box<[(Cow<'a, str>, Tree<'a>)]>);

impl<'a> Members<'a> {
    /// Of two with one name the last stays, as with most readers.
    fn new(mut members: Vec<(Cow<'a, str>, Tree<'a>)>) -> Self {
        members.sort_by(|one, other| one.0.cmp(&other.0));
        members.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        Self(members.into_boxed_slice())
    }

    pub(super) fn as_slice(&self) -> &[(Cow<'a, str>, Tree<'a>)] {
        &self.0
    }

    pub(super) fn get(&self, name: &str) -> Option<&Tree<'a>> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        self.0.get(at).map(|(_, tree)| tree)
    }
}

impl<'a> Tree<'a> {
    /// The value that a JSON Pointer leads to.
    pub(super) fn at(&self, pointer: &str) -> Option<&Self> {
        pointer
            .split('/')
            .skip(1)
            .try_fold(self, |tree, segment| match tree {
                Tree::Array(items) => items.get(segment.parse::<usize>().ok()?),
                Tree::Object(members) => members.get(&segment.replace("~1", "/").replace("~0", "~")),
                _ => None,
            })
    }

    /// The bytes of the longest JSON Pointer into it.
    pub(super) fn longest_path(&self) -> usize {
        match self {
            Tree::Array(items) => {
                let longest = items.iter().map(Tree::longest_path).max();
                longest.map_or(0, |bytes| bytes + 1 + items.len().to_string().len())
            }
            Tree::Object(members) => {
                let longest = |(name, tree): &(Cow<'_, str>, Tree<'_>)| name.len() + 1 + tree.longest_path();
                members.as_slice().iter().map(longest).max().unwrap_or(0)
            }
            _ => 0,
        }
    }
}

impl Serialize for Tree<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Tree::Null => serializer.serialize_unit(),
            Tree::Boolean(truth) => serializer.serialize_bool(*truth),
            Tree::Number(number) => number.serialize(serializer),
            Tree::Text(text) => serializer.serialize_str(text),
            Tree::Name(name) => serializer.serialize_str(name),
            Tree::Array(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| list.serialize_element(item))?;
                list.end()
            }
            Tree::Object(members) => {
                let members = members.as_slice();
                let mut map = serializer.serialize_map(Some(members.len()))?;
                members
                    .iter()
                    .try_for_each(|(name, tree)| map.serialize_entry(name, tree))?;
                map.end()
            }
        }
    }
}

/// What is wrong with a text whatever a schema says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Flaw {
    /// JSON Pointer.
    pub(super) path: String,
    pub(super) kind: FlawKind,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum FlawKind {
    /// An earlier member of the object has this name.
    DuplicateName,
    /// It would become another number.
    Rounded(Rounded),
}

/// What a text says.
#[derive(Debug)]
pub(super) struct Document<'a> {
    pub(super) tree: Tree<'a>,
    /// The first of them.
    pub(super) flaws: Vec<Flaw>,
    pub(super) flaws_total: u64,
}

/// Reads a text whose oddities are known.
pub(super) fn read<'a>(text: &'a str, oddities: &Oddities) -> Result<Document<'a>, serde_json::Error> {
    let mut reading = Reading {
        path: Vec::new(),
        numbers: 0,
        rounded: &oddities.rounded,
        flaws: Vec::new(),
        flaws_total: 0,
        path_bytes: 0,
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let tree = Reader(&mut reading).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(Document {
        tree,
        flaws: reading.flaws,
        flaws_total: reading.flaws_total,
    })
}

/// Of all flaws that are kept, together.
const PATH_BYTES_MAX: usize = 1 << 20;

struct Reading<'a, 'o> {
    path: Vec<Step<'a>>,
    numbers: u32,
    /// Those that are still to come.
    rounded: &'o [Rounded],
    flaws: Vec<Flaw>,
    flaws_total: u64,
    path_bytes: usize,
}

enum Step<'a> {
    Index(usize),
    Name(Cow<'a, str>),
}

impl Reading<'_, '_> {
    fn note(&mut self, kind: FlawKind) {
        self.flaws_total += 1;
        if self.flaws.len() >= ISSUES_MAX || self.path_bytes >= PATH_BYTES_MAX {
            return;
        }
        let path = pointer(&self.path);
        self.path_bytes += path.len();
        self.flaws.push(Flaw { path, kind });
    }

    /// A number has been read.
    fn count(&mut self) {
        if let Some((next, rest)) = self.rounded.split_first()
            && next.ordinal == self.numbers
        {
            self.rounded = rest;
            self.note(FlawKind::Rounded(*next));
        }
        self.numbers = self.numbers.saturating_add(1);
    }
}

fn pointer(path: &[Step<'_>]) -> String {
    path.iter().fold(String::new(), |mut pointer, step| {
        pointer.push('/');
        match step {
            Step::Index(at) => pointer.push_str(&at.to_string()),
            Step::Name(name) => pointer.push_str(&name.replace('~', "~0").replace('/', "~1")),
        }
        pointer
    })
}

struct Reader<'r, 'a, 'o>(&'r mut Reading<'a, 'o>);

impl<'a> DeserializeSeed<'a> for Reader<'_, 'a, '_> {
    type Value = Tree<'a>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Tree<'a>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Reader<'_, 'a, '_> {
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
        self.0.count();
        Ok(Tree::Number(number.into()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Tree<'a>, E> {
        self.0.count();
        Ok(Tree::Number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Tree<'a>, E> {
        self.0.count();
        Number::from_f64(number)
            .map(Tree::Number)
            .ok_or_else(|| E::custom("a number is too large"))
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
            self.0.path.push(Step::Index(items.len()));
            let item = list.next_element_seed(Reader(self.0))?;
            self.0.path.pop();
            match item {
                Some(item) => items.push(item),
                None => return Ok(Tree::Array(items.into_boxed_slice())),
            }
        }
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Tree<'a>, A::Error> {
        let mut members = Vec::new();
        while let Some(Name(name)) = map.next_key_seed(NameReader)? {
            self.0.path.push(Step::Name(name.clone()));
            let tree = map.next_value_seed(Reader(self.0))?;
            self.0.path.pop();
            members.push((name, tree));
        }
        let before = members.len();
        note_duplicates(self.0, &members);
        let members = Members::new(members);
        debug_assert!(members.as_slice().len() <= before);
        Ok(Tree::Object(members))
    }
}

/// Below this many members each is compared with each.
const FEW: usize = 8;

fn note_duplicates<'a>(reading: &mut Reading<'a, '_>, members: &[(Cow<'a, str>, Tree<'a>)]) {
    let mut note = |name: &Cow<'a, str>| {
        reading.path.push(Step::Name(name.clone()));
        reading.note(FlawKind::DuplicateName);
        reading.path.pop();
    };
    if members.len() <= FEW {
        for (at, (name, _)) in members.iter().enumerate() {
            if members.iter().take(at).any(|(earlier, _)| earlier == name) {
                note(name);
            }
        }
        return;
    }
    let mut names: Vec<&Cow<'a, str>> = members.iter().map(|(name, _)| name).collect();
    names.sort();
    for pair in names.windows(2) {
        if let [one, other] = pair
            && one == other
        {
            note(other);
        }
    }
}

/// The name of a member.
struct Name<'a>(Cow<'a, str>);

struct NameReader;

impl<'a> DeserializeSeed<'a> for NameReader {
    type Value = Name<'a>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Name<'a>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'a> for NameReader {
    type Value = Name<'a>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Name<'a>, E> {
        Ok(Name(Cow::Owned(text.to_owned())))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'a str) -> Result<Name<'a>, E> {
        Ok(Name(Cow::Borrowed(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> Document<'_> {
        read(text, &Oddities::of(text)).expect(text)
    }

    #[test]
    fn a_text_is_read_as_it_is_written() {
        let check = |text: &str, expect: &str| {
            let told = serde_json::to_string(&document(text).tree).expect("JSON");
            assert_eq!(told, expect, "{text}");
        };
        check("null", "null");
        check(" [1, -2, 1.50, true, \"a\\u00e9\"] ", r#"[1,-2,1.5,true,"aé"]"#);
        check(r#"{"b": {}, "a": [[]]}"#, r#"{"a":[[]],"b":{}}"#);
        check(r#"{"a": 1, "b": 2, "a": 3}"#, r#"{"a":3,"b":2}"#);
        check(r#"{"a": 1, "a": 2, "\u0061": 3}"#, r#"{"a":3}"#);
    }

    #[test]
    fn names_that_stand_twice_are_told_with_their_path() {
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
    fn a_rounded_number_is_told_with_its_path() {
        let text = r#"{"a": [1, 18446744073709551617], "b": 18446744073709551617, "c": 3}"#;
        let paths: Vec<String> = document(text).flaws.into_iter().map(|flaw| flaw.path).collect();
        assert_eq!(paths, ["/a/1", "/b"]);
    }

    #[test]
    fn a_pointer_leads_to_its_value() {
        let document = document(r#"{"a/b": [{"~": 7}]}"#);
        let told = document.tree.at("/a~1b/0/~0").map(serde_json::to_string);
        assert_eq!(told.expect("there").expect("JSON"), "7");
        assert!(document.tree.at("/a~1b/1").is_none());
        assert!(document.tree.at("").is_some());
    }

    #[test]
    fn the_longest_path_is_measured() {
        let check =
            |text: &str, expect: usize| assert_eq!(document(text).tree.longest_path(), expect, "{text}");
        check("1", 0);
        check("[]", 0);
        check(r#"{"abc": [1], "d": 2}"#, "/abc/0".len());
    }

    #[test]
    fn flaws_are_counted_beyond_those_that_are_kept() {
        let object = format!("{{{}}}", vec!["\"a\":0"; 5001].join(","));
        let document = document(&object);
        assert_eq!((document.flaws.len(), document.flaws_total), (ISSUES_MAX, 5000));
    }
}
