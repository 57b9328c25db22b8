//! `ringfence validate`, and `ringfence run --validate`.

use crate::client::*;
use std::{
    fs,
    process::{Command, Output},
};

fn validate(arguments: &[&str]) -> Output {
    run_cli(&[&["validate"], arguments].concat())
}

/// The standard output of `ringfence validate`, which must exit with this status.
#[track_caller]
fn validate_stdout(arguments: &[&str], status: i32) -> String {
    stdout_of(&cli_exits_with(&[&["validate"], arguments].concat(), status))
}

#[test]
fn finding_is_printed_like_a_compiler_error() {
    let files = TempDir::new("validate-frame");
    let path = files.file("bad.py", "import os\n\tx = (1,\n");
    let text = validate_stdout(&[&path], 1);
    let place = format!("--> {path}:2:");
    assert_contains(
        &text,
        ["error[python.syntax]: ", &place, "2 |     x = (1,\n", "^\n"],
    );
    assert_contains(&text, [&format!("{path}: rejected: ")]);
    assert!(!text.contains('\x1b'), "a pipe has no colours: {text:?}");
}

#[test]
fn missing_import_or_schema_is_named_with_its_flag() {
    let files = TempDir::new("validate-flags");
    let os = files.file("reads.py", "import os\n");
    let data = files.file("data.json", "{}");
    let output = validate(&[&os, "--allow-import", "math"]);
    assert_contains(
        stdout_of(&output),
        ["`os` is imported and is not in `--allow-import`"],
    );
    let output = run_cli(&["run", &os, "--allow-import", "math"]);
    assert_contains(stderr_of(&output), ["`--allow-import os`"]);
    let caught = "try:\n    import os\nexcept ImportError:\n    pass\nfrom math import nope\n";
    let output = run_cli(&["run", &files.file("caught.py", caught), "--allow-import", "math"]);
    let stderr = stderr_of(&output);
    assert_contains(&stderr, ["nope"]);
    assert_lacks(&stderr, ["--allow-import"]);
    let output = validate(&[&data, "--schema", "absent.json"]);
    assert_contains(stderr_of(&output), ["the schema absent.json", "a JSON Schema"]);
    let long = files.file("long.json", &" ".repeat((1 << 20) + 1));
    let output = validate(&[&data, "--schema", &long]);
    assert_contains(stderr_of(&output), ["more than 1 MiB", "Give it in parts."]);
}

#[test]
fn identifiers_in_findings_are_not_rewritten() {
    let files = TempDir::new("validate-names");
    let reads = files.file("reads.py", "print(packages)\nprint(list_files)\n");
    let imports = files.file("imports.py", "import packages\n");
    for (arguments, names) in [
        (&["validate", &reads][..], ["`packages` is not", "`list_files`"]),
        (
            &["validate", &reads, "--json"],
            ["`packages` is not", "`list_files`"],
        ),
        (
            &["validate", &imports, "--profile", "basic"],
            ["profile has `packages`", "`--allow-import packages`"],
        ),
        (
            &["run", &reads, "--validate", "strict"],
            ["it ran: line 1: `packages` is not", "`list_files`"],
        ),
    ] {
        let output = run_cli(arguments);
        assert_contains(both_streams_of(&output), names);
    }
}

#[test]
fn validate_exit_code_is_the_highest_of_its_files() {
    let files = TempDir::new("validate-codes");
    let good = files.file("good.py", "print(sum(range(3)))\n");
    let warned = files.file("warned.py", "import pickle\npickle.loads(b'')\n");
    let plain = files.file("plain", "words\n");
    let data = files.file("data.json", "{}");
    let broken = files.file("broken.json", "{");
    let check = |arguments: &[&str], expect: i32| drop(validate_stdout(arguments, expect));
    check(&[&good], 0);
    check(&[&warned], 0);
    check(&[&warned, "--strict"], 1);
    check(&[&good, &warned, "--strict"], 1);
    check(&[&warned, "--profile", "basic"], 1);
    check(&[&warned, "--profile", "basic", "--allow-import", "pickle"], 0);
    check(&[], 2);
    check(&["--what", &good], 2);
    check(&[&good, "--profile", "basik"], 2);
    check(&["/nonexistent.py"], 2);
    check(&[&plain], 2);
    check(&[&data], 0);
    check(&[&broken], 1);
    // Options that apply to none of the files.
    check(&[&data, "--profile", "basic"], 2);
    check(&[&good, "--schema", "user"], 2);
    check(&[&good, "--require", "id"], 2);
    check(&[&data, &good, "--schema", "user", "--profile", "basic"], 1);
    // The highest status of several files.
    check(&[&good, "/nonexistent.py", &broken], 2);
    check(&["-", "--write", "-l", "python"], 2);
    let mut refused = ringfence(&["validate", &good]);
    refused.env("RINGFENCE_CHECK_PROFILE", "strickt");
    let output = refused.output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert_contains(stderr_of(&output), ["Did you mean `strict`?"]);
}

