//! The configuration of a container: all of its walls, in one place.

use crate::{
    engine::{ContainerEngine, DIRECTORY_LABEL, EngineFacts, Runner, STATE_LABEL},
    error::EngineError,
    run_directory::{CODE, Ids, OUTPUT, RESOLVER, RunDirectory, WORKSPACE},
};
use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountType, ResourcesUlimits,
};
use ringfence_jail::{Program, seccomp};
use ringfence_types::Limits;
use std::collections::HashMap;

/// Path of the agent in the container.
const AGENT: &str = "/.ringfence";
/// Mount points of every container.
pub(crate) const TARGETS: [&str; 7] = [
    AGENT,
    "/code",
    "/etc/resolv.conf",
    "/home/sandbox",
    "/output",
    "/tmp",
    "/workspace",
];
/// Those of them that are a tmpfs.
pub(crate) const TMPFS: [&str; 2] = ["/home/sandbox", "/tmp"];
/// Processes and threads of the agent, and those that the runtime needs to start it.
const OWN_PROCESSES: i64 = 4;
/// Capabilities of the agent under gVisor, which lets processes of one user open each other's descriptors: a program
/// could impersonate the agent. There the agent is root with these, and the program another user without any.
const AGENT_CAPABILITIES: [&str; 5] = ["KILL", "SETGID", "SETPCAP", "SETUID", "SYS_RESOURCE"];
/// Limit for all containers with one uid of the host together.
const PROCESSES_OF_ONE_USER: i64 = 16_384;
/// Size of /dev/shm.
const SHARED_MEMORY_BYTES: i64 = 64 << 20;

/// A requested container, independent of any request to run code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSpec {
    pub runner: Runner,
    /// The image's id.
    pub image: String,
    /// Volumes of the image, each of which is an empty directory, read-only.
    pub volumes: Vec<String>,
    /// The program, which is started at once or with the claim.
    pub program: Program,
    /// Its limits, until a claim sets others.
    pub limits: Limits,
}

impl ContainerEngine {
    /// Checks that the engine uses gVisor for a container: an engine that does not know the field ignores it.
    pub(crate) async fn check_gvisor(&self, container: &str) -> Result<(), EngineError> {
        let inspect = self.docker.inspect_container(container, None);
        let made = self.request("inspect a container", inspect).await?;
        let used = made.host_config.and_then(|host| host.runtime).unwrap_or_default();
        let runtime = self.settings.gvisor.clone();
        match used == runtime {
            true => Ok(()),
            false => Err(EngineError::OtherRuntime { runtime, used }),
        }
    }
}

pub(crate) fn describe(
    engine: &ContainerEngine,
    facts: &EngineFacts,
    spec: &ContainerSpec,
    directory: &RunDirectory,
) -> ContainerCreateBody {
    let Ids { uid, gid } = directory.ids;
    let is_gvisor = spec.runner == Runner::Gvisor;
    ContainerCreateBody {
        hostname: Some("sandbox".to_owned()),
        user: Some(match is_gvisor {
            true => "0:0".to_owned(),
            false => format!("{uid}:{gid}"),
        }),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        open_stdin: Some(true),
        // The agent ends with its server's connection.
        stdin_once: Some(true),
        tty: Some(false),
        entrypoint: Some(vec![AGENT.to_owned()]),
        cmd: Some(is_gvisor.then(|| format!("{uid}:{gid}")).into_iter().collect()),
        working_dir: Some("/".to_owned()),
        image: Some(spec.image.clone()),
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        labels: Some(HashMap::from([
            (
                STATE_LABEL.to_owned(),
                engine.settings.state_dir.display().to_string(),
            ),
            (DIRECTORY_LABEL.to_owned(), directory.path.display().to_string()),
        ])),
        host_config: Some(walls(engine, facts, spec, directory)),
        ..ContainerCreateBody::default()
    }
}

