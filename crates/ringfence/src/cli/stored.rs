//! The signing key and the artifacts in the state directory, opened without a server. What is missing is not created.

use ringfence_engine::RecordSettings;
use ringfence_store::{
    Signer,
    artifacts::{ArtifactError, ArtifactStore, Manifest, verify_manifest},
};
use ringfence_types::{Namespace, RequestError};
use std::path::Path;

pub(super) fn signer(record: &RecordSettings) -> Result<Signer, RequestError> {
    let path = record.signing_key();
    let found = Signer::load_existing(&path).map_err(|error| {
        RequestError::store_fault(
            format!("{error}."),
            "Run the command as the user who runs the server.",
        )
    })?;
    found.ok_or_else(|| {
        RequestError::not_found(
            format!("there is no signing key at {}.", path.display()),
            "The first run or server makes it; RINGFENCE_STATE_DIR names another state directory.",
        )
    })
}

/// False if nothing is there; what cannot be looked at is an error.
pub(super) fn is_there(path: &Path) -> Result<bool, RequestError> {
    let failed = |error| format!("{} cannot be read: {error}.", path.display());
    let found = path.try_exists().map_err(failed);
    found.map_err(|what| RequestError::store_fault(what, "Run the command as the user who runs the server."))
}

pub(super) fn artifacts(record: &RecordSettings) -> Result<Option<ArtifactStore>, RequestError> {
    let directory = record.artifacts();
    if !is_there(&directory)? {
        return Ok(None);
    }
    let opened = ArtifactStore::open(directory, signer(record)?, record.retention);
    opened.map(Some).map_err(|error| unread(&error))
}

/// Returns the artifact store and an execution's manifest, after a check of its signature.
pub(super) fn manifest(
    record: &RecordSettings,
    id: &str,
    namespace: &Namespace,
) -> Result<(ArtifactStore, Manifest), RequestError> {
    // The same answer if the execution belongs to another namespace.
    let none = || {
        let id: String = id.chars().take(64).collect();
        RequestError::not_found(
            format!("there are no artifacts of `{id}` in the namespace {namespace}."),
            "`ringfence artifacts` lists executions that have some; old ones are removed (`artifacts.keep_days`).",
        )
    };
    let store = artifacts(record)?.ok_or_else(none)?;
    let manifest = store.manifest(id, namespace).map_err(|error| unread(&error))?;
    let manifest = manifest.ok_or_else(none)?;
    verify_manifest(&manifest, Some(&signer(record)?.public_key())).map_err(|what| {
        RequestError::store_fault(
            format!("the artifacts of {id} are not what was signed: {what}."),
            "Do not use them.",
        )
    })?;
    Ok((store, manifest))
}

pub(super) fn unread(error: &ArtifactError) -> RequestError {
    RequestError::store_fault(
        format!("{error}."),
        "Run the command as the user who runs the server; damaged artifacts are not returned.",
    )
}
