//! The causes of a refused step of a sandbox, each with the one smallest change that allows it: a table over plain
//! facts, so that it can be tested for hosts other than this one.

use crate::{failure::Failure, refused::is_filtered};
use ringfence_sys::{identity, landlock};
use std::{fs, os::unix::fs::MetadataExt, path::Path};

/// Facts about this process and its host that decide which steps the kernel allows.
#[derive(Clone, Debug)]
pub struct Facts {
    pub proc: bool,
    /// True if the effective user is root, without `CAP_SETFCAP`.
    pub bare_root: bool,
    /// True if a seccomp filter is in force on this process (`Seccomp: 2` in proc_pid_status(5)).
    pub filtered: bool,
    pub chroot: bool,
    pub apparmor: Option<String>,
    /// True if AppArmor removes the capabilities of user namespaces (Ubuntu 23.10 and later).
    pub apparmor_namespaces: bool,
    pub namespaces_off: bool,
    /// The lowest limit on namespaces: its name, as `user.max_mnt_namespaces`, and its value.
    pub lowest_limit: Option<(String, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The meaning of the error here; a clause without a full stop.
    pub cause: String,
    /// The smallest change; a sentence without a full stop.
    pub fix: String,
}

const PROFILE: &str = "in a container: `--security-opt seccomp=FILE --security-opt systempaths=unconfined`, with what \
    `ringfence doctor --seccomp` prints in FILE; elsewhere start it without the filter";

/// Steps that fail because of a path, a program or a limit, not because of the host.
const RUN_STEPS: [&str; 8] = [
    "code",
    "create cgroup",
    "directory of the run",
    "exec ",
    "join cgroup",
    "limit ",
    "open cgroup",
    "write file ",
];

/// Explains a failed step, and offers the weaker tier if Landlock works; `None` if this host is not the reason.
pub fn explain(failure: &Failure) -> Option<Advice> {
    let Failure { step, errno, detail } = failure;
    let facts = Facts::read();
    let of_filters = ["landlock", "seccomp"].contains(&step.as_str());
    let is_of_host = match *errno {
        _ if !facts.proc => true,
        _ if RUN_STEPS.iter().any(|other| step.starts_with(other))
            || detail.starts_with("failed to open") =>
        {
            false
        }
        _ if of_filters => true,
        libc::EPERM | libc::ENOSYS | libc::EOPNOTSUPP | libc::ENODEV | libc::EUSERS => true,
        libc::EACCES => !step.contains('/'),
        libc::ENOSPC => step == "new namespaces",
        0 => facts.filtered && step == "wait for the walls",
        _ => false,
    };
    let advice = is_of_host.then(|| facts.explain(step, *errno))?;
    let weaker = facts.proc && !of_filters && landlock::version().is_ok();
    Some(if weaker { advice.or_weaker() } else { advice })
}

impl Advice {
    pub(super) fn new(cause: impl Into<String>, fix: impl Into<String>) -> Self {
        let (cause, fix) = (cause.into(), fix.into());
        Self { cause, fix }
    }

