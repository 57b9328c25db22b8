//! Forwards bytes in both directions until both ends have finished. A half-close is forwarded as a half-close, so that
//! the other end can still answer.

use crate::{
    sandbox::Direction,
    upstream::{Upstream, UpstreamMeter},
};
use std::io;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

/// Sizes of the buffer of one direction: the first, and the largest, as soon as a read fills it. Still larger ones are
/// faster on a loopback, but a namespace full of connections could then make this process hold too much memory.
const BUFFER_BYTES_FIRST: usize = 8 * 1024;
const BUFFER_BYTES_MAX: usize = 128 * 1024;

/// The two sockets of a tunnel. Dropping them before [`Ends::set_complete`] resets both connections, so that neither
/// end takes a cut stream for a complete one.
pub(crate) struct Ends {
    pub(crate) client: TcpStream,
    pub(crate) upstream: Upstream,
    is_complete: bool,
}

impl Ends {
    pub(crate) fn new(client: TcpStream, upstream: Upstream) -> Self {
        Self {
            client,
            upstream,
            is_complete: false,
        }
    }

    pub(crate) fn set_complete(&mut self) {
        self.is_complete = true;
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        if !self.is_complete {
            reset(&self.client);
            reset(&self.upstream.stream);
        }
    }
}

/// Makes the close of the socket a reset (RST), which shows the peer that something went wrong.
pub(crate) fn reset(stream: &TcpStream) {
    if let Err(error) = stream.set_zero_linger() {
        tracing::debug!(%error, "a connection is closed, not reset");
    }
}

/// Forwards the bytes already read from both ends, then everything that follows.
pub(crate) async fn join(ends: &mut Ends, read: ReadAhead<'_>) -> io::Result<()> {
    let meter = &*ends.upstream.meter;
    let (mut client_reader, mut client_writer) = ends.client.split();
    let (mut upstream_reader, mut upstream_writer) = ends.upstream.stream.split();
    let outbound = async {
        write_counted(read.from_client, &mut upstream_writer, meter, Direction::Out).await?;
        pump(&mut client_reader, &mut upstream_writer, meter, Direction::Out).await
    };
    let inbound = async {
        write_counted(read.from_upstream, &mut client_writer, meter, Direction::In).await?;
        pump(&mut upstream_reader, &mut client_writer, meter, Direction::In).await
    };
    tokio::try_join!(outbound, inbound)?;
    ends.set_complete();
    Ok(())
}

/// Bytes read from each end before it was decided to forward without inspection.
#[derive(Clone, Copy, Default)]
pub(crate) struct ReadAhead<'a> {
    pub(crate) from_client: &'a [u8],
    pub(crate) from_upstream: &'a [u8],
}

pub(crate) async fn write_counted(
    bytes: &[u8],
    to: &mut (impl AsyncWrite + Unpin),
    meter: &UpstreamMeter,
    direction: Direction,
) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    meter.bytes(direction, bytes.len())?;
    to.write_all(bytes).await
}

/// Forwards one direction until its end, then shuts down the receiving side.
pub(crate) async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    meter: &UpstreamMeter,
    direction: Direction,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES_FIRST];
    loop {
        let bytes = from.read(&mut buffer).await?;
        if bytes == 0 {
            return to.shutdown().await;
        }
        meter.bytes(direction, bytes)?;
        to.write_all(&buffer[..bytes]).await?;
        meter.connection.moved();
        if bytes == buffer.len() && bytes < BUFFER_BYTES_MAX {
            buffer.resize(BUFFER_BYTES_MAX, 0);
        }
    }
}
