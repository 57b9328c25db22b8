//! Each rule by snippets: what is found, where, and what is said of it.

use super::*;

/// Exactly these findings, as `line rule severity`, under the profile.
fn check_under(profile: Profile, code: &str, expect: &[&str]) {
    let told: Vec<String> = told(code, profile)
        .iter()
        // Snippets use names that they do not define.
        .filter(|line| !line.contains("python.undefined_name"))
        .map(|line| line.split(':').next().unwrap().to_owned())
        .collect();
    assert_eq!(told, expect, "{code}\n{:#?}", super::told(code, profile));
}

fn check(code: &str, expect: &[&str]) {
    check_under(Profile::Unrestricted, code, expect);
}

#[test]
fn text_that_is_not_python_is_told_with_its_place() {
    check("x = (1,\ny = 2\n", &["1 python.syntax error"]);
    check("def f(:\n    pass\n", &["1 python.syntax error"]);
    check("return 1", &["1 python.syntax error"]);
    check("break", &["1 python.syntax error"]);
    check(
        "for x in y:\n    pass\nelse:\n    continue\n",
        &["4 python.syntax error"],
    );
    check("yield 1", &["1 python.syntax error"]);
    check("nonlocal x", &["1 python.syntax error"]);
    check("def f():\n    nonlocal x\n", &["2 python.syntax error"]);
    check("def f(a, a): pass", &["1 python.syntax error"]);
    check("lambda a, a: 1", &["1 python.syntax error"]);
    check("def f():\n    x = 1\n    global x\n", &["2 python.syntax error"]);
    check("def f(x):\n    global x\n", &["2 python.syntax error"]);
    check("f(a=1, a=2)", &["1 python.syntax error"]);
    check("def f():\n    await x", &["2 python.syntax error"]);
    check("from __future__ import nothing", &["1 python.syntax error"]);
    check(
        "x = 1\nfrom __future__ import annotations",
        &["2 python.syntax error"],
    );
    check("a, *b, *c = d", &["1 python.syntax error"]);
    check("[x := 1 for x in y]", &["1 python.syntax error"]);
    check(
        "match a:\n    case b: pass\n    case c: pass",
        &["2 python.syntax error"],
    );
    check("__debug__ = 1", &["1 python.syntax error"]);
    check(
        "def f():\n    async def g():\n        return [await x async for x in y]",
        &[],
    );
    check("async def f():\n    return (await x for x in y)", &[]);
    check(
        "class A:\n    def f(self):\n        x = 1\n        def g():\n            nonlocal x",
        &[],
    );
    check(&"(".repeat(300), &["1 python.nesting error"]);
}

#[test]
fn dynamic_execution_is_found_under_any_name() {
    const RULE: &str = "1 python.dynamic_execution warning";
    check("eval('1')", &[RULE]);
    check("exec(x)", &[RULE]);
    check("compile(a, b, 'exec')", &[RULE]);
    check("map(eval, x)", &[RULE]);
    check("e = eval\ne('1')", &[RULE, "2 python.dynamic_execution warning"]);
    check(
        "import builtins as b\nb.eval('1')",
        &["2 python.dynamic_execution warning"],
    );
    check(
        "getattr(__builtins__, 'eval')('1')",
        &[RULE, "1 python.reflection warning"],
    );
    check("def eval(x): return x\neval('1')", &[]);
    check("x.eval('1'); model.eval(); 'eval'", &[]);
    check("import re\nre.compile('x')", &[]);
    check(
        "import code\ncode.interact()",
        &["2 python.dynamic_execution warning"],
    );
    check("breakpoint()", &[RULE]);
    check("import ast\nast.literal_eval('1')", &[]);
}

