//! `ringfence vault`: secrets by name. A file vault is changed here, whether a server runs or not: its lock keeps all
//! of them in step. A vault in memory is a server's.

use super::{
    Context, fault,
    live::{self, Ask},
    secret,
};
use crate::{
    control::{self, Request},
    render::{self, Change},
    time,
};
use clap::{Args, Subcommand};
use ringfence_engine::{OnFailure, RecordSettings, SHORTEST_SECRET};
use ringfence_store::{
    Signer,
    audit::{Action, Audit, Entry, Outcome, Storage},
    make_own_directory,
    vault::{SecretValue, Vault, VaultError, VaultSettings},
};
use ringfence_types::{EnvName, ErrorCode, Namespace, RequestError};
use serde_json::{Value, json};
use std::{path::PathBuf, process::ExitCode, time::Duration};

#[derive(Debug, Subcommand)]
pub(super) enum VaultAction {
    /// Keep a secret; its value is asked for, or read from standard input
    Add {
        /// Name of the secret, and of the variable inside
        key: String,
        /// Refused: every process of the host may read it here
        #[arg(hide = true)]
        value: Option<String>,
        #[command(flatten)]
        of: Of,
        /// Forget it after so long, as 15m, 2h or 7d
        #[arg(long, value_name = "LENGTH", value_parser = ttl)]
        ttl: Option<Duration>,
        /// Read the value from this file
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Show the names of secrets
    List(Of),
    /// Forget a secret
    Delete {
        /// Name of the secret
        key: String,
        #[command(flatten)]
        of: Of,
    },
}

#[derive(Debug, Args)]
pub(super) struct Of {
    /// Namespace that it belongs to
    #[arg(long, value_name = "NAME", default_value = "default")]
    namespace: Namespace,
    #[command(flatten)]
    ask: Ask,
}

fn ttl(text: &str) -> Result<Duration, String> {
    let length = time::length(text).and_then(|length| Duration::try_from(length).ok());
    length
        .filter(|length| !length.is_zero())
        .ok_or_else(|| "write a length of time as 90s, 15m, 2h or 7d".to_owned())
}

pub(super) fn vault(context: &Context, action: VaultAction) -> Result<ExitCode, RequestError> {
    perform(context, action).map_err(|mut error| {
        // There is no server: a secret that is not there is no error.
        if error.code == ErrorCode::NotFound {
            error.hint += " Secrets that need no server are those of `vault.store: file`.";
        }
        error
    })
}

fn perform(context: &Context, action: VaultAction) -> Result<ExitCode, RequestError> {
    let config = context.begin()?;
    let (record, state_dir) = (&config.engine.record, &config.engine.state_dir);
    // Unless a server is meant by its number.
    let is_here = |of: &Of| matches!(record.vault, VaultSettings::File { .. }) && of.ask.server.is_none();
    match action {
        VaultAction::Add {
            key,
            value,
            of,
            ttl,
            file,
        } => {
            let key = secret::name(&key)?;
            if value.is_some() {
                return Err(secret::on_the_command_line(key.as_str()));
            }
            refuse_environment(record)?;
            // Before anybody has typed it in vain.
            let server = if is_here(&of) {
                None
            } else {
                Some(live::expect_one(state_dir, &of.ask)?)
            };
            ringfence_jail::hide_memory()
                .map_err(|error| fault("hide the memory of this process", &error))?;
            let value = secret::value(context.terminal, file.as_deref(), &key)?;
            warn_if_short(context, &key, &value);
            let Some(server) = server else {
                return Stored { context, record }.put(&of, &key, value, ttl);
            };
            let ask = Ask {
                server: Some(server),
                ..of.ask
            };
            let request = Request::VaultPut {
                namespace: of.namespace,
                key: key.as_str().to_owned(),
                value: control::Value(value),
                ttl_seconds: ttl.map(|ttl| ttl.as_secs()),
            };
            live::one_of(context, state_dir, &ask, &request)
        }
        VaultAction::List(of) if is_here(&of) => Stored { context, record }.list(&of),
        VaultAction::List(of) => live::all(
            context,
            &of.ask,
            &Request::VaultList {
                namespace: of.namespace,
            },
        ),
        VaultAction::Delete { key, of } => {
            let key = secret::name(&key)?;
            refuse_environment(record)?;
            if is_here(&of) {
                return Stored { context, record }.delete(&of, &key);
            }
            let request = Request::VaultDelete {
                namespace: of.namespace,
                key: key.as_str().to_owned(),
            };
            live::one_of(context, state_dir, &of.ask, &request)
        }
    }
}

fn refuse_environment(record: &RecordSettings) -> Result<(), RequestError> {
    match record.vault {
        VaultSettings::Environment(_) => Err(RequestError::new(
            ErrorCode::PolicyDenied,
            "the vault is the server's environment (`vault.store: env`), which cannot be changed.",
            "Set RINGFENCE_SECRET_{NAMESPACE}_{KEY} where the server is started, or use another `vault.store`.",
        )),
        VaultSettings::Memory | VaultSettings::File { .. } => Ok(()),
    }
}

fn warn_if_short(context: &Context, key: &EnvName, value: &SecretValue) {
    if value.len() < SHORTEST_SECRET {
        context.terminal.dim(&format!(
            "warning: {} has fewer than {SHORTEST_SECRET} bytes, too few to be found in what a program prints",
            key.as_str()
        ));
    }
}

/// The vault and the record as they lie on the disk.
struct Stored<'a> {
    context: &'a Context,
    record: &'a RecordSettings,
}

