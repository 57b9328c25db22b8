//! The layers together: precedence, provenance, caps, and files on disk.

use super::*;
use std::{ffi::OsString, fs};

fn environment(variables: &[(&str, &str)]) -> Environment {
    Environment::of(
        variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), OsString::from(value))),
    )
}

fn flags(config: Option<&Path>) -> Flags {
    Flags {
        config: config.map(Path::to_owned),
        layer: Layer::default(),
        log: LogLevel::Info,
    }
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
fn a_flag_wins_over_the_environment_over_the_file_over_the_default() {
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
fn the_defaults_are_the_contracts() {
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
    assert_eq!(config.engine.queue.concurrency as u64, 2 * cores());
    assert_eq!(config.engine.queue.waiting, 256);
    assert_eq!(config.floor, Floor::Full);
    assert_eq!(config.namespaces, Namespaces::CallerChooses);
}

#[test]
fn the_reference_tells_the_true_defaults() {
    let config = load(&environment(&[]), flags(None)).unwrap();
    for (key, row) in keys::KEYS.iter().zip(config.effective.rows()) {
        let Some(text) = key.default else { continue };
        let expect = match key.path {
            "toolsets" => r#"["execute","sessions","snapshots","observe","vault"]"#.to_owned(),
            _ => serde_json::from_str::<serde_json::Value>(text)
                .unwrap_or_else(|_| text.into())
                .to_string(),
        };
        assert_eq!(row.value.to_string(), expect, "{}", key.path);
    }
}

#[test]
fn a_limit_above_its_cap_is_refused_with_both_places() {
    let file = TextFile::new("caps", "caps:\n  ram_mb: 256\n");
    let error = load(
        &environment(&[("RINGFENCE_LIMITS_RAM_MB", "512")]),
        flags(Some(&file.0)),
    )
    .unwrap_err();
    assert!(
        error.message.contains("RINGFENCE_LIMITS_RAM_MB") && error.message.contains(":2"),
        "{error}"
    );
    // The default of 512 was nobody's choice: the cap lowers it.
    let config = load(&environment(&[]), flags(Some(&file.0))).unwrap();
    assert_eq!(config.engine.policy.defaults.memory_bytes, 256 << 20);
}

#[test]
fn a_named_file_must_exist_and_the_usual_one_need_not() {
    let missing = Path::new("/nonexistent/ringfence.yaml");
    assert!(
        load(&environment(&[]), flags(Some(missing)))
            .unwrap_err()
            .message
            .contains("--config")
    );
    let by_variable = environment(&[("RINGFENCE_CONFIG", "/nonexistent/ringfence.yaml")]);
    assert!(
        load(&by_variable, flags(None))
            .unwrap_err()
            .message
            .contains("RINGFENCE_CONFIG")
    );
    assert_eq!(
        load(&environment(&[("HOME", "/nonexistent")]), flags(None))
            .unwrap()
            .file,
        None
    );
}

#[test]
fn a_broken_file_is_refused_with_its_place() {
    let file = TextFile::new("broken", "backend: native\nlimit:\n  ram_mb: 1\n");
    let error = load(&environment(&[]), flags(Some(&file.0))).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidConfiguration);
    assert!(
        error.message.contains(&format!("{}:2: ", file.0.display())),
        "{error}"
    );
    assert!(error.message.contains("Did you mean `limits`?"), "{error}");
    let long = TextFile::new("long", &"#".repeat(CONFIG_BYTES_MAX + 10));
    assert!(
        load(&environment(&[]), flags(Some(&long.0)))
            .unwrap_err()
            .message
            .contains("1 MiB")
    );
}

#[test]
fn a_home_path_needs_a_home() {
    let file = TextFile::new("home", "runtimes:\n  python: ~/venv\nstate_dir: /s\n");
    let config = load(&environment(&[("HOME", "/home/a")]), flags(Some(&file.0))).unwrap();
    assert_eq!(
        config.engine.runtimes.python.as_deref(),
        Some(Path::new("/home/a/venv"))
    );
    assert!(
        load(&environment(&[]), flags(Some(&file.0)))
            .unwrap_err()
            .message
            .contains("HOME")
    );
}

#[test]
fn the_example_is_a_configuration_that_changes_nothing() {
    let file = TextFile::new("example", &example());
    let said = load(&environment(&[]), flags(Some(&file.0))).unwrap();
    let silent = load(&environment(&[]), flags(None)).unwrap();
    for (with, without) in said.effective.rows().iter().zip(silent.effective.rows()) {
        assert_eq!(with.value, without.value, "{}", with.path);
    }
    assert!(
        origin(&said, "limits.ram_mb")
            .1
            .starts_with(&file.0.display().to_string())
    );
}

#[test]
fn the_schema_is_golden() {
    crate::golden::compare("config-schema.json", &schema());
    crate::golden::compare("config-example.yaml.txt", &example());
}
