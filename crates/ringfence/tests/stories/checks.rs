//! Code and data that are looked at before anything runs: what an agent is told by the tools.

use crate::client::*;

fn rules(validation: &Value) -> Vec<&str> {
    texts_of(&validation["issues"], "rule")
}

#[test]
fn code_is_looked_at_and_not_run() {
    let mut server = Server::start();
    let asked = json!({"code": "open('made', 'w').write('x')\nimport os\nos.system('id > made')\n"});
    let answer = server.call("validate_code", asked);
    let found = &answer["structuredContent"];
    assert!(rules(found).contains(&"python.process"), "{found}");
    assert_contains(answer.text(), [" --> main.py:3:1\n"]);
    assert_contains(answer.text(), ["3 | os.system('id > made')\n"]);
    assert_eq!(found["analysis"]["imports"], json!(["os"]));
    let files = server.facts("list_files", json!({}));
    assert_eq!(files["files"], json!([]), "nothing has run");
    let records = server.records("code.validated");
    assert_eq!(records[0]["details"]["language"], "python", "{records:?}");
    // An error has a frame in which nothing hostile is left.
    let answer = server.call("validate_code", json!({"code": "x = '\u{202e}\u{1b}[31m' +\n"}));
    let found = &answer["structuredContent"];
    found.shows(json!({"valid": false, "verdict": "reject"}));
    assert!(rules(found).contains(&"python.syntax"), "{found}");
    assert!(
        !answer.text().contains(['\u{202e}', '\u{1b}']),
        "{:?}",
        answer.text()
    );
    assert_contains(answer.text(), ["main.py: rejected: "]);
}

#[test]
fn a_missing_import_is_added_and_the_fixed_code_runs() {
    let mut server = Server::start();
    let code = "'''doc'''\nprint(json.dumps({'a': 1}))\n";
    let answer = server.call("validate_code", json!({"code": code}));
    let found = &answer["structuredContent"];
    found.shows(json!({"verdict": "fixed", "fixes_applied": ["import json"]}));
    found.shows(json!({"fixed_code": "'''doc'''\nimport json\nprint(json.dumps({'a': 1}))\n"}));
    assert_contains(answer.text(), ["\n+import json\n"]);
    let ran = server.run(json!({"code": found["fixed_code"]}));
    assert_eq!(ran["stdout"], "{\"a\": 1}\n", "{ran}");
    let left = server.facts("validate_code", json!({"code": code, "auto_fix": false}));
    left.shows(json!({"fixed_code": null, "fixes_applied": []}));
    assert!(rules(&left).contains(&"python.undefined_name"), "{left}");
    // On the way to a run no line of the caller's moves.
    let broken = "print(json.dumps({'a': 1}))\n1/0\n";
    let fixed = server.call("execute_code", json!({"code": broken, "validate": "fix"}));
    let facts = &fixed["structuredContent"];
    facts.shows(json!({"stdout": "{\"a\": 1}\n", "error.line": 2}));
    assert_contains(fixed.text(), ["added to the code: import json"]);
}

#[test]
fn a_result_says_what_was_found_and_strict_refuses_it() {
    let mut server = Server::start();
    let code = "import pickle\nprint(pickle.loads(pickle.dumps(7)))\n";
    let told = server.call("execute_code", json!({"code": code}));
    let facts = &told["structuredContent"];
    facts.shows(json!({"success": true, "stdout": "7\n"}));
    assert!(
        rules(&facts["validation"]).contains(&"python.unsafe_load"),
        "{facts}"
    );
    assert_contains(told.text(), ["advice: main.py:2: "]);
    let off = server.run(json!({"code": code, "validate": "off"}));
    off.shows(json!({"success": true, "validation": null}));
    for (tool, arguments) in [
        ("execute_code", json!({"code": code, "validate": "strict"})),
        ("run_sandbox_code", json!({"code": code})),
    ] {
        let refused = server.call(tool, arguments);
        let facts = &refused["structuredContent"];
        assert_eq!(
            (&refused["isError"], &facts["code"]),
            (&json!(true), &json!("code_rejected")),
            "{tool}: {refused}"
        );
        assert!(
            rules(&facts["validation"]).contains(&"python.unsafe_load"),
            "{facts}"
        );
        assert_contains(refused.text(), ["2 | print(pickle.loads(pickle.dumps(7)))\n"]);
    }
}

#[test]
fn a_profile_forbids_a_module_before_the_run_and_the_operator_says_which_there_are() {
    let mut server = Server::start();
    let with = |profile: &str| json!({"code": "import os\nprint(os.getpid() > 0)\n", "profile": profile});
    let free = server.run(with("unrestricted"));
    assert_eq!(free["stdout"], "True\n", "{free}");
    let refused = server.call("execute_code", with("basic"));
    assert_eq!(refused["structuredContent"]["code"], "code_rejected", "{refused}");
    assert_contains(refused.text(), ["1 | import os\n"]);
    let asked =
        json!({"code": "import os\nprint(os.getpid() > 0)\n", "profile": "basic", "allowed_imports": ["os"]});
    let allowed = server.run(asked);
    assert_eq!(allowed["stdout"], "True\n", "{allowed}");
    let unknown = server.run(with("basik"));
    unknown.says("message", ["Did you mean `basic`?"]);
    let info = server.facts("get_sandbox_info", json!({}));
    let profiles = &info["security_profiles"];
    profiles.shows(json!({"strict.enabled": true, "unrestricted.modules": []}));
    drop(server);
    let mut server = Server::with_env([("RINGFENCE_CHECK_PROFILE", "basic")]);
    server.refuses("execute_code", json!({"code": "import os"}), "code_rejected");
    server.refuses("execute_code", with("unrestricted"), "policy_denied");
    let info = server.facts("get_sandbox_info", json!({}));
    info.shows(json!({"security_profiles.unrestricted.enabled": false}));
}

