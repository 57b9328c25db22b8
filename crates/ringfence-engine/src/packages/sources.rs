//! Where packages come from, as the operator's own configuration of pip and npm says it. What is in here reaches the
//! installer's sandbox and nothing else: no record, no log, no output, no layer.

use ringfence_redact::{Forms, Personal, Redactor};
use std::{fmt, path::PathBuf};
use zeroize::Zeroizing;

/// The operator's indexes and the way to them.
#[derive(Clone, Default)]
pub struct PackageSources {
    /// Lines of the section `[global]` of pip's configuration: names and values, each one line.
    pub pip: Vec<(String, Zeroizing<String>)>,
    /// Lines of npm's configuration.
    pub npm: Vec<(String, Zeroizing<String>)>,
    /// `https_proxy` and the like.
    pub proxies: Vec<(String, Zeroizing<String>)>,
    /// Certificates that pip's index is checked against, in PEM.
    pub pip_certificates: Option<Zeroizing<Vec<u8>>>,
    /// Certificates that npm's registry is checked against.
    pub npm_certificates: Option<Zeroizing<Vec<u8>>>,
    /// pip's own certificate and key, in PEM.
    pub client_certificate: Option<Zeroizing<Vec<u8>>>,
    /// Directories of the host that hold wheels; they are shown at the same place.
    pub wheel_directories: Vec<PathBuf>,
    /// What nobody may see.
    pub secrets: Vec<Zeroizing<String>>,
}

impl PackageSources {
    /// Takes the secrets out.
    pub(super) fn redactor(&self, personal: Personal) -> Redactor {
        Redactor::new(
            self.secrets.iter().map(|secret| secret.as_str()),
            Forms::All,
            personal,
        )
    }
}

/// Names only.
impl fmt::Debug for PackageSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |lines: &[(String, Zeroizing<String>)]| -> Vec<String> {
            lines.iter().map(|(name, _)| name.clone()).collect()
        };
        f.debug_struct("PackageSources")
            .field("pip", &names(&self.pip))
            .field("npm", &names(&self.npm))
            .field("proxies", &names(&self.proxies))
            .field("wheel_directories", &self.wheel_directories)
            .finish_non_exhaustive()
    }
}