fn walls(
    engine: &ContainerEngine,
    facts: &EngineFacts,
    spec: &ContainerSpec,
    directory: &RunDirectory,
) -> HostConfig {
    let limits = &spec.limits;
    let has_cgroups = facts.has_cgroups(spec.runner, &engine.settings);
    let bytes = limits.private_disk_bytes();
    let tmp = format!("rw,nosuid,nodev,exec,mode=1777,size={bytes}");
    // By default, Podman copies the image's files into a tmpfs.
    let empty = if facts.is_podman { ",notmpcopyup" } else { "" };
    let volumes = spec.volumes.iter();
    let volumes = volumes.map(|path| (path.clone(), format!("ro,nosuid,nodev,noexec,size=4k{empty}")));
    let own = TMPFS.map(|path| (path.to_owned(), tmp.clone()));
    HostConfig {
        auto_remove: Some(true),
        // The agent is pid 1.
        init: Some(false),
        cap_drop: Some(vec!["ALL".to_owned()]),
        cap_add: (spec.runner == Runner::Gvisor).then(|| AGENT_CAPABILITIES.map(str::to_owned).to_vec()),
        privileged: Some(false),
        security_opt: Some(vec![
            "no-new-privileges=true".to_owned(),
            match facts.is_podman {
                true => format!("seccomp={}", engine.seccomp.display()),
                false => format!("seccomp={}", seccomp::container_profile()),
            },
        ]),
        readonly_rootfs: Some(true),
        network_mode: Some("none".to_owned()),
        // For the listeners of the agent, in a network namespace whose only device is its loopback.
        sysctls: Some(HashMap::from([(
            "net.ipv4.ip_unprivileged_port_start".to_owned(),
            "0".to_owned(),
        )])),
        ipc_mode: Some("private".to_owned()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        // The user's own id if the engine is rootless, so that files belong to that user.
        userns_mode: (facts.is_rootless && facts.is_podman).then(|| "keep-id".to_owned()),
        runtime: match spec.runner {
            // gVisor was not requested, even if it is the engine's default.
            Runner::Kernel => (facts.default_runtime == engine.settings.gvisor).then(|| "runc".to_owned()),
            Runner::Gvisor => Some(engine.settings.gvisor.clone()),
        },
        log_config: Some(HostConfigLogConfig {
            typ: Some("none".to_owned()),
            config: None,
        }),
        memory: has_cgroups.then(|| signed(limits.memory_bytes)),
        // Memory and swap together: no swap.
        memory_swap: has_cgroups.then(|| signed(limits.memory_bytes)),
        nano_cpus: has_cgroups.then(|| i64::from(limits.cpu_millicores) * 1_000_000),
        pids_limit: has_cgroups.then(|| i64::from(limits.processes) + OWN_PROCESSES),
        ulimits: Some(vec![
            ulimit("core", 1), // a core_pattern that is a pipe ignores 0 (core(5))
            ulimit("memlock", 8 << 20),
            ulimit("msgqueue", 819_200),
            ulimit("nofile", 1024),
            // Podman's default is higher than a host with limits allows.
            ulimit("nproc", PROCESSES_OF_ONE_USER),
            ulimit("stack", 8 << 20),
        ]),
        shm_size: Some(SHARED_MEMORY_BYTES),
        // An engine makes no disk for a volume where a tmpfs is mounted.
        tmpfs: Some(volumes.chain(own).collect()),
        mounts: Some(mounts(engine, directory)),
        ..HostConfig::default()
    }
}

fn mounts(engine: &ContainerEngine, directory: &RunDirectory) -> Vec<Mount> {
    let inside = |name: &str| directory.path.join(name).display().to_string();
    let mount = |source: String, target: &str, read_only| Mount {
        typ: Some(MountType::BIND),
        source: Some(source),
        target: Some(target.to_owned()),
        read_only: Some(read_only),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    };
    vec![
        mount(engine.agent.display().to_string(), AGENT, true),
        mount(inside(CODE), "/code", true),
        mount(inside(RESOLVER), "/etc/resolv.conf", true),
        mount(inside(WORKSPACE), "/workspace", false),
        mount(inside(OUTPUT), "/output", false),
    ]
}

pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn ulimit(name: &str, value: i64) -> ResourcesUlimits {
    ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(value),
        hard: Some(value),
    }
}

