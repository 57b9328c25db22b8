//! Code that is ready for its interpreter, and how that is started with it.

use super::{
    Checks, Go, Launch, ProgramReport, Script, by_name, launch, read_report,
    session::launch as session_launch, word,
};
use ringfence_types::{Argument, ExecuteRequest, Language, ProgramError};
use std::path::Path;

/// Code that is ready for its interpreter.
pub(crate) struct Prepared {
    pub(crate) name: String,
    pub(crate) script: String,
    pub(crate) module: bool,
    /// The parser's objection to TypeScript; Node is then started on a line that fails as the code would.
    pub(crate) error: Option<ProgramError>,
    /// It is an interpreter that waits for calls.
    pub(crate) session: bool,
    /// What it gets beside the code.
    pub(crate) checks: Option<Checks>,
}

/// What stands for the code of a session, which comes later.
pub(crate) const SESSION: &str = "session";

impl Prepared {
    /// File name below the code directory. Node takes a file for a module by its ending.
    pub(crate) fn name(&self) -> String {
        if self.module {
            format!("{}.mjs", self.name)
        } else {
            self.name.clone()
        }
    }

    /// Adds what the interpreter is told beside the code.
    pub(crate) fn with(self, checks: Option<Checks>) -> Self {
        Self { checks, ..self }
    }

    /// What an interpreter that was started ahead is told.
    pub(crate) fn go(
        &self,
        request: &ExecuteRequest,
        code: &Path,
        environment: &[(String, String)],
        workspace: Option<&Path>,
    ) -> Vec<u8> {
        let path = |name: &str| code.join(name).display().to_string();
        let module = self.module.then(|| path(&self.name()));
        word(&Go {
            script: &path(&self.name),
            source_maps: request.language == Language::Typescript,
            module: module.as_deref(),
            args: request.args.iter().map(Argument::as_str).collect(),
            session: self.session,
            checks: self.checks.as_ref(),
            workspace,
            env: by_name(environment),
        })
    }

    pub(crate) fn launch(
        &self,
        language: Language,
        interpreter: &Path,
        code: &Path,
        args: &[Argument],
    ) -> Launch {
        if self.session {
            return session_launch(language, &interpreter.display().to_string());
        }
        let path = |name: &str| code.join(name).display().to_string();
        let module = self.module.then(|| path(&self.name()));
        let script = Script {
            path: &path(&self.name),
            module,
            args,
            checks: self.checks.as_ref(),
        };
        launch(language, &interpreter.display().to_string(), script)
    }
}

/// An interpreter that waits for calls.
pub(crate) fn session() -> Prepared {
    Prepared {
        name: SESSION.to_owned(),
        script: String::new(),
        module: false,
        error: None,
        session: true,
        checks: None,
    }
}

/// What the program's driver reported, or the parser's objection in its place.
pub(crate) fn read_outcome(prepared: &Prepared, report: &[u8]) -> ProgramReport {
    let mut read = read_report(report);
    if let Some(error) = &prepared.error {
        read.error = Some(error.clone());
    }
    read
}
