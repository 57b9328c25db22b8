//! A state directory of a test's own: servers are started on it, and what they wrote is read from it, past the server.

use super::agent::Agent;
use crate::client::*;
use ringfence_store::{
    Signer,
    artifacts::{ArtifactStore, Retention},
    audit::{self, AuditError, Query, Record, Verdict},
};
use ringfence_types::Namespace;
use std::{
    io::Read,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

pub struct State {
    _directory: Option<TempDir>,
    path: PathBuf,
    /// The same as its servers call it.
    theirs: PathBuf,
    variables: Vec<(String, String)>,
    /// What stands before the command, as `nsenter ...`.
    before: Vec<String>,
}

impl State {
    pub fn new(name: &str) -> Self {
        let directory = TempDir::new(&format!("record-{name}"));
        let path = directory.0.join("state");
        Self {
            _directory: Some(directory),
            ..Self::behind(&[], path.clone(), path)
        }
    }

    /// One that somebody else removes. Its servers are started through a command that takes another as its words, and
    /// may call it by another name.
    pub fn behind(before: &[&str], path: PathBuf, theirs: PathBuf) -> Self {
        Self {
            _directory: None,
            path,
            theirs,
            variables: Vec::new(),
            before: before.iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    pub fn with(mut self, variable: &str, value: &str) -> Self {
        self.variables.push((variable.to_owned(), value.to_owned()));
        self
    }

    /// Secrets of the default namespace.
    pub fn with_secrets<'a>(self, secrets: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let state = self.with("RINGFENCE_VAULT_STORE", "env");
        secrets.into_iter().fold(state, |state, (name, value)| {
            state.with(&format!("RINGFENCE_SECRET_DEFAULT_{name}"), value)
        })
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let plain = ringfence(words);
        let mut command = match self.before.split_first() {
            None => plain,
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(plain.get_program()).args(plain.get_args());
                command
                    .env_clear()
                    .env("PATH", "/usr/bin:/bin")
                    .env("HOME", "/nonexistent");
                command
            }
        };
        command
            .env("RINGFENCE_STATE_DIR", &self.theirs)
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    pub fn serve(&self) -> Agent {
        Agent::start(self.command(&["serve"])).greet()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where everything lies that outlives a server.
    pub fn record(&self) -> PathBuf {
        self.path.join("record")
    }

    pub fn database(&self) -> PathBuf {
        self.record().join("audit.db")
    }

    fn signer(&self) -> Signer {
        let path = self.record().join("signing.key");
        assert!(path.exists(), "the server has made its key");
        Signer::load_or_create(&path).unwrap()
    }

    /// Walks the chain with the server's key.
    pub fn verdict(&self) -> Verdict {
        let key = self.signer().public_key();
        audit::verify(&self.database(), Some(&key), None, &mut |_, _| {}).unwrap()
    }

    /// The chain is whole.
    pub fn assert_verifies(&self) -> Verdict {
        let verdict = self.verdict();
        assert_eq!(verdict.bad, None);
        verdict
    }

    /// No record was begun: there is no database, or a server was killed between making the file and its first commit.
    pub fn is_blank(&self) -> bool {
        let database = self.database();
        let blank = |error: AuditError| error.to_string().contains("nothing was ever recorded in it");
        !database.exists() || audit::query(&database, &Query::default()).is_err_and(blank)
    }

    /// All records, oldest first.
    pub fn records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        let mut next = Some(Query {
            limit: 10_000,
            ..Query::default()
        });
        while let Some(query) = next {
            let page = audit::query(&self.database(), &query).unwrap();
            records.extend(page.records);
            next = page.next;
        }
        records
    }

    /// Records of one execution, as `execution.started pending`.
    pub fn words_of(&self, execution_id: &str) -> Vec<String> {
        let records = self.records();
        let is_own = |record: &&Record| record.execution_id.as_deref() == Some(execution_id);
        records.iter().filter(is_own).map(words).collect()
    }

    /// An artifact, whose digest and signature the store checks before it gives a byte; a result's words about it must
    /// be the store's.
    pub fn assert_artifact(&self, result: &Value, artifact: &Value) {
        let year = Duration::from_secs(365 * 24 * 60 * 60);
        let retention = Retention {
            age: year,
            bytes: u64::MAX,
        };
        let store = ArtifactStore::open(self.record().join("artifacts"), self.signer(), retention).unwrap();
        let id = text_of(&result["execution_id"]);
        let name = text_of(&artifact["name"]);
        let namespace = Namespace::try_from(text_of(&result["namespace"]).to_owned()).unwrap();
        let manifest = store
            .manifest(id, &namespace)
            .unwrap()
            .unwrap_or_else(|| panic!("{id} has no manifest"));
        let signed = manifest.artifacts.iter().find(|item| item.name == name).unwrap();
        artifact.shows(json!({"sha256": signed.sha256.as_str(), "signature": signed.signature.as_str()}));
        let (_, mut file) = store
            .read(id, &namespace, name)
            .unwrap()
            .unwrap_or_else(|| panic!("{id} has no {name}"));
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(artifact["size_bytes"], bytes.len() as u64);
    }

    /// Names and contents of everything below it.
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        files_below(&self.path)
    }
}

/// `execution.started pending`.
pub fn words(record: &Record) -> String {
    format!("{} {}", record.action, record.outcome)
}

pub fn all_words(records: &[Record]) -> Vec<String> {
    records.iter().map(words).collect()
}

pub fn details(record: &Record) -> Value {
    serde_json::from_str(&record.details).unwrap()
}
