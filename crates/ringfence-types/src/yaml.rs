//! YAML of files that an operator writes: one reading, into a tree whose nodes know their lines. The text is a
//! stranger's as far as the reader is concerned: its size, values, nesting and copies are bounded.

mod decode;

use granit_parser::{Event, Marker, Parser, ScalarStyle, StrInput};
use std::{collections::BTreeMap, fmt};

pub use decode::Lined;

/// The longest text, in bytes, and the most that its values have together with the copies that aliases make.
pub const BYTES_MAX: usize = 1 << 20;
/// Values with the copies that anchors and aliases make.
const NODES_MAX: usize = 50_000;
const DEPTH_MAX: usize = 32;

/// Why a text is refused, without its line and a full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// From 1; none: the text as a whole.
    pub line: Option<u64>,
    /// The innermost name in whose value it is.
    name: Option<String>,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// Follows "`name` is", or "expected".
    Is(String),
    Says(String),
}

impl Fault {
    /// Names the place, unless something within it has a name.
    pub fn named(mut self, name: &str) -> Self {
        self.name.get_or_insert_with(|| format!("{name:.100}"));
        self
    }

    /// At a line, unless the fault has one.
    pub fn at(mut self, line: u64) -> Self {
        self.line.get_or_insert(line);
        self
    }

    fn of(what: What) -> Self {
        let (line, name) = (None, None);
        Self { line, name, what }
    }

    fn is(what: impl Into<String>) -> Self {
        Self::of(What::Is(what.into()))
    }

    /// A whole sentence, but for the full stop.
    pub fn says(what: impl Into<String>) -> Self {
        Self::of(What::Says(what.into()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, &self.what) {
            (Some(name), What::Is(what)) => write!(f, "`{name}` is {what}"),
            (None, What::Is(what)) => write!(f, "expected {what}"),
            (Some(name), What::Says(what)) => write!(f, "`{name}`: {what}"),
            (None, What::Says(what)) => f.write_str(what),
        }
    }
}

impl std::error::Error for Fault {}

/// A value in a text.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it begins, from 1; a list or mapping at its first item.
    pub line: u64,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    /// Without quotes: also a number, a truth value or nothing, where one is wanted.
    Plain(String),
    Quoted(String),
    List(Vec<Node>),
    Mapping(Vec<Entry>),
    /// Its name was there before.
    Twice,
}

/// A name and its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What stands before the colon.
    pub name: String,
    /// Its value.
    pub value: Node,
    line: u64,
}

impl Entry {
    /// The fault of a name that is not among those which are known.
    pub fn unknown(&self, what: &str) -> Fault {
        Fault::is(what).at(self.line).named(&self.name)
    }
}

impl Node {
    /// A fault of this value.
    pub fn fault(&self, what: impl Into<String>) -> Fault {
        Fault::says(what).at(self.line)
    }

    /// Whether nothing stands there, or the word `null`.
    pub fn is_null(&self) -> bool {
        matches!(&self.content, Content::Plain(text) if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// What it should have been.
    pub fn is_not(&self, wanted: &str) -> Fault {
        let found = match &self.content {
            Content::Twice => return Fault::is("here twice").at(self.line),
            Content::List(_) => "a list".to_owned(),
            Content::Mapping(_) => "a mapping".to_owned(),
            Content::Plain(_) if self.is_null() => "nothing".to_owned(),
            Content::Plain(text) | Content::Quoted(text) => format!("`{text:.100}`"),
        };
        Fault::is(format!("{wanted}, not {found}")).at(self.line)
    }

    /// A text as it is written: also that of a number.
    pub fn text(&self) -> Result<&str, Fault> {
        match &self.content {
            Content::Quoted(text) => Ok(text),
            Content::Plain(text) if !self.is_null() => Ok(text),
            _ => Err(self.is_not("text")),
        }
    }

    /// A whole number: decimal, or with `0x` or `0o`; `_` may stand between digits. Where a number or a truth value is
    /// wanted, quotes make no difference.
    pub fn whole_number(&self) -> Result<u64, Fault> {
        let text = self.text().map(|text| text.replace('_', ""));
        let number = text.ok().and_then(|text| whole_number(&text));
        number.ok_or_else(|| self.is_not("a whole number"))
    }

    /// A number, which may have a fraction; it is finite.
    pub fn number(&self) -> Result<f64, Fault> {
        let number = self.text().ok().and_then(number);
        number.ok_or_else(|| self.is_not("a number"))
    }

    /// Also `yes` and `no`, `on` and `off`, as YAML 1.1 has them: where a truth value is wanted, nothing else is meant.
    pub fn truth(&self) -> Result<bool, Fault> {
        match self.text().map(str::to_ascii_lowercase).as_deref() {
            Ok("true" | "yes" | "y" | "on") => Ok(true),
            Ok("false" | "no" | "n" | "off") => Ok(false),
            _ => Err(self.is_not("true or false")),
        }
    }

    /// The items of a list.
    pub fn items(&self) -> Result<&[Self], Fault> {
        match &self.content {
            Content::List(items) => Ok(items),
            _ => Err(self.is_not("a list")),
        }
    }

    /// The entries of a mapping; nothing is an empty one.
    pub fn entries(&self) -> Result<&[Entry], Fault> {
        match &self.content {
            Content::Mapping(entries) => Ok(entries),
            _ if self.is_null() => Ok(&[]),
            _ => Err(self.is_not("a mapping")),
        }
    }
}

/// Numbers as the core schema of YAML 1.2 has them (section 10.3.2).
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

/// Reads the one document of a text; where it says nothing, its root [is nothing](Node::is_null). A name that is there
/// twice is a fault of its value, so that a caller can tell the other faults, too.
pub fn read(text: &str) -> Result<Node, Fault> {
    if text.len() > BYTES_MAX {
        return Err(Fault::says("the file is longer than 1 MiB"));
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
                return Err(Fault::says("a second document begins, and one is read").at(line));
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
    /// What aliases may name.
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
    bytes: usize,
}

impl<'a> Reader<'a> {
    /// The next event, and its line.
    fn next(&mut self) -> Result<(Event<'a>, u64), Fault> {
        let line_of = |marker: &Marker| u64::try_from(marker.line()).unwrap_or(u64::MAX);
        match self.events.next() {
            Some(Ok((event, span))) => Ok((event, line_of(&span.start))),
            Some(Err(error)) => Err(Fault::says(error.info()).at(line_of(error.marker()))),
            None => Ok((Event::StreamEnd, 0)),
        }
    }

    /// The node that an event begins, so many levels down.
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
            _ if event.tag().is_some() => return Err(Fault::says("there are no tags here, as `!x`")),
            Event::Alias(name) => {
                let node = self.anchors.get(&name).cloned();
                let node = node.ok_or_else(|| Fault::says("an alias stands within its own anchor"))?;
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
                let content = Content::Twice;
                first.value = Node { line, content };
            } else {
                entries.push(Entry { name, value, line });
            }
        }
    }

    /// Counts a node and what is in it against the limits.
    fn count(&mut self, node: &Node, depth: usize) -> Result<(), Fault> {
        self.nodes += 1;
        self.bytes += node.text().map_or(0, str::len);
        if depth >= DEPTH_MAX {
            return Err(Fault::says(format!("there are more than {DEPTH_MAX} levels")));
        }
        if self.nodes > NODES_MAX || self.bytes > BYTES_MAX {
            let what = format!("there are more than {NODES_MAX} values, or more than 1 MiB of them");
            return Err(Fault::says(what));
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
