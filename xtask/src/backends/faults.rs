//! An engine that hangs, is gone, is full or lacks an image or runtime; foreign containers; and the arguments and
//! settings that select a container. Every answer comes from the backend that was named, native sandboxes keep working,
//! and foreign containers are not touched.

use super::{
    engine::{Engine, IMAGE},
    server::Server,
};
use crate::{
    command::{capture, command, exists, show},
    require,
    workspace::Workspace,
};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// Time limit of a refusal: the engine has ten seconds for an answer.
const REFUSAL: Duration = Duration::from_secs(14);
/// Time limit of an answer of a native sandbox meanwhile.
const NATIVE: Duration = Duration::from_secs(8);
/// Time limit for the removal of remaining containers.
const TIMEOUT: Duration = Duration::from_secs(40);
/// Concurrent requests to an engine that hangs. Together with a native one they are all that run at once on two busy
/// processors: more would wait for the earlier answers.
const REQUESTS: usize = 3;

type Story = fn(&Workspace, &mut Engine) -> Result<(), String>;

const STORIES: &[(&str, Story)] = &[
    ("an engine that hangs", engine_hangs),
    (
        "an engine that hangs while it makes a container",
        engine_hangs_later,
    ),
    ("an engine that is killed and restarted", engine_restarts),
    (
        "a server that ends soon after its engine's restart",
        server_ends_after_restart,
    ),
    ("an engine whose disk is full", disk_full),
    ("missing images, runtimes and digests", missing_parts),
    ("foreign containers are kept", foreign_containers),
    (
        "arguments and settings that select a container",
        container_requests,
    ),
    ("floors", floors),
    ("Podman through its socket", podman),
];

/// Podman's configuration: its runtimes, and limits that it can set on a host without the right to raise them.
const PODMAN: &str = r#"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[engine.runtimes]
runc = ["/usr/sbin/runc"]
runsc = ["/usr/bin/runsc"]
"#;

/// Runs the stories whose name contains `part`.
pub fn run(workspace: &Workspace, engine: &mut Engine, part: &str) -> Result<(), String> {
    let (mut failed, mut count) = (Vec::new(), 0);
    for (name, story) in STORIES.iter().filter(|(name, _)| name.contains(part)) {
        count += 1;
        let begun = Instant::now();
        let outcome = story(workspace, engine);
        engine.resume();
        let seconds = begun.elapsed().as_secs();
        match outcome {
            Ok(()) => println!("{name:58} {:>10} {seconds:>8} s", "held"),
            Err(why) => {
                println!("{name:58} {:>10} {seconds:>8} s\n    {why}", "FAILED");
                failed.push(format!("{name}: {why}"));
            }
        }
    }
    match failed.len() {
        0 if count > 0 => Ok(()),
        number => Err(format!(
            "{number} of {count} stories failed\n{}",
            failed.join("\n")
        )),
    }
}

fn cold(workspace: &Workspace, engine: &Engine) -> Result<Server, String> {
    Server::start(&workspace.binary(), engine, &[("RINGFENCE_WARM_READY", "0")])
}

/// Ok if the condition holds; else an error with the value that was seen.
macro_rules! expect {
    ($is_so:expr, $seen:expr $(,)?) => {
        match $is_so {
            true => Ok(()),
            false => Err($seen.to_string().chars().take(700).collect::<String>()),
        }
    };
}

/// Expects a refusal with this code and a hint, and without output of a program.
fn expect_refusal(seen: &Value, code: &str) -> Result<(), String> {
    let is_so = seen["code"] == code && seen["hint"].is_string() && seen["stdout"].is_null();
    expect!(is_so, format_args!("not refused with {code}: {seen}"))
}

fn expect_output(seen: &Value, backend: &str) -> Result<(), String> {
    expect!(seen["stdout"] == "1\n" && seen["backend"] == backend, seen)
}

/// Expects an answer of a native sandbox within [`NATIVE`].
fn expect_native_works(server: &Server) -> Result<(), String> {
    let begun = Instant::now();
    expect_output(&server.run("native", "python", "print(1)")?, "native")?;
    expect!(begun.elapsed() < NATIVE, "a native sandbox waits for the engine")
}

