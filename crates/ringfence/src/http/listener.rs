//! Sockets that clients connect to. A Unix socket accepts only processes of this user and of root: its mode is 0600,
//! and the kernel reports the uid of each peer (`SO_PEERCRED`).

use super::authenticator::Peer;
use crate::settings::{HttpListen, refusal};
use ringfence_types::RequestError;
use rustix::net::{AddressFamily, sockopt};
use std::{
    fs, io,
    net::TcpListener as StdTcpListener,
    os::{
        fd::OwnedFd,
        unix::{
            fs::PermissionsExt,
            net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream},
        },
    },
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Maximum time that sent data may stay unacknowledged (`TCP_USER_TIMEOUT`, tcp(7)).
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(60);
/// Idle time before keepalive probes are sent (`TCP_KEEPIDLE`, tcp(7)).
const KEEPALIVE: Duration = Duration::from_secs(60);

pub(super) enum HttpListener {
    Tcp(TcpListener),
    Unix {
        socket: UnixListener,
        /// Removes the socket file, if this process made it.
        _file: Option<RemoveOnDrop>,
    },
}

pub(super) struct RemoveOnDrop(PathBuf);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::debug!(%error, "the socket file was not removed");
        }
    }
}

pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl HttpListener {
    /// Takes over the sockets of a service manager (sd_listen_fds(3)).
    pub(super) fn activated(count: u32) -> Result<Vec<Self>, RequestError> {
        const FIRST: u32 = 3;
        let taken = (FIRST..FIRST + count).map(|number| {
            let descriptor = i32::try_from(number).map_err(io::Error::other)?;
            Self::of(ringfence_jail::inherited_descriptor(descriptor)?)
        });
        taken.collect::<io::Result<_>>().map_err(|error| {
            refusal(
                format!("cannot listen on a socket of the service manager: {error}."),
                "Give stream sockets that listen (`ListenStream=`).",
            )
        })
    }

    fn of(socket: OwnedFd) -> io::Result<Self> {
        if !sockopt::socket_acceptconn(&socket)? {
            return Err(io::Error::other("it is not a listening socket"));
        }
        match sockopt::socket_domain(&socket)? {
            AddressFamily::UNIX => {
                let socket = StdUnixListener::from(socket);
                socket.set_nonblocking(true)?;
                UnixListener::from_std(socket).map(|socket| Self::Unix { socket, _file: None })
            }
            AddressFamily::INET | AddressFamily::INET6 => {
                let socket = StdTcpListener::from(socket);
                socket.set_nonblocking(true)?;
                TcpListener::from_std(socket).map(Self::Tcp)
            }
            _ => Err(io::Error::other("it is of another family")),
        }
    }

    pub(super) async fn bind(listen: &HttpListen) -> Result<Self, RequestError> {
        let bound = match listen {
            HttpListen::Tcp(address) => TcpListener::bind(address).await.map(Self::Tcp),
            HttpListen::Unix(path) => bind_unix(path),
        };
        bound.map_err(|error| {
            refusal(
                format!("cannot listen at {listen}: {error}."),
                "Choose an address of this host and a free port, or unix:PATH in a directory of your own (`http.listen`, --listen).",
            )
        })
    }

    pub(super) fn address(&self) -> String {
        match self {
            Self::Tcp(socket) => socket
                .local_addr()
                .map_or_else(|_| String::new(), |address| address.to_string()),
            Self::Unix { socket, .. } => {
                let address = socket.local_addr().ok();
                let path = address.as_ref().and_then(|address| address.as_pathname());
                format!("unix:{}", path.unwrap_or(Path::new("")).display())
            }
        }
    }

    pub(super) fn is_public(&self) -> bool {
        match self {
            Self::Tcp(socket) => !socket
                .local_addr()
                .is_ok_and(|address| address.ip().is_loopback()),
            Self::Unix { .. } => false,
        }
    }

    /// Accepts the next connection. None: the peer is of another user.
    pub(super) async fn accept(&self) -> io::Result<Option<(Stream, Peer)>> {
        match self {
            Self::Tcp(socket) => {
                let (stream, _) = socket.accept().await?;
                prepare(&stream)?;
                Ok(Some((Stream::Tcp(stream), Peer::Network)))
            }
            Self::Unix { socket, .. } => {
                let (stream, _) = socket.accept().await?;
                let uid = stream.peer_cred()?.uid();
                if uid == rustix::process::geteuid().as_raw() || uid == 0 {
                    return Ok(Some((Stream::Unix(stream), Peer::Socket)));
                }
                tracing::warn!(uid, "a connection of another user was refused");
                Ok(None)
            }
        }
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let timeout_ms = u32::try_from(UNACKNOWLEDGED_MAX.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, timeout_ms)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    Ok(())
}

/// Replaces the socket file of a server that has ended; fails if a server still accepts connections at it.
fn bind_unix(path: &Path) -> io::Result<HttpListener> {
    let bound = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => match StdUnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            _ => return Err(error),
        },
        bound => bound?,
    };
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(HttpListener::Unix {
        socket: bound,
        _file: Some(RemoveOnDrop(path.to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stale_unix_socket_is_replaced_and_a_live_one_is_not() {
        let path = std::env::temp_dir().join(format!("ringfence-http-{}.sock", std::process::id()));
        let listen = HttpListen::Unix(path.clone());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let first = HttpListener::bind(&listen).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let error = HttpListener::bind(&listen).await.err().unwrap();
        assert!(error.message.contains("cannot listen at unix:/"), "{error}");
        assert!(path.exists());
        drop(first);
        assert!(!path.exists());
    }
}