    fn or_weaker(self) -> Self {
        let fix = format!(
            "{}; or accept the weaker tier that works here: `floor: landlock` (RINGFENCE_FLOOR=landlock)",
            self.fix
        );
        Self { fix, ..self }
    }
}

impl Facts {
    pub fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let number = |path: &str| text(path).trim().parse::<u64>().ok();
        let apparmor = ["/proc/self/attr/apparmor/current", "/proc/self/attr/current"].map(text);
        let apparmor = apparmor.iter().find_map(|label| {
            let profile = label.trim().strip_suffix(" (enforce)")?;
            Some(profile.to_owned())
        });
        let limits = ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"].map(|kind| {
            let name = format!("max_{kind}_namespaces");
            Some((format!("user.{name}"), number(&format!("/proc/sys/user/{name}"))?))
        });
        Self {
            proc: Path::new("/proc/self/status").exists(),
            bare_root: identity::effective_ids().0 == 0 && !identity::has_capability(identity::CAP_SETFCAP),
            filtered: is_filtered(),
            chroot: is_chroot(&text("/proc/self/mountinfo")),
            apparmor,
            apparmor_namespaces: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1),
            namespaces_off: number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0),
            lowest_limit: limits.into_iter().flatten().min_by_key(|(_, limit)| *limit),
        }
    }

    /// Explains a step that failed with this errno; 0 means that its process was killed.
    pub fn explain(&self, step: &str, errno: i32) -> Advice {
        if !self.proc {
            return Advice::new("/proc is not mounted here", "`mount -t proc proc /proc`");
        }
        match errno {
            libc::ENOSPC | libc::EUSERS => return self.limit(),
            0 if self.filtered => return Advice::new("a seccomp filter ends processes that try it", PROFILE),
            _ => {}
        }
        if step.starts_with("landlock") {
            return self.landlock(errno);
        }
        if errno == libc::EPERM && step == "proc" {
            return Advice::new(
                "something covers parts of /proc, and the kernel then refuses a new one",
                "in a container: `--security-opt systempaths=unconfined` (Podman: `unmask=ALL`, Kubernetes: `procMount: \
                 Unmasked`); elsewhere unmount it",
            );
        }
        if errno == libc::EPERM && step == "identity map" && self.bare_root {
            return Advice::new(
                "root without CAP_SETFCAP cannot map itself",
                "run it as another user (`docker run -u 1000`), or add the capability (`--cap-add SETFCAP`)",
            );
        }
        match errno {
            libc::EPERM | libc::EACCES | libc::ENOSYS => self.refusal(errno),
            libc::EROFS => Advice::new(
                "the file system is read-only",
                "set `state_dir` to a directory that can be written",
            ),
            _ => Advice::new(
                "the kernel refuses it",
                "a kernel of 5.13 or later with user namespaces, overlayfs, seccomp and Landlock",
            ),
        }
    }

    fn limit(&self) -> Advice {
        const UNLIMITED: u64 = 1 << 20;
        match &self.lowest_limit {
            Some((name, limit)) if *limit < UNLIMITED => Advice::new(
                format!("the limit {name} is {limit}, and it is reached"),
                format!("`sudo sysctl -w {name}=15000`"),
            ),
            _ => Advice::new(
                "a limit on namespaces that was set outside of this one is reached",
                "below bubblewrap, leave out `--disable-userns`; elsewhere raise `user.max_*_namespaces` outside",
            ),
        }
    }

    fn landlock(&self, errno: i32) -> Advice {
        let (cause, fix) = match errno {
            libc::EOPNOTSUPP => (
                "the kernel has Landlock, and it was not enabled at boot",
                "add `landlock` to the boot parameter `lsm=`",
            ),
            libc::EPERM | libc::EACCES | libc::ENOSYS if self.filtered => {
                ("a seccomp filter refuses Landlock", PROFILE)
            }
            _ => (
                "the kernel has no Landlock",
                "a kernel of 5.13 or later with CONFIG_SECURITY_LANDLOCK=y",
            ),
        };
        Advice::new(cause, fix)
    }

    /// Explains a refusal of namespaces, or of an operation in them, most specific cause first.
    fn refusal(&self, errno: i32) -> Advice {
        let (cause, fix) = match &self.apparmor {
            _ if self.chroot => (
                "the kernel makes no user namespaces in a chroot",
                "start it with `bwrap --bind DIR / --proc /proc --dev /dev`, `systemd-nspawn` or a container instead of chroot",
            ),
            _ if self.apparmor_namespaces => (
                "Ubuntu's AppArmor takes the capabilities of user namespaces away",
                "load the profile that `ringfence doctor --apparmor` prints; or `sudo sysctl -w \
                 kernel.apparmor_restrict_unprivileged_userns=0`",
            ),
            _ if self.namespaces_off => (
                "a setting of the kernel forbids user namespaces",
                "`sudo sysctl -w kernel.unprivileged_userns_clone=1`",
            ),
            Some(profile) if errno == libc::EACCES || !self.filtered => {
                return Advice::new(
                    format!("the AppArmor profile {profile} refuses it"),
                    "in a container: `--security-opt apparmor=unconfined`, or the profile that `ringfence doctor \
                     --apparmor` prints",
                );
            }
            _ if self.filtered => ("a seccomp filter refuses it", PROFILE),
            _ => (
                "the kernel refuses it to this user",
                "a kernel with CONFIG_USER_NS=y that allows user namespaces to this user",
            ),
        };
        Advice::new(cause, fix)
    }
}

