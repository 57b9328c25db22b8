//! What the profile `strict` alone forbids: ways to any attribute that no name in the text shows. Each with ordinary programs that
//! look alike and pass.

use super::*;

/// Each is refused under `strict`, by that rule, on that line; and nothing is said of it where no profile restricts.
fn refused(rule: &str, cases: &[(usize, &str)]) {
    for (line, code) in cases {
        let errors = errors(code, Profile::Strict);
        let expect = format!("{line} {rule} error");
        assert!(
            errors.iter().any(|error| error.starts_with(&expect)),
            "{code}\nexpected {expect}: {:#?}",
            told(code, Profile::Strict)
        );
        let usual = told(code, Profile::Unrestricted);
        assert!(
            !usual.iter().any(|line| line.starts_with(&expect)),
            "{code}\n{usual:#?}"
        );
    }
}

fn pass(cases: &[&str]) {
    for code in cases {
        let told = told(code, Profile::Strict);
        let said: Vec<&String> = told
            .iter()
            .filter(|line| !line.contains("python.undefined_name") && !line.contains(" info: "))
            .collect();
        assert!(said.is_empty(), "{code}\n{said:#?}");
    }
}

const PRIVATE: &str = "python.private_attribute";
const EXECUTION: &str = "python.dynamic_execution";
const REFLECTION: &str = "python.reflection";
const FORMAT: &str = "python.format_attribute";

#[test]
fn what_a_star_import_brings_is_known_by_its_full_name() {
    let check = |code: &str, expect: &str| {
        let errors = errors(code, Profile::Strict);
        assert!(
            errors.iter().any(|line| line.starts_with(expect)),
            "{code}\n{errors:#?}"
        );
    };
    check("from string import *\nFormatter()", "2 python.format_attribute");
    check("from string import *\nx = Formatter", "2 python.format_attribute");
    check(
        "Formatter = None\nfrom string import *\nFormatter()",
        "3 python.format_attribute",
    );
    check(
        "from string import *\nif x:\n    Formatter = None\nFormatter()",
        "4 python.format_attribute",
    );
    check(
        "from string import *\nfrom math import *\nFormatter()",
        "3 python.format_attribute",
    );
    check(
        "from typing import *\nget_type_hints(f)",
        "2 python.dynamic_execution",
    );
    check("from operator import *\nattrgetter(x)(y)", "2 python.reflection");
    check(
        "from dataclasses import *\nmake_dataclass('A', x)",
        "2 python.dynamic_execution",
    );
    check(
        "from functools import *\nupdate_wrapper(a, b, assigned=[x])",
        "2 python.reflection",
    );
    check(
        "from json.tool import *\nsys.modules",
        "2 profile.module_attribute",
    );
    check("from json.tool import *\nPath('a')", "2 profile.module_attribute");
    check("from json.tool import Path", "1 profile.module_attribute");
    check(
        "import json.tool\njson.tool.Path('a')",
        "2 profile.module_attribute",
    );
    check(
        "import json.tool as t\ngetattr(t, 'Path')('a')",
        "2 profile.module_attribute",
    );
    assert_eq!(
        told(
            "from ctypes import *\nhasattr(1, 'y'), TypeError",
            Profile::Unrestricted
        )
        .len(),
        1
    );
    pass(&[
        "from math import *\nprint(sin(pi))",
        "from string import *\nprint(ascii_letters, capwords('a'))",
        "from string import *\nclass Formatter:\n    pass\nFormatter()",
        "from string import *\ndef f(Formatter):\n    return Formatter()",
        "from dataclasses import *\n@dataclass\nclass A:\n    x: int = field(default=1)",
        "from typing import *\ndef f(x: Optional[int]) -> List[str]:\n    return []",
        "from collections import *\nprint(Counter('aab'), deque())",
    ]);
}

