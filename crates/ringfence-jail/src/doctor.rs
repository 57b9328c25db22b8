//! Tries every layer on this host, each in a process of its own, and says what is missing and the smallest change that
//! gives it.

use crate::{Host, cgroup};
use ringfence_sys::{
    mount::{self, Attributes},
    process::{self, Fork, NamespaceKind},
    wait::{self, Child},
};
use ringfence_types::Tier;
use serde::Serialize;
use std::{fs, io, path::Path};

/// One layer, tried.
#[derive(Clone, Debug, Serialize)]
pub struct LayerReport {
    /// Layer name as in results.
    pub layer: &'static str,
    /// Did it work.
    pub present: bool,
    /// Does the `full` tier refuse to run without it (else it has a weaker stand-in, named in `detail`).
    pub required: bool,
    /// Version or mechanism, or what failed and with which error.
    pub detail: String,
    /// The smallest change that gives it.
    pub fix: Option<String>,
}

/// All layers, in the order in which they are raised, and the strongest tier this host gives.
#[derive(Clone, Debug, Serialize)]
pub struct HostReport {
    /// Layers.
    pub layers: Vec<LayerReport>,
    /// Strongest tier, if any.
    pub tier: Option<Tier>,
}

impl HostReport {
    /// Does this host give at least that tier.
    pub fn gives(&self, tier: Tier) -> bool {
        // stronger tiers come first in the order of `Tier`
        self.tier.is_some_and(|strongest| strongest <= tier)
    }
}

/// Tries everything. Refuses (every layer is reported absent) in a process with several threads, which must not fork:
/// call it at the start of the program.
pub fn examine() -> HostReport {
    let host = Host::inspect(cgroup::Parent::find());
    let mut layers = namespaces();
    layers.push(own_root());
    layers.push(own_proc());
    layers.push(time_namespace(&host));
    layers.push(landlock(&host));
    layers.push(seccomp());
    layers.push(limits(&host));
    layers.push(overlay());
    layers.push(own_uids(&host));
    let missing = |names: &[&str]| {
        layers
            .iter()
            .any(|layer| names.contains(&layer.layer) && !layer.present)
    };
    let tier = if !layers.iter().any(|layer| layer.required && !layer.present) {
        Some(Tier::Full)
    } else if !missing(&["landlock", "seccomp"]) {
        Some(Tier::Landlock)
    } else {
        None
    };
    HostReport { layers, tier }
}

/// Runs `act` in a process with these namespaces and gives back its error.
fn attempt(namespaces: &[NamespaceKind], act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match process::fork_into(namespaces)? {
        Fork::Child => process::exit_now(match act() {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().unwrap_or(1),
        }),
        Fork::Parent(pid) => {
            let ended =
                wait::wait(Child::Pid(pid))?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            match ended.status.code() {
                Some(0) => Ok(()),
                Some(errno) => Err(io::Error::from_raw_os_error(errno)),
                None => Err(io::Error::other("killed")),
            }
        }
    }
}

/// What the lack of a layer means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// The full tier is not there.
    Floor,
    /// Something weaker takes its place, and says so.
    Extra,
}

fn report(
    layer: &'static str,
    need: Need,
    tried: io::Result<String>,
    fix: impl FnOnce() -> String,
) -> LayerReport {
    match tried {
        Ok(detail) => LayerReport {
            layer,
            present: true,
            required: need == Need::Floor,
            detail,
            fix: None,
        },
        Err(error) => LayerReport {
            layer,
            present: false,
            required: need == Need::Floor,
            detail: error.to_string(),
            fix: Some(fix()),
        },
    }
}

fn namespaces() -> Vec<LayerReport> {
    let user = attempt(&[NamespaceKind::User], || Ok(())).map(|()| "own".to_owned());
    let user = report("user_namespace", Need::Floor, user, user_namespace_fix);
    let mut layers = vec![user];
    for (layer, kind) in [
        ("mount_namespace", NamespaceKind::Mount),
        ("pid_namespace", NamespaceKind::Pid),
        ("network_namespace", NamespaceKind::Net),
        ("ipc_namespace", NamespaceKind::Ipc),
        ("uts_namespace", NamespaceKind::Uts),
        ("cgroup_namespace", NamespaceKind::Cgroup),
    ] {
        let tried = attempt(&[NamespaceKind::User, kind], || Ok(())).map(|()| "own".to_owned());
        layers.push(report(layer, Need::Floor, tried, || {
            format!(
                "comes with user namespaces; if those work, raise the limits in /proc/sys/user/ for {layer}s"
            )
        }));
    }
    layers
}

/// What forbids user namespaces here, most specific first.
fn user_namespace_fix() -> String {
    let setting = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    if setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
        return "Ubuntu's AppArmor forbids it: `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or an \
                AppArmor profile for the ringfence binary with `userns,`"
            .to_owned();
    }
    if setting("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
        return "`sudo sysctl -w kernel.unprivileged_userns_clone=1`".to_owned();
    }
    if setting("/proc/sys/user/max_user_namespaces") == "0" {
        return "`sudo sysctl -w user.max_user_namespaces=15000`".to_owned();
    }
    if in_container() {
        return "the container's seccomp profile forbids it: run the container with `--security-opt seccomp=unconfined \
                --security-opt systempaths=unconfined` (Docker, Podman), or allow clone, unshare and mount in its profile"
            .to_owned();
    }
    "a kernel with CONFIG_USER_NS=y that allows them to this user".to_owned()
}

fn in_container() -> bool {
    ["/.dockerenv", "/run/.containerenv"]
        .iter()
        .any(|path| Path::new(path).exists())
}