#[test]
fn packed_code_is_told_apart() {
    check(
        "import base64\nexec(base64.b64decode('eA=='))",
        &[
            "2 python.dynamic_execution warning",
            "2 python.obfuscated_code warning",
        ],
    );
    check(
        "import zlib, base64\nx = zlib.decompress(base64.b64decode(y))\nexec(compile(x, 'a', 'exec'))",
        &[
            "3 python.dynamic_execution warning",
            "3 python.dynamic_execution warning",
            "3 python.obfuscated_code warning",
            "3 python.obfuscated_code warning",
        ],
    );
    check(
        "eval('1' + '+1')",
        &[
            "1 python.dynamic_execution warning",
            "1 python.obfuscated_code warning",
        ],
    );
}

#[test]
fn what_is_found_is_named_as_it_is_written_and_as_what_it_is() {
    let check = |code: &str, expect: &str| {
        let told = told(code, Profile::Unrestricted);
        assert!(told.iter().any(|line| line.contains(expect)), "{told:#?}");
    };
    check(
        "import os\nos.system('x')",
        "2 python.process warning: `os.system` starts a process",
    );
    check(
        "from os import system as s\ns('x')",
        "`s` is `os.system`, which starts a process",
    );
    check(
        "import os\ngetattr(os, 'system')('x')",
        "`getattr(os, 'system')` is `os.system`, which",
    );
    check(
        "import os\nos.__dict__['popen']('x')",
        "`os.__dict__['popen']` is `os.popen`, which",
    );
    check(
        "import uuid\nuuid.os.system('x')",
        "`uuid.os.system` is `os.system`, which",
    );
    check("eval('x')", "`eval` runs text as code");
    check(
        "from math import *\nfrom os import *",
        "everything of `os` is imported, and `os.system` starts a process",
    );
}

#[test]
fn processes_and_shells_are_found() {
    check("import os\nos.popen('x').read()", &["2 python.process warning"]);
    check(
        "import os\nos.execv('a', [])\nos.fork()",
        &["2 python.process warning", "3 python.process warning"],
    );
    check(
        "import subprocess as sp\nsp.run(['a'])",
        &["2 python.process warning"],
    );
    check(
        "import subprocess\nsubprocess.run('a', shell=True)",
        &["2 python.process warning", "2 python.shell_true warning"],
    );
    check(
        "import subprocess\nsubprocess.run(['a'], shell=False)",
        &["2 python.process warning"],
    );
    check("import subprocess\nsubprocess.PIPE", &[]);
    check(
        "import os\nos.getcwd()\nos.environ['HOME']\nos.path.join('a')",
        &[],
    );
    check(
        "import multiprocessing as m\nm.Pool(2)",
        &["2 python.multiprocessing info"],
    );
    check_under(
        Profile::Strict,
        "x.system('a'); x.popen(); x.run(shell=True)",
        &[],
    );
}

#[test]
fn sockets_and_requests_are_told_and_raw_sockets_warned_of() {
    check("import socket\nsocket.socket()", &["2 python.socket info"]);
    check(
        "import socket\nsocket.AF_PACKET",
        &["2 python.raw_socket warning"],
    );
    check(
        "from socket import *\nSOCK_RAW",
        &["1 python.raw_socket warning", "2 python.raw_socket warning"],
    );
    check(
        "import requests as r\nr.get('https://example.com')",
        &["2 python.network info"],
    );
    check("import socket\nsocket.gethostname()", &[]);
}

#[test]
fn native_code_and_unsafe_loads_are_found() {
    check(
        "import ctypes\nctypes.CDLL(None)",
        &["2 python.native_code warning"],
    );
    check(
        "from mmap import mmap\nmmap(-1, 1)",
        &["2 python.native_code warning"],
    );
    check(
        "import pickle\npickle.loads(x)\npickle.dumps(x)",
        &["2 python.unsafe_load warning"],
    );
    check(
        "import marshal\nmarshal.loads(x)",
        &["2 python.unsafe_load warning"],
    );
    check("import yaml\nyaml.load(x)", &["2 python.unsafe_load warning"]);
    check(
        "import yaml\nyaml.load(x, Loader=yaml.SafeLoader)\nyaml.safe_load(x)",
        &[],
    );
    check(
        "import numpy as np\nnp.load('x')\nnp.load('x', allow_pickle=True)",
        &["3 python.unsafe_load warning"],
    );
    check(
        "import torch\ntorch.load('x')\ntorch.load('x', weights_only=True)",
        &["2 python.unsafe_load warning"],
    );
    check("import json\njson.loads(x)", &[]);
}