#[test]
fn private_attributes_of_what_is_not_the_programs_own_are_refused() {
    refused(
        PRIVATE,
        &[
            (2, "import uuid\nuuid._get_command_stdout('a')"),
            (1, "from uuid import _get_command_stdout as g\ng('a')"),
            (2, "import uuid\ngetattr(uuid, '_get_command_stdout')('a')"),
            (2, "import operator\noperator.attrgetter('_load')(x)"),
            (2, "import operator\noperator.attrgetter('a._load')(x)"),
            (2, "import operator\noperator.methodcaller('_evaluate', {})(x)"),
            (2, "match x:\n    case object(_fget=f): pass"),
            (2, "import uuid\nsetattr(uuid, '_x', 1)"),
            (2, "import uuid\ndelattr(uuid, '_x')"),
            (2, "import uuid\ndel uuid._x"),
            (1, "import re._compiler"),
            (1, "from re import _compiler"),
            (4, "try:\n    x.y\nexcept AttributeError as e:\n    e.obj._os"),
            (2, "def f(x):\n    return x._thing"),
            (
                3,
                "class A:\n    def f(self):\n        return self._nobody_sets_it",
            ),
            (2, "import dataclasses\ndataclasses._create_fn('f', [], [])"),
            (2, "import dataclasses as d\nd._is_type('a', b, d, b, f)"),
            (2, "import enum\nenum.Enum._convert_('E', 'os', f)"),
            (2, "from enum import IntEnum\nIntEnum._convert_('E', 'os', f)"),
            (
                4,
                "from enum import Enum\nclass E(Enum):\n    A = 1\nE._convert_('E', 'os', f)",
            ),
            (
                2,
                "import typing\ntyping.Optional['A'].__args__[0]._evaluate({}, {}, set())",
            ),
            (2, "import random\nrandom.Random()._randbelow(1)"),
            (3, "class D:\n    _x = 1\nprint._x"),
        ],
    );
}

#[test]
fn a_name_does_not_become_the_programs_own_by_a_decoy() {
    refused(
        PRIVATE,
        &[
            (2, "class D:\n    _old_targets = 1"),
            (2, "class D:\n    def _convert_(self): pass"),
            (3, "class D:\n    def f(self):\n        self._old_targets = 1"),
            (1, "D = type('D', (), {'_old_targets': 1})"),
            (4, "import uuid\nclass D:\n    _x = 1\nuuid._x"),
            (5, "import uuid\nclass D:\n    _x = 1\nu = uuid\nu._x"),
            (
                3,
                "import uuid\nclass D:\n    _get_command_stdout = 1\n[uuid][0]._get_command_stdout",
            ),
            (
                5,
                "import contextlib\nclass R(contextlib.redirect_stdout):\n    _stream = 'modules'\nr = R({})\nr._stream",
            ),
            (
                6,
                "import contextlib\nclass R(contextlib.redirect_stdout):\n    pass\nclass S(R):\n    def f(self):\n        self._stream = 'modules'",
            ),
        ],
    );
}

