//! What was found of a script that runs, on stderr beside its output.

use super::hints;
use crate::{
    render::diagnostics::{self, Bounds},
    terminal::Terminal,
};
use ringfence_types::{ExecuteRequest, Validate, Validation};
use std::path::Path;

/// A script that is looked at: what the frames are made of.
#[derive(Clone, Debug)]
pub(super) struct Source {
    name: String,
    code: String,
}

impl Source {
    /// None: the code is not checked.
    pub(super) fn of(request: &ExecuteRequest, script: &Path) -> Option<Self> {
        (request.validate != Validate::Off).then(|| Self {
            name: script.to_string_lossy().into_owned(),
            code: request.code.clone(),
        })
    }

    /// Warnings and errors; notes are for `ringfence validate`.
    pub(super) fn tell(&self, terminal: Terminal, found: &Validation) {
        let found = &hints::found_in_commands(found.clone());
        let frames = diagnostics::of_code(&self.name, &self.code, found, Bounds::BESIDE);
        if !frames.is_empty() {
            terminal.note_painting(&frames);
        }
        if !found.fixes_applied.is_empty() {
            terminal.dim(&format!(
                "added to the script: {}",
                found.fixes_applied.join("; ")
            ));
        }
    }
}
