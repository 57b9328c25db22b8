//! The two TLS handshakes of an inspected connection. The upstream's is first: the sandbox is offered only the protocol
//! that the upstream has chosen, and gets no handshake if the upstream has no valid certificate.

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

pub(super) type UpstreamTls = client::TlsStream<Upstream>;

const H2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Returns the client's protocols to offer to the upstream, those that are supported; an error if it has only others.
pub(super) fn offer(hello: &ClientHello, to: &Destination) -> Result<Vec<Vec<u8>>, Refusal> {
    let known = |protocol: &&Vec<u8>| [H2, HTTP_1].contains(&protocol.as_slice());
    let offer: Vec<Vec<u8>> = hello.alpn.iter().filter(known).cloned().collect();
    if offer.is_empty() && !hello.alpn.is_empty() {
        let what = format!("{to}: its TLS is inspected, and the protocols that were offered are not HTTP");
        return Err(Refusal::of(
            RefusalRule::Request,
            to,
            what,
            "offer http/1.1 or h2 (ALPN)",
        ));
    }
    Ok(offer)
}

/// Performs the handshake with the upstream, as a client that accepts only a certificate for `to`.
pub(super) async fn connect(
    inspection: &Inspection,
    to: &Destination,
    offer: Vec<Vec<u8>>,
    upstream: Upstream,
) -> Result<(UpstreamTls, Protocol), Refusal> {
    let Host::Name(name) = &to.host else {
        return Err(unreachable(to, "it has no name that a certificate could be for"));
    };
    let name = ServerName::try_from(name.as_str().to_owned());
    let name = name.map_err(|_| unreachable(to, "no certificate can be for its name"))?;
    let config = inspection.client(offer).map_err(|error| failed(to, &error))?;
    let limit = upstream.meter.connection.sandbox.dialer.limits().connect;
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, upstream);
    match timeout(limit, handshake).await {
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
        "if an authority of your own has signed it, have the operator name it in `egress.ca_file`",
    )
}

/// The sandbox's side of a connection, beginning with the bytes already read.
type ClientIo = Join<Chain<io::Cursor<Vec<u8>>, OwnedReadHalf>, OwnedWriteHalf>;
pub(super) type ClientTls = server::TlsStream<ClientIo>;

/// Performs the handshake with the sandbox, as the server `to`.
pub(super) async fn accept(
    inspection: &Inspection,
    connection: &Connection,
    to: &Destination,
    client: Client,
    protocol: Option<Vec<u8>>,
) -> io::Result<ClientTls> {
    let Host::Name(name) = &to.host else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let config = inspection.server(name, protocol).map_err(io::Error::other)?;
    let Client { stream, read_ahead } = client;
    let (reader, writer) = stream.into_split();
    let client_io = join(io::Cursor::new(read_ahead).chain(reader), writer);
    let handshake = TlsAcceptor::from(Arc::new(config)).accept(client_io);
    timeout(connection.sandbox.dialer.limits().hello, handshake).await?
}