#[test]
fn private_attributes_of_the_programs_own_pass() {
    pass(&[
        "class A:\n    def __init__(self):\n        self._x = 1\n    def __eq__(self, other):\n        return self._x == other._x",
        "class A:\n    def __init__(self, v):\n        self.__v = v\n    def f(self):\n        return self.__v\na = A(1)\nprint(a._A__v)",
        "class A:\n    _count = 0\n    @classmethod\n    def f(cls):\n        cls._count += 1\nprint(A._count)",
        "class A:\n    __slots__ = ('_a', '_b')\n    def f(self):\n        return self._a, self._b",
        "class A:\n    __slots__ = '_a'\ndef f(a):\n    return a._a",
        "from dataclasses import dataclass, field\n@dataclass\nclass A:\n    _x: int = field(default=0, repr=False)\n    def f(self, o):\n        return self._x + o._x",
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\np = P(1, 2)\nprint(p._asdict(), p._replace(x=3), P._fields, P._make([1, 2]), P._field_defaults)",
        "from collections import namedtuple\nP = namedtuple('P', ['a', 'def'], rename=True)\nprint(P(1, 2)._1)",
        "from enum import Enum\nclass C(Enum):\n    _ignore_ = ['x']\n    A = 1\n    @classmethod\n    def _missing_(cls, value):\n        return cls.A\n    @staticmethod\n    def _generate_next_value_(name, start, count, last):\n        return name",
        "from enum import Enum\nclass C(Enum):\n    A = 1\n    def __new__(cls, v):\n        o = object.__new__(cls)\n        o._value_ = v\n        return o\nprint(1 in C._value2member_map_, C.A._name_, C._member_map_)",
        "class Frozen:\n    def __init__(self, x):\n        object.__setattr__(self, '_x', x)\n    @property\n    def x(self):\n        return self._x",
        "class A:\n    def __new__(cls):\n        if not hasattr(cls, '_instance'):\n            cls._instance = super().__new__(cls)\n        return cls._instance",
        "def memo(f):\n    def g(*a):\n        return g._cache.setdefault(a, f(*a))\n    g._cache = {}\n    return g",
        "def mark(f):\n    f._is_marked = True\n    return f\nprint([f for f in [mark(print)] if getattr(f, '_is_marked', False)])",
        "class Node:\n    def __init__(self, v):\n        self._next, self.v = None, v\ndef link(a, b):\n    a._next = b\n    return a._next",
        "from html.parser import HTMLParser\nclass P(HTMLParser):\n    def __init__(self):\n        super().__init__()\n        self._depth = 0\n    def handle_starttag(self, tag, attrs):\n        self._depth += 1",
        "import abc\nclass A(abc.ABC):\n    @abc.abstractmethod\n    def _f(self): ...\n    def g(self):\n        return self._f()\nclass B(A):\n    def _f(self):\n        return super()._f()",
        "from types import SimpleNamespace\nn = SimpleNamespace(_x=1)\nprint(n._x)",
        "_cache = {}\ndef _f(_x, _):\n    return _cache.get(_x)\nfor _ in range(3):\n    print(_f(1, _))",
        "class T:\n    class _Inner:\n        pass\n    def f(self):\n        return self._Inner()",
        "class D:\n    def __set_name__(self, owner, name):\n        self._name = '_' + name\nprint(D()._name)",
        "import operator\nclass A:\n    def __init__(self):\n        self._key = 1\nprint(sorted([A()], key=operator.attrgetter('_key')))",
        "class A:\n    _k = 1\nmatch A():\n    case A(_k=k): print(k)",
        "from contextlib import redirect_stdout\nimport json\nclass Tee:\n    def __init__(self, s):\n        self._stream = s\n    def write(self, t):\n        self._stream.write(t)\nwith redirect_stdout(Tee(None)): pass",
        "from __future__ import annotations\nfrom typing import Generic, TypeVar\n_T = TypeVar('_T')\nclass Box(Generic[_T]):\n    def __init__(self, item: _T) -> None:\n        self._item = item",
        "class A:\n    for _i in range(2):\n        pass\nprint(A._i)",
        "import copy\nclass A:\n    def __init__(self):\n        self._x = 1\n    def f(self):\n        new = copy.copy(self)\n        new._x = 2\n        return new",
        "import heapq\nclass N:\n    def __init__(self, c):\n        self._cost = c\nheap = [N(1)]\nn = heapq.heappop(heap)\nprint(n._cost)",
        "from collections import deque\nclass N:\n    _left = None\nq = deque([N()])\nn = q.popleft()\nprint(n._left)",
        "import random\nclass N:\n    _x = 1\nn = random.choice([N()])\nprint(n._x)",
        "class A:\n    def __new__(cls, x):\n        self = object.__new__(cls)\n        self._x = x\n        return self\nprint(A(1)._x)",
        "class Calculator:\n    def _evaluate(self, node):\n        return self._evaluate(node)\n    def _is_type(self, _popen): pass",
        "import random\nrng = random.Random(1)\nclass Sim:\n    def __init__(self):\n        self._rng = rng\n    def f(self):\n        return self._rng.random()",
    ]);
}

#[test]
fn classes_that_the_text_does_not_show_have_private_attributes_of_their_own() {
    let errors = |code: &str, change: fn(&mut CodeQuestion)| {
        let mut asked = asked(Profile::Strict);
        change(&mut asked);
        let found = check(code, &asked).findings;
        let errors = found.iter().filter(|finding| finding.severity == Severity::Error);
        errors.count()
    };
    let with_module = |asked: &mut CodeQuestion| {
        asked
            .rules
            .imports
            .as_mut()
            .unwrap()
            .insert("mine".parse().unwrap());
    };
    assert_eq!(errors("from mine import _helper\n_helper()", with_module), 0);
    assert_eq!(errors("import mine\nmine._x\nmine.A()._y", with_module), 0);
    assert_eq!(
        errors(
            "from mine import A\nclass B(A):\n    def f(self):\n        return self._x",
            with_module
        ),
        0
    );
    assert_eq!(errors("import mine\nimport uuid\nuuid._x", with_module), 1);
    assert_eq!(errors("account._balance", |asked| asked.is_fragment = true), 0);
    assert_eq!(errors("r._old_targets", |asked| asked.is_fragment = true), 1);
    assert_eq!(errors("account._balance", |_| ()), 1);
}

