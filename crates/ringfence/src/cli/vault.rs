//! `ringfence vault`: secrets by name. A file vault is changed here, whether a server runs or not: its lock keeps all
//! of them in step. A vault in memory is a server's.

use super::{
    CommandResult, Context, fault,
    live::{self, Ask},
    secret,
};
use crate::{
    control::{self, Request},
    render, time,
};
use clap::{Args, Subcommand};
use ringfence_engine::{Caller, EngineSettings, RecordSettings, SHORTEST_SECRET};
use ringfence_store::{
    audit::Storage,
    vault::{Vault, VaultSettings},
};
use ringfence_types::{ErrorCode, Namespace, RequestError};
use serde_json::{Value, json};
use std::{path::PathBuf, time::Duration};

#[derive(Debug, Subcommand)]
pub(super) enum VaultAction {
    /// Keep a secret; its value is asked for, or read from standard input
    Add(Add),
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
pub(super) struct Add {
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
}

#[derive(Debug, Args)]
pub(super) struct Of {
    /// Namespace that it belongs to
    #[arg(long, value_name = "NAME", default_value = "default")]
    namespace: Namespace,
    #[command(flatten)]
    ask: Ask,
}

pub(super) fn ttl(text: &str) -> Result<Duration, String> {
    let length = time::length(text).and_then(|length| Duration::try_from(length).ok());
    length
        .filter(|length| !length.is_zero())
        .ok_or_else(|| "write a length of time as 90s, 15m, 2h or 7d".to_owned())
}

pub(super) fn vault(context: &Context, action: VaultAction) -> CommandResult {
    perform(context, action).map_err(|mut error| {
        // There is no server: a secret that is not there is no error.
        if error.code == ErrorCode::NotFound {
            error.hint += " Secrets that need no server are those of `vault.store: file`.";
        }
        error
    })
}

fn perform(context: &Context, action: VaultAction) -> CommandResult {
    let config = context.begin()?;
    let record = &config.engine.record;
    match action {
        VaultAction::Add(add) => perform_add(context, &config.engine, add),
        VaultAction::List(of) if of.is_here(record) => list_here(context, record, &of),
        VaultAction::List(of) => {
            let namespace = of.namespace;
            live::all(context, &of.ask, &Request::VaultList { namespace })
        }
        VaultAction::Delete { key, of } => {
            let key = secret::name(&key)?;
            refuse_environment(record)?;
            let namespace = of.namespace.clone();
            change(context, &config.engine, &of, || {
                Ok(Request::VaultDelete { namespace, key })
            })
        }
    }
}

impl Of {
    /// Whether it is about a vault that needs no server: unless one is meant by its number.
    fn is_here(&self, record: &RecordSettings) -> bool {
        matches!(record.vault, VaultSettings::File { .. }) && self.ask.server.is_none()
    }
}

fn perform_add(context: &Context, settings: &EngineSettings, add: Add) -> CommandResult {
    let Add { of, ttl, file, .. } = add;
    let key = secret::name(&add.key)?;
    if add.value.is_some() {
        return Err(secret::on_the_command_line(key.as_str()));
    }
    refuse_environment(&settings.record)?;
    let namespace = of.namespace.clone();
    change(context, settings, &of, || {
        ringfence_jail::hide_memory().map_err(|error| fault("hide the memory of this process", &error))?;
        let value = secret::value(context.terminal, file.as_deref(), &key)?;
        if value.len() < SHORTEST_SECRET {
            context.terminal.dim(&format!(
                "warning: {} has fewer than {SHORTEST_SECRET} bytes, too few to be found in what a program prints",
                key.as_str()
            ));
        }
        Ok(Request::VaultPut {
            namespace,
            key,
            value: control::Value(value),
            ttl_seconds: ttl.map(|ttl| ttl.as_secs()),
        })
    })
}

fn refuse_environment(record: &RecordSettings) -> Result<(), RequestError> {
    match record.vault {
        VaultSettings::Environment(_) => Err(RequestError::denied(
            "the vault is the server's environment (`vault.store: env`), which cannot be changed.",
            "Set RINGFENCE_SECRET_{NAMESPACE}_{KEY} where the server is started, or use another `vault.store`.",
        )),
        VaultSettings::Memory | VaultSettings::File { .. } => Ok(()),
    }
}

pub(super) fn warn_if_unrecorded(context: &Context, record: &RecordSettings) {
    if record.audit.place == Storage::Memory {
        let why = "not on record: the audit record is kept in a server's memory";
        context.terminal.dim(why);
    }
}

/// By an engine of our own, on record before and after as a server does it, or by the server that has the vault. What
/// is asked for is made when there is one to ask: before that a secret would be typed in vain.
fn change(
    context: &Context,
    settings: &EngineSettings,
    of: &Of,
    asked: impl FnOnce() -> Result<Request, RequestError>,
) -> CommandResult {
    if of.is_here(&settings.record) {
        warn_if_unrecorded(context, &settings.record);
        let changed = live::with_engine(settings.clone(), async |engine| {
            control::perform(engine, &Caller::new("cli"), asked()?).await
        })?;
        return context.show(of.ask.json, &changed);
    }
    let server = live::wait(control::expect_one(&settings.state_dir, of.ask.server))?;
    let ask = Ask {
        server: Some(server),
        json: of.ask.json,
    };
    live::one_of(context, &settings.state_dir, &ask, &asked()?)
}

/// In the form of servers' answers, for a script that does not care where secrets are.
fn list_here(context: &Context, record: &RecordSettings, of: &Of) -> CommandResult {
    // Looking makes nothing.
    let is_there = matches!(&record.vault, VaultSettings::File { path, .. } if path.exists());
    let entries = if is_there {
        let listed = Vault::open(record.vault.clone()).and_then(|vault| vault.list(&of.namespace));
        listed.map_err(|error| {
            RequestError::store_fault(
                format!("{error}."),
                "`ringfence config show` says where the vault and its key are.",
            )
        })?
    } else {
        Vec::new()
    };
    let mut shown = render::secrets(&of.namespace, "file", &entries);
    shown.facts["pid"] = Value::Null;
    shown.facts = json!({"servers": [shown.facts]});
    context.show(of.ask.json, &shown)
}
