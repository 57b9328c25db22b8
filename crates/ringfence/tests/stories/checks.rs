//! Code and data that are looked at before anything runs: what an agent is told by the tools.

use crate::client::Server;
use serde_json::{Value, json};

fn text(answer: &Value) -> &str {
    answer["content"][0]["text"].as_str().unwrap()
}

fn rules(validation: &Value) -> Vec<&str> {
    let issues = validation["issues"].as_array().unwrap();
    issues
        .iter()
        .map(|issue| issue["rule"].as_str().unwrap())
        .collect()
}

#[test]
fn code_is_looked_at_and_not_run() {
    let mut server = Server::start();
    let answer = server.call(
        "validate_code",
        json!({"code": "open('made', 'w').write('x')\nimport os\nos.system('id > made')\n"}),
    );
    let found = &answer["structuredContent"];
    assert!(rules(found).contains(&"python.process"), "{found}");
    assert!(text(&answer).contains(" --> main.py:3:1\n"), "{}", text(&answer));
    assert!(
        text(&answer).contains("3 | os.system('id > made')\n"),
        "{}",
        text(&answer)
    );
    assert_eq!(found["analysis"]["imports"], json!(["os"]));
    let files = server.facts("list_files", json!({}));
    assert_eq!(files["files"], json!([]), "nothing has run");
    let audit = server.facts(
        "audit_execution",
        json!({"action": "code.validated", "detail": true, "limit": 50}),
    );
    assert_eq!(audit["records"][0]["details"]["language"], "python", "{audit}");
}

#[test]
fn an_error_has_a_frame_in_which_nothing_hostile_is_left() {
    let mut server = Server::start();
    let answer = server.call("validate_code", json!({"code": "x = '\u{202e}\u{1b}[31m' +\n"}));
    let found = &answer["structuredContent"];
    assert_eq!(
        (&found["valid"], &found["verdict"]),
        (&json!(false), &json!("reject")),
        "{found}"
    );
    assert!(rules(found).contains(&"python.syntax"), "{found}");
    assert!(
        !text(&answer).contains(['\u{202e}', '\u{1b}']),
        "{:?}",
        text(&answer)
    );
    assert!(text(&answer).contains("main.py: rejected: "), "{}", text(&answer));
}

#[test]
fn a_missing_import_is_added_and_the_fixed_code_runs() {
    let mut server = Server::start();
    let code = "'''doc'''\nprint(json.dumps({'a': 1}))\n";
    let answer = server.call("validate_code", json!({"code": code}));
    let found = &answer["structuredContent"];
    assert_eq!(
        (&found["verdict"], &found["fixes_applied"]),
        (&json!("fixed"), &json!(["import json"])),
        "{found}"
    );
    assert_eq!(
        found["fixed_code"],
        "'''doc'''\nimport json\nprint(json.dumps({'a': 1}))\n"
    );
    assert!(text(&answer).contains("\n+import json\n"), "{}", text(&answer));
    let ran = server.facts("execute_code", json!({"code": found["fixed_code"]}));
    assert_eq!(ran["stdout"], "{\"a\": 1}\n", "{ran}");
    let left = server.facts("validate_code", json!({"code": code, "auto_fix": false}));
    assert_eq!(
        (&left["fixed_code"], &left["fixes_applied"]),
        (&Value::Null, &json!([]))
    );
    assert!(rules(&left).contains(&"python.undefined_name"), "{left}");
    // On the way to a run no line of the caller's moves.
    let broken = "print(json.dumps({'a': 1}))\n1/0\n";
    let fixed = server.call("execute_code", json!({"code": broken, "validate": "fix"}));
    let facts = &fixed["structuredContent"];
    assert_eq!(
        (&facts["stdout"], &facts["error"]["line"]),
        (&json!("{\"a\": 1}\n"), &json!(2)),
        "{facts}"
    );
    assert!(
        text(&fixed).contains("added to the code: import json"),
        "{}",
        text(&fixed)
    );
}

#[test]
fn a_result_says_what_was_found_and_strict_refuses_it() {
    let mut server = Server::start();
    let code = "import pickle\nprint(pickle.loads(pickle.dumps(7)))\n";
    let told = server.call("execute_code", json!({"code": code}));
    let facts = &told["structuredContent"];
    assert_eq!(
        (&facts["success"], &facts["stdout"]),
        (&json!(true), &json!("7\n")),
        "{facts}"
    );
    assert!(
        rules(&facts["validation"]).contains(&"python.unsafe_load"),
        "{facts}"
    );
    assert!(text(&told).contains("advice: main.py:2: "), "{}", text(&told));
    let off = server.facts("execute_code", json!({"code": code, "validate": "off"}));
    assert_eq!(
        (&off["success"], &off["validation"]),
        (&json!(true), &Value::Null),
        "{off}"
    );
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
        assert!(
            text(&refused).contains("2 | print(pickle.loads(pickle.dumps(7)))\n"),
            "{tool}: {}",
            text(&refused)
        );
    }
}