#[test]
fn names_of_the_librarys_modules_are_not_changed() {
    refused(
        "python.builtins_write",
        &[
            (2, "import contextlib\ncontextlib.setattr = f"),
            (2, "import dataclasses as d\nd.exec = f"),
            (2, "import contextlib\nsetattr(contextlib, 'setattr', f)"),
            (2, "import json\njson.decoder.x = 1"),
            (2, "import random\ndel random.seed"),
            (2, "import random\nrandom.x, y = 1, 2"),
            (2, "import functools\nfor functools.partial in [f]: pass"),
        ],
    );
    pass(&[
        "from types import SimpleNamespace\nn = SimpleNamespace()\nn.x = 1\nn.x += 1",
        "import copy\na = copy.copy(b)\na.x = 1\na.x += 1",
        "import decimal\ndecimal.getcontext().prec = 50",
        "import csv\nclass D(csv.Dialect):\n    delimiter = ';'",
        "import random\nclass A:\n    pass\na = A()\na.random = random.random\na.json = 1",
    ]);
}

#[test]
fn texts_of_types_hold_what_types_are_made_of() {
    refused(
        EXECUTION,
        &[
            (1, "def f(x: '[c for c in d]'): pass"),
            (1, "def f(x: 'a.b()'): pass"),
            (1, "def f(x: 'lambda: 1'): pass"),
            (1, "def f(*x: '().__class__'): pass"),
            (1, "def f() -> 'a._b': pass"),
            (1, "x: 'f(1)' = 1"),
            (1, "def f(x: \"list['f()']\"): pass"),
            (1, "def f(x: list['f()']): pass"),
            (1, "def f(x: 'int' | 'f()'): pass"),
            (1, "def f(x: 'f' '()'): pass"),
            (1, "def f(x: 'f' + '()'): pass"),
            (1, "def f(x: '  f()'): pass"),
            (1, "def f(x: '*f()'): pass"),
            (1, "def f(x: '(f\\n())'): pass"),
            (1, "def f(x: 'x if y else z'): pass"),
            (1, "def f(x: '(x := 1)'): pass"),
            (1, "def f(x: '__import__'): pass"),
            (2, "T = 'f()'\ndef f(x: T): pass"),
            (1, "def f(x: f'{y}()'): pass"),
            (1, "def f(x: ''.join(y)): pass"),
            (2, "import typing\ntyping.Optional['f()']"),
            (2, "from typing import Union as U\nx = U[int, 'f()']"),
            (2, "import typing\nx = typing.List[''.join(y)]"),
            (1, "x = list['f()']"),
            (
                3,
                "from typing import Annotated\nclass A:\n    x: Annotated['f()', 'docs']",
            ),
            (
                3,
                "from typing import NamedTuple\nclass A(NamedTuple):\n    x: 'f()'",
            ),
            (
                3,
                "from typing import TypedDict\nclass A(TypedDict):\n    x: 'f()'",
            ),
            (
                2,
                "from typing import NamedTuple\nP = NamedTuple('P', [('x', 'f()')])",
            ),
            (
                2,
                "from typing import TypedDict\nP = TypedDict('P', {'x': 'f()'})",
            ),
            (2, "import typing\ntyping.cast('f()', x)"),
            (2, "import typing\ntyping.TypeVar('T', bound='f()')"),
            (2, "Literal = list\nx: Literal['f()']"),
            (2, "Literal = list\nx: \"Literal['f()']\""),
        ],
    );
}

