//! Hellos of real clients, and others from a builder that can also build invalid ones.

use super::*;
use proptest::prelude::*;

/// Python 3 with OpenSSL 3.0, for `api.example.com` with `h2` and `http/1.1`; 204 bytes of padding follow.
const OPENSSL: &str = "\
1603010200010001fc03038cc6cf494461fcf02267c7e86501c263ad7ebc07bec62672ec97dc83178ee3ff200c9167f3e754c2d8a863d903206ae2\
ced819b804a3ceb87129179e18a2ad45530024130213031301c02cc030c02bc02fcca9cca8c024c028c023c027009f009e006b006700ff0100018f\
00000014001200000f6170692e6578616d706c652e636f6d000b000403000102000a00160014001d0017001e001900180100010101020103010400\
2300000010000e000c02683208687474702f312e310016000000170000000d002a0028040305030603080708080809080a080b0804080508060401\
05010601030303010302040205020602002b00050403040303002d00020101003300260024001d0020204c1819cb017beb102d5def7aa2f382fe23\
54cc6db3fa91d403370e4a212324001500cc";

/// The same client, limited to TLS 1.2, for `old.example.com`.
const OPENSSL_TLS12: &str = "\
16030100b5010000b10303d51e3b6e61cc8d89eccd76c6a0ff75bb8eb9fb01d023a6bffe14a00d608e9de000001ec02cc030c02bc02fcca9cca8c0\
24c028c023c027009f009e006b006700ff0100006a00000014001200000f6f6c642e6578616d706c652e636f6d000b000403000102000a000c000a\
001d0017001e00190018002300000016000000170000000d002a0028040305030603080708080809080a080b080408050806040105010601030303\
010302040205020602";

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn openssl() -> Vec<u8> {
    [hex(OPENSSL), vec![0; 204]].concat()
}

