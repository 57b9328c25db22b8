//! A connection with a known destination: the rules for name and port come first, then the client's first bytes, and
//! only then the host is dialled; on a port of no known protocol it is dialled before those, since the server may speak
//! first.

use crate::{
    ClientHello, Destination, Host, NoIdentity, Progress, RefusalRule,
    client_hello::{asks_again, other_record},
    connection::{ConnState, Connection, Mode, check_connection, not_inspected},
    destination::{HTTP_PORT, TLS_PORT},
    dialer::Purpose,
    http::{self, Next, linger},
    inspect::{self, InspectedTls},
    refusal::Refusal,
    request::ProxyMode,
    sandbox::Direction,
    tunnel::{self, Ends, ReadAhead, pump, reset, write_counted},
    upstream::{self, Upstream, UpstreamMeter},
    wire::Client,
};
use std::{io, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::oneshot,
    time::{Instant, timeout_at},
};

/// Maximum first bytes of a connection that are checked.
const FIRST_BYTES_MAX: usize = 64 * 1024;
/// The fatal alert `access_denied` (RFC 8446, section 6.2), which refuses a TLS client in its own protocol.
const ACCESS_DENIED: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x31];

/// The next step of a connection after its checks.
enum Step {
    /// Forward bytes; the client's TLS is checked as it arrives.
    Bytes(Upstream),
    /// Answer requests; a connection to the outside that is already open is used first.
    Requests(Option<Upstream>),
    /// Answer requests inside TLS, which is terminated here.
    Inspected(Box<InspectedTls>),
    /// End: the client has sent nothing.
    Nothing,
}

/// The refusal of a connection, and the signal to the program.
enum Stop {
    /// A TLS alert, for a program that speaks TLS or has to on this port.
    Alert(Refusal),
    /// A reset, which a program of any protocol notices.
    Reset(Refusal),
}

enum Protocol {
    Tls(Box<ClientHello>),
    Other,
    Nothing,
}

/// Serves a connection to the proxy: requests that name their hosts, or a tunnel, which is handled like any other.
pub(crate) async fn serve_proxy(connection: Arc<Connection>, client: Client) {
    match http::serve(&connection, client, ProxyMode::Explicit, None).await {
        Next::Connect { client, to, upstream } => serve(connection, client, to, Some(upstream)).await,
        other => forward_upgraded(other).await,
    }
}

/// Serves a connection to `to`; `ready` is a connection to `to` that is already open.
pub(crate) async fn serve(
    connection: Arc<Connection>,
    mut client: Client,
    to: Destination,
    ready: Option<Upstream>,
) {
    match approach(&connection, &mut client, &to, ready).await {
        Ok(Step::Bytes(upstream)) => bytes(&connection, client, &to, upstream).await,
        Ok(Step::Requests(ready)) => {
            let next = http::serve(&connection, client, ProxyMode::Transparent(to), ready).await;
            forward_upgraded(next).await;
        }
        Ok(Step::Inspected(inspected)) => inspect::serve(&connection, client, *inspected).await,
        Ok(Step::Nothing) => {}
        Err(stop) => reject(&connection, &mut client.stream, stop).await,
    }
}

/// Forwards bytes if both ends have switched to a protocol that is not inspected.
async fn forward_upgraded(next: Next) {
    if let Next::Upgraded {
        client,
        upstream,
        read_ahead,
    } = next
    {
        let read_ahead = ReadAhead {
            from_client: &client.read_ahead,
            from_upstream: &read_ahead,
        };
        log_end(tunnel::join(&mut Ends::new(client.stream, upstream), read_ahead).await);
    }
}

