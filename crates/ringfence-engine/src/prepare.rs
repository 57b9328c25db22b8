//! Prepares a request's code for its interpreter: its file name, and for TypeScript and ES modules a pass through the
//! parser, which runs in a jail of its own because it reads untrusted text.

use crate::{
    error::Result,
    language::{self, PREPARE, Prepared},
    sandbox::Sandboxes,
    warm, worker,
};
use ringfence_check::{ModuleAnswer, ModuleQuestion, Objection};
use ringfence_jail::Layout;
use ringfence_types::{ExecuteRequest, Language, ProgramError, RequestError};

pub(crate) async fn prepare(
    sandboxes: &Sandboxes,
    request: &ExecuteRequest,
    layout: &Layout,
) -> Result<Prepared> {
    let name = request
        .name
        .as_ref()
        .map_or_else(|| default_name(request.language).to_owned(), ToString::to_string);
    let as_it_is = Prepared::script(name.clone(), request.code.clone());
    if !language::needs_preparation(request.language, &request.code, &name) {
        return Ok(as_it_is);
    }
    let typescript = request.language == Language::Typescript;
    let question = ModuleQuestion {
        code: request.code.clone(),
        name: name.clone(),
        typescript,
        session: false,
        workspace: layout.workspace.display().to_string(),
    };
    let answer = ask(sandboxes, &question).await?;
    Ok(match answer.error {
        // A JavaScript script that the parser rejects is left to the interpreter.
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
            script: answer.code,
            module: answer.module,
            ..as_it_is
        },
    })
}

fn default_name(language: Language) -> &'static str {
    match language {
        Language::Python => "main.py",
        Language::Node => "main.js",
        Language::Typescript => "main.ts",
        Language::Shell => "main.sh",
    }
}

fn syntax_error(name: &str, objection: &Objection) -> ProgramError {
    let line = objection.line.map_or_else(String::new, |line| format!(":{line}"));
    ProgramError {
        kind: "SyntaxError".to_owned(),
        message: objection.message.clone(),
        traceback: format!("/code/{name}{line}\nSyntaxError: {}\n", objection.message),
        line: objection.line,
    }
}

async fn ask(sandboxes: &Sandboxes, question: &ModuleQuestion) -> Result<ModuleAnswer> {
    let broken = |what: String| {
        RequestError::invalid(
            format!("the code could not be parsed: {what}."),
            "Check the syntax; very deep nesting and megabytes on one line are refused.",
        )
    };
    let input = serde_json::to_vec(question).map_err(|error| broken(error.to_string()))?;
    let said = worker::run(sandboxes, PREPARE, warm::take_parser(sandboxes), input).await?;
    let answer = said.map_err(|cause| broken(format!("the parser ended with {cause:?}")))?;
    serde_json::from_slice(&answer).map_err(|error| broken(error.to_string()))
}

/// Prepares a call for the interpreter of its session: the parser removes types, and finds imports.
pub(crate) async fn call(
    sandboxes: &Sandboxes,
    request: &ExecuteRequest,
    number: u64,
) -> Result<PreparedCall> {
    let name = match &request.name {
        Some(name) => name.to_string(),
        None => default_name(request.language).replace("main", &format!("call-{number}")),
    };
    let typescript = request.language == Language::Typescript;
    if !(typescript || request.language == Language::Node && may_import(&request.code)) {
        return Ok(PreparedCall {
            name,
            code: request.code.clone(),
            error: None,
        });
    }
    let question = ModuleQuestion {
        code: request.code.clone(),
        name: name.clone(),
        typescript,
        session: true,
        workspace: "/workspace".to_owned(),
    };
    let answer = ask(sandboxes, &question).await?;
    Ok(PreparedCall {
        error: answer.error.map(|objection| syntax_error(&name, &objection)),
        code: answer.code,
        name,
    })
}

/// True if the code has one of the words `import` and `export`, perhaps in a text; the parser takes several times as
/// long as a short call.
fn may_import(code: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
    let has_word = |(at, word): (usize, &str)| {
        let (before, after) = (&code[..at], &code[at + word.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    };
    code.match_indices("import").any(has_word) || code.match_indices("export").any(has_word)
}

/// The code that is sent to a session, and its name in tracebacks.
pub(crate) struct PreparedCall {
    pub(crate) name: String,
    pub(crate) code: String,
    /// The parser's error, if any; then nothing is sent.
    pub(crate) error: Option<ProgramError>,
}
