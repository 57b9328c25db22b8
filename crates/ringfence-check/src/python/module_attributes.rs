//! Which modules one reaches as an attribute of another: `uuid.os` is `os`. What a module imports at its top is an
//! attribute of it, so a list of modules that may be imported means little without this one.

use super::standard_modules::is_grave;

/// Of CPython 3.8 to 3.13: a module, and each of its attributes that is a module which does not lie below it, with the
/// name under which that one is imported. In alphabetical order.
#[rustfmt::skip]
const ATTRIBUTES: &[(&str, &[(&str, &str)])] = &[
    ("argparse", &[
        ("_os", "os"), ("_re", "re"), ("_shutil", "shutil"), ("_sys", "sys"), ("warnings", "warnings"),
    ]),
    ("ast", &[("re", "re"), ("sys", "sys")]),
    ("base64", &[("binascii", "binascii"), ("re", "re"), ("struct", "struct")]),
    ("calendar", &[
        ("_locale", "locale"), ("datetime", "datetime"), ("sys", "sys"), ("warnings", "warnings"),
    ]),
    ("codecs", &[("builtins", "builtins"), ("sys", "sys")]),
    ("collections", &[("_collections_abc", "collections.abc"), ("_heapq", "heapq"), ("_sys", "sys")]),
    ("collections.abc", &[("sys", "sys")]),
    ("concurrent.futures._base", &[
        ("collections", "collections"), ("logging", "logging"), ("threading", "threading"),
        ("time", "time"), ("types", "types"),
    ]),
    ("configparser", &[
        ("contextlib", "contextlib"), ("functools", "functools"), ("io", "io"), ("itertools", "itertools"),
        ("os", "os"), ("re", "re"), ("sys", "sys"), ("types", "types"), ("warnings", "warnings"),
    ]),
    ("contextlib", &[
        ("_collections_abc", "collections.abc"), ("abc", "abc"), ("os", "os"), ("sys", "sys"),
    ]),
    ("csv", &[("re", "re"), ("types", "types")]),
    ("dataclasses", &[
        ("_thread", "_thread"), ("abc", "abc"), ("builtins", "builtins"), ("copy", "copy"),
        ("functools", "functools"), ("inspect", "inspect"), ("itertools", "itertools"),
        ("keyword", "keyword"), ("re", "re"), ("sys", "sys"), ("types", "types"),
    ]),
    ("datetime", &[("sys", "sys")]),
    ("email._encoded_words", &[
        ("base64", "base64"), ("binascii", "binascii"), ("errors", "email.errors"),
        ("functools", "functools"), ("re", "re"),
    ]),
    ("email._header_value_parser", &[
        ("_ew", "email._encoded_words"), ("errors", "email.errors"), ("re", "re"), ("sys", "sys"),
        ("urllib", "urllib"), ("utils", "email.utils"),
    ]),
    ("email._parseaddr", &[("calendar", "calendar"), ("time", "time")]),
    ("email._policybase", &[("_charset", "email.charset"), ("abc", "abc"), ("header", "email.header")]),
    ("email.charset", &[("email", "email"), ("errors", "email.errors")]),
    ("email.contentmanager", &[
        ("binascii", "binascii"), ("email", "email"), ("quoprimime", "email.quoprimime"),
    ]),
    ("email.feedparser", &[("errors", "email.errors"), ("re", "re")]),
    ("email.generator", &[("random", "random"), ("re", "re"), ("sys", "sys"), ("time", "time")]),
    ("email.header", &[
        ("_charset", "email.charset"), ("binascii", "binascii"), ("email", "email"), ("re", "re"),
    ]),
    ("email.headerregistry", &[
        ("errors", "email.errors"), ("parser", "email._header_value_parser"), ("utils", "email.utils"),
    ]),
    ("email.iterators", &[("sys", "sys")]),
    ("email.message", &[
        ("_charset", "email.charset"), ("binascii", "binascii"), ("errors", "email.errors"),
        ("quopri", "quopri"), ("re", "re"), ("utils", "email.utils"), ("uu", "uu"),
    ]),
    ("email.mime.base", &[("email", "email"), ("message", "email.message")]),
    ("email.mime.nonmultipart", &[("errors", "email.errors")]),
    ("email.policy", &[("re", "re"), ("sys", "sys")]),
    ("email.quoprimime", &[("re", "re")]),
    ("email.utils", &[
        ("datetime", "datetime"), ("os", "os"), ("random", "random"), ("re", "re"), ("socket", "socket"),
        ("time", "time"), ("urllib", "urllib"),
    ]),
    ("enum", &[("bltns", "builtins"), ("sys", "sys")]),
    ("fractions", &[
        ("functools", "functools"), ("math", "math"), ("numbers", "numbers"), ("operator", "operator"),
        ("re", "re"), ("sys", "sys"),
    ]),
    ("ftplib", &[("socket", "socket"), ("ssl", "ssl"), ("sys", "sys")]),
    ("glob", &[
        ("contextlib", "contextlib"), ("fnmatch", "fnmatch"), ("functools", "functools"),
        ("itertools", "itertools"), ("operator", "operator"), ("os", "os"), ("re", "re"), ("stat", "stat"),
        ("sys", "sys"),
    ]),
    ("hashlib", &[("_hashlib", "_hashlib")]),
    ("hmac", &[("_hashlib", "hashlib"), ("_hashopenssl", "_hashlib"), ("_warnings", "warnings")]),
    ("html", &[("_re", "re")]),
    ("html.parser", &[("_markupbase", "_markupbase"), ("re", "re"), ("warnings", "warnings")]),
    ("inspect", &[
        ("abc", "abc"), ("ast", "ast"), ("builtins", "builtins"), ("collections", "collections"),
        ("dis", "dis"), ("enum", "enum"), ("functools", "functools"), ("importlib", "importlib"),
        ("itertools", "itertools"), ("linecache", "linecache"), ("os", "os"), ("re", "re"), ("sys", "sys"),
        ("token", "token"), ("tokenize", "tokenize"), ("types", "types"), ("warnings", "warnings"),
    ]),
    ("io", &[("_io", "io"), ("abc", "abc")]),
    ("json", &[("codecs", "codecs")]),
    ("json.decoder", &[("re", "re"), ("scanner", "json.scanner")]),
    ("json.encoder", &[("re", "re")]),
    ("json.scanner", &[("re", "re")]),
    // A class, but one that opens any file.
    ("json.tool", &[("Path", "pathlib.Path"), ("argparse", "argparse"), ("json", "json"), ("sys", "sys")]),
    ("linecache", &[("functools", "functools"), ("os", "os"), ("sys", "sys"), ("tokenize", "tokenize")]),
    ("locale", &[
        ("_collections_abc", "collections.abc"), ("encodings", "encodings"), ("functools", "functools"),
        ("re", "re"), ("sys", "sys"),
    ]),
    ("logging", &[
        ("atexit", "atexit"), ("collections", "collections"), ("io", "io"), ("os", "os"), ("re", "re"),
        ("sys", "sys"), ("threading", "threading"), ("time", "time"), ("traceback", "traceback"),
        ("warnings", "warnings"), ("weakref", "weakref"),
    ]),
    ("os", &[("abc", "abc"), ("st", "stat"), ("sys", "sys")]),
    ("os.path", &[("genericpath", "genericpath"), ("os", "os"), ("stat", "stat"), ("sys", "sys")]),
    ("pathlib", &[
        ("fnmatch", "fnmatch"), ("functools", "functools"), ("io", "io"), ("ntpath", "ntpath"),
        ("os", "os"), ("posixpath", "os.path"), ("re", "re"), ("sys", "sys"), ("warnings", "warnings"),
    ]),
    ("pathlib._abc", &[("functools", "functools")]),
    ("pathlib._local", &[
        ("grp", "grp"), ("io", "io"), ("ntpath", "ntpath"), ("operator", "operator"), ("os", "os"),
        ("posixpath", "os.path"), ("pwd", "pwd"), ("sys", "sys"), ("warnings", "warnings"),
    ]),
    ("queue", &[("threading", "threading"), ("types", "types")]),
    ("random", &[("_os", "os"), ("_random", "_random")]),
    ("re", &[
        ("_locale", "_locale"), ("_sre", "_sre"), ("copyreg", "copyreg"), ("enum", "enum"),
        ("functools", "functools"), ("sre_compile", "sre_compile"), ("sre_parse", "sre_parse"),
    ]),
    ("re._compiler", &[("_parser", "re._parser"), ("_sre", "_sre")]),
    ("reprlib", &[("builtins", "builtins")]),
    ("secrets", &[("base64", "base64"), ("binascii", "binascii"), ("os", "os")]),
    ("shutil", &[
        ("collections", "collections"), ("errno", "errno"), ("fnmatch", "fnmatch"), ("os", "os"),
        ("posix", "posix"), ("stat", "stat"), ("sys", "sys"), ("warnings", "warnings"),
    ]),
    ("smtplib", &[
        ("base64", "base64"), ("copy", "copy"), ("datetime", "datetime"), ("email", "email"),
        ("hmac", "hmac"), ("io", "io"), ("re", "re"), ("socket", "socket"), ("ssl", "ssl"), ("sys", "sys"),
    ]),
    ("statistics", &[
        ("_random", "random"), ("math", "math"), ("numbers", "numbers"), ("random", "random"),
        ("sys", "sys"),
    ]),
    ("string", &[("_re", "re"), ("_string", "_string")]),
    ("subprocess", &[
        ("_posixsubprocess", "_posixsubprocess"), ("builtins", "builtins"), ("contextlib", "contextlib"),
        ("errno", "errno"), ("fcntl", "fcntl"), ("grp", "grp"), ("io", "io"), ("locale", "locale"),
        ("os", "os"), ("pwd", "pwd"), ("select", "select"), ("selectors", "selectors"),
        ("signal", "signal"), ("sys", "sys"), ("threading", "threading"), ("time", "time"),
        ("types", "types"), ("warnings", "warnings"),
    ]),
    ("tarfile", &[
        ("copy", "copy"), ("grp", "grp"), ("io", "io"), ("os", "os"), ("pwd", "pwd"), ("re", "re"),
        ("shutil", "shutil"), ("stat", "stat"), ("struct", "struct"), ("sys", "sys"), ("time", "time"),
        ("warnings", "warnings"),
    ]),
    ("tempfile", &[
        ("_errno", "errno"), ("_functools", "functools"), ("_io", "io"), ("_os", "os"),
        ("_shutil", "shutil"), ("_sys", "sys"), ("_thread", "_thread"), ("_types", "types"),
        ("_warnings", "warnings"), ("_weakref", "weakref"),
    ]),
    ("textwrap", &[("re", "re")]),
    ("threading", &[("_os", "os"), ("_sys", "sys"), ("functools", "functools"), ("warnings", "warnings")]),
    ("tokenize", &[
        ("_itertools", "itertools"), ("_tokenize", "_tokenize"), ("collections", "collections"),
        ("functools", "functools"), ("re", "re"), ("sys", "sys"),
    ]),
    ("traceback", &[
        ("_colorize", "_colorize"), ("collections", "collections"), ("itertools", "itertools"),
        ("linecache", "linecache"), ("sys", "sys"), ("textwrap", "textwrap"), ("warnings", "warnings"),
    ]),
    ("typing", &[
        ("collections", "collections"), ("contextlib", "contextlib"), ("copyreg", "copyreg"),
        ("functools", "functools"), ("operator", "operator"), ("stdlib_re", "re"), ("sys", "sys"),
        ("types", "types"), ("warnings", "warnings"),
    ]),
    ("urllib.parse", &[
        ("collections", "collections"), ("functools", "functools"), ("ipaddress", "ipaddress"),
        ("math", "math"), ("re", "re"), ("sys", "sys"), ("types", "types"), ("warnings", "warnings"),
    ]),
    ("urllib.request", &[
        ("base64", "base64"), ("bisect", "bisect"), ("contextlib", "contextlib"), ("email", "email"),
        ("hashlib", "hashlib"), ("http", "http"), ("io", "io"), ("os", "os"), ("posixpath", "os.path"),
        ("re", "re"), ("socket", "socket"), ("ssl", "ssl"), ("string", "string"), ("sys", "sys"),
        ("tempfile", "tempfile"), ("time", "time"), ("warnings", "warnings"),
    ]),
    ("uuid", &[("_uuid", "_uuid"), ("os", "os"), ("platform", "platform"), ("sys", "sys")]),
    ("warnings", &[("sys", "sys")]),
    ("weakref", &[("_collections_abc", "collections.abc"), ("itertools", "itertools"), ("sys", "sys")]),
    ("xml.etree.ElementInclude", &[("ElementTree", "xml.etree.ElementTree"), ("copy", "copy")]),
    ("xml.etree.ElementPath", &[("re", "re")]),
    ("xml.etree.ElementTree", &[
        ("ElementPath", "xml.etree.ElementPath"), ("collections", "collections"),
        ("contextlib", "contextlib"), ("io", "io"), ("re", "re"), ("sys", "sys"), ("warnings", "warnings"),
        ("weakref", "weakref"),
    ]),
    ("zipfile", &[
        ("binascii", "binascii"), ("bz2", "bz2"), ("contextlib", "contextlib"), ("functools", "functools"),
        ("importlib", "importlib"), ("io", "io"), ("itertools", "itertools"), ("lzma", "lzma"),
        ("os", "os"), ("pathlib", "pathlib"), ("posixpath", "os.path"), ("shutil", "shutil"),
        ("stat", "stat"), ("struct", "struct"), ("sys", "sys"), ("threading", "threading"),
        ("time", "time"), ("zlib", "zlib"),
    ]),
    ("zipfile._path", &[
        ("contextlib", "contextlib"), ("io", "io"), ("itertools", "itertools"), ("pathlib", "pathlib"),
        ("posixpath", "os.path"), ("re", "re"), ("stat", "stat"), ("sys", "sys"), ("zipfile", "zipfile"),
    ]),
    ("zipfile._path.glob", &[("os", "os"), ("re", "re")]),
];