/// Checks a connection until its next step is known.
async fn approach(
    connection: &Arc<Connection>,
    client: &mut Client,
    to: &Destination,
    ready: Option<Upstream>,
) -> Result<Step, Stop> {
    connection.set_state(ConnState::Opening(to.clone()));
    let mode = match check_connection(&connection.sandbox.rules_now(), to) {
        Ok(mode) => mode,
        // HTTP can carry the reason: each request is refused with a text, and no host is dialled.
        Err(_) if to.port == HTTP_PORT => {
            connection.set_state(ConnState::Waiting);
            Mode::Inspect
        }
        // TLS can carry a refusal as an alert, before the client has sent anything.
        Err(_) if to.port == TLS_PORT => connection.check_or_ask(to).await.map_err(Stop::Alert)?,
        Err(_) => connection.check_or_ask(to).await.map_err(Stop::Reset)?,
    };
    let inspection = connection.sandbox.inspection.as_ref();
    let read = |mode| inspection.filter(|with| mode == Mode::Inspect || with.inspects(to));
    let is_known = to.port == TLS_PORT || to.port == HTTP_PORT || read(mode).is_some();
    if !is_known && mode == Mode::Passthrough {
        let upstream = opened_upstream(connection, to, ready, Stop::Reset).await?;
        return Ok(Step::Bytes(upstream));
    }
    let limit = connection.sandbox.dialer.limits().hello;
    match read_first_bytes(&mut client.stream, &mut client.read_ahead, to, limit).await? {
        Protocol::Nothing => Ok(Step::Nothing),
        Protocol::Tls(hello) => {
            check_sni(connection.sandbox.purpose, &hello, to).map_err(Stop::Alert)?;
            // On the HTTP port, approval has not been asked for yet.
            let mode = connection.check_or_ask(to).await.map_err(Stop::Alert)?;
            match read(mode) {
                Some(inspection) => {
                    let inspected = inspect::connect(connection, inspection, to, &hello, ready).await;
                    inspected.map(Box::new).map(Step::Inspected).map_err(Stop::Alert)
                }
                None if mode == Mode::Inspect => Err(Stop::Alert(not_inspected(to))),
                None => Ok(Step::Bytes(
                    opened_upstream(connection, to, ready, Stop::Alert).await?,
                )),
            }
        }
        Protocol::Other if to.port == TLS_PORT => Err(Stop::Reset(not_tls(to, "something that is not TLS"))),
        Protocol::Other => Ok(Step::Requests(ready)),
    }
}

/// Returns the connection to the outside for forwarded bytes: `ready`, or a new one.
async fn opened_upstream(
    connection: &Arc<Connection>,
    to: &Destination,
    ready: Option<Upstream>,
    stop: impl FnOnce(Refusal) -> Stop,
) -> Result<Upstream, Stop> {
    let upstream = upstream::open(connection, to, ready).await;
    upstream
        .and_then(|upstream| connection.passes(to).map(|()| upstream))
        .map_err(stop)
}

/// Forwards a connection that is not read. Some servers speak first, so both directions run; the client's first bytes
/// are held until they are known not to be TLS for another host.
async fn bytes(connection: &Connection, client: Client, to: &Destination, upstream: Upstream) {
    let mut ends = Ends::new(client.stream, upstream);
    match both_ways(connection, &mut ends, client.read_ahead, to).await {
        Ok(()) => ends.set_complete(),
        Err(Halt::Broken(error)) => log_end(Err(error)),
        Err(Halt::Stopped(stop)) => {
            let is_alert = matches!(stop, Stop::Alert(_));
            reject(connection, &mut ends.client, stop).await;
            if is_alert {
                ends.set_complete();
            }
        }
    }
}

enum Halt {
    Stopped(Stop),
    Broken(io::Error),
}

impl From<io::Error> for Halt {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

async fn both_ways(
    connection: &Connection,
    ends: &mut Ends,
    read: Vec<u8>,
    to: &Destination,
) -> Result<(), Halt> {
    let meter = &*ends.upstream.meter;
    let (client, mut client_writer) = ends.client.split();
    let (mut upstream_reader, upstream) = ends.upstream.stream.split();
    let (answered, answer) = oneshot::channel();
    let mut outbound = Outbound {
        connection,
        to,
        client,
        upstream,
        meter,
        read,
    };
    let outbound = async {
        outbound.check_hellos(answer).await?;
        outbound.send(outbound.read.len()).await?;
        let Outbound { client, upstream, .. } = &mut outbound;
        Ok(pump(client, upstream, meter, Direction::Out).await?)
    };
    let inbound = async {
        let mut first = Vec::new();
        while asks_again(&first).is_none() {
            let before = first.len();
            if read_more(&mut upstream_reader, &mut first).await? == 0 {
                break;
            }
            write_counted(&first[before..], &mut client_writer, meter, Direction::In).await?;
        }
        // The other half does not wait for it if the client does not speak TLS.
        answered.send(asks_again(&first) == Some(true)).ok();
        Ok(pump(&mut upstream_reader, &mut client_writer, meter, Direction::In).await?)
    };
    tokio::try_join!(outbound, inbound).map(drop)
}

/// The client's half of a connection, with bytes that were read and not forwarded yet.
struct Outbound<'a> {
    connection: &'a Connection,
    to: &'a Destination,
    client: ReadHalf<'a>,
    upstream: WriteHalf<'a>,
    meter: &'a UpstreamMeter,
    read: Vec<u8>,
}

