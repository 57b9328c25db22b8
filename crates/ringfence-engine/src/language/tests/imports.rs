//! The import hook of a profile: programs that would get around a weaker hook, and ordinary programs that must not
//! notice it. Without any other check, and outside of any sandbox.

use super::super::{Blocked, Checks, Go, PYTHON_DRIVER, PYTHON_ISOLATED, by_name, literal};
use super::*;
use ringfence_check::profile::{self, DATA_SCIENCE, FILESYSTEM, NETWORK};

/// The start of the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// It is started for the program.
    Cold,
    /// It has imported modules before, and then gets the program.
    Forked,
}

/// Files beside the program.
const FILES: [(&str, &str); 5] = [
    (
        "helper.py",
        "import json\nn = 0\ndef count():\n    global n\n    n += 1\n",
    ),
    ("reaching.py", "import os\ndef pid(): return os.getpid()\n"),
    ("package/__init__.py", ""),
    ("package/part.py", "import os\n"),
    (
        "package/forged.py",
        "import json\n__spec__, __file__ = json.__spec__, json.__file__\nimport os\n",
    ),
];

fn checks(profile: &'static str, more: &[&str]) -> Checks {
    let imports = profile::BASIC.iter().chain(more);
    Checks {
        imports: Some(imports.map(|name| (*name).to_owned()).collect()),
        patches: Vec::new(),
        profile,
    }
}

/// Returns a program like a template's fork: modules and their views are there, and the message is on descriptor 4.
fn forked_program() -> String {
    let imports = literal(include_str!("../python_imports.py"));
    let modules = profile::BASIC.join(" ");
    format!(
        "{}{PYTHON_ISOLATED}import sys\nguard = {{'__builtins__': _ringfence.__globals__['__builtins__'], 'sys': sys}}\n\
         exec(compile({imports}, '<ringfence>', 'exec'), guard)\n\
         for name in '{modules}'.split(): __import__(name)\n\
         guard['prepare']('{modules}'.split())\nimport json\n_ringfence(sys, lambda trial, json=json, open=open: json.load(open(4)), None, guard)\n",
        *PYTHON_DRIVER
    )
}

struct Ran {
    report: ProgramReport,
    stdout: String,
    stderr: String,
    status: Option<i32>,
}

fn run_checked(python: &str, form: Form, code: &str, checks: Option<&Checks>) -> Ran {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("ringfence-imports-{}-{number}", std::process::id()));
    for (name, text) in FILES {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let script = directory.join("main.py").display().to_string();
    fs::write(&script, code).unwrap();
    let base_environment = [
        ("RINGFENCE_OUTPUT_DIR".to_owned(), directory.display().to_string()),
        ("HOME".to_owned(), directory.display().to_string()),
        ("PATH".to_owned(), std::env::var("PATH").unwrap()),
        ("MPLBACKEND".to_owned(), "Agg".to_owned()),
    ];
    let cold = Prepared::script("main.py".to_owned(), String::new()).with(checks.cloned());
    let Launch { mut argv, env, .. } = cold.launch(Language::Python, python.as_ref(), &directory, &[]);
    let environment = [&base_environment[..], &env].concat();
    let mut message = Vec::new();
    if form == Form::Forked {
        argv = vec![python.to_owned(), "-c".to_owned(), forked_program()];
        message = super::super::encode_go(&Go {
            script: &script,
            source_maps: false,
            module: None,
            args: Vec::new(),
            session: false,
            checks,
            workspace: Some(&directory),
            env: by_name(&environment),
        });
    }
    fs::write(directory.join("go"), message).unwrap();
    let output = Command::new("bash")
        .args(["-c", "exec 3>report 4<go; exec \"$@\"", "bash"])
        .args(argv)
        .env_clear()
        .envs(environment)
        .current_dir(&directory)
        .output()
        .unwrap();
    let report = read_report(&fs::read(directory.join("report")).unwrap());
    // The directory differs from run to run.
    let plain =
        |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&directory.display().to_string(), "DIRECTORY");
    let ran = Ran {
        report,
        stdout: plain(&output.stdout),
        stderr: plain(&output.stderr),
        status: output.status.code(),
    };
    fs::remove_dir_all(&directory).unwrap();
    ran
}

const PYTHON: &str = "/usr/bin/python3";

fn programs(text: &str) -> Vec<&str> {
    text.trim_end().split("\n---\n").collect()
}

