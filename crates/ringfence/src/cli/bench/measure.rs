//! Measurements: processes of the bare interpreters, runs through the engine, cold and warm, and checks of code.

use super::{
    super::fault,
    figures::{Document, Line, Throughput},
};
use ringfence_engine::{
    Caller, CodeRequest, Engine, EngineSettings, Fixing, Runtime, Submission, WarmSettings,
};
use ringfence_types::{
    ExecuteRequest, ExecutionResult, Language, Namespace, RequestError, Validate, WorkspaceSource,
};
use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const WARM_UP: usize = 5;
/// Time that templates have to become ready: they may import pandas from a cold disk.
const WARM_TIMEOUT: Duration = Duration::from_secs(120);
/// Pause between two measurements, in which the next sandbox becomes ready, as between the calls of an agent.
const PAUSE: Duration = Duration::from_millis(20);
const CONCURRENCIES: [usize; 3] = [1, 4, 16];
const LINE_WITH_PHASES: &str = "ringfence, warm: print(1)";
const DESCRIBE: &str = "import pandas as pd\n\
    print(pd.DataFrame({'a': range(1000), 'b': [x * .5 for x in range(1000)]}).describe())\n";

pub(super) fn everything(
    settings: EngineSettings,
    runs: usize,
    say: impl Fn(&str),
) -> Result<Document, RequestError> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| fault("start", &error))?;
    runtime.block_on(async {
        let cold = EngineSettings {
            warm: WarmSettings {
                ready: 0,
                ..settings.warm.clone()
            },
            ..settings.clone()
        };
        let (warm, cold) = (Engine::open(settings)?, Engine::open(cold)?);
        let measured = measure(&warm, &cold, runs, say).await;
        warm.shutdown().await;
        cold.shutdown().await;
        measured
    })
}

async fn measure(
    warm: &Engine,
    cold: &Engine,
    runs: usize,
    say: impl Fn(&str),
) -> Result<Document, RequestError> {
    say("making sandboxes ready ...");
    warm.warm_up();
    if !warm.warmed_up(WARM_TIMEOUT).await {
        say("not everything is ready after two minutes; the rest starts cold");
    }
    let runtimes = warm.runtimes().await;
    if let Some(trouble) = runtimes.iter().find_map(|runtime| runtime.trouble.as_ref()) {
        say(&format!("not everything could be made ready: {trouble}"));
    }
    let mut subjects = subjects(&runtimes);
    let mut document = Document {
        machine: machine(),
        ..Document::default()
    };
    say(&format!(
        "measuring {} things, {runs} times each, in turn ...",
        subjects.len()
    ));
    for round in 0..runs + WARM_UP {
        for subject in &mut subjects {
            tokio::time::sleep(PAUSE).await;
            let begun = Instant::now();
            let result = subject.workload.run(warm, cold).await?;
            let milliseconds = begun.elapsed().as_secs_f64() * 1000.0;
            if round >= WARM_UP {
                subject.line.samples_ms.push(milliseconds);
                document.phases.extend(
                    result
                        .filter(|_| subject.line.name == LINE_WITH_PHASES)
                        .map(|done| done.phases),
                );
            }
        }
    }
    document.lines = subjects.into_iter().map(|subject| subject.line).collect();
    if runtimes
        .iter()
        .any(|runtime| runtime.language == Language::Python && runtime.available)
    {
        for concurrency in CONCURRENCIES {
            say(&format!("{concurrency} calls at once ..."));
            document
                .throughput
                .push(throughput(warm, concurrency, runs * 5).await?);
        }
    }
    Ok(document)
}

struct Subject {
    line: Line,
    workload: Workload,
}

