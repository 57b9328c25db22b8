//! Code that is ready for its interpreter, and how that is started with it.

use super::{
    Checks, Go, Launch, NODE_DRIVER, PYTHON_PROGRAM, ProgramReport, by_name, read_report, session, word,
};
use ringfence_types::{Argument, ExecuteRequest, Language, ProgramError};
use std::path::Path;

/// Code that is ready for its interpreter.
#[derive(Default)]
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
    /// A script as it is.
    pub(crate) fn script(name: String, script: String) -> Self {
        Self {
            name,
            script,
            ..Self::default()
        }
    }

    /// An interpreter that waits for calls.
    pub(crate) fn session() -> Self {
        Self {
            session: true,
            ..Self::script(SESSION.to_owned(), String::new())
        }
    }

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
        word(&Go {
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
            // No bytecode: it would be left in the workspace as if the program had made it.
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

    /// The file that Node imports in place of the code.
    fn module_path(&self, code: &Path) -> Option<String> {
        self.module.then(|| code.join(self.name()).display().to_string())
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
