//! Severity of a Python finding under each profile.

use ringfence_types::{Profile, Severity};
use serde::Deserialize;

/// Weight of a finding, which gives its severity under the profile `strict` and under the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Weight {
    /// Ordinary: informational, and not a finding under `strict`.
    Usual,
    /// Ordinary: informational, and a warning under `strict`.
    Noted,
    /// Ordinary, but a way around the rules: informational, and an error under `strict`.
    Suspect,
    /// Rare in ordinary programs: a warning.
    Warned,
    /// Rare in ordinary programs, and a way around the rules: a warning, and an error under `strict`.
    Grave,
    /// A warning under `strict` alone.
    StrictWarning,
    /// An error under `strict` alone.
    StrictError,
}

impl Weight {
    pub(super) fn under(self, profile: Profile) -> Option<Severity> {
        let is_strict = profile == Profile::Strict;
        match self {
            Self::Usual => (!is_strict).then_some(Severity::Info),
            Self::Noted if !is_strict => Some(Severity::Info),
            Self::Suspect if !is_strict => Some(Severity::Info),
            Self::Noted | Self::Warned => Some(Severity::Warning),
            Self::Grave if !is_strict => Some(Severity::Warning),
            Self::Suspect | Self::Grave => Some(Severity::Error),
            Self::StrictWarning => is_strict.then_some(Severity::Warning),
            Self::StrictError => is_strict.then_some(Severity::Error),
        }
    }
}
