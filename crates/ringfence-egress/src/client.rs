//! Connections that the server itself makes for a namespace, where no sandbox asks: the same rules, approvals,
//! addresses, limits and report as those of a sandbox, without its sockets.

use crate::{
    Destination, Dialer, EgressReport,
    connection::{ConnState, Connection, Mode, check_request},
    names::Names,
    refusal::Refusal,
    sandbox::{LeaseOptions, Permit, SandboxEgress, Way},
    upstream::{self, UpstreamMeter},
    wire::write_through,
};
use ringfence_types::Denial;
use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// A lease of egress without a sandbox.
pub struct ClientLease {
    sandbox: Arc<SandboxEgress>,
}

impl fmt::Debug for ClientLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientLease")
            .field("owner", self.sandbox.owner())
            .finish_non_exhaustive()
    }
}

impl ClientLease {
    pub fn new(dialer: &Arc<Dialer>, options: LeaseOptions) -> Self {
        Self {
            sandbox: SandboxEgress::new(dialer, options, Names::default()),
        }
    }

    /// Judges a request by its destination, method and path (with the query), and connects to the address that passed.
    ///
    /// # Errors
    /// It is denied, or was not reached; both are in the report, too.
    pub async fn connect(
        &self,
        to: &Destination,
        method: &str,
        target: &str,
    ) -> Result<ClientStream, Denial> {
        let connection = Connection::new(self.sandbox.clone());
        let opened = self.open(&connection, to, method, target).await;
        connection.set_state(ConnState::Waiting);
        opened.map_err(|refusal| {
            self.sandbox.refuse(&refusal);
            self.sandbox.advised(refusal).denial()
        })
    }

    async fn open(
        &self,
        connection: &Connection,
        to: &Destination,
        method: &str,
        target: &str,
    ) -> Result<ClientStream, Refusal> {
        let permit = self.sandbox.permit()?;
        // The request is ours, so it is known without reading it off the connection.
        if connection.check_or_ask(to).await? == Mode::Inspect {
            check_request(&self.sandbox.rules_now(), to, method, target)?;
        }
        let upstream = upstream::open(&self.sandbox, to, None).await?;
        upstream.meter.request();
        Ok(ClientStream {
            stream: upstream.stream,
            meter: upstream.meter,
            _permit: permit,
        })
    }

    /// What happened since this was last asked.
    pub fn take_report(&self) -> EgressReport {
        self.sandbox.publish_left_out();
        self.sandbox.report.take()
    }
}

/// A connection to the outside, whose bytes count.
pub struct ClientStream {
    stream: TcpStream,
    meter: Arc<UpstreamMeter>,
    _permit: Permit,
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, to))?;
        Poll::Ready(self.meter.bytes(Way::Back, to.filled().len() - before))
    }
}

impl ClientStream {
    fn wrote(&self, bytes: usize) -> io::Result<()> {
        self.meter.bytes(Way::Out, bytes)
    }
}

write_through!(ClientStream);
