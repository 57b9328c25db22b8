//! The name server of a sandbox: queries over UDP and TCP, answered by [`crate::dns`] according to the sandbox's rules.
//! No query ever leaves, and the rate of answers is limited.

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

/// Maximum queries at once, and per second after that; more are not answered.
const BURST: u32 = 200;
const PER_SECOND: u32 = 100;
/// Maximum size of a query; a name, its type and a few options are far smaller.
const QUERY_BYTES_MAX: usize = 4096;
/// Maximum TCP connections at once, and queries over one of them.
const CONNECTIONS_MAX: usize = 8;
const QUERIES_MAX: usize = 100;
/// Maximum time to receive a query over TCP, and to send its answer.
const IDLE: Duration = Duration::from_secs(10);

pub(crate) struct DnsServer {
    sandbox: Arc<SandboxEgress>,
    rate: Mutex<TokenBucket>,
    connections: Arc<Semaphore>,
}

impl DnsServer {
    pub(crate) fn new(sandbox: Arc<SandboxEgress>) -> Arc<Self> {
        Arc::new(Self {
            sandbox,
            rate: Mutex::new(TokenBucket::new(BURST, PER_SECOND)),
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        })
    }

    /// Answers one query; `None`: it gets no answer.
    pub(crate) fn answer(&self, query: &[u8], transport: Transport) -> Option<Vec<u8>> {
        let allowed = self.rate.lock().unwrap_or_else(PoisonError::into_inner).allows();
        if !allowed {
            let what = format!("more than {PER_SECOND} names a second were looked up");
            self.sandbox
                .refuse(&Refusal::plain(RefusalRule::Limit, what, "cache the answers"));
            return None;
        }
        let mut logged = None;
        let rules = self.sandbox.rules_now();
        let answer = {
            let mut names = self.sandbox.names();
            let context = dns::QueryContext {
                names: &mut names,
                rules: &rules,
                unlisted: &|name| self.sandbox.unlisted(name),
            };
            dns::answer(query, transport, context, &mut |what| logged = Some(what))
        };
        if let Some(refusal) = logged.as_ref().and_then(refusal) {
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
                        // A client that is gone gets no answer.
                        if let Err(error) = socket.send_to(&answer, from).await {
                            tracing::debug!(%error, "an answer was not delivered");
                        }
                    }
                }
                Err(error) => pause = recover(&self.sandbox, &error, pause).await,
            }
        }
    }

    /// Serves one connection, unless there are too many.
    pub(crate) async fn serve_connection(self: Arc<Self>, stream: TcpStream) {
        if let Ok(permit) = self.connections.clone().try_acquire_owned() {
            drop(self.converse(stream).await);
            drop(permit);
        }
    }

    /// Serves one connection: length, query, length, answer (RFC 7766).
    async fn converse(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut query = vec![0; QUERY_BYTES_MAX];
        for _ in 0..QUERIES_MAX {
            let received = async {
                let bytes = usize::from(stream.read_u16().await?);
                let query = query.get_mut(..bytes).ok_or(io::ErrorKind::InvalidData)?;
                stream.read_exact(query).await
            };
            let bytes = timeout(IDLE, received).await??;
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

/// Returns the refusal of a denied query; programs query both kinds of addresses, and that is one denial.
fn refusal(logged: &LoggedQuery) -> Option<Refusal> {
    // A text that cannot be a host name is not reported: programs do not connect to it.
    let Some(denied @ Denied::Full(full)) = &logged.denied else {
        return None;
    };
    let name = HostName::from_ascii(&logged.name);
    Some(Refusal {
        rule: RefusalRule::Limit,
        host: Some(logged.name.clone()),
        port: None,
        what: format!("{}: {denied}", logged.name),
        hint: name.map_or_else(|_| String::new(), |name| full.hint(&name)),
    })
}