#[test]
fn profile_blocks_known_import_evasions() {
    let checks = checks("basic", &[]);
    let programs = programs(include_str!("evasions.txt"));
    assert_eq!(programs.len(), 84);
    let mut told = [0, 0];
    for code in programs {
        // The control: without the hook the program gets the module.
        let free = run_checked(PYTHON, Form::Cold, code, None);
        assert!(
            free.stdout.contains("ESCAPED"),
            "{code}: {}{}",
            free.stdout,
            free.stderr
        );
        assert_eq!(free.report.security_events, []);
        for (at, form) in [Form::Cold, Form::Forked].into_iter().enumerate() {
            let held = run_checked(PYTHON, form, code, Some(&checks));
            assert!(
                !held.stdout.contains("ESCAPED"),
                "{form:?} {code}: {}",
                held.stdout
            );
            told[at] += usize::from(!held.report.security_events.is_empty());
        }
    }
    // The others import nothing: they look up what is not there.
    assert_eq!(told, [68, 68]);
}

#[test]
fn forked_child_reports_what_it_was_refused_and_nothing_else() {
    let checks = checks("unrestricted", &["os"]);
    let code = "import os\nif os.fork():\n    os.wait()\nelse:\n    import socket\nresult = 7";
    for form in [Form::Cold, Form::Forked] {
        let report = run_checked(PYTHON, form, code, Some(&checks)).report;
        assert_eq!(report.security_events[0].module, "socket", "{report:?}");
        assert_eq!((report.error, report.result), (None, Some(serde_json::json!(7))));
    }
}

/// Runs programs with and without the hook, and compares the results. Returns the number of programs.
fn run_ordinary(python: &str, forms: &[Form], text: &str, checks: &Checks) -> usize {
    let addresses = |text: &str| -> String {
        let parts = text.split("0x").enumerate();
        let cut = parts.map(|(at, part)| match at {
            0 => part,
            _ => part.trim_start_matches(|c: char| c.is_ascii_hexdigit()),
        });
        cut.collect()
    };
    let programs = programs(text);
    // `from numpy import *` binds them in any order.
    let sorted = |mut names: Vec<String>| {
        names.sort_unstable();
        names
    };
    for code in &programs {
        let free = run_checked(python, Form::Cold, code, None);
        let variables = sorted(free.report.variables);
        for form in forms {
            let held = run_checked(python, *form, code, Some(checks));
            assert_eq!(held.report.security_events, [], "{form:?} {code}");
            assert_eq!(
                (
                    addresses(&held.stdout),
                    held.status,
                    sorted(held.report.variables)
                ),
                (addresses(&free.stdout), Some(0), variables.clone()),
                "{form:?} {code}: {}",
                held.stderr
            );
        }
    }
    programs.len()
}

#[test]
fn import_hook_is_invisible_to_ordinary_programs() {
    let both = [Form::Cold, Form::Forked];
    let basic = include_str!("ordinary_basic.txt");
    assert_eq!(run_ordinary(PYTHON, &both, basic, &checks("basic", &[])), 30);
    let filesystem = include_str!("ordinary_filesystem.txt");
    let profile = checks("filesystem", FILESYSTEM);
    assert_eq!(run_ordinary(PYTHON, &both, filesystem, &profile), 1);
    let network = include_str!("ordinary_network.txt");
    assert_eq!(
        run_ordinary(PYTHON, &both, network, &checks("network", NETWORK)),
        2
    );
}

#[test]
fn import_hook_is_invisible_to_data_programs() {
    // `cargo xtask ci` makes this environment.
    let python = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/data-venv/bin/python3");
    let python = python.display().to_string();
    let has = |module: &str| {
        let imported = Command::new(&python)
            .args(["-c", &format!("import {module}")])
            .output();
        imported.is_ok_and(|output| output.status.success())
    };
    if !has("numpy, pandas, matplotlib") {
        let required = std::env::var("RINGFENCE_REQUIRE").unwrap_or_default();
        eprintln!("skipped: {python} has no numpy, pandas and matplotlib");
        assert!(!required.contains("data"), "RINGFENCE_REQUIRE asks for data");
        return;
    }
    let profile = checks("data_science", DATA_SCIENCE);
    for code in programs(include_str!("ordinary_data_science.txt")) {
        let missing = DATA_SCIENCE
            .iter()
            .find(|name| code.contains(&format!("import {name}")) && !has(name));
        match missing {
            Some(name) => eprintln!("skipped: {python} has no {name}"),
            None => assert_eq!(run_ordinary(&python, &[Form::Cold], code, &profile), 1),
        }
    }
}

