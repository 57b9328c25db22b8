//! A container engine for tests, with its own socket and data, without a bridge and firewall rules.

use super::web::Tls;
use crate::{
    command::{capture, command, show},
    workspace::Workspace,
};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

const TIMEOUT: Duration = Duration::from_secs(60);
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(15);
pub const IMAGE: &str = "ringfence-test:latest";
const DAEMON: &str = r#"{"runtimes": {"runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--platform=ptrace", "--ignore-cgroups", "--network=none"]}}}"#;

pub struct Engine {
    pub directory: PathBuf,
    daemon: Child,
    /// A host that programs reach by TLS, if one was started.
    pub tls: Option<Arc<Tls>>,
}

impl Engine {
    pub fn start(workspace: &Workspace) -> Result<Self, String> {
        let directory = workspace.target.join("backends");
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        fs::create_dir_all(&directory).map_err(failed)?;
        // A socket's path has at most 107 bytes, and runc refuses a root below a symlink.
        let directory = directory.canonicalize().map_err(failed)?;
        fs::write(directory.join("daemon.json"), DAEMON).map_err(failed)?;
        let daemon = Self::spawn(&directory)?;
        let mut engine = Self {
            directory,
            daemon,
            tls: None,
        };
        engine.wait_until_ready()?;
        engine.make_image()?;
        // Containers of an aborted run.
        for container in capture(engine.docker(&["ps", "-aq"]))?.lines() {
            capture(engine.docker(&["rm", "-f", container]))?;
        }
        Ok(engine)
    }

