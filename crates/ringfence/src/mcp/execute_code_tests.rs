//! Tests of a tool call's arguments, valid and hostile, and of its answer.

use super::*;
use crate::{
    api::{self, conforms},
    mcp::tests::offer,
    settings::Namespaces,
};
use ringfence_types::{
    Display, ErrorCode, Exit, ExitKind, Isolation, Lossy, Phases, ProgramError, Requirement, ResourceUsage,
    Tier, Truncated,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const TEXT_MAX: usize = 8192;

fn answer(result: &ExecutionResult) -> Result<Answer, RequestError> {
    super::answer(result, [0; 2], &offer())
}

fn read(arguments: Value) -> Result<ExecuteRequest, RequestError> {
    let arguments = arguments.as_object().unwrap().clone();
    let (given, namespace) = api::read::<ExecuteCode>(arguments, &Namespaces::CallerChooses)?;
    request(given, namespace, &offer(), |_, _| Ok(Language::Shell))
}

fn with(name: &str, value: Value) -> Result<ExecuteRequest, RequestError> {
    read(json!({"code": "1", name: value}))
}

#[test]
fn full_request_is_read() {
    let request = read(json!({
        "code": "print(1)", "language": "js", "timeout": 1.5, "env_vars": {"A": "b"}, "args": ["x"], "stdin": "in",
        "files": [{"path": "a/b.txt", "text": "é"}, {"path": "c.bin", "base64": "AAEC"}], "capture_output": false,
        "memory_limit": "1g", "resource_limits": {"max_cpu_cores": 0.5, "max_processes": 9, "max_disk_mb": 7},
        "namespace": "team", "profile": "unrestricted", "use_container": false, "backend": "native", "validate": "off",
        "allowed_imports": [], "session_id": null, "packages": ["lodash@4"],
    }))
    .unwrap();
    assert_eq!(request.language, Language::Node);
    assert_eq!(request.namespace.as_str(), "team");
    assert_eq!(request.files[1].bytes, [0, 1, 2]);
    assert_eq!(request.stdin, b"in");
    assert!(request.packages.iter().map(Requirement::as_str).eq(["lodash@4"]));
    assert!(!request.capture_output);
    let limits = &request.limits;
    assert_eq!(
        (limits.timeout_ms, limits.max_ram_mb, limits.max_cpu_cores),
        (Some(1500), Some(1024), Some(0.5))
    );
    assert_eq!(
        (limits.max_processes, limits.max_disk_mb, limits.max_output_bytes),
        (Some(9), Some(7), None)
    );
}

#[test]
fn code_alone_is_a_full_request() {
    let request = read(json!({"code": "1"})).unwrap();
    assert_eq!(
        (request.language, request.capture_output),
        (Language::Python, true)
    );
    assert_eq!(request.namespace.as_str(), "default");
    assert_eq!(request.limits, LimitsRequest::default());
}

#[test]
fn session_call_has_the_session_language_by_default() {
    let id = "0190b8f0-5c1e-7000-8000-00000000abcd";
    let read = |more: Value| {
        let mut arguments = json!({"code": "1", "session_id": id});
        arguments
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        read(arguments)
    };
    let request = read(json!({})).unwrap();
    assert_eq!(
        (request.language, request.session.unwrap().as_str()),
        (Language::Shell, id)
    );
    assert_eq!(
        read(json!({"language": "node"})).unwrap().language,
        Language::Node
    );
    assert!(
        with("session_id", json!("s"))
            .unwrap_err()
            .message
            .contains("session_id")
    );
    for of_the_session in [
        json!({"secrets": ["A"]}),
        json!({"workspace": "namespace"}),
        json!({"memory_limit": "1g"}),
    ] {
        let error = read(of_the_session).unwrap_err();
        assert!(error.hint.contains("create_session"), "{error}");
    }
}

#[test]
fn container_is_requested_by_either_argument() {
    let backend_of = |given: Value| read(given).map(|request| request.backend);
    assert_eq!(backend_of(json!({"code": "1"})).unwrap(), None);
    assert_eq!(
        backend_of(json!({"code": "1", "use_container": false})).unwrap(),
        None
    );
    let container = backend_of(json!({"code": "1", "use_container": true})).unwrap();
    assert_eq!(container, Some(Backend::Docker));
    let gvisor = backend_of(json!({"code": "1", "use_container": true, "backend": "gvisor"})).unwrap();
    assert_eq!(gvisor, Some(Backend::Gvisor));
    let both = backend_of(json!({"code": "1", "use_container": true, "backend": "native"})).unwrap_err();
    assert!(both.message.contains("use_container"), "{both}");
    let unknown = with("backend", json!("firecracker")).unwrap_err();
    assert!(unknown.message.contains("firecracker"), "{unknown}");
}

#[test]
fn code_is_validated_by_default() {
    assert_eq!(read(json!({"code": "1"})).unwrap().validate, Validate::Warn);
    let request = read(json!({
        "code": "1", "validate": "strict", "profile": "basic", "allowed_imports": ["yaml", "os.path"],
    }))
    .unwrap();
    assert_eq!(request.validate, Validate::Strict);
    assert_eq!(request.profile, Some(Profile::Basic));
    assert_eq!(request.allowed_imports.unwrap().len(), 2);
    let error = with("profile", json!("basick")).unwrap_err();
    assert!(error.message.contains("Did you mean `basic`?"), "{error}");
    let given = json!({"code": "1"}).as_object().unwrap().clone();
    let (given, namespace) = api::read::<RunSandboxCode>(given, &Namespaces::Fixed).unwrap();
    let strict = short_request(given, namespace, &offer()).unwrap();
    assert_eq!(strict.validate, Validate::Strict);
    assert_eq!(strict.profile, Some(Profile::Strict));
}

#[test]
fn findings_are_one_line_of_a_result_and_frames_of_a_refusal() {
    use crate::render::diagnostics::tests::{issue, validation};
    use ringfence_types::Severity;
    let code = "a = 1\neval(input())\n";
    let mut failing = result();
    failing.validation = Some(validation(vec![
        issue((1, 1), (1, 2), Severity::Info),
        issue((2, 1), (2, 5), Severity::Warning),
    ]));
    conforms::<ExecuteCode>(&answer(&failing).unwrap().structured);
    let text = answer(&failing).unwrap().text;
    assert_eq!(text.matches("advice: main.py:2: ").count(), 1, "{text}");
    assert!(!text.contains("main.py:1") && !text.contains(" more"), "{text}");
    let mut error = RequestError::new(ErrorCode::CodeRejected, "refused.", "mend it.");
    assert_eq!(validate::below(&error, Language::Python, code), "");
    error.validation = failing.validation.map(Box::new);
    let below = validate::below(&error, Language::Python, code);
    assert!(
        below.contains("main.py:1:1") && below.contains("main.py:2:1"),
        "{below}"
    );
}

#[test]
fn unknown_names_are_refused_with_a_suggestion() {
    let check = |arguments: Value, near: &str| {
        let error = read(arguments).unwrap_err();
        assert_eq!(error.code, ErrorCode::UnknownArgument, "{error}");
        assert!(
            error.message.contains(&format!("Did you mean `{near}`?")),
            "{error}"
        );
    };
    check(json!({"code": "1", "langage": "python"}), "language");
    check(
        json!({"code": "1", "resource_limits": {"max_ram": 5}}),
        "max_ram_mb",
    );
    check(
        json!({"code": "1", "files": [{"path": "a", "texd": "x"}]}),
        "text",
    );
}

#[test]
fn malformed_values_are_refused() {
    let check = |name: &str, value: Value| {
        let error = with(name, value.clone()).unwrap_err();
        assert_eq!(
            error.code,
            ErrorCode::InvalidArgument,
            "{name} = {value}: {error}"
        );
    };
    assert_eq!(read(json!({})).unwrap_err().code, ErrorCode::InvalidArgument);
    check("code", json!(""));
    check("code", json!(5));
    check("code", json!("a\0b"));
    check("code", json!("x".repeat(CODE_TOO_LONG)));
    check("language", json!("pyton"));
    check("timeout_seconds", json!(0));
    check("timeout_seconds", json!(-1));
    check("timeout_seconds", json!(1e300));
    check("timeout_seconds", json!("60"));
    check("files", json!("x"));
    check("files", json!([5]));
    check("files", json!([{"path": "a"}]));
    check("files", json!([{"text": "a"}]));
    check("files", json!([{"path": "a", "text": "x", "base64": "AA=="}]));
    check("files", json!([{"path": "a", "base64": "AA"}]));
    check("files", json!([{"path": "a", "base64": "A A="}]));
    check("files", json!([{"path": "a", "base64": "AB=="}]));
    check("files", json!([{"path": "../a", "text": "x"}]));
    check("files", json!([{"path": "/etc/passwd", "text": "x"}]));
    check(
        "files",
        json!([{"path": "a", "text": "x"}, {"path": "a", "text": "y"}]),
    );
    check("env", json!({"1A": "x"}));
    check("env", json!({"A": 1}));
    check("env", json!({"RINGFENCE_X": "x"}));
    check("args", json!(["a", 1]));
    check("args", json!(["a\0"]));
    check("memory_limit", json!("lots"));
    check("resource_limits", json!({"max_ram_mb": -1}));
    check("resource_limits", json!({"max_processes": 1.5}));
    check("resource_limits", json!([]));
    check("capture_output", json!("yes"));
    check("namespace", json!("../x"));
}

const CODE_TOO_LONG: usize = ringfence_types::CODE_BYTES_MAX + 1;

#[test]
fn timeout_over_the_cap_is_refused_with_the_cap() {
    let error = with("timeout_seconds", json!(3601)).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArgument);
    assert!(error.message.contains("3600"), "{error}");
    assert!(with("timeout_seconds", json!(3600)).is_ok());
}

