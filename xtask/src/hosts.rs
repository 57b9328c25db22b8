//! Compares `ringfence doctor` with `ringfence run` in environments that restrict sandboxes: a local Docker engine,
//! bubblewrap, a chroot, system call filters, users without privileges. Both must agree in each. Requires root, and
//! `apt-get install docker.io debootstrap bubblewrap golang-github-containers-common`; images and the engine's data are
//! kept below target/hosts.

use crate::{
    command::{capture, command, show},
    workspace::Workspace,
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// Script of `ringfence run`. Its output shows whether the run worked.
const HELLO: &str = "echo hello from the sandbox\n";
const IMAGES: [&str; 2] = ["bookworm", "trixie"];
const ENGINE_TIMEOUT: Duration = Duration::from_secs(60);
const UNCONFINED: &str = "--security-opt seccomp=unconfined --security-opt systempaths=unconfined";

const PODMANS_PROFILE: &str = "/usr/share/containers/seccomp.json";

/// Containers: name, options of `docker run`, image.
#[rustfmt::skip]
const CONTAINERS: [(&str, &str, &str); 23] = [
    ("docker", "", "bookworm"),
    ("docker, floor landlock", "-e RINGFENCE_FLOOR=landlock", "bookworm"),
    ("docker, floor landlock, uid 1000", "-e RINGFENCE_FLOOR=landlock -u 1000", "bookworm"),
    ("docker, floor landlock, no caps", "-e RINGFENCE_FLOOR=landlock --cap-drop=ALL", "bookworm"),
    ("docker, floor landlock, read-only", "-e RINGFENCE_FLOOR=landlock --read-only", "bookworm"),
    ("docker, floor landlock, read-only, /tmp", "-e RINGFENCE_FLOOR=landlock --read-only --tmpfs /tmp", "bookworm"),
    ("docker, seccomp off", "--security-opt seccomp=unconfined", "bookworm"),
    ("docker, unconfined", "UNCONFINED", "bookworm"),
    ("docker, unconfined, uid 1000", "UNCONFINED -u 1000", "bookworm"),
    ("docker, unconfined, no caps", "UNCONFINED --cap-drop=ALL", "bookworm"),
    ("docker, unconfined, no caps, uid 1000", "UNCONFINED --cap-drop=ALL -u 1000", "bookworm"),
    ("docker, unconfined, no new privileges", "UNCONFINED --security-opt no-new-privileges", "bookworm"),
    ("docker, unconfined, read-only", "UNCONFINED --read-only", "bookworm"),
    ("docker, unconfined, read-only, /tmp", "UNCONFINED --read-only --tmpfs /tmp", "bookworm"),
    ("docker, unconfined, 256 MB, 64 pids", "UNCONFINED --memory 256m --pids-limit 64", "bookworm"),
    ("docker, unconfined, trixie", "UNCONFINED", "trixie"),
    ("docker, SYS_ADMIN", "--cap-add SYS_ADMIN --security-opt systempaths=unconfined", "bookworm"),
    ("docker, our profile", "OURS --security-opt systempaths=unconfined", "bookworm"),
    ("docker, our profile, uid 1000", "OURS --security-opt systempaths=unconfined -u 1000", "bookworm"),
    ("docker, Podman's profile", "PODMANS --security-opt systempaths=unconfined", "bookworm"),
    ("docker, Podman's profile, uid 1000", "PODMANS --security-opt systempaths=unconfined -u 1000", "bookworm"),
    ("docker, no sethostname", "WITHOUT_sethostname --security-opt systempaths=unconfined -u 1000", "bookworm"),
    ("docker, no setns", "WITHOUT_setns --security-opt systempaths=unconfined -u 1000", "bookworm"),
];

/// Environments without an engine: name, and the words before the program. `ROOT` is a root file system, `FILTER` a
/// program that installs a filter.
#[rustfmt::skip]
const WRAPPERS: [(&str, &str); 17] = [
    ("root", "env"),
    ("uid 65534", "env HOME=/tmp setpriv --reuid=65534 --regid=65534 --clear-groups"),
    ("uid 65534, no HOME", "env -u HOME setpriv --reuid=65534 --regid=65534 --clear-groups"),
    ("root, no bounding set", "setpriv --no-new-privs --bounding-set=-all --inh-caps=-all"),
    ("uid 65534, no bounding set", "env -u HOME setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs --bounding-set=-all"),
    ("max_user_namespaces=0", "unshare -r sh -c 'echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"' --"),
    ("max_mnt_namespaces=0", "unshare -r sh -c 'echo 0 > /proc/sys/user/max_mnt_namespaces; exec \"$@\"' --"),
    ("bubblewrap", "bwrap --unshare-all --bind / / --proc /proc --dev /dev"),
    ("bubblewrap --disable-userns", "bwrap --unshare-all --unshare-user --disable-userns --bind / / --proc /proc --dev /dev"),
    ("filter: Landlock EPERM", "python3 FILTER errno 444,445,446"),
    ("filter: Landlock kills", "python3 FILTER kill 444,445,446"),
    ("filter: pivot_root EPERM", "python3 FILTER errno 155"),
    ("filter: umount2 EPERM", "python3 FILTER errno 166"),
    ("filter: unshare EPERM", "python3 FILTER errno 272"),
    ("filter: fspick ENOSYS", "python3 FILTER errno 433"),
    ("chroot", "unshare -m sh -c 'mount --bind /proc ROOT/proc; exec chroot ROOT \"$@\"' --"),
    ("chroot, no /proc", "chroot ROOT"),
];

/// Installs a filter and executes the program.
const FILTER: &str = "\
import ctypes, os, struct, sys
answer = {'errno': 0x00050001, 'kill': 0x80000000}[sys.argv[1]]
calls = [int(call) for call in sys.argv[2].split(',')]
lines = [(0x20, 0, 0, 0)] + [(0x15, len(calls) - at, 0, call) for at, call in enumerate(calls)]
lines += [(0x06, 0, 0, 0x7fff0000), (0x06, 0, 0, answer)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in lines))
program = struct.pack('HxxxxxxP', len(lines), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[3], sys.argv[3:])
";

/// Tests all environments whose name contains `part` with this binary.
pub fn run(workspace: &Workspace, binary: &Path, part: &str) -> Result<(), String> {
    let tests = HostTests::prepare(workspace, binary)?;
    let mut disagree = 0;
    println!("{:42} {:9} {:9} message", "environment", "doctor", "run");
    for (name, wrapper) in WRAPPERS.iter().filter(|(name, _)| name.contains(part)) {
        disagree += tests.compare(name, |program| tests.wrapped(wrapper, program));
    }
    let containers = || CONTAINERS.iter().filter(|(name, ..)| name.contains(part));
    if containers().next().is_some() {
        let engine = Engine::start(&tests)?;
        for (name, options, image) in containers() {
            disagree += tests.compare(name, |program| engine.contained(options, image, program));
        }
    }
    match disagree {
        0 => Ok(()),
        count => Err(format!("{count} environment(s) in which doctor and run disagree")),
    }
}

struct HostTests {
    binary: PathBuf,
    directory: PathBuf,
    profile: PathBuf,
}

impl HostTests {
    fn prepare(workspace: &Workspace, binary: &Path) -> Result<Self, String> {
        let directory = workspace.target.join("hosts");
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        fs::create_dir_all(&directory).map_err(failed)?;
        // runc refuses a root below a symlink.
        let directory = directory.canonicalize().map_err(failed)?;
        let tests = Self {
            binary: binary
                .canonicalize()
                .map_err(|error| format!("{}: {error}", binary.display()))?,
            profile: workspace.root.join("packaging/seccomp.json"),
            directory: directory.clone(),
        };
        fs::write(directory.join("filter.py"), FILTER).map_err(failed)?;
        for image in IMAGES {
            let root = directory.join(image);
            if !root.join("etc/debian_version").exists() || root.join("debootstrap").exists() {
                show(command(
                    "debootstrap",
                    ["--variant=minbase", image, &root.display().to_string()],
                ))?;
            }
        }
        let root = directory.join(IMAGES[0]);
        for root in [&root, &directory] {
            fs::write(root.join("hello.sh"), HELLO).map_err(failed)?;
            fs::copy(&tests.binary, root.join("ringfence")).map_err(failed)?;
        }
        Ok(tests)
    }

    /// Returns 1 if they disagree, or if `doctor` gave no report to compare.
    fn compare(&self, name: &str, environment: impl Fn(&str) -> Command) -> usize {
        let (succeeded, report) = run_and_read(environment("doctor --json"));
        let report: Value = serde_json::from_str(&report).unwrap_or_default();
        let (runs, output) = run_and_read(environment("run hello.sh"));
        let (predicted, runs) = (
            succeeded && report["floor_met"] == true,
            runs && output.contains("hello from the sandbox"),
        );
        let hint = report["error"]["hint"].as_str().unwrap_or_default();
        let message = if runs {
            ""
        } else {
            output.lines().next().unwrap_or_default()
        };
        let word = |works| if works { "works" } else { "refused" };
        let mark = match (report["floor_met"].is_boolean(), predicted == runs) {
            (true, true) => "",
            (true, false) => "DISAGREE ",
            (false, _) => "NO REPORT ",
        };
        println!(
            "{name:42} {:9} {:9} {mark}{message} {hint}",
            word(predicted),
            word(runs)
        );
        usize::from(!mark.is_empty())
    }

    fn wrapped(&self, wrapper: &str, program: &str) -> Command {
        let (filter, root) = (self.directory.join("filter.py"), self.directory.join(IMAGES[0]));
        let wrapper = wrapper.replace("FILTER", &filter.display().to_string());
        let directory = if wrapper.contains("ROOT") {
            Path::new("/")
        } else {
            &self.directory
        };
        let wrapper = wrapper.replace("ROOT", &root.display().to_string());
        let binary = directory.join("ringfence").display().to_string();
        let program = program.replace("hello.sh", &directory.join("hello.sh").display().to_string());
        command("sh", ["-c", &format!("{wrapper} {binary} {program}")])
    }
}

/// Runs the command. Returns true if it succeeded, and its standard output, or its standard error if that is blank.
fn run_and_read(mut command: Command) -> (bool, String) {
    match command.stdin(Stdio::null()).output() {
        Ok(output) => {
            let text =
                [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let [out, error] = text;
            (
                output.status.success(),
                if out.trim().is_empty() { error } else { out },
            )
        }
        Err(error) => (false, error.to_string()),
    }
}

/// A separate Docker engine, ended when dropped.
struct Engine<'a> {
    tests: &'a HostTests,
    daemon: Child,
}

impl<'a> Engine<'a> {
    fn start(tests: &'a HostTests) -> Result<Self, String> {
        let at = |name: &str| tests.directory.join(name).display().to_string();
        let log = fs::File::create(tests.directory.join("dockerd.log")).map_err(|error| error.to_string())?;
        let options = [
            ("--data-root", at("docker")),
            ("--exec-root", at("docker-run")),
            ("--pidfile", at("docker.pid")),
            ("--host", format!("unix://{}", at("docker.sock"))),
        ];
        let mut daemon = command("dockerd", ["--iptables=false", "--bridge=none"]);
        let daemon = daemon
            .args(options.iter().flat_map(|(name, value)| [*name, value]))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("dockerd: {error}; apt-get install docker.io"))?;
        let engine = Self { tests, daemon };
        let begun = Instant::now();
        while !run_and_read(engine.docker(&["version"])).0 {
            if begun.elapsed() > ENGINE_TIMEOUT {
                return Err(format!("dockerd does not answer; see {}", at("dockerd.log")));
            }
            sleep(Duration::from_millis(200));
        }
        for image in IMAGES {
            if capture(engine.docker(&["image", "inspect", image])).is_err() {
                let socket = at("docker.sock");
                let import = format!(
                    "tar -C {} -c . | docker -H unix://{socket} import - {image}",
                    at(image)
                );
                show(command("sh", ["-c", &import]))?;
            }
        }
        Ok(engine)
    }

    fn docker(&self, words: &[&str]) -> Command {
        let socket = format!("unix://{}", self.tests.directory.join("docker.sock").display());
        command("docker", ["-H", &socket].iter().chain(words))
    }

    fn contained(&self, options: &str, image: &str, program: &str) -> Command {
        let directory = self.tests.directory.display().to_string();
        let mut docker = self.docker(&["run", "--rm", "--network=none", "-w", "/", "-v"]);
        docker.arg(format!("{directory}/ringfence:/usr/bin/ringfence:ro"));
        docker.args(["-v", &format!("{directory}/hello.sh:/hello.sh:ro")]);
        let profile = |path: &Path| format!("--security-opt seccomp={}", path.display());
        for option in options.replace("UNCONFINED", UNCONFINED).split_whitespace() {
            let option = match option.strip_prefix("WITHOUT_") {
                Some(call) => profile(&self.without(call)),
                None => option
                    .replace("OURS", &profile(&self.tests.profile))
                    .replace("PODMANS", &profile(Path::new(PODMANS_PROFILE))),
            };
            docker.args(option.split_whitespace());
        }
        docker.args([image, "ringfence"]).args(program.split_whitespace());
        docker
    }

    /// Writes our profile without one of its calls, and returns its path.
    fn without(&self, call: &str) -> PathBuf {
        let path = self.tests.directory.join(format!("without-{call}.json"));
        let text = fs::read_to_string(&self.tests.profile).unwrap_or_default();
        let written = fs::write(&path, text.replace(&format!("\"{call}\""), "\"acct\""));
        written.map_or_else(|_| PathBuf::new(), |()| path)
    }
}

impl Drop for Engine<'_> {
    fn drop(&mut self) {
        // On SIGTERM it ends its containers and containerd itself.
        drop(show(command("kill", [self.daemon.id().to_string()])));
        drop(self.daemon.wait());
    }
}
