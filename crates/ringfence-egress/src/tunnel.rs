//! Forwards bytes both ways until both ends have finished. The end of one direction is forwarded as just that, so that
//! the other end can still answer.

use crate::{
    sandbox::Way,
    upstream::{Upstream, UpstreamMeter},
};
use std::io;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

/// A connection that says little needs little; one that fills this gets the large one. Larger still is faster on a
/// loopback, and not worth what a namespace full of connections could then make this process hold.
const BUFFER_BYTES_FIRST: usize = 8 * 1024;
const BUFFER_BYTES_MAX: usize = 128 * 1024;

/// The two sockets of a tunnel. Unless it is said that the talk ended well, dropping them resets both connections, so
/// that neither end takes what it has for all there was.
pub(crate) struct Ends {
    pub(crate) client: TcpStream,
    pub(crate) upstream: Upstream,
    has_ended_well: bool,
}

impl Ends {
    pub(crate) fn new(client: TcpStream, upstream: Upstream) -> Self {
        Self {
            client,
            upstream,
            has_ended_well: false,
        }
    }

    pub(crate) fn ended_well(&mut self) {
        self.has_ended_well = true;
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        if !self.has_ended_well {
            reset(&self.client);
            reset(&self.upstream.stream);
        }
    }
}

/// When the socket is closed, it says that something was wrong.
pub(crate) fn reset(stream: &TcpStream) {
    if let Err(error) = stream.set_zero_linger() {
        tracing::debug!(%error, "a connection is closed, not reset");
    }
}

/// Passes on what both ends have said already, and then all that they say.
pub(crate) async fn join(ends: &mut Ends, said: Said<'_>) -> io::Result<()> {
    let meter = &*ends.upstream.meter;
    let (mut client_says, mut client_hears) = ends.client.split();
    let (mut upstream_says, mut upstream_hears) = ends.upstream.stream.split();
    let out = async {
        pass(said.by_client, &mut upstream_hears, meter, Way::Out).await?;
        pump(&mut client_says, &mut upstream_hears, meter, Way::Out).await
    };
    let back = async {
        pass(said.by_upstream, &mut client_hears, meter, Way::Back).await?;
        pump(&mut upstream_says, &mut client_hears, meter, Way::Back).await
    };
    tokio::try_join!(out, back)?;
    ends.ended_well();
    Ok(())
}

/// What was read of each end before it was known that nothing of it would be read.
#[derive(Clone, Copy, Default)]
pub(crate) struct Said<'a> {
    pub(crate) by_client: &'a [u8],
    pub(crate) by_upstream: &'a [u8],
}

pub(crate) async fn pass(
    bytes: &[u8],
    to: &mut (impl AsyncWrite + Unpin),
    meter: &UpstreamMeter,
    way: Way,
) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    meter.bytes(way, bytes.len())?;
    to.write_all(bytes).await
}

/// Passes on one direction to its end, and that end too.
pub(crate) async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    meter: &UpstreamMeter,
    way: Way,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES_FIRST];
    loop {
        let bytes = from.read(&mut buffer).await?;
        if bytes == 0 {
            return to.shutdown().await;
        }
        meter.bytes(way, bytes)?;
        to.write_all(&buffer[..bytes]).await?;
        meter.connection.moved();
        if bytes == buffer.len() && bytes < BUFFER_BYTES_MAX {
            buffer.resize(BUFFER_BYTES_MAX, 0);
        }
    }
}