#[test]
fn duplicate_arguments_must_agree() {
    let check =
        |arguments: Value, good: bool| assert_eq!(read(arguments.clone()).is_ok(), good, "{arguments}");
    check(json!({"code": "1", "timeout": 5, "timeout_seconds": 5}), false);
    check(json!({"code": "1", "env": {}, "env_vars": {}}), false);
    check(
        json!({"code": "1", "timeout_seconds": 5, "resource_limits": {"timeout_seconds": 5}}),
        true,
    );
    check(
        json!({"code": "1", "timeout_seconds": 5, "resource_limits": {"timeout_seconds": 6}}),
        false,
    );
    check(
        json!({"code": "1", "memory_limit": "1g", "resource_limits": {"max_ram_mb": 1024}}),
        true,
    );
    check(
        json!({"code": "1", "memory_limit": "1g", "resource_limits": {"max_ram_mb": 512}}),
        false,
    );
}

fn result() -> ExecutionResult {
    ExecutionResult {
        execution_id: "id".into(),
        request_id: "id".into(),
        namespace: "default".into(),
        session_id: None,
        session_ended: None,
        language: Language::Python,
        backend: "native".into(),
        success: false,
        exit: Exit {
            kind: ExitKind::Code,
            code: Some(1),
            signal: None,
            limit: None,
        },
        exit_code: 1,
        stdout: "out\n".into(),
        stderr: String::new(),
        stdout_bytes: 4,
        stderr_bytes: 0,
        truncated: Truncated::default(),
        lossy: Lossy::default(),
        result: Some(json!({"a": [1]})),
        result_repr: Some("{'a': [1]}".into()),
        display: vec![
            Display {
                mime: "image/png".into(),
                artifact: Some("a.png".into()),
                text: None,
            },
            Display {
                mime: "text/html".into(),
                artifact: None,
                text: Some("<b>".into()),
            },
        ],
        variables: vec!["x".into()],
        error: Some(ProgramError {
            kind: "ValueError".into(),
            message: "no".into(),
            traceback: "Traceback".into(),
            line: Some(3),
        }),
        artifacts: vec![Artifact {
            signature: Some("c2ln".into()),
            uri: Some("sandbox://artifacts/id/a.png".into()),
            name: "a.png".into(),
            size_bytes: 3,
            sha256: "00".into(),
            mime: "image/png".into(),
            content_b64: Some("AAEC".into()),
        }],
        duration_ms: 12.4,
        phases: Phases::default(),
        resource_usage: ResourceUsage::default(),
        isolation: Isolation::new(Tier::Full, BTreeMap::new()),
        denials: Vec::new(),
        security_events: Vec::new(),
        validation: None,
    }
}

