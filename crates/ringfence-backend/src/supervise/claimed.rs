//! From a claim to the program's end: its files and limits, its orders, its clock, its disk.

use super::{DEATH, End, Supervised};
use crate::{
    container,
    frame::{self, Kind, Signal},
    run_directory::{OUTPUT, WORKSPACE},
    stream::tell,
};
use ringfence_jail::{
    Claim, EgressSpec, Part, Run, Space, directory_bytes,
    plan::Rlimit,
    wire::{self, Cause, Event, Failure, Order},
};
use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::PathBuf,
    time::Duration,
};
use tokio::time::Instant;

/// Below this much space on the host's file system a program is ended: what a walk does not see fills it, too.
const FREE_BYTES_MIN: u64 = 256 << 20;

/// Whose [`Kind::Listen`] it is.
pub(super) const OF_CLAIM: u32 = 0;
const OF_ORDER: u32 = 1;

/// A program that has been claimed.
pub(super) struct Running {
    disk_max: u64,
    pub(super) disk_bytes: u64,
    /// When it is asked to end, and then when everything is killed, and then when that is given up.
    deadlines: [Instant; 3],
    passed: usize,
    /// Why it was ended, if that was not the program's own doing.
    pub(super) cause: Option<Cause>,
}

impl Running {
    fn new(claim: &Claim) -> Self {
        // A session lives as long as its engine lets it; no clock reaches further.
        let far = Duration::from_secs(365 * 24 * 3600);
        let time = Duration::from_millis(claim.limits.timeout_ms).min(far);
        let polite = Instant::now() + time;
        let last = polite + Duration::from_millis(claim.grace_ms);
        Self {
            disk_max: claim.limits.disk_bytes,
            disk_bytes: 0,
            deadlines: [polite, last, last + DEATH],
            passed: 0,
            cause: None,
        }
    }

    pub(super) fn alarm(&self) -> Instant {
        self.deadlines[self.passed.min(2)]
    }

    pub(super) fn wants_look(&self) -> bool {
        self.cause.is_none()
    }
}