/// Waits until the engine has no container.
fn wait_until_empty(engine: &Engine) -> Result<(), String> {
    let begun = Instant::now();
    while engine.container_count()? > 0 {
        if begun.elapsed() > TIMEOUT {
            return Err(format!("{} container(s) are left", engine.container_count()?));
        }
        sleep(Duration::from_millis(200));
    }
    Ok(())
}

fn print_arguments(backend: &str) -> Value {
    json!({"code": "print(1)", "language": "python", "backend": backend, "validate": "off"})
}

fn engine_hangs(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
    let server = cold(workspace, engine)?;
    engine.suspend()?;
    let begun = Instant::now();
    let calls: Result<Vec<u64>, String> = (0..REQUESTS)
        .map(|number| server.send_call("execute_code", &print_arguments(["docker", "gvisor"][number % 2])))
        .collect();
    let (calls, info) = (calls?, server.send_call("get_sandbox_info", &json!({}))?);
    expect_native_works(&server)?;
    for id in calls {
        expect_refusal(&server.result(id)?, "runtime_unavailable")?;
    }
    let info = server.result(info)?;
    expect!(
        info["container_mode"]["available"] == false,
        &info["container_mode"],
    )?;
    expect!(
        begun.elapsed() < REFUSAL,
        format_args!("{REQUESTS} requests took {:?}", begun.elapsed()),
    )?;
    // The server's knowledge of the engine has expired: the next request asks the engine again, and is cancelled
    // meanwhile.
    sleep(Duration::from_millis(1200));
    let mut later = print_arguments("docker");
    later["background"] = json!(true);
    let run =
        json!({"execution_id": server.call("execute_code", &later)?["execution_id"], "wait_seconds": 20});
    let begun = Instant::now();
    server.call("cancel_execution", &json!({"execution_id": run["execution_id"]}))?;
    expect_refusal(&server.call("get_execution", &run)?, "cancelled")?;
    expect!(
        begun.elapsed() < NATIVE,
        "a cancelled request waits for the engine",
    )?;
    engine.resume();
    expect_output(&server.run("docker", "python", "print(1)")?, "docker")?;
    wait_until_empty(engine)
}

fn engine_hangs_later(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
    let server = cold(workspace, engine)?;
    // For a while the server knows the engine's version and that it has the image.
    expect_output(&server.run("docker", "python", "print(1)")?, "docker")?;
    wait_until_empty(engine)?;
    engine.suspend()?;
    let begun = Instant::now();
    let calls: Result<Vec<u64>, String> = (0..REQUESTS)
        .map(|_| server.send_call("execute_code", &print_arguments("docker")))
        .collect();
    expect_native_works(&server)?;
    for id in calls? {
        expect_refusal(&server.result(id)?, "runtime_unavailable")?;
    }
    expect!(begun.elapsed() < REFUSAL, format_args!("{:?}", begun.elapsed()))?;
    // The engine resumes, and makes the containers of requests that were given up. The running server removes them.
    engine.resume();
    expect_output(&server.run("docker", "python", "print(1)")?, "docker")?;
    wait_until_empty(engine)
}

fn engine_restarts(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
    let state = engine
        .directory
        .join(format!("state-gone-{}", std::process::id()));
    let start = |engine: &Engine| Server::with_state(&workspace.binary(), engine, &[], state.clone());
    let server = start(engine)?;
    expect_output(&server.run("docker", "python", "print(1)")?, "docker")?;
    let left = engine.start_own(&state, &state.join("runs/gone"))?;
    engine.kill();
    expect_refusal(
        &server.run("docker", "python", "print(1)")?,
        "runtime_unavailable",
    )?;
    expect_native_works(&server)?;
    server.kill();
    drop(fs::remove_file(engine.socket()));
    // The next server starts before the engine, without a socket. It still removes the remaining container.
    let server = start(engine)?;
    expect_refusal(
        &server.run("gvisor", "python", "print(1)")?,
        "runtime_unavailable",
    )?;
    engine.restart()?;
    expect_output(&server.run("docker", "python", "print(1)")?, "docker")?;
    let begun = Instant::now();
    while engine.has_container(&left) {
        expect!(
            begun.elapsed() < TIMEOUT,
            "a container of an earlier server is still there",
        )?;
        sleep(Duration::from_millis(200));
    }
    drop(server);
    wait_until_empty(engine)
}

