//! Servers of the Internet that the stories talk to.

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

/// Connections to a server.
pub struct Connections(Arc<AtomicUsize>);

impl Connections {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Serves each connection by `talk`; the count is of connections.
pub fn serve<Talk, Done>(address: &str, port: u16, talk: Talk) -> Connections
where
    Talk: Fn(TcpStream) -> Done + Send + 'static,
    Done: Future<Output = ()> + Send + 'static,
{
    let count = Connections(Arc::default());
    let seen = count.0.clone();
    let address = SocketAddr::new(address.parse().expect("an address"), port);
    let listener = bound(address).listen(64).expect("listening");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            seen.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(talk(stream));
        }
    });
    count
}

/// Gives each connection's first request this answer, and hangs up.
pub fn answer_once(address: &str, port: u16, answer: &'static str) {
    serve(address, port, move |mut stream| async move {
        request(&mut stream).await.expect("a request");
        stream.write_all(answer.as_bytes()).await.expect("said");
    });
}

/// Says back what it hears, and ends when the other does.
pub fn echo(address: &str, port: u16) -> Connections {
    serve(address, port, |mut stream| async move {
        let (mut from, mut to) = stream.split();
        drop(tokio::io::copy(&mut from, &mut to).await);
        drop(to.shutdown().await);
    })
}

/// Requests as they arrived.
#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<Vec<Request>>>);

/// Head and body.
type Request = (String, Vec<u8>);

impl Heard {
    /// Heads, in the order of their coming.
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

    /// Bodies as they stood on the wire.
    pub fn bodies(&self) -> Vec<Vec<u8>> {
        self.requests().into_iter().map(|(_, body)| body).collect()
    }

    fn requests(&self) -> Vec<Request> {
        self.0.lock().expect("unharmed").clone()
    }
}

/// An HTTP server that notes what it hears byte by byte, and answers each request with its path.
pub fn http(address: &str, port: u16) -> Heard {
    let heard = Heard::default();
    let noted = heard.clone();
    serve(address, port, move |mut stream| {
        let noted = noted.clone();
        async move {
            while let Some((head, body)) = request(&mut stream).await {
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                noted.0.lock().expect("unharmed").push((head, body));
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
    heard
}

/// Reads one request; the body as it stands on the wire.
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
