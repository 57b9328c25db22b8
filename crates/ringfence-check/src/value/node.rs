//! Our tree, as the validator sees it. Every look at it is metered; what an error keeps of a value is nothing, because
//! it is found again by its path.

use super::{
    meter,
    tree::{Members, Tree},
};
use jsonschema::{
    JsonType,
    json::{Array, Json, JsonNumber, Node, NodeIdentity, Object, cmp},
};
use serde_json::{Number, Value};
use std::{
    borrow::Cow,
    collections::HashSet,
    hash::{Hash, Hasher},
};

/// The representation.
pub(super) struct Metered;

/// One value of it.
#[derive(Clone, Copy)]
pub(super) struct Item<'a>(pub(super) &'a Tree<'a>);

impl Json for Metered {
    type Node<'a> = Item<'a>;
    type PreparedKey = String;
    type StringBuffer = Tree<'static>;

    // A lookup is a binary search, as in the representation that the validator is tuned for.
    const KEYS_PER_LOOKUP: usize = 2;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut Tree<'static>, name: &str, ask: impl FnOnce(Item<'_>) -> T) -> T {
        *buffer = Tree::Name(name.to_owned());
        ask(Item(buffer))
    }
}

impl<'a> Node<'a, Metered> for Item<'a> {
    type Object = &'a Members<'a>;
    type Array = &'a [Tree<'a>];
    type Number = &'a Number;

    fn as_object(&self) -> Option<&'a Members<'a>> {
        meter::step();
        match self.0 {
            Tree::Object(members) => Some(members),
            _ => None,
        }
    }

    fn as_array(&self) -> Option<&'a [Tree<'a>]> {
        meter::step();
        match self.0 {
            Tree::Array(items) => Some(items),
            _ => None,
        }
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = text_of(self.0)?;
        meter::steps(1 + text.len() as u64 / BYTES_PER_STEP);
        Some(Cow::Borrowed(text))
    }

    fn as_number(&self) -> Option<&'a Number> {
        meter::step();
        match self.0 {
            Tree::Number(number) => Some(number),
            _ => None,
        }
    }

    fn as_boolean(&self) -> Option<bool> {
        meter::step();
        match self.0 {
            Tree::Boolean(truth) => Some(*truth),
            _ => None,
        }
    }

    fn is_null(&self) -> bool {
        meter::step();
        matches!(self.0, Tree::Null)
    }

    fn json_type(&self) -> JsonType {
        meter::step();
        match self.0 {
            Tree::Null => JsonType::Null,
            Tree::Boolean(_) => JsonType::Boolean,
            Tree::Number(_) => JsonType::Number,
            Tree::Text(_) | Tree::Name(_) => JsonType::String,
            Tree::Array(_) => JsonType::Array,
            Tree::Object(_) => JsonType::Object,
        }
    }

    fn equals_value(&self, expected: &Value) -> bool {
        equals_value(self.0, expected)
    }

    /// Asked for by errors alone, of which each keeps what it is given.
    fn to_value(&self) -> Cow<'a, Value> {
        meter::error();
        Cow::Owned(match self.0 {
            Tree::Name(name) => Value::String(super::excerpt::cut(name, super::excerpt::NAME_BYTES_MAX)),
            _ => Value::Null,
        })
    }

    fn identity(&self) -> Option<NodeIdentity> {
        meter::step();
        Some(NodeIdentity::new(std::ptr::from_ref(self.0) as usize))
    }
}

/// A look at a long text takes as long as many looks at a number.
const BYTES_PER_STEP: u64 = 64;

fn text_of<'a>(tree: &'a Tree<'_>) -> Option<&'a str> {
    match tree {
        Tree::Text(text) => Some(text),
        Tree::Name(name) => Some(name),
        _ => None,
    }
}

impl<'a> Object<'a, Metered> for &'a Members<'a> {
    type Node = Item<'a>;
    type MemberName = &'a str;
    type MembersIter = MembersIter<'a>;

    fn len(&self) -> usize {
        self.as_slice().len()
    }

    fn get(&self, key: &String) -> Option<Item<'a>> {
        meter::step();
        Members::get(self, key).map(Item)
    }

    fn members(&self) -> MembersIter<'a> {
        MembersIter(self.as_slice().iter())
    }
}

/// Names and values.
pub(super) struct MembersIter<'a>(std::slice::Iter<'a, (Cow<'a, str>, Tree<'a>)>);

impl<'a> Iterator for MembersIter<'a> {
    type Item = (&'a str, Item<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        meter::step();
        self.0.next().map(|(name, tree)| (&**name, Item(tree)))
    }
}

impl<'a> Array<'a, Metered> for &'a [Tree<'a>] {
    type Node = Item<'a>;
    type ElementsIter = ElementsIter<'a>;

    fn len(&self) -> usize {
        <[Tree<'_>]>::len(self)
    }

    fn elements(&self) -> ElementsIter<'a> {
        ElementsIter(self.iter())
    }

    fn is_unique(&self) -> bool {
        is_unique(self)
    }
}

/// The values of an array.
pub(super) struct ElementsIter<'a>(std::slice::Iter<'a, Tree<'a>>);

impl<'a> Iterator for ElementsIter<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        meter::step();
        self.0.next().map(Item)
    }
}

