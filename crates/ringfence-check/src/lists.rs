//! Lists of names that rules use. They are data in a separate file, which is parsed once.

use serde::Deserialize;
use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

pub(crate) type NameSet = HashSet<&'static str>;

pub(crate) static LISTS: LazyLock<Lists> = LazyLock::new(|| embedded(include_str!("lists.json")));

/// Parses a table that is embedded in the program. A table that does not match its type fails every test that needs it;
/// in a release build it would be empty, and its rules would find nothing.
pub(crate) fn embedded<T: Deserialize<'static> + Default>(table: &'static str) -> T {
    let read: Result<T, _> = serde_json::from_str(table);
    debug_assert!(read.is_ok(), "{:?}", read.as_ref().err());
    read.unwrap_or_default()
}

/// True if a dotted path is `thing` or lies below it.
pub(crate) fn is_within(path: &str, thing: &str) -> bool {
    let rest = path.strip_prefix(thing);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[derive(Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"), deny_unknown_fields)]
pub(crate) struct Lists {
    /// Parts of paths that hold only secrets; a trailing `/` includes everything below.
    pub(crate) secrets: Vec<&'static str>,
    /// Files with secrets that may be an ordinary program's own.
    pub(crate) perhaps_secrets: Vec<&'static str>,
    /// Paths that hold secrets among other things.
    pub(crate) around_secrets: Vec<&'static str>,
    /// Schemes whose URLs name a host.
    pub(crate) schemes: NameSet,
    /// File extensions that are not top-level domains: a name with one of them is a file, not a host.
    pub(crate) file_endings: NameSet,
    /// Names that every Python module has without binding: CPython 3.8 to 3.14 on Linux, `site`, the import system.
    pub(crate) builtins: NameSet,
    /// Modules that reach more than the program's own data, except names that parts of ordinary packages share.
    pub(crate) grave_modules: NameSet,
    /// Calls whose first argument is a host, an address or a URL.
    pub(crate) host_calls: NameSet,
    /// Calls that take a pair of host and port, with the positions of that argument.
    pub(crate) pair_calls: HashMap<&'static str, Vec<usize>>,
    /// Top-level modules of CPython 3.8 to 3.14.
    pub(crate) standard_library: NameSet,
    /// Dunder names that ordinary programs read.
    pub(crate) ordinary_attributes: NameSet,
    /// Further dunder names that a method may read from `super()`, as in `super().__init_subclass__()`.
    pub(crate) attributes_of_super: NameSet,
    pub(crate) attributes_to_set: NameSet,
    /// Functions that decode or decompress bytes.
    pub(crate) unpackers: NameSet,
    pub(crate) shell_calls: NameSet,
    pub(crate) computing: NameSet,
    /// Packages of the standard library: their members may be modules.
    pub(crate) packages: NameSet,
    /// Names that are documented in spite of the underscore.
    pub(crate) documented: NameSet,
    /// Private names that count as the standard library's, even if a program binds the same name.
    pub(crate) far_private: NameSet,
    /// Elements of `functools.WRAPPER_ASSIGNMENTS` and `WRAPPER_UPDATES`.
    pub(crate) copied: NameSet,
    /// Functions whose arguments decide: a call of one is not a finding by itself.
    pub(crate) judged_by_call: NameSet,
    pub(crate) narrowing: NameSet,
    /// Files that control access to the system and the programs that run at startup.
    pub(crate) staying: NameSet,
    pub(crate) staying_below: Vec<&'static str>,
    pub(crate) staying_at_home: Vec<&'static str>,
    /// Programs that take the path of a secret without printing its content.
    pub(crate) keep_secrets: NameSet,
    /// Texts by which code in another language opens a connection.
    pub(crate) connecting: Vec<&'static str>,
    /// Texts by which such code starts a program.
    pub(crate) starting: Vec<&'static str>,
    pub(crate) forking: Vec<&'static str>,
    pub(crate) fetching: Vec<&'static str>,
    /// Entries of `/` whose deletion destroys the system.
    pub(crate) system_directories: NameSet,
    /// The same, one level down.
    pub(crate) system_below: NameSet,
    /// Prefixes of the names of disks and memory devices below `/dev`.
    pub(crate) disks: Vec<&'static str>,
    pub(crate) downloaders: NameSet,
    /// Programs that copy their input and output over a connection.
    pub(crate) connectors: NameSet,
    /// Shell commands that set the variables named in their arguments.
    pub(crate) setters: NameSet,
    pub(crate) shells: NameSet,
    pub(crate) interpreters: NameSet,
    /// Environment variables that control what other programs load.
    pub(crate) loaders: NameSet,
    /// JavaScript keywords after which an expression or a statement continues one level down.
    pub(crate) nesting_words: NameSet,
    /// JavaScript methods that make a string from a string or an array.
    pub(crate) text_methods: NameSet,
    /// JavaScript functions that make a string from encoded data.
    pub(crate) decoders: NameSet,
    /// JavaScript functions and classes: their `constructor` is `Function`.
    pub(crate) functions: NameSet,
    /// Modules of Node.js that rules know.
    pub(crate) node_modules: NameSet,
    /// JavaScript classes whose prototype the values of every program share.
    pub(crate) shared_classes: NameSet,
    /// Attributes that hold the names of a module or the modules of a process, or bind names in the enclosing module.
    pub(crate) namespaces: NameSet,
    /// Context managers that suppress the exceptions given as their arguments.
    pub(crate) swallowing: NameSet,
    /// Names that end the program: no code after them is certain to run.
    pub(crate) ending: NameSet,
    /// Modules whose functions in `client_calls` take a URL as their first argument.
    pub(crate) client_modules: NameSet,
    pub(crate) client_calls: NameSet,
    /// Keyword arguments of `connect` that show that its first argument is a host and not a file.
    pub(crate) login_words: NameSet,
    /// Encodings under which the code means what it appears to say.
    pub(crate) plain_encodings: NameSet,
    /// Functions of other languages that take a command; a bracket or a string follows.
    pub(crate) starters: Vec<&'static str>,
    /// Private names that classes of the standard library use: a subclass may not bind them as its own.
    pub(crate) private_of: HashMap<&'static str, Vec<&'static str>>,
    /// Names under which modules of the standard library hold other modules, besides `grave_modules`.
    pub(crate) held_modules: HashMap<&'static str, &'static str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_valid() {
        let lists: Lists = serde_json::from_str(include_str!("lists.json")).unwrap();
        assert!(lists.builtins.contains("eval") && lists.standard_library.len() > 300);
    }
}
