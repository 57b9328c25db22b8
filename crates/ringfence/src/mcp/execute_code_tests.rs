//! A tool call's arguments, good and hostile; and what an answer says.

use super::*;
use crate::{
    mcp::schemas::{self, tests::conforms},
    settings::{Namespaces, Toolset},
};
use ringfence_engine::{EgressPolicy, PackagePolicy, PolicySettings};
use ringfence_types::{Display, Exit, Isolation, Limits, Lossy, Phases, ResourceUsage, Tier, Truncated};
use serde_json::json;

pub(in crate::mcp) fn offer() -> Offer {
    let defaults = Limits {
        memory_bytes: 512 << 20,
        cpu_millicores: 1000,
        timeout_ms: 60_000,
        processes: 64,
        output_bytes: 1_000_000,
        disk_bytes: 512 << 20,
    };
    let caps = Limits {
        memory_bytes: 8192 << 20,
        cpu_millicores: 4000,
        timeout_ms: 3_600_000,
        processes: 1024,
        output_bytes: 64 << 20,
        disk_bytes: 16384 << 20,
    };
    let secrets = Vec::new();
    let policy = PolicySettings {
        defaults,
        caps,
        secrets,
        workspaces: Vec::new(),
        check: ringfence_engine::CheckSettings {
            profile: ringfence_types::Profile::Unrestricted,
            profiles: ringfence_types::Profile::ALL.iter().copied().collect(),
            allowed_imports: Default::default(),
            known_imports: Default::default(),
            schemas: Default::default(),
        },
        egress: EgressPolicy {
            secrets: Vec::new(),
            tier: Tier::Full,
            allow: Vec::new(),
            on_denied: ringfence_engine::OnDenied::Deny,
        },
        packages: PackagePolicy {
            enabled: true,
            allow: vec!["*".to_owned()],
            timeout: Duration::from_secs(300),
            bytes_max: 1 << 30,
            hosts: Vec::new(),
        },
    };
    Offer {
        toolsets: vec![
            Toolset::Execute,
            Toolset::Sessions,
            Toolset::Snapshots,
            Toolset::Data,
            Toolset::Observe,
            Toolset::Vault,
        ],
        namespaces: Namespaces::CallerChooses,
        policy: tokio::sync::watch::channel(policy).1,
    }
}

fn read(arguments: Value) -> Result<ExecuteRequest, RequestError> {
    let Value::Object(arguments) = arguments else {
        panic!("an object")
    };
    parse(arguments, &offer(), |_, _| Ok(Language::Shell))
}

fn with(name: &str, value: Value) -> Result<ExecuteRequest, RequestError> {
    read(json!({"code": "1", name: value}))
}