impl Outbound<'_> {
    /// Checks the client's hello, if it speaks TLS, and a second one, which a server may ask for (HelloRetryRequest).
    async fn check_hellos(&mut self, answer: oneshot::Receiver<bool>) -> Result<(), Halt> {
        let Protocol::Tls(hello) = self.first_bytes().await? else {
            return Ok(());
        };
        self.send(hello.bytes).await?;
        if !self.is_asked_again(answer).await? {
            return Ok(());
        }
        loop {
            let mut complete = 0;
            let next = loop {
                match other_record(&self.read[complete..]) {
                    Some(bytes) if complete + bytes <= self.read.len() => complete += bytes,
                    next => break next,
                }
            };
            self.send(complete).await?;
            if next.is_none() && !self.read.is_empty() {
                break;
            }
            if read_more(&mut self.client, &mut self.read).await? == 0 {
                return Ok(());
            }
        }
        match self.first_bytes().await? {
            Protocol::Other => Err(Halt::Stopped(Stop::Alert(malformed(
                self.to,
                "the second one is no TLS",
            )))),
            Protocol::Tls(_) | Protocol::Nothing => Ok(()),
        }
    }

    async fn first_bytes(&mut self) -> Result<Protocol, Halt> {
        let sandbox = &self.connection.sandbox;
        let limit = sandbox.dialer.limits().hello;
        let first = await_first_bytes(&mut self.client, &mut self.read, self.to, limit).await;
        let checked = first.and_then(|first| match &first {
            Protocol::Tls(hello) => check_sni(sandbox.purpose, hello, self.to)
                .map(|()| first)
                .map_err(Stop::Alert),
            _ => Ok(first),
        });
        checked.map_err(Halt::Stopped)
    }

    /// Holds what the client sends until the server has answered its hello. True if the server asks for another one.
    async fn is_asked_again(&mut self, mut answer: oneshot::Receiver<bool>) -> io::Result<bool> {
        let mut has_ended = false;
        // The end of a client that has sent nothing more is passed on at once.
        while !(has_ended && self.read.is_empty()) {
            let may_read = !has_ended && self.read.len() < FIRST_BYTES_MAX;
            tokio::select! {
                asks = &mut answer => return Ok(asks.unwrap_or(false)),
                bytes = read_more(&mut self.client, &mut self.read), if may_read => has_ended = bytes? == 0,
            }
        }
        Ok(false)
    }

    async fn send(&mut self, bytes: usize) -> io::Result<()> {
        let rest = self.read.split_off(bytes);
        let sent = std::mem::replace(&mut self.read, rest);
        write_counted(&sent, &mut self.upstream, self.meter, Direction::Out).await
    }
}

/// Reads the first bytes of a client, before which the server may speak: the time limit runs from the first of them.
async fn await_first_bytes(
    from: &mut (impl AsyncRead + Unpin),
    read: &mut Vec<u8>,
    to: &Destination,
    limit: Duration,
) -> Result<Protocol, Stop> {
    if read.is_empty() && !matches!(read_more(from, read).await, Ok(1..)) {
        return Ok(Protocol::Nothing);
    }
    read_first_bytes(from, read, to, limit).await
}