#[test]
fn what_register_evaluates_stands_there_as_it_is() {
    let dispatch = "import functools\n@functools.singledispatch\ndef f(x): pass\n";
    let code = |rest: &str| format!("{dispatch}{rest}");
    for (rule, line, rest) in [
        (EXECUTION, 6, "T = g()\n@f.register\ndef h(x: T): pass"),
        (EXECUTION, 6, "T = ''.join(y)\n@f.register\ndef h(x: T): pass"),
        (
            EXECUTION,
            7,
            "class N:\n    T = g()\n@f.register\ndef h(x: N.T): pass",
        ),
        (
            EXECUTION,
            6,
            "for T in y:\n    @f.register\n    def h(x: T): pass",
        ),
        (EXECUTION, 5, "@f.register\ndef h(x: g()): pass"),
        (EXECUTION, 5, "@f.register\ndef h(x: y[0]()): pass"),
        (
            REFLECTION,
            5,
            "def h(x): pass\nh.__annotations__['x'] = y\nf.register(h)",
        ),
        (REFLECTION, 5, "def h(x): pass\nh.__annotations__.update(x=y)"),
        (
            REFLECTION,
            5,
            "def h(x): pass\ngetattr(h, '__annotations__').update(x=y)",
        ),
    ] {
        refused(rule, &[(line, &code(rest))]);
    }
    let ordinary = [
        "@f.register\ndef _(x: int): pass\n@f.register\ndef _(x: 'list'): pass",
        "@f.register(str)\ndef _(x): pass\nf.register(type(None), print)",
        "@f.register\ndef _(x: int | float) -> None: pass",
        "class A: pass\n@f.register\ndef _(x: A, n: int = 1) -> str: return ''",
        "from collections.abc import Iterable\nimport decimal\n@f.register\ndef _(x: Iterable, y: decimal.Decimal): pass",
        "from typing import Union\nN = Union[int, float]\n@f.register\ndef _(x: N): pass",
    ];
    for rest in ordinary {
        pass(&[&code(rest)]);
    }
}

#[test]
fn ordinary_types_pass() {
    pass(&[
        "class Node:\n    def f(self, other: 'Node') -> 'list[Node] | None':\n        return [other]",
        "from typing import Optional\nclass A:\n    left: Optional['A'] = None\n    right: \"Optional['A']\" = None",
        "from typing import Literal\ndef f(m: Literal['a b', 'f()', \"x's\"]) -> \"Literal['g']\": return 'g'",
        "import typing as t\ndef f(m: t.Literal['f()'], n: \"t.Literal['f']\"): pass",
        "from typing import Annotated\ndef f(x: Annotated[int, 'at least 1 (or 2)', len('a')]): pass",
        "from typing import Callable\ndef f(g: 'Callable[[int, ...], str]', h: Callable[['int'], 'str']): pass",
        "import collections.abc\ndef f(x: 'collections.abc.Iterable[int]', y: 'dict[str, tuple[int, ...]]'): pass",
        "from __future__ import annotations\ndef f(x: list[int], *a: tuple[int], **k: str) -> None: pass",
        "def f(x: 'the number of items (at least 1)', y: 'see above') -> 'nothing': pass",
        "def f(x: type(None), y: None, z: ...): pass",
        "from typing import NamedTuple, TypedDict, NewType, TypeVar, cast\nP = NamedTuple('P', [('x', 'int'), ('y', int)])\nD = TypedDict('D', {'a': 'P', 'b': int})\nU = NewType('U', int)\nT = TypeVar('T', bound='P')\nx = cast('list[P]', [])",
        "type A = 'list[A] | int'",
        "class S[T: 'int']:\n    def f(self, x: '*Ts', y: 'tuple[*Ts]'): pass",
        "x: 'Literal[-1, True, None]' = 1\ny: 'a.b.C' = 1",
        "def f(x: 'np.ndarray', y: '') -> \"'int'\": pass",
        "d = {'a()': 1}\nprint(d['a()'], dict(a=1)['f()'])\n",
    ]);
}

