//! Between a request's code and the file that an interpreter is given: its name, and for TypeScript and ES modules a
//! pass through the parser, which runs in a jail of its own because it reads a stranger's text.

use crate::{
    engine::{Caller, Engine, House, Runtime, Stdin, Submission},
    language::{self, Checks, Launch, ProgramReport},
    warm, worker,
};
use ringfence_jail::Layout;
use ringfence_types::{Argument, ErrorCode, ExecuteRequest, ExitKind, Language, ProgramError, RequestError};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The worker's name.
pub(crate) const PREPARE: &str = "prepare-javascript";

/// Code that is ready for its interpreter.
pub(crate) struct Prepared {
    name: String,
    script: String,
    module: bool,
    /// The parser's objection to TypeScript; Node is then started on a line that fails as the code would.
    error: Option<ProgramError>,
    /// It is an interpreter that waits for calls.
    session: bool,
    /// What it is told beside the code.
    checks: Option<Checks>,
}

/// What stands for the code of a session, which comes later.
pub(crate) const SESSION: &str = "session";

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

#[derive(Serialize)]
struct Question<'a> {
    code: &'a str,
    name: &'a str,
    typescript: bool,
    session: bool,
    workspace: &'a str,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    module: bool,
    #[serde(default)]
    code: String,
    error: Option<Objection>,
}

#[derive(Deserialize)]
struct Objection {
    message: String,
    line: Option<u32>,
}

impl Prepared {
    /// File name below the code directory. Node takes a file for a module by its ending.
    pub(crate) fn name(&self) -> String {
        if self.module {
            format!("{}.mjs", self.name)
        } else {
            self.name.clone()
        }
    }

    /// The same with what the interpreter is told beside the code.
    pub(crate) fn with(self, checks: Option<Checks>) -> Self {
        Self { checks, ..self }
    }

    /// Is it an interpreter that waits for calls.
    pub(crate) fn is_session(&self) -> bool {
        self.session
    }

    /// Its text.
    pub(crate) fn script(&self) -> &str {
        &self.script
    }

    /// What an interpreter that was started ahead is told.
    pub(crate) fn go(
        &self,
        language: Language,
        code: &Path,
        args: &[Argument],
        environment: &[(String, String)],
    ) -> Vec<u8> {
        if self.session {
            return language::session::go(language, environment);
        }
        let path = |name: &str| code.join(name).display().to_string();
        let module = self.module.then(|| path(&self.name()));
        language::go(
            language,
            &path(&self.name),
            module.as_deref(),
            args,
            environment,
            self.checks.as_ref(),
        )
    }

    /// How the interpreter is started.
    pub(crate) fn launch(
        &self,
        language: Language,
        interpreter: &Path,
        code: &Path,
        args: &[Argument],
    ) -> Launch {
        if self.session {
            return language::session::launch(language, &interpreter.display().to_string());
        }
        let path = |name: &str| code.join(name).display().to_string();
        let module = self.module.then(|| path(&self.name()));
        language::launch(
            language,
            &interpreter.display().to_string(),
            &path(&self.name),
            module,
            args,
            self.checks.as_ref(),
        )
    }
}

/// Names the code and, where its language needs it, has it parsed.
pub(crate) async fn prepare(
    house: &House,
    request: &ExecuteRequest,
    layout: &Layout,
) -> Result<Prepared, RequestError> {
    let name = request
        .name
        .as_ref()
        .map_or_else(|| default_name(request.language), ToString::to_string);
    let as_it_is = Prepared {
        name: name.clone(),
        script: request.code.clone(),
        module: false,
        error: None,
        session: false,
        checks: None,
    };
    if !language::needs_preparation(request.language, &request.code, &name) {
        return Ok(as_it_is);
    }
    let typescript = request.language == Language::Typescript;
    let workspace = layout.workspace.display().to_string();
    let question = Question {
        code: &request.code,
        name: &name,
        typescript,
        session: false,
        workspace: &workspace,
    };
    let answer = ask(house, &question).await?;
    Ok(match answer.error {
        // A plain script that the parser does not like is the interpreter's to judge.
        Some(_) if !typescript => as_it_is,
        Some(objection) => {
            let error = syntax_error(&name, &objection);
            let text = serde_json::Value::String(error.traceback.clone());
            Prepared {
                script: format!("process.stderr.write({text}); process.exit(1)"),
                error: Some(error),
                ..as_it_is
            }
        }
        None => Prepared {
            name,
            script: answer.code,
            module: answer.module,
            error: None,
            session: false,
            checks: None,
        },
    })
}

fn default_name(language: Language) -> String {
    match language {
        Language::Python => "main.py",
        Language::Node => "main.js",
        Language::Typescript => "main.ts",
        Language::Shell => "main.sh",
    }
    .to_owned()
}