#[test]
fn result_matches_its_schema() {
    conforms::<ExecuteCode>(&answer(&result()).unwrap().structured);
    let silent = ExecutionResult {
        result: None,
        result_repr: None,
        error: None,
        artifacts: Vec::new(),
        exit: Exit {
            kind: ExitKind::OutOfMemory,
            code: None,
            signal: Some(9),
            limit: Some("memory".into()),
        },
        ..result()
    };
    conforms::<ExecuteCode>(&answer(&silent).unwrap().structured);
}

#[test]
fn text_has_ending_output_value_error_and_artifacts() {
    let text = answer(&result()).unwrap().text;
    assert_eq!(
        text,
        "python failed with exit code 1 after 12 ms, isolation full\nexecution_id: id\n\nstdout:\nout\n\nresult: {'a': [1]}\n\nerror: \
         ValueError: no (line 3)\nartifact: sandbox://artifacts/id/a.png (image/png, 3 bytes)"
    );
    let lines: String = (0..5000).map(|number| format!("line {number}\n")).collect();
    let long = ExecutionResult {
        stdout: lines.clone(),
        stderr: "é".repeat(TEXT_MAX),
        truncated: Truncated {
            stdout: true,
            stderr: false,
        },
        ..result()
    };
    let text = answer(&long).unwrap().text;
    assert!(text.len() <= TEXT_MAX, "{}", text.len());
    let mut longest = long.clone();
    longest.result_repr = Some("x".repeat(TEXT_MAX));
    longest.error.as_mut().unwrap().message = "m".repeat(TEXT_MAX);
    for text_max in [2048, TEXT_MAX] {
        let offer = Offer { text_max, ..offer() };
        let text = super::answer(&longest, [0; 2], &offer).unwrap().text;
        assert!(text.len() <= text_max && text.ends_with("3 bytes)"), "{text}");
    }
    let (first, rest) = text.split_once("\n[... ").unwrap();
    let (between, rest) = rest.split_once(" bytes between").unwrap();
    let last = rest
        .split_once("]\n")
        .unwrap()
        .1
        .split_once("\n[stdout has")
        .unwrap()
        .0;
    let first = first.split_once("stdout:\n").unwrap().1;
    assert!(
        lines.starts_with(first) && lines.ends_with(&format!("{last}\n")),
        "{text}"
    );
    let accounted = first.len() + 1 + between.parse::<usize>().unwrap() + last.len() + 1;
    assert_eq!(accounted, lines.len());
    assert!(
        text.ends_with("artifact: sandbox://artifacts/id/a.png (image/png, 3 bytes)"),
        "{text}"
    );
    // Whole, though secrets taken out of it have made it shorter than what was written.
    let redacted = ExecutionResult {
        stdout_bytes: 4000,
        ..result()
    };
    assert_eq!(answer(&redacted).unwrap().text, answer(&result()).unwrap().text);
}

