//! Request states: a client of revision 2026-07-28 returns its user's answer with a random text that names the request.
//! It is valid once, until it expires, for the question that it was issued for; anything else is refused with one and
//! the same error. The request itself never leaves the server.

use crate::lock::lock;
use ring::rand::{SystemRandom, generate};
use ringfence_engine::Waiting;
use ringfence_types::{ErrorCode, RequestError};
use std::{
    collections::HashMap,
    sync::Mutex,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

const OPEN_MAX: usize = 128;
/// Time after the expiry of a request in which a late client still learns the decision.
const GRACE: Duration = Duration::from_secs(60);
const STATE_BYTES: usize = 32;

/// The requests that wait for their clients to come back, each by its state.
#[derive(Default)]
pub(super) struct RequestStates {
    open: Mutex<HashMap<String, Open>>,
}

struct Open {
    waiting: Waiting,
    /// The question for which the state was issued.
    bound: Vec<u8>,
    until: Instant,
}

impl RequestStates {
    /// Keeps the waiting request until its client returns this text with the same `bound` data. Fails for a request
    /// that was decided already.
    pub(super) fn issue(&self, waiting: Waiting, bound: &[u8]) -> Result<String, RequestError> {
        let fault = |what| RequestError::fault(format!("a request has no state: {what}."), "Report this.");
        let request = waiting.request().ok_or_else(|| fault("it was decided already"))?;
        let random = generate::<[u8; STATE_BYTES]>(&SystemRandom::new());
        let random = random.map_err(|_| fault("there are no random bytes"))?;
        let state = ringfence_store::to_hex(&random.expose());
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let lasts = Duration::from_millis(request.expires_unix_ms).saturating_sub(unix) + GRACE;
        let now = Instant::now();
        let mut open = lock(&self.open);
        open.retain(|_, one| now < one.until);
        if open.len() >= OPEN_MAX {
            // `waiting` is dropped, which withdraws the request.
            return Err(RequestError::new(
                ErrorCode::Busy,
                format!("{OPEN_MAX} requests wait for the client to come back."),
                "Bring the answers to those.",
            ));
        }
        let one = Open {
            waiting,
            bound: bound.to_owned(),
            until: now + lasts,
        };
        open.insert(state.clone(), one);
        Ok(state)
    }

    /// Returns the waiting request, once. A state that comes back for another question stays valid for its own.
    pub(super) fn redeem(&self, state: &str, bound: &[u8]) -> Result<Waiting, RequestError> {
        let mut open = lock(&self.open);
        let is_valid = |one: &Open| one.bound == bound && Instant::now() < one.until;
        let one = match open.get(state) {
            Some(one) if is_valid(one) => open.remove(state),
            _ => None,
        };
        one.map(|one| one.waiting).ok_or_else(|| {
            tracing::warn!("a request state was refused");
            RequestError::invalid(
                "the request state was not given by this server for this question, or it was used, or it has expired.",
                "Call the tool again without it.",
            )
        })
    }
}