#[test]
fn reflection_is_found_by_attribute_by_name_and_by_pattern() {
    check("().__class__", &["1 python.reflection info"]);
    check("x.__subclasses__()", &["1 python.reflection warning"]);
    check("f.__globals__", &["1 python.reflection warning"]);
    check(
        "match x:\n    case object(__globals__=g): pass",
        &["2 python.reflection warning"],
    );
    check(
        "from random import __builtins__",
        &["1 python.reflection warning"],
    );
    check("getattr(x, '__globals__')", &["1 python.reflection warning"]);
    check(
        "import operator as o\no.attrgetter('a.__globals__')(x)",
        &["2 python.reflection warning"],
    );
    check("A.__getitem__ = f", &["1 python.reflection info"]);
    check("__builtins__", &["1 python.reflection warning"]);
    check("globals()", &["1 python.reflection info"]);
    let strict = |code: &str, expect: &[&str]| check_under(Profile::Strict, code, expect);
    strict("x.__class__", &["1 python.reflection error"]);
    strict("x.__class__.__name__; type(x).__name__", &[]);
    strict(
        "x.__class__.__base__",
        &["1 python.reflection error", "1 python.reflection error"],
    );
    strict(
        "super().__init__(); super().__init_subclass__(); object.__new__(c)",
        &[],
    );
    strict("f = getattr\n", &["1 python.reflection error"]);
    strict("getattr(x, 'name'); setattr(x, 'a', 1); hasattr(x, 'b')", &[]);
    strict("getattr(x, n)", &["1 python.reflection error"]);
    strict("getattr(x, '__class__')", &["1 python.reflection error"]);
    strict("getattr(x, '__cl' + 'ass__')", &["1 python.reflection error"]);
    strict("y = '__globals__'", &["1 python.reflection error"]);
    strict("y = '__init__', '__main__'", &[]);
    strict("\"\"\"About __class__.\"\"\"\n'__globals__'\n# __class__", &[]);
    strict(
        "class A:\n    __slots__ = ()\n    __hash__ = None\n    def __getattr__(self, n): return n",
        &[],
    );
    strict("f.__name__ = 'g'; f.__doc__ = ''", &[]);
}

#[test]
fn frames_are_found() {
    check("g.gi_frame.f_back.f_globals", &["1 python.frames warning"; 3]);
    check("import sys\nsys._getframe()", &["2 python.frames warning"]);
    check(
        "import gc\ngc.get_objects()\ngc.collect()",
        &["2 python.frames warning"],
    );
    check(
        "match g:\n    case object(gi_frame=f): pass",
        &["2 python.frames warning"],
    );
}

#[test]
fn format_strings_that_read_attributes_with_underscores_are_found() {
    const RULE: &[&str] = &["1 python.format_attribute warning"];
    check("'{0.__class__}'.format(1)", RULE);
    check("x = '{0.__class__}'", RULE);
    check(
        "x = '{0.__class__}'\nx.format(1)",
        &[RULE[0], "2 python.format_attribute warning"],
    );
    check("str.format('{0.__class__}', 1)", RULE);
    check("'{x.__class__}'.format_map(y)", RULE);
    check("'{0.name} {1[key]} {2:>{3}}'.format(a, b, c, d)", &[]);
    check(
        "import string\nstring.Formatter()",
        &["2 python.format_attribute info"],
    );
    check_under(
        Profile::Strict,
        "('{0.' + '__class__}').format(1)",
        &["1 python.format_attribute error"],
    );
    check_under(
        Profile::Strict,
        "def f(t): return t.format(1)",
        &["1 python.format_attribute warning"],
    );
}

