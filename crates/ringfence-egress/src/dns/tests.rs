//! Queries byte by byte: as a stub resolver sends them, and as no resolver should.

use super::*;
use Transport::{Tcp, Udp};
use hickory_proto::op::MessageType;
use proptest::prelude::*;

const RULES: [&str; 3] = ["a.example", "*.b.example", "GET c.example/v1"];

const IN: u16 = 1;
const A4: u16 = 1;
const PTR12: u16 = 12;
const AAAA28: u16 = 28;

/// A query as a stub resolver writes it: id 0x1234, recursion desired.
fn query(name: &str, kind: u16) -> Vec<u8> {
    let labels: Vec<&[u8]> = name.split_terminator('.').map(str::as_bytes).collect();
    query_of(&labels, kind, IN)
}

fn query_of(labels: &[&[u8]], kind: u16, class: u16) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in labels {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend_from_slice(label);
    }
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(class.to_be_bytes());
    bytes
}

/// The query with EDNS: maximum size of the answer, version, and options.
fn with_edns(mut query: Vec<u8>, size: u16, version: u8, options: &[u8]) -> Vec<u8> {
    query[11] = 1;
    query.extend([0, 0, 41]);
    query.extend(size.to_be_bytes());
    query.extend([0, version, 0, 0]);
    query.extend(u16::try_from(options.len()).unwrap().to_be_bytes());
    query.extend(options);
    query
}

struct Server {
    names: Names,
    rules: Rules,
    unlisted: Unlisted,
    logged: Vec<LoggedQuery>,
}

impl Server {
    fn new() -> Self {
        Self {
            names: Names::default(),
            rules: Rules::parse(RULES).unwrap(),
            unlisted: Unlisted::Refused,
            logged: Vec::new(),
        }
    }

    fn bytes(&mut self, query: &[u8], transport: Transport) -> Option<Vec<u8>> {
        let logged = &mut self.logged;
        let unlisted = self.unlisted;
        let context = QueryContext {
            names: &mut self.names,
            rules: &self.rules,
            unlisted: &|_| unlisted,
        };
        answer(query, transport, context, &mut |one| logged.push(one))
    }

    fn message(&mut self, query: &[u8]) -> Message {
        let bytes = self.bytes(query, Udp).unwrap();
        let message = Message::from_vec(&bytes).unwrap();
        assert_eq!(
            (message.metadata.id, message.metadata.message_type),
            (0x1234, MessageType::Response)
        );
        assert!(message.metadata.recursion_available);
        message
    }