#[test]
fn prompts_say_what_is_so_on_this_server() {
    let mut server = Server::start();
    let listed = server.ask("prompts/list", json!({}));
    let names = texts_of(&listed["result"]["prompts"], "name");
    assert_eq!(names, ["generate_secure_script", "diagnose_validation_error"]);
    let mut get = |name: &str, arguments: Value| server.prompt(name, arguments);
    let said = |answer: &Value| text_of(&answer["result"]["messages"][0]["content"]["text"]).to_owned();
    let text = said(&get(
        "generate_secure_script",
        json!({"task": "sum primes", "profile": "basic"}),
    ));
    for part in [
        "sum primes",
        "statistics",
        "python.process",
        "timeout_seconds 60",
        "profile: \"basic\"",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("pandas"), "{text}");
    let text = said(&get(
        "diagnose_validation_error",
        json!({"error": "python.syntax: line 1", "data": "print(1"}),
    ));
    assert_contains(&text, ["error[python.syntax]", "1 | print(1\n"]);
    for (name, arguments, part) in [
        ("generate_secure_script", json!({}), "`task` is missing"),
        (
            "generate_secure_script",
            json!({"tsk": "x"}),
            "Did you mean `task`?",
        ),
        (
            "generate_secure_script",
            json!({"task": "x", "profile": "basik"}),
            "Did you mean `basic`?",
        ),
        (
            "generate_script",
            json!({}),
            "Did you mean `generate_secure_script`?",
        ),
        (
            "diagnose_validation_error",
            json!({"error": "x", "schema": "no such schema"}),
            "no such schema",
        ),
    ] {
        let answer = get(name, arguments);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(part), "{name}: {answer}");
        assert!(answer["error"]["data"]["code"].is_string(), "{answer}");
    }
}

#[test]
fn json_is_held_against_a_schema_and_a_table_is_checked_by_row_and_column() {
    let mut server = Server::start();
    let schema = json!({"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}});
    let mut check = |data: Value| {
        server.call(
            "validate_json_data",
            json!({"data": data, "schema_name_or_dict": schema}),
        )
    };
    let good = check(json!({"id": 1}));
    let expect = json!({"valid": true, "schema": "inline"});
    good["structuredContent"].shows(expect);
    // As models send it: JSON in a string.
    assert_eq!(check(json!("{\"id\": 1}"))["structuredContent"]["valid"], true);
    let bad = check(json!("{\"id\": \"x\"}"));
    let error = &bad["structuredContent"]["errors"][0];
    error.shows(json!({"path": "/id", "keyword": "type", "expected": "integer", "actual": "x"}));
    assert_contains(bad.text(), [" --> data: /id\n"]);
    // Whatever the schema: what is broken is no string.
    for schema in [json!({}), json!(true), json!({"type": "string"})] {
        let asked = json!({"data": "{\"id\":\n 1,}", "schema_name_or_dict": schema});
        let broken = server.call("validate_json_data", asked);
        let expect = json!({"valid": false, "errors_total": 1, "errors.0.keyword": "syntax"});
        broken["structuredContent"].shows(expect);
        assert_contains(broken.text(), ["line 2 column 4"]);
        let asked = json!({"data": "\"{id\"", "schema_name_or_dict": schema});
        let whole = server.facts("validate_json_data", asked);
        assert_eq!(whole["valid"], true, "{whole}");
    }
    let schemas = server.read("sandbox://schemas");
    let listed: Value = serde_json::from_str(text_of(&schemas["result"]["contents"][0]["text"])).unwrap();
    let names = texts_of(&listed["schemas"], "name");
    assert_eq!(names, ["config", "dataset", "user"]);
    let wish = json!({"data": {}, "schema_name_or_dict": "usr"});
    server.refuses("validate_json_data", wish, "not_found");
    let missing = server.facts("validate_json_data", json!({"schema_name_or_dict": "user"}));
    missing.says("message", ["`data`"]);
    let asked = json!({"data": 1, "schema_name_or_dict": {"$ref": "http://127.0.0.1/x.json"}});
    server.refuses("validate_json_data", asked, "invalid_argument");
    let answer = server.call(
        "validate_csv_data",
        json!({
            "csv_content": "name,age\nann,31\nbob,old\n", "required_headers": ["name", "id"],
            "type_constraints": {"age": "integer"},
        }),
    );
    let report = &answer["structuredContent"];
    report.shows(json!({
        "valid": false, "row_count": 2, "missing_headers": ["id"], "errors_total": 2, "errors.0.row": 0,
        "errors.0.column": "id",
    }));
    let of_age = list_of(&report["errors"])
        .iter()
        .find(|error| error["column"] == "age");
    assert_eq!(of_age.unwrap()["row"], 2, "{report}");
    assert_contains(answer.text(), ["row 2, column `age`"]);
    let wish = json!({"csv_content": "a\n1\n", "delimiter": ",,"});
    server.refuses("validate_csv_data", wish, "invalid_argument");
}
