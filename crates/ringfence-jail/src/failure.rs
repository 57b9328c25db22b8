//! The failure of a set-up step: the name of the step, and the kernel's error.

use serde::{Deserialize, Serialize};
use std::io;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{step}: {detail}")]
#[serde(deny_unknown_fields)]
pub struct Failure {
    pub step: String,
    pub errno: i32,
    pub detail: String,
}

impl Failure {
    pub fn new(step: impl Into<String>, error: &io::Error) -> Self {
        Self {
            step: step.into(),
            errno: error.raw_os_error().unwrap_or(0),
            detail: error.to_string(),
        }
    }

    /// Not an error of the kernel.
    pub fn other(step: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            step: step.into(),
            errno: 0,
            detail: detail.into(),
        }
    }
}

pub(crate) type StepResult<T> = Result<T, Failure>;

pub(crate) fn step<T>(name: impl Into<String>, result: io::Result<T>) -> StepResult<T> {
    result.map_err(|error| Failure::new(name, &error))
}
