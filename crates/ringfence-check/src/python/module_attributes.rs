//! Which modules one reaches as an attribute of another: `uuid.os` is `os`. What a module imports at its top is an
//! attribute of it, so a list of modules that may be imported means little without this one.

use std::{collections::HashMap, sync::LazyLock};

/// Of CPython 3.8 to 3.13: a module, and each of its attributes that is a module which does not lie below it, with the
/// name under which that one is imported, if it is another. `json.tool.Path` is a class, but one that opens any file.
const ATTRIBUTES: &str = "\
argparse _os=os _re=re _shutil=shutil _sys=sys warnings
ast re sys
base64 binascii re struct
calendar _locale=locale datetime sys warnings
codecs builtins sys
collections _collections_abc=collections.abc _heapq=heapq _sys=sys
collections.abc sys
concurrent.futures._base collections logging threading time types
configparser contextlib functools io itertools os re sys types warnings
contextlib _collections_abc=collections.abc abc os sys
csv re types
dataclasses _thread abc builtins copy functools inspect itertools keyword re sys types
datetime sys
email._encoded_words base64 binascii errors=email.errors functools re
email._header_value_parser _ew=email._encoded_words errors=email.errors re sys urllib utils=email.utils
email._parseaddr calendar time
email._policybase _charset=email.charset abc header=email.header
email.charset email errors=email.errors
email.contentmanager binascii email quoprimime=email.quoprimime
email.feedparser errors=email.errors re
email.generator random re sys time
email.header _charset=email.charset binascii email re
email.headerregistry errors=email.errors parser=email._header_value_parser utils=email.utils
email.iterators sys
email.message _charset=email.charset binascii errors=email.errors quopri re utils=email.utils uu
email.mime.base email message=email.message
email.mime.nonmultipart errors=email.errors
email.policy re sys
email.quoprimime re
email.utils datetime os random re socket time urllib
enum bltns=builtins sys
fractions functools math numbers operator re sys
ftplib socket ssl sys
glob contextlib fnmatch functools itertools operator os re stat sys
hashlib _hashlib
hmac _hashlib=hashlib _hashopenssl=_hashlib _warnings=warnings
html _re=re
html.parser _markupbase re warnings
inspect abc ast builtins collections dis enum functools importlib itertools linecache os re sys token tokenize types
    warnings
io _io=io abc
json codecs
json.decoder re scanner=json.scanner
json.encoder re
json.scanner re
json.tool Path=pathlib.Path argparse json sys
linecache functools os sys tokenize
locale _collections_abc=collections.abc encodings functools re sys
logging atexit collections io os re sys threading time traceback warnings weakref
os abc st=stat sys
os.path genericpath os stat sys
pathlib fnmatch functools io ntpath os posixpath=os.path re sys warnings
pathlib._abc functools
pathlib._local grp io ntpath operator os posixpath=os.path pwd sys warnings
queue threading types
random _os=os _random
re _locale _sre copyreg enum functools sre_compile sre_parse
re._compiler _parser=re._parser _sre
reprlib builtins
secrets base64 binascii os
shutil collections errno fnmatch os posix stat sys warnings
smtplib base64 copy datetime email hmac io re socket ssl sys
statistics _random=random math numbers random sys
string _re=re _string
subprocess _posixsubprocess builtins contextlib errno fcntl grp io locale os pwd select selectors signal sys
    threading time types warnings
tarfile copy grp io os pwd re shutil stat struct sys time warnings
tempfile _errno=errno _functools=functools _io=io _os=os _shutil=shutil _sys=sys _thread _types=types
    _warnings=warnings _weakref=weakref
textwrap re
threading _os=os _sys=sys functools warnings
tokenize _itertools=itertools _tokenize collections functools re sys
traceback _colorize collections itertools linecache sys textwrap warnings
typing collections contextlib copyreg functools operator stdlib_re=re sys types warnings
urllib.parse collections functools ipaddress math re sys types warnings
urllib.request base64 bisect contextlib email hashlib http io os posixpath=os.path re socket ssl string sys tempfile
    time warnings
uuid _uuid os platform sys
warnings sys
weakref _collections_abc=collections.abc itertools sys
xml.etree.ElementInclude ElementTree=xml.etree.ElementTree copy
xml.etree.ElementPath re
xml.etree.ElementTree ElementPath=xml.etree.ElementPath collections contextlib io re sys warnings weakref
zipfile binascii bz2 contextlib functools importlib io itertools lzma os pathlib posixpath=os.path shutil stat
    struct sys threading time zlib
zipfile._path contextlib io itertools pathlib posixpath=os.path re stat sys zipfile
zipfile._path.glob os re";

/// Modules by which a program gets at more than its own data, in alphabetical order. Only those whose names are not
/// those of parts of ordinary packages (`numpy.array`, `scipy.signal`, `HTTPError.code` and `pandas.io` are no modules
/// of the standard library).
#[rustfmt::skip]
const GRAVE: &[&str] = &[
    "asyncio", "builtins", "cffi", "codecs", "codeop", "ctypes", "fcntl", "gc", "importlib", "inspect", "linecache",
    "marshal", "mmap", "multiprocessing", "os", "pathlib", "pdb", "pickle", "pkgutil", "posix", "pty", "runpy",
    "shutil", "socket", "subprocess", "sys", "sysconfig", "tempfile", "threading", "tracemalloc", "zipimport",
];

/// The name, if it is such a module.
pub(crate) fn is_grave(name: &str) -> Option<&'static str> {
    let at = GRAVE.binary_search(&name).ok()?;
    GRAVE.get(at).copied()
}

/// By module and attribute.
static MODULES: LazyLock<HashMap<(&str, &str), &str>> = LazyLock::new(|| {
    let mut module = "";
    let mut known = HashMap::new();
    for line in ATTRIBUTES.lines() {
        let mut words = line.split_ascii_whitespace();
        if !line.starts_with(' ') {
            module = words.next().unwrap_or_default();
        }
        known.extend(words.map(|word| {
            let (attribute, meant) = word.split_once('=').unwrap_or((word, word));
            ((module, attribute), meant)
        }));
    }
    known
});

/// The module that an attribute of a module is. Besides the table, one that is called as a grave module is taken for
/// it, in whatever package: `numpy.os`, `requests.sessions._sys`.
pub(crate) fn module_at(module: &str, attribute: &str) -> Option<&'static str> {
    let known = MODULES.get(&(module, attribute)).copied();
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

    #[test]
    fn the_table_is_sorted_so_that_it_can_be_searched() {
        assert!(GRAVE.is_sorted());
        assert_eq!(is_grave("os"), Some("os"));
        assert_eq!(is_grave("math"), None);
    }
}