#[test]
fn error_is_shown_once_without_library_frames() {
    let traceback = "Traceback (most recent call last):\n  File \"main.py\", line 3, in <module>\n    f()\n  File \
                     \"/usr/lib/python3.11/a.py\", line 1, in f\n  File \"/usr/lib/python3.11/b.py\", line 2, in g\n\
                     ValueError: no\n";
    let mut failing = result();
    failing.stderr = format!("warning\n{traceback}");
    failing.error.as_mut().unwrap().traceback = traceback.to_owned();
    let text = answer(&failing).unwrap().text;
    assert_eq!(text.matches("ValueError: no").count(), 1, "{text}");
    assert!(
        text.contains("stderr:\nwarning\n") && text.contains("... 2 frames in a, b\nValueError"),
        "{text}"
    );
    // Node.js writes more than its error says.
    failing.stderr = "main.js:1\n^\nValueError: no\n    at f (main.js:1:1)\n".to_owned();
    let text = answer(&failing).unwrap().text;
    assert_eq!(text.matches("ValueError: no").count(), 1, "{text}");
}

#[test]
fn many_artifacts_are_listed_as_ten_and_a_count() {
    let mut many = result();
    many.artifacts = vec![many.artifacts.remove(0); 3000];
    let text = answer(&many).unwrap().text;
    assert_eq!(text.matches("\nartifact: ").count(), 10);
    assert!(
        text.contains("and 2990 more artifacts, 3000 in all; next: get_artifacts {\"request_id\": \"id\"}"),
        "{text}"
    );
}

