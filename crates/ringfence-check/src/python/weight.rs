//! How severe a finding is under each profile.

use ringfence_types::{Profile, Severity};

/// How bad a finding is: as a rule, and under the profile `strict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weight {
    /// None: ordinary programs do it all the time, so nothing is said.
    pub(super) usual: Option<Severity>,
    pub(super) strict: Option<Severity>,
}

impl Weight {
    /// Ordinary where the profile is not `strict`.
    pub(super) const NOTED: Self = Self::of(Some(Severity::Info), Some(Severity::Warning));
    /// Ordinary, but a way around the rules.
    pub(super) const SUSPECT: Self = Self::of(Some(Severity::Info), Some(Severity::Error));
    /// Few ordinary programs do it.
    pub(super) const WARNED: Self = Self::of(Some(Severity::Warning), Some(Severity::Warning));
    /// Few ordinary programs do it, and it is a way around the rules.
    pub(super) const GRAVE: Self = Self::of(Some(Severity::Warning), Some(Severity::Error));
    /// Only `strict` speaks of it.
    pub(super) const STRICT_WARNING: Self = Self::of(None, Some(Severity::Warning));
    /// Only `strict` forbids it.
    pub(super) const STRICT_ERROR: Self = Self::of(None, Some(Severity::Error));

    pub(super) const fn of(usual: Option<Severity>, strict: Option<Severity>) -> Self {
        Self { usual, strict }
    }

    pub(super) fn under(self, profile: Profile) -> Option<Severity> {
        match profile {
            Profile::Strict => self.strict,
            _ => self.usual,
        }
    }
}
