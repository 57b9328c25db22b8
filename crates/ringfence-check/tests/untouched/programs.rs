//! Programs composed of pieces: mentions of module names that need no import, and uses of names whose import is
//! missing.

use proptest::{prelude::*, sample};

/// Names with a well-known import, besides those in [`USES`].
const NAMES: &[&str] = &[
    "Any",
    "Optional",
    "List",
    "field",
    "uuid4",
    "np",
    "pd",
    "plt",
    "requests",
    "BeautifulSoup",
    "yaml",
    "queue",
    "glob",
];

/// Pieces in which `NAME` needs no import. `N` is replaced by the number of the piece, so that pieces do not conflict.
const MENTIONS: &[&str] = &[
    "sN = 'NAME.dumps(1)'",
    "sN = \"\"\"\nimport NAME\nNAME.loads()\n\"\"\"",
    "sN = r'NAME\\.x' 'NAME'",
    "sN = b'NAME.x(1)'",
    "# NAME.dumps(1)",
    "xN = 1  # NAME.dumps(xN)",
    "class XN: pass\nxN = XN()\nxN.NAME = 1\nprint(xN.NAME)",
    "class XN:\n    def NAME(self): return self\n    @property\n    def other(self): return self.NAME()\nXN().NAME().other",
    "print(f'NAME.dumps {1 + 1} NAME')",
    "print(f'{1!r:>10} NAME {\"NAME.x\"}')",
    "print(dict(NAME=N))",
    "print({'NAME': N}['NAME'])",
    "print('{NAME}'.format(NAME=N), '%(NAME)s' % {'NAME': N})",
    "def fN(NAME): return NAME\nprint(fN(N))",
    "def fN(NAME=N, *, other=1): return NAME\nprint(fN(NAME=2))",
    "def fN(*NAME): return NAME\nprint(fN(1, 2))",
    "def fN(a, /, *, NAME): return NAME\nprint(fN(1, NAME=3))",
    "def fN(**NAME): return sorted(NAME)\nprint(fN(NAME=1))",
    "class CN:\n    NAME = N\n    y = NAME\nprint(CN.NAME, CN.y)",
    "class CN:\n    NAME: int = 1\n    def f(self): return self.NAME\nprint(CN().f())",
    "print([NAME for NAME in range(3)])",
    "print({NAME: 1 for NAME in range(2)}, {NAME for NAME in [1]}, sum(NAME for NAME in (1, 2)))",
    "print([[NAME for NAME in NAME] for NAME in [[1], [2]]])",
    "def gN():\n    global NAME\n    NAME = N\ngN()\nprint(NAME)\ndel NAME",
    "def hN():\n    NAME = 1\n    def iN():\n        nonlocal NAME\n        NAME += 1\n        return NAME\n    return iN()\nprint(hN())",
    "def dN():\n    NAME = 1\n    del NAME\ndN()",
    "def mN(x):\n    match x:\n        case NAME:\n            return NAME\nprint(mN(N))",
    "def mN(x):\n    match x:\n        case [1, *NAME]: return NAME\n        case {'a': 1, **NAME}: return NAME\n        case (2 as NAME) | (3 as NAME): return NAME\nprint(mN([1, 2]), mN({'a': 1, 'b': 2}), mN(3))",
    "print((lambda NAME: NAME)(N), (lambda *NAME, k=1: NAME)(1), (lambda **NAME: NAME)(a=1))",
    "def wN():\n    print((NAME := N))\n    return NAME\nwN()",
    "def eN():\n    try:\n        1 / 0\n    except ZeroDivisionError as NAME:\n        print(NAME)\neN()",
    "def lN():\n    for NAME in range(2): print(NAME)\n    for i, (NAME, *j) in [(1, (2, 3))]: print(NAME)\nlN()",
    "import contextlib as cN\nwith cN.nullcontext(N) as NAME: print(NAME)",
    "def aN(x: 'NAME.x', y: 'Dict[NAME, int]' = None) -> 'NAME': return x\nprint(aN(1))",
    "def tN():\n    *NAME, b = [1, 2]\n    print(NAME, b)\ntN()",
    "def oN():\n    import string as NAME\n    return NAME.digits\nprint(oN())",
    "def oN():\n    from math import pi as NAME\n    return NAME\nprint(oN())",
    "def oN():\n    class NAME: pass\n    def other(): return NAME\n    return other().__name__\nprint(oN())",
    "async def oN():\n    async def NAME(): pass\n    await NAME()",
    "try:\n    NAME\nexcept NameError:\n    print('absent')",
    "def uN():\n    try:\n        return NAME\n    except (NameError, AttributeError):\n        return 'absent'\nprint(uN() is None)",
    "def vN():\n    NAME: int = N\n    NAME += 1\n    return NAME\nprint(vN())",
    "def zN():\n    NAME: NAME\n    print('never evaluated')\nzN()",
];