impl Supervised<'_> {
    /// Puts a claim in force, and starts its program.
    pub(super) async fn bind(&mut self, bytes: u64, payload: File) -> Result<(), Failure> {
        let failed = |step: &str, error: io::Error| Failure::new(step, &error);
        let claim: Claim =
            wire::read_head(&payload, bytes).map_err(|error| failed("read the claim", error))?;
        if claim.workspace.is_some() || claim.layer.is_some() {
            let error = io::Error::from(io::ErrorKind::Unsupported);
            return Err(failed(
                "a directory or packages of the host in a container",
                error,
            ));
        }
        self.limit(&claim).await?;
        let directory = self.directory.clone();
        let files = tokio::task::spawn_blocking(move || {
            for (name, part) in &claim.code {
                directory.put_code(name, &read(&payload, *part)?)?;
            }
            for (path, part) in &claim.files {
                directory.put_file(path.as_str().as_ref(), &read(&payload, *part)?)?;
            }
            Ok::<_, io::Error>((claim, payload))
        });
        let files = files.await.map_err(io::Error::other).and_then(|files| files);
        let (claim, payload) = files.map_err(|error| failed("write the files", error))?;
        let ports = claim.egress.as_ref().map(ports).unwrap_or_default();
        if !ports.is_empty() {
            tell(&self.agent, Kind::Listen, OF_CLAIM, &ports);
        }
        let mut spec = frame::Spec {
            rlimits: rlimits(&claim),
            memory_bytes: self.sampled_memory(&claim),
            ..frame::Spec::default()
        };
        let kind = match &claim.run {
            Run::Exec {
                argv,
                environment,
                report,
            } => {
                spec.argv.clone_from(argv);
                spec.environment.clone_from(environment);
                spec.report = *report;
                Kind::Exec
            }
            Run::Go(part) => {
                spec.word = read(&payload, *part).map_err(|error| failed("read the claim", error))?;
                Kind::Go
            }
            Run::Work => {
                return Err(failed(
                    "a worker in a container",
                    io::ErrorKind::Unsupported.into(),
                ));
            }
        };
        self.running = Some(Running::new(&claim));
        self.send_spec(&spec, kind);
        Ok(())
    }

    /// The claim's limits, where the container was made with others.
    async fn limit(&self, claim: &Claim) -> Result<(), Failure> {
        let engine = &self.supervisor.engine;
        let made = &self.supervisor.spec.limits;
        let now = &claim.limits;
        let is_same = (made.memory_bytes, made.cpu_millicores, made.processes)
            == (now.memory_bytes, now.cpu_millicores, now.processes);
        if is_same || !self.has_cgroups() {
            return Ok(());
        }
        let update = engine
            .docker
            .update_container(&self.supervisor.name, container::limits(now));
        let updated = engine.ask("limit a container", update).await;
        updated.map_err(|error| error.failure())
    }

    fn has_cgroups(&self) -> bool {
        let settings = &self.supervisor.engine.settings;
        self.facts.has_cgroups(self.supervisor.spec.runner, settings)
    }

    /// What the agent holds the tree to, where no cgroup does.
    fn sampled_memory(&self, claim: &Claim) -> u64 {
        let settings = &self.supervisor.engine.settings;
        match self.facts.counts_memory(self.supervisor.spec.runner, settings) {
            true => 0,
            false => claim.limits.memory_bytes,
        }
    }

    pub(super) fn program_runs(&mut self) -> Result<(), Failure> {
        if self.running.is_none() {
            return Err(self.fault("it started what was not asked for"));
        }
        let open = |name: &str| File::open(self.directory.path.join(name)).map(OwnedFd::from);
        let opened = open(WORKSPACE).and_then(|workspace| Ok([workspace, open(OUTPUT)?]));
        let opened = opened.map_err(|error| Failure::new("open the workspace", &error))?;
        let [workspace, output] = &opened;
        self.supervisor
            .say(&Event::Running, &[workspace.as_fd(), output.as_fd()]);
        Ok(())
    }

    /// One order of the server.
    pub(super) async fn obey(&mut self, order: Order, descriptors: Vec<OwnedFd>) -> Option<End> {
        match order {
            Order::Claim { claim_bytes } => {
                let payload = descriptors.into_iter().next().map(File::from);
                match payload {
                    Some(payload) if self.claim.is_none() && self.running.is_none() => {
                        self.claim = Some((claim_bytes, payload));
                    }
                    _ => return Some(End::Left),
                }
            }
            Order::Cancel if self.running.is_none() => return Some(End::Left),
            Order::Cancel => self.kill(Cause::Cancelled),
            Order::Interrupt => tell(&self.agent, Kind::Signal, 0, &[Signal::Interrupt as u8]),
            Order::Account(number) => {
                self.asked = self.asked.wrapping_add(1);
                self.accounts.insert(self.asked, number);
                // It answers in order; what it leaves out is forgotten.
                self.accounts
                    .retain(|asked, _| asked.wrapping_add(8) > self.asked);
                tell(&self.agent, Kind::Account, self.asked, &[]);
            }
            Order::Egress(spec) => {
                tell(&self.agent, Kind::Listen, OF_ORDER, &ports(&spec));
            }
            Order::Layer(_) => {
                let error = io::Error::from(io::ErrorKind::Unsupported);
                let event = Event::NotLayered(Failure::new("packages in a container", &error));
                self.supervisor.say(&event, &[]);
            }
            Order::Measure => self.supervisor.say(&Event::Measured(0), &[]),
            // The policy refuses it where a container would be asked for this.
            Order::Share { .. } => tracing::warn!("a container keeps its share of the processors"),
        }
        None
    }

    /// Ends everything in the container; the first cause counts.
    fn kill(&mut self, cause: Cause) {
        tell(&self.agent, Kind::Signal, 0, &[Signal::Kill as u8]);
        if let Some(running) = &mut self.running {
            running.cause.get_or_insert(cause);
            running.passed = 2;
            running.deadlines[2] = Instant::now() + DEATH;
        }
    }

    /// A deadline has passed; true: the agent has not ended what it was told to.
    pub(super) fn ring(&mut self) -> bool {
        let Some(running) = &mut self.running else {
            return false;
        };
        running.passed += 1;
        match running.passed {
            1 => {
                running.cause.get_or_insert(Cause::Timeout);
                tell(&self.agent, Kind::Signal, 0, &[Signal::Terminate as u8]);
                false
            }
            2 => {
                self.kill(Cause::Timeout);
                false
            }
            _ => true,
        }
    }

    /// What the program has written, against what it may.
    pub(super) async fn look(&mut self) {
        let directories: [PathBuf; 2] = [WORKSPACE, OUTPUT].map(|name| self.directory.path.join(name));
        let counted = tokio::task::spawn_blocking(move || {
            directories
                .iter()
                .map(|directory| directory_bytes(directory))
                .sum::<u64>()
        });
        let Ok(bytes) = counted.await else { return };
        let free = File::open(self.directory.path.join(WORKSPACE)).and_then(|it| Space::of(it.as_fd()));
        let is_full = free.is_ok_and(|space| space.free < FREE_BYTES_MIN);
        let Some(running) = &mut self.running else { return };
        running.disk_bytes = running.disk_bytes.max(bytes);
        if bytes > running.disk_max || is_full {
            self.kill(Cause::Disk);
        }
    }
}

fn ports(spec: &EgressSpec) -> Vec<u8> {
    spec.ports.iter().flat_map(|port| port.to_le_bytes()).collect()
}

fn read(payload: &File, part: Part) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(part.length).map_err(io::Error::other)?];
    payload.read_exact_at(&mut bytes, part.offset)?;
    Ok(bytes)
}

/// Those of a program; the others are the container's.
fn rlimits(claim: &Claim) -> Vec<(u32, u64)> {
    let number = |limit: Rlimit| match limit {
        Rlimit::Cpu => Some(0),
        Rlimit::FileSize => Some(1),
        _ => None,
    };
    claim
        .rlimits
        .iter()
        .filter_map(|(limit, value)| Some((number(*limit)?, *value)))
        .collect()
}
