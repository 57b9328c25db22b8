//! Golden plans: the plans of sandboxes as text, for hosts that are not this one. A changed mount, limit or rule is a
//! line in the difference. `RINGFENCE_BLESS=1` rewrites them.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test reads its environment and ends where it is surprised"
)]

mod text;

use ringfence_jail::{
    Claim, Host, HostWorkspace, JailSpec, Layout, Part, Pinned, PlanError, Program, Quota, Refused, Run,
    Written,
    cgroup::Parent,
    host::{Node, SystemPath},
    plan,
};
use ringfence_types::{Limits, Tier, WorkspaceMode};
use std::{fs, path::PathBuf};
use text::{ClaimText, PlanText};

const ROOT: (u32, u32) = (0, 0);
const ALICE: (u32, u32) = (1001, 1001);

fn host(user: (u32, u32), cgroups: Parent) -> Host {
    let tree = |path: &str, node| SystemPath::Tree {
        path: path.into(),
        node,
    };
    let link = |path: &str, target: &str| SystemPath::Link(path.into(), target.into());
    Host {
        user,
        own_uids: user == ROOT,
        landlock: 7,
        refused: Refused::default(),
        time_namespaces: true,
        system: vec![
            tree("/usr", Node::Directory),
            link("/bin", "usr/bin"),
            link("/lib", "usr/lib"),
        ],
        etc: vec![
            tree("/etc/alternatives", Node::Directory),
            tree("/etc/ld.so.cache", Node::File),
            link("/etc/localtime", "/usr/share/zoneinfo/UTC"),
        ],
        devices: vec!["full", "null", "urandom", "zero"],
        processors: 4,
        cgroups,
    }
}

fn v1() -> Parent {
    let hierarchy = |name: &str| PathBuf::from("/sys/fs/cgroup").join(name);
    Parent::V1 {
        memory: hierarchy("memory"),
        pids: hierarchy("pids"),
        cpu: Some(hierarchy("cpu")),
    }
}

fn none() -> Parent {
    Parent::None {
        reason: "not delegated".into(),
    }
}

fn spec(tier: Tier) -> JailSpec {
    let layout = match tier {
        Tier::Full | Tier::Gvisor | Tier::Container => Layout::own_root(),
        Tier::Landlock => Layout::below("/run/user/1001/ringfence/runs/0".as_ref()),
    };
    JailSpec {
        tier,
        layout,
        trees: vec![
            "/home/alice/.pyenv/versions/3.12.1".into(),
            "/home/alice/project/.venv".into(),
        ],
        links: vec![("/home/alice/.local/bin/python3".into(), "../share/python3".into())],
        program: Program::Claimed,
        host_workspace: None,
        layers: (tier == Tier::Full).then(|| "/home/alice/.local/state/ringfence/packages/layers".into()),
        written: Written::MayRun,
        limits: limits(),
    }
}

fn limits() -> Limits {
    Limits {
        memory_bytes: 512 << 20,
        cpu_millicores: 1500,
        timeout_ms: 60_000,
        processes: 64,
        output_bytes: 1_000_000,
        disk_bytes: 512 << 20,
    }
}

fn claim(host: &Host) -> Claim {
    let run = Run::Exec {
        argv: vec!["/usr/bin/python3".into(), "/code/main.py".into()],
        environment: vec![("PATH".into(), "/usr/bin".into())],
        report: true,
    };
    Claim {
        code: vec![(
            "main.py".into(),
            Part {
                offset: 4096,
                length: 12,
            },
        )],
        files: vec![(
            "data/in.csv".to_owned().try_into().unwrap(),
            Part {
                offset: 4108,
                length: 3,
            },
        )],
        grace_ms: 500,
        ..plan::claim(run, limits(), host)
    }
}

fn check(name: &str, spec: JailSpec, host: &Host) {
    let plan = plan::build(spec, host).unwrap();
    compare(&format!("plan-{name}"), &PlanText(&plan).to_string());
}

fn compare(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format!("{name}.txt"));
    if std::env::var_os("RINGFENCE_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        text, expected,
        "`{name}` has changed; RINGFENCE_BLESS=1 accepts it"
    );
}

/// claim: [FS-1] [FS-2] [RES-1]
#[test]
fn plans_match_the_golden_files() {
    check("root-cgroup-v1", spec(Tier::Full), &host(ROOT, v1()));
    check("user-no-cgroup", spec(Tier::Full), &host(ALICE, none()));
    check("landlock-user", spec(Tier::Landlock), &host(ALICE, none()));
    let directory = PathBuf::from("/home/alice/project");
    for (name, mode) in [
        ("ro", WorkspaceMode::Ro),
        ("rw", WorkspaceMode::Rw),
        ("overlay", WorkspaceMode::Overlay),
    ] {
        let with_workspace = JailSpec {
            host_workspace: Some(HostWorkspace {
                directory: Pinned {
                    path: directory.clone(),
                    identity: (1, 2),
                },
                mode,
                quota: Quota::Growth,
                writing: None,
                known: ringfence_jail::Known::default(),
            }),
            ..spec(Tier::Full)
        };
        check(&format!("workspace-{name}"), with_workspace, &host(ROOT, v1()));
    }
    let installer = JailSpec {
        layers: None,
        written: Written::NeverRuns,
        ..spec(Tier::Full)
    };
    check("installer", installer, &host(ROOT, v1()));
    let worker = JailSpec {
        program: Program::Worker { name: "parse".into() },
        trees: Vec::new(),
        links: Vec::new(),
        ..spec(Tier::Full)
    };
    check("worker", worker, &host(ALICE, none()));
    let template = Program::Template {
        argv: vec!["/usr/bin/python3".into()],
        environment: Vec::new(),
        forker: ringfence_jail::Forker::Python,
    };
    for (name, program) in [("template", template), ("forked", Program::Forked)] {
        let mut spec = JailSpec {
            program,
            ..spec(Tier::Full)
        };
        // The parts of an interpreter below /tmp would be covered otherwise.
        spec.trees.extend(["/tmp/venv".into(), "/tmp/venv/inner".into()]);
        spec.links
            .push(("/tmp/bin/python3".into(), "../venv/bin/python3".into()));
        check(name, spec, &host(ROOT, v1()));
    }
    for (name, host) in [
        ("root-cgroup-v1", host(ROOT, v1())),
        ("user-no-cgroup", host(ALICE, none())),
    ] {
        compare(&format!("claim-{name}"), &ClaimText(&claim(&host)).to_string());
    }
}

/// claim: [FS-1]
#[test]
fn tree_with_user_files_is_refused() {
    for path in [
        "/",
        "/home",
        "/home/alice",
        "/root",
        "/etc",
        "/var",
        "/tmp",
        "relative/path",
    ] {
        let broad = JailSpec {
            trees: vec![path.into()],
            ..spec(Tier::Full)
        };
        assert_eq!(
            plan::build(broad, &host(ALICE, none())),
            Err(PlanError::TreeTooBroad { path: path.into() }),
            "{path}"
        );
    }
}

/// claim: [TIER-1]
#[test]
fn plan_without_landlock_is_refused() {
    for tier in [Tier::Full, Tier::Landlock] {
        let bare = Host {
            landlock: 0,
            ..host(ROOT, v1())
        };
        assert_eq!(
            plan::build(spec(tier), &bare),
            Err(PlanError::MissingLayer { layer: "landlock" })
        );
    }
}
