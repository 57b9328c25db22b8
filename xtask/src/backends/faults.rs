//! An engine that hangs, is gone, is full, or has not what is wanted; containers of others; and the words by which a
//! container is asked for. No answer comes from another backend than the one that was named, native sandboxes go on, and
//! what is not ours stays.

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

/// How long a refusal may take: the engine has ten seconds for an answer.
const REFUSAL: Duration = Duration::from_secs(14);
/// And an answer of a native sandbox meanwhile.
const NATIVE: Duration = Duration::from_secs(8);
/// How long the engine has for removing what is left.
const PATIENCE: Duration = Duration::from_secs(40);
/// Requests at once to an engine that hangs. With a native one they are all that run at once on two processors that
/// are busy: more would wait for the answer of those before them.
const REQUESTS: usize = 3;

type Story = fn(&Workspace, &mut Engine) -> Result<(), String>;

const STORIES: &[(&str, Story)] = &[
    ("an engine that hangs", hangs),
    ("an engine that hangs while it makes a container", hangs_late),
    ("an engine that is gone, and comes back", gone),
    ("a server that ends soon after its engine came back", ended_soon),
    ("an engine whose disk is full", full),
    ("images, runtimes and pins that are not there", absent),
    ("what is not ours stays", strangers),
    ("the ways to ask for a container", asked),
    ("floors", floors),
    ("Podman by its socket", podman),
];

/// Podman's own place, its runtime, and limits that a host without the right to raise them lets it set.
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

