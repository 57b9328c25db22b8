//! The open record: the database in use, and its replacement when it is damaged, moved or full.

use super::{
    AuditError, Head, Keep, Receipt, Storage, archive,
    chain::{ChainError, Writer, append},
    entry::Encoded,
    location::{self, Files, OpenDatabase, OpenFiles, Opening},
    schema::LOCKED_MS_MAX,
};
use rusqlite::Connection;
use std::{path::PathBuf, time::Duration};

/// Records kept by a record in memory, about a kibibyte each; the oldest are deleted.
const MEMORY_RECORDS_MAX: u64 = 200_000;
/// Segments closed in one call, before callers can write again; a database of an earlier version may hold many.
const SEGMENTS_AT_ONCE: usize = 2;

/// The open database with the head that this process last wrote or checked.
pub(super) struct OpenChain {
    pub(super) location: Storage,
    writer: Writer,
    /// `None`: the file was replaced; the next batch opens the file that is there then.
    open: Option<OpenDatabase>,
    pub(super) head: Head,
    pub(super) keep: Keep,
    kept: archive::Kept,
}

impl OpenChain {
    pub(super) fn open(location: Storage, writer: Writer) -> Result<Self, AuditError> {
        let location = location.absolute()?;
        let open = location::open(&location, &writer, Opening::default())?;
        Ok(Self {
            location,
            writer,
            head: open.head,
            open: Some(open),
            keep: Keep::default(),
            kept: archive::Kept::new(),
        })
    }

    /// Appends all of the batch or none. A file found to be damaged is moved aside, and the batch goes into a new one.
    pub(super) fn append(&mut self, batch: &[Encoded]) -> Result<Vec<Receipt>, AuditError> {
        match self.try_append(batch) {
            Err(AuditError::Damaged { what, .. }) => {
                self.set_aside(what)?;
                self.try_append(batch)
            }
            appended => appended,
        }
    }