#[test]
fn caught_refusal_is_reported_with_its_line() {
    let blocked = |module: &str, line| Blocked {
        module: module.to_owned(),
        line,
    };
    let check = |form, code: &str, expect: &[Blocked]| {
        let ran = run_checked(PYTHON, form, code, Some(&checks("basic", &[])));
        assert_eq!(ran.report.security_events, expect, "{code}: {}", ran.stderr);
        assert_eq!(ran.status, Some(0), "{code}: {}", ran.stderr);
    };
    for form in [Form::Cold, Form::Forked] {
        check(
            form,
            "try:\n    import os\nexcept ImportError: pass",
            &[blocked("os", Some(2))],
        );
        check(
            form,
            "import uuid\nhasattr(uuid, 'os')",
            &[blocked("os", Some(2))],
        );
        // Reported once for each line.
        check(
            form,
            "for _ in range(9):\n    try: import socket.x\n    except ImportError: pass",
            &[blocked("socket.x", Some(2))],
        );
        check(form, "import json", &[]);
        check(
            form,
            "for n in range(500):\n    try: __import__('m%d' % n)\n    except ImportError: pass",
            &(0..100)
                .map(|n| blocked(&format!("m{n}"), Some(2)))
                .collect::<Vec<_>>(),
        );
        // Neither its text nor its length can carry more data.
        check(
            form,
            "try: __import__('a\"\\n\\ud800')\nexcept ImportError: pass",
            &[blocked("a???", Some(1))],
        );
        // In another file of the caller, imported by this line.
        check(
            form,
            "\ntry: import reaching\nexcept ImportError: pass",
            &[blocked("os", Some(2))],
        );
    }
}

#[test]
fn refused_import_is_an_error_of_the_program() {
    for form in [Form::Cold, Form::Forked] {
        for code in ["import json\nimport os\n", "import json\nfrom uuid import os\n"] {
            let ran = run_checked(PYTHON, form, code, Some(&checks("basic", &[])));
            let error = ran.report.error.unwrap();
            assert_eq!((error.kind.as_str(), error.line), ("ImportError", Some(2)));
            assert_eq!(
                error.message,
                "ringfence: module 'os' is not in the profile basic (allowed_imports could name it)"
            );
            assert!(!error.traceback.contains("<ringfence>"), "{}", error.traceback);
            assert_eq!(ran.status, Some(1));
        }
        let ran = run_checked(
            PYTHON,
            form,
            "try:\n    import os\nexcept ImportError:\n    1 / 0",
            Some(&checks("basic", &[])),
        );
        let error = ran.report.error.unwrap();
        assert_eq!((error.kind.as_str(), error.line), ("ZeroDivisionError", Some(4)));
        assert!(!error.traceback.contains("<ringfence>"), "{}", error.traceback);
        let ran = run_checked(
            PYTHON,
            form,
            "import json\njson.loads('{')",
            Some(&checks("basic", &[])),
        );
        let kind = ran.report.error.unwrap().kind;
        assert_eq!(kind, "json.decoder.JSONDecodeError");
    }
}

#[test]
fn callers_native_code_is_not_loaded() {
    // A copy of the interpreter's own native module, at the place where each of these imports looks.
    let copy = "import json, sys\n\
        name = 'mmap.cpython-%d%d-%s.so' % (*sys.version_info[:2], sys.implementation._multiarch)\n\
        library = json.__file__.replace('json/__init__.py', 'lib-dynload/' + name)\n\
        with open(library, 'rb') as file: native = file.read()\n\
        with open('package/' + name, 'wb') as file: file.write(native)\n\
        with open('package/asks.py', 'w') as file: file.write('from . import mmap')\n";
    let unnamed = checks("basic", &["sys"]);
    // Even a named package does not load native code from the workspace.
    let named = checks("basic", &["sys", "package"]);
    for import in [
        "import package.mmap",
        "from package import mmap",
        "import package.asks",
    ] {
        let code = format!(
            "{copy}{import}\nsys.modules['package.mmap'].mmap(-1, 1).write_byte(1)\nprint('ESCAPED')"
        );
        let free = run_checked(PYTHON, Form::Cold, &code, None);
        assert!(free.stdout.contains("ESCAPED"), "{import}: {}", free.stderr);
        for (form, checks) in [
            (Form::Cold, &unnamed),
            (Form::Forked, &unnamed),
            (Form::Cold, &named),
        ] {
            let ran = run_checked(PYTHON, form, &code, Some(checks));
            assert!(!ran.stdout.contains("ESCAPED"), "{form:?} {import}");
            let error = ran.report.error.unwrap();
            assert_eq!(
                (error.kind.as_str(), error.line),
                ("ImportError", Some(7)),
                "{import}: {}",
                ran.stderr
            );
            assert_eq!(
                error.message,
                "ringfence: module 'package.mmap' is native code, and only that of installed modules is loaded"
            );
            assert!(!error.traceback.contains("<ringfence>"), "{}", error.traceback);
            let blocked = Blocked {
                module: "package.mmap".to_owned(),
                line: Some(7),
            };
            assert_eq!(ran.report.security_events, [blocked], "{form:?} {import}");
        }
    }
    // Native code of installed modules is loaded, and the hook is not visible in it.
    let code =
        "import decimal, _decimal\n_decimal.__file__.endswith('.so'), _decimal.Decimal is decimal.Decimal";
    let installed = checks("basic", &["_decimal"]);
    for form in [Form::Cold, Form::Forked] {
        let ran = run_checked(PYTHON, form, code, Some(&installed));
        assert_eq!(
            ran.report.result,
            Some(json!([true, true])),
            "{form:?}: {}",
            ran.stderr
        );
    }
}

