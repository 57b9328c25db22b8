//! Strict framing of HTTP/1.1 requests: finds the beginnings and ends of heads, bodies and trailers in a stream, and
//! refuses everything that two parsers could read differently (RFC 9112, section 11.2). It changes no bytes and keeps
//! no messages; the library's parser behind it gets only what passes. So a smuggled request would have to pass both.

/// Maximum size of a head: the request line and all headers together.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
const CHUNK_DIGITS_MAX: usize = 15;
/// Maximum empty lines before a request line (RFC 9112, section 2.2).
const EMPTY_LINES_MAX: usize = 2;

/// Reads a stream of requests, in pieces of any size.
#[derive(Debug, Default)]
pub struct HttpFraming {
    state: State,
    line: Vec<u8>,
    head_bytes: usize,
    head: Head,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    #[error("a line does not end with CR and LF")]
    LineEnd,
    #[error("there is a control character in its head")]
    Character,
    #[error("its first line is not a method, a target and a version")]
    RequestLine,
    #[error("a header has no proper name, or is folded")]
    HeaderName,
    #[error("it does not have exactly one Host")]
    HostCount,
    #[error("the length of its body is not given exactly once")]
    Length,
    #[error("its body has a transfer coding other than chunked")]
    Coding,
    #[error("a chunk of its body is not exactly a length and its bytes")]
    Chunk,
    /// It would change the meaning of the head.
    #[error("it has a trailer that belongs in the head")]
    Trailer,
    #[error("its head is too large")]
    Size,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    /// Before or in a request line.
    #[default]
    Begin,
    /// The same, after this number of empty lines.
    Blank(usize),
    Headers,
    /// The number of bytes left of a body.
    Body(u64),
    ChunkSize,
    ChunkData(u64),
    /// In the CR LF after a chunk's bytes, of which this many bytes were read.
    ChunkEnd(usize),
    Trailers,
    /// The rest is not HTTP, or not inspected.
    PassThrough,
}

/// Facts of the current head that decide the framing.
#[derive(Debug, Default)]
struct Head {
    /// True for HTTP/1.0, false for HTTP/1.1.
    is_old: bool,
    is_connect: bool,
    hosts: usize,
    length: Option<u64>,
    is_chunked: bool,
}

impl HttpFraming {
    /// Reads the next bytes. An error has the number of valid bytes, and the fault of the next byte. Nothing may be
    /// read after an error.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), (usize, FramingError)> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            let left = (bytes.len() - at) as u64;
            match &mut self.state {
                State::PassThrough => return Ok(()),
                State::Body(more) | State::ChunkData(more) => {
                    let taken = left.min(*more);
                    *more -= taken;
                    at += usize::try_from(taken).unwrap_or(usize::MAX);
                    self.after_bytes();
                }
                State::ChunkEnd(seen) => {
                    let expected = b"\r\n"[*seen];
                    if *byte != expected {
                        return Err((at, FramingError::Chunk));
                    }
                    at += 1;
                    self.state = if expected == b'\r' {
                        State::ChunkEnd(1)
                    } else {
                        State::ChunkSize
                    };
                }
                _ => {
                    self.byte(*byte).map_err(|fault| (at, fault))?;
                    at += 1;
                }
            }
        }
        Ok(())
    }

    /// Ends the checks: both ends have switched to a protocol that is not HTTP.
    pub fn pass_all(&mut self) {
        self.state = State::PassThrough;
    }

    /// True between two requests: no head and no body is open.
    pub fn is_between(&self) -> bool {
        matches!(self.state, State::Begin | State::Blank(_)) && self.line.is_empty()
    }

    fn after_bytes(&mut self) {
        match self.state {
            State::Body(0) => self.state = State::Begin,
            State::ChunkData(0) => self.state = State::ChunkEnd(0),
            _ => {}
        }
    }

    fn byte(&mut self, byte: u8) -> Result<(), FramingError> {
        let size_line = self.state == State::ChunkSize;
        if byte == b'\n' {
            if self.line.pop() != Some(b'\r') {
                return Err(FramingError::LineEnd);
            }
            let line = std::mem::take(&mut self.line);
            let read = self.line(&line);
            // The buffer is reused for the next line.
            self.line = line;
            self.line.clear();
            return read;
        }
        if self.line.last() == Some(&b'\r') {
            return Err(FramingError::LineEnd);
        }
        let is_valid = matches!(byte, b'\t' | b'\r' | b' '..=b'~' | 0x80..);
        if !is_valid {
            return Err(FramingError::Character);
        }
        self.head_bytes += 1;
        if size_line && self.line.len() > CHUNK_DIGITS_MAX {
            return Err(FramingError::Chunk);
        }
        if self.head_bytes > HEAD_BYTES_MAX {
            return Err(FramingError::Size);
        }
        self.line.push(byte);
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), FramingError> {
        match &self.state {
            State::Begin if line.is_empty() => self.state = State::Blank(1),
            State::Blank(before) if line.is_empty() => {
                if *before >= EMPTY_LINES_MAX {
                    return Err(FramingError::RequestLine);
                }
                self.state = State::Blank(before + 1);
            }
            State::Begin | State::Blank(_) => {
                self.head = Head::begin(line)?;
                self.state = State::Headers;
            }
            State::Headers if line.is_empty() => {
                self.state = self.head.end()?;
                self.head_bytes = 0;
            }
            State::Headers => self.head.header(line)?,
            State::ChunkSize => {
                self.head_bytes = 0;
                self.state = match chunk_size(line)? {
                    0 => State::Trailers,
                    size => State::ChunkData(size),
                };
            }
            State::Trailers if line.is_empty() => {
                self.state = State::Begin;
                self.head_bytes = 0;
            }
            State::Trailers => trailer(line)?,
            State::Body(_) | State::ChunkData(_) | State::ChunkEnd(_) | State::PassThrough => {}
        }
        Ok(())
    }
}

