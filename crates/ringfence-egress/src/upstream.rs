//! Connections to the outside: how one is opened, what it has carried, and the events of its beginning and its end.

use crate::{
    Destination, EgressEvent, Host, RefusalRule,
    connection::Connection,
    dial::dial,
    refusal::Refusal,
    report::{End, Line},
    sandbox::{SPENT, Way},
    wire::write_through,
};
use std::{
    io,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// What is read from it and written to it is counted; who splits its stream counts for it.
pub(crate) struct Upstream {
    pub(crate) stream: TcpStream,
    pub(crate) meter: Arc<UpstreamMeter>,
}

/// Connects to a destination that the caller has judged by name and by what was said; `ready` is a connection to there
/// that is open already.
pub(crate) async fn open(
    connection: &Arc<Connection>,
    to: &Destination,
    ready: Option<Upstream>,
) -> Result<Upstream, Refusal> {
    if let Some(upstream) = ready {
        return Ok(upstream);
    }
    let sandbox = &connection.sandbox;
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
        meter: UpstreamMeter::begin(connection.clone(), end),
    })
}

impl AsyncRead for Upstream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let begin = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        Poll::Ready(this.meter.bytes(Way::Back, buffer.filled().len() - begin))
    }
}

impl Upstream {
    fn wrote(&self, bytes: usize) -> io::Result<()> {
        self.meter.bytes(Way::Out, bytes)
    }
}

write_through!(Upstream);

/// Counts what one connection carries. Dropping it publishes the event of its end.
pub(crate) struct UpstreamMeter {
    pub(crate) connection: Arc<Connection>,
    end: End,
    own: Line,
    line: Arc<Line>,
}

impl UpstreamMeter {
    fn begin(connection: Arc<Connection>, end: End) -> Arc<Self> {
        let sandbox = &connection.sandbox;
        let line = sandbox.report.line(end.clone());
        line.connections.fetch_add(1, Ordering::Relaxed);
        sandbox.happened(EgressEvent::Connected(end.clone()));
        Arc::new(Self {
            connection,
            end,
            own: Line::default(),
            line,
        })
    }

    /// Bytes that are about to be passed on. An error: the sandbox may not move that many.
    pub(crate) fn bytes(&self, way: Way, bytes: usize) -> io::Result<()> {
        self.connection.moved();
        self.connection.sandbox.spend(way, bytes)?;
        for line in [&self.own, &self.line] {
            let counted = match way {
                Way::Out => &line.bytes_out,
                Way::Back => &line.bytes_in,
            };
            counted.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn request(&self) {
        self.line.requests.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for UpstreamMeter {
    fn drop(&mut self) {
        let [_, _, bytes_out, bytes_in] = self.own.take();
        self.connection.sandbox.happened(EgressEvent::Closed {
            end: self.end.clone(),
            bytes_out,
            bytes_in,
        });
    }
}
