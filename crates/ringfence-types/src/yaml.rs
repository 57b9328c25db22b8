//! YAML of files that an operator writes, read into a tree whose nodes have their lines. The text is treated as
//! untrusted: its size, values, nesting and copies are limited.

mod decode;

use granit_parser::{Event, Marker, Parser, ScalarStyle, StrInput};
use std::{collections::BTreeMap, fmt};

pub use decode::Lined;

/// Maximum size of a text, and of its values together with the copies that aliases make, in bytes.
pub const BYTES_MAX: usize = 1 << 20;
/// Maximum number of values, with the copies that anchors and aliases make.
const NODES_MAX: usize = 50_000;
const DEPTH_MAX: usize = 32;

/// The reason for which a text is refused, without its line and a full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Line, from 1; none: the text as a whole.
    pub line: Option<u64>,
    /// Innermost name whose value has the fault.
    name: Option<String>,
    what: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    /// Text that follows "`name` is", or "expected".
    Is(String),
    Sentence(String),
}

impl Fault {
    /// Adds the name of the place, unless the fault has an inner one.
    pub fn named(mut self, name: &str) -> Self {
        self.name.get_or_insert_with(|| format!("{name:.100}"));
        self
    }

    /// Adds a line, unless the fault has one.
    pub fn at(mut self, line: u64) -> Self {
        self.line.get_or_insert(line);
        self
    }

    fn of(what: Reason) -> Self {
        let (line, name) = (None, None);
        Self { line, name, what }
    }

    fn is(what: impl Into<String>) -> Self {
        Self::of(Reason::Is(what.into()))
    }

    /// Creates a fault from a whole sentence, without the full stop.
    pub fn new(what: impl Into<String>) -> Self {
        Self::of(Reason::Sentence(what.into()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, &self.what) {
            (Some(name), Reason::Is(what)) => write!(f, "`{name}` is {what}"),
            (None, Reason::Is(what)) => write!(f, "expected {what}"),
            (Some(name), Reason::Sentence(what)) => write!(f, "`{name}`: {what}"),
            (None, Reason::Sentence(what)) => f.write_str(what),
        }
    }
}

impl std::error::Error for Fault {}

/// A value in a text.
#[derive(Clone, Debug)]
pub struct Node {
    /// Line on which it begins, from 1; for a list or mapping, that of its first item.
    pub line: u64,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    /// Text without quotes; also a number, a truth value or nothing if one of those is expected.
    Plain(String),
    Quoted(String),
    List(Vec<Node>),
    Mapping(Vec<Entry>),
    /// Its name occurred before.
    Duplicate,
}

/// A name and its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Text before the colon.
    pub name: String,
    /// Its value.
    pub value: Node,
    line: u64,
}

impl Entry {
    /// Returns the fault of an unknown name.
    pub fn unknown(&self, what: &str) -> Fault {
        Fault::is(what).at(self.line).named(&self.name)
    }
}

impl Node {
    /// Returns a fault of this value.
    pub fn fault(&self, what: impl Into<String>) -> Fault {
        Fault::new(what).at(self.line)
    }

    /// True for an empty value or a word for `null`.
    pub fn is_null(&self) -> bool {
        matches!(&self.content, Content::Plain(text) if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// Returns the fault that this value is not `wanted`.
    pub fn mismatch(&self, wanted: &str) -> Fault {
        let found = match &self.content {
            Content::Duplicate => return Fault::is("here twice").at(self.line),
            Content::List(_) => "a list".to_owned(),
            Content::Mapping(_) => "a mapping".to_owned(),
            Content::Plain(_) if self.is_null() => "nothing".to_owned(),
            Content::Plain(text) | Content::Quoted(text) => format!("`{text:.100}`"),
        };
        Fault::is(format!("{wanted}, not {found}")).at(self.line)
    }

    /// Returns the text as it is written, also that of a number.
    pub fn text(&self) -> Result<&str, Fault> {
        match &self.content {
            Content::Quoted(text) => Ok(text),
            Content::Plain(text) if !self.is_null() => Ok(text),
            _ => Err(self.mismatch("text")),
        }
    }

    /// Returns a whole number: decimal, `0x` or `0o`, with `_` between digits. Numbers and truth values may be quoted.
    pub fn whole_number(&self) -> Result<u64, Fault> {
        let text = self.text().map(|text| text.replace('_', ""));
        let number = text.ok().and_then(|text| whole_number(&text));
        number.ok_or_else(|| self.mismatch("a whole number"))
    }

    /// Returns a finite number, which may have a fraction.
    pub fn number(&self) -> Result<f64, Fault> {
        let number = self.text().ok().and_then(number);
        number.ok_or_else(|| self.mismatch("a number"))
    }

    /// Returns a truth value: also `yes` and `no`, `on` and `off`, as in YAML 1.1, because nothing else can be meant.
    pub fn boolean(&self) -> Result<bool, Fault> {
        match self.text().map(str::to_ascii_lowercase).as_deref() {
            Ok("true" | "yes" | "y" | "on") => Ok(true),
            Ok("false" | "no" | "n" | "off") => Ok(false),
            _ => Err(self.mismatch("true or false")),
        }
    }

    /// Returns the items of a list.
    pub fn items(&self) -> Result<&[Self], Fault> {
        match &self.content {
            Content::List(items) => Ok(items),
            _ => Err(self.mismatch("a list")),
        }
    }

    /// Returns the entries of a mapping; an empty value is an empty mapping.
    pub fn entries(&self) -> Result<&[Entry], Fault> {
        match &self.content {
            Content::Mapping(entries) => Ok(entries),
            _ if self.is_null() => Ok(&[]),
            _ => Err(self.mismatch("a mapping")),
        }
    }
}

/// Parses a whole number of the core schema of YAML 1.2 (section 10.3.2).
fn whole_number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.split_at_checked(2) {
        Some(("0x", digits)) => (digits, 16),
        Some(("0o", digits)) => (digits, 8),
        _ => (text.strip_prefix('+').unwrap_or(text), 10),
    };
    let is_unsigned = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    u64::from_str_radix(digits, radix).ok().filter(|_| is_unsigned)
}

fn number(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let number = text.parse().ok();
    number.filter(|number: &f64| is_number && number.is_finite())
}

/// Reads the one document of a text; the root of an empty one [is null](Node::is_null). A duplicate name is a fault of
/// its value, so that a caller can report the other faults, too.
pub fn read(text: &str) -> Result<Node, Fault> {
    if text.len() > BYTES_MAX {
        return Err(Fault::new("the file is longer than 1 MiB"));
    }
    let mut reader = Reader {
        events: Parser::new_from_str(text),
        anchors: BTreeMap::new(),
        nodes: 0,
        bytes: 0,
    };
    let mut root = None;
    loop {
        let (event, line) = reader.next()?;
        match event {
            Event::DocumentStart(..) if root.is_some() => {
                return Err(Fault::new("a second document begins; only one is allowed").at(line));
            }
            Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
            Event::StreamEnd => break,
            event => root = Some(reader.node(event, line, 0)?),
        }
    }
    let content = Content::Plain(String::new());
    Ok(root.unwrap_or(Node { line: 1, content }))
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    /// Nodes that aliases can name.
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
    bytes: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, u64), Fault> {
        let line_of = |marker: &Marker| u64::try_from(marker.line()).unwrap_or(u64::MAX);
        match self.events.next() {
            Some(Ok((event, span))) => Ok((event, line_of(&span.start))),
            Some(Err(error)) => Err(Fault::new(error.info()).at(line_of(error.marker()))),
            None => Ok((Event::StreamEnd, 0)),
        }
    }

