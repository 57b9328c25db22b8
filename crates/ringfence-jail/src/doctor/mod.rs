//! Tries every layer on this host, each in a separate process, and reports what is missing with the smallest change
//! that provides it. The caller tests if all of them together make a sandbox.

mod cause;

pub use cause::{Advice, Facts, explain};

use crate::{Host, Refused, cgroup, visit::run_in_new};
use ringfence_sys::{
    mount::{self, Attributes},
    process::{self, NamespaceKind},
};
use serde::Serialize;
use std::{fs, io, os::fd::AsFd, path::Path};

#[derive(Clone, Debug, Serialize)]
pub struct LayerReport {
    pub layer: &'static str,
    pub present: bool,
    /// True if the tier `full` refuses to run without it; otherwise a weaker replacement is used, named in `detail`.
    pub required: bool,
    /// Version or mechanism, or the error and its cause.
    pub detail: String,
    pub fix: Option<String>,
}

/// Tries every layer, in the order of set-up. A process with several threads must not fork, and reports layers that
/// need a child as absent: call it at the start of the program. `helper` is the binary that would be the helper.
pub fn examine(helper: &Path) -> Vec<LayerReport> {
    let host = Host::inspect(cgroup::Parent::find(), Refused::detect(helper));
    let facts = Facts::read();
    let mut layers = namespaces(&facts, host.refused);
    layers.extend([
        own_root(&facts, host.refused),
        own_proc(&facts),
        time_namespace(&host),
        landlock(&facts, &host),
        seccomp(&facts),
        limits(&host),
        overlay(),
        own_uids(&host),
    ]);
    layers
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Required,
    Optional,
}

fn report(
    layer: &'static str,
    need: Need,
    tried: io::Result<String>,
    advise: impl FnOnce(&io::Error) -> Advice,
) -> LayerReport {
    let (present, detail, fix) = match tried {
        Ok(detail) => (true, detail, None),
        Err(error) => {
            let Advice { cause, fix } = advise(&error);
            let detail = match cause.is_empty() {
                true => error.to_string(),
                false => format!("{error}: {cause}"),
            };
            (false, detail, Some(fix))
        }
    };
    LayerReport {
        layer,
        present,
        required: need == Need::Required,
        detail,
        fix,
    }
}

fn advice_for(facts: &Facts, step: &'static str) -> impl Fn(&io::Error) -> Advice {
    move |error| facts.explain(step, error.raw_os_error().unwrap_or(0))
}

/// Makes advice without a cause, for an error that explains itself.
fn fix(fix: &str) -> Advice {
    Advice::new("", fix)
}

