//! A claimed container until its program ends: files and limits, orders, deadlines, disk.

use super::{End, KILL_TIMEOUT, Supervised};
use crate::{
    container,
    frame::{self, Kind, Signal},
    run_directory::{OUTPUT, WORKSPACE},
    stream::send_frame,
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
use tokio::{task::JoinHandle, time::Instant};

/// Free space on the host's file system below which a program is ended: data that a walk does not see fills it, too.
const FREE_BYTES_MIN: u64 = 256 << 20;

/// Origins of a [`Kind::Listen`], as its number.
pub(super) const OF_CLAIM: u32 = 0;
const OF_ORDER: u32 = 1;

/// A program that has been claimed.
pub(super) struct Running {
    disk_max: u64,
    pub(super) disk_bytes: u64,
    /// Times at which the program is asked to end, everything is killed, and the agent is given up.
    deadlines: [Instant; 3],
    passed: usize,
    /// Reason for which the supervisor has ended the program, if it has.
    pub(super) cause: Option<Cause>,
}

impl Running {
    fn new(claim: &Claim) -> Self {
        // A session's engine ends it; the cap keeps the deadlines within the range of the clock.
        let far = Duration::from_secs(365 * 24 * 3600);
        let time = Duration::from_millis(claim.limits.timeout_ms).min(far);
        let terminate_at = Instant::now() + time;
        let kill_at = terminate_at + Duration::from_millis(claim.grace_ms);
        Self {
            disk_max: claim.limits.disk_bytes,
            disk_bytes: 0,
            deadlines: [terminate_at, kill_at, kill_at + KILL_TIMEOUT],
            passed: 0,
            cause: None,
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadlines[self.passed.min(2)]
    }
}

impl Supervised<'_> {
    pub(super) fn needs_disk_check(&self) -> bool {
        self.running.as_ref().is_some_and(|it| it.cause.is_none())
    }

    /// Applies a claim and starts its program.
    pub(super) async fn apply_claim(&mut self, bytes: u64, payload: File) -> Result<(), Failure> {
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
            send_frame(&self.agent, Kind::Listen, OF_CLAIM, &ports);
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

    /// Applies the claim's limits if the container was created with others.
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
        let updated = engine.request("limit a container", update).await;
        updated.map_err(|error| error.failure())
    }

    fn has_cgroups(&self) -> bool {
        let settings = &self.supervisor.engine.settings;
        self.facts.has_cgroups(self.supervisor.spec.runner, settings)
    }

    /// Returns the memory limit for the agent to enforce; 0 if a cgroup does.
    fn sampled_memory(&self, claim: &Claim) -> u64 {
        let settings = &self.supervisor.engine.settings;
        match self.facts.counts_memory(self.supervisor.spec.runner, settings) {
            true => 0,
            false => claim.limits.memory_bytes,
        }
    }

    pub(super) fn program_runs(&mut self) -> Result<(), Failure> {
        if self.running.is_none() {
            return Err(self.fault("it started a program that was not requested"));
        }
        let open = |name: &str| File::open(self.directory.path.join(name)).map(OwnedFd::from);
        let opened = open(WORKSPACE).and_then(|workspace| Ok([workspace, open(OUTPUT)?]));
        let opened = opened.map_err(|error| Failure::new("open the workspace", &error))?;
        let [workspace, output] = &opened;
        self.supervisor
            .send_event(&Event::Running, &[workspace.as_fd(), output.as_fd()]);
        Ok(())
    }

    /// Handles one order of the server. Returns the reason if it ends the supervision.
    pub(super) async fn handle_order(&mut self, order: Order, descriptors: Vec<OwnedFd>) -> Option<End> {
        match order {
            Order::Claim { claim_bytes } => {
                let payload = descriptors.into_iter().next().map(File::from);
                match payload {
                    Some(payload) if self.claim.is_none() && self.running.is_none() => {
                        self.claim = Some((claim_bytes, payload));
                    }
                    _ => return Some(End::Cancelled),
                }
            }
            Order::Cancel if self.running.is_none() => return Some(End::Cancelled),
            Order::Cancel => self.kill(Cause::Cancelled),
            Order::Interrupt => send_frame(&self.agent, Kind::Signal, 0, &[Signal::Interrupt as u8]),
            Order::Account(number) => {
                self.last_account = self.last_account.wrapping_add(1);
                self.accounts.insert(self.last_account, number);
                // The agent answers in order; orders that it has skipped are dropped.
                self.accounts
                    .retain(|number, _| number.wrapping_add(8) > self.last_account);
                send_frame(&self.agent, Kind::Account, self.last_account, &[]);
            }
            Order::Egress(spec) => {
                send_frame(&self.agent, Kind::Listen, OF_ORDER, &ports(&spec));
            }
            Order::Layer(_) => {
                let error = io::Error::from(io::ErrorKind::Unsupported);
                let event = Event::NotLayered(Failure::new("packages in a container", &error));
                self.supervisor.send_event(&event, &[]);
            }
            Order::Measure => self.supervisor.send_event(&Event::Measured(0), &[]),
            // The policy refuses this for containers.
            Order::Share { .. } => tracing::warn!("a container keeps its share of the processors"),
        }
        None
    }

    /// Kills everything in the container; the first cause counts.
    fn kill(&mut self, cause: Cause) {
        send_frame(&self.agent, Kind::Signal, 0, &[Signal::Kill as u8]);
        if let Some(running) = &mut self.running {
            running.cause.get_or_insert(cause);
            running.passed = 2;
            running.deadlines[2] = Instant::now() + KILL_TIMEOUT;
        }
    }

    /// Handles a deadline that has passed. Returns true if the agent has not ended the tree in time.
    pub(super) fn handle_deadline(&mut self) -> bool {
        let Some(running) = &mut self.running else {
            return false;
        };
        running.passed += 1;
        match running.passed {
            1 => {
                running.cause.get_or_insert(Cause::Timeout);
                send_frame(&self.agent, Kind::Signal, 0, &[Signal::Terminate as u8]);
                false
            }
            2 => {
                self.kill(Cause::Timeout);
                false
            }
            _ => true,
        }
    }

    /// Begins to count the bytes of the program's files.
    pub(super) fn count_disk(&self) -> JoinHandle<u64> {
        let directories: [PathBuf; 2] = [WORKSPACE, OUTPUT].map(|name| self.directory.path.join(name));
        tokio::task::spawn_blocking(move || {
            directories
                .iter()
                .map(|directory| directory_bytes(directory))
                .sum::<u64>()
        })
    }

    /// Ends the program if its files are above its limit, or the host's disk is full.
    pub(super) fn check_disk(&mut self, bytes: u64) {
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

/// Returns the resource limits of the program; the others are set on the container.
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
