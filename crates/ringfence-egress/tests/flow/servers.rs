//! Servers of the tests' Internet.

use crate::world::bound;
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The number of connections to a server.
pub struct Connections(Arc<AtomicUsize>);

impl Connections {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Serves each connection by `handle`, and counts the connections.
pub fn serve<Handle, Done>(address: &str, port: u16, handle: Handle) -> Connections
where
    Handle: Fn(TcpStream) -> Done + Send + 'static,
    Done: Future<Output = ()> + Send + 'static,
{
    let count = Connections(Arc::default());
    let seen = count.0.clone();
    let address = SocketAddr::new(address.parse().expect("an address"), port);
    let listener = bound(address).listen(64).expect("listening");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            seen.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(handle(stream));
        }
    });
    count
}

/// Gives the first request of each connection this answer, and closes.
pub fn answer_once(address: &str, port: u16, answer: &'static str) {
    serve(address, port, move |mut stream| async move {
        request(&mut stream).await.expect("a request");
        stream.write_all(answer.as_bytes()).await.expect("sent");
    });
}

/// Echoes all bytes, and ends when the client does.
pub fn echo(address: &str, port: u16) -> Connections {
    serve(address, port, |mut stream| async move {
        let (mut from, mut to) = stream.split();
        drop(tokio::io::copy(&mut from, &mut to).await);
        drop(to.shutdown().await);
    })
}

/// Requests as they arrived.
#[derive(Clone, Default)]
pub struct Received(Arc<Mutex<Vec<Request>>>);

/// Head and body.
type Request = (String, Vec<u8>);

impl Received {
    /// Heads, in the order of arrival.
    pub fn heads(&self) -> Vec<String> {
        self.requests().into_iter().map(|(head, _)| head).collect()
    }

    /// First lines.
    pub fn lines(&self) -> Vec<String> {
        self.heads()
            .iter()
            .map(|head| head.lines().next().unwrap_or_default().to_owned())
            .collect()
    }

    /// Bodies as they were on the wire.
    pub fn bodies(&self) -> Vec<Vec<u8>> {
        self.requests().into_iter().map(|(_, body)| body).collect()
    }

    fn requests(&self) -> Vec<Request> {
        self.0.lock().expect("not poisoned").clone()
    }
}

/// An HTTP server that records requests byte by byte, and answers each with its path.
pub fn http(address: &str, port: u16) -> Received {
    let received = Received::default();
    let recorded = received.clone();
    serve(address, port, move |mut stream| {
        let recorded = recorded.clone();
        async move {
            while let Some((head, body)) = request(&mut stream).await {
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                recorded.0.lock().expect("not poisoned").push((head, body));
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Of: server\r\n\r\n{path}",
                    path.len()
                );
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    });
    received
}

/// Reads one request; the body as it is on the wire.
pub async fn request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let head = until(stream, b"\r\n\r\n").await?;
    let head = String::from_utf8(head).expect("text");
    let lower = head.to_ascii_lowercase();
    let length = lower
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let body = if lower.contains("transfer-encoding: chunked") {
        until(stream, b"0\r\n\r\n").await?
    } else {
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).await.ok()?;
        body
    };
    Some((head, body))
}

async fn until(stream: &mut TcpStream, end: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end) {
        bytes.push(stream.read_u8().await.ok()?);
    }
    Some(bytes)
}
