//! The document tree as the validator's nodes. Every access is metered; an error keeps no value but the beginning of a
//! text, because the value is found again by its path.

use super::{
    excerpt, meter,
    tree::{Member, Members, Tree},
};
use crate::keyed_hash::Keys;
use jsonschema::{
    JsonType,
    json::{Array, Json, Node, NodeIdentity, Object, cmp},
};
use serde_json::{Number, Value};
use std::{
    borrow::Cow,
    hash::{Hash, Hasher},
    iter::Map,
    slice::Iter,
};

pub(super) struct Metered;

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

    fn with_string_node<T>(buffer: &mut Tree<'static>, name: &str, visit: impl FnOnce(Item<'_>) -> T) -> T {
        *buffer = Tree::Text(Cow::Owned(name.to_owned()));
        visit(Item(buffer))
    }
}

/// Bytes of a text that count as one more step when it is accessed.
const BYTES_PER_STEP: u64 = 64;

impl<'a> Item<'a> {
    fn access(self) -> &'a Tree<'a> {
        meter::step();
        self.0
    }
}

impl<'a> Node<'a, Metered> for Item<'a> {
    type Object = &'a Members<'a>;
    type Array = &'a [Tree<'a>];
    type Number = &'a Number;

    fn as_object(&self) -> Option<&'a Members<'a>> {
        match self.access() {
            Tree::Object(members) => Some(members),
            _ => None,
        }
    }

    fn as_array(&self) -> Option<&'a [Tree<'a>]> {
        match self.access() {
            Tree::Array(items) => Some(items),
            _ => None,
        }
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.0.as_text()?;
        meter::steps(1 + text.len() as u64 / BYTES_PER_STEP);
        Some(Cow::Borrowed(text))
    }

    fn as_number(&self) -> Option<&'a Number> {
        match self.access() {
            Tree::Number(number) => Some(number),
            _ => None,
        }
    }

    fn as_boolean(&self) -> Option<bool> {
        match self.access() {
            Tree::Boolean(truth) => Some(*truth),
            _ => None,
        }
    }

    fn is_null(&self) -> bool {
        matches!(self.access(), Tree::Null)
    }

    fn json_type(&self) -> JsonType {
        match self.access() {
            Tree::Null => JsonType::Null,
            Tree::Boolean(_) => JsonType::Boolean,
            Tree::Number(_) => JsonType::Number,
            Tree::Text(_) => JsonType::String,
            Tree::Array(_) => JsonType::Array,
            Tree::Object(_) => JsonType::Object,
        }
    }

    /// Equality of JSON Schema: 1 is equal to 1.0.
    fn equals_value(&self, expected: &Value) -> bool {
        match (self.access(), expected) {
            (Tree::Null, Value::Null) => true,
            (Tree::Boolean(one), Value::Bool(other)) => one == other,
            (Tree::Number(one), Value::Number(other)) => cmp::equal_numbers(one, other),
            (Tree::Text(one), Value::String(other)) => one == other,
            (Tree::Array(items), Value::Array(others)) => {
                let mut pairs = items.iter().zip(others);
                items.len() == others.len() && pairs.all(|(one, other)| Item(one).equals_value(other))
            }
            (Tree::Object(members), Value::Object(others)) => {
                let same =
                    |name: &str, other| members.get(name).is_some_and(|one| Item(one).equals_value(other));
                members.0.len() == others.len() && others.iter().all(|(name, other)| same(name, other))
            }
            _ => false,
        }
    }

    /// Called only for errors, each of which keeps the result. Texts are included, as the name of a member has no path.
    fn to_value(&self) -> Cow<'a, Value> {
        meter::error();
        Cow::Owned(match self.0 {
            Tree::Text(text) => Value::String(excerpt::cut(text, excerpt::NAME_BYTES_MAX)),
            _ => Value::Null,
        })
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Some(NodeIdentity::new(std::ptr::from_ref(self.access()) as usize))
    }
}

impl<'a> Object<'a, Metered> for &'a Members<'a> {
    type Node = Item<'a>;
    type MemberName = &'a str;
    type MembersIter = Map<Iter<'a, Member<'a>>, fn(&'a Member<'a>) -> (&'a str, Item<'a>)>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<Item<'a>> {
        meter::step();
        Members::get(self, key).map(Item)
    }

    fn members(&self) -> Self::MembersIter {
        let member: fn(&'a Member<'a>) -> (&'a str, Item<'a>) = |(name, tree)| {
            meter::step();
            (name, Item(tree))
        };
        self.0.iter().map(member)
    }
}

impl<'a> Array<'a, Metered> for &'a [Tree<'a>] {
    type Node = Item<'a>;
    type ElementsIter = Map<Iter<'a, Tree<'a>>, fn(&'a Tree<'a>) -> Item<'a>>;

    fn len(&self) -> usize {
        <[Tree<'_>]>::len(self)
    }

    fn elements(&self) -> Self::ElementsIter {
        let element: fn(&'a Tree<'a>) -> Item<'a> = |tree| {
            meter::step();
            Item(tree)
        };
        self.iter().map(element)
    }

    /// Compares keyed hashes of 128 bits, for which colliding values cannot be chosen.
    fn is_unique(&self) -> bool {
        let keys = Keys::default();
        let mut hashes: Vec<[u64; 2]> = self.iter().map(|item| keys.hash(item)).collect();
        hashes.sort_unstable();
        hashes.windows(2).all(|pair| pair.first() != pair.last())
    }
}

/// Values that are equal in JSON Schema have equal hashes.
impl Hash for Tree<'_> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        meter::step();
        match self {
            Tree::Null => hasher.write_u8(0),
            Tree::Boolean(truth) => (1_u8, truth).hash(hasher),
            Tree::Number(number) => hash_number(number, hasher),
            Tree::Text(text) => (4_u8, &**text).hash(hasher),
            Tree::Array(items) => (5_u8, items).hash(hasher),
            Tree::Object(members) => (6_u8, &members.0).hash(hasher),
        }
    }
}

/// An integer written as a fraction hashes as an integer.
fn hash_number(number: &Number, hasher: &mut impl Hasher) {
    /// 2^64.
    const INTEGERS_END: f64 = 18_446_744_073_709_551_616.0;
    let double = number.as_f64().unwrap_or_default();
    let is_whole = double.fract() == 0.0 && double.abs() < INTEGERS_END;
    match number.as_i128().or_else(|| is_whole.then_some(double as i128)) {
        Some(whole) => (2_u8, whole).hash(hasher),
        None => (3_u8, double.to_bits()).hash(hasher),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tree::read, *};

    fn unique(text: &str) -> bool {
        let document = read(text).expect(text);
        match &document.tree {
            Tree::Array(items) => (&**items).is_unique(),
            _ => panic!("{text}"),
        }
    }

    #[test]
    fn equality_follows_json_schema() {
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
    fn value_is_compared_with_a_schema_value() {
        let check = |text: &str, expected: Value, expect: bool| {
            let document = read(text).expect(text);
            assert_eq!(Item(&document.tree).equals_value(&expected), expect, "{text}");
        };
        check("1.0", serde_json::json!(1), true);
        check(r#"{"a": [1, null]}"#, serde_json::json!({"a": [1, null]}), true);
        check(r#"{"a": 1, "b": 2}"#, serde_json::json!({"a": 1}), false);
        check(r#""1""#, serde_json::json!(1), false);
    }
}
