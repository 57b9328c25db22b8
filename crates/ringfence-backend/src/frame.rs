//! The frames between the server and the agent in a container: one byte for the kind, four for the stream, four for the
//! length of the payload, the payload. Both ends compile this file and treat the other's frames as an attacker's.

pub const PAYLOAD_BYTES_MAX: usize = 64 << 10;
pub const HEAD_BYTES: usize = 9;
/// Maximum unacknowledged bytes of one stream in one direction; at the limit a sender waits for [`Kind::Credit`].
pub const WINDOW_BYTES: u32 = 256 << 10;
/// Maximum bytes of an encoded [`Spec`].
pub const SPEC_BYTES_MAX: usize = 4 << 20;
pub const CONNECTIONS_MAX: usize = 256;
/// Maximum bytes of the report of imports by an interpreter that was started ahead.
pub const IMPORTED_BYTES_MAX: usize = 48 << 10;

/// Numbers of the program's streams.
pub const STDIN: u32 = 0;
pub const STDOUT: u32 = 1;
pub const STDERR: u32 = 2;
pub const REPORT: u32 = 3;
/// The first stream of a connection.
pub const CONNECTION_FIRST: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    // from the server
    /// A chunk of an encoded [`Spec`].
    Spec = 1,
    /// Starts the program of the spec, which waits for [`Kind::Go`].
    Ahead = 2,
    /// Starts the program of the spec.
    Exec = 3,
    /// Applies the limits of the spec to the program that waits, and sends it the word of the spec.
    Go = 4,
    /// A [`Signal`], as one byte.
    Signal = 5,
    /// Listens at further ports: two bytes each.
    Listen = 6,
    /// Asks for the usage so far. The reply, [`Kind::Used`], has the same number as its stream.
    Account = 7,
    /// The answer to the [`Kind::Query`] of this number; empty: no answer.
    Answer = 8,

    // from both
    /// Bytes of a stream.
    Data = 16,
    /// The number of bytes that the receiver has consumed: four bytes.
    Credit = 17,
    /// The end of the stream's bytes.
    Close = 18,
    /// The connection is closed or broken.
    Reset = 19,

    // from the agent
    /// The agent is protected and its listeners are open.
    Ready = 32,
    /// The imports of the program that waits.
    Imported = 33,
    Running = 34,
    /// A new connection: its [`ListenerKind`], port and address.
    Open = 35,
    /// A DNS query.
    Query = 36,
    Used = 37,
    Ended = 38,
    /// A failure: the errno in four bytes, then the step.
    Failed = 39,
    /// Reply to [`Kind::Listen`]: empty if the ports are open, otherwise as [`Kind::Failed`].
    Listens = 40,
}

