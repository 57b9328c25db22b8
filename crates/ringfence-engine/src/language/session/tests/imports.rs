//! Sessions of Python whose calls are each restricted to the modules of a profile.

use super::*;
use crate::language::Blocked;
use serde_json::json;

fn basic(patches: &[(&str, &str)]) -> Option<Checks> {
    let patches = patches.iter();
    Some(Checks {
        imports: Some(["uuid", "json", "time", "helper"].map(str::to_owned).to_vec()),
        patches: patches
            .map(|(name, what)| ((*name).to_owned(), (*what).to_owned()))
            .collect(),
        profile: "basic",
    })
}

/// Checks that the session imports without the hook.
fn is_free(live: &mut Driver) {
    live.checks = None;
    let reply = live.call("import os\n__import__.__class__.__name__, os.getpid() > 0");
    assert_eq!(
        reply.answer.report.result,
        Some(json!(["builtin_function_or_method", true])),
        "{reply:?}"
    );
}

#[test]
fn each_call_is_restricted_to_its_own_modules() {
    let mut live = Driver::begin(Language::Python);
    for _ in 0..2 {
        is_free(&mut live);
        live.checks = basic(&[]);
        let reply = live.call("import uuid, time\nimport socket");
        let report = reply.answer.report;
        let error = report.error.unwrap();
        assert_eq!((error.kind.as_str(), error.line), ("ImportError", Some(2)));
        assert!(!error.traceback.contains("<ringfence>"), "{}", error.traceback);
        let event = Blocked {
            module: "socket".to_owned(),
            line: Some(2),
        };
        assert_eq!(report.security_events, [event]);
        let reply = live.call("x = uuid.UUID(int=1)\nhasattr(uuid, 'os')");
        assert_eq!(reply.answer.report.result, Some(json!(false)), "{reply:?}");
        assert_eq!(reply.answer.report.variables, ["x"]);
        assert_eq!(reply.answer.report.security_events.len(), 1);
        // A function from an unrestricted call is restricted in a restricted one.
        live.checks = None;
        live.call("def later():\n    import socket\n    return 1\nasync def awaits(): return later()");
        live.checks = basic(&[]);
        for code in ["later()", "await awaits()"] {
            let reply = live.call(code);
            assert_eq!(reply.answer.report.error.unwrap().kind, "ImportError", "{code}");
        }
    }
    // Views that were handed out show everything once every import is allowed.
    is_free(&mut live);
    assert_eq!(live.call("uuid.os is os").answer.report.result, Some(json!(true)));
}

#[test]
fn interrupted_call_restores_imports() {
    let mut live = Driver::begin(Language::Python);
    for code in [
        "open('begun', 'w').close()\nwhile True: pass",
        "import time\nopen('begun', 'w').close()\ntime.sleep(60)",
        "open('begun', 'w').close()\nwhile True:\n    try: import os\n    except ImportError: pass",
        "open('begun', 'w').close()\nwhile True: import json, uuid",
    ] {
        live.checks = basic(&[]);
        let reply = live.interrupted(code);
        assert_eq!(
            reply.answer.report.error.unwrap().kind,
            "KeyboardInterrupt",
            "{code}"
        );
        is_free(&mut live);
    }
    // A library module that takes long to import.
    let library = live.directory.with_extension("library");
    fs::create_dir_all(&library).unwrap();
    let slow = "open('begun', 'w').close()\nwhile True: pass";
    fs::write(library.join("helper.py"), slow).unwrap();
    live.checks = None;
    live.call(&format!(
        "import sys; sys.path.append({:?})",
        library.display().to_string()
    ));
    live.checks = basic(&[("slow", "import helper as slow")]);
    let reply = live.interrupted("slow");
    assert_eq!(reply.answer.report.error.unwrap().kind, "KeyboardInterrupt");
    is_free(&mut live);
    fs::remove_dir_all(&library).unwrap();
}

#[test]
fn missing_imports_of_a_call_are_added() {
    let mut live = Driver::begin(Language::Python);
    live.checks = basic(&[("json", "import json"), ("UUID", "from uuid import UUID")]);
    let reply = live.call("a = json.dumps(UUID(int=1).int)\na");
    assert_eq!(reply.answer.report.result, Some(json!("1")), "{reply:?}");
    assert_eq!(reply.answer.report.variables, ["a"]);
    live.checks = None;
    live.call("UUID = 5");
    live.checks = basic(&[("UUID", "from uuid import UUID")]);
    assert_eq!(live.call("UUID").answer.report.result, Some(json!(5)));
}

#[test]
fn callers_modules_are_restricted_and_keep_their_state() {
    let mut live = Driver::begin(Language::Python);
    fs::write(
        live.directory.join("helper.py"),
        "n = 0\ndef count():\n    global n\n    n += 1\ndef fails():\n    import os\n",
    )
    .unwrap();
    live.checks = basic(&[]);
    live.call("import helper");
    live.call("helper.count()");
    assert_eq!(
        live.call("helper.count()\nhelper.n").answer.report.result,
        Some(json!(2))
    );
    let reply = live.call("\nhelper.fails()");
    let error = reply.answer.report.error.unwrap();
    assert_eq!((error.kind.as_str(), error.line), ("ImportError", Some(2)));
    assert!(
        error.traceback.contains("helper.py\", line 6"),
        "{}",
        error.traceback
    );
    assert_eq!(reply.answer.report.security_events[0].line, Some(2));
    is_free(&mut live);
}