const SAFE: Attributes = Attributes {
    read_only: true,
    no_devices: true,
    no_exec: true,
};

fn own_root() -> LayerReport {
    let tried = attempt(&[NamespaceKind::User, NamespaceKind::Mount], || {
        mount::make_root_private()?;
        let made = mount::new_filesystem("tmpfs", &[], SAFE)?;
        let tree = mount::clone_tree(ringfence_sys::file::current_directory(), Path::new("/usr"))?;
        mount::restrict(std::os::fd::AsFd::as_fd(&tree), SAFE, mount::Reach::AllBelow)?;
        mount::attach(
            std::os::fd::AsFd::as_fd(&made),
            ringfence_sys::file::current_directory(),
            Path::new("/"),
        )
    });
    report(
        "own_root",
        Need::Floor,
        tried.map(|()| "tmpfs root, read-only trees".to_owned()),
        || {
            "a kernel of 5.13 or later with tmpfs, and no profile that forbids mount, open_tree and mount_setattr".to_owned()
        },
    )
}

fn own_proc() -> LayerReport {
    let tried = attempt(
        &[NamespaceKind::User, NamespaceKind::Mount, NamespaceKind::Pid],
        || mount::new_filesystem("proc", &[], SAFE).map(drop),
    );
    report(
        "own_proc",
        Need::Floor,
        tried.map(|()| "own /proc, masked".to_owned()),
        || {
            if in_container() {
                "the container masks parts of /proc, and the kernel then refuses a new one: run it with `--security-opt \
             systempaths=unconfined`"
                .to_owned()
            } else {
                "something is mounted over parts of /proc; the kernel refuses a new one until it is unmounted"
                    .to_owned()
            }
        },
    )
}

fn time_namespace(host: &Host) -> LayerReport {
    let tried = if host.time_namespaces {
        attempt(&[NamespaceKind::User], || {
            process::unshare(&[NamespaceKind::Time])
        })
        .map(|()| "own clocks".to_owned())
    } else {
        Err(io::Error::other("not in this kernel"))
    };
    report("time_namespace", Need::Extra, tried, || {
        "a kernel of 5.6 or later with CONFIG_TIME_NS=y".to_owned()
    })
}

/// From this version on signals and abstract sockets are scoped.
const LANDLOCK_SCOPES: i32 = 6;

fn landlock(host: &Host) -> LayerReport {
    let tried = match host.landlock {
        0 => Err(io::Error::other("not enabled")),
        abi if abi < LANDLOCK_SCOPES => Ok(format!(
            "abi {abi}; signals and abstract sockets are left to the namespaces"
        )),
        abi => Ok(format!("abi {abi}")),
    };
    report("landlock", Need::Floor, tried, || {
        "a kernel of 5.13 or later with CONFIG_SECURITY_LANDLOCK=y and `landlock` in the boot parameter `lsm=`".to_owned()
    })
}

fn seccomp() -> LayerReport {
    let filters = crate::seccomp::programs(crate::seccomp::Profile::Full { memory_cgroup: true });
    let tried = filters.and_then(|filters| {
        attempt(&[], || {
            ringfence_sys::identity::refuse_new_privileges()?;
            ringfence_sys::seccomp::install(filters)
        })
    });
    report(
        "seccomp",
        Need::Floor,
        tried.map(|()| "allowlist".to_owned()),
        || "a kernel with CONFIG_SECCOMP_FILTER=y".to_owned(),
    )
}

fn limits(host: &Host) -> LayerReport {
    let tried = match &host.cgroups {
        cgroup::Parent::V2 {
            cpu: cgroup::CpuShare::Quota,
            ..
        } => Ok("cgroup v2: memory, processes, cpu".to_owned()),
        cgroup::Parent::V2 {
            cpu: cgroup::CpuShare::Affinity,
            ..
        } => Ok("cgroup v2: memory, processes; cpu by affinity".to_owned()),
        cgroup::Parent::V1 { cpu: Some(_), .. } => Ok("cgroup v1: memory, processes, cpu".to_owned()),
        cgroup::Parent::V1 { cpu: None, .. } => {
            Ok("cgroup v1: memory, processes; cpu by affinity".to_owned())
        }
        cgroup::Parent::None { reason } => Err(io::Error::other(format!(
            "none ({reason}); memory is sampled, processes are counted by the user namespace, cpu is by affinity"
        ))),
    };
    report("cgroup", Need::Extra, tried, || {
        "start it in a delegated cgroup of its own: `systemd-run --user --scope -p Delegate=yes ringfence serve`".to_owned()
    })
}

fn overlay() -> LayerReport {
    let listed = fs::read_to_string("/proc/filesystems")
        .unwrap_or_default()
        .lines()
        .any(|line| line.ends_with("\toverlay"));
    let tried = if listed {
        Ok("for `--workspace DIR:overlay`".to_owned())
    } else {
        Err(io::Error::other("not loaded"))
    };
    report("overlayfs", Need::Extra, tried, || {
        "`sudo modprobe overlay`; needed for `--workspace DIR:overlay` only".to_owned()
    })
}

fn own_uids(host: &Host) -> LayerReport {
    let tried = if host.own_uids {
        Ok("a host uid for each sandbox".to_owned())
    } else if host.user.0 == 0 {
        Err(io::Error::other(
            "root without the ids or capabilities to give each sandbox its own",
        ))
    } else {
        Ok("not needed: the server is an ordinary user".to_owned())
    };
    report("own_uid", Need::Extra, tried, || {
        "CAP_SETUID, CAP_SETGID, CAP_SYS_ADMIN and the whole range of ids".to_owned()
    })
}