impl Kind {
    pub fn from_byte(byte: u8) -> Option<Self> {
        use Kind::*;
        const ALL: [Kind; 21] = [
            Spec, Ahead, Exec, Go, Signal, Listen, Account, Answer, Data, Credit, Close, Reset, Ready,
            Imported, Running, Open, Query, Used, Ended, Failed, Listens,
        ];
        ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The payload of [`Kind::Signal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Signal {
    Interrupt = 1,
    Terminate = 2,
    Kill = 3,
}

/// The listener that accepted a connection of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ListenerKind {
    Proxy = 1,
    Transparent = 2,
    Names = 3,
}

impl ListenerKind {
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Self::Proxy, Self::Transparent, Self::Names]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// The bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Encodes a frame. A payload above the maximum is the caller's fault, and is truncated.
pub fn encode(kind: Kind, stream: u32, payload: &[u8]) -> Vec<u8> {
    let payload = &payload[..payload.len().min(PAYLOAD_BYTES_MAX)];
    let length = u32::try_from(payload.len()).unwrap_or(0);
    let mut bytes = Vec::with_capacity(HEAD_BYTES + payload.len());
    bytes.push(kind as u8);
    bytes.extend(stream.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend(payload);
    bytes
}

/// Decodes frames from chunks of bytes. Holds at most one partial frame beside the last chunk.
#[derive(Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    at: usize,
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete frame, if there is one.
    pub fn next(&mut self) -> Result<Option<Frame>, Malformed> {
        let rest = &self.bytes[self.at..];
        let Some((head, rest)) = rest.split_at_checked(HEAD_BYTES) else {
            return Ok(None);
        };
        let kind = Kind::from_byte(head[0]).ok_or(Malformed)?;
        let length = number(&head[5..9]) as usize;
        if length > PAYLOAD_BYTES_MAX {
            return Err(Malformed);
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let (stream, payload) = (number(&head[1..5]), payload.to_vec());
        self.at += HEAD_BYTES + length;
        Ok(Some(Frame {
            kind,
            stream,
            payload,
        }))
    }
}

/// Decodes four bytes as a number; fewer are 0.
pub fn number(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk::<4>()
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The agent's report of usage, in [`Kind::Used`] and [`Kind::Ended`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Wait status of the program; meaningless while it runs.
    pub status: i32,
    /// True if the kernel, or the agent in its place, has killed a process for lack of memory.
    pub out_of_memory: bool,
    pub user_us: u64,
    pub system_us: u64,
    pub memory_peak_kib: u64,
    pub processes_peak: u64,
    /// Packets without a route.
    pub unrouted: u64,
}

impl Used {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.status.to_le_bytes().to_vec();
        bytes.push(u8::from(self.out_of_memory));
        for word in [
            self.user_us,
            self.system_us,
            self.memory_peak_kib,
            self.processes_peak,
            self.unrouted,
        ] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (status, rest) = bytes.split_first_chunk::<4>().ok_or(Malformed)?;
        let (flag, rest) = rest.split_first().ok_or(Malformed)?;
        let (words, []) = rest.as_chunks::<8>() else {
            return Err(Malformed);
        };
        let [user_us, system_us, memory_peak_kib, processes_peak, unrouted] = words else {
            return Err(Malformed);
        };
        Ok(Self {
            status: i32::from_le_bytes(*status),
            out_of_memory: *flag == 1,
            user_us: u64::from_le_bytes(*user_us),
            system_us: u64::from_le_bytes(*system_us),
            memory_peak_kib: u64::from_le_bytes(*memory_peak_kib),
            processes_peak: u64::from_le_bytes(*processes_peak),
            unrouted: u64::from_le_bytes(*unrouted),
        })
    }
}

/// A program to start, or the limits and the word for one that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    pub argv: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// True if it gets the report pipe as descriptor 3.
    pub report: bool,
    /// Limits of setrlimit(2): number and value.
    pub rlimits: Vec<(u32, u64)>,
    /// Memory limit of the tree, which the agent samples and enforces; 0: a cgroup does.
    pub memory_bytes: u64,
    /// The bytes that are written to a program that waits.
    pub word: Vec<u8>,
}

impl Spec {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let text = |bytes: &mut Vec<u8>, text: &[u8]| {
            bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend(text);
        };
        let count = |bytes: &mut Vec<u8>, count: usize| {
            bytes.extend(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
        };
        count(&mut bytes, self.argv.len());
        self.argv
            .iter()
            .for_each(|word| text(&mut bytes, word.as_bytes()));
        count(&mut bytes, self.environment.len());
        for (name, value) in &self.environment {
            text(&mut bytes, name.as_bytes());
            text(&mut bytes, value.as_bytes());
        }
        count(&mut bytes, usize::from(self.report));
        count(&mut bytes, self.rlimits.len());
        for (which, value) in &self.rlimits {
            bytes.extend(which.to_le_bytes());
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend(self.memory_bytes.to_le_bytes());
        text(&mut bytes, &self.word);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        let mut spec = Self::default();
        for _ in 0..from.number()? {
            spec.argv.push(from.text()?);
        }
        for _ in 0..from.number()? {
            spec.environment.push((from.text()?, from.text()?));
        }
        spec.report = from.number()? == 1;
        for _ in 0..from.number()? {
            spec.rlimits.push((from.number()?, from.long()?));
        }
        spec.memory_bytes = from.long()?;
        spec.word = from.bytes()?.to_vec();
        match from.0 {
            [] => Ok(spec),
            _ => Err(Malformed),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn number(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn long(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.number()? as usize;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frame_with_an_excessive_length_is_refused_before_its_payload() {
        let mut bytes = encode(Kind::Data, 1, b"x");
        bytes[5..9].copy_from_slice(&(PAYLOAD_BYTES_MAX as u32 + 1).to_le_bytes());
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        assert_eq!(decoder.next(), Err(Malformed));
        decoder = Decoder::default();
        decoder.push(&[0; HEAD_BYTES]);
        assert_eq!(decoder.next(), Err(Malformed), "no such kind");
    }

    #[test]
    fn count_above_the_remaining_bytes_is_refused() {
        assert_eq!(Spec::decode(&u32::MAX.to_le_bytes()), Err(Malformed));
        assert_eq!(Used::decode(&[0; 44]), Err(Malformed));
    }

    fn spec() -> impl Strategy<Value = Spec> {
        let pairs = proptest::collection::vec((".{0,9}", ".{0,9}"), 0..4);
        let limits = proptest::collection::vec((any::<u32>(), any::<u64>()), 0..3);
        let argv = proptest::collection::vec(".{0,9}", 0..4);
        (argv, pairs, any::<bool>(), limits, any::<u64>(), any::<Vec<u8>>()).prop_map(
            |(argv, environment, report, rlimits, memory_bytes, word)| Spec {
                argv,
                environment,
                report,
                rlimits,
                memory_bytes,
                word,
            },
        )
    }

    proptest! {
        #[test]
        fn frames_survive_any_chunking(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..5),
            piece in 1_usize..50,
        ) {
            let bytes: Vec<u8> = (0..).zip(&payloads).flat_map(|(at, payload)| encode(Kind::Data, at, payload)).collect();
            let (mut decoder, mut seen) = (Decoder::default(), Vec::new());
            for piece in bytes.chunks(piece) {
                decoder.push(piece);
                while let Some(frame) = decoder.next().unwrap() {
                    seen.push(frame.payload);
                }
            }
            prop_assert_eq!(seen, payloads);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic_the_decoders(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next() {}
            let _seen = (Spec::decode(&bytes), Used::decode(&bytes));
        }

        #[test]
        fn spec_survives_encoding_and_decoding(spec in spec()) {
            prop_assert_eq!(Spec::decode(&spec.encode()), Ok(spec));
        }
    }
}
