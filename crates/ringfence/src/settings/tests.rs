//! The layers together: precedence, provenance, caps, and files on disk.

use super::*;
use ringfence_types::Profile;
use std::fs;

fn environment(variables: &[(&str, &str)]) -> Environment {
    Environment::of(variables.iter().copied())
}

fn flags(config: Option<&Path>) -> Flags {
    Flags {
        config: config.map(Path::to_owned),
        layer: Layer::default(),
        log: LogLevel::Info,
    }
}

fn refused(variables: &[(&str, &str)], file: Option<&Path>) -> RequestError {
    load(&environment(variables), flags(file)).unwrap_err()
}

struct TextFile(PathBuf);

impl TextFile {
    fn new(name: &str, text: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("ringfence-settings-{name}-{}.yaml", std::process::id()));
        fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for TextFile {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

fn origin(config: &Config, path: &str) -> (String, String) {
    let rows = config.effective.rows();
    let row = rows.iter().find(|row| row.path == path).unwrap();
    (row.value.to_string(), row.origin.to_string())
}

#[test]
fn settings_that_need_a_restart_stay_as_they_are_in_a_changed_configuration() {
    let started = load(&environment(&[]), flags(None)).unwrap();
    let text = "caps:\n  ram_mb: 1024\nfloor: container\ncontainers:\n  enabled: true\nweb:\n  allow: [a.example]\n\
                egress:\n  on_denied: ask\n";
    let file = TextFile::new("restart", text);
    let mut next = load(&environment(&[]), flags(Some(&file.0))).unwrap();
    let before = next.clone();
    next.keep_fixed(&started);
    let [started, before, next] = [started, before, next].map(|config| config.engine.policy);
    assert_eq!(next.caps.memory_bytes, 1 << 30);
    assert_ne!(before.backends, started.backends, "the control");
    assert_eq!(next.backends, started.backends);
    assert_eq!(
        (before.web.allow.len(), next.web.allow.len()),
        (1, started.web.allow.len())
    );
    assert_eq!(next.egress.tier, started.egress.tier);
    assert_ne!(next.web.on_denied, started.web.on_denied, "it needs no restart");
}

#[test]
fn flag_overrides_environment_overrides_file_overrides_default() {
    let file = TextFile::new(
        "precedence",
        "limits:\n  ram_mb: 100\n  disk_mb: 100\n  processes: 100\n",
    );
    let environment = environment(&[
        ("RINGFENCE_LIMITS_RAM_MB", "200"),
        ("RINGFENCE_LIMITS_DISK_MB", "200"),
    ]);
    let mut flags = flags(Some(&file.0));
    flags
        .layer
        .set("limits.ram_mb", "300", Origin::Flag("--x"))
        .unwrap();
    let config = load(&environment, flags).unwrap();
    assert_eq!(
        origin(&config, "limits.ram_mb"),
        ("300".into(), "flag --x".into())
    );
    assert_eq!(
        origin(&config, "limits.disk_mb"),
        ("200".into(), "environment RINGFENCE_LIMITS_DISK_MB".into())
    );
    assert_eq!(
        origin(&config, "limits.processes"),
        ("100".into(), format!("{}:4", file.0.display()))
    );
    assert_eq!(
        origin(&config, "limits.timeout_seconds"),
        ("60".into(), "default".into())
    );
    let limits = &config.engine.policy.defaults;
    assert_eq!(
        (limits.memory_bytes, limits.disk_bytes, limits.processes),
        (300 << 20, 200 << 20, 100)
    );
    assert_eq!(limits.timeout_ms, 60_000);
}

#[test]
fn default_backend_below_the_floor_is_refused() {
    let backend = ("RINGFENCE_BACKEND", "docker");
    let error = refused(&[backend], None);
    assert!(error.message.contains("the floor is `full`"), "{error:?}");
    assert!(error.hint.contains("`floor: container`"), "{error:?}");
    load(
        &environment(&[backend, ("RINGFENCE_FLOOR", "container")]),
        flags(None),
    )
    .unwrap();
}

#[test]
fn defaults_match_the_documented_contract() {
    let config = load(&environment(&[]), flags(None)).unwrap();
    let (limits, caps) = (&config.engine.policy.defaults, &config.engine.policy.caps);
    assert_eq!((limits.memory_bytes, caps.memory_bytes), (512 << 20, 8192 << 20));
    assert_eq!(
        (limits.cpu_millicores, u64::from(caps.cpu_millicores)),
        (1000, cores() * 1000)
    );
    assert_eq!((limits.timeout_ms, caps.timeout_ms), (60_000, 3_600_000));
    assert_eq!((limits.processes, caps.processes), (64, 1024));
    assert_eq!((limits.output_bytes, caps.output_bytes), (1_000_000, 64 << 20));
    assert_eq!((limits.disk_bytes, caps.disk_bytes), (512 << 20, 16384 << 20));
    assert_eq!(config.engine.queue.concurrency as u64, 16 * cores());
    assert_eq!(config.engine.queue.waiting, 256);
    assert_eq!(config.floor, Tier::Full);
    assert_eq!(config.namespaces, Namespaces::CallerChooses);
}

#[test]
fn default_texts_match_the_effective_defaults() {
    let config = load(&environment(&[]), flags(None)).unwrap();
    for (key, row) in keys::KEYS.iter().zip(config.effective.rows()) {
        let Some(text) = key.default else { continue };
        let expect = match key.path {
            "toolsets" => {
                r#"["execute","sessions","snapshots","data","observe","vault","egress","web"]"#.to_owned()
            }
            "check.profiles" => {
                r#"["unrestricted","basic","data_science","network","filesystem","strict"]"#.to_owned()
            }
            _ => serde_json::from_str::<serde_json::Value>(text)
                .unwrap_or_else(|_| text.into())
                .to_string(),
        };
        assert_eq!(row.value.to_string(), expect, "{}", key.path);
    }
}

#[test]
fn limit_above_its_cap_is_refused_with_both_origins() {
    let file = TextFile::new("caps", "caps:\n  ram_mb: 256\n");
    let error = refused(&[("RINGFENCE_LIMITS_RAM_MB", "512")], Some(&file.0));
    assert!(
        error.message.contains("RINGFENCE_LIMITS_RAM_MB") && error.message.contains(":2"),
        "{error}"
    );
    // The default of 512 was not set by the operator: the cap lowers it.
    let config = load(&environment(&[]), flags(Some(&file.0))).unwrap();
    assert_eq!(config.engine.policy.defaults.memory_bytes, 256 << 20);
}

#[test]
fn all_faults_are_reported_together() {
    let file = TextFile::new(
        "all-faults",
        "flor: full\nlimits:\n  ram_mb: 0\n  disk_mb: 300\n  processes: 9\ncaps:\n  disk_mb: 200\n  processes: 8\n\
         toolsets: [host]\nworkspaces:\n  a: {path: /nonexistent/a, mode: ro}\n  b: {path: /nonexistent/b, mode: ro}\n\
         check:\n  schemas:\n    x: /nonexistent/x.json\nhttp:\n  tls_cert: /x\n",
    );
    let variables = environment(&[
        ("RINGFENCE_LOG", "loud"),
        ("SANDBOX_TIMEOUT", "30"),
        ("SANDBOXMCP_TIMEOUT", "31"),
    ]);
    let faults = check(&variables, flags(Some(&file.0))).unwrap_err();
    let messages: Vec<&str> = faults.iter().map(|fault| fault.message.as_str()).collect();
    let expect = [
        "`flor`",
        "`ram_mb`",
        "RINGFENCE_LOG",
        "SANDBOX_TIMEOUT",
        "limits.processes",
        "limits.disk_mb",
        "/nonexistent/a",
        "/nonexistent/b",
        "/nonexistent/x.json",
        "`host`",
        "`http.tls_key`",
    ];
    assert_eq!(messages.len(), expect.len(), "{messages:#?}");
    for (message, part) in messages.iter().zip(expect) {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn missing_result_always_has_a_fault() {
    assert_eq!(result_or_faults::<()>(None, Vec::new()).unwrap_err().len(), 1);
    assert!(result_or_faults(Some(()), vec![first(Vec::new())]).is_err());
}

#[test]
fn faulty_setting_contradicts_no_other_setting() {
    let state = std::env::temp_dir().join(format!("ringfence-unread-{}", std::process::id()));
    let path = state.to_str().unwrap();
    let refused = |text: &str, variables: &[(&str, &str)], expect: &[&str]| {
        let file = TextFile::new("unread", text);
        let faults = check(&environment(variables), flags(Some(&file.0))).unwrap_err();
        let messages: Vec<&str> = faults.iter().map(|fault| fault.message.as_str()).collect();
        assert_eq!(messages.len(), expect.len(), "{text}: {messages:#?}");
        for (message, part) in messages.iter().zip(expect) {
            assert!(message.contains(part), "{part}: {message}");
        }
    };
    let ram = "limits:\n  ram_mb: 100000\n";
    refused(&format!("caps:\n  ram_mb: x\n{ram}"), &[], &["`ram_mb`"]);
    refused(&format!("caps: {{\"ram_mb\": x}}\n{ram}"), &[], &["ram_mb"]);
    refused(ram, &[("RINGFENCE_CAPS_RAM_MB", "x")], &["RINGFENCE_CAPS_RAM_MB"]);
    refused("http:\n  tls_cert: x\n  tls_key: /x\n", &[], &["`tls_cert`"]);
    refused("host: yes please\ntoolsets: [host]\n", &[], &["`host`"]);
    let http = "caps:\n  ram_mb: x\nhttp:\n  tls_key: /x\n";
    refused(http, &[], &["`ram_mb`", "`http.tls_cert`"]);
    let places = [("HOME", "/dev/null"), ("XDG_RUNTIME_DIR", path)];
    refused("state_dir: x\n", &places, &["`state_dir`"]);
    assert!(!state.exists(), "the private directory was made");
}

#[test]
fn named_file_must_exist_and_the_default_one_need_not() {
    let missing = Path::new("/nonexistent/ringfence.yaml");
    assert!(refused(&[], Some(missing)).message.contains("--config"));
    let by_variable = ("RINGFENCE_CONFIG", "/nonexistent/ringfence.yaml");
    let error = refused(&[by_variable], None);
    assert!(error.message.contains("RINGFENCE_CONFIG"), "{error}");
    let config = load(&environment(&[("HOME", "/nonexistent")]), flags(None)).unwrap();
    assert_eq!(config.file, None);
}

#[test]
fn broken_file_is_refused_with_its_line() {
    let file = TextFile::new("broken", "backend: native\nlimit:\n  ram_mb: 1\n");
    let error = refused(&[], Some(&file.0));
    assert_eq!(error.code, ErrorCode::InvalidConfiguration);
    let place = format!("{}:2: ", file.0.display());
    assert!(error.message.contains(&place), "{error}");
    assert!(error.message.contains("Did you mean `limits`?"), "{error}");
    let long = TextFile::new("long", &"#".repeat(BYTES_MAX + 10));
    assert!(refused(&[], Some(&long.0)).message.contains("1 MiB"));
}

#[test]
fn tilde_path_requires_home() {
    let file = TextFile::new("home", "runtimes:\n  python: ~/venv\nstate_dir: /s\n");
    let config = load(&environment(&[("HOME", "/home/a")]), flags(Some(&file.0))).unwrap();
    assert_eq!(
        config.engine.runtimes.python.as_deref(),
        Some(Path::new("/home/a/venv"))
    );
    assert!(refused(&[], Some(&file.0)).message.contains("HOME"));
}

#[test]
fn example_configuration_equals_the_defaults() {
    let file = TextFile::new("example", &example());
    let example = load(&environment(&[]), flags(Some(&file.0))).unwrap();
    let default = load(&environment(&[]), flags(None)).unwrap();
    for (with, without) in example.effective.rows().iter().zip(default.effective.rows()) {
        assert_eq!(with.value, without.value, "{}", with.path);
    }
    assert!(
        origin(&example, "limits.ram_mb")
            .1
            .starts_with(&file.0.display().to_string())
    );
}

#[test]
fn check_section_is_read_with_its_schemas() {
    let order = TextFile::new("order-schema", r#"{"type": "object", "required": ["id"]}"#);
    let text = format!(
        "check:\n  profile: basic\n  profiles: [basic, data_science]\n  allowed_imports: [yaml, os.path]\n  \
         known_imports:\n    sleep: from time import sleep\n  schemas:\n    order: {}\n    here:\n      type: array\n      \
         maxItems: 3\n",
        order.0.display()
    );
    let file = TextFile::new("checks", &text);
    let config = load(&environment(&[]), flags(Some(&file.0))).unwrap();
    let check = &config.engine.policy.check;
    assert_eq!(check.profile, Profile::Basic);
    assert_eq!(check.profiles, [Profile::Basic, Profile::DataScience].into());
    let modules: Vec<&str> = check
        .allowed_imports
        .iter()
        .map(|module| module.as_str())
        .collect();
    assert_eq!(modules, ["os.path", "yaml"]);
    assert_eq!(check.known_imports["sleep"], "from time import sleep");
    assert_eq!(
        check.schemas["here"],
        serde_json::json!({"type": "array", "maxItems": 3})
    );
    assert_eq!(check.schemas["order"]["required"][0], "id");
    assert!(
        origin(&config, "check.schemas").1.ends_with(":8"),
        "{:?}",
        origin(&config, "check.schemas")
    );
}

#[test]
fn fault_in_the_check_section_is_reported_with_its_place() {
    let refused = |text: &str, parts: &[&str]| {
        let file = TextFile::new("checks-refused", text);
        let error = refused(&[], Some(&file.0));
        assert_eq!(error.code, ErrorCode::InvalidConfiguration);
        for part in parts {
            assert!(error.message.contains(part), "{text}: {error}");
        }
    };
    refused("check:\n  profil: basic\n", &[":2: ", "Did you mean `profile`?"]);
    refused(
        "check:\n  profile: strickt\n",
        &[":2: ", "Did you mean `strict`?"],
    );
    refused("check:\n  allowed_imports: [a-b]\n", &[":2: ", "a-b"]);
    refused(
        "check:\n  schemas:\n    x: /nonexistent/x.json\n",
        &["`x`", "/nonexistent/x.json", "No such file"],
    );
    refused("check:\n  schemas:\n    x: 5\n", &["`x`"]);
    let half = TextFile::new("checks-long", &("x".repeat(BYTES_MAX) + "\u{e9}"));
    let long = format!("check:\n  schemas:\n    x: {}\n", half.0.display());
    refused(&long, &["`x`", "longer than 1 MiB"]);
    refused("check:\n  schemas:\n    x: rel.json\n", &["relative"]);
    refused(
        "check:\n  schemas:\n    x: {$ref: 'http://localhost/y.json'}\n",
        &["`x`", "http://localhost/y.json"],
    );
    refused("check:\n  schemas:\n    x: {type: nothing}\n", &["`x`"]);
    refused(
        "check:\n  known_imports:\n    np: import numpy\n",
        &["`np`", ":3: "],
    );
}

#[test]
fn restricting_profile_narrows_the_offered_profiles_unless_they_are_set() {
    let profiles = |variables: &[(&str, &str)]| {
        let config = load(&environment(variables), flags(None)).unwrap();
        let check = config.engine.policy.check;
        let offered: Vec<&str> = check.profiles.iter().map(|profile| profile.as_str()).collect();
        (check.profile.as_str(), offered.join(" "))
    };
    let all = "unrestricted basic data_science network filesystem strict";
    assert_eq!(profiles(&[]), ("unrestricted", all.to_owned()));
    let basic = ("RINGFENCE_CHECK_PROFILE", "basic");
    assert_eq!(profiles(&[basic]), ("basic", "basic strict".to_owned()));
    let strict = ("RINGFENCE_CHECK_PROFILE", "strict");
    assert_eq!(profiles(&[strict]), ("strict", "strict".to_owned()));
    let both = [basic, ("RINGFENCE_CHECK_PROFILES", "all")];
    assert_eq!(profiles(&both), ("basic", all.to_owned()));
    // Variables of other servers.
    let data = |switch| ("SANDBOX_ENABLE_DATA_SCIENCE", switch);
    assert_eq!(
        profiles(&[data("false"), ("SANDBOX_ENABLE_NETWORK", "false")]),
        ("unrestricted", "unrestricted basic filesystem strict".to_owned())
    );
    assert_eq!(
        profiles(&[basic, data("true")]),
        ("basic", "basic data_science strict".to_owned())
    );
    let imports = ("SANDBOX_ALLOWED_IMPORTS", "yaml, numpy");
    assert_eq!(profiles(&[imports]), ("basic", "basic strict".to_owned()));
    let config = load(&environment(&[("SANDBOX_ALLOWED_IMPORTS", "math")]), flags(None)).unwrap();
    let modules = config.engine.policy.check.modules(Profile::Basic).unwrap();
    let has = |name: &str| modules.iter().any(|module| module.as_str() == name);
    assert!(has("math") && !has("json") && !has("collections"), "{modules:?}");
    assert_eq!(profiles(&[imports, strict]), ("strict", "strict".to_owned()));
    assert_eq!(
        profiles(&[("SANDBOX_ALLOWED_IMPORTS", "*")]),
        ("unrestricted", all.to_owned())
    );
    let error = refused(&[("RINGFENCE_CHECK_PROFILE", "data_science"), data("off")], None);
    assert!(error.message.contains("SANDBOX_ENABLE_DATA_SCIENCE"), "{error}");
}

#[test]
fn schema_and_example_match_their_goldens() {
    crate::golden::compare("config-schema.json", &schema());
    crate::golden::compare("config-example.yaml.txt", &example());
}
