//! What one connection to the outside has carried, and the events of its beginning and its end. The end is told whichever
//! way it comes: the last one who holds this says it by dropping it.

use crate::{
    Happened,
    border::{Border, Way},
    traffic::{End, Line},
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// The account of one connection.
pub(crate) struct Carried {
    border: Arc<Border>,
    end: End,
    line: Arc<Line>,
    began: Instant,
    requests: AtomicU64,
    out: AtomicU64,
    back: AtomicU64,
}

impl Carried {
    /// A connection was opened.
    pub(crate) fn begin(border: Arc<Border>, end: End) -> Arc<Self> {
        let line = border.report.line(end.clone());
        line.connections.fetch_add(1, Ordering::Relaxed);
        let End { name, port, address } = end.clone();
        border.happened(Happened::Connected { name, port, address });
        Arc::new(Self {
            border,
            end,
            line,
            began: Instant::now(),
            requests: AtomicU64::new(0),
            out: AtomicU64::new(0),
            back: AtomicU64::new(0),
        })
    }

    /// Bytes that are about to be passed on.
    ///
    /// # Errors
    /// The sandbox may not move that many.
    pub(crate) fn bytes(&self, way: Way, bytes: usize) -> io::Result<()> {
        self.border.spend(way, bytes)?;
        let (own, line) = match way {
            Way::Out => (&self.out, &self.line.bytes_out),
            Way::Back => (&self.back, &self.line.bytes_in),
        };
        own.fetch_add(bytes as u64, Ordering::Relaxed);
        line.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    }

    /// A request was read.
    pub(crate) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.line.requests.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        let End { name, port, address } = self.end.clone();
        self.border.happened(Happened::Closed {
            name,
            port,
            address,
            requests: self.requests.load(Ordering::Relaxed),
            bytes_out: self.out.load(Ordering::Relaxed),
            bytes_in: self.back.load(Ordering::Relaxed),
            duration: self.began.elapsed(),
        });
    }
}