async fn read_first_bytes(
    from: &mut (impl AsyncRead + Unpin),
    read: &mut Vec<u8>,
    to: &Destination,
    limit: Duration,
) -> Result<Protocol, Stop> {
    let end = Instant::now() + limit;
    loop {
        match ClientHello::read(read) {
            Progress::Hello(hello) => return Ok(Protocol::Tls(Box::new(hello))),
            Progress::NotTls => return Ok(Protocol::Other),
            Progress::Malformed(why) => return Err(Stop::Alert(malformed(to, why))),
            // The parser gives up long before; this is a second bound.
            Progress::More if read.len() > FIRST_BYTES_MAX => {
                return Err(Stop::Alert(malformed(to, "larger than any valid one")));
            }
            Progress::More => {}
        }
        match timeout_at(end, read_more(from, read)).await {
            Ok(Ok(1..)) => {}
            Ok(_) if read.is_empty() => return Ok(Protocol::Nothing),
            Ok(_) => return Err(Stop::Reset(not_tls(to, "a truncated ClientHello"))),
            // A client that has sent nothing is not reported.
            Err(_) if read.is_empty() => return Ok(Protocol::Nothing),
            Err(_) => return Err(Stop::Alert(too_slow(to, limit))),
        }
    }
}

async fn read_more(from: &mut (impl AsyncRead + Unpin), read: &mut Vec<u8>) -> io::Result<usize> {
    let mut buffer = [0; 4096];
    let bytes = from.read(&mut buffer).await?;
    read.extend_from_slice(&buffer[..bytes]);
    Ok(bytes)
}

/// Checks that a TLS handshake is for the connection's host, and hides no other (ECH) unless it is of a web tool.
fn check_sni(purpose: Purpose, hello: &ClientHello, to: &Destination) -> Result<(), Refusal> {
    let identity = match purpose {
        Purpose::Programs => hello.identity(),
        Purpose::Web => hello.name_in_clear(),
    };
    let (fault, hint) = match (identity, &to.host) {
        (Ok(sni), Host::Name(name)) if sni == name => return Ok(()),
        // A destination by address has no name to compare with.
        (Err(NoIdentity::Absent), Host::Address(_)) => return Ok(()),
        (Err(NoIdentity::Encrypted), _) => {
            let what = format!("{to}: {}", NoIdentity::Encrypted);
            return Err(Refusal::of(
                RefusalRule::Ech,
                to,
                what,
                "turn Encrypted Client Hello off",
            ));
        }
        (Ok(sni), _) => (
            format!("the ClientHello is for `{sni}`"),
            "connect to the host that it is for",
        ),
        (Err(why), _) => (
            why.to_string(),
            "the server name (SNI) has to be the name of the host",
        ),
    };
    Err(Refusal::of(RefusalRule::Sni, to, format!("{to}: {fault}"), hint))
}

fn malformed(to: &Destination, why: &str) -> Refusal {
    let what = format!("{to}: its ClientHello is malformed: {why}");
    Refusal::of(RefusalRule::NotTls, to, what, "")
}

fn not_tls(to: &Destination, what: &str) -> Refusal {
    let what = format!("{to}: {what} was sent where only TLS is accepted");
    Refusal::of(
        RefusalRule::NotTls,
        to,
        what,
        "speak TLS there, or use a port that a rule names for it",
    )
}

fn too_slow(to: &Destination, limit: Duration) -> Refusal {
    let what = format!("{to}: its ClientHello took longer than {} s", limit.as_secs_f64());
    Refusal::of(RefusalRule::Limit, to, what, "send it in one go")
}

/// Reports a refusal, and signals it to the program by an alert or a reset.
async fn reject(connection: &Connection, client: &mut TcpStream, stop: Stop) {
    let (Stop::Alert(refusal) | Stop::Reset(refusal)) = &stop;
    connection.refuse(refusal);
    match stop {
        Stop::Alert(_) => {
            if client.write_all(&ACCESS_DENIED).await.is_ok() {
                linger(client).await;
            }
        }
        Stop::Reset(_) => reset(client),
    }
}

/// Logs how a connection ended, which concerns only the two ends.
fn log_end(end: io::Result<()>) {
    if let Err(error) = end {
        tracing::debug!(%error, "a connection has ended");
    }
}