impl Head {
    fn begin(line: &[u8]) -> Result<Self, FramingError> {
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(FramingError::RequestLine);
        };
        if !matches!(version, b"HTTP/1.0" | b"HTTP/1.1") {
            return Err(FramingError::RequestLine);
        }
        let plain = target.iter().all(|byte| byte.is_ascii_graphic());
        if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) || target.is_empty() || !plain {
            return Err(FramingError::RequestLine);
        }
        Ok(Self {
            is_old: version == b"HTTP/1.0",
            is_connect: method == b"CONNECT",
            ..Self::default()
        })
    }

    fn header(&mut self, line: &[u8]) -> Result<(), FramingError> {
        let (name, value) = header(line)?;
        if name.eq_ignore_ascii_case(b"host") {
            self.hosts += 1;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            if self.length.is_some() {
                return Err(FramingError::Length);
            }
            self.length = Some(number(value).ok_or(FramingError::Length)?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") || self.is_old {
                return Err(FramingError::Coding);
            }
            self.is_chunked = true;
        }
        Ok(())
    }

    fn end(&self) -> Result<State, FramingError> {
        // HTTP/1.0 had no Host; the destination is known in another way, or the request is refused later.
        let is_host_count_valid = self.hosts == 1 || (self.hosts == 0 && self.is_old);
        if !is_host_count_valid {
            return Err(FramingError::HostCount);
        }
        match (self.is_connect, self.is_chunked, self.length) {
            (_, true, Some(_)) => Err(FramingError::Length),
            (true, false, None | Some(0)) => Ok(State::PassThrough),
            (true, ..) => Err(FramingError::Length),
            (false, true, None) => Ok(State::ChunkSize),
            (false, false, None | Some(0)) => Ok(State::Begin),
            (false, false, Some(length)) => Ok(State::Body(length)),
        }
    }
}

/// Returns name and value, without the white space around the value.
fn header(line: &[u8]) -> Result<(&[u8], &[u8]), FramingError> {
    let colon = line
        .iter()
        .position(|byte| *byte == b':')
        .ok_or(FramingError::HeaderName)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
        return Err(FramingError::HeaderName);
    }
    Ok((name, value.trim_ascii()))
}

fn trailer(line: &[u8]) -> Result<(), FramingError> {
    const OF_THE_HEAD: [&[u8]; 6] = [
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"connection",
        b"trailer",
        b"authorization",
    ];
    let (name, _) = header(line)?;
    if OF_THE_HEAD.iter().any(|other| name.eq_ignore_ascii_case(other)) {
        return Err(FramingError::Trailer);
    }
    Ok(())
}

fn chunk_size(line: &[u8]) -> Result<u64, FramingError> {
    let digits = (1..=CHUNK_DIGITS_MAX).contains(&line.len()) && line.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(line)
        .ok()
        .filter(|_| digits)
        .ok_or(FramingError::Chunk)?;
    u64::from_str_radix(text, 16).map_err(|_| FramingError::Chunk)
}

