//! The egress of a session: opened with its sandbox, and widened by calls whose rules name more ports. What it is good
//! for is decided by the rules as they are, which may change while it is open.

use super::{Session, task::Job};
use crate::{
    egress::{Egress, EgressLease, LeaseOwner, Requester},
    policy::{Grant, reach},
    secrets::SecretLease,
};
use ringfence_egress::EgressReport;
use ringfence_jail::{self as jail, EgressSockets};
use ringfence_types::{ErrorCode, RequestError, SessionId};
use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Arc, MutexGuard, PoisonError},
};
use tokio::sync::oneshot;

/// What is open of it.
#[derive(Default)]
pub(crate) struct WayOut {
    lease: Option<EgressLease>,
    /// At which connections are accepted.
    ports: BTreeSet<u16>,
    /// Addresses that are delivered to it, beside those that stand for names.
    networks: BTreeSet<(IpAddr, u8)>,
}

impl WayOut {
    /// With the sandbox, whose sockets these are; none: it has no network of its own.
    pub(crate) fn begin(
        egress: &Arc<Egress>,
        grant: &Grant,
        lease: &SecretLease,
        id: &SessionId,
        sockets: Option<EgressSockets>,
    ) -> Result<Self, RequestError> {
        let mut open = Self {
            lease: egress.open_for(grant, lease, LeaseOwner::Session(id), sockets)?,
            ..Self::default()
        };
        if let Some(way) = reach::way_out(egress.tier, grant.reaches()) {
            open.opened(&way);
        }
        Ok(open)
    }

    fn opened(&mut self, way: &jail::EgressSpec) {
        self.ports.extend(&way.ports);
        self.networks.extend(&way.networks);
    }

    /// What of this is not open yet.
    fn lacks(&self, way: jail::EgressSpec) -> Result<jail::EgressSpec, RequestError> {
        let jail::EgressSpec {
            mut ports,
            mut networks,
        } = way;
        ports.retain(|port| !self.ports.contains(port));
        networks.retain(|network| !self.networks.contains(network));
        if self.ports.len() + ports.len() > jail::PORTS_MAX {
            return Err(RequestError::new(
                ErrorCode::PolicyDenied,
                format!(
                    "rules for this session have named more than {} different ports.",
                    jail::PORTS_MAX
                ),
                "Make a session, with `allowed_domains` that name the hosts that it needs.",
            ));
        }
        Ok(jail::EgressSpec { ports, networks })
    }
}

/// What a call has of the way out for itself. It ends with the call, however that ends.
pub(crate) struct OfCall {
    egress: Arc<Egress>,
    live: Arc<Session>,
}

impl OfCall {
    /// What was done since the last call ended.
    pub(crate) fn report(self) -> Option<EgressReport> {
        let open = lock(&self.live);
        open.lease.as_ref().map(EgressLease::report)
    }
}

impl Drop for OfCall {
    fn drop(&mut self) {
        if let Some(lease) = &lock(&self.live).lease {
            lease.end_call(&self.egress);
        }
    }
}

/// Sees to it that a call has the way out that its grant allows; whoever asks has the session's turn.
pub(crate) async fn provide(
    egress: &Arc<Egress>,
    live: &Arc<Session>,
    grant: &Grant,
    asker: Requester,
) -> Result<OfCall, RequestError> {
    open(egress, live, grant).await?;
    let of_call = OfCall {
        egress: egress.clone(),
        live: live.clone(),
    };
    if let Some(lease) = &lock(live).lease {
        lease.begin_call(egress, grant, asker);
    }
    Ok(of_call)
}

/// Opens what is not open yet.
async fn open(egress: &Arc<Egress>, live: &Arc<Session>, grant: &Grant) -> Result<(), RequestError> {
    let Some(way) = reach::way_out(egress.tier, grant.reaches()) else {
        return Ok(());
    };
    let way = lock(live).lacks(way)?;
    if way.ports.is_empty() && way.networks.is_empty() {
        return Ok(());
    }
    let (done, opened) = oneshot::channel();
    let job = Job::WayOut(way.clone(), done);
    live.jobs.send(job).await.map_err(|_| live.ended())?;
    let sockets = opened.await.map_err(|_| live.ended())??;
    let mut open = lock(live);
    if let Some(lease) = &open.lease {
        lease.add_ports(way.ports.iter().copied().zip(sockets).collect())?;
    }
    open.opened(&way);
    Ok(())
}

fn lock(live: &Session) -> MutexGuard<'_, WayOut> {
    live.way_out.lock().unwrap_or_else(PoisonError::into_inner)
}
