//! Connections to the outside: how one is opened, what it has carried, and the events of its beginning and its end.

use crate::{
    Destination, EgressEvent, Host, RefusalRule,
    dial::dial,
    refusal::Refusal,
    report::{End, Line},
    sandbox::{SPENT, SandboxEgress, Way},
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::net::TcpStream;

pub(crate) struct Upstream {
    pub(crate) stream: TcpStream,
    pub(crate) meter: Arc<UpstreamMeter>,
}

/// Connects to a destination that the caller has judged by name and by what was said; `ready` is a connection to there
/// that is open already.
pub(crate) async fn open(
    sandbox: &Arc<SandboxEgress>,
    to: &Destination,
    ready: Option<Upstream>,
) -> Result<Upstream, Refusal> {
    if let Some(upstream) = ready {
        return Ok(upstream);
    }
    // With no bytes left to spend the host is not even connected to.
    if sandbox.spend(Way::Out, 0).is_err() || sandbox.spend(Way::Back, 0).is_err() {
        let what = format!("{to}: this sandbox has moved all the bytes that it may");
        return Err(Refusal::of(RefusalRule::Limit, to, what, SPENT));
    }
    if let Host::Name(name) = &to.host {
        // A name that is resolved leaves as one, so wildcards have their limits here too.
        let admitted = sandbox.names().admit(name, &sandbox.rules.borrow());
        admitted
            .map_err(|full| Refusal::of(RefusalRule::Limit, to, format!("{to}: {full}"), &full.hint(name)))?;
    }
    let (stream, address) = dial(&sandbox.dialer, sandbox.purpose, &sandbox.rules_now(), to).await?;
    let end = End {
        name: to.host.to_string(),
        port: to.port,
        address,
    };
    Ok(Upstream {
        stream,
        meter: UpstreamMeter::begin(sandbox.clone(), end),
    })
}

/// Counts what one connection carries. Dropping it publishes the event of its end.
pub(crate) struct UpstreamMeter {
    sandbox: Arc<SandboxEgress>,
    end: End,
    line: Arc<Line>,
    out: AtomicU64,
    back: AtomicU64,
}

impl UpstreamMeter {
    pub(crate) fn begin(sandbox: Arc<SandboxEgress>, end: End) -> Arc<Self> {
        let line = sandbox.report.line(end.clone());
        line.connections.fetch_add(1, Ordering::Relaxed);
        let End { name, port, address } = end.clone();
        sandbox.happened(EgressEvent::Connected { name, port, address });
        Arc::new(Self {
            sandbox,
            end,
            line,
            out: AtomicU64::new(0),
            back: AtomicU64::new(0),
        })
    }

    /// Bytes that are about to be passed on.
    ///
    /// # Errors
    /// The sandbox may not move that many.
    pub(crate) fn bytes(&self, way: Way, bytes: usize) -> io::Result<()> {
        self.sandbox.spend(way, bytes)?;
        let (own, line) = match way {
            Way::Out => (&self.out, &self.line.bytes_out),
            Way::Back => (&self.back, &self.line.bytes_in),
        };
        own.fetch_add(bytes as u64, Ordering::Relaxed);
        line.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn request(&self) {
        self.line.requests.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for UpstreamMeter {
    fn drop(&mut self) {
        let End { name, port, address } = self.end.clone();
        self.sandbox.happened(EgressEvent::Closed {
            name,
            port,
            address,
            bytes_out: self.out.load(Ordering::Relaxed),
            bytes_in: self.back.load(Ordering::Relaxed),
        });
    }
}
