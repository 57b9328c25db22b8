//! Runs a probe outside and inside the sandbox as the given user, and judges the result.

use crate::{
    canary::Canaries,
    catalogue::{Attack, Control, Verdict},
    client::*,
    warm,
    world::User,
};
use rustix::process::geteuid;
use std::{
    cell::RefCell,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

/// The kind of sandbox that a probe runs in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// A sandbox made for the run.
    Cold,
    /// A ready sandbox.
    Warm,
    /// A ready sandbox of the tier `landlock`.
    WarmLandlock,
}

pub struct Runner {
    user: User,
    sandbox: Sandbox,
    server: RefCell<Option<Server>>,
    binary: PathBuf,
    python: PathBuf,
}

impl Runner {
    pub fn new(user: User, sandbox: Sandbox) -> Self {
        // uid 65534 cannot read the build directory.
        let binary = std::env::temp_dir().join(format!(
            "ringfence-under-test-{}-{}",
            std::process::id(),
            sandbox as u8
        ));
        fs::copy(env!("CARGO_BIN_EXE_ringfence"), &binary).unwrap();
        Self {
            user,
            sandbox,
            server: RefCell::new(None),
            binary,
            python: PathBuf::from("/usr/bin/python3"),
        }
    }

    /// The state directory of this runner and user, created by the user that runs the sandbox.
    fn state_dir(&self) -> PathBuf {
        self.binary.with_extension(format!("state-{}", self.user as u8))
    }

    pub fn label(&self) -> String {
        let user = match self.user {
            User::Same if geteuid().is_root() => "as root",
            User::Same => "as this user",
            User::Nobody => "as uid 65534",
        };
        let sandbox = match self.sandbox {
            Sandbox::Cold => "cold",
            Sandbox::Warm => "warm",
            Sandbox::WarmLandlock => "warm, tier landlock",
        };
        format!("{user}, {sandbox}")
    }

    /// True if the attack applies to this kind of sandbox. A directory of the host is mounted when a sandbox is made,
    /// so no ready sandbox has it. In the tier `landlock`, facts and flags do not apply, and the host's processes and
    /// the names of its files are visible (SECURITY.md).
    pub fn can_try(&self, attack: &Attack) -> bool {
        let is_seen = ["PROC-2", "PROC-3", "KERN-8"].contains(&attack.claim)
            || attack.name.contains("/etc, /root")
            || attack.name.contains("do not exist inside");
        match self.sandbox {
            Sandbox::Cold => true,
            Sandbox::Warm => !attack.flags.contains(&"--workspace"),
            Sandbox::WarmLandlock => {
                attack.control == Control::Outside && attack.flags.is_empty() && !is_seen
            }
        }
    }

    pub fn judge(&self, attack: &Attack) -> Verdict {
        let canaries = Canaries::plant((self.user == User::Nobody).then_some(NOBODY));
        if let Control::Outside = attack.control {
            let outside = self.outside(attack, &canaries);
            let reached = outside.contains("REACHED")
                || outside.contains(&canaries.token)
                || canaries.contacted().is_some();
            if !reached {
                return Verdict::NotApplicable(format!(
                    "does not succeed outside either: {}",
                    tail(&outside)
                ));
            }
        }
        // Discards the contacts of the control.
        while canaries.contacted().is_some() {}
        let inside = self.inside(attack, &canaries);
        if inside.contains(&canaries.token) {
            return Verdict::Escaped("the canary was read".into());
        }
        if let Some(listener) = canaries.contacted() {
            return Verdict::Escaped(format!("the host's {listener} was reached"));
        }
        if !canaries.intact() {
            return Verdict::Escaped("the canary was changed".into());
        }
        if inside.contains("REACHED") {
            return Verdict::Escaped(tail(&inside));
        }
        if inside.contains("BLOCKED") {
            return Verdict::Held(tail(&inside));
        }
        // A probe without a verdict was killed, which counts as held only if that is expected.
        match attack.killed_is_held && inside.contains("\"kind\":") {
            true => Verdict::Held(format!("killed: {}", tail(&inside))),
            false => Verdict::Escaped(format!("no verdict: {}", tail(&inside))),
        }
    }

    fn outside(&self, attack: &Attack, canaries: &Canaries) -> String {
        let mut command = self.command(&self.python);
        command.arg("-c").arg(attack.program()).envs(canaries.variables());
        both_streams_of(&command.stdin(Stdio::null()).output().unwrap())
    }

    fn inside(&self, attack: &Attack, canaries: &Canaries) -> String {
        match self.sandbox {
            Sandbox::Cold => self.inside_cold(attack, canaries),
            Sandbox::Warm | Sandbox::WarmLandlock => self.inside_warm(attack, canaries),
        }
    }

    fn inside_warm(&self, attack: &Attack, canaries: &Canaries) -> String {
        let mut server = self.server.borrow_mut();
        let server = server.get_or_insert_with(|| {
            let mut command = self.command(&self.binary);
            command
                .env("HOME", "/nonexistent")
                .env("CANARY_IN_ENVIRONMENT", "of the server");
            if self.sandbox == Sandbox::WarmLandlock {
                command.env("RINGFENCE_FLOOR", "landlock");
            }
            command.arg("serve").stderr(Stdio::null());
            Server::from_command(command)
        });
        let variables = canaries.variables().into_iter();
        let variables = variables.map(|(name, value)| (name, value.into()));
        let home = canaries.home.display().to_string();
        let flags = attack.flags.iter().map(|flag| flag.replace("{home}", &home));
        let flags: Vec<String> = flags.collect();
        warm::execute(server, &attack.program(), variables.collect(), &flags)
    }

    fn inside_cold(&self, attack: &Attack, canaries: &Canaries) -> String {
        let mut command = self.command(&self.binary);
        command.args(["run", "--json", "--language", "python"]);
        if !attack.flags.contains(&"--timeout") {
            command.args(["--timeout", "20"]);
        }
        for (name, value) in canaries.variables() {
            command.args(["--env", &format!("{name}={value}")]);
        }
        for flag in attack.flags {
            command.arg(flag.replace("{home}", &canaries.home.display().to_string()));
        }
        command
            .env("HOME", &canaries.home)
            .env("CANARY_IN_ENVIRONMENT", &canaries.token);
        let script = canaries.home.join("probe.py");
        fs::write(&script, attack.program()).unwrap();
        command.arg(&script).stdin(Stdio::null());
        let mut output = command.output().unwrap();
        // The changes to an overlay are shown to the operator, with content of the host's files.
        if let Ok(mut document) = serde_json::from_slice::<Value>(&output.stdout)
            && document
                .as_object_mut()
                .and_then(|document| document.remove("changes"))
                .is_some()
        {
            output.stdout = document.to_string().into_bytes();
        }
        both_streams_of(&output)
    }

    fn command(&self, program: &std::path::Path) -> Command {
        let mut command = match self.user {
            User::Same => Command::new(program),
            User::Nobody => as_nobody(program),
        };
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("RINGFENCE_STATE_DIR", self.state_dir())
            .current_dir("/");
        command
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.binary));
        drop(fs::remove_dir_all(self.state_dir()));
    }
}

/// Returns the line with the verdict, shortened.
fn tail(text: &str) -> String {
    let line = text
        .split(['\n'])
        .rev()
        .find(|line| line.contains("REACHED") || line.contains("BLOCKED"));
    let line = line.or_else(|| text.lines().last()).unwrap_or("");
    let from = line.find("REACHED").or_else(|| line.find("BLOCKED")).unwrap_or(0);
    line[from..]
        .chars()
        .take(110)
        .collect::<String>()
        .replace("\\n", " ")
}