#[test]
fn files_and_places_of_secrets_are_told() {
    check("open('a.txt')", &["1 python.file_access info"]);
    check("import os\nos.remove('a')", &["2 python.file_deletion info"]);
    check(
        "import shutil\nshutil.rmtree('a')",
        &["2 python.file_deletion warning"],
    );
    check(
        "from pathlib import Path\nPath('a').unlink()",
        &["2 python.file_deletion info"],
    );
    check("read('~/.ssh/id_rsa')", &["1 python.credential_path warning"]);
    check("x = home / '.aws' / 'credentials'", &[]);
    check(
        "x = home / '.ssh' / 'config'",
        &["1 python.credential_path warning"],
    );
    check("f(f'{home}/.netrc')", &["1 python.credential_path warning"]);
    check("x = '.env'", &[]);
    let strict = |code: &str, expect: &[&str]| check_under(Profile::Strict, code, expect);
    strict(
        "open('a/b.txt'); open('/workspace/a'); open('/tmp/a')",
        &["1 python.file_access info"; 3],
    );
    strict("open('/etc/hosts')", &["1 python.file_access error"]);
    strict("open('a/../../b')", &["1 python.file_access error"]);
    strict("open('/workspacex')", &["1 python.file_access error"]);
    strict("open(name)", &[]);
    strict("x = '/etc'\nopen(x + '/hosts')", &["2 python.file_access error"]);
}

#[test]
fn names_that_look_like_others_are_found() {
    check("𝓮𝓿𝓪𝓵 = 1", &["1 python.obfuscated_name warning"]);
    check("import os\nos.𝘀𝘆𝘀", &["2 python.obfuscated_name warning"]);
    check("größe = naïve = 数 = 1", &[]);
    check(
        "lIlIIlI1 = 1\nlIlIIlI1 += 1",
        &["1 python.obfuscated_name warning"],
    );
}

#[test]
fn hooks_and_changes_of_builtins_are_found() {
    check(
        "import sys\nsys.settrace(f)",
        &["2 python.interpreter_hook warning"],
    );
    check(
        "import atexit\natexit.register(f)",
        &["2 python.interpreter_hook info"],
    );
    check(
        "import signal as s\ns.signal(s.SIGINT, f)",
        &["2 python.interpreter_hook info"],
    );
    check(
        "import builtins\nbuiltins.print = f",
        &["2 python.builtins_write warning"],
    );
    check(
        "__builtins__['print'] = f",
        &["1 python.reflection warning", "1 python.builtins_write warning"],
    );
    check("# coding: utf-7\n", &["1 python.encoding warning"]);
    check_under(Profile::Basic, "# coding: utf-7\n", &["1 python.encoding error"]);
}

const IMPORT: &str = "profile.import error";
const ATTRIBUTE: &str = "profile.module_attribute error";

/// Exactly these errors.
fn check_errors(profile: Profile, code: &str, expect: &[&str]) {
    let errors: Vec<String> = errors(code, profile)
        .iter()
        .map(|line| {
            line.split(':')
                .next()
                .unwrap()
                .split_once(' ')
                .unwrap()
                .1
                .to_owned()
        })
        .collect();
    assert_eq!(errors, expect, "{code}\n{:#?}", told(code, profile));
}

