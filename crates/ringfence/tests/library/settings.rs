//! Settings of a sandbox take effect, and errors in them name their place.

use super::place::{Scene, shell};
use crate::client::*;
use ringfence::{ErrorCode, ExecuteRequest, ExitKind, Language, LimitsRequest, Namespace, Sandbox, Tier};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn an_error_in_a_configuration_file_names_the_line() {
    let scene = Scene::new("wrong");
    let file = scene
        .directory
        .file("config.yaml", "floor: full\nlimits:\n  ram_mbb: 5\n");
    let error = Sandbox::from_yaml(&file).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidConfiguration);
    let line = format!("{file}:3");
    assert_contains(error.message, [&line, "Did you mean `ram_mb`?"]);
    let missing = Sandbox::from_yaml(scene.directory.0.join("none.yaml"))
        .await
        .unwrap_err();
    assert_eq!(missing.code, ErrorCode::InvalidConfiguration);
}

#[tokio::test(flavor = "multi_thread")]
async fn builder_settings_override_the_file_and_the_file_overrides_the_defaults() {
    let scene = Scene::new("layers");
    let settings = "limits: {ram_mb: 100, processes: 20}\nvault: {store: env}\n";
    let file = scene.directory.file("config.yaml", settings);
    let limits = LimitsRequest {
        max_ram_mb: Some(200),
        ..LimitsRequest::default()
    };
    let sandbox = scene.builder().limits(&limits).yaml(&file).build().await.unwrap();
    let (defaults, _) = sandbox.limits(&Namespace::default_name());
    assert_eq!(
        (defaults.memory_bytes, defaults.processes, defaults.timeout_ms),
        (200 << 20, 20, 60_000)
    );
    assert_eq!(
        (sandbox.stats().vault, sandbox.info().unwrap().isolation.tier),
        ("env", Tier::Full)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn builder_limits_are_enforced_and_requests_above_its_caps_are_refused() {
    let scene = Scene::new("limits");
    let timeout = |timeout_ms| LimitsRequest {
        timeout_ms: Some(timeout_ms),
        ..LimitsRequest::default()
    };
    let builder = scene.builder().limits(&timeout(300)).caps(&timeout(1_000));
    let sandbox = builder.audit_in_memory().build().await.unwrap();
    let result = sandbox
        .execute(ExecuteRequest::shell("echo partial; sleep 60"))
        .await
        .unwrap();
    assert_eq!(
        (result.exit.kind, result.stdout.as_str()),
        (ExitKind::Timeout, "partial\n")
    );
    let mut request = ExecuteRequest::shell("true");
    request.limits = timeout(2_000);
    assert_eq!(
        sandbox.execute(request).await.unwrap_err().code,
        ErrorCode::InvalidArgument
    );
    assert!(!scene.directory.0.join("state/record/audit.db").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_a_file_vault_is_available_to_the_next_sandbox() {
    let scene = Scene::new("vault");
    let (vault, key) = (scene.directory.0.join("vault"), scene.directory.0.join("key"));
    let namespace = Namespace::default_name();
    let first = scene.builder().vault_in_file(&vault, &key).build().await.unwrap();
    first
        .secrets(&namespace)
        .put("KEY", "a-secret-in-a-file".to_owned(), None)
        .await
        .unwrap();
    first.shutdown().await;
    let next = scene.builder().vault_in_file(&vault, &key).build().await.unwrap();
    assert_eq!(
        next.secrets(&namespace).list().await.unwrap()[0].key.as_str(),
        "KEY"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn warm_up_makes_sandboxes_ready() {
    let scene = Scene::new("warm");
    let sandbox = scene
        .builder()
        .warm(1, 1)
        .set("warm.preload_python", "")
        .build()
        .await
        .unwrap();
    sandbox.warm_up();
    assert!(sandbox.warmed_up(Duration::from_secs(60)).await);
    let stats = sandbox.stats();
    let warm = stats
        .warm
        .iter()
        .find(|warm| warm.language == Language::Shell)
        .unwrap();
    assert_eq!(warm.ready, 1, "{stats:?}");
    assert_eq!(shell(&sandbox, "echo warm").await, "warm\n");
    let runtimes = sandbox.runtimes().await;
    assert!(
        runtimes
            .iter()
            .any(|runtime| runtime.language == Language::Shell && runtime.available)
    );
    sandbox.shutdown().await;
    assert!(scene.processes().is_empty());
}