/// Names, and uses of them without their import; each prints the same in every run.
const USES: &[(&str, &str)] = &[
    ("json", "print(json.dumps({'a': [1, 2]}))"),
    ("math", "print(math.sqrt(2), f'{math.pi:.3f}')"),
    ("re", "print(re.sub('a', 'b', 'banana'))"),
    ("itertools", "print(list(itertools.islice(itertools.count(), 3)))"),
    ("functools", "print(functools.reduce(lambda a, b: a + b, [1, 2]))"),
    ("collections", "print(collections.Counter('aab'))"),
    ("Counter", "print(Counter('aab')['a'])"),
    ("defaultdict", "print(defaultdict(int)['x'])"),
    ("OrderedDict", "print(list(OrderedDict(a=1)))"),
    ("deque", "print(deque([1, 2], maxlen=1))"),
    ("namedtuple", "print(namedtuple('P', 'x y')(1, 2))"),
    ("Path", "print(Path('a') / 'b')"),
    ("hashlib", "print(hashlib.sha256(b'x').hexdigest())"),
    ("base64", "print(base64.b64encode(b'x'))"),
    ("StringIO", "print(StringIO('x').read())"),
    ("io", "print(io.BytesIO(b'x').read())"),
    ("textwrap", "print(textwrap.fill('a b c', 3))"),
    ("string", "print(string.ascii_letters)"),
    ("statistics", "print(statistics.mean([1, 2]))"),
    ("Decimal", "print(Decimal('0.1') + Decimal('0.2'))"),
    ("Fraction", "print(Fraction(1, 3))"),
    ("copy", "print(copy.deepcopy([1]))"),
    ("deepcopy", "print(list(map(deepcopy, [[1]])))"),
    ("operator", "print(operator.add(1, 2))"),
    ("struct", "print(struct.pack('<I', 1))"),
    ("uuid", "print(uuid.UUID(int=1))"),
    (
        "datetime",
        "print(datetime(2024, 1, 2).isoformat(), datetime.strptime('1', '%d').day)",
    ),
    (
        "datetime",
        "print(datetime.datetime(2024, 1, 2) - datetime.timedelta(days=1))",
    ),
    ("timedelta", "print(timedelta(days=1))"),
    ("date", "print(date(2024, 1, 2))"),
    ("partial", "print(partial(int, base=2)('11'))"),
    ("reduce", "print(reduce(max, [1, 3, 2]))"),
    ("heapq", "print(heapq.nsmallest(1, [2, 1]))"),
    ("bisect", "print(bisect.bisect([1, 2], 1))"),
    (
        "dataclass",
        "@dataclass\nclass DN:\n    x: int = 1\nprint(DN().x)",
    ),
    ("Enum", "class EN(Enum):\n    A = 1\nprint(EN.A)"),
    ("ABC", "class BN(ABC): pass\nprint(BN.__name__)"),
    (
        "lru_cache",
        "@lru_cache(maxsize=None)\ndef cN(x): return x\nprint(cN(1))",
    ),
    (
        "contextmanager",
        "@contextmanager\ndef kN():\n    yield 1\nwith kN() as v: print(v)",
    ),
    ("os", "print(os.path.join('a', 'b'), os.sep)"),
    ("sys", "print(sys.maxsize)"),
    ("random", "print(random.Random(1).random())"),
    ("time", "print(time.gmtime(0).tm_year)"),
    ("calendar", "print(calendar.isleap(2024))"),
    ("urllib", "print(urllib.parse.quote('a b'))"),
    ("ET", "print(ET.fromstring('<a/>').tag)"),
    ("xml", "print(xml.etree.ElementTree.fromstring('<a/>').tag)"),
    ("zlib", "print(zlib.crc32(b'x'))"),
    ("html", "print(html.escape('<'))"),
    ("unicodedata", "print(unicodedata.name('a'))"),
    ("pprint", "print(pprint.pformat([1]))"),
    ("csv", "print(list(csv.reader(['a,b'])))"),
    ("product", "print([p for p in product([1], [2])])"),
    ("chain", "print(*chain([1], [2]))"),
    ("itemgetter", "print(sorted([(2,), (1,)], key=itemgetter(0)))"),
    ("SimpleNamespace", "print(SimpleNamespace(a=1).a)"),
    (
        "ascii_lowercase",
        "print({letter: 1 for letter in ascii_lowercase}['a'])",
    ),
    ("urlparse", "print(urlparse('https://a.example/b').path)"),
    ("logging", "print(logging.getLevelName(20))"),
];

