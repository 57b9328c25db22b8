//! Checks of code and data before anything runs, through the tools.

use crate::client::*;

fn rules(validation: &Value) -> Vec<&str> {
    texts_of(&validation["issues"], "rule")
}

#[test]
fn validate_code_checks_and_does_not_run() {
    let mut server = Server::start();
    let arguments = json!({"code": "open('made', 'w').write('x')\nimport os\nos.system('id > made')\n"});
    let answer = server.call("validate_code", arguments);
    let found = &answer["structuredContent"];
    assert!(rules(found).contains(&"python.process"), "{found}");
    assert_contains(answer.text(), [" --> main.py:3:1\n"]);
    assert_contains(answer.text(), ["3 | os.system('id > made')\n"]);
    assert_eq!(found["analysis"]["imports"], json!(["os"]));
    let files = server.facts("list_files", json!({}));
    assert_eq!(files["files"], json!([]), "nothing has run");
    let records = server.audit_records("code.validated");
    assert_eq!(records[0]["details"]["language"], "python", "{records:?}");
    // The excerpt of an error has no control characters.
    let answer = server.call("validate_code", json!({"code": "x = '\u{202e}\u{1b}[31m' +\n"}));
    let found = &answer["structuredContent"];
    found.assert_fields(json!({"valid": false, "verdict": "reject"}));
    assert!(rules(found).contains(&"python.syntax"), "{found}");
    assert!(
        !answer.text().contains(['\u{202e}', '\u{1b}']),
        "{:?}",
        answer.text()
    );
    assert_contains(answer.text(), ["main.py: rejected: "]);
}

#[test]
fn missing_import_is_added_and_the_fixed_code_runs() {
    let mut server = Server::start();
    let code = "'''doc'''\nprint(json.dumps({'a': 1}))\n";
    let answer = server.call("validate_code", json!({"code": code}));
    let found = &answer["structuredContent"];
    found.assert_fields(json!({"verdict": "fixed", "fixes_applied": ["import json"]}));
    found.assert_fields(json!({"fixed_code": "'''doc'''\nimport json\nprint(json.dumps({'a': 1}))\n"}));
    assert_contains(answer.text(), ["\n+import json\n"]);
    let ran = server.run(json!({"code": found["fixed_code"]}));
    assert_eq!(ran["stdout"], "{\"a\": 1}\n", "{ran}");
    let left = server.facts("validate_code", json!({"code": code, "auto_fix": false}));
    left.assert_fields(json!({"fixed_code": null, "fixes_applied": []}));
    assert!(rules(&left).contains(&"python.undefined_name"), "{left}");
    // A fix before a run does not shift the caller's line numbers.
    let broken = "print(json.dumps({'a': 1}))\n1/0\n";
    let fixed = server.call("execute_code", json!({"code": broken, "validate": "fix"}));
    let facts = &fixed["structuredContent"];
    facts.assert_fields(json!({"stdout": "{\"a\": 1}\n", "error.line": 2}));
    assert_contains(fixed.text(), ["added to the code: import json"]);
}

