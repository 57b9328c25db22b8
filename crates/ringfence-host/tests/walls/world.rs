//! Fresh directories with a secret, and commands run in them with and without walls.

use ringfence_host::{Allowed, CallContext, Outcome, Rules, Support, Words, load, prepare, probe};
use ringfence_jail::cgroup::{self, Parent};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Text of the secret.
pub const SECRET: &str = "ringfence-canary-4c1b";

/// A working directory, the path of a marker that does not exist yet, and a secret.
pub struct World {
    pub base: PathBuf,
    pub directory: PathBuf,
    pub marker: PathBuf,
    pub secret: PathBuf,
}

impl World {
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let base = PathBuf::from(format!(
            "/var/tmp/ringfence-host-{name}-{}-{number}",
            std::process::id()
        ));
        drop(fs::remove_dir_all(&base));
        let directory = base.join("work");
        fs::create_dir_all(directory.join("bin")).unwrap();
        fs::create_dir(base.join("secret")).unwrap();
        fs::create_dir(base.join("open")).unwrap();
        // Every user that a command runs as can make the marker.
        fs::set_permissions(base.join("open"), fs::Permissions::from_mode(0o777)).unwrap();
        let world = Self {
            marker: base.join("open/marker"),
            secret: base.join("secret/secret"),
            directory,
            base,
        };
        fs::write(&world.secret, format!("{SECRET}\n")).unwrap();
        let evil = world.directory.join("evil");
        fs::write(
            &evil,
            world.fill("#!/bin/sh\ntouch $M\ncat > /dev/null 2>&1 < /dev/null\nexit 0\n"),
        )
        .unwrap();
        fs::set_permissions(&evil, fs::Permissions::from_mode(0o755)).unwrap();
        world
    }

    /// Replaces `$D`, `$M` and `$S` by the paths of this world.
    pub fn fill(&self, text: &str) -> String {
        text.replace("$D", &self.directory.display().to_string())
            .replace("$M", &self.marker.display().to_string())
            .replace("$S", &self.secret.display().to_string())
    }

    /// Runs a shell script in the directory, without walls; it is killed after `seconds`.
    pub fn bare(&self, script: &str, seconds: &str) -> Output {
        let path = format!(
            "{}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            self.directory.display()
        );
        Command::new("timeout")
            .args(["-s", "KILL", seconds, "sh", "-c", &self.fill(script)])
            .current_dir(&self.directory)
            .env_clear()
            .envs([
                ("PATH", path.as_str()),
                ("HOME", self.directory.to_str().unwrap()),
                ("LC_ALL", "C.UTF-8"),
            ])
            .envs([
                ("GIT_CONFIG_NOSYSTEM", "1"),
                ("GIT_EDITOR", "true"),
                ("GIT_PAGER", "cat"),
                ("TZ", "UTC"),
                ("npm_config_update_notifier", "false"),
                ("npm_config_offline", "true"),
            ])
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// The default rules, with this directory open to every access.
    pub fn rules(&self) -> Rules {
        self.rules_with("")
    }

    pub fn rules_with(&self, more: &str) -> Rules {
        let text = format!(
            "directories:\n  - {{path: {}, access: [read, list, write]}}\n{}",
            self.directory.display(),
            self.fill(more)
        );
        load(Some((Path::new("rules.yaml"), &text))).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs an allowed command in the directory.
    pub fn run(&self, rules: &Rules, allowed: &Allowed, seconds: u64) -> Result<Outcome, String> {
        let place = CallContext {
            namespace: "default",
            directory: Some(&self.directory),
            timeout: Duration::from_secs(seconds),
            support: support(),
            cgroups: cgroups(),
        };
        let command = prepare(rules, allowed, &place).map_err(|error| error.to_string())?;
        assert!(
            command.missing.is_empty(),
            "{:?}: {:?}",
            command.missing,
            support()
        );
        let running = command.start(&binary()).map_err(|error| error.to_string())?;
        running.wait().map_err(|error| error.to_string())
    }

    /// Runs a command that the rules must allow.
    pub fn run_by_rule(&self, command: &str) -> Outcome {
        let rules = self.rules();
        let allowed = rules
            .judge(&words(command))
            .unwrap_or_else(|refused| panic!("{command}: {refused}"));
        self.run(&rules, &allowed, 20)
            .unwrap_or_else(|error| panic!("{command}: {error}"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.base));
    }
}

pub fn words(command: &str) -> Words {
    Words::read(command).unwrap_or_else(|error| panic!("{command}: {error}"))
}

pub fn binary() -> PathBuf {
    std::env::current_exe().unwrap()
}

pub fn cgroups() -> &'static Parent {
    static PARENT: OnceLock<Parent> = OnceLock::new();
    PARENT.get_or_init(|| {
        let parent = Parent::find();
        cgroup::prepare(&parent).unwrap();
        parent
    })
}

/// Returns the walls of this host. A test host must have all of them.
pub fn support() -> &'static Support {
    static SUPPORT: OnceLock<Support> = OnceLock::new();
    SUPPORT.get_or_init(|| {
        let support = probe(&binary(), cgroups());
        assert!(support.landlock && support.namespaces.is_ok(), "{support:?}");
        support
    })
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub fn is_installed(program: &str) -> bool {
    [
        "/usr/local/sbin",
        "/usr/local/bin",
        "/usr/sbin",
        "/usr/bin",
        "/sbin",
        "/bin",
    ]
    .iter()
    .any(|directory| Path::new(directory).join(program).exists())
}

/// Returns true, and prints so, if the program is missing; fails if `RINGFENCE_REQUIRE` names it.
pub fn lacks(program: &str) -> bool {
    let is_missing = !is_installed(program);
    if is_missing {
        let required = std::env::var("RINGFENCE_REQUIRE").unwrap_or_default();
        assert!(
            !required.split(',').any(|word| word == program),
            "{program} is required and not here"
        );
        println!("  not applicable: {program} is not here");
    }
    is_missing
}
