//! A connection from its destination to its end: the rules for name and port come first, then the first bytes of the
//! client, and only then the host is dialled and bytes are forwarded.

use crate::{
    ClientHello, Destination, Host, NoIdentity, Progress, RefusalRule,
    connection::{ConnState, Connection, Mode, check_connection, not_inspected},
    destination::{HTTP_PORT, TLS_PORT},
    dialer::Purpose,
    http::{self, Next, linger},
    inspect::{self, InspectedTls},
    refusal::Refusal,
    request::ProxyMode,
    sandbox::Way,
    tunnel::{self, Ends, Said, pass, pump, reset},
    upstream::{self, Upstream},
    wire::Client,
};
use std::{io, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout_at},
};

/// How much of a connection's first bytes is looked at.
const FIRST_BYTES_MAX: usize = 64 * 1024;
/// A fatal alert, `access_denied` (RFC 8446, section 6.2): what a TLS client is told in words that it knows.
const ACCESS_DENIED: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x31];

/// How a connection goes on once it was looked at.
enum Onward {
    /// As bytes: the identity of the other end is certain.
    Tunnel(Upstream),
    /// As bytes, the first of which are looked at when there are any.
    Bytes(Upstream),
    /// As requests; a connection that was opened for them already is used first.
    Requests(Option<Upstream>),
    /// As requests inside TLS, which ends here.
    Inspected(Box<InspectedTls>),
    /// Not at all: the client has sent nothing.
    Nothing,
}

/// Why a connection goes no further, and how the program hears of it.
enum Stop {
    /// It speaks TLS, and gets an alert.
    Alert(Refusal),
    /// It is reset: whatever it speaks, it notices that.
    Reset(Refusal),
}

enum Greeting {
    Tls(Box<ClientHello>),
    Other,
    Nothing,
}

/// A connection to the proxy: requests that name their hosts, or a tunnel, which is a connection like any other.
pub(crate) async fn by_proxy(connection: Arc<Connection>, client: Client) {
    match http::serve(&connection, client, ProxyMode::Explicit, None).await {
        Next::Connect { client, to, upstream } => carry(connection, client, to, Some(upstream)).await,
        other => joined(other).await,
    }
}

/// A connection to `to`; `ready` is one to there that was opened already.
pub(crate) async fn carry(
    connection: Arc<Connection>,
    mut client: Client,
    to: Destination,
    ready: Option<Upstream>,
) {
    match approach(&connection, &mut client, &to, ready).await {
        Ok(Onward::Tunnel(upstream)) => join(client, upstream, &[]).await,
        Ok(Onward::Bytes(upstream)) => bytes(&connection, client, &to, upstream).await,
        Ok(Onward::Requests(ready)) => {
            let next = http::serve(&connection, client, ProxyMode::Transparent(to), ready).await;
            joined(next).await;
        }
        Ok(Onward::Inspected(inspected)) => inspect::serve(&connection, client, *inspected).await,
        Ok(Onward::Nothing) => {}
        Err(stop) => turn_away(&connection, &mut client.stream, stop).await,
    }
}

/// What requests have come to: nothing, or both ends talk on as they like.
async fn joined(next: Next) {
    if let Next::Joined {
        client,
        upstream,
        said,
    } = next
    {
        join(client, upstream, &said).await;
    }
}

async fn join(client: Client, upstream: Upstream, by_upstream: &[u8]) {
    let said = Said {
        by_client: &client.read,
        by_upstream,
    };
    ended(tunnel::join(&mut Ends::new(client.stream, upstream), said).await);
}