/// True in a chroot: its root is usually not a mount; where it is, process 1 has another root.
fn is_chroot(mounts: &str) -> bool {
    let mut places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let mounted = mounts.is_empty() || places.any(|place| place == "/");
    let root = |path: &str| fs::metadata(path).map(|root| (root.dev(), root.ino())).ok();
    !mounted || root("/proc/1/root/").is_some_and(|first| root("/") != Some(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            proc: true,
            bare_root: false,
            filtered: false,
            chroot: false,
            apparmor: None,
            apparmor_namespaces: false,
            namespaces_off: false,
            lowest_limit: Some(("user.max_mnt_namespaces".to_owned(), 0)),
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "it is one table")]
    fn each_refusal_has_a_cause_and_a_fix() {
        let check = |facts: &Facts, step: &str, errno: i32, cause: &str, fix: &str| {
            let advice = facts.explain(step, errno);
            let found = advice.cause.contains(cause) && advice.fix.contains(fix);
            assert!(found, "{step} {errno}: {advice:?}");
        };
        let (bare, filtered) = (
            facts(),
            Facts {
                filtered: true,
                ..facts()
            },
        );
        let namespaces = "new namespaces";
        check(&bare, namespaces, libc::EPERM, "to this user", "CONFIG_USER_NS");
        check(
            &filtered,
            namespaces,
            libc::EPERM,
            "seccomp filter",
            "doctor --seccomp",
        );
        check(
            &filtered,
            "pivot_root",
            libc::ENOSYS,
            "seccomp filter",
            "doctor --seccomp",
        );
        check(
            &filtered,
            "wait for the walls",
            0,
            "ends processes",
            "doctor --seccomp",
        );
        check(
            &filtered,
            "landlock",
            libc::EPERM,
            "refuses Landlock",
            "doctor --seccomp",
        );
        check(&bare, "landlock", libc::ENOSYS, "no Landlock", "5.13");
        check(
            &filtered,
            "landlock",
            libc::EOPNOTSUPP,
            "not enabled at boot",
            "lsm=",
        );
        check(
            &filtered,
            "proc",
            libc::EPERM,
            "covers parts of /proc",
            "systempaths",
        );
        // A limit is reported as a limit, in a container too.
        let limit = "user.max_mnt_namespaces is 0";
        check(
            &filtered,
            namespaces,
            libc::ENOSPC,
            limit,
            "sysctl -w user.max_mnt_namespaces",
        );
        let outer = Facts {
            lowest_limit: Some(("user.max_user_namespaces".to_owned(), 1 << 31)),
            ..facts()
        };
        check(
            &outer,
            namespaces,
            libc::ENOSPC,
            "set outside",
            "--disable-userns",
        );
        let ubuntu = Facts {
            apparmor_namespaces: true,
            ..facts()
        };
        check(
            &ubuntu,
            "private mounts",
            libc::EACCES,
            "Ubuntu",
            "doctor --apparmor",
        );
        check(&ubuntu, "loopback", libc::EPERM, "Ubuntu", "doctor --apparmor");
        let docker = Facts {
            apparmor: Some("docker-default".to_owned()),
            ..facts()
        };
        check(
            &docker,
            "private mounts",
            libc::EACCES,
            "docker-default",
            "apparmor=unconfined",
        );
        let both = Facts {
            filtered: true,
            ..docker
        };
        check(
            &both,
            namespaces,
            libc::EPERM,
            "seccomp filter",
            "doctor --seccomp",
        );
        check(
            &both,
            "private mounts",
            libc::EACCES,
            "docker-default",
            "apparmor=unconfined",
        );
        let root = Facts {
            bare_root: true,
            ..facts()
        };
        check(&root, "identity map", libc::EPERM, "CAP_SETFCAP", "-u 1000");
        let chroot = Facts {
            chroot: true,
            ..facts()
        };
        check(&chroot, namespaces, libc::EPERM, "chroot", "bwrap");
        let empty = Facts {
            proc: false,
            ..facts()
        };
        check(
            &empty,
            namespaces,
            libc::EPERM,
            "/proc is not mounted",
            "mount -t proc",
        );
    }

    #[test]
    fn root_that_is_not_a_mount_is_a_chroot() {
        let line = |place: &str| format!("22 1 254:0 / {place} rw - ext4 /dev/vda rw\n");
        assert!(is_chroot(&line("/proc")));
        assert!(!is_chroot(&line("/")) || Path::new("/proc/1/root/").exists());
    }
}
