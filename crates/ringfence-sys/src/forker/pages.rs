//! Memory pages that a program's run touches. A trial, which is a fork without walls that runs a program only to find
//! them, reports these pages; each fork takes their page faults before its claim.

use crate::{
    REPLY_NUMBER,
    system::{
        O_CLOEXEC, PollFd, Returned, SIGKILL, SystemCall, address, call, close, exit, number, open, pipe,
        poll,
    },
};
use core::ops::Range;

/// Contiguous pages.
#[derive(Clone, Copy)]
#[repr(C)]
struct Span {
    start: usize,
    /// In bytes. An odd number means that they are only read.
    length: usize,
}

const NO_SPAN: Span = Span { start: 0, length: 0 };
const SPANS_MAX: usize = 2048;
const EINTR: u64 = 4;

/// Spans that a trial has reported, followed by empty ones.
static mut FOUND: [Span; SPANS_MAX] = [NO_SPAN; SPANS_MAX];

impl Span {
    fn populate(self) -> Returned {
        const MADV_POPULATE_READ: usize = 22; // Linux 5.14
        const MADV_POPULATE_WRITE: usize = 23;
        let is_read_only = self.length & 1 != 0;
        let advice = if is_read_only {
            MADV_POPULATE_READ
        } else {
            MADV_POPULATE_WRITE
        };
        unsafe { call(SystemCall::Madvise, [self.start, self.length & !1, advice]) }
    }
}

fn found() -> &'static mut [Span; SPANS_MAX] {
    unsafe { &mut *(&raw mut FOUND) }
}

/// Returned by [`try_run`] in the trial.
pub const IN_TRIAL: i32 = -1;
/// Returned in the template if no trial could be forked; larger than any wait status.
const NO_TRIAL: i32 = 1 << 16;

/// Forks a trial. Returns in the trial, and in the template with the trial's wait status when it has ended. A trial
/// that takes too long is killed with its process group; the spans that it has [reported](report_touched) are kept.
///
/// # Safety
/// The requirements of `fork`.
pub unsafe fn try_run(fork: unsafe fn() -> Returned) -> i32 {
    let Ok([out, into]) = pipe() else {
        return NO_TRIAL;
    };
    let forked = unsafe { fork() };
    if forked == Ok(0) {
        close(out);
        // The number that the reset of a child leaves open.
        if into != REPLY_NUMBER {
            let placed = [number(into), number(REPLY_NUMBER), O_CLOEXEC];
            if unsafe { call(SystemCall::Dup3, placed) }.is_err() {
                exit(1);
            }
            close(into);
        }
        return IN_TRIAL;
    }
    close(into);
    let status = forked.map_or(NO_TRIAL, |pid| unsafe { end_of(pid, out) });
    close(out);
    status
}

unsafe fn end_of(pid: usize, out: i32) -> i32 {
    let (group, mut status) = (pid.wrapping_neg(), NO_TRIAL);
    unsafe {
        let _ = call(SystemCall::Setpgid, [pid, pid]);
        receive_spans(out);
        let _ = call(SystemCall::Kill, [group, SIGKILL]);
        let _ = call(SystemCall::Kill, [pid, SIGKILL]); // if it has left its group
        let arguments = [pid, address(&raw mut status), 0, 0];
        while call(SystemCall::Wait4, arguments) == Err(EINTR) {}
    }
    status
}

/// Reads spans until the trial has ended, and with it the pipe, or until time is up.
unsafe fn receive_spans(out: i32) {
    const TRIAL_SECONDS: usize = 5;
    let found = found();
    let room = size_of_val(found);
    let (mut length, mut left) = (0, [TRIAL_SECONDS, 0]);
    let mut polled = [PollFd::readable(out)];
    while length < room {
        match poll(&mut polled, Some(&mut left)) {
            Err(EINTR) => continue,
            Ok(1..) => {}
            _ => break,
        }
        let to = address(found.as_mut_ptr()) + length;
        match unsafe { call(SystemCall::Read, [number(out), to, room - length]) } {
            Ok(more @ 1..) => length += more,
            _ => break,
        }
    }
}

/// Drops the spans that the interpreter has unmapped since the trial.
pub fn drop_unmapped() {
    let (found, mut kept) = (found(), 0);
    for at in 0..SPANS_MAX {
        let span = core::mem::replace(&mut found[at], NO_SPAN);
        if span.length > 0 && span.populate().is_ok() {
            found[kept] = span;
            kept += 1;
        }
    }
}

/// Takes the page faults of a fork now, and clears the list.
pub fn populate() {
    for span in found().iter_mut().take_while(|span| span.length > 0) {
        let _ = span.populate(); // on failure the program takes them
        *span = NO_SPAN;
    }
}

