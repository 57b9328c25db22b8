//! Shared by the tests: a directory per test, a key, entries, and a way to tamper.

use crate::audit::{Action, Audit, Durability, Entry, Fault, Outcome, Storage, Verdict, verify};
use crate::{Signer, tests::TestDir};
use rusqlite::Connection;
use serde_json::{Map, Value};
use std::{fs, path::PathBuf};

pub(in crate::audit) struct Directory {
    pub(in crate::audit) path: TestDir,
    pub(in crate::audit) signer: Signer,
}

impl Directory {
    pub(in crate::audit) fn new() -> Self {
        Self {
            path: TestDir::new(),
            signer: Signer::in_memory().unwrap(),
        }
    }

    pub(in crate::audit) fn database(&self) -> PathBuf {
        self.path.join("audit.db")
    }

    pub(in crate::audit) fn try_open(&self) -> Result<Audit, crate::audit::AuditError> {
        let place = Storage::File(self.database());
        Audit::open(
            place,
            Durability::Process,
            self.signer.clone(),
            "server".to_owned(),
        )
    }

    pub(in crate::audit) fn open(&self, durability: Durability) -> Audit {
        let place = Storage::File(self.database());
        Audit::open(place, durability, self.signer.clone(), "server".to_owned()).unwrap()
    }

    /// Opens the record as one of several servers.
    pub(in crate::audit) fn open_as(&self, server_id: &str) -> Audit {
        let (place, id) = (Storage::File(self.database()), server_id.to_owned());
        Audit::open(place, Durability::Process, self.signer.clone(), id).unwrap()
    }

    /// A closed chain of `audit.began` and `count` more records.
    pub(in crate::audit) fn filled(count: u64) -> Self {
        let directory = Self::new();
        let audit = directory.open(Durability::Process);
        (0..count).for_each(|number| {
            audit.append_and_wait(entry(number)).unwrap();
        });
        audit.checkpoint(0); // tests change the database's file
        directory
    }

    /// A connection as an attacker would open it.
    pub(in crate::audit) fn raw(&self) -> Connection {
        Connection::open(self.database()).unwrap()
    }

    pub(in crate::audit) fn tamper(&self, sql: &str) {
        self.raw().execute_batch(sql).unwrap();
    }

    pub(in crate::audit) fn verdict(&self) -> Verdict {
        verify(
            &self.database(),
            Some(&self.signer.public_key()),
            None,
            &mut |_, _| {},
        )
        .unwrap()
    }

    pub(in crate::audit) fn assert_whole(&self, records: u64) {
        let verdict = self.verdict();
        assert_eq!((verdict.bad, verdict.records), (None, records));
    }

    pub(in crate::audit) fn assert_bad(&self, seq: u64, what: Fault) {
        let bad = self.verdict().bad.unwrap();
        assert_eq!((bad.seq, bad.what), (seq, what));
    }

    /// The damaged files that were moved aside.
    pub(in crate::audit) fn aside(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.path)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        entries
            .filter(|path| path.to_string_lossy().ends_with(".damaged.db"))
            .collect()
    }
}

pub(in crate::audit) fn entry(number: u64) -> Entry {
    Entry {
        action: Action::ToolCalled,
        outcome: Outcome::Ok,
        namespace: "default".to_owned(),
        execution_id: None,
        caller: "caller".to_owned(),
        details: Map::from_iter([("number".to_owned(), Value::from(number))]),
    }
}
