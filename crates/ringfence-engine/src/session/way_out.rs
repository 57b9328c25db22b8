//! The way out of a session: opened with its sandbox, or by the first of its calls that may have one. What it is good for is
//! decided by the rules as they are, which may change while it is open.

use super::{Live, life::Job};
use crate::{
    egress::{self, EgressLease},
    engine::House,
    policy::Grant,
};
use ringfence_egress::Traffic;
use ringfence_jail::{Opening, WayOutSockets};
use ringfence_types::RequestError;
use std::{
    collections::BTreeSet,
    sync::{Arc, MutexGuard, PoisonError},
};
use tokio::sync::oneshot;

/// What is open of it.
#[derive(Default)]
pub(crate) struct WayOut {
    lease: Option<EgressLease>,
    /// At which connections are accepted.
    ports: BTreeSet<u16>,
}

impl WayOut {
    /// With the sandbox.
    pub(super) fn new(lease: Option<EgressLease>, grant: &Grant) -> Self {
        let ports = egress::way_out(grant.reaches()).map(|way| way.ports.into_iter().collect());
        Self {
            ports: ports.filter(|_| lease.is_some()).unwrap_or_default(),
            lease,
        }
    }
}

/// Sees to it that a call has the way out that its grant allows; whoever asks has the session's turn.
pub(super) async fn provide(house: &Arc<House>, live: &Arc<Live>, grant: &Grant) -> Result<(), RequestError> {
    if let Some(lease) = &lock(live).lease {
        lease.set_once(house, grant.once());
    }
    let Some(mut way) = egress::way_out(grant.reaches()) else {
        return Ok(());
    };
    let opening = {
        let open = lock(live);
        way.ports.retain(|port| !open.ports.contains(port));
        match &open.lease {
            Some(_) if way.ports.is_empty() => return Ok(()),
            Some(_) => {
                way.ports
                    .truncate(ringfence_jail::PORTS_MAX.saturating_sub(open.ports.len()));
                Opening::More
            }
            None => Opening::First,
        }
    };
    let (done, opened) = oneshot::channel();
    let job = Job::WayOut(opening, way.clone(), done);
    live.jobs.send(job).await.map_err(|_| live.ended())?;
    let sockets = opened.await.map_err(|_| live.ended())??;
    let mut open = lock(live);
    match &open.lease {
        Some(lease) => lease.add_ports(way.ports.iter().copied().zip(sockets).collect())?,
        None => {
            let sockets = WayOutSockets::from_descriptors(&way, sockets);
            let who = (live.id.as_str(), Some(&live.id));
            open.lease = egress::open_for(house, grant, who, sockets)?;
        }
    }
    open.ports.extend(way.ports);
    Ok(())
}

/// What was done since the last call ended. What was approved for this one is over.
pub(super) fn report(house: &House, live: &Live) -> Option<Traffic> {
    let open = lock(live);
    let lease = open.lease.as_ref()?;
    lease.set_once(house, &[]);
    Some(lease.report())
}

fn lock(live: &Live) -> MutexGuard<'_, WayOut> {
    live.way_out.lock().unwrap_or_else(PoisonError::into_inner)
}
