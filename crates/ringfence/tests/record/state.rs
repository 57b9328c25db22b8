//! A state directory of one test: servers are started on it, and their files are read directly.

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
    /// The path of the directory for its servers.
    server_path: PathBuf,
    variables: Vec<(String, String)>,
    /// Command that wraps each server, such as `nsenter ...`.
    wrapper: Vec<String>,
}

impl State {
    pub fn new(name: &str) -> Self {
        let directory = TempDir::new(&format!("record-{name}"));
        let path = directory.0.join("state");
        Self {
            _directory: Some(directory),
            ..Self::with_wrapper(&[], path.clone(), path)
        }
    }

    /// A directory that is not removed on drop. Its servers are started through the command `wrapper`, and may
    /// see it under another path.
    pub fn with_wrapper(wrapper: &[&str], path: PathBuf, server_path: PathBuf) -> Self {
        Self {
            _directory: None,
            path,
            server_path,
            variables: Vec::new(),
            wrapper: wrapper.iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    pub fn with(mut self, variable: &str, value: &str) -> Self {
        self.variables.push((variable.to_owned(), value.to_owned()));
        self
    }

    /// Adds secrets of the default namespace.
    pub fn with_secrets<'a>(self, secrets: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let state = self.with("RINGFENCE_VAULT_STORE", "env");
        secrets.into_iter().fold(state, |state, (name, value)| {
            state.with(&format!("RINGFENCE_SECRET_DEFAULT_{name}"), value)
        })
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let plain = ringfence(words);
        let mut command = match self.wrapper.split_first() {
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
            .env("RINGFENCE_STATE_DIR", &self.server_path)
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    pub fn serve(&self) -> Agent {
        Agent::start(self.command(&["serve"])).initialize()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of the record, the artifacts and the signing key.
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

    /// Verifies the chain with the server's key.
    pub fn verdict(&self) -> Verdict {
        let key = self.signer().public_key();
        audit::verify(&self.database(), Some(&key), None, &mut |_, _| {}).unwrap()
    }

    /// Asserts that the chain is intact.
    pub fn assert_verifies(&self) -> Verdict {
        let verdict = self.verdict();
        assert_eq!(verdict.bad, None);
        verdict
    }

    /// True if nothing was recorded: there is no database, or a server was killed between creating the file and its
    /// first commit.
    pub fn is_blank(&self) -> bool {
        let database = self.database();
        let blank = |error: AuditError| error.to_string().contains("nothing was ever recorded in it");
        !database.exists() || audit::query(&database, &Query::default()).is_err_and(blank)
    }

    /// Returns all records, oldest first.
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

    /// Returns action and outcome of the records of one execution, such as `execution.started pending`.
    pub fn words_of(&self, execution_id: &str) -> Vec<String> {
        let records = self.records();
        let is_own = |record: &&Record| record.execution_id.as_deref() == Some(execution_id);
        records.iter().filter(is_own).map(words).collect()
    }

    /// Asserts that an artifact exists, and that a result describes it as the store does. The store checks digest and
    /// signature before it returns a byte.
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
        artifact
            .assert_fields(json!({"sha256": signed.sha256.as_str(), "signature": signed.signature.as_str()}));
        let (_, mut file) = store
            .read(id, &namespace, name)
            .unwrap()
            .unwrap_or_else(|| panic!("{id} has no {name}"));
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(artifact["size_bytes"], bytes.len() as u64);
    }

    /// Returns the paths and contents of all files in the directory.
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        files_below(&self.path)
    }
}

/// Returns action and outcome, such as `execution.started pending`.
pub fn words(record: &Record) -> String {
    format!("{} {}", record.action, record.outcome)
}

pub fn all_words(records: &[Record]) -> Vec<String> {
    records.iter().map(words).collect()
}

pub fn details(record: &Record) -> Value {
    serde_json::from_str(&record.details).unwrap()
}
