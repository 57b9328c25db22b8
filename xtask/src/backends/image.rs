//! The image of `packaging/Dockerfile`, built with this build's binary on the tests' base image, because no registry is
//! used. It is started with the options of `packaging/compose.yaml` and with none; each time a client calls it over
//! HTTP.

use super::{
    engine::{Engine, IMAGE},
    server::Server,
};
use crate::{
    command::{capture, command, show},
    workspace::Workspace,
};
use serde_json::json;
use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

const NAME: &str = "ringfence-image:latest";
const DOCKERFILE: &str = "packaging/Dockerfile";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const TIMEOUT: Duration = Duration::from_secs(60);

/// Builds the image, and calls it with both sets of options.
pub fn run(workspace: &Workspace) -> Result<(), String> {
    let engine = Engine::start(workspace)?;
    build(workspace, &engine)?;
    let profile = workspace.root.join("packaging/seccomp.json");
    let seccomp = format!("--security-opt=seccomp={}", profile.display());
    let documented = [
        "--read-only",
        "--tmpfs=/tmp",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        &seccomp,
        "--security-opt=systempaths=unconfined",
    ];
    call(workspace, &engine, &documented, "full")?;
    call(
        workspace,
        &engine,
        &["--env=RINGFENCE_FLOOR=landlock"],
        "landlock",
    )
}

/// Builds from a directory with the Dockerfile and the binary alone: the rest of a checkout is needed only to compile.
fn build(workspace: &Workspace, engine: &Engine) -> Result<(), String> {
    let context: PathBuf = engine.directory.join("image");
    let failed = |error: std::io::Error| format!("{}: {error}", context.display());
    let prebuilt = context.join("packaging/prebuilt");
    fs::create_dir_all(&prebuilt).map_err(failed)?;
    fs::copy(workspace.root.join(DOCKERFILE), context.join(DOCKERFILE)).map_err(failed)?;
    let binary = prebuilt.join("ringfence");
    show(command("strip", [Path::new("-o"), &binary, &workspace.binary()]))?;
    let base = |name: &str| format!("--build-arg={name}={IMAGE}");
    let (builder, base, file) = (base("BUILDER"), base("BASE"), context.join(DOCKERFILE));
    let (file, context) = (file.display().to_string(), context.display().to_string());
    let words = [
        "build",
        "--quiet",
        "--network=none",
        "--tag",
        NAME,
        &builder,
        &base,
        "--file",
        &file,
        &context,
    ];
    let mut docker = engine.docker(&words);
    // The classic builder is part of every engine.
    docker.env("DOCKER_BUILDKIT", "0");
    capture(docker).map(drop)
}

fn call(workspace: &Workspace, engine: &Engine, options: &[&str], tier: &str) -> Result<(), String> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.map_err(|error| error.to_string())?.to_string();
    let variables = [
        format!("--env=SANDBOX_API_TOKEN={TOKEN}"),
        format!("--env=HEALTH_URL=http://{address}/readyz"),
    ];
    // The engine has no bridge, so the container uses the network of this host.
    let mut words = vec![
        "run",
        "--detach",
        "--network=host",
        "--health-interval=1s",
        &variables[0],
        &variables[1],
    ];
    words.extend(options);
    words.extend([NAME, "serve", "--transport", "http", "--listen", &address]);
    let container = capture(engine.docker(&words))?.trim().to_owned();
    let called = healthy(engine, &container).and_then(|()| answers(workspace, engine, &address, tier));
    let log = capture(engine.docker(&["logs", &container])).unwrap_or_default();
    capture(engine.docker(&["rm", "--force", "--volumes", &container]))?;
    called.map_err(|reason| format!("{options:?}: {reason}\n{log}"))?;
    println!("{:60} tier {tier}", options.join(" "));
    Ok(())
}

/// Waits until the health check succeeds.
fn healthy(engine: &Engine, container: &str) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let state = "{{.State.Status}} {{.State.Health.Status}}";
        let state = capture(engine.docker(&["inspect", "--format", state, container]))?;
        match state.trim() {
            "running healthy" => return Ok(()),
            "running starting" if begun.elapsed() < TIMEOUT => sleep(Duration::from_millis(200)),
            other => return Err(format!("the container is {other} after {:?}", begun.elapsed())),
        }
    }
}

fn answers(workspace: &Workspace, engine: &Engine, address: &str, tier: &str) -> Result<(), String> {
    let url = format!("http://{address}/mcp");
    let refused = capture(command(
        "curl",
        ["-s", "-o", "/dev/null", "-w", "%{http_code}", "-d", "{}", &url],
    ))?;
    if refused != "401" {
        return Err(format!("the answer without a token is {refused}, not 401"));
    }
    let token = engine.directory.join("token");
    fs::write(&token, TOKEN)
        .and_then(|()| fs::set_permissions(&token, fs::Permissions::from_mode(0o600)))
        .map_err(|error| error.to_string())?;
    let mut client = command(workspace.binary(), ["connect", &url, "--token-file"]);
    client.arg(&token);
    let client = Server::spawn(client)?;
    for (language, code) in [
        ("python", "print(6 * 7)"),
        ("node", "console.log(6 * 7)"),
        ("shell", "echo $((6 * 7))"),
    ] {
        let done = client.call("execute_code", &json!({"language": language, "code": code}))?;
        if done["stdout"] != "42\n" || done["isolation"]["tier"] != tier {
            return Err(format!("{language}: {done}"));
        }
    }
    Ok(())
}
