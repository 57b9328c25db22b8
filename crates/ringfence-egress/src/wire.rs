//! The sandbox's socket of an inspected connection, as the HTTP library sees it: it lets through only what has strict
//! framing.

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

/// What replaces a byte with wrong framing: no grammar of HTTP has it anywhere, and with the empty line a head that was
/// open is complete. So the library refuses it in its place, after the answers to what came before.
const POISON: &[u8] = b"\0\r\n\r\n";

/// A connection from the sandbox, with what was read of it before.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    /// Read already, and to be read first.
    pub(crate) read: Vec<u8>,
}

impl Client {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            read: Vec::new(),
        }
    }
}

/// The sandbox's side of requests.
pub(crate) struct Strict<S> {
    stream: S,
    before: Vec<u8>,
    connection: Arc<Connection>,
    gate: Gate,
    /// What is left to be given of [`POISON`], once something was wrong.
    poison: Option<&'static [u8]>,
}

/// What is known of the framing of requests, for the code that answers them.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<Mutex<(HttpFraming, Option<FramingError>)>>);

impl Gate {
    pub(crate) fn pass_all(&self) {
        self.state().0.pass_all();
    }

    pub(crate) fn framing_error(&self) -> Option<FramingError> {
        self.state().1
    }

    /// Whether a head or a body has begun that has not ended.
    pub(crate) fn is_open(&self) -> bool {
        !self.state().0.is_between()
    }

    /// How many of these bytes are well; fewer than all: the next is wrong.
    fn read(&self, bytes: &[u8]) -> usize {
        let mut state = self.state();
        let (shape, framing_error) = &mut *state;
        match shape.read(bytes) {
            Ok(()) => bytes.len(),
            Err((at, wrong)) => {
                *framing_error = Some(wrong);
                at
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, (HttpFraming, Option<FramingError>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Strict<S> {
    /// Over `stream`, of which `before` was read before.
    pub(crate) fn new(stream: S, before: Vec<u8>, connection: Arc<Connection>, gate: Gate) -> Self {
        Self {
            stream,
            before,
            connection,
            gate,
            poison: None,
        }
    }

    fn wrote(&self, _bytes: usize) -> io::Result<()> {
        self.connection.moved();
        Ok(())
    }

    /// The socket, and what was never read of what came before it.
    pub(crate) fn into_parts(self) -> (S, Vec<u8>) {
        (self.stream, self.before)
    }

    /// Looks at what was just read; what is wrong of it, and all after it, is replaced.
    fn look(&mut self, buffer: &mut ReadBuf<'_>, begin: usize) {
        let well = begin + self.gate.read(&buffer.filled()[begin..]);
        if well < buffer.filled().len() {
            buffer.set_filled(well);
            self.poison = Some(give(POISON, buffer));
        }
    }
}

/// Gives what there is room for; the rest is for later.
fn give<'a>(bytes: &'a [u8], buffer: &mut ReadBuf<'_>) -> &'a [u8] {
    let (now, later) = bytes.split_at(bytes.len().min(buffer.remaining()));
    buffer.put_slice(now);
    later
}

impl<S: AsyncRead + Unpin> AsyncRead for Strict<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let begin = buffer.filled().len();
        if let Some(poison) = this.poison {
            this.poison = Some(give(poison, buffer));
            return Poll::Ready(Ok(()));
        }
        if this.before.is_empty() {
            ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        } else {
            let left = give(&this.before, buffer).len();
            this.before.drain(..this.before.len() - left);
        }
        this.connection.moved();
        this.look(buffer, begin);
        Poll::Ready(Ok(()))
    }
}

/// Writes go through to the stream; `wrote` hears how many bytes it has taken.
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
write_through!(Strict<S>);