#[test]
fn uncheckable_file_is_reported_and_the_others_are_checked() {
    let files = TempDir::new("validate-unread");
    let good = files.file("good.py", "print(1)\n");
    let data = files.file("data.json", "1");
    let halves =
        |next| json!({"allOf": [{"$ref": format!("#/$defs/{next}")}, {"$ref": format!("#/$defs/{next}")}]});
    let mut schema = json!({"$ref": "#/$defs/0", "$defs": {"40": true}});
    for depth in 0..40 {
        schema["$defs"][depth.to_string()] = halves(depth + 1);
    }
    let schema = files.file("schema.json", &schema.to_string());
    let arguments = [data.as_str(), &good, "--schema", &schema];
    let output = validate(&arguments);
    // The check needs too many steps, or on a slow machine too much time.
    let is_slow = output.status.code() == Some(125);
    assert!(is_slow || output.status.code() == Some(2), "{output:?}");
    let stderr = stderr_of(&output);
    let why = if is_slow {
        "its parser took longer"
    } else {
        "need too many steps"
    };
    assert_contains(&stderr, ["data.json: ", why]);
    assert!(stdout_of(&output).contains("good.py: passed"), "{output:?}");
    let output = validate(&[&arguments[..], &["--sarif"]].concat());
    let run = &json_of(&output)["runs"][0];
    let invocation = &run["invocations"][0];
    assert_eq!(invocation["executionSuccessful"], false);
    let place = &invocation["toolExecutionNotifications"][0]["locations"][0]["physicalLocation"];
    assert!(text_of(&place["artifactLocation"]["uri"]).ends_with("data.json"));
    assert_eq!(list_of(&run["artifacts"]).len(), 2);
    let output = validate(&[&arguments[..], &["--json"]].concat());
    let first: Value = serde_json::from_str(stdout_of(&output).lines().next().unwrap()).unwrap();
    let code = text_of(&first["error"]["code"]);
    assert!(["invalid_argument", "check_failed"].contains(&code), "{code}");
}

#[test]
fn fix_is_shown_as_a_diff_and_written_with_the_write_flag() {
    let files = TempDir::new("validate-fix");
    let path = files.file(
        "a.py",
        "#!/usr/bin/env python3\n\"\"\"doc\"\"\"\nprint(json.dumps(1))\n",
    );
    let difference = "\n \"\"\"doc\"\"\"\n+import json\n print(json.dumps(1))\n";
    assert_contains(
        validate_stdout(&[&path], 0),
        [difference, "fixed: 1 import added: import json"],
    );
    // Without `--write` the file is unchanged.
    assert_lacks(files.read("a.py"), ["import"]);
    let output = validate(&[&path, "--no-auto-fix"]);
    assert_contains(stdout_of(&output), ["[python.undefined_name]"]);
    let output = cli_exits_with(&["validate", &path, "--write"], 0);
    assert_contains(stderr_of(&output), ["was written: import json"]);
    let written = "#!/usr/bin/env python3\n\"\"\"doc\"\"\"\nimport json\nprint(json.dumps(1))\n";
    assert_eq!(files.read("a.py"), written);
    let again = validate(&[&path, "--json"]);
    assert_eq!(json_of(&again)["verdict"], "pass");
}

#[test]
fn validate_reads_stdin_and_prints_json() {
    let output = run_with_stdin(
        ringfence(&["validate", "-", "-l", "python", "--json"]),
        "def f(:\n",
    );
    assert_eq!(output.status.code(), Some(1));
    let found = json_of(&output);
    found.assert_fields(
        json!({"file": "<stdin>", "language": "python", "verdict": "reject", "issues.0.line": 1}),
    );
}