impl Stored<'_> {
    fn put(
        &self,
        of: &Of,
        key: &EnvName,
        value: SecretValue,
        ttl: Option<Duration>,
    ) -> Result<ExitCode, RequestError> {
        let ttl_seconds = ttl.map(|ttl| ttl.as_secs());
        let details = json!({"secret": key.as_str(), "put": true, "ttl_seconds": ttl_seconds});
        let put = self.change(&of.namespace, &details, |vault| {
            vault.put(&of.namespace, key, value, ttl)
        })?;
        let change = if put.replaced {
            Change::Replaced
        } else {
            Change::Added
        };
        self.context
            .show(of.ask.json, &render::change(&of.namespace, key, change))
    }

    fn delete(&self, of: &Of, key: &EnvName) -> Result<ExitCode, RequestError> {
        let details = json!({"secret": key.as_str(), "deleted": true});
        let existed = self.change(&of.namespace, &details, |vault| vault.delete(&of.namespace, key))?;
        let change = if existed { Change::Deleted } else { Change::None };
        self.context
            .show(of.ask.json, &render::change(&of.namespace, key, change))
    }

    /// In the form of servers' answers, for a script that does not care where secrets are.
    fn list(&self, of: &Of) -> Result<ExitCode, RequestError> {
        // Looking makes nothing.
        let is_there = matches!(&self.record.vault, VaultSettings::File { path, .. } if path.exists());
        let entries = if is_there {
            let vault = self.open()?;
            vault.list(&of.namespace).map_err(refused)?
        } else {
            Vec::new()
        };
        let mut shown = render::secrets(&of.namespace, "file", &entries);
        shown.facts["pid"] = Value::Null;
        shown.facts = json!({"servers": [shown.facts]});
        self.context.show(of.ask.json, &shown)
    }

    /// On record before and after, as a server does it: no record, no change.
    fn change<T>(
        &self,
        namespace: &Namespace,
        details: &Value,
        step: impl FnOnce(&Vault) -> Result<T, VaultError>,
    ) -> Result<T, RequestError> {
        make_own_directory(&self.record.directory).map_err(|error| {
            unkept(format!(
                "the directory {} cannot be used: {error}",
                self.record.directory.display()
            ))
        })?;
        let audit = self.audit()?;
        let note = |outcome| self.note(audit.as_ref(), namespace, details, outcome);
        note(Outcome::Pending)?;
        let done = self.open().and_then(|vault| step(&vault).map_err(refused));
        note(if done.is_ok() {
            Outcome::Ok
        } else {
            Outcome::Failed
        })?;
        done
    }

    fn open(&self) -> Result<Vault, RequestError> {
        Vault::open(self.record.vault.clone()).map_err(refused)
    }

    /// None: the record is a server's memory, so that nothing which is done without one is on it.
    fn audit(&self) -> Result<Option<Audit>, RequestError> {
        let settings = &self.record.audit;
        if settings.place == Storage::Memory {
            self.context
                .terminal
                .dim("not on record: the audit record is kept in a server's memory");
            return Ok(None);
        }
        let signer =
            Signer::load_or_create(&self.record.signing_key()).map_err(|error| unkept(error.to_string()))?;
        let writer = format!("cli-{}", std::process::id());
        match Audit::open(settings.place.clone(), settings.durability, signer, writer) {
            Ok(audit) => Ok(Some(audit)),
            Err(error) => self.unrecorded(&error.to_string()).map(|()| None),
        }
    }

    fn note(
        &self,
        audit: Option<&Audit>,
        namespace: &Namespace,
        details: &Value,
        outcome: Outcome,
    ) -> Result<(), RequestError> {
        let Some(audit) = audit else { return Ok(()) };
        let written = audit.append_and_wait(Entry {
            action: Action::VaultChanged,
            outcome,
            namespace: namespace.to_string(),
            execution_id: None,
            caller: "cli".to_owned(),
            details: details.as_object().cloned().unwrap_or_default(),
        });
        match written {
            Ok(_) => Ok(()),
            Err(error) => self.unrecorded(&error.to_string()),
        }
    }

    /// What the operator says about a record that cannot be written.
    fn unrecorded(&self, error: &str) -> Result<(), RequestError> {
        match self.record.audit.on_failure {
            OnFailure::Deny => Err(RequestError::new(
                ErrorCode::AuditUnavailable,
                format!("the audit record cannot be written: {error}."),
                "Nothing is changed without a record: give its disk room; `ringfence audit verify` looks at it.",
            )),
            OnFailure::Warn => {
                self.context.terminal.dim(&format!("NOT ON RECORD: {error}"));
                Ok(())
            }
        }
    }
}

fn refused(error: VaultError) -> RequestError {
    unkept(error.to_string())
}

fn unkept(what: String) -> RequestError {
    RequestError::new(
        ErrorCode::StoreFault,
        format!("{what}."),
        "`ringfence config show` says where the vault and its key are.",
    )
}