fn syntax_error(name: &str, objection: &Objection) -> ProgramError {
    let place = objection.line.map_or_else(String::new, |line| format!(":{line}"));
    ProgramError {
        kind: "SyntaxError".to_owned(),
        message: objection.message.clone(),
        traceback: format!("/code/{name}{place}\nSyntaxError: {}\n", objection.message),
        line: objection.line,
    }
}

async fn ask(house: &House, question: &Question<'_>) -> Result<Answer, RequestError> {
    let broken = |what: String| {
        RequestError::new(
            ErrorCode::InvalidArgument,
            format!("the code could not be parsed: {what}."),
            "Check the syntax; very deep nesting and megabytes on one line are refused.",
        )
    };
    let input = serde_json::to_vec(question).map_err(|error| broken(error.to_string()))?;
    let said = worker::run(house, PREPARE, warm::take_parser(house), input).await?;
    let answer = said.map_err(|cause| broken(format!("the parser ended with {cause:?}")))?;
    serde_json::from_slice(&answer).map_err(|error| broken(error.to_string()))
}

/// What is sent to a session in place of the caller's code, and its name in tracebacks.
pub(crate) struct Sendable {
    pub(crate) name: String,
    pub(crate) code: String,
    /// The parser's objection, for which nothing need be sent.
    pub(crate) error: Option<ProgramError>,
}

/// Makes a call ready for the interpreter of its session. The types of TypeScript go first.
pub(crate) async fn call(
    house: &House,
    request: &ExecuteRequest,
    number: u64,
) -> Result<Sendable, RequestError> {
    let ending = Path::new(&default_name(request.language))
        .extension()
        .map(|e| e.to_string_lossy().into_owned());
    let name = match &request.name {
        Some(name) => name.to_string(),
        None => format!("call-{number}.{}", ending.unwrap_or_default()),
    };
    if request.language != Language::Typescript {
        return Ok(Sendable {
            name,
            code: request.code.clone(),
            error: None,
        });
    }
    let question = Question {
        code: &request.code,
        name: &name,
        typescript: true,
        session: true,
        workspace: "/workspace",
    };
    let answer = ask(house, &question).await?;
    Ok(Sendable {
        error: answer.error.map(|objection| syntax_error(&name, &objection)),
        code: answer.code,
        name,
    })
}

/// What the program's driver reported, or the parser's objection in its place.
pub(crate) fn read_outcome(prepared: &Prepared, report: &[u8]) -> ProgramReport {
    let mut read = language::read_report(report);
    if let Some(error) = &prepared.error {
        read.error = Some(error.clone());
    }
    read
}

/// Asks each interpreter for its version inside a sandbox.
pub(crate) async fn versions(engine: &Engine) -> Vec<Runtime> {
    let mut runtimes = Vec::new();
    for (language, code) in [
        (
            Language::Python,
            "import sys\nprint('.'.join(map(str, sys.version_info[:3])))",
        ),
        (Language::Node, "console.log(process.versions.node)"),
        (Language::Shell, "echo \"${BASH_VERSION%%(*}\""),
    ] {
        runtimes.push(ask_version(engine, language, code).await);
    }
    runtimes
}

async fn ask_version(engine: &Engine, language: Language, code: &str) -> Runtime {
    let path = engine.locate(language);
    let mut runtime = Runtime {
        language,
        available: false,
        path: path.as_ref().ok().cloned(),
        version: None,
        backends: Vec::new(),
        tier: engine.tier().to_string(),
        warm: false,
        ready: 0,
        trouble: None,
        preloaded: Vec::new(),
        memory_bytes: 0,
        reason: path.err().map(|error| error.message),
    };
    if runtime.reason.is_some() {
        return runtime;
    }
    let request = ExecuteRequest::new(language, code);
    let submission = Submission {
        request,
        stdin: Stdin::FromRequest,
        live: false,
        holds_changes: false,
        artifacts_to: None,
        caller: Caller::ours(),
    };
    match engine.submit(submission).finish().await {
        Ok(done) if done.success && !done.stdout.trim().starts_with(|c: char| c.is_ascii_digit()) => {
            runtime.reason = Some("it tells no version, so it is no interpreter of this language".to_owned());
        }
        Ok(done) if done.exit.kind == ExitKind::Code && done.success => {
            runtime.version = Some(done.stdout.trim().to_owned());
            runtime.available = true;
            runtime.backends = vec!["native".to_owned()];
        }
        Ok(done) => {
            let line: String = done
                .stderr
                .trim()
                .lines()
                .last()
                .unwrap_or("")
                .chars()
                .take(200)
                .collect();
            runtime.reason = Some(format!("it does not start in a sandbox: {line}"));
        }
        Err(error) => runtime.reason = Some(error.message),
    }
    runtime
}