/// Reports the pages that this trial has written to, and those of files that it has mapped (proc_pid_pagemap(5)).
pub fn report_touched() {
    let Ok(table) = open(c"/proc/self/pagemap") else {
        return;
    };
    let mut writer = SpanWriter {
        spans: [NO_SPAN; SPANS_AT_ONCE],
        count: 0,
        page: page_bytes(),
    };
    for_each_mapping(|mapping| writer.add_mapping(table, mapping));
    writer.flush();
}

const SPANS_AT_ONCE: usize = 64;

struct SpanWriter {
    spans: [Span; SPANS_AT_ONCE],
    count: usize,
    page: usize,
}

impl SpanWriter {
    fn add_mapping(&mut self, table: i32, mapping: &Mapping) {
        const PRESENT: u64 = 1 << 63;
        const OF_FILE: u64 = 1 << 61;
        const OWN: u64 = 1 << 56;
        const ENTRIES: usize = 256;
        let mut entries = [0_u64; ENTRIES];
        let mut at = mapping.pages.start;
        while at < mapping.pages.end {
            let wanted = ENTRIES.min((mapping.pages.end - at) / self.page);
            let to = address(entries.as_mut_ptr());
            let arguments = [number(table), to, wanted * 8, at / self.page * 8];
            let Ok(length @ 8..) = (unsafe { call(SystemCall::Pread64, arguments) }) else {
                return;
            };
            for entry in &entries[..length / 8] {
                let is_of_file = entry & OF_FILE != 0;
                let is_touched = if mapping.is_written {
                    entry & OWN != 0 && !is_of_file
                } else {
                    is_of_file
                };
                if entry & PRESENT != 0 && is_touched {
                    self.add(at, !mapping.is_written);
                }
                at += self.page;
            }
        }
    }

    fn add(&mut self, start: usize, is_read_only: bool) {
        let read_only = usize::from(is_read_only);
        if let Some(last) = self.spans[..self.count].last_mut()
            && last.start + last.length == start + read_only
            && last.length & 1 == read_only
        {
            last.length += self.page;
            return;
        }
        if self.count == SPANS_AT_ONCE {
            self.flush();
        }
        self.spans[self.count] = Span {
            start,
            length: self.page | read_only,
        };
        self.count += 1;
    }

    fn flush(&mut self) {
        let spans = &self.spans[..self.count];
        let arguments = [number(REPLY_NUMBER), address(spans.as_ptr()), size_of_val(spans)];
        let _ = unsafe { call(SystemCall::Write, arguments) };
        self.count = 0;
    }
}

/// A private mapping of this process.
pub struct Mapping {
    pub pages: Range<usize>,
    is_written: bool,
}

/// Visits the private mappings in `/proc/self/maps`, whose lines begin `start-end rwxp `, in hexadecimal digits.
pub fn for_each_mapping(mut visit: impl FnMut(&Mapping)) {
    const BUFFER_BYTES: usize = 2048;
    let Ok(maps) = open(c"/proc/self/maps") else {
        return;
    };
    let (mut ends, mut rights, mut field) = ([0_usize; 2], [b' '; 4], 0);
    let mut buffer = [0_u8; BUFFER_BYTES];
    let arguments = [number(maps), address(buffer.as_mut_ptr()), BUFFER_BYTES];
    while let Ok(count @ 1..) = unsafe { call(SystemCall::Read, arguments) } {
        for byte in &buffer[..count] {
            match (field, *byte) {
                (_, b'\n') => (ends, field) = ([0; 2], 0),
                (0, b'-') | (1, b' ') => field += 1,
                (0 | 1, digit) => {
                    let digit = (digit as char).to_digit(16).unwrap_or(0);
                    ends[field] = ends[field] << 4 | digit as usize;
                }
                (2..=5, right) => {
                    rights[field - 2] = right;
                    field += 1;
                    if rights[3] == b'p' && field == 6 {
                        visit(&Mapping {
                            pages: ends[0]..ends[1],
                            is_written: rights[1] == b'w',
                        });
                    }
                }
                _ => {}
            }
        }
    }
    close(maps);
}

/// Reads the page size from `/proc/self/auxv`, which has pairs of numbers.
fn page_bytes() -> usize {
    const AT_PAGESZ: usize = 6;
    let mut auxiliary = [[0_usize; 2]; 64];
    if let Ok(file) = open(c"/proc/self/auxv") {
        let arguments = [
            number(file),
            address(auxiliary.as_mut_ptr()),
            size_of_val(&auxiliary),
        ];
        let _ = unsafe { call(SystemCall::Read, arguments) };
        close(file);
    }
    let size = auxiliary.iter().find(|[kind, _]| *kind == AT_PAGESZ);
    size.map_or(4096, |[_, size]| *size)
}