    /// Reads the node that an event begins, at this depth.
    fn node(&mut self, event: Event<'a>, line: u64, depth: usize) -> Result<Node, Fault> {
        let anchor = event.anchor_id();
        let node = self.content(event, line, depth).and_then(|node| {
            if let Some(anchor) = anchor {
                self.count(&node, depth)?;
                self.anchors.insert(anchor, node.clone());
            }
            Ok(node)
        });
        node.map_err(|fault| fault.at(line))
    }

    fn content(&mut self, event: Event<'a>, line: u64, depth: usize) -> Result<Node, Fault> {
        let content = match event {
            _ if event.tag().is_some() => return Err(Fault::new("tags such as `!x` are not supported")),
            Event::Alias(name) => {
                let node = self.anchors.get(&name).cloned();
                let node = node.ok_or_else(|| Fault::new("an alias is within its own anchor"))?;
                self.count(&node, depth)?;
                return Ok(node);
            }
            Event::Scalar(text, ScalarStyle::Plain, ..) => Content::Plain(text.into_owned()),
            Event::Scalar(text, ..) => Content::Quoted(text.into_owned()),
            Event::SequenceStart(..) => Content::List(Vec::new()),
            _ => Content::Mapping(Vec::new()),
        };
        let mut node = Node { line, content };
        self.count(&node, depth)?;
        match &mut node.content {
            Content::List(items) => self.list(items, depth + 1)?,
            Content::Mapping(entries) => self.mapping(entries, depth + 1)?,
            _ => {}
        }
        Ok(node)
    }

    fn list(&mut self, items: &mut Vec<Node>, depth: usize) -> Result<(), Fault> {
        loop {
            match self.next()? {
                (Event::SequenceEnd | Event::StreamEnd, _) => return Ok(()),
                (event, line) => items.push(self.node(event, line, depth)?),
            }
        }
    }

    fn mapping(&mut self, entries: &mut Vec<Entry>, depth: usize) -> Result<(), Fault> {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        loop {
            let (event, line) = self.next()?;
            if matches!(event, Event::MappingEnd | Event::StreamEnd) {
                return Ok(());
            }
            let name = self.node(event, line, depth)?.text()?.to_owned();
            let (event, line_of_value) = self.next()?;
            let value = self.node(event, line_of_value, depth)?;
            let place = *places.entry(name.clone()).or_insert(entries.len());
            if let Some(first) = entries.get_mut(place) {
                let content = Content::Duplicate;
                first.value = Node { line, content };
            } else {
                entries.push(Entry { name, value, line });
            }
        }
    }

    /// Counts a node and its contents against the limits.
    fn count(&mut self, node: &Node, depth: usize) -> Result<(), Fault> {
        self.nodes += 1;
        self.bytes += node.text().map_or(0, str::len);
        if depth >= DEPTH_MAX {
            return Err(Fault::new(format!("there are more than {DEPTH_MAX} levels")));
        }
        if self.nodes > NODES_MAX || self.bytes > BYTES_MAX {
            let what = format!("there are more than {NODES_MAX} values, or more than 1 MiB of them");
            return Err(Fault::new(what));
        }
        let items = node.items().unwrap_or_default();
        items.iter().try_for_each(|item| self.count(item, depth + 1))?;
        for entry in node.entries().unwrap_or_default() {
            self.bytes += entry.name.len();
            self.count(&entry.value, depth + 1)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
