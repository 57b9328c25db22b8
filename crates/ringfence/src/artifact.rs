//! Signing and verification of artifacts, the files that programs leave: without a sandbox, for their recipients.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ringfence_types::{Artifact, RequestError};
use std::io::{self, Read};

pub use ringfence_store::{
    Signer,
    artifacts::{Manifest, SignedItem, artifact_statement, digest, manifest_statement, verify_manifest},
};

/// Describes content as an artifact, signed as one of this execution.
pub fn sign(
    signer: &Signer,
    execution_id: &str,
    name: &str,
    mime: &str,
    content: impl Read,
) -> io::Result<Artifact> {
    let (sha256, size_bytes) = digest(content)?;
    let signature = signer.sign(&artifact_statement(execution_id, name, size_bytes, &sha256));
    Ok(Artifact {
        name: name.to_owned(),
        size_bytes,
        sha256,
        mime: mime.to_owned(),
        signature: Some(BASE64.encode(signature)),
        uri: None,
        content_b64: None,
    })
}

/// Checks that this is the content of the artifact, and that this key signed it as one of this execution. The signature
/// covers neither `mime` nor `uri`; that of the [`Manifest`] covers `mime`.
pub fn verify(
    artifact: &Artifact,
    execution_id: &str,
    content: impl Read,
    public_key: &[u8; 32],
) -> Result<(), RequestError> {
    let refused = |what: &str| {
        RequestError::invalid(
            format!("{:?} {what}.", artifact.name),
            "Fetch it again, and its manifest.",
        )
    };
    let (sha256, size_bytes) =
        digest(content).map_err(|error| refused(&format!("cannot be read: {error}")))?;
    if (&sha256, size_bytes) != (&artifact.sha256, artifact.size_bytes) {
        return Err(refused("has another content than was signed"));
    }
    let signature = artifact.signature.as_deref().unwrap_or_default();
    let signature = BASE64.decode(signature).unwrap_or_default();
    let statement = artifact_statement(execution_id, &artifact.name, size_bytes, &sha256);
    match ringfence_store::verify(public_key, &statement, &signature) {
        true => Ok(()),
        false => Err(refused("is not signed by this key as one of this execution")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signed_content_is_verified() {
        let signer = Signer::in_memory().unwrap();
        let key = signer.public_key();
        let signed = sign(&signer, "id-1", "a.txt", "text/plain", &b"content"[..]).unwrap();
        verify(&signed, "id-1", &b"content"[..], &key).unwrap();

        let refused = |artifact: &Artifact, id: &str, content: &[u8], key: &[u8; 32], why: &str| {
            let error = verify(artifact, id, content, key).unwrap_err();
            assert!(error.message.contains(why), "{error}");
        };
        refused(&signed, "id-1", b"content!", &key, "another content");
        refused(&signed, "id-2", b"content", &key, "not signed");
        let other = Signer::in_memory().unwrap().public_key();
        refused(&signed, "id-1", b"content", &other, "not signed");
        let renamed = Artifact {
            name: "b.txt".to_owned(),
            ..signed.clone()
        };
        refused(&renamed, "id-1", b"content", &key, "not signed");
        let bare = Artifact {
            signature: None,
            ..signed.clone()
        };
        refused(&bare, "id-1", b"content", &key, "not signed");
        let redone = sign(&signer, "id-1", "a.txt", "text/plain", &b"more"[..]).unwrap();
        let mixed = Artifact {
            signature: signed.signature,
            ..redone
        };
        refused(&mixed, "id-1", b"more", &key, "not signed");
    }
}