/// A container that a killed engine had begun to make appears after the engine's restart. The server looks for such
/// containers again when it ends.
fn server_ends_after_restart(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
    let state = engine
        .directory
        .join(format!("state-ended-{}", std::process::id()));
    let server = Server::with_state(&workspace.binary(), engine, &[], state.clone())?;
    expect_output(&server.run("docker", "python", "print(1)")?, "docker")?;
    engine.kill();
    expect_refusal(
        &server.run("docker", "python", "print(1)")?,
        "runtime_unavailable",
    )?;
    engine.restart()?;
    expect_output(&server.run("docker", "python", "print(1)")?, "docker")?;
    // Made after a check by the server, and before the next one.
    engine.start_own(&state, &state.join("runs/gone"))?;
    drop(server);
    wait_until_empty(engine)
}

fn disk_full(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
    wait_until_empty(engine)?;
    let server = cold(workspace, engine)?;
    let disk = engine.directory.join("data/containers");
    let at = disk.display().to_string();
    show(command("mount", ["-t", "tmpfs", "-o", "size=64k", "tmpfs", &at]))?;
    let judged = fill(&disk)
        .and_then(|()| expect_refusal(&server.run("docker", "python", "print(1)")?, "sandbox_fault"))
        .and_then(|()| expect_native_works(&server));
    show(command("umount", [&at]))?;
    judged?;
    expect_output(&server.run("docker", "python", "print(1)")?, "docker")?;
    drop(server);
    wait_until_empty(engine)
}

/// Fills a small file system.
fn fill(disk: &Path) -> Result<(), String> {
    let filled = fs::write(disk.join("full"), vec![0; 1 << 20]);
    expect!(filled.is_err(), "the disk is not full")
}

fn missing_parts(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
    for (variables, backend, code, word) in [
        (
            [("RINGFENCE_CONTAINERS_GVISOR_RUNTIME", "absent")],
            "gvisor",
            "runtime_unavailable",
            "absent",
        ),
        (
            [("RINGFENCE_CONTAINERS_IMAGE_PYTHON", "absent:1")],
            "docker",
            "runtime_unavailable",
            "absent:1",
        ),
        (
            [("RINGFENCE_CONTAINERS_REQUIRE_DIGEST", "true")],
            "docker",
            "policy_denied",
            IMAGE,
        ),
    ] {
        let server = Server::start(&workspace.binary(), engine, &variables)?;
        let seen = server.run(backend, "python", "print(1)")?;
        expect_refusal(&seen, code)?;
        expect!(seen["message"].to_string().contains(word), &seen)?;
        expect_native_works(&server)?;
    }
    let id = capture(engine.docker(&["image", "inspect", "-f", "{{.Id}}", IMAGE]))?;
    let pinned = [
        ("RINGFENCE_CONTAINERS_REQUIRE_DIGEST", "true"),
        ("RINGFENCE_CONTAINERS_IMAGE_PYTHON", id.trim()),
    ];
    let server = Server::start(&workspace.binary(), engine, &pinned)?;
    expect_output(&server.run("docker", "python", "print(1)")?, "docker")
}

