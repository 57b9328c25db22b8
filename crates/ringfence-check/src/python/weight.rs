//! How bad a finding of Python is under each profile.

use ringfence_types::{Profile, Severity};
use serde::Deserialize;

/// How bad a finding is: as a rule, and under the profile `strict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Weight {
    /// Ordinary, and nothing under `strict`.
    Usual,
    /// Ordinary where the profile is not `strict`.
    Noted,
    /// Ordinary, but a way around the rules.
    Suspect,
    /// Few ordinary programs do it.
    Warned,
    /// Few ordinary programs do it, and it is a way around the rules.
    Grave,
    /// Only `strict` speaks of it.
    StrictWarning,
    /// Only `strict` forbids it.
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