/// Beginnings of programs.
const HEADS: &[&str] = &[
    "",
    "",
    "#!/usr/bin/env python3\n",
    "#!/usr/bin/env python3\n# -*- coding: utf-8 -*-\n\n",
    "# About this program.\n\n",
    "\n\n",
    "\"\"\"A docstring that says json.dumps.\n\nAnd more.\n\"\"\"\n\n",
    "'doc'; ",
    "'doc'\nfrom __future__ import division\n",
    "from __future__ import division; ",
    "from __future__ import (\n    division,\n)  # why\nfrom __future__ import generator_stop\n",
    "\u{feff}",
    "\u{feff}'doc'\n",
    "x0 = 1; ",
];

/// A program, and the names whose imports are missing.
#[derive(Clone, Debug)]
pub struct IncompleteProgram {
    pub code: String,
    pub missing: Vec<&'static str>,
}

/// Fills in the number and the name of a piece.
fn filled(piece: &str, name: &str, number: usize) -> String {
    // The name is inserted last, so that no letter of it is taken for a placeholder.
    let mut filled = String::new();
    let mut rest = piece;
    while let Some(at) = rest.find("NAME") {
        filled.push_str(rest.get(..at).unwrap_or_default());
        filled.push('\u{0}');
        rest = rest.get(at + 4..).unwrap_or_default();
    }
    filled.push_str(rest);
    numbered(&filled, number).replace('\u{0}', name)
}

/// `sN` becomes `s3`; the `N` of `NameError` stays.
fn numbered(piece: &str, number: usize) -> String {
    let letters: Vec<char> = piece.chars().collect();
    let mut text = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let next = letters.get(at + 1);
        if *letter == 'N' && !next.is_some_and(|next| next.is_alphabetic()) {
            text.push_str(&number.to_string());
        } else {
            text.push(*letter);
        }
    }
    text
}

fn mention() -> impl Strategy<Value = (&'static str, &'static str)> {
    let names = USES.iter().map(|(name, _)| name).chain(NAMES);
    let names: Vec<&'static str> = names.copied().collect();
    (sample::select(MENTIONS), sample::select(names))
}

/// Programs in which no import is missing.
pub fn mentioning() -> impl Strategy<Value = String> {
    proptest::collection::vec(mention(), 1..12).prop_map(|mentions| {
        let pieces = mentions.iter().enumerate();
        let pieces: Vec<String> = pieces
            .map(|(number, (piece, name))| filled(piece, name, number))
            .collect();
        pieces.join("\n") + "\n"
    })
}