/// The module that an attribute of a module is. Besides the table, one that is called as a grave module is taken for it, in
/// whatever package: `numpy.os`, `requests.sessions._sys`.
pub(crate) fn module_at(module: &str, attribute: &str) -> Option<&'static str> {
    let at = ATTRIBUTES.binary_search_by_key(&module, |(name, _)| name);
    let known = at
        .ok()
        .and_then(|at| ATTRIBUTES.get(at))
        .and_then(|(_, attributes)| {
            let at = attributes
                .binary_search_by_key(&attribute, |(name, _)| name)
                .ok()?;
            attributes.get(at).map(|(_, real)| *real)
        });
    // `socket.socket` is a class.
    let own = module.rsplit('.').next() == Some(attribute);
    let may_be = !own && !module.contains('(');
    known.or_else(|| {
        may_be
            .then(|| is_grave(attribute.trim_start_matches('_')))
            .flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted_so_that_they_can_be_searched() {
        assert!(ATTRIBUTES.is_sorted_by_key(|(module, _)| module));
        for (module, attributes) in ATTRIBUTES {
            assert!(attributes.is_sorted_by_key(|(name, _)| name), "{module}");
        }
    }

    #[test]
    fn a_module_is_known_by_the_names_that_others_give_it() {
        let check = |module, attribute, expect| {
            assert_eq!(module_at(module, attribute), expect, "{module}.{attribute}")
        };
        check("uuid", "os", Some("os"));
        check("random", "_os", Some("os"));
        check("json", "codecs", Some("codecs"));
        check("json.decoder", "scanner", Some("json.scanner"));
        check("statistics", "sys", Some("sys"));
        check("numpy", "os", Some("os"));
        check("numpy", "array", None);
        check("pandas", "io", None);
        check("socket", "socket", None);
        check("a.b()", "os", None);
        check("scipy", "signal", None);
        check("math", "pi", None);
    }
}