#[test]
fn run_with_validate_flag_checks_first() {
    let code = "import pickle\nprint(pickle.loads(pickle.dumps(7)))";
    let run = |arguments: &[&str], status: i32, prints: &str| {
        let output = run_code("python", code, arguments);
        assert_eq!(
            (output.status.code(), stdout_of(&output).as_str()),
            (Some(status), prints)
        );
        stderr_of(&output)
    };
    assert_eq!(run(&[], 0, "7\n"), "");
    let stderr = run(&["--validate", "warn"], 0, "7\n");
    assert_contains(stderr, ["warning[python.unsafe_load]", "2 | print("]);
    let stderr = run(&["--validate", "strict"], 125, "");
    assert_contains(stderr, ["warning[python.unsafe_load]", "refused before it ran"]);
    let fixed = run_code("python", "print(json.dumps(1))", &["--validate", "fix", "--json"]);
    let result = json_of(&fixed);
    result.assert_fields(json!({"stdout": "1\n", "validation.fixes_applied": ["import json"]}));
    let profile = run_code(
        "python",
        "import os",
        &["--validate", "warn", "--profile", "basic", "--json"],
    );
    assert_eq!(json_of(&profile)["error"]["code"], "code_rejected", "{profile:?}");
}

#[test]
fn data_files_are_checked_against_schemas_and_constraints() {
    let files = TempDir::new("validate-data");
    let schema = files.file("order.json", r#"{"type": "object", "required": ["id"]}"#);
    let good = files.file("good.json", r#"{"id": 1}"#);
    let bad = files.file("bad.json", r#"{"name": 1}"#);
    let broken = files.file("broken.json", "{\n  \"id\": ,\n}");
    validate_stdout(&[&good, "--schema", &schema], 0);
    let stdout = validate_stdout(&[&good, &bad, "--schema", &schema], 1);
    assert_contains(stdout, ["error[json.required]", "the whole document"]);
    let stdout = stdout_of(&validate(&[&broken, "--schema", &schema]));
    assert_contains(stdout, ["error[json.syntax]", "line 2"]);
    let table = files.file("t.csv", "id;age\n1;31\n2;old\n");
    let constraints = files.file("columns.json", r#"{"age": {"type": "integer", "min": 0}}"#);
    let stdout = validate_stdout(&[&table, "--require", "id", "--constraints", &constraints], 1);
    assert_contains(stdout, ["row 2, column `age`"]);
    validate_stdout(&[&table, "--require", "id"], 0);
    let report = json_of(&validate(&[&table, "--require", "zip", "--json"]));
    report.assert_fields(json!({"missing_headers": ["zip"], "errors.0.column": "zip"}));
}

#[test]
fn repository_examples_pass_validation() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let paths: Vec<String> = ["hello.py", "hello.mjs", "hello.ts", "hello.sh"]
        .iter()
        .map(|name| format!("{examples}/{name}"))
        .collect();
    let arguments: Vec<&str> = paths.iter().map(String::as_str).collect();
    validate_stdout(&arguments, 0);
}

/// Files with findings of every level, a fix, and data.
fn mixed(files: &TempDir) -> Vec<String> {
    vec![
        files.file("syntax error ü.py", "x = (\n"),
        files.file("warned.py", "import pickle\npickle.loads(b'')\n"),
        files.file("fixed.py", "print(json.dumps(1))\n"),
        files.file("script.sh", "echo hello\n"),
    ]
}

#[test]
fn sarif_has_rules_locations_and_fixes() {
    let files = TempDir::new("validate-sarif");
    let paths = mixed(&files);
    let target = files.0.join("out.sarif");
    let flag = format!("--sarif={}", target.display());
    let arguments: Vec<&str> = paths.iter().map(String::as_str).chain([flag.as_str()]).collect();
    let output = validate(&arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let document: Value = serde_json::from_slice(&fs::read(&target).unwrap()).unwrap();
    let run = &document["runs"][0];
    let results = list_of(&run["results"]);
    let of = |rule: &str| results.iter().find(|result| result["ruleId"] == rule).unwrap();
    assert_eq!(of("python.syntax")["level"], "error");
    assert_eq!(of("python.unsafe_load")["level"], "warning");
    let fix = &of("python.missing_import")["fixes"][0]["artifactChanges"][0]["replacements"][0];
    fix.assert_fields(json!({"insertedContent.text": "import json\n", "deletedRegion.startLine": 1}));
    let listed = list_of(&run["tool"]["driver"]["rules"]);
    for result in results {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(listed[index]["id"], result["ruleId"]);
    }
    let uri = text_of(&run["artifacts"][0]["location"]["uri"]);
    assert!(
        uri.starts_with("file:///") && uri.ends_with("syntax%20error%20%C3%BC.py"),
        "{uri}"
    );
}

/// The official schema is not in this repository; a package of the index has it.
const SCHEMA_PACKAGE: &str = "@microsoft/jest-sarif@1.0.0-beta.0";
const SCHEMA_FILE: &str = "package/lib/schemas/sarif-2.1.0-rtm.5.json";

#[test]
fn sarif_matches_its_official_schema() {
    if !is_required("index") {
        eprintln!(
            "skipped: it downloads {SCHEMA_PACKAGE} from the configured index; RINGFENCE_REQUIRE=index runs it"
        );
        return;
    }
    let files = TempDir::new("validate-sarif-schema");
    let done = |command: &mut Command| {
        let output = command.current_dir(&files.0).output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
        stdout_of(&output).trim().to_owned()
    };
    let archive = done(Command::new("npm").args(["pack", "--silent", SCHEMA_PACKAGE]));
    done(Command::new("tar").args(["xzf", &archive, SCHEMA_FILE]));
    let schema = files.0.join(SCHEMA_FILE);
    let schema = schema.to_str().unwrap();
    let paths = mixed(&files);
    let data = files.file("data.json", "{}");
    let shape = files.file("shape.json", r#"{"required": ["id"]}"#);
    let target = files.0.join("out.json");
    let flag = format!("--sarif={}", target.display());
    let mut arguments: Vec<&str> = paths.iter().map(String::as_str).collect();
    arguments.extend([data.as_str(), "--schema", &shape, &flag]);
    validate_stdout(&arguments, 1);
    validate_stdout(&[target.to_str().unwrap(), "--schema", schema], 0);
    // the control: the schema rejects an invalid document
    let mut document: Value = serde_json::from_slice(&fs::read(&target).unwrap()).unwrap();
    document["runs"][0]["results"][0]["level"] = json!("catastrophe");
    fs::write(&target, document.to_string()).unwrap();
    validate_stdout(&[target.to_str().unwrap(), "--schema", schema], 1);
}

/// The targets of a process's descriptors, as named in `/proc`.
fn descriptors_of(pid: u32) -> Vec<String> {
    let listed = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = listed.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.map(|link| link.display().to_string()).collect()
}

/// claim: [CHK-2]
#[test]
fn check_worker_has_only_its_pipes() {
    if !is_root() {
        return;
    }
    let mut server = Server::start();
    // A forked worker answers the first check, an adviser the later ones.
    for _ in 0..3 {
        let call = json!({"language": "python", "code": "import os\nprint(1)", "validate": "warn"});
        server
            .call_ok("execute_code", call)
            .assert_fields(json!({"stdout": "1\n"}));
    }
    // While it answers, a worker has a fork with its own name.
    let is_fork = |pid: &u32| {
        let parent = proc_stat(*pid, 4).and_then(|parent| parent.parse().ok());
        parent.is_none_or(|parent: u32| comm_of(parent) == comm_of(*pid))
    };
    let mut below = descendants(server.child.id());
    below.retain(|pid| !is_fork(pid));
    for name in ["ringfence-check", "ringfence-adv"] {
        let mut workers = below.iter().filter(|pid| comm_of(**pid) == name).peekable();
        assert!(workers.peek().is_some(), "{name}");
        for worker in workers {
            let has = descriptors_of(*worker);
            assert!(
                has.len() >= 3 && has.iter().all(|link| link.starts_with("pipe:")),
                "{name}: {has:?}"
            );
            // The control: the process that it was forked from has the connection.
            let pid_1 = proc_stat(*worker, 4).unwrap().parse().unwrap();
            assert_eq!(comm_of(pid_1), "ringfence-init");
            let has = descriptors_of(pid_1);
            assert!(has.iter().any(|link| link.starts_with("socket:")), "{has:?}");
        }
    }
}