    fn spawn(directory: &Path) -> Result<Child, String> {
        let at = |name: &str| directory.join(name).display().to_string();
        drop(fs::remove_file(at("docker.sock")));
        let log = File::create(at("dockerd.log")).map_err(|error| format!("dockerd.log: {error}"))?;
        let mut daemon = command("dockerd", ["--config-file", &at("daemon.json")]);
        daemon.args(["-H", &format!("unix://{}", at("docker.sock"))]);
        daemon.args([
            "--data-root",
            &at("data"),
            "--exec-root",
            &at("exec"),
            "--pidfile",
            &at("pid"),
        ]);
        daemon.args(["--iptables=false", "--ip6tables=false", "--bridge=none"]);
        daemon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        daemon
            .spawn()
            .map_err(|error| format!("dockerd: {error}; apt-get install docker.io runsc"))
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        while capture(self.docker(&["version"])).is_err() {
            if begun.elapsed() > TIMEOUT {
                return Err(format!(
                    "dockerd does not answer; see {}/dockerd.log",
                    self.directory.display()
                ));
            }
            // The daemon ends if its containerd takes too long on a busy machine.
            if !matches!(self.daemon.try_wait(), Ok(None)) {
                self.daemon = Self::spawn(&self.directory)?;
            }
            sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join("docker.sock")
    }

    pub fn docker(&self, words: &[&str]) -> Command {
        let mut docker = command(
            "/usr/bin/docker",
            ["-H", &format!("unix://{}", self.socket().display())],
        );
        docker.args(words);
        docker
    }

    /// Returns the path of the cached archive with the image's files.
    pub fn tarball() -> PathBuf {
        let home = std::env::var("HOME").unwrap_or_else(|_| "/tmp".to_owned());
        Path::new(&home).join(".cache/ringfence-test/bookworm.tar")
    }

    fn make_image(&self) -> Result<(), String> {
        if capture(self.docker(&["image", "inspect", IMAGE])).is_ok() {
            return Ok(());
        }
        let tarball = Self::tarball();
        if !tarball.exists() {
            let cache = tarball.parent().unwrap_or(Path::new("/"));
            let root = cache.join("bookworm");
            let at = root.display().to_string();
            fs::create_dir_all(cache).map_err(|error| format!("{}: {error}", cache.display()))?;
            drop(fs::remove_dir_all(&root));
            let packages = "--include=python3,nodejs,ca-certificates";
            show(command(
                "debootstrap",
                ["--variant=minbase", packages, "bookworm", &at],
            ))?;
            let new = cache.join("new.tar");
            let excluded = ["--exclude=./var/cache/apt", "--exclude=./var/lib/apt/lists"];
            show(command(
                "tar",
                [
                    "-C",
                    &at,
                    excluded[0],
                    excluded[1],
                    "-cf",
                    &new.display().to_string(),
                    ".",
                ],
            ))?;
            fs::rename(&new, &tarball).map_err(|error| format!("{}: {error}", tarball.display()))?;
            drop(fs::remove_dir_all(&root));
        }
        let volume = "VOLUME /volume";
        capture(self.docker(&["import", "-c", volume, &tarball.display().to_string(), IMAGE])).map(drop)
    }

    /// Counts containers in any state, after giving the engine time to remove them.
    pub fn remaining_containers(&self) -> Result<usize, String> {
        let begun = Instant::now();
        loop {
            let count = self.container_count()?;
            if count == 0 || begun.elapsed() > REMOVAL_TIMEOUT {
                return Ok(count);
            }
            sleep(Duration::from_millis(200));
        }
    }

    /// Counts containers in any state.
    pub fn container_count(&self) -> Result<usize, String> {
        Ok(capture(self.docker(&["ps", "-aq"]))?.lines().count())
    }

    pub fn running_containers(&self) -> Vec<String> {
        let listed = capture(self.docker(&["ps", "-q"])).unwrap_or_default();
        listed.lines().map(str::to_owned).collect()
    }

    /// Kills the daemon, and starts it again.
    pub fn kill_and_restart(&mut self) -> Result<(), String> {
        self.kill();
        self.restart()
    }

    /// Kills the daemon and its containerd with SIGKILL.
    pub fn kill(&mut self) {
        drop(self.daemon.kill());
        drop(self.daemon.wait());
        drop(fs::remove_file(self.directory.join("pid")));
        // Its containerd, and the file with its pid: the daemon would take another process with that pid for it.
        self.kill_leftovers("containerd.toml");
        drop(fs::remove_file(
            self.directory.join("exec/containerd/containerd.pid"),
        ));
    }

    pub fn restart(&mut self) -> Result<(), String> {
        self.daemon = Self::spawn(&self.directory)?;
        self.wait_until_ready()
    }

    /// Stops the daemon with its socket open.
    pub fn suspend(&self) -> Result<(), String> {
        self.signal("STOP")
    }

    /// Lets a stopped daemon continue.
    pub fn resume(&self) {
        drop(self.signal("CONT"));
    }

    fn signal(&self, name: &str) -> Result<(), String> {
        show(command("kill", ["-s", name, &self.daemon.id().to_string()]))
    }

    /// Returns true if the engine has this container, in any state.
    pub fn has_container(&self, id: &str) -> bool {
        capture(self.docker(&["container", "inspect", id])).is_ok()
    }

    /// Starts a container that no server has made, with these options.
    pub fn start_foreign(&self, words: &[&str]) -> Result<String, String> {
        let run = [
            &["run", "-d", "--network=none"],
            words,
            &[IMAGE, "sleep", "100000"],
        ]
        .concat();
        Ok(capture(self.docker(&run))?.trim().to_owned())
    }

    /// Starts a container with the labels of a server with this state directory, and of this directory of the host.
    pub fn start_own(&self, state: &Path, directory: &Path) -> Result<String, String> {
        let label = |name: &str, value: &Path| format!("--label=dev.ringfence.{name}={}", value.display());
        self.start_foreign(&[&label("state", state), &label("directory", directory)])
    }

    /// Kills processes of this engine that have outlived it: those with this word and its directory in their command.
    fn kill_leftovers(&self, word: &str) {
        let own = self.directory.join("exec").display().to_string();
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let line = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
            let is_its_own = line.contains(word) && line.contains(&own);
            if let (true, Some(pid)) = (is_its_own, process.file_name().to_str()) {
                drop(show(command("kill", ["-s", "KILL", pid])));
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // On SIGTERM it ends its containers and containerd itself.
        self.resume();
        drop(self.signal("TERM"));
        drop(self.daemon.wait());
        self.kill_leftovers("containerd-shim");
    }
}
