//! The egress of a session: opened with its sandbox, and widened by calls whose rules name more ports. The rules decide
//! on each connection, and may change while it is open.

use super::{Session, task::Job};
use crate::{
    backend::EgressEnds,
    caller::Requester,
    egress::{Egress, EgressLease, LeaseOwner},
    error::Result,
    policy::{Grant, reach},
    secrets::SecretLease,
    sync::lock,
};
use ringfence_egress::EgressReport;
use ringfence_jail as jail;
use ringfence_types::{RequestError, SessionId};
use std::{collections::BTreeSet, net::IpAddr, sync::Arc};
use tokio::sync::oneshot;

#[derive(Default)]
pub(crate) struct SessionEgress {
    lease: Option<EgressLease>,
    ports: BTreeSet<u16>,
    /// Networks that are routed to it, beside the addresses that stand for names.
    networks: BTreeSet<(IpAddr, u8)>,
}

impl SessionEgress {
    /// Opens the egress of a new session's sandbox; `ends` is `None` if that has no network of its own.
    pub(crate) fn begin(
        egress: &Arc<Egress>,
        grant: &Grant,
        lease: &SecretLease,
        id: &SessionId,
        ends: Option<EgressEnds>,
    ) -> Result<Self> {
        let mut open = Self {
            lease: egress.open_for(grant, lease, LeaseOwner::Session(id), ends)?,
            ..Self::default()
        };
        if let Some(spec) = reach::spec(grant.backend.tier(egress.tier), &grant.reaches) {
            open.opened(&spec);
        }
        Ok(open)
    }

    fn opened(&mut self, spec: &jail::EgressSpec) {
        self.ports.extend(&spec.ports);
        self.networks.extend(&spec.networks);
    }

    /// Returns the parts of `spec` that are not open yet.
    fn lacks(&self, mut spec: jail::EgressSpec) -> Result<jail::EgressSpec> {
        spec.ports.retain(|port| !self.ports.contains(port));
        spec.networks.retain(|network| !self.networks.contains(network));
        if self.ports.len() + spec.ports.len() > jail::PORTS_MAX {
            let most = jail::PORTS_MAX;
            return Err(RequestError::denied(
                format!("rules for this session have named more than {most} different ports."),
                "Make a session, with `allowed_domains` that name the hosts that it needs.",
            ));
        }
        Ok(spec)
    }
}

/// A call's use of its session's egress. It ends with the call, in any case.
pub(crate) struct CallEgress {
    egress: Arc<Egress>,
    session: Arc<Session>,
}

impl CallEgress {
    /// Opens the egress that the grant of a call allows, in the session's turn.
    pub(crate) async fn begin(
        egress: &Arc<Egress>,
        session: &Arc<Session>,
        grant: &Grant,
        by: Requester,
    ) -> Result<Self> {
        open(egress, session, grant).await?;
        let of_call = Self {
            egress: egress.clone(),
            session: session.clone(),
        };
        if let Some(lease) = &lock(&session.egress).lease {
            lease.begin_call(egress, grant, by);
        }
        Ok(of_call)
    }

    /// Returns the connections since the end of the last call.
    pub(crate) fn report(self) -> Option<EgressReport> {
        let open = lock(&self.session.egress);
        open.lease.as_ref().map(EgressLease::report)
    }
}

impl Drop for CallEgress {
    fn drop(&mut self) {
        if let Some(lease) = &lock(&self.session.egress).lease {
            lease.end_call(&self.egress);
        }
    }
}

async fn open(egress: &Arc<Egress>, session: &Arc<Session>, grant: &Grant) -> Result<()> {
    let Some(spec) = reach::spec(grant.backend.tier(egress.tier), &grant.reaches) else {
        return Ok(());
    };
    let spec = lock(&session.egress).lacks(spec)?;
    if spec.ports.is_empty() && spec.networks.is_empty() {
        return Ok(());
    }
    let (done, opened) = oneshot::channel();
    let job = Job::Egress(spec.clone(), done);
    session.jobs.send(job).await.map_err(|_| session.ended())?;
    let sockets = opened.await.map_err(|_| session.ended())??;
    let mut open = lock(&session.egress);
    if let Some(lease) = &open.lease {
        lease.add_ports(spec.ports.iter().copied().zip(sockets).collect())?;
    }
    open.opened(&spec);
    Ok(())
}
