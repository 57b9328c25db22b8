//! Signatures of access tokens, checked with the cryptography that TLS has already. Only algorithms with a public key
//! are here: a token that is "signed" with a public key as a shared secret, or not at all, finds no verifier.

use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind,
    crypto::{CryptoProvider, JwtVerifier, KeyUtils},
    errors::{ErrorKind, Result},
    signature::{Error, Verifier},
};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};

/// What a token may be signed with.
pub(super) const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::InvalidAlgorithm.into()),
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// For the whole process; it may be called more than once.
pub(super) fn install() {
    if PROVIDER.install_default().is_err() {
        // The one that is there already is this one: no other code of this program checks tokens.
    }
}

enum Check {
    Rsa(&'static RsaParameters),
    Other(&'static dyn VerificationAlgorithm),
}

struct PublicKeyVerifier {
    algorithm: Algorithm,
    check: Check,
    key: DecodingKey,
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let check = match algorithm {
        Algorithm::ES256 => Check::Other(&ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Check::Other(&ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Check::Other(&ED25519),
        Algorithm::RS256 => Check::Rsa(&RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Check::Rsa(&RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Check::Rsa(&RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Check::Rsa(&RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Check::Rsa(&RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Check::Rsa(&RSA_PSS_2048_8192_SHA512),
        _ => return Err(ErrorKind::InvalidAlgorithm.into()),
    };
    if algorithm.family() != key.family() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(PublicKeyVerifier {
        algorithm: *algorithm,
        check,
        key: key.clone(),
    }))
}

impl Verifier<Vec<u8>> for PublicKeyVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let checked = match (&self.check, self.key.kind()) {
            (Check::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            (Check::Other(algorithm), DecodingKeyKind::SecretOrDer(key)) => {
                UnparsedPublicKey::new(*algorithm, key).verify(message, signature)
            }
            _ => return Err(Error::new()),
        };
        checked.map_err(|_| Error::new())
    }
}

impl JwtVerifier for PublicKeyVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
