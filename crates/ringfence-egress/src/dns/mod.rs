//! DNS answers for a sandbox. No query leaves, since a query can carry data. Each name gets an address of this
//! sandbox's own ([`Names`]), even if no rule allows it: the refused connection then shows the requested port. Text
//! that is not a host name, and names over the limit, get NXDOMAIN with the reason as an extended error (RFC 8914).

mod read;

use crate::{
    approval::Unlisted,
    name::{HostName, NameError},
    names::{Full, Names},
    rules::Rules,
};
use hickory_proto::{
    op::{Edns, Message, Metadata, OpCode, ResponseCode},
    rr::{
        DNSClass, Name, RData, Record, RecordType,
        rdata::{A, PTR, SOA, opt::EdnsOption},
    },
};
use read::{Question, Rejected};
use std::net::{IpAddr, Ipv4Addr};

/// TTL of an answer: rules change while a program runs.
const TTL_SECONDS: u32 = 5;
/// Maximum size of a UDP answer without EDNS (RFC 1035).
const UDP_BYTES: u16 = 512;
/// Maximum UDP size that a query can request: larger datagrams are fragmented on some networks.
const EDNS_BYTES: u16 = 1232;
/// The EDNS option of extended errors, and the code that is used (RFC 8914).
const EXTENDED_ERROR: u16 = 15;
const PROHIBITED: u16 = 18;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Udp,
    /// One message of a stream, without the two bytes of its length.
    Tcp,
}

pub struct QueryContext<'a> {
    pub names: &'a mut Names,
    pub rules: &'a Rules,
    pub unlisted: &'a dyn Fn(&HostName) -> Unlisted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedQuery {
    /// The name, with everything escaped that is not printable, and cut at the length of a name.
    pub name: String,
    pub denied: Option<Denied>,
}

/// Reason why a question was denied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("{0}")]
    Full(Full),
    #[error("the name {0}")]
    Name(NameError),
    /// Its class is not that of the Internet.
    #[error("only names of the Internet are answered")]
    Class,
}

enum Answer {
    Record(RData),
    /// The name exists, but has no record of this type (NODATA).
    NoData,
    /// A question that is not about a record.
    NotImplemented,
    Denied(Denied),
}

/// Answers one query. Returns `None` for bytes without a whole header and for responses. The answer is never longer
/// than the transport and the query allow.
pub fn answer(
    query: &[u8],
    transport: Transport,
    mut context: QueryContext<'_>,
    log: &mut dyn FnMut(LoggedQuery),
) -> Option<Vec<u8>> {
    let question = match read::question(query) {
        Ok(question) => question,
        Err(Rejected::Ignored) => return None,
        Err(Rejected::Error(error)) => return Some(error.to_vec()),
    };
    if question.edns.as_ref().is_some_and(|edns| edns.version() != 0) {
        return write(&question, transport, ResponseCode::BADVERS, None, None);
    }
    let answer = judge(&question, &mut context);
    let denied = match &answer {
        Answer::Denied(denied) => Some(denied.clone()),
        _ => None,
    };
    log(LoggedQuery {
        name: question.escaped(),
        denied: denied.clone(),
    });
    let (code, record) = match answer {
        Answer::Record(data) => (ResponseCode::NoError, Some(data)),
        Answer::NoData => (ResponseCode::NoError, None),
        Answer::NotImplemented => (ResponseCode::NotImp, None),
        Answer::Denied(Denied::Class) => (ResponseCode::Refused, None),
        Answer::Denied(_) => (ResponseCode::NXDomain, None),
    };
    write(&question, transport, code, record, denied.as_ref())
}