#[test]
fn what_a_pattern_reads_by_its_place_is_a_constant() {
    refused(
        REFLECTION,
        &[
            (2, "class A:\n    __match_args__ = ('__glo' + 'bals__',)"),
            (2, "class A:\n    __match_args__ = ('x', y)"),
            (2, "class A:\n    __match_args__ = f()"),
            (2, "class A:\n    __match_args__ = (*x,)"),
            (2, "class A:\n    __match_args__: tuple = tuple(x)"),
            (2, "class A:\n    __match_args__ = ('_x',)"),
            (2, "class A:\n    __match_args__, x = y"),
            (2, "class A:\n    for __match_args__ in x: pass"),
            (3, "class A:\n    @property\n    def __match_args__(self): pass"),
            (2, "class A:\n    from x import y as __match_args__"),
            (1, "A.__match_args__ = x"),
            (1, "setattr(A, '__match_args__', x)"),
            (1, "type.__setattr__(A, '__match_args__', x)"),
            (1, "A = type('A', (), {'__match_args__': x})"),
            (3, "A = type('A', (), x)\nmatch y:\n    case A(z): pass"),
            (
                3,
                "A = type('A', (), {'__match' + '_args__': x})\nmatch y:\n    case A(z): pass",
            ),
            (
                5,
                "class M(type):\n    pass\nclass A(metaclass=M): pass\nmatch y:\n    case A(z): pass",
            ),
            (
                5,
                "import abc\nclass M(abc.ABCMeta): pass\nA = M('A', (), x)\nmatch y:\n    case A(z): pass",
            ),
        ],
    );
    pass(&[
        "class P:\n    __match_args__ = ('x', 'y')\n    def __init__(self, x, y):\n        self.x, self.y = x, y\nmatch P(1, 2):\n    case P(a, b): print(a, b)",
        "class P:\n    __match_args__ = ['x']\nclass Q:\n    __match_args__: tuple = ('x',)\nclass R:\n    __match_args__ = ()",
        "F = ('x', 'y')\nclass P:\n    __match_args__ = F\n    __slots__ = F",
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nmatch P(1):\n    case P(x): print(x, P.__match_args__)",
        "match x:\n    case int(n) | str(n): print(n)\n    case [int(), *r]: print(r)",
        "A = type('A', (), {'x': 1})\nclass M(type): pass\nclass B(metaclass=M): pass\nmatch x:\n    case B(): pass\n    case int(n): pass",
    ]);
}

#[test]
fn only_the_usual_attributes_are_copied_to_a_wrapper() {
    refused(
        REFLECTION,
        &[
            (
                2,
                "import functools\nfunctools.update_wrapper(w, f, assigned=['__glo' + 'bals__'], updated=[])",
            ),
            (2, "import functools\nfunctools.update_wrapper(w, f, x)"),
            (
                2,
                "import functools\nfunctools.update_wrapper(w, f, assigned=('__code__',))",
            ),
            (2, "from functools import wraps\nwraps(f, assigned=x)(w)"),
            (
                2,
                "from functools import wraps\nwraps(f, ('__name__',), ['x' + y])(w)",
            ),
            (2, "from functools import wraps\nwraps(f, **x)(w)"),
            (2, "from functools import wraps\nwraps(*x)(w)"),
            (
                2,
                "import functools\nfunctools.partial(functools.update_wrapper, assigned=x)",
            ),
            (
                2,
                "import functools\nlist(map(functools.update_wrapper, x, y, z))",
            ),
            (
                2,
                "import functools, random\nfunctools.update_wrapper(W(), random)",
            ),
            (2, "class W:\n    __dict__ = x"),
            (3, "class W:\n    @property\n    def __dict__(self): pass"),
        ],
    );
    pass(&[
        "import functools\ndef d(f):\n    @functools.wraps(f)\n    def g(*a, **k):\n        return f(*a, **k)\n    return g",
        "from functools import update_wrapper\nclass D:\n    def __init__(self, f):\n        update_wrapper(self, f)\n        self.f = f",
        "import functools\nfunctools.wraps(f, assigned=('__name__', '__doc__'), updated=())(g)",
        "from functools import wraps, WRAPPER_ASSIGNMENTS\nwraps(f, assigned=WRAPPER_ASSIGNMENTS)(g)",
        "from functools import wraps as w\ndef d(f):\n    @w(f)\n    def g(): pass\n    return g",
    ]);
}

#[test]
fn formatting_is_not_handed_on() {
    refused(
        FORMAT,
        &[
            (1, "list(map(str.format, x, y))"),
            (1, "f = str.format\nf(x, y)"),
            (1, "f = str.format_map"),
            (1, "getattr(str, 'format')"),
            (1, "g = {'a': str.format}"),
            (1, "map(type('').format, x, y)"),
            (1, "map(''.join(x).format, y)"),
            (1, "map((x + '.a}').format, y)"),
            (1, "map(str(x).format, y)"),
            (1, "map(x.format_map, y)"),
            (2, "class S(str): pass\nmap(S.format, x, y)"),
            (2, "class S(str): pass\nS.format(x, y)"),
            (3, "class S(str): pass\nclass T(S): pass\nT.format(x, y)"),
            (
                3,
                "class S(str):\n    def f(self):\n        return map(super().format, x)",
            ),
            (2, "match x:\n    case str(format=f): pass"),
            (2, "match x:\n    case object(format_map=f): pass"),
            (2, "import operator\noperator.methodcaller('format', x)(y)"),
            (2, "import operator\noperator.attrgetter('format_map')(y)"),
        ],
    );
    pass(&[
        "print(list(map('{:.2f}'.format, [1.5])))",
        "print('{} {}'.format(1, 2), str.format('{:>5}', 3))",
        "row = '{:>10}'.format\nprint(row(1), row(2))",
        "T = '{name}'\nprint(T.format(name=1), T.format_map({'name': 1}))",
        "class C:\n    def __init__(self, format):\n        self.format = format\nc = C('png')\nprint(c.format, c.format.upper())",
        "print(format(1.5, '.1f'))\nprint(list(map(format, [1])))",
        "match x:\n    case Image(format=f): print(f)",
    ]);
}

