//! What a container is asked to be: the whole of its walls, in one place.

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

/// Where the agent is inside.
const AGENT: &str = "/.ringfence";
/// Processes and threads of the agent and of what the runtime needs to start it.
const OWN_PROCESSES: i64 = 4;
/// gVisor lets processes of one user open each other's descriptors, so that a program could speak in the agent's place.
/// There the agent is gVisor's root with these, and the program another user without any.
const AGENT_CAPABILITIES: [&str; 5] = ["KILL", "SETGID", "SETPCAP", "SETUID", "SYS_RESOURCE"];
/// Of all containers with one uid of the host together.
const PROCESSES_OF_ONE_USER: i64 = 16_384;
/// Pages of /dev/shm.
const SHARED_MEMORY_BYTES: i64 = 64 << 20;

/// One container, as asked for; it knows nothing of any request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSpec {
    pub runner: Runner,
    /// The image's id.
    pub image: String,
    /// Started at once, or with the claim.
    pub program: Program,
    /// What it may use, until a claim says otherwise.
    pub limits: Limits,
}

impl ContainerEngine {
    /// Whether the engine has taken gVisor for it: one that does not know the word leaves it out.
    pub(crate) async fn check_gvisor(&self, container: &str) -> Result<(), EngineError> {
        let inspect = self.docker.inspect_container(container, None);
        let made = self.ask("inspect a container", inspect).await?;
        let used = made.host_config.and_then(|host| host.runtime).unwrap_or_default();
        let runtime = self.settings.gvisor.clone();
        match used == runtime {
            true => Ok(()),
            false => Err(EngineError::OtherRuntime { runtime, used }),
        }
    }
}

/// Everything that the engine is told.
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
    let tmp = format!(
        "rw,nosuid,nodev,exec,mode=1777,size={}",
        limits.private_disk_bytes()
    );
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
                false => format!("seccomp={}", seccomp::profile_of_containers()),
            },
        ]),
        readonly_rootfs: Some(true),
        network_mode: Some("none".to_owned()),
        // For the listeners of the agent, in a network namespace that has no device but its loopback.
        sysctls: Some(HashMap::from([(
            "net.ipv4.ip_unprivileged_port_start".to_owned(),
            "0".to_owned(),
        )])),
        ipc_mode: Some("private".to_owned()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        // An ordinary user's own id, where the engine is that user's, so that files are theirs.
        userns_mode: (facts.is_rootless && facts.is_podman).then(|| "keep-id".to_owned()),
        runtime: match spec.runner {
            // Where gVisor is the engine's default, it is still not what was asked for.
            Runner::Kernel => (facts.default_runtime == engine.settings.gvisor).then(|| "runc".to_owned()),
            Runner::Gvisor => Some(engine.settings.gvisor.clone()),
        },
        log_config: Some(HostConfigLogConfig {
            typ: Some("none".to_owned()),
            config: None,
        }),
        memory: has_cgroups.then(|| signed(limits.memory_bytes)),
        // No more with swap than without.
        memory_swap: has_cgroups.then(|| signed(limits.memory_bytes)),
        nano_cpus: has_cgroups.then(|| i64::from(limits.cpu_millicores) * 1_000_000),
        pids_limit: has_cgroups.then(|| i64::from(limits.processes) + OWN_PROCESSES),
        ulimits: Some(vec![
            ulimit("core", 1), // not 0, which a core_pattern that is a pipe ignores (core(5))
            ulimit("memlock", 8 << 20),
            ulimit("msgqueue", 819_200),
            ulimit("nofile", 1024),
            // Podman's own default is more than a host with limits lets it set.
            ulimit("nproc", PROCESSES_OF_ONE_USER),
            ulimit("stack", 8 << 20),
        ]),
        shm_size: Some(SHARED_MEMORY_BYTES),
        tmpfs: Some(HashMap::from([
            ("/tmp".to_owned(), tmp.clone()),
            ("/home/sandbox".to_owned(), tmp),
        ])),
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

/// The limits of a claim, for a container that was made with others.
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

    /// What an engine of this kind is told.
    fn told(runner: Runner, facts: &EngineFacts) -> HostConfig {
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
        walls
    }

    #[test]
    fn the_engines_default_runtime_decides_no_backend() {
        let runtime = |runner, default_runtime: &str| {
            let default_runtime = default_runtime.to_owned();
            told(
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
    fn an_engine_that_ignores_limits_is_given_none() {
        let mut facts = EngineFacts {
            is_podman: true,
            is_rootless: true,
            ..EngineFacts::default()
        };
        let limited = told(Runner::Kernel, &facts);
        assert_eq!(
            (limited.memory, limited.pids_limit),
            (Some(512 << 20), Some(16 + OWN_PROCESSES))
        );
        assert_eq!(limited.userns_mode.as_deref(), Some("keep-id"));
        facts.ignores_limits = true;
        let ignored = told(Runner::Kernel, &facts);
        assert_eq!(
            (ignored.memory, ignored.nano_cpus, ignored.pids_limit),
            (None, None, None)
        );
    }
}
