//! Connections that the server itself opens for a namespace, without a sandbox: the same rules, approvals, checks of
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

pub struct ClientLease {
    sandbox: Arc<SandboxEgress>,
}

impl ClientLease {
    pub fn new(dialer: &Arc<Dialer>, options: LeaseOptions) -> Self {
        Self {
            sandbox: SandboxEgress::new(dialer, options, Names::default()),
        }
    }

    /// Checks a request by its destination, method and path (with the query), and connects to the address that passed.
    /// Denied requests and hosts that were not reached are in the report, too.
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
            self.sandbox.with_hint(refusal).denial()
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
        // The request is Ringfence's own, so it is known without inspection of the connection.
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

    pub fn take_report(&self) -> EgressReport {
        self.sandbox.publish_left_out();
        self.sandbox.report.take()
    }
}

/// A connection to the outside with counted bytes.
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