fn vector8(bytes: &[u8]) -> Vec<u8> {
    [&[u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

fn vector16(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector16(data)].concat()
}

fn sni(name: &[u8]) -> Vec<u8> {
    extension(0, &vector16(&[&[0], &vector16(name)[..]].concat()))
}

fn alpn(protocols: &[&str]) -> Vec<u8> {
    let list: Vec<u8> = protocols
        .iter()
        .flat_map(|protocol| vector8(protocol.as_bytes()))
        .collect();
    extension(16, &vector16(&list))
}

/// Builds a message; `rest` follows the compression methods.
fn message(rest: &[u8]) -> Vec<u8> {
    let ciphers = vector16(&[0x13, 1, 0x13, 2]);
    let body = [
        &[3, 3][..],
        &[7; 32],
        &vector8(&[9; 32]),
        &ciphers,
        &vector8(&[0]),
        rest,
    ]
    .concat();
    framed(&body)
}

fn framed(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[1], &length[1..], body].concat()
}

fn with_extensions(extensions: &[Vec<u8>]) -> Vec<u8> {
    message(&vector16(&extensions.concat()))
}

fn record(bytes: &[u8]) -> Vec<u8> {
    [&[22, 3, 1], &vector16(bytes)[..]].concat()
}

/// Puts the message into records of these lengths; the last record takes the rest.
fn records(message: &[u8], lengths: &[usize]) -> Vec<u8> {
    let (mut rest, mut stream) = (message, Vec::new());
    for length in lengths {
        if *length < rest.len() {
            stream.extend(record(&rest[..*length]));
            rest = &rest[*length..];
        }
    }
    stream.extend(record(rest));
    stream
}

fn hello(bytes: &[u8]) -> ClientHello {
    match ClientHello::read(bytes) {
        Progress::Hello(hello) => hello,
        other => panic!("{other:?}"),
    }
}

fn malformed(bytes: &[u8], why: &str) {
    assert_eq!(
        ClientHello::read(bytes),
        Progress::Malformed(why.to_owned().leak()),
        "{bytes:02x?}"
    );
}

fn name(text: &str) -> HostName {
    text.parse().unwrap()
}

#[test]
fn hellos_of_real_clients_are_parsed() {
    let read = hello(&openssl());
    assert_eq!(read.identity(), Ok(&name("api.example.com")));
    assert_eq!(read.alpn, [b"h2".to_vec(), b"http/1.1".to_vec()]);
    assert_eq!((read.has_ech, read.bytes), (false, 517));
    let read = hello(&hex(OPENSSL_TLS12));
    assert_eq!(read.identity(), Ok(&name("old.example.com")));
    assert!(read.alpn.is_empty());
}

#[test]
fn bytes_after_the_hello_are_not_part_of_it() {
    let mut bytes = openssl();
    // early data, or the change of ciphers of TLS 1.3
    bytes.extend([20, 3, 3, 0, 1, 1, 23, 3, 3, 0]);
    assert_eq!(hello(&bytes).bytes, 517);
}

#[test]
fn partial_hello_needs_more_bytes() {
    for bytes in [
        openssl(),
        records(&with_extensions(&[sni(b"a.example")]), &[1, 1, 1, 1, 1, 30]),
    ] {
        for end in 0..bytes.len() {
            assert_eq!(ClientHello::read(&bytes[..end]), Progress::More, "{end}");
        }
        hello(&bytes);
    }
}

#[test]
fn hello_in_many_records_is_reassembled() {
    let whole = with_extensions(&[sni(b"a.example"), extension(21, &[0; 3000]), alpn(&["h2"])]);
    let one = hello(&record(&whole));
    for lengths in [
        vec![1; 63],
        vec![whole.len() - 1],
        vec![80; 20],
        vec![4],
        vec![3, 1, 2],
    ] {
        let many = hello(&records(&whole, &lengths));
        assert_eq!(
            (&many.server_name, &many.alpn),
            (&one.server_name, &one.alpn),
            "{lengths:?}"
        );
    }
    malformed(&records(&whole, &[1; 64]), "a hello in more than 64 records");
    malformed(&records(&whole, &[1; 2000]), "a hello in more than 64 records");
}

#[test]
fn hello_without_valid_sni_has_no_identity() {
    assert_eq!(hello(&record(&message(&[]))).identity(), Err(NoIdentity::Absent));
    assert_eq!(
        hello(&record(&with_extensions(&[]))).identity(),
        Err(NoIdentity::Absent)
    );
    let check = |text: &[u8], error: NameError| {
        let read = hello(&record(&with_extensions(&[sni(text)])));
        assert_eq!(read.identity(), Err(NoIdentity::Name(error)), "{text:?}");
    };
    check(b"", NameError::Empty);
    check(b"10.0.0.1", NameError::Address);
    check(b"0x7f.1", NameError::Address);
    check(b"::1", NameError::Character(':'));
    check(b"[::1]", NameError::Character('['));
    check(b"a.example\0.evil", NameError::Character('\0'));
    check(b"a.example:443", NameError::Character(':'));
    check(b"*.example", NameError::Character('*'));
    check("bücher.example".as_bytes(), NameError::Character('ü'));
    check(b"\xff.example", NameError::Character(char::REPLACEMENT_CHARACTER));
    check(&[b'a'; 300], NameError::Length);
    let read = hello(&record(&with_extensions(&[sni(b"A.Example.")])));
    assert_eq!(read.identity(), Ok(&name("a.example")));
}

#[test]
fn ech_extension_has_no_identity_but_other_grease_is_ignored() {
    for kind in ENCRYPTED {
        let read = hello(&record(&with_extensions(&[
            sni(b"a.example"),
            extension(kind, &[0, 0, 1, 0, 1, 9]),
        ])));
        assert!(read.has_ech);
        assert_eq!(read.identity(), Err(NoIdentity::Encrypted), "{kind:#x}");
    }
    // other GREASE values are not ECH (RFC 8701)
    let read = hello(&record(&with_extensions(&[
        extension(0x0a0a, &[]),
        sni(b"a.example"),
        extension(0xfafa, &[0]),
    ])));
    assert_eq!(read.identity(), Ok(&name("a.example")));
}

#[test]
fn ambiguous_server_name_is_refused() {
    let name = sni(b"a.example");
    let with = |extensions: &[Vec<u8>]| record(&with_extensions(extensions));
    malformed(&with(&[name.clone(), name.clone()]), "the same extension twice");
    malformed(
        &with(&[extension(99, &[]), extension(99, &[])]),
        "the same extension twice",
    );
    let entry = |kind: u8, name: &[u8]| [&[kind], &vector16(name)[..]].concat();
    let list = |entries: &[Vec<u8>]| extension(0, &vector16(&entries.concat()));
    let two = list(&[entry(0, b"a.example"), entry(0, b"b.example")]);
    malformed(&with(&[two]), "more than one server name");
    let two = list(&[entry(0, b"a.example"), entry(1, b"b")]);
    malformed(&with(&[two]), "more than one server name");
    malformed(
        &with(&[list(&[entry(1, b"a.example")])]),
        "a server name that is not a host name",
    );
    malformed(&with(&[list(&[])]), "a truncated server name");
    malformed(&with(&[extension(0, &[])]), "a truncated server name");
    malformed(
        &with(&[extension(0, &[0, 5, 0, 0, 9, b'a', b'b'])]),
        "a truncated server name",
    );
    let mut long = list(&[entry(0, b"a.example")]);
    long.push(0);
    long[3] += 1;
    malformed(&with(&[long]), "bytes after the server name");
}

#[test]
fn alpn_list_is_parsed_strictly() {
    let with = |data: &[u8]| record(&with_extensions(&[extension(16, data)]));
    malformed(&with(&[]), "a truncated list of protocols");
    malformed(&with(&[0, 0]), "an empty list of protocols");
    malformed(&with(&[0, 1, 0]), "a protocol without a name");
    malformed(&with(&[0, 2, 2, b'h']), "a truncated list of protocols");
    malformed(&with(&[0, 2, 1, b'h', 0]), "bytes after the protocols");
}

#[test]
fn truncated_hello_body_is_malformed() {
    let body = |parts: &[&[u8]]| record(&framed(&parts.concat()));
    let (version, random): (&[u8], &[u8]) = (&[3, 3], &[7; 32]);
    malformed(&body(&[]), "a truncated version");
    malformed(&body(&[&[2, 0], random]), "a version that is not TLS");
    malformed(&body(&[version, &random[1..]]), "a truncated random value");
    malformed(
        &body(&[version, random, &[33], &[0; 33]]),
        "a session id of more than 32 bytes",
    );
    malformed(&body(&[version, random, &[3, 0]]), "a truncated session id");
    malformed(&body(&[version, random, &[0, 0, 0]]), "an invalid cipher list");
    malformed(
        &body(&[version, random, &[0, 0, 3, 1, 2, 3]]),
        "an invalid cipher list",
    );
    malformed(
        &body(&[version, random, &[0, 0, 4, 1, 2]]),
        "a truncated cipher list",
    );
    malformed(
        &body(&[version, random, &[0, 0, 2, 1, 2, 0]]),
        "no compression method",
    );
    malformed(
        &body(&[version, random, &[0, 0, 2, 1, 2]]),
        "truncated compression methods",
    );
    malformed(
        &body(&[version, random, &[0, 0, 2, 1, 2, 1, 0, 0]]),
        "a truncated list of extensions",
    );
    malformed(
        &body(&[version, random, &[0, 0, 2, 1, 2, 1, 0, 0, 0, 0]]),
        "bytes after the extensions",
    );
    malformed(
        &body(&[version, random, &[0, 0, 2, 1, 2, 1, 0, 0, 1, 0]]),
        "a truncated extension",
    );
}

#[test]
fn records_with_more_than_the_hello_are_malformed() {
    let whole = with_extensions(&[sni(b"a.example")]);
    let (head, tail) = whole.split_at(20);
    let between = |bytes: &[u8]| [&record(head)[..], bytes, &record(tail)].concat();
    malformed(&between(&[22, 3, 1, 0, 0]), "an empty record");
    malformed(
        &between(&[21, 3, 1, 0, 2, 1, 0]),
        "another record inside the hello",
    );
    malformed(&between(&[20, 3, 1, 0, 1, 1]), "another record inside the hello");
    malformed(
        &between(&[22, 2, 0, 0, 1, 0]),
        "a record whose version is not TLS",
    );
    malformed(&between(&[22, 3, 1, 0x40, 1]), "a record that is too long");
    let second = [&whole[..], &whole].concat();
    malformed(&record(&second), "bytes after the hello in its record");
    malformed(
        &record(&[&whole[..], &[0]].concat()),
        "bytes after the hello in its record",
    );
    malformed(
        &record(&[2, 0, 0, 1, 0]),
        "a handshake that does not begin with a ClientHello",
    );
    malformed(&record(&[1, 0, 0x40, 0, 3, 3]), "a hello that is too long");
    malformed(&record(&[1, 0xff, 0xff, 0xff]), "a hello that is too long");
    let largest = with_extensions(&[sni(b"a.example"), extension(21, &vec![0; 16 * 1024 - 103])]);
    assert_eq!(largest.len(), HELLO_BYTES_MAX);
    assert_eq!(hello(&record(&largest)).identity(), Ok(&name("a.example")));
}

#[test]
fn records_before_the_hello_and_ssl2_are_malformed() {
    malformed(&[21, 3, 1, 0, 2, 1, 0, 22], "a record before the hello");
    malformed(&[20, 3, 3, 0, 1, 1], "a record before the hello");
    malformed(&[23, 3, 3, 0, 16], "a record before the hello");
    // Some servers read a record of any version below 16.
    malformed(&[22, 2, 0, 0, 60, 1, 0], "a record whose version is not TLS");
    malformed(&[22, 0, 0, 0, 1, 1], "a record whose version is not TLS");
    malformed(&[0x80, 46, 1, 0, 2, 0], "an SSL 2 hello");
    malformed(&[0x80, 46, 1, 3, 1, 0], "an SSL 2 hello");
}

#[test]
fn other_protocols_are_recognised_by_their_first_bytes() {
    let check = |bytes: &[u8], expect: Progress| assert_eq!(ClientHello::read(bytes), expect, "{bytes:?}");
    check(b"", Progress::More);
    for other in [
        &b"G"[..],
        b"SSH-2.0-x\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"\0\0\0\x08\x04\xd2\x16\x2f",
        b"\x10\x0c",
    ] {
        check(other, Progress::NotTls);
    }
    // lengths that are equal to a record's type, and bytes above 127
    for other in [
        &b"\x16\x0a\x14hello there, world!"[..],
        b"\x16\x10",
        b"\x15\x03\x01\0\x05",
        b"\xe4\xbd\xa0",
        b"\x17a",
    ] {
        check(other, Progress::NotTls);
    }
    for unclear in [
        &[22][..],
        &[22, 3],
        &[22, 3, 1, 2],
        &[22, 0, 0, 0, 1],
        &[21, 3],
        &[0x80],
        &[0x80, 1, 1, 3],
    ] {
        check(unclear, Progress::More);
    }
}

/// A hello that is valid, or nearly so.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..40);
    let one = prop_oneof![
        "[a-z0-9.-]{0,20}".prop_map(|name| sni(name.as_bytes())),
        Just(alpn(&["h2", "http/1.1"])),
        (
            prop::sample::select(vec![0u16, 16, 21, 43, 0xfe0d, 0x0a0a]),
            bytes
        )
            .prop_map(|(kind, data)| extension(kind, &data)),
    ];
    prop::collection::vec(one, 0..5).prop_map(|extensions| with_extensions(&extensions))
}