#[test]
fn modules_that_a_profile_does_not_allow_are_refused_whichever_way_they_are_reached() {
    let basic = |code: &str, expect: &[&str]| check_errors(Profile::Basic, code, expect);
    basic(
        "import json, math, html.parser, collections.abc\nimport xml.etree.ElementTree as e",
        &[],
    );
    basic(
        "from __future__ import annotations\nfrom xml.etree import ElementTree",
        &[],
    );
    basic("import os, sys", &[IMPORT, IMPORT]);
    basic("from os import path", &[IMPORT]);
    basic("import xml", &[IMPORT]);
    basic("from xml import etree", &[IMPORT]);
    basic("from .a import b", &[IMPORT]);
    basic("__import__('os').getcwd()", &[IMPORT]);
    basic("__import__('json').loads('1')", &[]);
    basic("import importlib\nimportlib.import_module('os')", &[IMPORT]);
    basic("import uuid\nuuid.os.getcwd()", &[ATTRIBUTE]);
    basic("import uuid as u\nx = u\nx.os", &[ATTRIBUTE]);
    basic("from uuid import os", &[ATTRIBUTE]);
    basic("import json\njson.decoder.scanner.sys", &[ATTRIBUTE]);
    basic("import json\ngetattr(json, 'codecs')", &[ATTRIBUTE]);
    basic("import uuid\nvars(uuid)['o' + 's']", &[ATTRIBUTE]);
    basic(
        "import operator, uuid\noperator.attrgetter('os')(uuid)",
        &[ATTRIBUTE],
    );
    basic(
        "import xml.etree.ElementTree\nxml.etree.ElementTree.fromstring('a')",
        &[],
    );
    basic("import xml.etree.ElementTree\nx = xml.etree", &[ATTRIBUTE]);
    basic(
        "import urllib.parse\nurllib.parse.quote('a')\nurllib.request",
        &[ATTRIBUTE],
    );
    basic("x.os, self.sys, a['os']", &[]);
    check_errors(Profile::Unrestricted, "import os, uuid\nuuid.os", &[]);
}

#[test]
fn a_parent_may_stand_on_the_way_to_a_module_and_nowhere_else() {
    let filesystem = |code: &str, expect: &[&str]| check_errors(Profile::Filesystem, code, expect);
    filesystem(
        "import os.path\nos.path.join('a', 'b')\nfrom os import path\nimport os.path as p\np.join",
        &[],
    );
    filesystem("import os.path\nos.system('x')", &[ATTRIBUTE]);
    filesystem("import os.path\nx = os", &[ATTRIBUTE]);
    filesystem("import os.path\nf(os)", &[ATTRIBUTE]);
    filesystem("import os.path as p\np.os", &[ATTRIBUTE]);
    filesystem("import os\nos.path.join", &[IMPORT]);
    filesystem("from os import system, path", &[IMPORT]);
    let data = |code: &str, expect: &[&str]| check_errors(Profile::DataScience, code, expect);
    data(
        "import numpy as np\nnp.array([1]); np.select; np.trace; np.random.rand()",
        &[],
    );
    data("import numpy as np\nnp.os.system('x')", &[ATTRIBUTE]);
    data(
        "import pandas as pd\npd.io.json.loads; pd.io.common.os",
        &[ATTRIBUTE],
    );
}

#[test]
fn modules_of_the_caller_and_of_the_request_are_allowed() {
    let mut asked = asked(Profile::Basic);
    asked.local_modules.insert("mine".to_owned());
    asked
        .rules
        .imports
        .as_mut()
        .unwrap()
        .insert("os".parse().unwrap());
    let errors = |code: &str| {
        let found = super::super::check(code, &asked).findings;
        found
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .count()
    };
    assert_eq!(
        errors("import mine.part\nfrom mine import x\nfrom . import mine\nimport os, uuid\nuuid.os.getcwd()"),
        0
    );
    assert_eq!(errors("import yours"), 1);
}

#[test]
fn a_refusal_names_the_profile_that_has_the_module() {
    let hint = |code: &str| found(code, Profile::Basic).remove(0).hint.unwrap();
    assert!(hint("import requests").contains("`network`"));
    assert!(hint("import requests").contains("`allowed_imports: [\"requests\"]`"));
    assert!(hint("import numpy.linalg").contains("`data_science`"));
    assert!(hint("import subprocess").starts_with("No restricting profile"));
}

#[test]
fn every_rule_is_described() {
    let mut ids: Vec<&str> = crate::registry::python::RULES
        .iter()
        .map(|rule| rule.id)
        .collect();
    for rule in crate::registry::python::RULES {
        assert!(
            !rule.title.is_empty() && !rule.hint.is_empty() && rule.hint.ends_with('.'),
            "{}",
            rule.id
        );
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), crate::registry::python::RULES.len());
}
