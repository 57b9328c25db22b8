//! Connections that the server itself makes for a namespace, where no sandbox asks: the same rules, approvals,
//! addresses, limits and report as those of a sandbox, without its sockets.

use crate::{
    Destination, Dialer, EgressReport,
    connection::{ConnState, Connection, Mode, check_request},
    names::Names,
    refusal::Refusal,
    sandbox::{LeaseOptions, Permit, SandboxEgress},
    upstream::{self, Upstream},
    wire::write_through,
};
use ringfence_types::Denial;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A lease of egress without a sandbox.
pub struct ClientLease {
    sandbox: Arc<SandboxEgress>,
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
        connection: &Arc<Connection>,
        to: &Destination,
        method: &str,
        target: &str,
    ) -> Result<ClientStream, Refusal> {
        let permit = self.sandbox.permit()?;
        // The request is ours, so it is known without reading it off the connection.
        if connection.check_or_ask(to).await? == Mode::Inspect {
            check_request(&self.sandbox.rules_now(), to, method, target)?;
        }
        let stream = upstream::open(connection, to, None).await?;
        stream.meter.request();
        Ok(ClientStream {
            stream,
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
    stream: Upstream,
    _permit: Permit,
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, to)
    }
}

impl ClientStream {
    fn wrote(&self, _bytes: usize) -> io::Result<()> {
        Ok(())
    }
}

write_through!(ClientStream);