#[test]
fn a_full_request_is_read() {
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
fn little_is_enough() {
    let request = read(json!({"code": "1"})).unwrap();
    assert_eq!(
        (request.language, request.capture_output),
        (Language::Python, true)
    );
    assert_eq!(request.namespace.as_str(), "default");
    assert_eq!(request.limits, LimitsRequest::default());
}

#[test]
fn a_call_of_a_session_speaks_its_language_unless_another_is_named() {
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
fn what_does_not_exist_yet_is_refused_by_name() {
    let check = |name: &str, value: Value| {
        let error = with(name, value).unwrap_err();
        assert_eq!(error.code, ErrorCode::UnsupportedArgument, "{name}: {error}");
        assert!(error.message.contains(name) && !error.hint.is_empty(), "{error}");
    };
    check("use_container", json!(true));
    check("backend", json!("docker"));
}

#[test]
fn code_is_looked_at_unless_the_caller_says_otherwise() {
    assert_eq!(read(json!({"code": "1"})).unwrap().validate, Validate::Warn);
    let request = read(json!({
        "code": "1", "validate": "strict", "profile": "basic", "allowed_imports": ["yaml", "os.path"],
    }))
    .unwrap();
    assert_eq!(request.validate, Validate::Strict);
    assert_eq!(request.profile, Some(ringfence_types::Profile::Basic));
    assert_eq!(request.allowed_imports.unwrap().len(), 2);
    let error = with("profile", json!("basick")).unwrap_err();
    assert!(error.message.contains("Did you mean `basic`?"), "{error}");
    let strict =
        super::super::run_sandbox_code::parse(json!({"code": "1"}).as_object().unwrap().clone(), &offer());
    assert_eq!(strict.unwrap().validate, Validate::Strict);
}

#[test]
fn what_was_found_stands_below_what_the_program_did_and_a_refusal_has_the_frames() {
    use crate::frames::tests::{issue, validation};
    use ringfence_types::Severity;
    let code = "a = 1\neval(input())\n";
    let mut told = result();
    told.validation = Some(validation(vec![
        issue((1, 1), (1, 2), Severity::Info),
        issue((2, 1), (2, 5), Severity::Warning),
    ]));
    conforms(&schemas::execution_result(), &answer(&told).unwrap().structured);
    let text = advice(&told, code);
    assert!(
        text.contains("main.py:2:1") && text.contains("2 | eval(input())\n  | ^^^^"),
        "{text}"
    );
    assert!(
        !text.contains("main.py:1:1") && !text.contains("more findings"),
        "{text}"
    );
    let mut error = RequestError::new(ErrorCode::CodeRejected, "refused.", "mend it.");
    assert_eq!(super::super::validate::below(&error, Language::Python, code), "");
    error.validation = told.validation.map(Box::new);
    let below = super::super::validate::below(&error, Language::Python, code);
    assert!(
        below.contains("main.py:1:1") && below.contains("main.py:2:1"),
        "{below}"
    );
}

#[test]
fn unknown_names_are_refused_with_the_nearest() {
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
        json!({"code": "1", "files": [{"path": "a", "tekst": "x"}]}),
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
fn a_timeout_over_the_cap_names_the_cap() {
    let error = with("timeout_seconds", json!(3601)).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArgument);
    assert!(error.message.contains("3600"), "{error}");
    assert!(with("timeout_seconds", json!(3600)).is_ok());
}

#[test]
fn saying_one_thing_in_two_ways_must_agree() {
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

#[test]
fn every_name_that_is_accepted_is_in_the_schema_and_the_other_way_round() {
    let schema = schemas::execute_code(&offer());
    let mut offered: Vec<&str> = schema["properties"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let mut accepted: Vec<&str> = KNOWN
        .iter()
        .flat_map(|(name, aliases)| [*name].into_iter().chain(aliases.iter().copied()))
        .collect();
    offered.sort_unstable();
    accepted.sort_unstable();
    assert_eq!(offered, accepted);
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
            uri: None,
            name: "a.png".into(),
            size_bytes: 3,
            sha256: "00".into(),
            mime: "image/png".into(),
            content_b64: Some("AAEC".into()),
        }],
        duration_ms: 12.4,
        phases: Phases::default(),
        resource_usage: ResourceUsage::default(),
        isolation: Isolation {
            tier: Tier::Full,
            layers: BTreeMap::new(),
        },
        denials: Vec::new(),
        security_events: Vec::new(),
        validation: None,
    }
}

#[test]
fn a_result_is_as_its_schema_says() {
    conforms(
        &schemas::execution_result(),
        &answer(&result()).unwrap().structured,
    );
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
    conforms(&schemas::execution_result(), &answer(&silent).unwrap().structured);
}

#[test]
fn the_text_says_what_a_person_wants_to_know() {
    let text = answer(&result()).unwrap().text;
    assert_eq!(
        text,
        "python failed with exit code 1 after 12 ms, isolation full\nexecution_id: id\n\nstdout:\nout\n\nresult: {'a': [1]}\n\nerror: \
         ValueError: no (line 3)\nartifact: a.png (image/png, 3 bytes)"
    );
    let long = ExecutionResult {
        stdout: "é".repeat(SHOWN_BYTES_MAX),
        stdout_bytes: 5_000_000,
        ..result()
    };
    let text = answer(&long).unwrap().text;
    assert!(text.len() < SHOWN_BYTES_MAX + 1000 && text.contains("of 5000000 bytes shown"));
}

#[test]
fn pictures_that_the_program_shows_come_first() {
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
    let names: Vec<&str> = picturesque(&result)
        .iter()
        .map(|artifact| artifact.name.as_str())
        .collect();
    assert_eq!(names, ["output/figure-1.png", "1.png", "3.webp"]);
}

#[test]
fn an_error_is_one_line_that_says_nothing_twice() {
    let check = |kind: &str, message: &str, line: Option<u32>, expect: &str| {
        let (kind, message) = (kind.to_owned(), message.to_owned());
        let traceback = String::new();
        assert_eq!(
            shown(&ProgramError {
                kind,
                message,
                traceback,
                line
            }),
            expect
        );
    };
    check("ValueError", "no", Some(3), "ValueError: no (line 3)");
    check("ValueError", "no", None, "ValueError: no");
    check("KeyboardInterrupt", "", Some(1), "KeyboardInterrupt (line 1)");
    let told = "invalid syntax (call-7.py, line 1)";
    check(
        "SyntaxError",
        told,
        Some(1),
        "SyntaxError: invalid syntax (call-7.py, line 1)",
    );
    check(
        "KeyError",
        told,
        Some(12),
        "KeyError: invalid syntax (call-7.py, line 1) (line 12)",
    );
}

#[test]
fn a_module_that_is_missing_and_may_be_a_packages_has_its_next_step() {
    let check = |kind: &str, message: &str, expect: bool| {
        let mut result = result();
        result.error = Some(ProgramError {
            kind: kind.into(),
            message: message.into(),
            traceback: String::new(),
            line: None,
        });
        assert_eq!(text(&result).contains("in `packages`"), expect, "{message}");
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
fn a_package_that_is_named_as_npm_does_is_told_its_language() {
    let hint = |name: &str| {
        let refused = requirements(Language::Python, &[name.to_owned()]);
        refused.unwrap_err().hint
    };
    assert!(hint("lodash@4").contains("language node"));
    assert!(!hint("https://x/y.whl").contains("language node"));
}
