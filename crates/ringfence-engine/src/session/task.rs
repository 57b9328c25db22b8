//! The life of a session: a task that owns its interpreter, hands it one call after the other, and ends it when it is
//! wanted no more, has not been used for too long, or is too old.

use super::{
    Session, Sessions,
    interpreter::{CallOutcome, CallResult, DriverRequest, Interpreter, stopped},
};
use crate::error::Result;
use ringfence_jail::{
    EgressSpec, LayerName,
    wire::{Cause, Ending},
};
use ringfence_types::SessionEnd;
use std::{
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    process::ExitStatus,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::sleep_until,
};

/// How long a session may take to be gone.
const DEATH_PATIENCE: Duration = Duration::from_secs(10);

/// Something to do, and who waits for it.
pub(crate) enum Job {
    Call(Box<DriverRequest>, oneshot::Sender<CallResult>),
    /// A layer of packages that the session is to be shown.
    Layer(LayerName, oneshot::Sender<Result<()>>),
    /// More of its egress that is to be opened.
    Egress(EgressSpec, oneshot::Sender<Result<Vec<OwnedFd>>>),
}

pub(crate) struct SessionTask {
    pub(crate) sessions: Weak<Sessions>,
    pub(crate) session: Arc<Session>,
    pub(crate) interpreter: Interpreter,
    pub(crate) jobs: mpsc::Receiver<Job>,
    pub(crate) stop: watch::Receiver<Option<SessionEnd>>,
}

impl SessionTask {
    /// From its first call to its end. The end is on record before the session cannot be found any more.
    pub(crate) async fn run(mut self) {
        let end = self.serve().await;
        let Self {
            sessions,
            session,
            interpreter,
            jobs,
            ..
        } = self;
        // Later calls are refused with this reason; the first reason counts.
        session.stop(end);
        drop(jobs);
        session.line.close();
        if !interpreter.end(DEATH_PATIENCE).await {
            tracing::warn!(session = %session.id, "its supervisor has told no end");
        }
        if let Some(sessions) = sessions.upgrade() {
            sessions.forget_workspace(&session).await;
            sessions.bury(&session, end).await;
        }
        session.gone.send_replace(Some(end));
    }

    async fn serve(&mut self) -> SessionEnd {
        loop {
            tokio::select! {
                biased;
                job = self.jobs.recv() => match job {
                    None => return SessionEnd::Server,
                    Some(Job::Layer(layer, told)) => drop(told.send(self.interpreter.show(&layer).await)),
                    Some(Job::Egress(spec, told)) => drop(told.send(self.interpreter.open(spec).await)),
                    Some(Job::Call(sent, answer)) => {
                        let called = self.interpreter.call(*sent, &mut self.stop).await;
                        let end = called.outcome.end();
                        // The client may be gone; the call is complete all the same.
                        drop(answer.send(called));
                        if let Some(end) = end {
                            return end;
                        }
                    }
                },
                end = stopped(&mut self.stop) => return end,
                ended = self.interpreter.idle() => return match ended {
                    Ok(ending) => of(&ending),
                    Err(_) => SessionEnd::Server,
                },
                () = sleep_until(self.session.ends_at().into()) => match self.session.expired() {
                    Some(end) => return end,
                    // Somebody has a turn.
                    None => self.session.touch(),
                },
            }
        }
    }
}

impl CallOutcome {
    /// Whether the session has ended with the call.
    pub(crate) fn end(&self) -> Option<SessionEnd> {
        match self {
            Self::Answered(..) => None,
            Self::Ended(ending, _) => Some(of(ending)),
            Self::GivenUp(end, _) => Some(*end),
            Self::Lost(_) => Some(SessionEnd::Server),
        }
    }
}

/// What the end of its tree says of a session's.
fn of(ending: &Ending) -> SessionEnd {
    match ending.cause {
        Cause::Program => match ending.status.map(ExitStatus::from_raw) {
            Some(status) if status.signal().is_some() => SessionEnd::Crashed,
            _ => SessionEnd::Exited,
        },
        Cause::OutOfMemory => SessionEnd::OutOfMemory,
        Cause::Disk => SessionEnd::Limit,
        Cause::Timeout => SessionEnd::Age,
        Cause::Cancelled => SessionEnd::Terminated,
        Cause::Killed => SessionEnd::Crashed,
    }
}
