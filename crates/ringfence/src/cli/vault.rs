//! `ringfence vault`: secrets by name. A file vault is changed here, with or without a running server: its lock
//! serialises all writers. A vault in memory is changed by its server.

use super::{
    CommandResult, Context, fault,
    live::{self, Options},
    secret, stored,
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
    /// Store a secret; its value is asked for, or read from standard input
    Add(Add),
    /// Show the names of secrets
    List(Target),
    /// Delete a secret
    Delete {
        /// Name of the secret
        key: String,
        #[command(flatten)]
        target: Target,
    },
}

#[derive(Debug, Args)]
pub(super) struct Add {
    /// Name of the secret, and of its variable in the sandbox
    key: String,
    /// Refused: every process of the host may read it here
    #[arg(hide = true)]
    value: Option<String>,
    #[command(flatten)]
    target: Target,
    /// Lifetime, such as 15m, 2h or 7d; a number alone is seconds
    #[arg(long, value_name = "LENGTH", value_parser = ttl)]
    ttl: Option<Duration>,
    /// Read the value from this file
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Target {
    /// Namespace that it belongs to
    #[arg(long, value_name = "NAME", default_value = "default")]
    namespace: Namespace,
    #[command(flatten)]
    opts: Options,
}

pub(super) fn ttl(text: &str) -> Result<Duration, String> {
    let length = time::length(text).and_then(|length| Duration::try_from(length).ok());
    length
        .filter(|length| !length.is_zero())
        .ok_or_else(|| "write a length of time above 0 as 90s, 15m, 2h or 7d".to_owned())
}

pub(super) fn vault(context: &Context, action: VaultAction) -> CommandResult {
    perform(context, action).map_err(|mut error| {
        // `not_found` means that no server runs: a missing secret is not an error.
        if error.code == ErrorCode::NotFound {
            error.hint += " With `vault.store: file` no server is needed.";
        }
        error
    })
}

fn perform(context: &Context, action: VaultAction) -> CommandResult {
    let config = context.begin()?;
    let record = &config.engine.record;
    match action {
        VaultAction::Add(add) => perform_add(context, &config.engine, add),
        VaultAction::List(target) if target.is_file(record) => list_file(context, record, &target),
        VaultAction::List(target) => {
            let namespace = target.namespace;
            live::all(context, &target.opts, &Request::VaultList { namespace })
        }
        VaultAction::Delete { key, target } => {
            let key = secret::name(&key)?;
            refuse_environment(record)?;
            let namespace = target.namespace.clone();
            change(context, &config.engine, &target, || {
                Ok(Request::VaultDelete { namespace, key })
            })
        }
    }
}

impl Target {
    /// True if the vault is a file and `--server` names no server.
    fn is_file(&self, record: &RecordSettings) -> bool {
        matches!(record.vault, VaultSettings::File { .. }) && self.opts.server.is_none()
    }
}

fn perform_add(context: &Context, settings: &EngineSettings, add: Add) -> CommandResult {
    let (target, ttl, file) = (add.target, add.ttl, add.file);
    let key = secret::name(&add.key)?;
    if add.value.is_some() {
        return Err(secret::value_on_command_line(key.as_str()));
    }
    refuse_environment(&settings.record)?;
    let namespace = target.namespace.clone();
    let code = change(context, settings, &target, || {
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
    })?;
    if let Some(ttl) = ttl.filter(|_| !target.opts.json) {
        let until = (time::now_milliseconds() / 1000).saturating_add(ttl.as_secs());
        context
            .terminal
            .dim(&format!("it expires at {}", time::write_seconds(until)));
    }
    Ok(code)
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

/// Changes a file vault with an engine of our own, recorded before and after as a server does, or asks the server that
/// has the vault. The request is made once there is one to perform it: before that a secret would be typed in vain.
fn change(
    context: &Context,
    settings: &EngineSettings,
    target: &Target,
    make_request: impl FnOnce() -> Result<Request, RequestError>,
) -> CommandResult {
    if target.is_file(&settings.record) {
        warn_if_unrecorded(context, &settings.record);
        let changed = live::with_engine(settings.clone(), async |engine| {
            control::perform(engine, &Caller::new("cli"), make_request()?).await
        })?;
        return context.show(target.opts.json, &changed);
    }
    let server = live::wait(control::expect_one(&settings.state_dir, target.opts.server))?;
    let opts = Options {
        server: Some(server),
        json: target.opts.json,
    };
    live::one_of(context, &settings.state_dir, &opts, &make_request()?)
}

/// Lists a file vault in the form of servers' answers, so that scripts need not know where secrets are.
fn list_file(context: &Context, record: &RecordSettings, target: &Target) -> CommandResult {
    // Listing does not create a vault.
    let is_there = match &record.vault {
        VaultSettings::File { path, .. } => stored::is_there(path)?,
        _ => false,
    };
    let entries = if is_there {
        let listed = Vault::open(record.vault.clone()).and_then(|vault| vault.list(&target.namespace));
        listed.map_err(|error| {
            RequestError::store_fault(
                format!("{error}."),
                "`ringfence config show` says where the vault and its key are.",
            )
        })?
    } else {
        Vec::new()
    };
    let mut shown = render::secrets(&target.namespace, "file", &entries);
    shown.facts["pid"] = Value::Null;
    shown.facts = json!({"servers": [shown.facts]});
    context.show(target.opts.json, &shown)
}
