//! Whoever waits for an answer, and whoever watches for questions.

use super::{
    desk::Desk,
    words::{ApprovalRequest, Decision, DeniedBy},
};
use std::{fmt, sync::Arc};
use tokio::sync::watch;

/// Somebody who waits for an answer. Dropped, they wait no more, and a request for which nobody waits is denied.
pub struct Waiting {
    pub(super) told: watch::Receiver<Option<Decision>>,
    pub(super) request: Option<ApprovalRequest>,
    pub(super) is_first: bool,
    /// None: it was decided before it was asked.
    pub(super) _seat: Option<Seat>,
}

pub(super) struct Seat {
    pub(super) desk: Arc<Desk>,
    pub(super) id: String,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.desk.leave(&self.id);
    }
}

impl Waiting {
    pub(super) fn decided_already(decision: Decision) -> Self {
        Self {
            told: watch::channel(Some(decision)).1,
            request: None,
            is_first: false,
            _seat: None,
        }
    }

    /// What is asked; none: nobody has to be.
    pub fn request(&self) -> Option<&ApprovalRequest> {
        self.request.as_ref()
    }

    /// Whether nobody else has asked the same: then it is on whoever waits here to see that a person is asked.
    pub fn is_first(&self) -> bool {
        self.is_first
    }

    /// What was decided, if anything was.
    pub fn decision(&self) -> Option<Decision> {
        self.told.borrow().clone()
    }

    /// Until somebody has decided, or time has.
    pub async fn decided(&mut self) -> Decision {
        match self.told.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(decision)) => decision.clone(),
            _ => Decision::denied(DeniedBy::Gone),
        }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

/// Hears that requests have come or gone. It misses none: whoever asks [`ApprovalWatch::changed`] late is told of all.
pub struct ApprovalWatch {
    pub(super) changes: watch::Receiver<u64>,
    pub(super) desk: Arc<Desk>,
}

impl ApprovalWatch {
    /// Those that lie there now, the oldest first.
    pub fn pending(&mut self) -> Vec<ApprovalRequest> {
        self.changes.mark_unchanged();
        self.desk.pending(None)
    }

    /// What became of one that lies there no more; none: it is not remembered.
    pub fn decision(&self, id: &str) -> Option<Decision> {
        self.desk.decision(id)
    }

    /// Until there is another answer. False: there will be none.
    pub async fn changed(&mut self) -> bool {
        !self.desk.state().is_closed && self.changes.changed().await.is_ok()
    }
}
