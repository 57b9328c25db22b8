//! The name server of a sandbox: queries over UDP and TCP, answered by [`crate::dns`] from what the sandbox's rules
//! allow. No query ever leaves, and only so many a second are answered.

use crate::{
    HostName, RefusalRule,
    dns::{self, Denied, LoggedQuery, Transport},
    listener::{PAUSE_FIRST, recover},
    refusal::Refusal,
    sandbox::SandboxEgress,
    token_bucket::TokenBucket,
};
use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    sync::{Semaphore, watch},
    time::timeout,
};

/// Queries at once, and queries a second after that; what is over is not answered.
const BURST: u32 = 200;
const PER_SECOND: u32 = 100;
/// The largest query; a name, its type and a few options are far smaller.
const QUERY_BYTES_MAX: usize = 4096;
/// Connections for queries at once, and queries over one of them.
const CONNECTIONS_MAX: usize = 8;
const QUERIES_MAX: usize = 100;
/// How long a connection for queries stays without one.
const IDLE: Duration = Duration::from_secs(10);

/// Where queries are answered, whichever way they come.
pub(crate) struct DnsServer {
    sandbox: Arc<SandboxEgress>,
    pace: Mutex<TokenBucket>,
    connections: Arc<Semaphore>,
}

impl DnsServer {
    pub(crate) fn new(sandbox: Arc<SandboxEgress>) -> Arc<Self> {
        Arc::new(Self {
            sandbox,
            pace: Mutex::new(TokenBucket::new(BURST, PER_SECOND)),
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        })
    }

    /// One query. None: it gets no answer.
    pub(crate) fn answer(&self, query: &[u8], transport: Transport) -> Option<Vec<u8>> {
        let paced = self.pace.lock().unwrap_or_else(PoisonError::into_inner).allows();
        if !paced {
            let what = format!("more than {PER_SECOND} names a second were asked for");
            self.sandbox
                .refuse(&Refusal::plain(RefusalRule::Limit, what, "keep the answers"));
            return None;
        }
        let mut asked = None;
        let rules = self.sandbox.rules_now();
        let answer = {
            let mut names = self.sandbox.names();
            let known = dns::Known {
                names: &mut names,
                rules: &rules,
                unlisted: &|name| self.sandbox.unlisted(name),
            };
            dns::answer(query, transport, known, &mut |what| asked = Some(what))
        };
        if let Some(refusal) = asked.as_ref().and_then(refusal) {
            self.sandbox.refuse(&refusal);
        }
        answer
    }

    /// Serves datagrams until the lease is closed.
    pub(crate) async fn serve_udp(self: Arc<Self>, socket: UdpSocket, mut closing: watch::Receiver<()>) {
        let mut query = vec![0; QUERY_BYTES_MAX];
        let mut pause = PAUSE_FIRST;
        loop {
            let received = tokio::select! {
                received = socket.recv_from(&mut query) => received,
                _ = closing.changed() => return,
            };
            match received {
                Ok((bytes, from)) => {
                    pause = PAUSE_FIRST;
                    if let Some(answer) = self.answer(&query[..bytes], Transport::Udp) {
                        // Who has gone away in the meantime gets none.
                        if let Err(error) = socket.send_to(&answer, from).await {
                            tracing::debug!(%error, "an answer was not delivered");
                        }
                    }
                }
                Err(error) => pause = recover(&self.sandbox, &error, pause).await,
            }
        }
    }

    /// One connection, unless there are too many.
    pub(crate) async fn serve_connection(self: Arc<Self>, stream: TcpStream) {
        if let Ok(permit) = self.connections.clone().try_acquire_owned() {
            drop(self.converse(stream).await);
            drop(permit);
        }
    }

    /// One connection: length, query, length, answer (RFC 7766).
    async fn converse(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut query = vec![0; QUERY_BYTES_MAX];
        for _ in 0..QUERIES_MAX {
            let asked = async {
                let bytes = usize::from(stream.read_u16().await?);
                let query = query.get_mut(..bytes).ok_or(io::ErrorKind::InvalidData)?;
                stream.read_exact(query).await
            };
            let bytes = timeout(IDLE, asked).await??;
            let Some(answer) = self.answer(&query[..bytes], Transport::Tcp) else {
                return Ok(());
            };
            let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
            let message = [&length.to_be_bytes(), answer.as_slice()].concat();
            timeout(IDLE, stream.write_all(&message)).await??;
        }
        Ok(())
    }
}

/// A query that was denied, for the report. Programs ask for both kinds of addresses, and that is one denial.
fn refusal(asked: &LoggedQuery) -> Option<Refusal> {
    // A program that wants to connect does not look up what cannot be a host's name.
    let Some(denied @ Denied::Full(full)) = &asked.denied else {
        return None;
    };
    let name = HostName::from_ascii(&asked.name);
    Some(Refusal {
        rule: RefusalRule::Limit,
        host: Some(asked.name.clone()),
        port: None,
        what: format!("{}: {denied}", asked.name),
        hint: name.map_or_else(|_| String::new(), |name| full.hint(&name)),
    })
}
