//! Well-known names and the imports that they need.

use super::*;

fn attributes(chain: &'static str) -> Usage<'static> {
    Usage::Attributes(chain.split('.').collect())
}

fn check(name: &str, uses: &[Usage<'_>], expected: Option<&str>) {
    let found = statement(name, uses, &BTreeMap::new());
    assert_eq!(found.as_deref(), expected, "{name} as {uses:?}");
}

#[test]
fn import_fits_all_uses_of_a_name() {
    check("json", &[attributes("dumps")], Some("import json"));
    check("json", &[attributes("dumps"), Usage::Bare], Some("import json"));
    check("json", &[Usage::Called], None);
    check("json", &[Usage::Bare], None);
    check("np", &[attributes("zeros")], Some("import numpy as np"));
    check("Path", &[Usage::Called], Some("from pathlib import Path"));
    check("Optional", &[Usage::Bare], Some("from typing import Optional"));
    check(
        "ET",
        &[attributes("parse")],
        Some("import xml.etree.ElementTree as ET"),
    );
    check(
        "plt",
        &[attributes("plot")],
        Some("import matplotlib.pyplot as plt"),
    );
    check("partial", &[Usage::Called], Some("from functools import partial"));
    check("partial", &[Usage::Bare], None);
    check("nothing_known", &[Usage::Called], None);
}

#[test]
fn uses_distinguish_class_datetime_from_the_module() {
    check(
        "datetime",
        &[attributes("now")],
        Some("from datetime import datetime"),
    );
    check(
        "datetime",
        &[Usage::Called],
        Some("from datetime import datetime"),
    );
    check(
        "datetime",
        &[attributes("strptime"), Usage::Bare],
        Some("from datetime import datetime"),
    );
    check("datetime", &[attributes("datetime.now")], Some("import datetime"));
    check("datetime", &[attributes("timedelta")], Some("import datetime"));
    check("datetime", &[attributes("date.today")], Some("import datetime"));
    check("datetime", &[attributes("now"), attributes("timedelta")], None);
    check("datetime", &[attributes("somewhere")], None);
}

#[test]
fn alias_dt_is_the_datetime_class_or_module() {
    let class = Some("from datetime import datetime as dt");
    let module = Some("import datetime as dt");
    check("dt", &[attributes("now")], class);
    check("dt", &[attributes("strptime"), Usage::Bare], class);
    check("dt", &[attributes("datetime.now")], module);
    check("dt", &[attributes("timedelta"), attributes("date.today")], module);
    check("dt", &[attributes("now"), attributes("timedelta")], None);
    check("dt", &[attributes("somewhere")], None);
    check("dt", &[attributes("now"), attributes("somewhere")], None);
    check("dt", &[Usage::Bare], None);
    check("dt", &[Usage::Called], None);
}

#[test]
fn ordinary_words_are_modules_only_with_module_attributes() {
    check("queue", &[attributes("Queue")], Some("import queue"));
    check("queue", &[attributes("append")], None);
    check("string", &[attributes("ascii_letters")], Some("import string"));
    check("string", &[attributes("upper")], None);
    check("copy", &[attributes("deepcopy")], Some("import copy"));
    check("copy", &[Usage::Called], Some("from copy import copy"));
    check("copy", &[Usage::Called, attributes("copy")], None);
    check("glob", &[Usage::Called], Some("from glob import glob"));
    check("time", &[attributes("sleep")], Some("import time"));
    check("time", &[Usage::Called], None);
}

#[test]
fn parts_of_packages_are_imported_in_one_statement() {
    check(
        "urllib",
        &[attributes("parse.quote")],
        Some("import urllib.parse"),
    );
    let both = [attributes("request.urlopen"), attributes("parse.quote")];
    check("urllib", &both, Some("import urllib.parse, urllib.request"));
    check("urllib", &[attributes("urlopen")], None);
    check(
        "xml",
        &[attributes("etree.ElementTree.parse")],
        Some("import xml.etree.ElementTree"),
    );
    check("xml", &[attributes("etree")], None);
    check("logging", &[attributes("info")], Some("import logging"));
    check(
        "logging",
        &[attributes("info"), attributes("handlers.X")],
        Some("import logging.handlers"),
    );
    check(
        "concurrent",
        &[attributes("futures.wait")],
        Some("import concurrent.futures"),
    );
    check(
        "collections",
        &[attributes("abc.Mapping")],
        Some("import collections.abc"),
    );
    check("collections", &[attributes("append")], None);
}

#[test]
fn every_entry_is_an_import_that_binds_its_name() {
    for (name, candidates) in TABLE.iter() {
        for candidate in candidates {
            let uses = match candidate.fits {
                Fits::Attributes(known) => vec![Usage::Attributes(known.to_vec())],
                Fits::Package(_, package) => {
                    let first = package.plain.as_ref().is_some_and(Vec::is_empty);
                    let part = if first { package.parts[0] } else { "x" };
                    let known = package.plain.as_deref().and_then(|known| known.first().copied());
                    vec![Usage::Attributes(known.unwrap_or(part).split('.').collect())]
                }
                Fits::Module => vec![attributes("x")],
                Fits::All | Fits::Called | Fits::Datetime => vec![Usage::Called],
            };
            let statement = candidate
                .statement(&uses)
                .unwrap_or_else(|| panic!("{name}: {}", candidate.statement));
            assert_eq!(check_known_import(name, &statement), Ok(()), "{statement}");
        }
        // At most one candidate fits a single use.
        for uses in [vec![Usage::Called], vec![Usage::Bare], vec![attributes("x")]] {
            let fitting = candidates
                .iter()
                .filter(|candidate| candidate.statement(&uses).is_some())
                .count();
            assert!(fitting <= 1, "{name} as {uses:?}");
        }
    }
    eprintln!("well-known names: {}", TABLE.len());
    assert!(TABLE.len() > 400, "{}", TABLE.len());
}

#[test]
fn operators_names_take_precedence() {
    let own = BTreeMap::from([
        ("np".to_owned(), "import autograd.numpy as np".to_owned()),
        ("bad".to_owned(), "import os; os.system('x')".to_owned()),
    ]);
    assert_eq!(
        statement("np", &[attributes("zeros")], &own).as_deref(),
        Some("import autograd.numpy as np")
    );
    assert_eq!(statement("bad", &[Usage::Called], &own), None);
}

#[test]
fn operators_import_is_a_single_import_of_that_name() {
    for (name, statement) in [
        ("np", "import numpy as np"),
        ("os", "import os.path"),
        ("a", "from b.c import a"),
        ("a", " from b import c as a "),
        ("naïve", "import naïve"),
    ] {
        assert_eq!(check_known_import(name, statement), Ok(()), "{statement}");
    }
    for (name, statement) in [
        ("np", "import numpy"),
        ("np", "import numpy as np, os"),
        ("np", "import numpy as np; import os"),
        ("np", "import numpy as np\nimport os"),
        ("np", "import numpy as np # x"),
        ("np", "import numpy as np;"),
        ("np", "np = 1"),
        ("np", ""),
        ("np", "from numpy import *"),
        ("*", "from numpy import *"),
        ("path", "import os.path"),
        ("a", "from . import a"),
        ("annotations", "from __future__ import annotations"),
        ("a", "from b import a, c"),
        ("a", "from b import (\na)"),
        ("a", "import \\\na"),
        ("a", "if x: import a"),
        ("np", "import numpy as np as np"),
    ] {
        assert!(check_known_import(name, statement).is_err(), "{statement}");
    }
}

#[test]
fn set_of_modules_allows_its_modules_and_their_submodules() {
    let allowed: BTreeSet<ModuleName> = ["json", "xml.etree.ElementTree", "os.path", "urllib.parse"]
        .iter()
        .map(|name| name.parse().unwrap())
        .collect();
    for statement in [
        "import json",
        "import json.decoder",
        "from json import dumps",
        "import os.path",
        "from os import path",
        "import xml.etree.ElementTree as ET",
        "from xml.etree import ElementTree",
    ] {
        assert!(is_allowed(statement, &allowed), "{statement}");
    }
    for statement in [
        "import os",
        "from os import system",
        "import xml",
        "import jsonx",
        "import urllib.parse, urllib.request",
        "x",
    ] {
        assert!(!is_allowed(statement, &allowed), "{statement}");
    }
}
