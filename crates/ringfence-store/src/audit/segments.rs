//! Closed segments of the chain: the oldest records, in a compressed file beside the database that is never written
//! again. Its lines are those of `audit export`; the next segment's first record holds the hash of the last one.
//!
//! File names are `audit-<first>-<last>.jsonl.zst`: the numbers of the first and the last record, in twenty digits.

use super::{Head, Record};
use crate::{
    tree::Timestamp,
    whole_file::{self, Directory},
};
use rustix::{
    fs::{CWD, Mode, OFlags},
    io::Errno,
};
use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

/// A record has at most 64 KiB of details and four names of 512 bytes, escaped.
const LINE_BYTES_MAX: u64 = 1 << 20;
const END: &str = ".jsonl.zst";
/// The zstd level: about a seventh of the size, at the speed of a disk.
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
        let is_range = 1 <= first && first <= last && last < i64::MAX.cast_unsigned();
        is_range.then_some(Self { path, first, last })
    }

    pub(super) fn is_file(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_file())
    }

    /// Reads its records, oldest first. Ends after an error.
    pub(super) fn read(&self) -> impl Iterator<Item = io::Result<Record>> + use<> {
        let mut lines = Some(self.lines());
        std::iter::from_fn(move || {
            let record = lines.take()?.and_then(|mut reader| {
                let record = next_record(&mut reader)?;
                lines = Some(Ok(reader));
                Ok(record)
            });
            record.transpose()
        })
    }

    fn lines(&self) -> io::Result<impl BufRead + use<>> {
        let opened = whole_file::open_regular(CWD, &self.path, OFlags::RDONLY);
        let file = opened.map_err(|error| match error {
            Errno::NXIO | Errno::LOOP => io::Error::other("it is not a regular file"),
            error => error.into(),
        })?;
        Ok(BufReader::new(zstd::stream::read::Decoder::new(file)?))
    }

    /// Returns its last record, if all records that its name gives are there and this key signed them; `None` if it is
    /// damaged. Errors: of the system, which say nothing about it.
    pub(super) fn last_record(&self, public_key: &[u8; 32]) -> io::Result<Option<Head>> {
        let (mut last, mut is_signed) = (None, false);
        for record in self.read() {
            let record = match record {
                Err(error) if error.raw_os_error().is_some() => return Err(error),
                record => record.ok().filter(|record| record.follows(last)),
            };
            let Some(record) = record.filter(|record| last.is_some() || record.seq == self.first) else {
                return Ok(None);
            };
            (last, is_signed) = (
                Some(record.head()),
                record.seq == self.last && record.is_signed_by(public_key),
            );
        }
        Ok(last.filter(|_| is_signed))
    }
}

fn next_record(lines: &mut impl BufRead) -> io::Result<Option<Record>> {
    let mut line = String::new();
    if lines.take(LINE_BYTES_MAX).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let record = Record::of_json(line.trim_end());
    let foreign = || io::Error::new(io::ErrorKind::InvalidData, "a line is not a record");
    record.map(Some).ok_or_else(foreign)
}

/// Lists the segments beside a database, oldest first, without those from `before` on, which a crash left. A directory,
/// link or pipe counts only if it is in place of a segment: no file has some of its records.
pub(super) fn list(database: &Path, before: u64) -> io::Result<Vec<Segment>> {
    let names = names(database, before)?.into_iter();
    let (mut segments, others): (Vec<Segment>, Vec<Segment>) = names.partition(Segment::is_file);
    // The first record of each file, and the last one of all up to it.
    let ends = segments.iter().scan(0, |last, file| {
        *last = file.last.max(*last);
        Some((file.first, *last))
    });
    let ends: Vec<(u64, u64)> = ends.collect();
    segments.extend(others.into_iter().filter(|other| {
        let before = ends.partition_point(|(first, _)| *first <= other.last);
        let is_stray = ends[..before]
            .last()
            .is_some_and(|(_, last)| other.first <= *last);
        if is_stray {
            tracing::debug!(file = ?other.path, "it has the name of a closed segment, but is not a file");
        }
        !is_stray
    }));
    segments.sort_by_key(|segment| (segment.first, segment.last));
    Ok(segments)
}

/// As [`list`], but with everything that has the name of a segment.
pub(super) fn names(database: &Path, before: u64) -> io::Result<Vec<Segment>> {
    let stem = database.file_stem().unwrap_or_default().to_string_lossy();
    let names = Directory::of_file(database).and_then(|(directory, _)| directory.names());
    let names = names.map_err(|failed| failed.error)?.into_iter();
    let segments = names.filter_map(|name| Segment::of(database.with_file_name(name), &stem));
    let mut segments: Vec<Segment> = segments.filter(|segment| segment.first < before).collect();
    segments.sort_by_key(|segment| (segment.first, segment.last));
    Ok(segments)
}

pub(super) struct Written {
    pub(super) segment: Segment,
    pub(super) last: Record,
    pub(super) bytes: u64,
}

/// Writes the records that `next` returns into a segment, in place and on the disk. `None` if there are no records.
pub(super) fn write<E: From<io::Error>>(
    database: &Path,
    next: impl FnMut() -> Result<Option<Record>, E>,
) -> Result<Option<Written>, E> {
    let temporary = database.with_extension("segment");
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let written = write_via(&temporary, database, next);
    if !matches!(written, Ok(Some(_))) {
        drop(fs::remove_file(&temporary));
    }
    written
}

fn write_via<E: From<io::Error>>(
    temporary: &Path,
    database: &Path,
    mut next: impl FnMut() -> Result<Option<Record>, E>,
) -> Result<Option<Written>, E> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(temporary, flags, Mode::from_raw_mode(0o600)).map_err(io::Error::from)?;
    let mut out = zstd::stream::write::Encoder::new(BufWriter::new(File::from(file)), LEVEL)?;
    out.include_checksum(true)?;
    let (mut first, mut last) = (None, None);
    while let Some(record) = next()? {
        writeln!(out, "{}", record.to_json())?;
        first = first.or(Some(record.seq));
        last = Some(record);
    }
    let (Some(first), Some(last)) = (first, last) else {
        return Ok(None);
    };
    let file = out.finish()?.into_inner();
    let file = file.map_err(io::IntoInnerError::into_error)?;
    // Its mtime is the time of its last record, in whole seconds.
    let time = Timestamp(last.time_us.div_euclid(1_000_000), 0);
    rustix::fs::futimens(&file, &time.to_set()).map_err(io::Error::from)?;
    file.sync_all()?;
    let stem = database.file_stem().unwrap_or_default().to_string_lossy();
    let path = database.with_file_name(format!("{stem}-{first:020}-{:020}{END}", last.seq));
    fs::rename(temporary, &path)?;
    let synced = Directory::of_file(&path).and_then(|(directory, _)| directory.sync());
    synced.map_err(|failed| failed.error)?;
    Ok(Some(Written {
        bytes: file.metadata()?.len(),
        segment: Segment {
            path,
            first,
            last: last.seq,
        },
        last,
    }))
}
