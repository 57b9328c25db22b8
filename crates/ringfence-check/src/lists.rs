//! Names that rules go by. They are data, in a file of their own that is read once.

use serde::Deserialize;
use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

pub(crate) type NameSet = HashSet<&'static str>;

pub(crate) static LISTS: LazyLock<Lists> = LazyLock::new(|| embedded(include_str!("lists.json")));

/// Reads a table that is part of the program. One that is not as its type says ends every test that needs it; a program
/// that is shipped would have no findings of that kind.
pub(crate) fn embedded<T: Deserialize<'static> + Default>(table: &'static str) -> T {
    let read: Result<T, _> = serde_json::from_str(table);
    debug_assert!(read.is_ok(), "{:?}", read.as_ref().err());
    read.unwrap_or_default()
}

/// Whether a path of names with dots between them is that of a thing, or leads to something in it.
pub(crate) fn is_within(path: &str, thing: &str) -> bool {
    let rest = path.strip_prefix(thing);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[derive(Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"), deny_unknown_fields)]
pub(crate) struct Lists {
    /// Parts of paths where nothing but secrets is; `/` at the end: everything below.
    pub(crate) secrets: Vec<&'static str>,
    /// Files that an ordinary program may read as its own.
    pub(crate) perhaps_secrets: Vec<&'static str>,
    /// Where secrets lie among other things.
    pub(crate) around_secrets: Vec<&'static str>,
    /// Schemes whose URLs name a host.
    pub(crate) schemes: NameSet,
    /// Endings of files that are no top-level domains: what has one where a host could stand is a file.
    pub(crate) file_endings: NameSet,
    /// What every Python module has without binding it: CPython 3.8 to 3.14 on Linux, `site`, the import system.
    pub(crate) builtins: NameSet,
    /// Modules by which a program gets at more than its own data, unless parts of ordinary packages are called so.
    pub(crate) grave_modules: NameSet,
    /// Calls whose first argument is a host, or an address, or a URL.
    pub(crate) host_calls: NameSet,
    /// Calls that get a pair of host and port, and in which places.
    pub(crate) pair_calls: HashMap<&'static str, Vec<usize>>,
    /// Top-level modules of CPython 3.8 to 3.14.
    pub(crate) standard_library: NameSet,
    /// Names with two underscores on either side that ordinary programs read.
    pub(crate) ordinary_attributes: NameSet,
    /// What a method may further call of the class above, as `super().__init_subclass__()`.
    pub(crate) attributes_of_super: NameSet,
    pub(crate) attributes_to_set: NameSet,
    /// Functions that make bytes of encoded or compressed ones.
    pub(crate) unpackers: NameSet,
    pub(crate) shell_calls: NameSet,
    pub(crate) computing: NameSet,
    /// Packages of the standard library: what stands in them may be a module, too.
    pub(crate) packages: NameSet,
    /// Documented, in spite of the underscore.
    pub(crate) documented: NameSet,
    /// Private names that only the library has a use for, even if a program binds the same name.
    pub(crate) far_private: NameSet,
    /// What `functools.WRAPPER_ASSIGNMENTS` and `WRAPPER_UPDATES` have.
    pub(crate) copied: NameSet,
    /// Functions of which the arguments decide; what is called is not told by itself.
    pub(crate) judged_by_call: NameSet,
    pub(crate) narrowing: NameSet,
    /// Files that decide who gets in and what runs there.
    pub(crate) staying: NameSet,
    pub(crate) staying_below: Vec<&'static str>,
    pub(crate) staying_at_home: Vec<&'static str>,
    /// Programs that name a secret without printing it.
    pub(crate) keep_secrets: NameSet,
    /// What joins code of another language to a connection.
    pub(crate) connecting: Vec<&'static str>,
    /// What starts a program in it.
    pub(crate) starting: Vec<&'static str>,
    pub(crate) forking: Vec<&'static str>,
    pub(crate) fetching: Vec<&'static str>,
    /// Names in the root whose loss is the loss of the system.
    pub(crate) system_directories: NameSet,
    /// The same one level down.
    pub(crate) system_below: NameSet,
    /// Beginnings of the names of disks and memory below `/dev`.
    pub(crate) disks: Vec<&'static str>,
    pub(crate) downloaders: NameSet,
    /// Programs that join their input and output to a connection.
    pub(crate) connectors: NameSet,
    /// Commands of a shell that set the variables they name.
    pub(crate) setters: NameSet,
    pub(crate) shells: NameSet,
    pub(crate) interpreters: NameSet,
    /// Variables that decide what other programs load.
    pub(crate) loaders: NameSet,
    /// Words of JavaScript after which an expression or a statement goes on one level down.
    pub(crate) nesting_words: NameSet,
    /// Methods of JavaScript that make a text of a text or a list.
    pub(crate) text_methods: NameSet,
    /// Functions of JavaScript that make a text of what is encoded.
    pub(crate) decoders: NameSet,
    /// Functions and classes of JavaScript: their `constructor` is `Function`.
    pub(crate) functions: NameSet,
    /// Of the modules that come with Node.js those that rules know.
    pub(crate) node_modules: NameSet,
    /// Classes of JavaScript whose prototype every program's own values have.
    pub(crate) shared_classes: NameSet,
    /// Attributes that are the names of a module or the modules of a process, or give names to the module around.
    pub(crate) namespaces: NameSet,
    /// Managers that swallow the errors they are given.
    pub(crate) swallowing: NameSet,
    /// They end the program, so that nothing that follows in the text is certain to run.
    pub(crate) ending: NameSet,
    /// Modules whose functions of the names below get a URL first.
    pub(crate) client_modules: NameSet,
    pub(crate) client_calls: NameSet,
    /// With one of these, what `connect` gets first is a host and no file.
    pub(crate) login_words: NameSet,
    /// Encodings under which a text means what it says.
    pub(crate) plain_encodings: NameSet,
    /// What takes a command in other languages; a bracket or a text follows.
    pub(crate) starters: Vec<&'static str>,
    /// Private names of Python's classes that mean something to them: a class made of one may not bind them as its own.
    pub(crate) private_of: HashMap<&'static str, Vec<&'static str>>,
    /// Under which names modules of the standard library hold others, besides those that are grave in any package.
    pub(crate) held_modules: HashMap<&'static str, &'static str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_can_be_read() {
        let lists: Lists = serde_json::from_str(include_str!("lists.json")).unwrap();
        assert!(lists.builtins.contains("eval") && lists.standard_library.len() > 300);
    }
}