/// Creates each namespace and uses it once, because some hosts create namespaces but grant no capabilities in them.
fn namespaces(facts: &Facts, refused: Refused) -> Vec<LayerReport> {
    type Use = fn() -> io::Result<()>;
    let nothing: Use = || Ok(());
    let mounts: Use = mount::make_root_private;
    let devices: Use = ringfence_sys::network::loopback_up;
    let kinds: [(&'static str, Option<NamespaceKind>, Use); 7] = [
        ("user_namespace", None, nothing),
        ("mount_namespace", Some(NamespaceKind::Mount), mounts),
        ("pid_namespace", Some(NamespaceKind::Pid), nothing),
        ("network_namespace", Some(NamespaceKind::Net), devices),
        ("ipc_namespace", Some(NamespaceKind::Ipc), nothing),
        ("uts_namespace", Some(NamespaceKind::Uts), nothing),
        ("cgroup_namespace", Some(NamespaceKind::Cgroup), nothing),
    ];
    let reports = kinds.map(|(layer, kind, use_it)| {
        let kinds: Vec<NamespaceKind> = [NamespaceKind::User].into_iter().chain(kind).collect();
        let detail = match kind {
            Some(NamespaceKind::Uts) if refused.host_name => {
                "own, with the name of the host: sethostname is refused"
            }
            _ => "own",
        };
        let tried = run_in_new(&kinds, use_it).map(|()| detail.to_owned());
        report(layer, Need::Required, tried, advice_for(facts, "new namespaces"))
    });
    reports.into()
}

const SAFE: Attributes = Attributes {
    read_only: true,
    no_devices: true,
    no_exec: true,
};

fn own_root(facts: &Facts, refused: Refused) -> LayerReport {
    let tried = run_in_new(&[NamespaceKind::User, NamespaceKind::Mount], || {
        mount::make_root_private()?;
        let made = mount::new_filesystem("tmpfs", &[], SAFE)?;
        let here = ringfence_sys::file::current_directory();
        let tree = mount::clone_tree(here, Path::new("/usr"))?;
        mount::restrict(tree.as_fd(), SAFE, mount::Reach::AllBelow)?;
        mount::attach(made.as_fd(), here, Path::new("/"))
    });
    let detail = match refused.pivot_root {
        true => "tmpfs root by chroot (pivot_root is refused), read-only trees",
        false => "tmpfs root, read-only trees",
    };
    let tried = tried.map(|()| detail.to_owned());
    report("own_root", Need::Required, tried, advice_for(facts, "own root"))
}

fn own_proc(facts: &Facts) -> LayerReport {
    let kinds = [NamespaceKind::User, NamespaceKind::Mount, NamespaceKind::Pid];
    let tried = run_in_new(&kinds, || mount::new_filesystem("proc", &[], SAFE).map(drop));
    let tried = tried.map(|()| "own /proc, masked".to_owned());
    report("own_proc", Need::Required, tried, advice_for(facts, "proc"))
}

fn time_namespace(host: &Host) -> LayerReport {
    let unshare = || process::unshare(&[NamespaceKind::Time]);
    let tried = match host.time_namespaces {
        true => run_in_new(&[NamespaceKind::User], unshare).map(|()| "own clocks".to_owned()),
        false => Err(io::Error::other("not in this kernel")),
    };
    report("time_namespace", Need::Optional, tried, |_| {
        fix("a kernel of 5.6 or later with CONFIG_TIME_NS=y")
    })
}

/// First Landlock ABI version that scopes signals and abstract sockets.
const LANDLOCK_SCOPES: i32 = 6;

fn landlock(facts: &Facts, host: &Host) -> LayerReport {
    let tried = host.landlock_version().map(|abi| match abi < LANDLOCK_SCOPES {
        true => format!("abi {abi}; signals and abstract sockets are left to the namespaces"),
        false => format!("abi {abi}"),
    });
    report("landlock", Need::Required, tried, advice_for(facts, "landlock"))
}

fn seccomp(facts: &Facts) -> LayerReport {
    let filter = crate::seccomp::program(crate::seccomp::Profile::Full { memory_cgroup: true });
    let tried = filter.and_then(|filter| {
        run_in_new(&[], || {
            ringfence_sys::identity::set_no_new_privileges()?;
            ringfence_sys::seccomp::install(filter)
        })
    });
    let tried = tried.map(|()| "allowlist".to_owned());
    report("seccomp", Need::Required, tried, advice_for(facts, "seccomp"))
}

fn limits(host: &Host) -> LayerReport {
    let cpu = match host.cgroups.shares_processors() {
        true => "memory, processes, cpu",
        false => "memory, processes; cpu by affinity",
    };
    let tried = match &host.cgroups {
        cgroup::Parent::None { reason } => Err(io::Error::other(format!(
            "none ({reason}); memory is sampled, processes are counted by the user namespace, cpu is by affinity"
        ))),
        parent => Ok(format!("{}: {cpu}", parent.describe())),
    };
    report("cgroup", Need::Optional, tried, |_| {
        fix(
            "start it in a delegated cgroup of its own: `systemd-run --user --scope -p Delegate=yes ringfence serve`",
        )
    })
}

fn overlay() -> LayerReport {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let tried = match known.lines().any(|line| line.ends_with("\toverlay")) {
        true => Ok("for `--workspace DIR:overlay`".to_owned()),
        false => Err(io::Error::other("not loaded")),
    };
    report("overlayfs", Need::Optional, tried, |_| {
        fix("`sudo modprobe overlay`; needed for `--workspace DIR:overlay` only")
    })
}

fn own_uids(host: &Host) -> LayerReport {
    let lacking = "root without the ids or capabilities to give each sandbox its own";
    let tried = match host.user.0 {
        _ if host.own_uids => Ok("a host uid for each sandbox".to_owned()),
        0 => Err(io::Error::other(lacking)),
        _ => Ok("not needed: the server is an ordinary user".to_owned()),
    };
    report("own_uid", Need::Optional, tried, |_| {
        fix("CAP_SETUID, CAP_SETGID, CAP_SYS_ADMIN and the whole range of ids")
    })
}