#[test]
fn missing_imports_are_added_for_undefined_names() {
    let patches = |patches: &[(&str, &str)], imports: Option<Vec<String>>| Checks {
        imports,
        patches: patches
            .iter()
            .map(|(name, what)| ((*name).to_owned(), (*what).to_owned()))
            .collect(),
        profile: "basic",
    };
    for form in [Form::Cold, Form::Forked] {
        let all = patches(
            &[
                ("json", "import json"),
                ("Path", "from pathlib import Path"),
                ("absent", "import no_such_module_anywhere"),
                ("broken", "import no such"),
            ],
            None,
        );
        let code = "\nx = 1\njson.dumps([str(Path('a')), __name__])";
        let ran = run_checked(PYTHON, form, code, Some(&all));
        assert_eq!(
            ran.report.result,
            Some(json!(r#"["a", "__main__"]"#)),
            "{}",
            ran.stderr
        );
        assert_eq!(ran.report.variables, ["x"]);
        let ran = run_checked(PYTHON, form, "\n\nabsent.x", Some(&all));
        let error = ran.report.error.unwrap();
        assert_eq!(
            (error.kind.as_str(), error.line),
            ("ModuleNotFoundError", Some(3))
        );
        assert!(
            error.message.contains("no_such_module_anywhere"),
            "{}",
            error.message
        );
        let ran = run_checked(
            PYTHON,
            form,
            "try: absent\nexcept NameError: x = 5\nx",
            Some(&all),
        );
        assert_eq!(ran.report.result, Some(json!(5)));
        // A file of the caller is not imported for it.
        let own = patches(&[("count", "from helper import count")], None);
        let ran = run_checked(PYTHON, form, "import sys\n'helper' in sys.modules", Some(&own));
        assert_eq!(ran.report.result, Some(json!(false)), "{}", ran.stderr);
        // An assignment of the program replaces the import.
        let ran = run_checked(PYTHON, form, "Path = 3\nPath", Some(&all));
        assert_eq!(
            (ran.report.result, ran.report.variables),
            (Some(json!(3)), vec!["Path".to_owned()])
        );
        // These imports are restricted to the profile, like the program's.
        let ran = run_checked(
            PYTHON,
            form,
            "uuid.os",
            Some(&patches(
                &[("uuid", "import uuid"), ("os", "import os")],
                Some(vec!["uuid".to_owned()]),
            )),
        );
        assert_eq!(ran.report.error.unwrap().kind, "AttributeError");
        assert_eq!(ran.report.security_events.len(), 2);
    }
}

#[test]
fn restrictions_are_hidden_from_the_environment() {
    let code = "import os\n[name for name in os.environ if 'CHECKS' in name]";
    let mut many = checks("x", &["os"]);
    let names = (0..1000).map(|number| format!("{}{number}", "ä".repeat(200)));
    many.imports.as_mut().unwrap().extend(names);
    for form in [Form::Cold, Form::Forked] {
        let ran = run_checked(PYTHON, form, code, Some(&many));
        assert_eq!(ran.report.result, Some(json!([])), "{}", ran.stderr);
        let child = "import os\nos.popen('env | grep -c CHECKS').read()";
        let ran = run_checked(PYTHON, form, child, Some(&many));
        assert_eq!(ran.report.result, Some(json!("0\n")), "{}", ran.stderr);
    }
}
