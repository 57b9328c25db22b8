//! A buffer for bytes that may hold secrets: it leaves no copy behind, neither when it grows nor when it is dropped.

use zeroize::Zeroize;

/// A queue of bytes: appended at the back, dropped at the front in amortised constant time.
#[derive(Default)]
pub(crate) struct Wiped {
    bytes: Vec<u8>,
    head: usize,
}

impl Wiped {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.head..]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.head..]
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.head
    }

    pub(crate) fn push(&mut self, byte: u8) {
        if self.bytes.len() == self.bytes.capacity() {
            self.make_room(1);
        }
        self.bytes.push(byte);
    }

    pub(crate) fn extend(&mut self, more: &[u8]) {
        if self.bytes.capacity() - self.bytes.len() < more.len() {
            self.make_room(more.len());
        }
        self.bytes.extend_from_slice(more);
    }

    pub(crate) fn drop_front(&mut self, count: usize) {
        self.head += count;
        if self.head == self.bytes.len() {
            self.bytes.clear();
            self.head = 0;
        }
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(self.head + len);
    }

    /// Makes room without leaving a copy: `Vec` would free the old allocation with the bytes still in it.
    fn make_room(&mut self, more: usize) {
        let len = self.len();
        // the front is reused only if it is at least half, so that every byte is moved a bounded number of times
        if self.head >= len && self.bytes.capacity() - len >= more {
            self.bytes.copy_within(self.head.., 0);
            self.bytes.truncate(len);
        } else {
            let mut bytes = Vec::with_capacity((len + more).max(2 * len).max(64));
            bytes.extend_from_slice(self.as_slice());
            self.bytes.zeroize();
            self.bytes = bytes;
        }
        self.head = 0;
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        // the spare capacity too, which may hold truncated bytes
        self.bytes.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_keeps_the_order() {
        let mut queue = Wiped::default();
        let (mut written, mut read) = (0_u32, 0_u32);
        for round in 0..2000_u32 {
            for _ in 0..round % 13 {
                queue.push(written.to_le_bytes()[0]);
                written += 1;
            }
            let count = (round % 11).min(written - read);
            for &byte in &queue.as_slice()[..count as usize] {
                assert_eq!(byte, read.to_le_bytes()[0]);
                read += 1;
            }
            queue.drop_front(count as usize);
            assert_eq!(queue.len(), (written - read) as usize);
        }
        assert!(read > 5000);
    }

    #[test]
    fn sliding_window_does_not_grow() {
        let mut queue = Wiped::default();
        queue.extend(&[7; 1000]);
        for _ in 0..100_000 {
            queue.push(7);
            queue.drop_front(1);
        }
        assert!(queue.bytes.capacity() <= 4096, "{}", queue.bytes.capacity());
    }
}