/// Programs that use a name in one scope and bind it in another.
pub fn bound_elsewhere() -> impl Strategy<Value = (String, &'static str)> {
    let binds = |piece: &&str| {
        let binding = ["def", "lambda", "for NAME", "class CN"];
        binding.iter().any(|word| piece.contains(word))
            && !piece.contains("'NAME")
            && !piece.contains("NameError")
            && !piece.contains("def NAME(self)")
            && !piece.contains("never evaluated")
    };
    let binding: Vec<&'static str> = MENTIONS.iter().copied().filter(binds).collect();
    assert!(binding.len() > 15, "{}", binding.len());
    (sample::select(binding), sample::select(USES), any::<bool>()).prop_map(|(piece, (name, used), first)| {
        let (bound, used) = (filled(piece, name, 1), numbered(used, 2));
        let code = if first {
            format!("{bound}\n{used}\n")
        } else {
            format!("{used}\n{bound}\n")
        };
        (code, name)
    })
}

/// The code around a use.
#[derive(Clone, Copy, Debug)]
enum Around {
    Module,
    CalledFunction,
    UncalledFunction,
    Method,
    Block,
    OtherHandler,
}

const AROUND: &[Around] = &[
    Around::Module,
    Around::CalledFunction,
    Around::UncalledFunction,
    Around::UncalledFunction,
    Around::Method,
    Around::Block,
    Around::OtherHandler,
];

fn placed(used: &str, around: Around, number: usize) -> String {
    let indented = |text: &str| {
        text.lines()
            .map(|line| format!("    {line}\n"))
            .collect::<String>()
    };
    let body = indented(used);
    match around {
        Around::Module => format!("{used}\n"),
        Around::CalledFunction => format!("def called{number}():\n{body}called{number}()\n"),
        Around::UncalledFunction => format!("def uncalled{number}():\n{body}print('before')\n"),
        Around::Method => format!(
            "class Kind{number}:\n    def method(self):\n{}Kind{number}().method()\n",
            indented(&body)
        ),
        Around::Block => format!("for _ in range(2):\n{body}"),
        Around::OtherHandler => {
            format!("try:\n{body}except (ValueError, KeyError) as problem:\n    print(problem)\n")
        }
    }
}

/// Programs with missing imports.
pub fn missing_imports() -> impl Strategy<Value = IncompleteProgram> {
    let used = proptest::collection::vec((sample::select(USES), sample::select(AROUND)), 1..4);
    let mentioned = proptest::collection::vec(mention(), 0..4);
    (
        used,
        mentioned,
        sample::select(HEADS),
        any::<bool>(),
        any::<u64>(),
    )
        .prop_map(|(used, mentioned, head, windows, order)| {
            let mut missing: Vec<&'static str> = Vec::new();
            let mut pieces = Vec::new();
            for (number, ((name, code), around)) in used.iter().enumerate() {
                // Two uses of one name may contradict each other.
                if !missing.contains(name) {
                    missing.push(name);
                    pieces.push(placed(&numbered(code, number), *around, number));
                }
            }
            for (number, (piece, name)) in mentioned.iter().enumerate() {
                let harmless = !missing.contains(name) && !piece.contains("NameError");
                if harmless {
                    pieces.push(filled(piece, name, 10 + number) + "\n");
                }
            }
            let turns = usize::try_from(order % 7).unwrap_or(0) % pieces.len();
            pieces.rotate_left(turns);
            let mut code = pieces.concat();
            // Only a simple statement can follow a semicolon.
            let head = match head.strip_suffix("; ") {
                Some(_) => format!("{head}print(0)\n"),
                None => head.to_owned(),
            };
            code.insert_str(0, &head);
            if windows {
                code = code.replace('\n', "\r\n");
            }
            IncompleteProgram { code, missing }
        })
}