fn judge(question: &Question, context: &mut QueryContext<'_>) -> Answer {
    let QueryContext {
        names,
        rules,
        unlisted,
    } = context;
    let kind = question.query.query_type();
    if question.query.query_class() != DNSClass::IN {
        return Answer::Denied(Denied::Class);
    }
    if kind == RecordType::PTR
        && let Some(reverse_name) = reverse_name(question.query.name(), names)
    {
        return Answer::Record(RData::PTR(PTR(reverse_name)));
    }
    let name = match question.host() {
        Ok(name) => name,
        Err(error) => return Answer::Denied(Denied::Name(error)),
    };
    let admit = |names: &mut Names, name: &HostName| match unlisted(name) {
        _ if rules.names_reached(name) => names.admit(name, rules),
        Unlisted::Asked => names.admit_or_ask(name, rules),
        Unlisted::Refused => names.refuse(name),
    };
    match kind {
        RecordType::A if name.is_local() => Answer::Record(RData::A(A(Ipv4Addr::LOCALHOST))),
        RecordType::A => match admit(names, &name) {
            Ok(address) => Answer::Record(RData::A(A(address))),
            Err(full) => Answer::Denied(Denied::Full(full)),
        },
        // Types from 128 to 255 ask for an operation and not for a record (RFC 6895), and OPT is not a question.
        RecordType::OPT => Answer::NotImplemented,
        kind if (128..=255).contains(&u16::from(kind)) => Answer::NotImplemented,
        // A query of any type for a refused name is reported.
        _ if !name.is_local() && !rules.names_reached(&name) && unlisted(&name) == Unlisted::Refused => {
            match names.refuse(&name) {
                Ok(_) => Answer::NoData,
                Err(full) => Answer::Denied(Denied::Full(full)),
            }
        }
        _ => Answer::NoData,
    }
}

/// Returns the name of an address of this sandbox, for a reverse query.
fn reverse_name(queried: &Name, names: &Names) -> Option<Name> {
    let network = queried.parse_arpa_name().ok()?;
    if network.prefix_len() != network.max_prefix_len() {
        return None;
    }
    let text = match network.addr() {
        address if address.is_loopback() => "localhost",
        IpAddr::V4(address) => names.name_of(address)?.as_str(),
        IpAddr::V6(_) => return None,
    };
    absolute(text)
}

fn absolute(text: &str) -> Option<Name> {
    let mut name = Name::from_ascii(text).ok()?;
    name.set_fqdn(true);
    Some(name)
}

fn write(
    question: &Question,
    transport: Transport,
    code: ResponseCode,
    record: Option<RData>,
    denied: Option<&Denied>,
) -> Option<Vec<u8>> {
    let mut message = Message::response(question.metadata.id, OpCode::Query);
    message.metadata = Metadata::response_from_request(&question.metadata);
    message.metadata.recursion_available = true;
    message.metadata.response_code = code;
    message.add_query(question.query.clone());
    let name = question.query.name().clone();
    match record {
        Some(data) => _ = message.add_answer(Record::from_rdata(name, TTL_SECONDS, data)),
        None if matches!(code, ResponseCode::NoError | ResponseCode::NXDomain) => {
            message.add_authority(Record::from_rdata(name, TTL_SECONDS, RData::SOA(soa()?)));
        }
        None => {}
    }
    if question.edns.is_some() {
        message.set_edns(edns_for(denied));
    }
    let most = match (transport, &question.edns) {
        (Transport::Tcp, _) => u16::MAX,
        (Transport::Udp, None) => UDP_BYTES,
        (Transport::Udp, Some(edns)) => edns.max_payload().clamp(UDP_BYTES, EDNS_BYTES),
    };
    let whole = message.to_vec().ok()?;
    if whole.len() <= usize::from(most) {
        Some(whole)
    } else {
        // No answer is expected to be so long; if one ever is, it is marked as truncated.
        message.truncate().to_vec().ok()
    }
}

/// Without it a resolver does not cache a negative answer (RFC 2308), and asks again for each connection.
fn soa() -> Option<SOA> {
    const DAY: i32 = 86_400;
    let source = absolute("ringfence.invalid")?;
    Some(SOA::new(source.clone(), source, 1, DAY, DAY, DAY, TTL_SECONDS))
}

fn edns_for(denied: Option<&Denied>) -> Edns {
    let mut edns = Edns::new();
    edns.set_max_payload(EDNS_BYTES);
    if let Some(denied) = denied {
        let mut error = PROHIBITED.to_be_bytes().to_vec();
        error.extend_from_slice(denied.to_string().as_bytes());
        edns.options_mut()
            .insert(EdnsOption::Unknown(EXTENDED_ERROR, error));
    }
    edns
}

#[cfg(test)]
mod tests;
