//! Deserialization of structures from a node of the tree. Faults have the line and the name of the wrong value.

use super::{Content, Entry, Fault, Node, number, whole_number};
use crate::nearest::suggestion;
use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeSeed, Error, MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, StrDeserializer, U64Deserializer},
    },
    forward_to_deserialize_any,
};
use std::{fmt::Display, slice};

/// A value and its line; only from a [`Node`].
#[derive(Clone, Debug, Deserialize)]
#[serde(rename = "ringfence.lined")]
pub struct Lined<T> {
    /// Line on which it begins, from 1.
    pub line: u64,
    /// The value.
    pub value: T,
}

impl Error for Fault {
    fn custom<T: Display>(what: T) -> Self {
        Self::new(what.to_string())
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        let near = suggestion(field, known.iter().copied());
        Self::is(format!("not known here.{near} Known: {}", known.join(", "))).named(field)
    }
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.content {
            Content::List(_) => self.deserialize_seq(visitor),
            Content::Mapping(_) => self.deserialize_map(visitor),
            Content::Plain(_) if self.is_null() => visitor.visit_unit(),
            Content::Plain(text) => plain(text, visitor),
            Content::Quoted(text) => visitor.visit_str(text),
            Content::Duplicate => Err(self.mismatch("anything")),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.is_null() {
            true => visitor.visit_none(),
            false => visitor.visit_some(self),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_bool(self.boolean()?)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_u64(self.whole_number()?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_str(self.text()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_seq(Items(self.items()?.iter()))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_map(Entries::of(self)?)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match name {
            "ringfence.lined" => visitor.visit_seq(LineAndValue(Some(self.line), self)),
            _ => self.deserialize_map(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.content {
            Content::Mapping(_) => visitor.visit_enum(MapAccessDeserializer::new(Entries::of(self)?)),
            _ => visitor.visit_enum(StrDeserializer::new(self.text()?)),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 f64 char bytes byte_buf unit unit_struct newtype_struct tuple tuple_struct identifier
        ignored_any
    }
}

/// Visits a text without quotes where any type is allowed.
fn plain<'de, V: Visitor<'de>>(text: &str, visitor: V) -> Result<V::Value, Fault> {
    let negative = || text.strip_prefix('-').and(text.parse::<i64>().ok());
    match text {
        "true" | "True" | "TRUE" => visitor.visit_bool(true),
        "false" | "False" | "FALSE" => visitor.visit_bool(false),
        _ => match (whole_number(text), negative(), number(text)) {
            (Some(whole), ..) => visitor.visit_u64(whole),
            (_, Some(whole), _) => visitor.visit_i64(whole),
            (.., Some(number)) => visitor.visit_f64(number),
            _ => visitor.visit_str(text),
        },
    }
}

struct Items<'a>(slice::Iter<'a, Node>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        let read = |item: &'de Node| seed.deserialize(item).map_err(|fault| fault.at(item.line));
        self.0.next().map(read).transpose()
    }
}

/// The fields of a [`Lined`], in their order.
struct LineAndValue<'a>(Option<u64>, &'a Node);

impl<'de> SeqAccess<'de> for LineAndValue<'de> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        match self.0.take() {
            Some(line) => seed.deserialize(U64Deserializer::new(line)).map(Some),
            None => seed.deserialize(self.1).map(Some),
        }
    }
}

/// The entries of a mapping, and the entry whose name has been read and whose value has not.
struct Entries<'a>(slice::Iter<'a, Entry>, Option<&'a Entry>);

impl<'a> Entries<'a> {
    fn of(node: &'a Node) -> Result<Self, Fault> {
        Ok(Self(node.entries()?.iter(), None))
    }
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Fault;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        self.1 = self.0.next();
        let read = |entry: &Entry| {
            let name = StrDeserializer::new(&entry.name);
            seed.deserialize(name)
                .map_err(|fault: Fault| fault.at(entry.line))
        };
        self.1.map(read).transpose()
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let entry = self.1.take();
        let entry = entry.ok_or_else(|| Fault::new("a value is read before its name"))?;
        let read = seed.deserialize(&entry.value);
        read.map_err(|fault| fault.at(entry.value.line).named(&entry.name))
    }
}