fn foreign_containers(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
    let state = engine
        .directory
        .join(format!("state-strangers-{}", std::process::id()));
    let start = || Server::with_state(&workspace.binary(), engine, &[], state.clone());
    let first = start()?;
    let session = first.call(
        "create_session",
        &json!({"language": "python", "backend": "docker"}),
    )?;
    let call = json!({"code": "1", "session_id": session["session_id"], "validate": "off"});
    first.call("execute_code", &call)?;
    let living = engine.running_containers();
    let label = |value: &str| format!("--label=dev.ringfence.state={value}");
    let state_name = state.display().to_string();
    let mut stay = vec![
        engine.start_foreign(&[])?,
        engine.start_foreign(&["--name=ringfence-of-somebody"])?,
        engine.start_foreign(&[&label(&format!("{state_name}-2"))])?,
        engine.start_foreign(&[&label("")])?,
        engine.start_foreign(&[&format!("--label=dev.ringfence.directory={state_name}/runs/x")])?,
    ];
    let go = [
        engine.start_own(&state, &state.join("runs/gone"))?,
        engine.start_own(&state, Path::new("/nowhere"))?,
        engine.start_foreign(&[&label(&state_name)])?,
    ];
    stay.extend(living);
    // Another server with this state directory, while the first one runs.
    let second = start()?;
    expect_output(&second.run("docker", "python", "print(1)")?, "docker")?;
    let begun = Instant::now();
    while go.iter().any(|id| engine.has_container(id)) {
        expect!(begun.elapsed() < TIMEOUT, "an own container is still there")?;
        sleep(Duration::from_millis(200));
    }
    let kept = stay.iter().all(|id| engine.has_container(id));
    let answer = first.call("execute_code", &call)?;
    drop((first, second));
    for id in &stay {
        drop(capture(engine.docker(&["rm", "-f", id])));
    }
    expect!(kept, "a foreign container is gone")?;
    expect!(answer["result"] == 1, answer)?;
    wait_until_empty(engine)
}

fn container_requests(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
    let server = cold(workspace, engine)?;
    let mut container = print_arguments("docker");
    container["use_container"] = json!(true);
    expect_output(&server.call("execute_code", &container)?, "docker")?;
    container
        .as_object_mut()
        .map(|arguments| arguments.remove("backend"));
    expect_output(&server.call("execute_code", &container)?, "docker")?;
    container["backend"] = json!("native");
    expect_refusal(&server.call("execute_code", &container)?, "invalid_argument")?;
    // On the command line, and by the settings of other servers.
    let image = [
        ("RINGFENCE_CONTAINERS_IMAGE_PYTHON", IMAGE),
        ("RINGFENCE_CONTAINERS_ENABLED", "true"),
    ];
    let other = [
        ("SANDBOX_CONTAINER_IMAGE", IMAGE),
        ("SANDBOX_ENABLE_CONTAINER_MODE", "true"),
    ];
    let another = [("SANDBOXMCP_IMAGE", IMAGE), ("SANDBOXMCP_BACKEND", "docker")];
    let script = engine.directory.join("asked.py");
    fs::write(&script, "print(1)").map_err(|error| format!("asked.py: {error}"))?;
    let script = script.display().to_string();
    for (words, variables, tier) in [
        (&["--backend", "docker"][..], &image[..], "container"),
        (&["--backend", "gvisor"], &image, "gvisor"),
        (&["--backend", "native"], &image, "full"),
        (&[], &image, "full"),
        (&["--backend", "docker"], &other, "container"),
        (&[], &another, "container"),
    ] {
        let mut run = command(workspace.binary(), ["run", "--json", &script]);
        run.args(words).env("RINGFENCE_FLOOR", "container");
        run.env("RINGFENCE_CONTAINERS_SOCKET", engine.socket());
        run.env("RINGFENCE_STATE_DIR", engine.directory.join("state-asked"));
        run.envs(variables.iter().copied());
        let seen: Value =
            serde_json::from_str(&capture(run)?).map_err(|error| format!("{words:?}: {error}"))?;
        let is_so = seen["stdout"] == "1\n" && seen["isolation"]["tier"] == tier;
        expect!(is_so, format_args!("{words:?} {variables:?}: {seen}"))?;
    }
    drop(server);
    wait_until_empty(engine)
}