enum Workload {
    /// A whole process of the bare interpreter.
    Bare {
        interpreter: PathBuf,
        words: [&'static str; 2],
    },
    /// A run in a sandbox that is made for it.
    Cold(Box<ExecuteRequest>),
    /// A run in a sandbox that is ready.
    Warm(Box<ExecuteRequest>),
    /// A check of Python code, which is not run.
    Check(String),
}

/// A piece of a typical program, repeated to make texts of 200 and of 10,000 lines.
const PIECE: &str = include_str!("../../../../ringfence-check/examples/pieces/piece.py");
const CHECKED_LINES: [(&str, usize); 2] = [("200", 10), ("10,000", 500)];

fn subjects(runtimes: &[Runtime]) -> Vec<Subject> {
    let mut subjects = Vec::new();
    let mut add = |name: String, reference: Option<&String>, workload: Workload| {
        let line = Line::new(&name, reference.map(String::as_str), Vec::new());
        subjects.push(Subject { line, workload });
        name
    };
    let programs = [
        (Language::Python, ["-c", "print(1)"]),
        (Language::Node, ["-e", "console.log(1)"]),
        (Language::Shell, ["-c", "echo 1"]),
    ];
    for (language, words) in programs {
        let found = runtimes
            .iter()
            .find(|runtime| runtime.language == language && runtime.available);
        let Some((runtime, interpreter)) = found.and_then(|found| Some((found, found.path.clone()?))) else {
            continue;
        };
        let code = words[1];
        let bare = Workload::Bare {
            interpreter: interpreter.clone(),
            words,
        };
        let bare = add(format!("bare {language}: {code}"), None, bare);
        let mut checked = plain(language, code);
        checked.validate = Validate::Warn;
        let mut kept = plain(language, code);
        kept.workspace = WorkspaceSource::Namespace;
        for (how, workload) in [
            ("cold", Workload::Cold(plain(language, code))),
            ("warm, code looked at", Workload::Warm(checked)),
            ("warm", Workload::Warm(plain(language, code))),
            ("warm, the namespace's workspace", Workload::Warm(kept)),
        ] {
            add(format!("ringfence, {how}: {code}"), Some(&bare), workload);
        }
        if runtime.preloaded.iter().any(|module| module == "pandas") {
            let bare = Workload::Bare {
                interpreter,
                words: ["-c", DESCRIBE],
            };
            let bare = add("bare python: pandas describe()".to_owned(), None, bare);
            let warm = Workload::Warm(plain(Language::Python, DESCRIBE));
            add("ringfence, warm: pandas describe()".to_owned(), Some(&bare), warm);
        }
    }
    for (lines, pieces) in CHECKED_LINES {
        let check = Workload::Check(PIECE.repeat(pieces));
        add(format!("a look at {lines} lines of Python"), None, check);
    }
    subjects
}

fn plain(language: Language, code: &str) -> Box<ExecuteRequest> {
    let mut request = ExecuteRequest::new(language, code);
    request.validate = Validate::Off;
    Box::new(request)
}

impl Workload {
    async fn run(&self, warm: &Engine, cold: &Engine) -> Result<Option<ExecutionResult>, RequestError> {
        match self {
            Self::Bare { interpreter, words } => process(interpreter, words).map(|()| None),
            Self::Check(code) => check(warm, code).await.map(|()| None),
            Self::Cold(request) => run(cold, request).await.map(Some),
            Self::Warm(request) => run(warm, request).await.map(Some),
        }
    }
}

fn process(interpreter: &PathBuf, words: &[&str; 2]) -> Result<(), RequestError> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the comparison: our own words, in the interpreter that the user has"
    )]
    let mut command = Command::new(interpreter);
    let status = command
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(&interpreter.display().to_string(), &status.to_string())),
        Err(error) => Err(fault(&format!("start {}", interpreter.display()), &error)),
    }
}

/// Runs a request. A failing run is an error: it is not a measurement.
async fn run(engine: &Engine, request: &ExecuteRequest) -> Result<ExecutionResult, RequestError> {
    let submission = Submission::new(Caller::new("cli bench"), request.clone());
    let done = engine.submit(submission).finish().await?;
    if done.success {
        Ok(done)
    } else {
        Err(failed(request.language.as_str(), done.stderr.trim()))
    }
}

async fn check(engine: &Engine, code: &str) -> Result<(), RequestError> {
    let request = CodeRequest {
        namespace: Namespace::default_name(),
        language: Language::Python,
        code: code.to_owned(),
        fixing: Fixing::Apply,
        profile: None,
        allowed_imports: None,
        beside: Vec::new(),
    };
    let found = engine.validate_code(&Caller::new("cli bench"), request).await?;
    match found.valid {
        true => Ok(()),
        false => Err(failed("the text of the measurement", &found.validation.message)),
    }
}

fn failed(what: &str, why: &str) -> RequestError {
    RequestError::fault(format!("{what} did not run: {why}."), "Run `ringfence doctor`.")
}

async fn throughput(engine: &Engine, concurrency: usize, calls: usize) -> Result<Throughput, RequestError> {
    let begun = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..concurrency {
        let (engine, share) = (
            engine.clone(),
            calls / concurrency + usize::from(caller < calls % concurrency),
        );
        callers.spawn(async move {
            for _ in 0..share {
                run(&engine, &plain(Language::Python, "print(1)")).await?;
            }
            Ok::<(), RequestError>(())
        });
    }
    while let Some(joined) = callers.join_next().await {
        joined.map_err(|error| failed("a caller", &error.to_string()))??;
    }
    #[expect(clippy::cast_precision_loss, reason = "some thousand calls")]
    let calls = calls as f64;
    Ok(Throughput {
        concurrency,
        calls_per_second: calls / begun.elapsed().as_secs_f64(),
    })
}

fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut lines = cpu.lines();
    let model = lines.find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.split('-').next().unwrap_or("").trim();
    format!("{model}, {cores} cores, Linux {kernel}")
}