#[test]
fn findings_are_in_the_result_and_strict_rejects_them() {
    let mut server = Server::start();
    let code = "import pickle\nprint(pickle.loads(pickle.dumps(7)))\n";
    let result = server.call("execute_code", json!({"code": code}));
    let facts = &result["structuredContent"];
    facts.assert_fields(json!({"success": true, "stdout": "7\n"}));
    assert!(
        rules(&facts["validation"]).contains(&"python.unsafe_load"),
        "{facts}"
    );
    assert_contains(result.text(), ["advice: main.py:2: "]);
    let off = server.run(json!({"code": code, "validate": "off"}));
    off.assert_fields(json!({"success": true, "validation": null}));
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
fn profile_rejects_forbidden_imports_and_the_operator_limits_profiles() {
    let mut server = Server::start();
    let with = |profile: &str| json!({"code": "import os\nprint(os.getpid() > 0)\n", "profile": profile});
    let free = server.run(with("unrestricted"));
    assert_eq!(free["stdout"], "True\n", "{free}");
    let refused = server.call("execute_code", with("basic"));
    assert_eq!(refused["structuredContent"]["code"], "code_rejected", "{refused}");
    assert_contains(refused.text(), ["1 | import os\n"]);
    let arguments =
        json!({"code": "import os\nprint(os.getpid() > 0)\n", "profile": "basic", "allowed_imports": ["os"]});
    let allowed = server.run(arguments);
    assert_eq!(allowed["stdout"], "True\n", "{allowed}");
    let unknown = server.run(with("basik"));
    unknown.assert_text("message", ["Did you mean `basic`?"]);
    let info = server.facts("get_sandbox_info", json!({}));
    let profiles = &info["security_profiles"];
    profiles.assert_fields(json!({"strict.enabled": true, "unrestricted.modules": []}));
    drop(server);
    let mut server = Server::with_env([("RINGFENCE_CHECK_PROFILE", "basic")]);
    server.call_error("execute_code", json!({"code": "import os"}), "code_rejected");
    server.call_error("execute_code", with("unrestricted"), "policy_denied");
    let info = server.facts("get_sandbox_info", json!({}));
    info.assert_fields(json!({"security_profiles.unrestricted.enabled": false}));
}

#[test]
fn prompts_reflect_this_servers_configuration() {
    let mut server = Server::start();
    let listed = server.rpc("prompts/list", json!({}));
    let names = texts_of(&listed["result"]["prompts"], "name");
    assert_eq!(names, ["generate_secure_script", "diagnose_validation_error"]);
    let mut get = |name: &str, arguments: Value| server.get_prompt(name, arguments);
    let text_in = |answer: &Value| text_of(&answer["result"]["messages"][0]["content"]["text"]).to_owned();
    let text = text_in(&get(
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
    assert_contains(&text, ["Network: none."]);
    let text = text_in(&get(
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
    let mut server = Server::with_config("egress: {allow: [api.example.com]}");
    let answer = server.get_prompt("generate_secure_script", json!({"task": "x"}));
    assert_contains(text_in(&answer), ["Network: only these hosts: api.example.com"]);
}

#[test]
fn json_is_validated_against_a_schema_and_csv_by_row_and_column() {
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
    good["structuredContent"].assert_fields(expect);
    // JSON in a string is parsed, as models send it.
    assert_eq!(check(json!("{\"id\": 1}"))["structuredContent"]["valid"], true);
    let bad = check(json!("{\"id\": \"x\"}"));
    let error = &bad["structuredContent"]["errors"][0];
    error.assert_fields(json!({"path": "/id", "keyword": "type", "expected": "integer", "actual": "x"}));
    assert_contains(bad.text(), [" --> data: /id\n"]);
    // Broken JSON is an error with any schema, also with one that accepts strings.
    for schema in [json!({}), json!(true), json!({"type": "string"})] {
        let arguments = json!({"data": "{\"id\":\n 1,}", "schema_name_or_dict": schema});
        let broken = server.call("validate_json_data", arguments);
        let expect = json!({"valid": false, "errors_total": 1, "errors.0.keyword": "syntax"});
        broken["structuredContent"].assert_fields(expect);
        assert_contains(broken.text(), ["line 2 column 4"]);
        let arguments = json!({"data": "\"{id\"", "schema_name_or_dict": schema});
        let whole = server.facts("validate_json_data", arguments);
        assert_eq!(whole["valid"], true, "{whole}");
    }
    let schemas = server.read_resource("sandbox://schemas");
    let listed: Value = serde_json::from_str(text_of(&schemas["result"]["contents"][0]["text"])).unwrap();
    let names = texts_of(&listed["schemas"], "name");
    assert_eq!(names, ["config", "dataset", "user"]);
    let unknown = json!({"data": {}, "schema_name_or_dict": "usr"});
    server.call_error("validate_json_data", unknown, "not_found");
    let missing = server.facts("validate_json_data", json!({"schema_name_or_dict": "user"}));
    missing.assert_text("message", ["`data`"]);
    let arguments = json!({"data": 1, "schema_name_or_dict": {"$ref": "http://127.0.0.1/x.json"}});
    server.call_error("validate_json_data", arguments, "invalid_argument");
    let answer = server.call(
        "validate_csv_data",
        json!({
            "csv_content": "name,age\nann,31\nbob,old\n", "required_headers": ["name", "id"],
            "type_constraints": {"age": "integer"},
        }),
    );
    let report = &answer["structuredContent"];
    report.assert_fields(json!({
        "valid": false, "row_count": 2, "missing_headers": ["id"], "errors_total": 2, "errors.0.row": 0,
        "errors.0.column": "id",
    }));
    let of_age = list_of(&report["errors"])
        .iter()
        .find(|error| error["column"] == "age");
    assert_eq!(of_age.unwrap()["row"], 2, "{report}");
    assert_contains(answer.text(), ["row 2, column `age`"]);
    let unknown = json!({"csv_content": "a\n1\n", "delimiter": ",,"});
    server.call_error("validate_csv_data", unknown, "invalid_argument");
}