    /// Moves the damaged open file aside and continues in a new one, whose first record says so.
    pub(super) fn set_aside(&mut self, what: String) -> Result<(), AuditError> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let Some(open_files) = open.open_files else {
            return Err(AuditError::damaged(&self.location.display_path(), what));
        };
        drop(open.connection);
        self.reopen(Some((what, open_files.files)))
    }

    fn reopen(&mut self, damage: Option<(String, Files)>) -> Result<(), AuditError> {
        let known = Some(self.head);
        let opening = Opening { known, damage };
        let open = location::open(&self.location, &self.writer, opening)?;
        self.head = open.head;
        self.open = Some(open);
        Ok(())
    }

    /// Closes and removes segments over the limits. A later call tries again what failed.
    pub(super) fn tidy(&mut self) -> Result<(), AuditError> {
        let bytes_max = self.keep.segment_bytes;
        for _ in 0..SEGMENTS_AT_ONCE {
            let (Storage::File(path), Some(open)) = (&self.location, &self.open) else {
                break;
            };
            let used = archive::used_bytes(&open.connection);
            let used = used.map_err(|error| AuditError::of_sqlite(path, "measuring it", &error))?;
            if bytes_max == 0 || used <= bytes_max {
                break;
            }
            if self.archive(Some(bytes_max))?.is_none() {
                break;
            }
        }
        self.retain()
    }

    pub(super) fn archive(&mut self, oldest_bytes: Option<u64>) -> Result<Option<PathBuf>, AuditError> {
        let archived = match (&self.location, &mut self.open) {
            (Storage::File(path), Some(open)) => {
                archive::archive(&mut open.connection, &self.writer, self.head, path, oldest_bytes)
                    .map_err(|broken| broken.at(path, "closing a segment of it"))
            }
            _ => Ok(None),
        };
        match archived {
            Ok(Some((path, head))) => {
                self.head = head;
                Ok(Some(path))
            }
            Err(AuditError::Damaged { what, .. }) => self.set_aside(what).map(|()| None),
            other => other.map(|_| None),
        }
    }

    /// Removes closed segments over the limits of age and size, oldest first, each after its removal is on record.
    fn retain(&mut self) -> Result<(), AuditError> {
        let (Storage::File(path), Some(open)) = (&self.location, &self.open) else {
            return Ok(());
        };
        let (key, kept) = (&self.writer.public_key, &mut self.kept);
        let removals = archive::removals(&open.connection, path, self.keep, key, kept)
            .map_err(|broken| broken.at(path, "looking for old segments of it"))?;
        for (segment, removed) in removals {
            if let Some(removed) = removed {
                self.append(&[removed])?;
            }
            std::fs::remove_file(&segment.path)
                .map_err(|error| AuditError::of_io(&segment.path, "removing it", &error))?;
        }
        Ok(())
    }

    fn try_append(&mut self, batch: &[Encoded]) -> Result<Vec<Receipt>, AuditError> {
        if self.open.is_none() {
            self.reopen(None)?;
        }
        let path = self.location.display_path();
        let Some(open) = &mut self.open else {
            return Err(AuditError::Replaced(path));
        };
        let in_place = |files: &Option<OpenFiles>| files.as_ref().is_none_or(OpenFiles::is_in_place);
        let appended = if in_place(&open.open_files) {
            let kept = matches!(self.location, Storage::Memory).then_some(MEMORY_RECORDS_MAX);
            append(&mut open.connection, &self.writer, self.head, batch, kept)
                .map_err(|broken| broken.at(&path, "appending to it"))
        } else {
            Err(AuditError::Replaced(path.clone()))
        };
        // A commit into a file that has just lost its name is lost too.
        if !in_place(&open.open_files) {
            self.open = None;
            return Err(AuditError::Replaced(path));
        }
        let (head, receipts) = appended?;
        self.head = head;
        Ok(receipts)
    }

    /// Appends one entry, without waiting for another process that is writing; then it returns `None`.
    pub(super) fn append_unless_locked(&mut self, entry: &Encoded) -> Option<Result<Receipt, AuditError>> {
        let waits = |chain: &Self, time| chain.connection().map(|connection| connection.busy_timeout(time));
        if !matches!(waits(self, Duration::ZERO), Some(Ok(()))) {
            return None;
        }
        let appended = self.append(std::slice::from_ref(entry));
        let restored = waits(self, Duration::from_millis(LOCKED_MS_MAX));
        match (appended, restored) {
            (Err(AuditError::Locked(_)), _) => None,
            (_, Some(Err(error))) => Some(Err(
                ChainError::from(error).at(&self.location.display_path(), "waiting for others")
            )),
            (appended, _) => {
                Some(appended.and_then(|mut receipts| receipts.pop().ok_or(AuditError::Stopped)))
            }
        }
    }

    /// Moves commits into the database. On failure the log is only longer, and the next commit tries again. `PASSIVE`
    /// does not wait for readers; `TRUNCATE`, for the end, also empties the log.
    pub(super) fn checkpoint(&self, mode: &'static str) {
        let Some(open) = &self.open else { return };
        let pragma = format!("PRAGMA wal_checkpoint({mode})");
        let done = open.connection.query_row(&pragma, [], |_| Ok(()));
        if let Err(error) = done {
            tracing::warn!(%error, "the audit record's log was not moved into its database");
        }
    }

    pub(super) fn connection(&self) -> Option<&Connection> {
        self.open.as_ref().map(|open| &open.connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Signer,
        audit::{Durability, tests::fixture},
    };
    use std::path::Path;

    #[test]
    fn in_memory_record_deletes_its_oldest_records() {
        let signer = Signer::in_memory().unwrap();
        let writer = Writer {
            public_key: signer.public_key(),
            signer,
            server_id: "test".to_owned(),
            durability: Durability::Process,
        };
        let mut chain = OpenChain::open(Storage::Memory, writer).unwrap();
        let batch: Vec<Encoded> = (0..250)
            .map(|number| fixture::entry(number).encoded().unwrap())
            .collect();
        let open = chain.open.as_mut().unwrap();
        for _ in 0..9 {
            let appended = append(&mut open.connection, &chain.writer, chain.head, &batch, Some(500));
            chain.head = appended
                .map_err(|broken| broken.at(Path::new("memory"), "append"))
                .unwrap()
                .0;
        }
        let count = |sql: &str| {
            open.connection
                .query_row(sql, [], |row| row.get::<_, i64>(0))
                .unwrap()
        };
        assert_eq!(count("SELECT max(seq) FROM record"), 9 * 250 + 1);
        let kept = count("SELECT count(*) FROM record");
        assert!((500..500 + 1000 + 250).contains(&kept), "{kept}");
    }
}
