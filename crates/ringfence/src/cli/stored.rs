//! What lies in the state directory, opened without a server: the signing key and the artifacts. Looking makes nothing.

use ringfence_engine::RecordSettings;
use ringfence_store::{
    Signer,
    artifacts::{ArtifactError, ArtifactStore},
};
use ringfence_types::{ErrorCode, RequestError};

pub(super) fn signer(record: &RecordSettings) -> Result<Signer, RequestError> {
    let path = record.signing_key();
    let found = Signer::load_existing(&path).map_err(|error| {
        RequestError::new(
            ErrorCode::StoreFault,
            format!("{error}."),
            "Run the command as the user who runs the server.",
        )
    })?;
    found.ok_or_else(|| {
        RequestError::new(
            ErrorCode::NotFound,
            format!("there is no signing key at {}.", path.display()),
            "A server makes it when it starts; name its state directory: RINGFENCE_STATE_DIR.",
        )
    })
}

/// The artifacts; none: nothing was ever kept here.
pub(super) fn artifacts(record: &RecordSettings) -> Result<Option<ArtifactStore>, RequestError> {
    let directory = record.artifacts();
    if !directory.exists() {
        return Ok(None);
    }
    let opened = ArtifactStore::open(directory, signer(record)?, record.retention);
    opened.map(Some).map_err(|error| unread(&error))
}

pub(super) fn unread(error: &ArtifactError) -> RequestError {
    RequestError::new(
        ErrorCode::StoreFault,
        format!("{error}."),
        "Run the command as the user who runs the server; what is damaged is not given out.",
    )
}