/// Those whose name holds `part`.
pub fn run(workspace: &Workspace, engine: &mut Engine, part: &str) -> Result<(), String> {
    let (mut failed, mut count) = (Vec::new(), 0);
    for (name, story) in STORIES.iter().filter(|(name, _)| name.contains(part)) {
        count += 1;
        let begun = Instant::now();
        let told = story(workspace, engine);
        engine.go_on();
        let seconds = begun.elapsed().as_secs();
        match told {
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

/// It is so; else what was seen.
macro_rules! expect {
    ($is_so:expr, $seen:expr $(,)?) => {
        match $is_so {
            true => Ok(()),
            false => Err($seen.to_string().chars().take(700).collect::<String>()),
        }
    };
}

/// A refusal with this code, a hint, and nothing that a program has said.
fn refused(seen: &Value, code: &str) -> Result<(), String> {
    let is_so = seen["code"] == code && seen["hint"].is_string() && seen["stdout"].is_null();
    expect!(is_so, format_args!("not refused with {code}: {seen}"))
}

fn right(seen: &Value, backend: &str) -> Result<(), String> {
    expect!(seen["stdout"] == "1\n" && seen["backend"] == backend, seen)
}

/// A native sandbox answers, soon.
fn native_goes_on(server: &Server) -> Result<(), String> {
    let begun = Instant::now();
    right(&server.run("native", "python", "print(1)")?, "native")?;
    expect!(begun.elapsed() < NATIVE, "a native sandbox waits for the engine")
}

/// Until the engine has no container.
fn emptied(engine: &Engine) -> Result<(), String> {
    let begun = Instant::now();
    while engine.there()? > 0 {
        if begun.elapsed() > PATIENCE {
            return Err(format!("{} container(s) are left", engine.there()?));
        }
        sleep(Duration::from_millis(200));
    }
    Ok(())
}

fn print(backend: &str) -> Value {
    json!({"code": "print(1)", "language": "python", "backend": backend, "validate": "off"})
}

fn hangs(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
    let server = cold(workspace, engine)?;
    engine.hang()?;
    let begun = Instant::now();
    let asked: Result<Vec<u64>, String> = (0..REQUESTS)
        .map(|number| server.begin("execute_code", &print(["docker", "gvisor"][number % 2])))
        .collect();
    let (asked, info) = (asked?, server.begin("get_sandbox_info", &json!({}))?);
    native_goes_on(&server)?;
    for id in asked {
        refused(&server.result(id)?, "runtime_unavailable")?;
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
    // Nothing of it is known any more: the next one asks again, and is cancelled meanwhile.
    sleep(Duration::from_millis(1200));
    let mut later = print("docker");
    later["background"] = json!(true);
    let run =
        json!({"execution_id": server.call("execute_code", &later)?["execution_id"], "wait_seconds": 20});
    let begun = Instant::now();
    server.call("cancel_execution", &json!({"execution_id": run["execution_id"]}))?;
    refused(&server.call("get_execution", &run)?, "cancelled")?;
    expect!(
        begun.elapsed() < NATIVE,
        "a cancelled request waits for the engine",
    )?;
    engine.go_on();
    right(&server.run("docker", "python", "print(1)")?, "docker")?;
    emptied(engine)
}

fn hangs_late(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
    let server = cold(workspace, engine)?;
    // What it is, and that it has the image, is known for a while.
    right(&server.run("docker", "python", "print(1)")?, "docker")?;
    emptied(engine)?;
    engine.hang()?;
    let begun = Instant::now();
    let asked: Result<Vec<u64>, String> = (0..REQUESTS)
        .map(|_| server.begin("execute_code", &print("docker")))
        .collect();
    native_goes_on(&server)?;
    for id in asked? {
        refused(&server.result(id)?, "runtime_unavailable")?;
    }
    expect!(begun.elapsed() < REFUSAL, format_args!("{:?}", begun.elapsed()))?;
    // It wakes, and does what it was asked to: containers that wait for nobody. The server that lives removes them.
    engine.go_on();
    right(&server.run("docker", "python", "print(1)")?, "docker")?;
    emptied(engine)
}

fn gone(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
    let state = engine
        .directory
        .join(format!("state-gone-{}", std::process::id()));
    let start = |engine: &Engine| Server::with_state(&workspace.binary(), engine, &[], state.clone());
    let server = start(engine)?;
    right(&server.run("docker", "python", "print(1)")?, "docker")?;
    let left = engine.ours(&state, &state.join("runs/gone"))?;
    engine.end();
    refused(
        &server.run("docker", "python", "print(1)")?,
        "runtime_unavailable",
    )?;
    native_goes_on(&server)?;
    server.kill();
    drop(fs::remove_file(engine.socket()));
    // The next one begins before the engine does, without a socket, and removes what is left all the same.
    let server = start(engine)?;
    refused(
        &server.run("gvisor", "python", "print(1)")?,
        "runtime_unavailable",
    )?;
    engine.begin_again()?;
    right(&server.run("docker", "python", "print(1)")?, "docker")?;
    let begun = Instant::now();
    while engine.has(&left) {
        expect!(
            begun.elapsed() < PATIENCE,
            "what an earlier server left is still there",
        )?;
        sleep(Duration::from_millis(200));
    }
    drop(server);
    emptied(engine)
}

/// What an engine that was killed had begun to make is there when it is back. A server that cleans looks for it once more
/// at its end.
fn ended_soon(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
    let state = engine
        .directory
        .join(format!("state-ended-{}", std::process::id()));
    let server = Server::with_state(&workspace.binary(), engine, &[], state.clone())?;
    right(&server.run("docker", "python", "print(1)")?, "docker")?;
    engine.end();
    refused(
        &server.run("docker", "python", "print(1)")?,
        "runtime_unavailable",
    )?;
    engine.begin_again()?;
    right(&server.run("docker", "python", "print(1)")?, "docker")?;
    // After a look of the server's, and before the next.
    engine.ours(&state, &state.join("runs/gone"))?;
    drop(server);
    emptied(engine)
}

fn full(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
    emptied(engine)?;
    let server = cold(workspace, engine)?;
    let disk = engine.directory.join("data/containers");
    let at = disk.display().to_string();
    show(command("mount", ["-t", "tmpfs", "-o", "size=64k", "tmpfs", &at]))?;
    let judged = fill(&disk)
        .and_then(|()| refused(&server.run("docker", "python", "print(1)")?, "sandbox_fault"))
        .and_then(|()| native_goes_on(&server));
    show(command("umount", [&at]))?;
    judged?;
    right(&server.run("docker", "python", "print(1)")?, "docker")?;
    drop(server);
    emptied(engine)
}

/// A small file system, to its last block.
fn fill(disk: &Path) -> Result<(), String> {
    let filled = fs::write(disk.join("full"), vec![0; 1 << 20]);
    expect!(filled.is_err(), "the disk does not fill")
}

fn absent(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
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
        refused(&seen, code)?;
        expect!(seen["message"].to_string().contains(word), &seen)?;
        native_goes_on(&server)?;
    }
    let id = capture(engine.docker(&["image", "inspect", "-f", "{{.Id}}", IMAGE]))?;
    let pinned = [
        ("RINGFENCE_CONTAINERS_REQUIRE_DIGEST", "true"),
        ("RINGFENCE_CONTAINERS_IMAGE_PYTHON", id.trim()),
    ];
    let server = Server::start(&workspace.binary(), engine, &pinned)?;
    right(&server.run("docker", "python", "print(1)")?, "docker")
}

fn strangers(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
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
    let living = engine.containers();
    let label = |value: &str| format!("--label=dev.ringfence.state={value}");
    let state_name = state.display().to_string();
    let mut stay = vec![
        engine.stranger(&[])?,
        engine.stranger(&["--name=ringfence-of-somebody"])?,
        engine.stranger(&[&label(&format!("{state_name}-2"))])?,
        engine.stranger(&[&label("")])?,
        engine.stranger(&[&format!("--label=dev.ringfence.directory={state_name}/runs/x")])?,
    ];
    let go = [
        engine.ours(&state, &state.join("runs/gone"))?,
        engine.ours(&state, Path::new("/nowhere"))?,
        engine.stranger(&[&label(&state_name)])?,
    ];
    stay.extend(living);
    // Another server with this state directory, while the first one lives.
    let second = start()?;
    right(&second.run("docker", "python", "print(1)")?, "docker")?;
    let begun = Instant::now();
    while go.iter().any(|id| engine.has(id)) {
        expect!(begun.elapsed() < PATIENCE, "what is ours is still there")?;
        sleep(Duration::from_millis(200));
    }
    let kept = stay.iter().all(|id| engine.has(id));
    let answer = first.call("execute_code", &call)?;
    drop((first, second));
    for id in &stay {
        drop(capture(engine.docker(&["rm", "-f", id])));
    }
    expect!(kept, "a container that is not ours is gone")?;
    expect!(answer["result"] == 1, answer)?;
    emptied(engine)
}

fn asked(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
    let server = cold(workspace, engine)?;
    let mut container = print("docker");
    container["use_container"] = json!(true);
    right(&server.call("execute_code", &container)?, "docker")?;
    container
        .as_object_mut()
        .map(|arguments| arguments.remove("backend"));
    right(&server.call("execute_code", &container)?, "docker")?;
    container["backend"] = json!("native");
    refused(&server.call("execute_code", &container)?, "invalid_argument")?;
    // At the command line, and by the names that other servers have for it.
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
    emptied(engine)
}

fn floors(workspace: &Workspace, engine: &mut Engine) -> Result<(), String> {
    for (floor, backend, is_held) in [
        ("full", "docker", false),
        ("full", "gvisor", false),
        ("gvisor", "docker", false),
        ("gvisor", "gvisor", true),
        ("container", "docker", true),
    ] {
        let server = Server::start(&workspace.binary(), engine, &[("RINGFENCE_FLOOR", floor)])?;
        let seen = server.run(backend, "python", "print(1)")?;
        match is_held {
            true => right(&seen, backend)?,
            false => refused(&seen, "below_floor")?,
        }
        native_goes_on(&server)?;
    }
    emptied(engine)
}

/// The same walls by Podman's socket. It leaves the runtime out that one container asks for, and so has no gVisor.
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
    podman.has(&image)?;
    let path = at.join("socket").display().to_string();
    let server = Server::start(
        &workspace.binary(),
        engine,
        &[
            ("RINGFENCE_CONTAINERS_SOCKET", &path),
            ("RINGFENCE_CONTAINERS_IMAGE_PYTHON", &image),
        ],
    )?;
    right(&server.run("docker", "python", "print(1)")?, "docker")?;
    let walls = "import re\nprint(re.findall(r'(?:CapEff|NoNewPrivs|Seccomp):\\s+(\\w+)', open('/proc/self/status').read()))";
    let seen = server.run("docker", "python", walls)?;
    expect!(seen["stdout"] == "['0000000000000000', '1', '2']\n", &seen)?;
    refused(
        &server.run("gvisor", "python", "print(1)")?,
        "runtime_unavailable",
    )?;
    native_goes_on(&server)?;
    drop(server);
    podman.emptied()
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

    /// Until it answers, and has this image.
    fn has(&self, image: &str) -> Result<(), String> {
        if capture(Self::command(&self.at, &["image", "exists", image])).is_err() {
            let tarball = Engine::tarball().display().to_string();
            capture(Self::command(&self.at, &["import", &tarball, image]))?;
        }
        let begun = Instant::now();
        while !self.at.join("socket").exists() {
            expect!(begun.elapsed() < PATIENCE, "podman does not listen")?;
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn emptied(&self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let left = capture(Self::command(&self.at, &["ps", "-aq"]))?;
            if left.trim().is_empty() {
                return Ok(());
            }
            expect!(begun.elapsed() < PATIENCE, format_args!("left in podman: {left}"))?;
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
