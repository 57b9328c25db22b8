//! Standard input and output as the protocol's transport, watched: the moment the client is gone is known here first,
//! while `rmcp` still waits for the answers of requests in flight.

use super::lines::Lines;
use rmcp::transport::io::stdio_pipes;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

/// The transport; `gone` is cancelled when the client has left.
pub(super) fn stdio(
    gone: CancellationToken,
) -> Lines<impl AsyncRead + Send + Unpin, impl AsyncWrite + Send + Unpin> {
    let (reader, writer) = stdio_pipes();
    let reader = Watched {
        wire: reader,
        gone: gone.clone(),
    };
    let writer = Watched { wire: writer, gone };
    Lines::new(reader, writer)
}

/// A wire that tells when it is cut.
struct Watched<W> {
    wire: W,
    gone: CancellationToken,
}

impl<W> Watched<W> {
    fn note<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &polled
            && error.kind() != io::ErrorKind::Interrupted
        {
            self.gone.cancel();
        }
        polled
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = (buf.filled().len(), buf.remaining());
        let polled = Pin::new(&mut self.wire).poll_read(cx, buf);
        if matches!(polled, Poll::Ready(Ok(()))) && before.1 > 0 && buf.filled().len() == before.0 {
            self.gone.cancel(); // end of file
        }
        self.note(polled)
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Watched<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.wire).poll_write(cx, bytes);
        self.note(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.wire).poll_flush(cx);
        self.note(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.wire).poll_shutdown(cx);
        self.note(polled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn the_end_of_the_input_means_that_the_client_is_gone() {
        let gone = CancellationToken::new();
        let mut reader = Watched {
            wire: &b"{}\n"[..],
            gone: gone.clone(),
        };
        let mut line = [0; 3];
        reader.read_exact(&mut line).await.unwrap();
        assert!(!gone.is_cancelled());
        assert_eq!(reader.read(&mut line).await.unwrap(), 0);
        assert!(gone.is_cancelled());
    }

    #[tokio::test]
    async fn an_output_that_nobody_reads_means_that_the_client_is_gone() {
        let gone = CancellationToken::new();
        let (ours, theirs) = tokio::io::duplex(8);
        let mut writer = Watched {
            wire: ours,
            gone: gone.clone(),
        };
        writer.write_all(b"x").await.unwrap();
        assert!(!gone.is_cancelled());
        drop(theirs);
        assert!(writer.write_all(b"more than eight bytes").await.is_err());
        assert!(gone.is_cancelled());
    }
}
