//! Code that is ready for its interpreter, and the command that starts that.

use super::{
    Checks, Go, Launch, NODE_DRIVER, PYTHON_PROGRAM, ProgramReport, by_name, encode_go, read_report, session,
};
use ringfence_types::{Argument, ExecuteRequest, Language, ProgramError};
use std::path::Path;

#[derive(Default)]
pub(crate) struct Prepared {
    pub(crate) name: String,
    pub(crate) script: String,
    pub(crate) module: bool,
    /// The parser's error in TypeScript; Node then runs a line that fails as the code would.
    pub(crate) error: Option<ProgramError>,
    /// True for an interpreter that waits for calls.
    pub(crate) session: bool,
    /// Restrictions that the driver enforces.
    pub(crate) checks: Option<Checks>,
}

/// Stands in for the code of a session, which comes later.
pub(crate) const SESSION: &str = "session";

impl Prepared {
    pub(crate) fn script(name: String, script: String) -> Self {
        Self {
            name,
            script,
            ..Self::default()
        }
    }

    pub(crate) fn session() -> Self {
        Self {
            session: true,
            ..Self::script(SESSION.to_owned(), String::new())
        }
    }

    /// Returns the file name below the code directory. Node recognizes a module by the extension `.mjs`.
    pub(crate) fn name(&self) -> String {
        if self.module {
            format!("{}.mjs", self.name)
        } else {
            self.name.clone()
        }
    }

    pub(crate) fn with(self, checks: Option<Checks>) -> Self {
        Self { checks, ..self }
    }

    /// Encodes the message for an interpreter that was started ahead.
    pub(crate) fn go(
        &self,
        request: &ExecuteRequest,
        code: &Path,
        environment: &[(String, String)],
        workspace: Option<&Path>,
    ) -> Vec<u8> {
        encode_go(&Go {
            script: &code.join(&self.name).display().to_string(),
            source_maps: request.language == Language::Typescript,
            module: self.module_path(code).as_deref(),
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
        let interpreter = interpreter.display().to_string();
        if self.session {
            return session::launch(language, &interpreter);
        }
        let (before, env): (&[&str], &[(&str, &str)]) = match language {
            // No bytecode files: in the workspace they would look like the program's own.
            Language::Python => (&["-c", &PYTHON_PROGRAM], &[("PYTHONDONTWRITEBYTECODE", "1")]),
            Language::Node => (&["-e", NODE_DRIVER], &[]),
            Language::Typescript => (&["--enable-source-maps", "-e", NODE_DRIVER], &[]),
            Language::Shell => (&[], &[]),
        };
        let path = code.join(&self.name).display().to_string();
        let words = std::iter::once(interpreter.as_str())
            .chain(before.iter().copied())
            .chain([path.as_str()])
            .chain(args.iter().map(Argument::as_str));
        let mut launch = Launch::of(words, env);
        let module = self.module_path(code);
        launch
            .env
            .extend(module.map(|path| ("RINGFENCE_MODULE".to_owned(), path)));
        let checks = self.checks.iter().filter(|_| language == Language::Python);
        launch.env.extend(checks.flat_map(Checks::variables));
        launch.report_fd = language != Language::Shell;
        launch
    }

    /// Returns the path of the file that Node imports in place of the code.
    fn module_path(&self, code: &Path) -> Option<String> {
        self.module.then(|| code.join(self.name()).display().to_string())
    }
}

/// Reads the report of the program's driver; a parser's error replaces the error in it.
pub(crate) fn read_outcome(prepared: &Prepared, report: &[u8]) -> ProgramReport {
    let mut read = read_report(report);
    if let Some(error) = &prepared.error {
        read.error = Some(error.clone());
    }
    read
}
