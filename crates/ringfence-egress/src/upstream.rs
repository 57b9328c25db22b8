//! Connections to the outside: how they are opened, what they have carried, and the events of their beginning and end.

use crate::{
    Destination, EgressEvent, Host, RefusalRule,
    connection::Connection,
    dial::dial,
    refusal::Refusal,
    report::{End, Line},
    sandbox::{Direction, SPENT},
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

/// A connection to the outside. Reads and writes through it are counted; code that splits its stream uses the meter.
pub(crate) struct Upstream {
    pub(crate) stream: TcpStream,
    pub(crate) meter: Arc<UpstreamMeter>,
}

/// Connects to a destination that the caller has checked; `ready` is a connection to it that is already open.
pub(crate) async fn open(
    connection: &Arc<Connection>,
    to: &Destination,
    ready: Option<Upstream>,
) -> Result<Upstream, Refusal> {
    if let Some(upstream) = ready {
        return Ok(upstream);
    }
    let sandbox = &connection.sandbox;
    // A sandbox that is over its byte limit does not even connect.
    if sandbox.spend(Direction::Out, 0).is_err() || sandbox.spend(Direction::In, 0).is_err() {
        let what = format!("{to}: this sandbox has reached its byte limit");
        return Err(Refusal::of(RefusalRule::Limit, to, what, SPENT));
    }
    if let Host::Name(name) = &to.host {
        // Resolving a name sends it outside, so the limits of wildcards apply here, too.
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
        Poll::Ready(this.meter.bytes(Direction::In, buffer.filled().len() - begin))
    }
}

impl Upstream {
    fn wrote(&self, bytes: usize) -> io::Result<()> {
        self.meter.bytes(Direction::Out, bytes)
    }
}

write_through!(Upstream);

/// Counts the bytes and requests of one connection. Dropping it publishes the event of its end.
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
        connection.upstreams().open += 1;
        sandbox.publish(EgressEvent::Connected(end.clone()));
        Arc::new(Self {
            connection,
            end,
            own: Line::default(),
            line,
        })
    }

    /// Counts bytes before they are forwarded. An error if the sandbox may not move that many.
    pub(crate) fn bytes(&self, direction: Direction, bytes: usize) -> io::Result<()> {
        self.connection.moved();
        self.connection.sandbox.spend(direction, bytes)?;
        for line in [&self.own, &self.line] {
            let counted = match direction {
                Direction::Out => &line.bytes_out,
                Direction::In => &line.bytes_in,
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
        let mut upstreams = self.connection.upstreams();
        upstreams.open -= 1;
        upstreams.keep(None);
        drop(upstreams);
        let [_, _, bytes_out, bytes_in] = self.own.take();
        self.connection.sandbox.publish(EgressEvent::Closed {
            end: self.end.clone(),
            bytes_out,
            bytes_in,
        });
    }
}