#[test]
fn each_next_step_is_a_separate_line_that_suits_the_called_tool() {
    let mut failing = result();
    let error = failing.error.as_mut().unwrap();
    (error.kind, error.message) = ("ModuleNotFoundError".into(), "No module named 'x'".into());
    failing.stderr = error.to_string();
    failing.denials = vec![ringfence_types::Denial {
        rule: "egress.unreachable".into(),
        layer: "egress".into(),
        what: "a.example:80 was not reached".into(),
        hint: String::new(),
    }];
    let text = answer(&failing).unwrap().text;
    assert!(text.contains("\nnext: name the package"), "{text}");
    let refused = "\nrefused: egress.unreachable: a.example:80 was not reached\nartifact: ";
    assert!(text.contains(refused), "{text}");
    failing.artifacts = vec![failing.artifacts.remove(0); 10];
    for artifact in &mut failing.artifacts {
        artifact.uri = Some("%C3%BC".repeat(250));
    }
    assert!(answer(&failing).unwrap().text.contains(refused), "long names");
    let check = |hint: &str, expect: &str| {
        let mut hint = hint.to_owned();
        for_short_request(&mut hint);
        assert_eq!(hint, expect);
    };
    check(
        "next: execute_code {timeout_seconds: 2}",
        "next: execute_code {workspace: \"namespace\", timeout_seconds: 2}",
    );
    check(
        "The profile `data_science` has `pandas`; or add it alone by `allowed_imports: [\"pandas\"]`.",
        "next: execute_code {workspace: \"namespace\", code: ...} has no such profile.",
    );
    check("Keep files in the workspace.", "Keep files in the workspace.");
}

#[test]
fn value_that_is_not_json_is_marked() {
    let mut failing = result();
    failing.result = None;
    assert!(
        answer(&failing)
            .unwrap()
            .text
            .contains("result: {'a': [1]} [its repr")
    );
    failing.result_repr = Some("x".repeat(64 << 10));
    assert!(
        answer(&failing)
            .unwrap()
            .text
            .contains("[the beginning of its repr")
    );
}

#[test]
fn displayed_pictures_come_first() {
    let artifact = |name: &str, mime: &str| Artifact {
        name: name.into(),
        mime: mime.into(),
        ..result().artifacts.remove(0)
    };
    let show = |name: &str| Display {
        mime: "image/png".into(),
        artifact: Some(name.into()),
        text: None,
    };
    let result = ExecutionResult {
        artifacts: vec![
            artifact("1.png", "image/png"),
            artifact("2.svg", "image/svg+xml"),
            artifact("3.webp", "image/webp"),
            artifact("output/figure-1.png", "image/png"),
            artifact("output/figure-1.png.txt", "text/plain"),
        ],
        display: vec![show("output/figure-1.png"), show("gone.png")],
        ..result()
    };
    let names: Vec<&str> = picture_artifacts(&result)
        .iter()
        .map(|artifact| artifact.name.as_str())
        .collect();
    assert_eq!(names, ["output/figure-1.png", "1.png", "3.webp"]);
}

#[test]
fn missing_module_of_a_package_has_a_next_step() {
    let check = |kind: &str, message: &str, expect: bool| {
        let mut result = result();
        result.error = Some(ProgramError {
            kind: kind.into(),
            message: message.into(),
            traceback: String::new(),
            line: None,
        });
        assert_eq!(
            answer(&result).unwrap().text.contains("in `packages`"),
            expect,
            "{message}"
        );
    };
    check("ModuleNotFoundError", "No module named 'numpy'", true);
    check("Error", "Cannot find module 'lodash'\nRequire stack:", true);
    check(
        "Error",
        "Cannot find package '@scope/x' imported from /code/main.mjs",
        true,
    );
    check("Error", "Cannot find module './own'", false);
    check("ValueError", "no", false);
}

#[test]
fn npm_style_package_name_gets_a_language_hint() {
    let hint = |name: &str| {
        let refused = requirements(Language::Python, &[name.to_owned()]);
        refused.unwrap_err().hint
    };
    assert!(hint("lodash@4").contains("language node"));
    assert!(!hint("https://x/y.whl").contains("language node"));
}
