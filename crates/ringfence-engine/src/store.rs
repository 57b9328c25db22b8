//! Opens the stores that outlive a request: the signing key, the audit record, the vault, the artifacts. They are in
//! one directory that only this user may access.

use crate::{
    error::Result,
    record::{self, Record},
    settings::{EngineSettings, OnFailure, RecordSettings},
};
use ringfence_store::{
    Signer,
    artifacts::ArtifactStore,
    audit::{Audit, Storage},
    layers::Layers,
    make_own_directory,
    snapshots::SnapshotStore,
    vault::{Vault, VaultError, VaultSettings},
};
use ringfence_types::RequestError;
use std::{fmt::Display, path::PathBuf, sync::Arc};

pub(crate) struct Stores {
    pub(crate) record: Record,
    pub(crate) vault: Vault,
    pub(crate) artifacts: ArtifactStore,
    pub(crate) layers: Layers,
    pub(crate) snapshots: SnapshotStore,
}

const PACKAGES: &str = "packages";

/// Returns the directory of package layers, which exists once they have been opened.
pub(crate) fn layers(engine: &EngineSettings) -> PathBuf {
    Layers::below(&engine.state_dir.join(PACKAGES))
}

pub(crate) fn open(engine: &EngineSettings, server_id: &str) -> Result<Stores> {
    let settings = &engine.record;
    make_own_directory(&settings.directory).map_err(|error| {
        let directory = settings.directory.display();
        fault(format_args!("the directory {directory} cannot be used: {error}"))
    })?;
    let signer = Signer::load_or_create(&settings.signing_key()).map_err(fault)?;
    let record = open_record(settings, &signer, server_id)?;
    let vault = Vault::open(settings.vault.clone()).map_err(|error| {
        let hint = match &error {
            VaultError::File(_) => "Correct `vault.path` and `vault.key_file`, or let this user write there.",
            VaultError::Variable { .. } | VaultError::VariablesDisagree { .. } => "Correct or unset it.",
            _ => "`vault.key_file` or RINGFENCE_VAULT_PASSPHRASE must be that of the vault at `vault.path`.",
        };
        RequestError::store_fault(format!("{error}."), hint)
    })?;
    // Other processes may put secrets into a vault file while this server runs.
    if !vault.is_empty() || matches!(settings.vault, VaultSettings::File { .. }) {
        ringfence_jail::hide_memory()
            .map_err(|error| fault(format!("the vault's memory cannot be hidden: {error}")))?;
    }
    let layers = Layers::open(engine.state_dir.join(PACKAGES), signer.clone()).map_err(fault)?;
    let snapshots =
        SnapshotStore::open(settings.snapshots(), signer.clone(), settings.snapshots).map_err(fault)?;
    let artifacts = ArtifactStore::open(settings.artifacts(), signer, settings.retention).map_err(fault)?;
    Ok(Stores {
        record,
        vault,
        artifacts,
        layers,
        snapshots,
    })
}

/// Opens the record. If that fails the server does not start, unless the operator has chosen `audit.on_failure: warn`:
/// then the record is kept in memory, and the log says so as an error.
fn open_record(settings: &RecordSettings, signer: &Signer, server_id: &str) -> Result<Record> {
    let audit = &settings.audit;
    let open =
        |storage: Storage| Audit::open(storage, audit.durability, signer.clone(), server_id.to_owned());
    let opened = open(audit.place.clone()).or_else(|error| match audit.on_failure {
        OnFailure::Deny => Err(record::unavailable(error)),
        OnFailure::Warn => {
            tracing::error!(%error, "NOT ON RECORD: the audit record cannot be opened, and audit.on_failure is warn; it is kept in memory");
            open(Storage::Memory).map_err(record::unavailable)
        }
    });
    let opened = opened?;
    opened.set_keep(audit.keep);
    if let Err(error) = opened.tidy_now() {
        tracing::error!(%error, "the audit record could not be shortened");
    }
    Ok(Record::new(opened, audit.on_failure))
}

pub(crate) fn fault(why: impl Display) -> RequestError {
    RequestError::store_fault(
        format!("{why}."),
        "Set `state_dir` (RINGFENCE_STATE_DIR) to a directory that this user alone may write, with room.",
    )
}

/// Runs blocking work on one of the runtime's blocking threads.
pub(crate) async fn blocking<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(act).await;
    done.map_err(fault)
}

/// Removes artifacts that are too old or too many, if a sweep is due.
pub(crate) fn sweep_when_due(artifacts: &Arc<ArtifactStore>) {
    if !artifacts.sweep_is_due() {
        return;
    }
    let artifacts = artifacts.clone();
    tokio::task::spawn_blocking(move || sweep(&artifacts));
}

pub(crate) fn sweep(artifacts: &ArtifactStore) {
    match artifacts.sweep() {
        Ok(swept) => tracing::info!(?swept, "artifacts"),
        Err(error) => tracing::error!(%error, "artifacts that are too old or too many could not be removed"),
    }
}
