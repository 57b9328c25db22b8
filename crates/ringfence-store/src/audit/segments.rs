//! Closed segments of the chain: the oldest records of the database, moved into a compressed file beside it that is
//! never written again. Its lines are those of `audit export`; the chain goes on in the next segment, whose first
//! record holds the hash of the last one here.
//!
//! `audit-<first>-<last>.jsonl.zst`: the numbers of its first and its last record, with twenty digits.

use super::Record;
use crate::tree::Timestamp;
use rustix::fs::{Mode, OFlags};
use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

/// A record has at most 64 KiB of details and four names of 512 bytes, escaped.
const LINE_BYTES_MAX: u64 = 1 << 20;
const END: &str = ".jsonl.zst";
/// Of zstd: about a seventh of the size, at the speed of a disk.
const LEVEL: i32 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) path: PathBuf,
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Segment {
    pub(super) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn of(path: PathBuf, stem: &str) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let numbers = name.strip_prefix(stem)?.strip_prefix('-')?.strip_suffix(END)?;
        let (first, last) = numbers.split_once('-')?;
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        Some(Self { path, first, last })
    }

    /// Its records, oldest first. After an error there is nothing more.
    pub(super) fn read(&self) -> io::Result<impl Iterator<Item = io::Result<Record>> + use<>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(rustix::fs::open(&self.path, flags, Mode::empty())?);
        let mut lines = BufReader::new(zstd::stream::read::Decoder::new(file)?);
        let mut is_over = false;
        Ok(std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            let mut line = String::new();
            let record = match (&mut lines).take(LINE_BYTES_MAX).read_line(&mut line) {
                Ok(0) => return None,
                Ok(_) => Record::of_json(line.trim_end())
                    .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a line is not a record")),
                Err(error) => Err(error),
            };
            is_over = record.is_err();
            Some(record)
        }))
    }

    /// The last of its records, where all of it can be read and is what its name says.
    pub(super) fn last_record(&self) -> Option<Record> {
        let mut last = None;
        for record in self.read().ok()? {
            last = Some(record.ok()?);
        }
        last.filter(|last| last.seq == self.last)
    }
}

/// The segments beside a database, oldest first. Those from `before` on are what a death has left of the making of one.
pub(super) fn list(database: &Path, before: u64) -> io::Result<Vec<Segment>> {
    let stem = database.file_stem().unwrap_or_default().to_string_lossy();
    let directory = match database.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let mut segments = Vec::new();
    for entry in fs::read_dir(directory)? {
        segments.extend(Segment::of(entry?.path(), &stem));
    }
    segments.retain(|segment| segment.first < before);
    segments.sort_by_key(|segment| (segment.first, segment.last));
    Ok(segments)
}

pub(super) struct Written {
    pub(super) segment: Segment,
    pub(super) last: Record,
    pub(super) bytes: u64,
}

/// A segment that is being written. Dropped before its end, it is nothing.
pub(super) struct Writing {
    database: PathBuf,
    temporary: PathBuf,
    out: Option<zstd::stream::write::Encoder<'static, BufWriter<File>>>,
    first: u64,
    last: Option<Record>,
}

impl Writing {
    pub(super) fn begin(database: &Path) -> io::Result<Self> {
        let temporary = database.with_extension("segment");
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(&temporary, flags, Mode::from_raw_mode(0o600))?);
        let mut out = zstd::stream::write::Encoder::new(BufWriter::new(file), LEVEL)?;
        out.include_checksum(true)?;
        Ok(Self {
            database: database.to_owned(),
            temporary,
            out: Some(out),
            first: 0,
            last: None,
        })
    }

    /// False: it is not what was written, or does not follow the one before.
    pub(super) fn add(&mut self, record: Record) -> io::Result<bool> {
        let is_next = |last: &Record| record.seq == last.seq + 1 && record.prev_hash == last.hash;
        let follows = self.last.as_ref().is_none_or(is_next);
        if !follows || record.computed_hash() != record.hash {
            return Ok(false);
        }
        if let Some(out) = &mut self.out {
            out.write_all(record.to_json().as_bytes())?;
            out.write_all(b"\n")?;
        }
        if self.last.is_none() {
            self.first = record.seq;
        }
        self.last = Some(record);
        Ok(true)
    }

    /// In its place and on the disk. None: nothing was added.
    pub(super) fn finish(mut self) -> io::Result<Option<Written>> {
        let (Some(out), Some(last)) = (self.out.take(), self.last.take()) else {
            return Ok(None);
        };
        let file = out.finish()?.into_inner();
        let file = file.map_err(io::IntoInnerError::into_error)?;
        // Its age is that of its last record.
        let time = Timestamp(last.time_us.div_euclid(1_000_000), 0);
        rustix::fs::futimens(&file, &time.to_set())?;
        file.sync_all()?;
        let stem = self.database.file_stem().unwrap_or_default().to_string_lossy();
        let name = format!("{stem}-{:020}-{:020}{END}", self.first, last.seq);
        let path = self.database.with_file_name(name);
        fs::rename(&self.temporary, &path)?;
        if let Some(directory) = path.parent().filter(|parent| *parent != Path::new("")) {
            File::open(directory)?.sync_all()?;
        }
        let (first, last_seq) = (self.first, last.seq);
        let segment = Segment {
            path,
            first,
            last: last_seq,
        };
        let bytes = file.metadata()?.len();
        Ok(Some(Written { segment, last, bytes }))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if self.out.is_some() {
            drop(fs::remove_file(&self.temporary));
        }
    }
}
