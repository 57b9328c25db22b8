//! The sandbox's side of an inspected connection, as the HTTP library sees it: only bytes with strict framing pass.

use crate::{
    connection::Connection,
    framing::{FramingError, HttpFraming},
};
use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// Replacement for a byte with wrong framing: NUL is valid in no line of HTTP, and the empty line completes an open
/// head. So the library refuses it in order, after the answers to earlier requests.
const POISON: &[u8] = b"\0\r\n\r\n";

/// A connection from the sandbox, with the bytes already read from it.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    /// Bytes already read, which come before the rest of the stream.
    pub(crate) read_ahead: Vec<u8>,
}

impl Client {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            read_ahead: Vec::new(),
        }
    }
}

/// A stream of requests from the sandbox, checked for strict framing.
pub(crate) struct StrictStream<S> {
    stream: S,
    ahead: Vec<u8>,
    connection: Arc<Connection>,
    framing: FramingState,
    /// Rest of [`POISON`] to return, after a framing error.
    poison: Option<&'static [u8]>,
}

/// Framing state of the requests, shared with the code that answers them.
#[derive(Clone, Default)]
pub(crate) struct FramingState(Arc<Mutex<(HttpFraming, Option<FramingError>)>>);

impl FramingState {
    pub(crate) fn pass_all(&self) {
        self.state().0.pass_all();
    }

    pub(crate) fn framing_error(&self) -> Option<FramingError> {
        self.state().1
    }

    /// True if a head or a body has begun and not ended.
    pub(crate) fn is_open(&self) -> bool {
        !self.state().0.is_between()
    }

    /// Returns how many of these bytes are valid; if fewer than all, the next one is not.
    fn read(&self, bytes: &[u8]) -> usize {
        let mut state = self.state();
        let (framing, framing_error) = &mut *state;
        match framing.read(bytes) {
            Ok(()) => bytes.len(),
            Err((at, fault)) => {
                *framing_error = Some(fault);
                at
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, (HttpFraming, Option<FramingError>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> StrictStream<S> {
    /// Wraps `stream`; `ahead` are bytes already read from it.
    pub(crate) fn new(stream: S, ahead: Vec<u8>, connection: Arc<Connection>, framing: FramingState) -> Self {
        Self {
            stream,
            ahead,
            connection,
            framing,
            poison: None,
        }
    }

    fn wrote(&self, _bytes: usize) -> io::Result<()> {
        self.connection.moved();
        Ok(())
    }

    /// Returns the stream, and the bytes of `ahead` that were not consumed.
    pub(crate) fn into_parts(self) -> (S, Vec<u8>) {
        (self.stream, self.ahead)
    }

    /// Checks the bytes just read; the first invalid byte and everything after it are replaced by [`POISON`].
    fn check(&mut self, buffer: &mut ReadBuf<'_>, begin: usize) {
        let valid_end = begin + self.framing.read(&buffer.filled()[begin..]);
        if valid_end < buffer.filled().len() {
            buffer.set_filled(valid_end);
            self.poison = Some(put(POISON, buffer));
        }
    }
}

/// Copies as many bytes as the buffer has room for, and returns the rest.
fn put<'a>(bytes: &'a [u8], buffer: &mut ReadBuf<'_>) -> &'a [u8] {
    let (now, later) = bytes.split_at(bytes.len().min(buffer.remaining()));
    buffer.put_slice(now);
    later
}

impl<S: AsyncRead + Unpin> AsyncRead for StrictStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let begin = buffer.filled().len();
        if let Some(poison) = this.poison {
            this.poison = Some(put(poison, buffer));
            return Poll::Ready(Ok(()));
        }
        if this.ahead.is_empty() {
            ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        } else {
            let left = put(&this.ahead, buffer).len();
            this.ahead.drain(..this.ahead.len() - left);
        }
        this.connection.moved();
        this.check(buffer, begin);
        Poll::Ready(Ok(()))
    }
}

/// Implements `AsyncWrite` by the inner stream; `wrote` gets the number of bytes written.
macro_rules! write_through {
    ($name:ident $(<$stream:ident>)?) => {
        impl $(<$stream: AsyncWrite + Unpin>)? AsyncWrite for $name $(<$stream>)? {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                let this = self.get_mut();
                let written = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes))?;
                Poll::Ready(this.wrote(written).map(|()| written))
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                let this = self.get_mut();
                let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, slices))?;
                Poll::Ready(this.wrote(written).map(|()| written))
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.get_mut().stream).poll_flush(cx)
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
            }
        }
    };
}
pub(crate) use write_through;
write_through!(StrictStream<S>);