#[test]
fn references_to_types_are_not_reached() {
    refused(
        REFLECTION,
        &[
            (
                5,
                "import typing\nclass D:\n    def _evaluate(self): pass\nt = typing.Optional[x]\nt.__args__[0]._evaluate({}, {}, set())",
            ),
            (
                4,
                "from typing import get_args\nclass D:\n    def _evaluate(self): pass\nget_args(t)[0]._evaluate({}, {}, set())",
            ),
            (2, "def f(x): pass\nf.__annotations__['x'] = y"),
            (1, "__annotations__['x'] = y"),
        ],
    );
}

#[test]
fn a_name_that_is_not_written_out_is_refused() {
    refused(
        REFLECTION,
        &[
            (1, "getattr(str, 'for' + 'mat')"),
            (2, "import uuid\ngetattr(uuid, '_get_command' + '_stdout')('a')"),
            (2, "import operator\noperator.attrgetter('__cl' + 'ass__')(x)"),
            (1, "setattr(x, name, 1)"),
        ],
    );
}

#[test]
fn what_is_computed_from_constants_is_refused_where_the_plain_text_would_be() {
    const NAMES: &[&str] = &[
        "'so'[::-1]",
        "'%s' % 'os'",
        "'{}{}'.format('o', 's')",
        "''.join(['o', 's'])",
        "''.join(map(chr, [111, 115]))",
        "''.join(chr(c ^ 42) for c in [69, 89])",
        "chr(111) + chr(115)",
        "b'os'.decode()",
        "bytes([111, 115]).decode()",
        "f\"{'o'}s\"",
        "first[::-1]",
        "base64.b64decode('b3M=').decode()",
    ];
    for name in NAMES {
        for (profile, code) in [
            (Profile::Basic, "__import__(NAME)"),
            (Profile::Basic, "import importlib\nimportlib.import_module(NAME)"),
            (Profile::Basic, "getattr(uuid, NAME)"),
            (Profile::Basic, "uuid.__dict__[NAME]"),
            (Profile::Basic, "uuid.__dict__.get(NAME)"),
            (Profile::Basic, "vars(uuid)[NAME]"),
            (Profile::Basic, "operator.attrgetter(NAME)(uuid)"),
            (Profile::Basic, "operator.itemgetter(NAME)(vars(uuid))"),
            (Profile::Strict, "getattr(uuid, NAME)"),
            (Profile::Strict, "open(NAME)"),
            (Profile::Strict, "(NAME).format(1)"),
            (Profile::Strict, "def f(x: NAME): pass"),
            (Profile::Strict, "T = NAME\ndef f(x: T): pass"),
        ] {
            let code = format!(
                "import base64, operator, uuid\nfirst = 'so'\n{}",
                code.replace("NAME", name)
            );
            assert!(
                !errors(&code, profile).is_empty(),
                "{code}\n{:#?}",
                told(&code, profile)
            );
        }
    }
    for code in [
        "getattr(math, name)",
        "getattr(math, names[0])",
        "open(f'{name}.txt')",
        "(prefix + '{}').format(1)",
        "T = list['Node']\ndef f(x: T, y: dict['a', 'b']): pass",
        "vars(math)[name]",
    ] {
        let code = format!(
            "import math\ndef g(name, names, prefix):\n    return {}",
            code.replace('\n', "\n    ")
        );
        let code = code.replace("return T", "T").replace("return vars", "x = vars");
        let errors: Vec<String> = errors(&code, Profile::Basic);
        assert!(errors.is_empty(), "{code}\n{errors:#?}");
    }
}
