//! The program's pipes and connections, each with a window in both directions: one that is not read blocks no other.

use crate::{
    calls::{self, Polled},
    frame::{self, CONNECTION_FIRST, CONNECTIONS_MAX, Kind, PAYLOAD_BYTES_MAX, WINDOW_BYTES, number},
};
use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    os::fd::OwnedFd,
};

pub struct Stream {
    number: u32,
    /// A pipe, or a connection.
    peer: File,
    /// True while it can still provide bytes.
    reads: bool,
    /// True while it can still take bytes.
    writes: bool,
    /// Bytes that may be sent to the server.
    credit: u32,
    queue: VecDeque<u8>,
    /// True if the server has sent the last bytes for it.
    is_closing: bool,
    /// Unread bytes of those that it held when all processes of the program had ended.
    left: Option<u64>,
}

impl Stream {
    fn new(number: u32, peer: OwnedFd) -> Self {
        Self {
            number,
            peer: peer.into(),
            reads: true,
            writes: true,
            credit: WINDOW_BYTES,
            queue: VecDeque::new(),
            is_closing: false,
            left: None,
        }
    }

    pub fn read_end(number: u32, pipe: OwnedFd) -> Self {
        Self {
            writes: false,
            ..Self::new(number, pipe)
        }
    }

    pub fn write_end(number: u32, pipe: OwnedFd) -> Self {
        Self {
            reads: false,
            ..Self::new(number, pipe)
        }
    }

    fn wait(&self) -> Polled {
        let has_something = !self.queue.is_empty() || self.is_closing;
        Polled::new(
            &self.peer,
            self.reads && self.credit > 0,
            self.writes && has_something,
        )
    }

    fn is_output(&self) -> bool {
        matches!(self.number, frame::STDOUT | frame::STDERR)
    }

    fn is_done(&self) -> bool {
        !self.reads && !self.writes
    }
}

/// A frame for the server, without its stream.
pub type Event = (Kind, Vec<u8>);

#[derive(Default)]
pub struct Streams {
    streams: BTreeMap<u32, Stream>,
    opened: u32,
}

impl Streams {
    pub fn add_program(&mut self, pipes: Vec<Stream>) {
        self.streams
            .extend(pipes.into_iter().map(|pipe| (pipe.number, pipe)));
    }

    pub fn has_room(&self) -> bool {
        self.streams.len() < CONNECTIONS_MAX
    }

    pub fn add(&mut self, connection: TcpStream) -> io::Result<u32> {
        connection.set_nonblocking(true)?;
        connection.set_nodelay(true)?;
        let number = CONNECTION_FIRST + self.opened;
        self.opened = self.opened.wrapping_add(1) % (u32::MAX - CONNECTION_FIRST);
        self.streams
            .insert(number, Stream::new(number, connection.into()));
        Ok(number)
    }

    /// Handles the end of all processes of the program: nothing reads its input, and its pipes get no further bytes.
    /// Their end of file is not awaited: a writing end may be left in a message that no process can receive.
    pub fn end_of_program(&mut self) -> Vec<(u32, Event)> {
        self.streams.remove(&frame::STDIN);
        let mut events = Vec::new();
        for number in [frame::STDOUT, frame::STDERR, frame::REPORT] {
            if let Some(stream) = self.streams.get_mut(&number) {
                stream.left = calls::unread(&stream.peer).ok();
                events.extend(close(stream).map(|event| (number, event)));
            }
        }
        events
    }

    pub fn waits(&self) -> Vec<Polled> {
        self.streams.values().map(Stream::wait).collect()
    }

    /// Reads and writes the streams that are ready; `waits` is from [`Self::waits`].
    pub fn serve(&mut self, waits: &[Polled]) -> Vec<(u32, Event)> {
        let mut events = Vec::new();
        let mut all = self.streams.keys().zip(waits);
        // Output that was written before a report is read before it, although poll(2) checks one descriptor after the
        // other. No more is read than the window allows, or endless output would delay every report.
        let reports = all.any(|(number, wait)| *number == frame::REPORT && wait.can_read());
        for (stream, wait) in self.streams.values_mut().zip(waits) {
            if wait.can_write() {
                events.extend(write(stream).map(|event| (stream.number, event)));
            }
            let drains = reports && stream.is_output();
            let mut can_read = wait.can_read() || drains;
            while can_read && stream.reads && stream.credit > 0 {
                let event = read(stream);
                can_read = drains && event.is_some();
                events.extend(event.map(|event| (stream.number, event)));
            }
            events.extend(close(stream).map(|event| (stream.number, event)));
        }
        self.streams.retain(|_, stream| !stream.is_done());
        events
    }

    /// Handles a frame of the server for a stream. A stream that is gone here is not an error.
    pub fn take(&mut self, kind: Kind, number_of: u32, payload: Vec<u8>) -> io::Result<()> {
        let Some(stream) = self.streams.get_mut(&number_of) else {
            return Ok(());
        };
        match kind {
            Kind::Data if stream.queue.len() + payload.len() > WINDOW_BYTES as usize => {
                return Err(ErrorKind::InvalidData.into());
            }
            Kind::Data => stream.queue.extend(payload),
            Kind::Credit => stream.credit = stream.credit.saturating_add(number(&payload)).min(WINDOW_BYTES),
            Kind::Close => stream.is_closing = true,
            _ => {
                // With unread bytes the shutdown becomes a reset.
                drop(calls::shut_down(&stream.peer, Shutdown::Both));
                self.streams.remove(&number_of);
            }
        }
        Ok(())
    }
}

fn read(stream: &mut Stream) -> Option<Event> {
    let left = stream.left.and_then(|left| usize::try_from(left).ok());
    let room = left.unwrap_or(usize::MAX).min(stream.credit as usize);
    let mut chunk = vec![0; room.min(PAYLOAD_BYTES_MAX)];
    match stream.peer.read(&mut chunk) {
        Ok(0) => {
            stream.reads = false;
            Some((Kind::Close, Vec::new()))
        }
        Ok(count) => {
            chunk.truncate(count);
            stream.credit -= u32::try_from(count).unwrap_or(stream.credit);
            stream.left = stream.left.map(|left| left.saturating_sub(count as u64));
            Some((Kind::Data, chunk))
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
        Err(_) => {
            (stream.reads, stream.writes) = (false, false);
            Some((Kind::Reset, Vec::new()))
        }
    }
}

/// Closes the stream of an ended program once it is read.
fn close(stream: &mut Stream) -> Option<Event> {
    let is_read = stream.reads && stream.left == Some(0);
    is_read.then(|| {
        stream.reads = false;
        (Kind::Close, Vec::new())
    })
}

fn write(stream: &mut Stream) -> Option<Event> {
    let (front, _) = stream.queue.as_slices();
    if !front.is_empty() {
        let written = match stream.peer.write(front) {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            // Its reader is gone.
            Err(_) => {
                (stream.reads, stream.writes) = (false, false);
                return Some((Kind::Reset, Vec::new()));
            }
        };
        stream.queue.drain(..written);
        return Some((
            Kind::Credit,
            u32::try_from(written).unwrap_or(0).to_le_bytes().to_vec(),
        ));
    }
    if stream.is_closing {
        stream.writes = false;
        // A pipe is closed instead.
        drop(calls::shut_down(&stream.peer, Shutdown::Write));
    }
    None
}