fn floors(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
    for (floor, backend, is_allowed) in [
        ("full", "docker", false),
        ("full", "gvisor", false),
        ("gvisor", "docker", false),
        ("gvisor", "gvisor", true),
        ("container", "docker", true),
    ] {
        let server = Server::start(&workspace.binary(), engine, &[("RINGFENCE_FLOOR", floor)])?;
        let seen = server.run(backend, "python", "print(1)")?;
        match is_allowed {
            true => expect_output(&seen, backend)?,
            false => expect_refusal(&seen, "below_floor")?,
        }
        expect_native_works(&server)?;
    }
    wait_until_empty(engine)
}

/// Tests the same walls through Podman's socket. Podman ignores the runtime that a container requests, and so has no
/// gVisor.
fn podman(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
    if !exists("podman") {
        let why = "podman is not installed";
        println!("not run: {why}");
        return expect!(!require::names(&require::list(), "podman"), why);
    }
    let at = engine.directory.join("podman");
    let socket = format!("unix://{}", at.join("socket").display());
    let podman = Podman::start(&at, &["system", "service", "--time=0", &socket])?;
    let image = format!("localhost/{IMAGE}");
    podman.prepare(&image)?;
    let path = at.join("socket").display().to_string();
    let server = Server::start(
        &workspace.binary(),
        engine,
        &[
            ("RINGFENCE_CONTAINERS_SOCKET", &path),
            ("RINGFENCE_CONTAINERS_IMAGE_PYTHON", &image),
        ],
    )?;
    expect_output(&server.run("docker", "python", "print(1)")?, "docker")?;
    let walls = "import re\nprint(re.findall(r'(?:CapEff|NoNewPrivs|Seccomp):\\s+(\\w+)', open('/proc/self/status').read()))";
    let seen = server.run("docker", "python", walls)?;
    expect!(seen["stdout"] == "['0000000000000000', '1', '2']\n", &seen)?;
    expect_refusal(
        &server.run("gvisor", "python", "print(1)")?,
        "runtime_unavailable",
    )?;
    expect_native_works(&server)?;
    drop(server);
    podman.wait_until_empty()
}

struct Podman {
    at: PathBuf,
    service: Child,
}

impl Podman {
    fn command(at: &Path, words: &[&str]) -> Command {
        let mut podman = command("podman", words);
        podman.env("CONTAINERS_CONF", at.join("containers.conf"));
        podman.env("CONTAINERS_STORAGE_CONF", at.join("storage.conf"));
        podman
    }

    fn start(at: &Path, words: &[&str]) -> Result<Self, String> {
        let shown = at.display();
        let storage = format!(
            "[storage]\ndriver = \"overlay\"\ngraphroot = \"{shown}/root\"\nrunroot = \"{shown}/run\"\n"
        );
        let made = fs::create_dir_all(at)
            .and_then(|()| fs::write(at.join("containers.conf"), PODMAN))
            .and_then(|()| fs::write(at.join("storage.conf"), storage));
        made.map_err(|error| format!("{shown}: {error}"))?;
        drop(fs::remove_file(at.join("socket")));
        let mut service = Self::command(at, words);
        service
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let service = service.spawn().map_err(|error| format!("podman: {error}"))?;
        Ok(Self {
            at: at.to_owned(),
            service,
        })
    }

    /// Imports the image if it is missing, and waits until the service listens.
    fn prepare(&self, image: &str) -> Result<(), String> {
        if capture(Self::command(&self.at, &["image", "exists", image])).is_err() {
            let tarball = Engine::tarball().display().to_string();
            capture(Self::command(&self.at, &["import", &tarball, image]))?;
        }
        let begun = Instant::now();
        while !self.at.join("socket").exists() {
            expect!(begun.elapsed() < TIMEOUT, "podman does not listen")?;
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn wait_until_empty(&self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let left = capture(Self::command(&self.at, &["ps", "-aq"]))?;
            if left.trim().is_empty() {
                return Ok(());
            }
            expect!(begun.elapsed() < TIMEOUT, format_args!("left in podman: {left}"))?;
            sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        drop(self.service.kill());
        drop(self.service.wait());
    }
}