/// Looks at a connection until it is known how it goes on.
async fn approach(
    connection: &Arc<Connection>,
    client: &mut Client,
    to: &Destination,
    ready: Option<Upstream>,
) -> Result<Onward, Stop> {
    connection.set_state(ConnState::Opening(to.clone()));
    let mode = match check_connection(&connection.sandbox.rules_now(), to) {
        Ok(mode) => mode,
        // HTTP can say why: each request is refused with a text, and no host is dialled.
        Err(_) if to.port == HTTP_PORT => {
            connection.set_state(ConnState::Waiting);
            Mode::Inspect
        }
        // TLS can say why with an alert, before the client has sent anything.
        Err(_) if to.port == TLS_PORT => connection.check_or_ask(to).await.map_err(Stop::Alert)?,
        Err(_) => connection.check_or_ask(to).await.map_err(Stop::Reset)?,
    };
    let inspection = connection.sandbox.inspection.as_ref();
    let read = |mode| inspection.filter(|with| mode == Mode::Inspect || with.reads(to));
    let is_known = to.port == TLS_PORT || to.port == HTTP_PORT || read(mode).is_some();
    if !is_known && mode == Mode::Passthrough {
        let upstream = opened_upstream(connection, to, ready, Stop::Reset).await?;
        return Ok(Onward::Bytes(upstream));
    }
    let limit = connection.sandbox.dialer.limits().hello;
    match greeting(&mut client.stream, &mut client.read, to, limit).await? {
        Greeting::Nothing => Ok(Onward::Nothing),
        Greeting::Tls(hello) => {
            agrees(connection.sandbox.purpose, &hello, to).map_err(Stop::Alert)?;
            // On the port of HTTP approval was not asked for yet.
            let mode = connection.check_or_ask(to).await.map_err(Stop::Alert)?;
            match read(mode) {
                Some(inspection) => {
                    let met = inspect::meet(connection, inspection, to, &hello, ready).await;
                    met.map(Box::new).map(Onward::Inspected).map_err(Stop::Alert)
                }
                None if mode == Mode::Inspect => Err(Stop::Alert(not_inspected(to))),
                None => Ok(Onward::Tunnel(
                    opened_upstream(connection, to, ready, Stop::Alert).await?,
                )),
            }
        }
        Greeting::Other if to.port == TLS_PORT => Err(Stop::Reset(not_tls(to, "something that is not TLS"))),
        Greeting::Other => Ok(Onward::Requests(ready)),
    }
}

/// The connection to the outside that bytes will pass over: the one there is, or a new one.
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

/// A port of no protocol that is known here. Some servers speak first, so both directions run; what the client says
/// first is held until it is known not to be TLS for somebody else.
async fn bytes(connection: &Connection, client: Client, to: &Destination, upstream: Upstream) {
    let mut ends = Ends::new(client.stream, upstream);
    match both_ways(connection, &mut ends, client.read, to).await {
        Ok(()) => ends.ended_well(),
        Err(Halt::Broken(error)) => ended(Err(error)),
        Err(Halt::Stopped(stop)) => {
            let is_told = matches!(stop, Stop::Alert(_));
            turn_away(connection, &mut ends.client, stop).await;
            if is_told {
                ends.ended_well();
            }
        }
    }
}

/// Why bytes go no further before both ends have ended.
enum Halt {
    Stopped(Stop),
    Broken(io::Error),
}

async fn both_ways(
    connection: &Connection,
    ends: &mut Ends,
    mut read: Vec<u8>,
    to: &Destination,
) -> Result<(), Halt> {
    let meter = &*ends.upstream.meter;
    let limit = connection.sandbox.dialer.limits().hello;
    let (mut client_says, mut client_hears) = ends.client.split();
    let (mut upstream_says, mut upstream_hears) = ends.upstream.stream.split();
    let out = async {
        let greeting = later_greeting(&mut client_says, &mut read, to, limit).await;
        if let Greeting::Tls(hello) = greeting.map_err(Halt::Stopped)? {
            let agreed = agrees(connection.sandbox.purpose, &hello, to);
            agreed.map_err(|refusal| Halt::Stopped(Stop::Alert(refusal)))?;
        }
        let passed = pass(&read, &mut upstream_hears, meter, Way::Out).await;
        passed.map_err(Halt::Broken)?;
        let pumped = pump(&mut client_says, &mut upstream_hears, meter, Way::Out).await;
        pumped.map_err(Halt::Broken)
    };
    let back = async {
        let pumped = pump(&mut upstream_says, &mut client_hears, meter, Way::Back).await;
        pumped.map_err(Halt::Broken)
    };
    tokio::try_join!(out, back).map(drop)
}