/// Builds the update of a container to the limits of a claim.
pub(crate) fn limits(now: &Limits) -> bollard::models::ContainerUpdateBody {
    bollard::models::ContainerUpdateBody {
        memory: Some(signed(now.memory_bytes)),
        memory_swap: Some(signed(now.memory_bytes)),
        nano_cpus: Some(i64::from(now.cpu_millicores) * 1_000_000),
        pids_limit: Some(i64::from(now.processes) + OWN_PROCESSES),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ContainerSettings, User};

    /// Returns the host configuration for an engine with these facts.
    fn host_config(runner: Runner, facts: &EngineFacts) -> HostConfig {
        let state_dir = std::env::temp_dir().join(format!("ringfence-walls-{}", uuid::Uuid::now_v7()));
        let settings = ContainerSettings {
            socket: "/dev/null".into(),
            gvisor: "runsc".to_owned(),
            pull: false,
            require_digest: false,
            state_dir: state_dir.clone(),
            user: User::Fixed { uid: 1, gid: 1 },
        };
        let engine = ContainerEngine::new(settings).unwrap();
        let spec = ContainerSpec {
            runner,
            image: "sha256:1".to_owned(),
            volumes: vec!["/data".to_owned()],
            program: Program::Claimed,
            limits: Limits {
                memory_bytes: 512 << 20,
                cpu_millicores: 1000,
                timeout_ms: 1000,
                processes: 16,
                output_bytes: 1 << 20,
                disk_bytes: 64 << 20,
            },
        };
        let own = std::fs::metadata("/proc/self").unwrap();
        use std::os::unix::fs::MetadataExt;
        let ids = Ids {
            uid: own.uid(),
            gid: own.gid(),
        };
        let directory = RunDirectory::create(&state_dir.join("runs"), "one", ids, "").unwrap();
        let walls = walls(&engine, facts, &spec, &directory);
        drop(directory);
        std::fs::remove_dir_all(state_dir).unwrap();
        assert_eq!(walls.network_mode.as_deref(), Some("none"));
        assert_eq!(walls.readonly_rootfs, Some(true));
        let tmpfs = walls.tmpfs.as_ref().unwrap();
        assert!(tmpfs["/data"].starts_with("ro,"), "{tmpfs:?}");
        assert_eq!(tmpfs["/data"].ends_with(",notmpcopyup"), facts.is_podman);
        let mounts = walls
            .mounts
            .iter()
            .flatten()
            .filter_map(|mount| mount.target.clone());
        let mut targets: Vec<String> = tmpfs.keys().cloned().chain(mounts).collect();
        targets.retain(|target| target != "/data");
        targets.sort();
        assert_eq!(targets, TARGETS);
        walls
    }

    #[test]
    fn default_runtime_of_the_engine_does_not_choose_the_backend() {
        let runtime = |runner, default_runtime: &str| {
            let default_runtime = default_runtime.to_owned();
            host_config(
                runner,
                &EngineFacts {
                    default_runtime,
                    ..EngineFacts::default()
                },
            )
            .runtime
        };
        assert_eq!(runtime(Runner::Kernel, "runc"), None);
        assert_eq!(runtime(Runner::Kernel, "runsc").as_deref(), Some("runc"));
        assert_eq!(runtime(Runner::Gvisor, "runc").as_deref(), Some("runsc"));
        assert_eq!(runtime(Runner::Gvisor, "runsc").as_deref(), Some("runsc"));
    }
    #[test]
    fn engine_that_ignores_limits_gets_none() {
        let mut facts = EngineFacts {
            is_podman: true,
            is_rootless: true,
            ..EngineFacts::default()
        };
        let limited = host_config(Runner::Kernel, &facts);
        assert_eq!(
            (limited.memory, limited.pids_limit),
            (Some(512 << 20), Some(16 + OWN_PROCESSES))
        );
        assert_eq!(limited.userns_mode.as_deref(), Some("keep-id"));
        facts.ignores_limits = true;
        let ignored = host_config(Runner::Kernel, &facts);
        assert_eq!(
            (ignored.memory, ignored.nano_cpus, ignored.pids_limit),
            (None, None, None)
        );
    }
}
