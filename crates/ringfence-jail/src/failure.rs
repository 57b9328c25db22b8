//! How a set-up fails: the step that the kernel refused, and its error.

use serde::{Deserialize, Serialize};
use std::{fmt, io};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.detail)
    }
}

impl std::error::Error for Failure {}

pub(crate) type StepResult<T> = Result<T, Failure>;

pub(crate) fn step<T>(name: impl Into<String>, result: io::Result<T>) -> StepResult<T> {
    result.map_err(|error| Failure::new(name, &error))
}