    fn address(&mut self, name: &str) -> Option<Ipv4Addr> {
        match &self.message(&query(name, A4)).answers.first()?.data {
            RData::A(A(address)) => Some(*address),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn allowed_name_gets_its_own_address_and_a_short_ttl() {
    let mut server = Server::new();
    let answer = server.message(&query("a.example", A4));
    assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
    assert!(answer.metadata.recursion_desired);
    assert_eq!((answer.answers.len(), answer.answers[0].ttl), (1, TTL_SECONDS));
    let address = server.address("a.example").unwrap();
    assert_eq!(server.names.name_of(address).unwrap().as_str(), "a.example");
    assert_eq!(server.address("A.EXAMPLE"), Some(address));
    assert_ne!(server.address("x.y.b.example"), Some(address));
    assert!(server.address("c.example").is_some());
    assert!(server.logged.iter().all(|logged| logged.denied.is_none()));
    assert_eq!(server.logged[0].name, "a.example");
}

/// Clients compare the question byte by byte where its case is random (0x20).
#[test]
fn answer_repeats_the_question_byte_by_byte() {
    let question = query("a.ExAmPlE", A4);
    let answer = Server::new().bytes(&question, Udp).unwrap();
    assert_eq!(answer[12..question.len()], question[12..]);
    let message = Message::from_vec(&answer).unwrap();
    assert_eq!(message.answers[0].name.to_ascii(), "a.ExAmPlE.");
}

#[test]
fn allowed_name_has_only_an_a_record() {
    let mut server = Server::new();
    // AAAA, HTTPS, SVCB, TXT, MX, NULL, SRV, PTR, NS, SOA, CNAME, CAA, and one for private use
    for kind in [AAAA28, 65, 64, 16, 15, 10, 33, PTR12, 2, 6, 5, 257, 65280] {
        let answer = server.message(&query("a.example", kind));
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError, "{kind}");
        assert_eq!((answer.answers.len(), answer.authorities.len()), (0, 1), "{kind}");
        assert!(
            matches!(&answer.authorities[0].data, RData::SOA(soa) if soa.minimum == TTL_SECONDS),
            "{kind}"
        );
    }
    // TKEY, TSIG, IXFR, AXFR, MAILB, ANY, OPT
    for kind in [249, 250, 251, 252, 253, 255, 41] {
        let answer = server.message(&query("a.example", kind));
        assert_eq!(answer.metadata.response_code, ResponseCode::NotImp, "{kind}");
    }
    assert!(server.names.is_empty(), "nothing was given an address");
    assert_eq!(server.logged.len(), 13 + 7, "every question is reported");
}

#[test]
fn invalid_host_name_is_nxdomain_for_every_type() {
    let mut server = Server::new();
    for name in ["", "xn--a.example", "10.0.0.1"] {
        for kind in [A4, AAAA28, 16, 252, 255, 65280] {
            let answer = server.message(&query(name, kind));
            assert_eq!(
                answer.metadata.response_code,
                ResponseCode::NXDomain,
                "{name} {kind}"
            );
            assert_eq!(
                (answer.answers.len(), answer.authorities.len()),
                (0, 1),
                "{name} {kind}"
            );
            assert!(answer.edns.is_none(), "none was sent");
        }
    }
    assert!(server.names.is_empty());
    assert!(server.logged.iter().all(|logged| logged.denied.is_some()));
}

/// A connection to it is refused, and shows the requested port.
#[test]
fn name_without_a_rule_gets_its_own_address() {
    let mut server = Server::new();
    for name in ["b.example", "evila.example", "a.example.evil", "x.a.example"] {
        let address = server.address(name).unwrap();
        assert_eq!(server.names.name_of(address).unwrap().as_str(), name);
    }
    // Found by the fuzzer, when such a name was both denied and answered.
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01x\x01y\x01r\x07example\0\0\x01\0\x01";
    assert_eq!(server.message(query).answers.len(), 1);
    assert!(server.logged.iter().all(|logged| logged.denied.is_none()));
}

#[test]
fn denied_name_has_an_extended_error_with_edns() {
    let mut server = Server::new();
    let mut error = |query: Vec<u8>| -> Option<String> {
        let edns = server.message(&with_edns(query, 1232, 0, &[])).edns.unwrap();
        match edns.option(EXTENDED_ERROR.into()) {
            Some(EdnsOption::Unknown(_, data)) => {
                assert_eq!(data[..2], PROHIBITED.to_be_bytes());
                Some(String::from_utf8(data[2..].to_vec()).unwrap())
            }
            None => None,
            other => panic!("{other:?}"),
        }
    };
    assert!(error(query("10.0.0.1", A4)).unwrap().contains("address"));
    assert!(
        error(query_of(&[b"a b", b"example"], A4, IN))
            .unwrap()
            .contains("' '")
    );
    assert_eq!(error(query("a.example", A4)), None);
    for i in 0..64 {
        assert_eq!(error(query(&format!("n{i}.b.example"), A4)), None);
    }
    assert!(
        error(query("n64.b.example", A4))
            .unwrap()
            .starts_with("too many names")
    );
    assert!(matches!(
        server.logged.last().unwrap().denied,
        Some(Denied::Full(Full::Below(_)))
    ));
}

#[test]
fn localhost_resolves_to_loopback() {
    let mut server = Server::new();
    assert_eq!(server.address("localhost"), Some(Ipv4Addr::LOCALHOST));
    assert_eq!(server.address("x.LocalHost"), Some(Ipv4Addr::LOCALHOST));
    let answer = server.message(&query("localhost", AAAA28));
    assert_eq!(
        (answer.metadata.response_code, answer.answers.len()),
        (ResponseCode::NoError, 0)
    );
    assert!(server.names.is_empty());
}

#[test]
fn assigned_address_resolves_back_to_its_name() {
    let mut server = Server::new();
    let pointed = |server: &mut Server, name: &str| {
        let answer = server.message(&query(name, PTR12));
        match answer.answers.first().map(|record| record.data.clone()) {
            Some(RData::PTR(PTR(name))) => Some(name.to_ascii()),
            _ => None,
        }
    };
    let backwards = |address: Ipv4Addr| {
        let [a, b, c, d] = address.octets();
        format!("{d}.{c}.{b}.{a}.in-addr.arpa")
    };
    let address = server.address("a.example").unwrap();
    assert_eq!(
        pointed(&mut server, &backwards(address)),
        Some("a.example.".to_owned())
    );
    assert_eq!(
        pointed(&mut server, "1.0.0.127.IN-ADDR.arpa"),
        Some("localhost.".to_owned())
    );
    for unknown in [
        "1.0.18.198.in-addr.arpa",
        "8.8.8.8.in-addr.arpa",
        "18.198.in-addr.arpa",
        "in-addr.arpa",
    ] {
        assert_eq!(pointed(&mut server, unknown), None, "{unknown}");
    }
}

#[test]
fn invalid_query_gets_an_error_header_or_no_answer() {
    let mut server = Server::new();
    let good = query("a.example", A4);
    let changed = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        bytes
    };
    for short in [&[][..], &good[..11]] {
        assert_eq!(server.bytes(short, Udp), None);
    }
    assert_eq!(server.bytes(&changed(2, 0x81), Udp), None, "an answer");
    let mut check = |bytes: &[u8], code: u8| {
        let answer = server.bytes(bytes, Udp).unwrap();
        assert_eq!(
            answer,
            [
                0x12,
                0x34,
                0x80 | (bytes[2] & 0x79),
                0x80 | code,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0
            ],
            "{bytes:?}"
        );
    };
    for opcode in [1, 2, 4, 5, 15] {
        check(&changed(2, opcode << 3), NOT_IMPLEMENTED);
    }
    check(&good[..12], FORMAT_ERROR);
    check(&good[..good.len() - 1], FORMAT_ERROR);
    check(&changed(2, 3), FORMAT_ERROR); // truncated
    for count in 4..12 {
        check(&changed(count, 2), FORMAT_ERROR);
    }
    check(&changed(5, 0), FORMAT_ERROR);
    check(&changed(4, 0xff), FORMAT_ERROR);
    let mut more = good.clone();
    more.push(0);
    check(&more, FORMAT_ERROR);
    let mut twice = good.clone();
    twice[5] = 2;
    twice.extend_from_slice(&good[12..]);
    check(&twice, FORMAT_ERROR);
    // a pointer to itself, to the header, behind a label; a label of 64 bytes
    check(&changed(12, 0xc0), FORMAT_ERROR);
    let pointers: [&[u8]; 5] = [
        &[0xc0, 0x0c],
        &[0xc0, 0x00],
        &[1, b'a', 0xc0, 0x0c],
        &[0x40, 1],
        &[0x80, 1],
    ];
    for name in pointers {
        let mut bytes = good[..12].to_vec();
        bytes.extend_from_slice(name);
        bytes.extend([0, 1, 0, 1]);
        check(&bytes, FORMAT_ERROR);
    }
    let label: &[u8] = &[b'a'; 63];
    check(&query_of(&[label; 4], A4, IN), FORMAT_ERROR);
    assert!(server.logged.is_empty());
}

const FORMAT_ERROR: u8 = 1;
const NOT_IMPLEMENTED: u8 = 4;

#[test]
fn query_of_another_class_is_refused() {
    let mut server = Server::new();
    for class in [3, 4, 254, 255, 0] {
        let answer = server.message(&query_of(&[b"version", b"bind"], 16, class));
        assert_eq!(answer.metadata.response_code, ResponseCode::Refused, "{class}");
        let answer = server.message(&query_of(&[b"a", b"example"], A4, class));
        assert_eq!(
            (answer.metadata.response_code, answer.answers.len()),
            (ResponseCode::Refused, 0),
            "{class}"
        );
    }
    assert!(
        server
            .logged
            .iter()
            .all(|logged| logged.denied == Some(Denied::Class))
    );
}

#[test]
fn edns_answer_has_its_own_payload_size() {
    let mut server = Server::new();
    for size in [0, 512, 1232, 4096, 65535] {
        let answer = server.message(&with_edns(query("a.example", A4), size, 0, &[]));
        assert_eq!(answer.edns.unwrap().max_payload(), EDNS_BYTES);
    }
    let answer = server.message(&with_edns(query("a.example", A4), 1232, 1, &[]));
    // 16 (BADVERS), which has another meaning in a signed message
    assert_eq!(
        (u16::from(answer.metadata.response_code), answer.answers.len()),
        (16, 0)
    );
    // padding and a cookie are ignored
    let options = [0, 12, 0, 4, 0, 0, 0, 0, 0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(
        server
            .message(&with_edns(query("a.example", A4), 1232, 0, &options))
            .answers
            .len(),
        1
    );
    let code = |bytes: Vec<u8>| Server::new().bytes(&bytes, Tcp).unwrap()[3] & 15;
    assert_eq!(
        code(with_edns(query("a.example", A4), 1232, 0, &[0, 12, 0, 9])),
        FORMAT_ERROR
    );
    let huge = [&[0, 12, 0xea, 0x60][..], &[0; 60_000]].concat();
    assert_eq!(
        code(with_edns(query("a.example", A4), 1232, 0, &huge)),
        FORMAT_ERROR
    );
    let mut two = with_edns(query("a.example", A4), 1232, 0, &[]);
    let option = two[two.len() - 11..].to_vec();
    two.extend(option);
    assert_eq!(code(two.clone()), FORMAT_ERROR);
    two[11] = 2;
    assert_eq!(code(two), FORMAT_ERROR);
}

#[test]
fn longest_answers_fit_into_512_bytes() {
    let label = "a".repeat(63);
    let name = format!("{label}.{label}.{label}.{}.b.example", "a".repeat(51));
    assert_eq!(name.len(), 253);
    let mut server = Server::new();
    let denied = with_edns(query(&name.replace("b.e", "x.e"), A4), 0, 0, &[]);
    assert!(server.bytes(&denied, Udp).unwrap().len() <= 512);
    let address = server.address(&name).unwrap();
    let [a, b, c, d] = address.octets();
    let pointer = server.message(&query(&format!("{d}.{c}.{b}.{a}.in-addr.arpa"), PTR12));
    assert_eq!((pointer.answers.len(), pointer.metadata.truncation), (1, false));
}

#[test]
fn special_bytes_in_labels_are_denied_and_escaped() {
    let mut server = Server::new();
    let mut escaped = |labels: &[&[u8]]| {
        let answer = server.message(&query_of(labels, A4, IN));
        assert_eq!(
            answer.metadata.response_code,
            ResponseCode::NXDomain,
            "{labels:?}"
        );
        server.logged.pop().unwrap().name
    };
    assert_eq!(escaped(&[b"a.example"]), "a\\.example");
    assert_eq!(escaped(&[b"x.a", b"example"]), "x\\.a.example");
    assert_eq!(escaped(&[b"a", b"example\0"]), "a.example\\000");
    assert_eq!(
        escaped(&[b"\x1b[2J\n", b"b", b"example"]),
        "\\027[2J\\010.b.example"
    );
    assert_eq!(escaped(&[b"\xff\xfe", b"b", b"example"]), "\\255\\254.b.example");
    assert_eq!(
        escaped(&["bücher".as_bytes(), b"b", b"example"]),
        "b\\195\\188cher.b.example"
    );
    assert_eq!(escaped(&[b"\\", b"b", b"example"]), "\\\\.b.example");
    assert_eq!(escaped(&[]), ".");
    let long = escaped(&[&[0; 63], &[0; 63], &[0; 63]]);
    assert!(long.chars().count() == 254 && long.ends_with('…'));
}

proptest! {
    #[test]
    fn random_queries_get_bounded_answers_with_their_id(
        bytes in prop::collection::vec(any::<u8>(), 0..80),
        good in any::<prop::sample::Index>(),
        udp in any::<bool>(),
    ) {
        let mut server = Server::new();
        // Random bytes, and random bytes within a query that is nearly valid.
        let mut nearly = with_edns(query("a.example", A4), 1232, 0, &[]);
        let at = good.index(nearly.len());
        nearly.splice(at..(at + 2).min(nearly.len()), bytes.iter().copied().take(2));
        for query in [&bytes, &nearly] {
            let transport = if udp { Udp } else { Tcp };
            if let Some(answer) = server.bytes(query, transport) {
                prop_assert_eq!(&answer[..2], &query[..2]);
                prop_assert!(answer.len() <= usize::from(EDNS_BYTES));
                prop_assert!(answer[2] & 0x80 != 0);
            }
        }
    }
}
