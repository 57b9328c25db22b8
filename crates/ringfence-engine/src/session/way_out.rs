//! The way out of a session: opened with its sandbox, or by the first of its calls that may have one. What it is good for is
//! decided by the rules as they are, which may change while it is open.

use super::{Live, life::Job};
use crate::{
    egress::{self, Asker, EgressLease, Holder},
    engine::House,
    policy::Grant,
    secrets::SecretLease,
};
use ringfence_egress::Traffic;
use ringfence_jail::{self as jail, Opening, WayOutSockets};
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
    /// With the sandbox, whose sockets these are; none: its rules have named nobody.
    pub(super) fn begin(
        house: &Arc<House>,
        grant: &Grant,
        lease: &SecretLease,
        (id, sockets): (&SessionId, Option<WayOutSockets>),
    ) -> Result<Self, RequestError> {
        let mut open = Self {
            lease: egress::open_for(house, (grant, lease), Holder::Session(id), sockets)?,
            ..Self::default()
        };
        if let Some(way) = egress::way_out(grant.reaches(), grant.asks()).filter(|_| open.lease.is_some()) {
            open.opened(&way);
        }
        Ok(open)
    }

    fn opened(&mut self, way: &jail::WayOut) {
        self.ports.extend(&way.ports);
        self.networks.extend(&way.networks);
    }

    /// What of this is not open yet.
    fn lacks(&self, way: jail::WayOut) -> Result<jail::WayOut, RequestError> {
        let jail::WayOut {
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
        Ok(jail::WayOut { ports, networks })
    }
}

/// What a call has of the way out for itself. It ends with the call, however that ends.
pub(super) struct OfCall {
    house: Arc<House>,
    live: Arc<Live>,
}

impl OfCall {
    /// What was done since the last call ended.
    pub(super) fn report(self) -> Option<Traffic> {
        let open = lock(&self.live);
        open.lease.as_ref().map(EgressLease::report)
    }
}

impl Drop for OfCall {
    fn drop(&mut self) {
        if let Some(lease) = &lock(&self.live).lease {
            lease.end_call(&self.house);
        }
    }
}

/// Sees to it that a call has the way out that its grant allows; whoever asks has the session's turn.
pub(super) async fn provide(
    house: &Arc<House>,
    live: &Arc<Live>,
    grant: &Grant,
    asker: Asker,
) -> Result<OfCall, RequestError> {
    open(house, live, grant).await?;
    let of_call = OfCall {
        house: house.clone(),
        live: live.clone(),
    };
    if let Some(lease) = &lock(live).lease {
        lease.begin_call(house, grant, asker);
    }
    Ok(of_call)
}

/// Opens what is not open yet.
async fn open(house: &Arc<House>, live: &Arc<Live>, grant: &Grant) -> Result<(), RequestError> {
    let Some(way) = egress::way_out(grant.reaches(), grant.asks()) else {
        return Ok(());
    };
    let (opening, way) = {
        let open = lock(live);
        let way = open.lacks(way)?;
        match &open.lease {
            Some(_) if way.ports.is_empty() && way.networks.is_empty() => return Ok(()),
            Some(_) => (Opening::More, way),
            None => (Opening::First, way),
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
            let holder = Holder::Session(&live.id);
            open.lease = egress::open_for(house, (grant, &live.lease), holder, sockets)?;
        }
    }
    open.opened(&way);
    Ok(())
}

fn lock(live: &Live) -> MutexGuard<'_, WayOut> {
    live.way_out.lock().unwrap_or_else(PoisonError::into_inner)
}