#[test]
fn a_profile_forbids_a_module_before_the_run_and_the_operator_says_which_there_are() {
    let mut server = Server::start();
    let with = |profile: &str| json!({"code": "import os\nprint(os.getpid() > 0)\n", "profile": profile});
    let free = server.facts("execute_code", with("unrestricted"));
    assert_eq!(free["stdout"], "True\n", "{free}");
    let refused = server.call("execute_code", with("basic"));
    assert_eq!(refused["structuredContent"]["code"], "code_rejected", "{refused}");
    assert!(text(&refused).contains("1 | import os\n"), "{}", text(&refused));
    let allowed = server.facts(
        "execute_code",
        json!({"code": "import os\nprint(os.getpid() > 0)\n", "profile": "basic", "allowed_imports": ["os"]}),
    );
    assert_eq!(allowed["stdout"], "True\n", "{allowed}");
    let unknown = server.facts("execute_code", with("basik"));
    assert!(
        unknown["message"]
            .as_str()
            .unwrap()
            .contains("Did you mean `basic`?"),
        "{unknown}"
    );
    let info = server.facts("get_sandbox_info", json!({}));
    let profiles = &info["security_profiles"];
    assert_eq!(
        (
            &profiles["strict"]["enabled"],
            &profiles["unrestricted"]["modules"]
        ),
        (&json!(true), &json!([])),
        "{info}"
    );
    drop(server);
    let mut command = crate::client::ringfence(&["serve"]);
    command.env("RINGFENCE_CHECK_PROFILE", "basic");
    let mut server = Server::of(command);
    let refused = server.facts("execute_code", json!({"code": "import os"}));
    assert_eq!(refused["code"], "code_rejected", "{refused}");
    let refused = server.facts("execute_code", with("unrestricted"));
    assert_eq!(refused["code"], "policy_denied", "{refused}");
    let info = server.facts("get_sandbox_info", json!({}));
    assert_eq!(
        info["security_profiles"]["unrestricted"]["enabled"],
        json!(false),
        "{info}"
    );
}

#[test]
fn prompts_say_what_is_so_on_this_server() {
    let mut server = Server::start();
    let listed = server.ask("prompts/list", json!({}));
    let names: Vec<&str> = listed["result"]["prompts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|prompt| prompt["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["generate_secure_script", "diagnose_validation_error"]);
    let mut get = |name: &str, arguments: Value| {
        server.ask("prompts/get", json!({"name": name, "arguments": arguments}))
    };
    let said = |answer: &Value| {
        answer["result"]["messages"][0]["content"]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    };
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
    assert!(
        text.contains("error[python.syntax]") && text.contains("1 | print(1\n"),
        "{text}"
    );
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
fn json_is_held_against_a_schema_that_is_named_or_sent() {
    let mut server = Server::start();
    let schema = json!({"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}});
    let mut check = |data: Value| {
        server.call(
            "validate_json_data",
            json!({"data": data, "schema_name_or_dict": schema}),
        )
    };
    let good = check(json!({"id": 1}));
    assert_eq!(
        (
            &good["structuredContent"]["valid"],
            &good["structuredContent"]["schema"]
        ),
        (&json!(true), &json!("inline")),
        "{good}"
    );
    // As models send it: JSON in a string.
    assert_eq!(check(json!("{\"id\": 1}"))["structuredContent"]["valid"], true);
    let bad = check(json!("{\"id\": \"x\"}"));
    let error = &bad["structuredContent"]["errors"][0];
    assert_eq!(
        (
            &error["path"],
            &error["keyword"],
            &error["expected"],
            &error["actual"]
        ),
        (&json!("/id"), &json!("type"), &json!("integer"), &json!("x")),
        "{bad}"
    );
    assert!(text(&bad).contains(" --> data: /id\n"), "{}", text(&bad));
    let broken = check(json!("{\"id\": "));
    assert_eq!(
        broken["structuredContent"]["errors"][0]["keyword"], "syntax",
        "{broken}"
    );
    let schemas = server.ask("resources/read", json!({"uri": "sandbox://schemas"}));
    let listed: Value =
        serde_json::from_str(schemas["result"]["contents"][0]["text"].as_str().unwrap()).unwrap();
    let names: Vec<&str> = listed["schemas"]
        .as_array()
        .unwrap()
        .iter()
        .map(|schema| schema["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["config", "dataset", "user"]);
    let unknown = server.facts(
        "validate_json_data",
        json!({"data": {}, "schema_name_or_dict": "usr"}),
    );
    assert_eq!(unknown["code"], "not_found", "{unknown}");
    let missing = server.facts("validate_json_data", json!({"schema_name_or_dict": "user"}));
    assert!(
        missing["message"].as_str().unwrap().contains("`data`"),
        "{missing}"
    );
    let outside = server.facts(
        "validate_json_data",
        json!({"data": 1, "schema_name_or_dict": {"$ref": "http://127.0.0.1/x.json"}}),
    );
    assert_eq!(outside["code"], "invalid_argument", "{outside}");
}

#[test]
fn a_table_is_checked_by_row_and_column() {
    let mut server = Server::start();
    let answer = server.call(
        "validate_csv_data",
        json!({
            "csv_content": "name,age\nann,31\nbob,old\n", "required_headers": ["name", "id"],
            "type_constraints": {"age": "integer"},
        }),
    );
    let report = &answer["structuredContent"];
    assert_eq!(
        (&report["valid"], &report["row_count"], &report["missing_headers"]),
        (&json!(false), &json!(2), &json!(["id"])),
        "{report}"
    );
    let of_age = report["errors"]
        .as_array()
        .unwrap()
        .iter()
        .find(|error| error["column"] == "age");
    assert_eq!(of_age.unwrap()["row"], 2, "{report}");
    assert!(text(&answer).contains("row 2, column `age`"), "{}", text(&answer));
    let refused = server.facts(
        "validate_csv_data",
        json!({"csv_content": "a\n1\n", "delimiter": ",,"}),
    );
    assert_eq!(refused["code"], "invalid_argument", "{refused}");
}
