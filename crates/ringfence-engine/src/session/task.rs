//! The task of a session: it owns the interpreter, hands it one call after the other, and ends it when it is
//! terminated, idle for too long, or too old.

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

const SANDBOX_END_TIMEOUT: Duration = Duration::from_secs(10);

/// A job for the session, with the channel for its result.
pub(crate) enum Job {
    Call(Box<DriverRequest>, oneshot::Sender<CallResult>),
    Layer(LayerName, oneshot::Sender<Result<()>>),
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
    /// Runs the session to its end. The end is on record before the session is removed.
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
        session.queue.close();
        if !interpreter.end(SANDBOX_END_TIMEOUT).await {
            tracing::warn!(session = %session.id, "its supervisor has told no end");
        }
        if let Some(sessions) = sessions.upgrade() {
            sessions.forget_workspace(&session).await;
            sessions.remove_ended(&session, end).await;
        }
        session.gone.send_replace(Some(end));
    }

    async fn serve(&mut self) -> SessionEnd {
        loop {
            tokio::select! {
                biased;
                job = self.jobs.recv() => match job {
                    None => return SessionEnd::Server,
                    Some(Job::Layer(layer, done)) => drop(done.send(self.interpreter.show(&layer).await)),
                    Some(Job::Egress(spec, done)) => drop(done.send(self.interpreter.open(spec).await)),
                    Some(Job::Call(sent, answer)) => {
                        let called = self.interpreter.call(*sent, &mut self.stop).await;
                        let end = called.outcome.end();
                        // The client may be gone; the call is complete anyway.
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
                    // A call has the turn.
                    None => self.session.touch(),
                },
            }
        }
    }
}

impl CallOutcome {
    /// Returns the reason if the session has ended with the call.
    pub(crate) fn end(&self) -> Option<SessionEnd> {
        match self {
            Self::Answered(..) => None,
            Self::Ended(ending, _) => Some(of(ending)),
            Self::GivenUp(end, _) => Some(*end),
            Self::Lost(_) => Some(SessionEnd::Server),
        }
    }
}

/// Returns the end of a session, from the end of its process tree.
fn of(ending: &Ending) -> SessionEnd {
    match ending.cause {
        Cause::Program => match ending.status.map(ExitStatus::from_raw) {
            Some(status) if status.signal().is_some() => SessionEnd::Crashed,
            _ => SessionEnd::Exited,
        },
        Cause::OutOfMemory => SessionEnd::OutOfMemory,
        Cause::Disk | Cause::Locks => SessionEnd::Limit,
        Cause::Timeout => SessionEnd::Age,
        Cause::Cancelled => SessionEnd::Terminated,
        Cause::Killed => SessionEnd::Crashed,
    }
}