/// Reads a decimal number without sign that fits into 64 bits.
fn number(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the result of reading a text in one piece, which has to be the same in pieces of any size.
    fn read(text: &str) -> Result<(), FramingError> {
        let whole = HttpFraming::default()
            .read(text.as_bytes())
            .map_err(|(_, fault)| fault);
        for size in [1, 2, 3, 7, 64] {
            let mut framing = HttpFraming::default();
            let pieces = text
                .as_bytes()
                .chunks(size)
                .try_for_each(|piece| framing.read(piece));
            assert_eq!(
                pieces.map_err(|(_, fault)| fault),
                whole,
                "{text:?} in pieces of {size}"
            );
        }
        whole
    }

    #[test]
    fn ordinary_requests_pass() {
        for text in [
            "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET /a?b=c HTTP/1.1\r\nhost:a.test\r\nAccept: */*\r\nX-Empty:\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "\r\nGET / HTTP/1.0\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab\n\0cGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\nA\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n",
            "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n\x16\x03\x01\0",
        ] {
            assert_eq!(read(text), Ok(()), "{text:?}");
        }
    }

    const HEAD: &str = "POST / HTTP/1.1\r\nHost: a\r\n";
    const CHUNKED: &str = "Transfer-Encoding: chunked\r\n\r\n";

    fn refuses(expect: FramingError, texts: &[&str]) {
        for text in texts {
            assert_eq!(read(text), Err(expect), "{text:?}");
        }
    }

    /// Checks the refusal of texts that follow a valid request line and Host.
    fn refuses_after_head(expect: FramingError, rests: &[&str]) {
        for rest in rests {
            refuses(expect, &[&format!("{HEAD}{rest}")]);
        }
    }

    #[test]
    fn ambiguous_lines_are_refused() {
        refuses(
            FramingError::LineEnd,
            &[
                "GET / HTTP/1.1\nHost: a\n\n",
                "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
                "GET / HTTP/1.1\r\nHost: a\r\n\n",
            ],
        );
        refuses(FramingError::Character, &["GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n"]);
        refuses(
            FramingError::RequestLine,
            &[
                "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
                "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
                "GET /\r\n",
                "\r\n\r\n\r\n",
            ],
        );
        refuses_after_head(
            FramingError::HeaderName,
            &[
                " folded: b\r\n\r\n",
                "X-A: b\r\n\tfolded\r\n\r\n",
                "Content-Length : 5\r\n\r\n",
                ": b\r\n\r\n",
            ],
        );
    }

    #[test]
    fn repeated_or_ambiguous_host_and_length_are_refused() {
        refuses(
            FramingError::HostCount,
            &[
                "GET / HTTP/1.1\r\nAccept: a\r\n\r\n",
                "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n",
            ],
        );
        refuses_after_head(FramingError::HostCount, &["Host: b\r\n\r\n"]);
        refuses_after_head(
            FramingError::Length,
            &[
                "Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
                "Content-Length: 5, 5\r\n\r\n",
                "Content-Length: +5\r\n\r\n",
                "Content-Length: 0x5\r\n\r\n",
                "Content-Length:\r\n\r\n",
                "Content-Length: 99999999999999999999\r\n\r\n",
                "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            ],
        );
        refuses(
            FramingError::Length,
            &["CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nContent-Length: 5\r\n\r\n"],
        );
    }

    #[test]
    fn other_transfer_codings_and_malformed_chunks_are_refused() {
        refuses_after_head(
            FramingError::Coding,
            &[
                "Transfer-Encoding: gzip, chunked\r\n\r\n",
                "Transfer-Encoding: xchunked\r\n\r\n",
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            ],
        );
        refuses_after_head(
            FramingError::Character,
            &["Transfer-Encoding: \x0bchunked\r\n\r\n"],
        );
        refuses(
            FramingError::Coding,
            &["POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"],
        );
        for chunk in [
            "3;a=b\r\nabc\r\n",
            "3 \r\nabc\r\n",
            "+3\r\nabc\r\n",
            "0x3\r\nabc\r\n",
            "\r\nabc\r\n",
            "3\r\nabcd\r\n",
            "3\r\nabc\n",
            "fffffffffffffffff\r\n",
        ] {
            refuses_after_head(FramingError::Chunk, &[&format!("{CHUNKED}{chunk}")]);
        }
        refuses_after_head(FramingError::LineEnd, &[&format!("{CHUNKED}3\nabc\r\n")]);
        let trailer = format!("{CHUNKED}0\r\nContent-Length: 5\r\n\r\n");
        refuses_after_head(FramingError::Trailer, &[&trailer]);
    }

    #[test]
    fn oversized_heads_and_trailers_are_refused() {
        let long = "a".repeat(HEAD_BYTES_MAX);
        refuses(FramingError::Size, &[&format!("GET /{long} HTTP/1.1\r\n")]);
        refuses_after_head(
            FramingError::Size,
            &[&format!("X: {long}\r\n\r\n"), &format!("{CHUNKED}0\r\nX: {long}")],
        );
    }

    #[test]
    fn open_body_is_not_between_requests() {
        let mut framing = HttpFraming::default();
        assert!(framing.is_between());
        framing
            .read(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na")
            .expect("valid");
        assert!(!framing.is_between());
        framing.read(b"b").expect("valid");
        assert!(framing.is_between());
    }

    proptest! {
        #[test]
        fn framing_does_not_depend_on_the_size_of_reads(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b':'), Just(b' '), any::<u8>()], 0..300),
            prefix in prop_oneof![
                Just(""), Just("GET / HTTP/1.1\r\n"), Just("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")],
            size in 1_usize..20,
        ) {
            let text = [prefix.as_bytes(), &bytes].concat();
            let whole = HttpFraming::default().read(&text);
            let mut framing = HttpFraming::default();
            let mut before = 0;
            let pieces = text.chunks(size).try_for_each(|piece| {
                let read = framing.read(piece).map_err(|(at, fault)| (before + at, fault));
                before += piece.len();
                read
            });
            prop_assert_eq!(pieces, whole);
        }
    }
}