proptest! {
    #[test]
    fn verdict_does_not_depend_on_record_boundaries(
        message in messages(),
        lengths in prop::collection::vec(1usize..40, 0..63),
        flip in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut message = message;
        // Anything but the header, whose length decides where records may end.
        if let Some((at, byte)) = flip {
            let at = 4 + at.index(message.len() - 4);
            message[at] = byte;
        }
        let stream = records(&message, &lengths);
        let whole = ClientHello::read(&record(&message));
        let many = ClientHello::read(&stream);
        match (&whole, &many) {
            (Progress::Hello(one), Progress::Hello(other)) => {
                prop_assert_eq!(one, &ClientHello { bytes: record(&message).len(), ..other.clone() });
                prop_assert_eq!(other.bytes, stream.len());
            }
            (one, other) => prop_assert_eq!(one, other),
        }
        // A part needs more bytes, or has the result of the whole.
        let part = ClientHello::read(&stream[..cut.index(stream.len() + 1)]);
        prop_assert!(part == Progress::More || part == many, "{:?} {:?}", part, many);
    }

    #[test]
    fn verdict_does_not_change_with_later_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut nearly = [openssl(), bytes.clone()].concat();
        for (at, byte) in flips {
            let at = at.index(nearly.len());
            nearly[at] = byte;
        }
        for stream in [&nearly, &bytes] {
            let part = ClientHello::read(&stream[..cut.index(stream.len() + 1)]);
            let whole = ClientHello::read(stream);
            prop_assert!(part == Progress::More || part == whole, "{:?} {:?}", part, whole);
        }
    }
}