/// The first bytes of a client that may wait for the other end to speak: the clock runs from its first byte.
async fn later_greeting(
    from: &mut (impl AsyncRead + Unpin),
    read: &mut Vec<u8>,
    to: &Destination,
    limit: Duration,
) -> Result<Greeting, Stop> {
    if read.is_empty() && !matches!(more(from, read).await, Ok(1..)) {
        return Ok(Greeting::Nothing);
    }
    greeting(from, read, to, limit).await
}

/// Reads until it is known what the first bytes are.
async fn greeting(
    from: &mut (impl AsyncRead + Unpin),
    read: &mut Vec<u8>,
    to: &Destination,
    limit: Duration,
) -> Result<Greeting, Stop> {
    let end = Instant::now() + limit;
    loop {
        match ClientHello::read(read) {
            Progress::Hello(hello) => return Ok(Greeting::Tls(Box::new(hello))),
            Progress::NotTls => return Ok(Greeting::Other),
            Progress::Malformed(why) => return Err(Stop::Alert(malformed(to, why))),
            // The reader gives up long before; this bounds it here, too.
            Progress::More if read.len() > FIRST_BYTES_MAX => {
                return Err(Stop::Alert(malformed(to, "larger than any")));
            }
            Progress::More => {}
        }
        match timeout_at(end, more(from, read)).await {
            Ok(Ok(1..)) => {}
            Ok(_) if read.is_empty() => return Ok(Greeting::Nothing),
            Ok(_) => return Err(Stop::Reset(not_tls(to, "a ClientHello that ends before its end"))),
            // A client that has sent nothing is not reported.
            Err(_) if read.is_empty() => return Ok(Greeting::Nothing),
            Err(_) => return Err(Stop::Alert(slow(to, limit))),
        }
    }
}

async fn more(from: &mut (impl AsyncRead + Unpin), read: &mut Vec<u8>) -> io::Result<usize> {
    let mut buffer = [0; 4096];
    let bytes = from.read(&mut buffer).await?;
    read.extend_from_slice(&buffer[..bytes]);
    Ok(bytes)
}

/// Whether a TLS handshake is for the host that the connection is for, and for no other that is hidden.
fn agrees(purpose: Purpose, hello: &ClientHello, to: &Destination) -> Result<(), Refusal> {
    let identity = match purpose {
        Purpose::Programs => hello.identity(),
        Purpose::Web => hello.name_in_clear(),
    };
    let (said, hint) = match (identity, &to.host) {
        (Ok(said), Host::Name(name)) if said == name => return Ok(()),
        // By number there is no name to agree with.
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
        (Ok(said), _) => (
            format!("the ClientHello is for `{said}`"),
            "connect to the host that it is for",
        ),
        (Err(why), _) => (
            why.to_string(),
            "the server name of the handshake has to be the host's",
        ),
    };
    Err(Refusal::of(RefusalRule::Sni, to, format!("{to}: {said}"), hint))
}

fn malformed(to: &Destination, why: &str) -> Refusal {
    let what = format!("{to}: its ClientHello is malformed: {why}");
    Refusal::of(RefusalRule::NotTls, to, what, "")
}

fn not_tls(to: &Destination, what: &str) -> Refusal {
    let what = format!("{to}: {what} was sent where only TLS is let through");
    Refusal::of(
        RefusalRule::NotTls,
        to,
        what,
        "speak TLS there, or use a port that a rule names for it",
    )
}

fn slow(to: &Destination, limit: Duration) -> Refusal {
    let what = format!("{to}: its ClientHello took longer than {} s", limit.as_secs_f64());
    Refusal::of(RefusalRule::Limit, to, what, "send it in one go")
}

/// Notes why, and tells the program in its own protocol where that is known.
async fn turn_away(connection: &Connection, client: &mut TcpStream, stop: Stop) {
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

/// Connections end in many ways, which concern only the two ends.
fn ended(end: io::Result<()>) {
    if let Err(error) = end {
        tracing::debug!(%error, "a connection has ended");
    }
}
