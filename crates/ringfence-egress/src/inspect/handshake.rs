//! The two handshakes of an inspected connection. The outside's is first: the sandbox is offered just the protocol that
//! the other end has chosen, and gets no handshake if that end has no valid certificate.

use crate::{
    ClientHello, Destination, Host, Inspection, RefusalRule, connection::Connection, dial::unreachable,
    refusal::Refusal, upstream::Upstream, wire::Client,
};
use rustls::{CertificateError, OtherError, pki_types::ServerName};
use std::{io, sync::Arc};
use tokio::{
    io::{AsyncReadExt, Chain, Join, join},
    net::tcp::{OwnedReadHalf, OwnedWriteHalf},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

pub(super) type Outer = client::TlsStream<Upstream>;

const H2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// What of the client's protocols is understood here, as it is offered to the outside.
pub(super) fn offer(hello: &ClientHello, to: &Destination) -> Result<Vec<Vec<u8>>, Refusal> {
    let known = |protocol: &&Vec<u8>| [H2, HTTP_1].contains(&protocol.as_slice());
    let offer: Vec<Vec<u8>> = hello.alpn.iter().filter(known).cloned().collect();
    if offer.is_empty() && !hello.alpn.is_empty() {
        let what = format!("{to}: the TLS there is read, and the protocols that were offered are not HTTP");
        return Err(Refusal::of(
            RefusalRule::Request,
            to,
            what,
            "offer http/1.1 or h2 (ALPN)",
        ));
    }
    Ok(offer)
}

/// Speaks to the outside as a client that accepts only who `to` names.
pub(super) async fn outward(
    inspection: &Inspection,
    to: &Destination,
    offer: Vec<Vec<u8>>,
    upstream: Upstream,
) -> Result<(Outer, Protocol), Refusal> {
    let Host::Name(name) = &to.host else {
        return Err(unreachable(to, "it has no name that a certificate could be for"));
    };
    let name = ServerName::try_from(name.as_str().to_owned());
    let name = name.map_err(|_| unreachable(to, "no certificate can be for its name"))?;
    let config = inspection.client(offer).map_err(|error| failed(to, &error))?;
    let limit = upstream.meter.connection.sandbox.dialer.limits().connect;
    let shaken = TlsConnector::from(Arc::new(config)).connect(name, upstream);
    match timeout(limit, shaken).await {
        Ok(Ok(stream)) => {
            let protocol = match stream.get_ref().1.alpn_protocol() {
                Some(H2) => Protocol::Http2,
                _ => Protocol::Http1,
            };
            Ok((stream, protocol))
        }
        Ok(Err(error)) => match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(error) => Err(failed(to, error)),
            None => Err(unreachable(to, "the connection ended in the TLS handshake")),
        },
        Err(_) => Err(unreachable(to, "its TLS handshake took too long")),
    }
}

fn failed(to: &Destination, error: &rustls::Error) -> Refusal {
    let rustls::Error::InvalidCertificate(why) = error else {
        return unreachable(to, &format!("its TLS handshake failed: {error}"));
    };
    let why = match why {
        CertificateError::Other(OtherError(why)) => why.to_string(),
        why => why.to_string(),
    };
    let why = match why.as_str() {
        "CaUsedAsEndEntity" => "it is the certificate of an authority",
        why => why,
    };
    Refusal::of(
        RefusalRule::Certificate,
        to,
        format!("{to}: this host does not trust its certificate for that name: {why}"),
        "where an authority of your own has signed it, have the operator name that in `egress.ca_file`",
    )
}

/// The sandbox's side of a connection, what was read of it before first.
type Whole = Join<Chain<io::Cursor<Vec<u8>>, OwnedReadHalf>, OwnedWriteHalf>;
pub(super) type Inner = server::TlsStream<Whole>;

/// Speaks to the sandbox as `to`.
pub(super) async fn inward(
    inspection: &Inspection,
    connection: &Connection,
    to: &Destination,
    client: Client,
    protocol: Option<Vec<u8>>,
) -> io::Result<Inner> {
    let Host::Name(name) = &to.host else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let config = inspection.server(name, protocol).map_err(io::Error::other)?;
    let Client { stream, read } = client;
    let (says, hears) = stream.into_split();
    let whole = join(io::Cursor::new(read).chain(says), hears);
    let shaken = TlsAcceptor::from(Arc::new(config)).accept(whole);
    timeout(connection.sandbox.dialer.limits().hello, shaken).await?
}
