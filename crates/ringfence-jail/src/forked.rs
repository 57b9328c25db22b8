//! The supervisor's side of a program that a template forks: asking for the child, its claim, and its end.

use crate::{
    Plan,
    client::Template,
    init::Pipes,
    wire::{self, Door, Failure, Fork, ForkEvent},
};
use ringfence_sys::{channel, process, wait};
use std::{
    collections::HashMap,
    fs::File,
    io::{self, PipeWriter, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    time::{Duration, Instant},
};

/// How long a template may take to put a child behind its walls.
const PATIENCE: Duration = Duration::from_secs(10);

/// The doors that a fork goes through, in the order of [`Fork`].
const NAMESPACES: [Door; 8] = [
    Door::User,
    Door::Mount,
    Door::Net,
    Door::Ipc,
    Door::Uts,
    Door::Cgroup,
    Door::Pid,
    Door::Rules,
];

/// A child of a template that waits for its claim, or runs.
#[derive(Debug)]
pub(crate) struct Forked {
    pub(crate) pid: i32,
    reply: OwnedFd,
    go: Option<PipeWriter>,
}

impl Forked {
    /// Asks the template for a child in this sandbox, and waits until it is behind all walls.
    pub(crate) fn ask(
        plan: &Plan,
        template: &Template,
        pipes: Pipes,
        doors: &mut HashMap<Door, OwnedFd>,
        cgroups: &[File],
    ) -> Result<Self, Failure> {
        let (reply, theirs) = channel::pair().map_err(|error| failed(&error))?;
        let (waits, go) = io::pipe().map_err(|error| failed(&error))?;
        let times = doors.remove(&Door::Time);
        let taken: Option<Vec<OwnedFd>> = NAMESPACES.iter().map(|door| doors.remove(door)).collect();
        let Some(taken) = taken else {
            return Err(failed(&io::Error::other(
                "pid 1 has not handed over its namespaces",
            )));
        };
        let word = Fork {
            workspace: plan.layout.workspace.clone(),
            times: usize::from(times.is_some()),
        };
        let descriptors: Vec<BorrowedFd<'_>> = taken
            .iter()
            .map(AsFd::as_fd)
            .chain([
                pipes.stdin.as_fd(),
                pipes.stdout.as_fd(),
                pipes.stderr.as_fd(),
                pipes.report.as_fd(),
                waits.as_fd(),
                theirs.as_fd(),
            ])
            .chain(times.as_ref().map(AsFd::as_fd))
            .chain(cgroups.iter().map(AsFd::as_fd))
            .collect();
        wire::send(template.control.as_fd(), &word, &descriptors).map_err(|error| failed(&error))?;
        drop(theirs);
        let mut forked = Self {
            pid: 0,
            reply,
            go: Some(go),
        };
        forked.wait_until_ready()?;
        Ok(forked)
    }

    fn wait_until_ready(&mut self) -> Result<(), Failure> {
        let by = Instant::now() + PATIENCE;
        let mut ready = false;
        while !ready || self.pid == 0 {
            let patience = by.saturating_duration_since(Instant::now());
            let [heard] =
                wait::readable([Some(self.reply.as_fd())], Some(patience)).map_err(|e| failed(&e))?;
            if !heard {
                return Err(failed(&io::Error::from(io::ErrorKind::TimedOut)));
            }
            match self.hear().map_err(|error| failed(&error))? {
                Some((ForkEvent::Forked, descriptors)) => {
                    let pid = descriptors.first().map(|child| process::pid_of(child.as_fd()));
                    self.pid = pid.transpose().map_err(|error| failed(&error))?.unwrap_or(0);
                }
                Some((ForkEvent::Ready, _)) => ready = true,
                Some((ForkEvent::Failed(why), _)) => return Err(failed(&io::Error::other(why))),
                Some((ForkEvent::Ended { .. }, _)) | None => {
                    return Err(failed(&io::Error::other("the child has ended")));
                }
            }
        }
        Ok(())
    }

    /// Where its events come from.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        self.reply.as_fd()
    }

    /// The next event; `None`: the template is gone.
    pub(crate) fn hear(&self) -> io::Result<Option<(ForkEvent, Vec<OwnedFd>)>> {
        wire::receive(self.reply.as_fd())
    }

    /// Gives it what it waits for. That it has ended is told by its end, not here.
    pub(crate) fn go(&mut self, word: &[u8]) -> Result<(), Failure> {
        match self.go.take().map(|mut go| go.write_all(word)) {
            Some(Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed(&error)),
            _ => Ok(()),
        }
    }
}

/// The bytes of a part of the payload.
pub(crate) fn read_part(payload: &File, part: crate::Part) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(part.length).unwrap_or(0)];
    payload.read_exact_at(&mut bytes, part.offset)?;
    Ok(bytes)
}

fn failed(error: &io::Error) -> Failure {
    Failure::new("fork of the template", error)
}