/// As JSON Schema sees it: 1 is 1.0.
fn equals_value(tree: &Tree<'_>, expected: &Value) -> bool {
    meter::step();
    match (tree, expected) {
        (Tree::Null, Value::Null) => true,
        (Tree::Boolean(one), Value::Bool(other)) => one == other,
        (Tree::Number(one), Value::Number(other)) => cmp::equal_numbers(one, other),
        (Tree::Text(_) | Tree::Name(_), Value::String(other)) => text_of(tree) == Some(other),
        (Tree::Array(items), Value::Array(others)) => {
            items.len() == others.len()
                && items
                    .iter()
                    .zip(others)
                    .all(|(one, other)| equals_value(one, other))
        }
        (Tree::Object(members), Value::Object(others)) => {
            members.as_slice().len() == others.len()
                && others
                    .iter()
                    .all(|(name, other)| members.get(name).is_some_and(|one| equals_value(one, other)))
        }
        _ => false,
    }
}

fn equals(one: &Tree<'_>, other: &Tree<'_>) -> bool {
    meter::step();
    match (one, other) {
        (Tree::Null, Tree::Null) => true,
        (Tree::Boolean(one), Tree::Boolean(other)) => one == other,
        (Tree::Number(one), Tree::Number(other)) => cmp::equal_numbers(one, other),
        (Tree::Array(items), Tree::Array(others)) => {
            items.len() == others.len() && items.iter().zip(others).all(|(one, other)| equals(one, other))
        }
        (Tree::Object(members), Tree::Object(others)) => {
            let (members, others) = (members.as_slice(), others.as_slice());
            members.len() == others.len()
                && members
                    .iter()
                    .zip(others)
                    .all(|((name, one), (known, other))| name == known && equals(one, other))
        }
        _ => text_of(one).is_some_and(|text| text_of(other) == Some(text)),
    }
}

/// By keyed hashes, so that values that share one cannot be chosen.
fn is_unique(items: &[Tree<'_>]) -> bool {
    let mut seen = HashSet::with_capacity(items.len());
    items.iter().all(|item| seen.insert(Element(item)))
}

/// A value in a set.
struct Element<'a>(&'a Tree<'a>);

impl PartialEq for Element<'_> {
    fn eq(&self, other: &Self) -> bool {
        equals(self.0, other.0)
    }
}

impl Eq for Element<'_> {}

impl Hash for Element<'_> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hash(self.0, hasher);
    }
}

fn hash(tree: &Tree<'_>, hasher: &mut impl Hasher) {
    meter::step();
    match tree {
        Tree::Null => hasher.write_u8(0),
        Tree::Boolean(truth) => (1_u8, truth).hash(hasher),
        Tree::Number(number) => hash_number(number, hasher),
        Tree::Text(text) => (4_u8, &**text).hash(hasher),
        Tree::Name(name) => (4_u8, name.as_str()).hash(hasher),
        Tree::Array(items) => {
            (5_u8, items.len()).hash(hasher);
            items.iter().for_each(|item| hash(item, hasher));
        }
        Tree::Object(members) => {
            (6_u8, members.as_slice().len()).hash(hasher);
            for (name, tree) in members.as_slice() {
                name.hash(hasher);
                hash(tree, hasher);
            }
        }
    }
}

/// Numbers that are equal hash alike: an integer that is written as a fraction hashes as an integer.
fn hash_number(number: &Number, hasher: &mut impl Hasher) {
    let whole = JsonNumber::as_i64(number)
        .map(i128::from)
        .or_else(|| JsonNumber::as_u64(number).map(i128::from));
    let double = JsonNumber::as_f64(number).unwrap_or_default();
    match whole {
        Some(whole) => (2_u8, whole).hash(hasher),
        None if double.fract() == 0.0 && double.abs() < INTEGERS_END => (2_u8, whole_of(double)).hash(hasher),
        None => (3_u8, double.to_bits()).hash(hasher),
    }
}

/// 2^64.
const INTEGERS_END: f64 = 18_446_744_073_709_551_616.0;

fn whole_of(double: f64) -> i128 {
    double as i128
}

#[cfg(test)]
mod tests {
    use super::{super::text::Oddities, *};
    use crate::value::tree::read;

    fn unique(text: &str) -> bool {
        let document = read(text, &Oddities::of(text)).expect(text);
        match &document.tree {
            Tree::Array(items) => is_unique(items),
            _ => panic!("{text}"),
        }
    }

    #[test]
    fn values_are_equal_as_json_schema_says() {
        let check = |text: &str, expect: bool| assert_eq!(unique(text), expect, "{text}");
        check("[]", true);
        check("[1, 2, 1.0]", false);
        check("[0, -0.0]", false);
        check("[1e2, 100]", false);
        check("[18446744073709551615, 18446744073709551614]", true);
        check("[18446744073709551616, 1.8446744073709551616e19]", false);
        check("[1, true, \"1\", [1], {\"a\": 1}, null]", true);
        check(r#"[{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}]"#, false);
        check(r#"[[], {}, "", 0, false, null]"#, true);
        check(r#"[["a", "b"], ["ab"]]"#, true);
    }

    #[test]
    fn a_value_is_compared_with_that_of_a_schema() {
        let check = |text: &str, expected: Value, expect: bool| {
            let document = read(text, &Oddities::of(text)).expect(text);
            assert_eq!(equals_value(&document.tree, &expected), expect, "{text}");
        };
        check("1.0", serde_json::json!(1), true);
        check(r#"{"a": [1, null]}"#, serde_json::json!({"a": [1, null]}), true);
        check(r#"{"a": 1, "b": 2}"#, serde_json::json!({"a": 1}), false);
        check(r#""1""#, serde_json::json!(1), false);
    }
}
