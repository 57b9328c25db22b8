//! The profiles, in the real sandbox: ordinary programs run, published ways around them are refused with a rule and a line, and reach
//! nothing when nobody looks. The programs are those by which `ringfence-check` is tested.

use crate::{client::*, library::Scene};
use ringfence::{
    ErrorCode, ExecuteRequest, ExecutionResult, Language, Profile, Sandbox, Severity, Tier, Validate,
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A program of the lists, with what its first line says of it.
struct Program {
    name: String,
    code: String,
    profiles: Vec<Profile>,
}

fn programs(kind: &str, word: &str) -> Vec<Program> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../ringfence-check/tests/programs")
        .join(kind);
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let read = |path: PathBuf| {
        let code = fs::read_to_string(&path).unwrap();
        let first = code.lines().next().unwrap();
        let names = first
            .strip_prefix(&format!("# {word}: "))
            .unwrap_or_else(|| panic!("{}", path.display()));
        Program {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            profiles: names.split(", ").map(|name| name.parse().unwrap()).collect(),
            code,
        }
    };
    paths.into_iter().map(read).collect()
}

/// A sandbox whose spares are made before the first program comes.
async fn ready(name: &str) -> (Scene, Sandbox) {
    let (scene, sandbox) = Scene::with_sandbox(name).await;
    sandbox.warm_up();
    (scene, sandbox)
}

fn request(code: &str, profile: Option<Profile>, validate: Validate) -> ExecuteRequest {
    let mut request = ExecuteRequest::python(code);
    (request.profile, request.validate) = (profile, validate);
    request.limits.timeout_ms = Some(5000);
    request
}

fn is_blocked(result: &ExecutionResult) -> bool {
    result
        .security_events
        .iter()
        .any(|event| event.rule == "blocked_import")
}

/// What this interpreter has not, its programs need not find.
fn lacks_a_module(result: &ExecutionResult) -> bool {
    result
        .error
        .as_ref()
        .is_some_and(|error| error.kind == "ModuleNotFoundError")
        && !is_blocked(result)
}

#[tokio::test(flavor = "multi_thread")]
async fn ordinary_programs_run_under_every_profile_that_has_their_modules() {
    let (_place, sandbox) = ready("ordinary").await;
    let programs = programs("ordinary", "profiles");
    let (mut runs, mut lacking) = (0, Vec::new());
    for program in &programs {
        for profile in &program.profiles {
            let asked = request(&program.code, Some(*profile), Validate::Warn);
            let about = format!("{} under {profile:?}", program.name);
            let result = sandbox.execute(asked).await;
            let result = result.unwrap_or_else(|error| panic!("{about}: {error}"));
            assert!(!is_blocked(&result), "{about}: {:?}", result.security_events);
            if lacks_a_module(&result) {
                lacking.push(program.name.clone());
            } else {
                assert!(result.success, "{about}: {}", result.stderr);
                runs += 1;
            }
        }
    }
    eprintln!(
        "{} ordinary programs, {runs} runs; of a module that is not installed here: {lacking:?}",
        programs.len()
    );
    assert!(programs.len() >= 60 && runs >= 300);
    sandbox.shutdown().await;
}

/// claim: [CHK-4]
#[tokio::test(flavor = "multi_thread")]
async fn published_ways_around_are_refused_with_rule_and_line() {
    let (_place, sandbox) = ready("refused").await;
    let programs = programs("evasions", "refused");
    let mut refused = BTreeMap::new();
    for program in &programs {
        for profile in &program.profiles {
            let asked = request(&program.code, Some(*profile), Validate::Warn);
            let error = match sandbox.execute(asked).await {
                Err(error) => error,
                Ok(result) => panic!("{} ran under {profile:?}: {result:?}", program.name),
            };
            assert_eq!(
                error.code,
                ErrorCode::CodeRejected,
                "{} under {profile:?}",
                program.name
            );
            let found = error.validation.unwrap();
            let mut issues = found.issues.iter();
            let first = issues.find(|issue| issue.severity == Severity::Error).unwrap();
            assert_contains(
                &error.message,
                [&format!("line {}", first.line), first.rule.as_str()],
            );
            *refused.entry(profile.as_str()).or_insert(0) += 1;
        }
    }
    eprintln!("{} evasions, refused: {refused:?}", programs.len());
    assert!(programs.len() >= 80);
    sandbox.shutdown().await;
}

/// The check is off; the hook stays.
#[tokio::test(flavor = "multi_thread")]
async fn what_rests_on_a_module_is_contained_by_the_hook_alone() {
    let (_place, sandbox) = ready("hook").await;
    let (mut told, mut failed, mut ran) = (0, 0, Vec::new());
    let mut programs = programs("evasions", "refused");
    programs.retain(|program| program.profiles.contains(&Profile::Basic));
    for program in &programs {
        let asked = request(&program.code, Some(Profile::Basic), Validate::Off);
        let result = sandbox.execute(asked).await.unwrap();
        assert_eq!(result.isolation.tier, Tier::Full);
        match (is_blocked(&result), result.success) {
            (true, _) => told += 1,
            (false, false) => failed += 1,
            (false, true) => ran.push(program.name.as_str()),
        }
    }
    eprintln!(
        "by the hook alone: {told} refused and told, {failed} failed by themselves, {} ran: {ran:?}",
        ran.len()
    );
    assert!(told >= 30, "{told}");
    sandbox.shutdown().await;
}

/// Each reads a file of the host, as far as Python is concerned.
const READERS: &[&str] = &[
    "import os\nprint(os.popen('cat CANARY').read())",
    "import uuid\nprint(uuid.os.popen('cat CANARY').read())",
    "print(eval(\"__import__('os').popen('cat CANARY').read()\"))",
    "print([c for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close'][0].__init__.__globals__['popen']('cat CANARY').read())",
    "print(open('CANARY').read())",
    "import ctypes\nlibc = ctypes.CDLL(None)\nfd = libc.open(b'CANARY', 0)\nb = ctypes.create_string_buffer(99)\nlibc.read(fd, b, 99)\nprint(b.value)",
    "import pickle\nprint(pickle.loads(b'cbuiltins\\neval\\n(Vopen(\"CANARY\").read()\\ntR.'))",
    "import sys\nprint(sys.modules['posix'].read(sys.modules['posix'].open('CANARY', 0), 99))",
    "def f():\n    import sys\n    return sys._getframe(1).f_globals['__builtins__']\nb = f()\nprint((b if isinstance(b, dict) else vars(b))['open']('CANARY').read())",
    "print(getattr(__builtins__, 'op' + 'en')('CANARY').read())",
    "import subprocess\nprint(subprocess.run('cat CANARY', shell=True, capture_output=True).stdout)",
    "import codecs\nexec(codecs.decode('cevag(bcra(\"PNANEL\").ernq())', 'rot13'))",
];

/// claim: [CHK-5]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_reaches_nothing_when_nobody_looks() {
    let (place, sandbox) = ready("canary").await;
    // Not below /tmp, as a checkout may be: there a program's own files are.
    let canary = Path::new("/var/tmp").join(format!("canary-{}", std::process::id()));
    let value = format!(
        "canary-{}-{:x}",
        std::process::id(),
        std::ptr::from_ref(&place) as usize
    );
    fs::write(&canary, &value).unwrap();
    let mut runtimes = sandbox.runtimes().await.into_iter();
    let python = runtimes.find(|runtime| runtime.language == Language::Python);
    let python = python.unwrap().path.unwrap();
    let mut controls = 0;
    for reader in READERS {
        let rotated: String = canary.to_str().unwrap().chars().map(rot13).collect();
        let code = reader
            .replace("PNANEL", &rotated)
            .replace("CANARY", canary.to_str().unwrap());
        let outside = stdout_of(&Command::new(&python).args(["-c", &code]).output().unwrap());
        assert!(outside.contains(&value), "outside it reads the file: {reader}");
        controls += 1;
        let asked = request(&code, Some(Profile::Strict), Validate::Warn);
        let refused = sandbox.execute(asked).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::CodeRejected, "{reader}");
        for profile in [None, Some(Profile::Basic)] {
            let asked = request(&code, profile, Validate::Off);
            let result = sandbox.execute(asked).await.unwrap();
            assert_eq!(result.isolation.tier, Tier::Full);
            assert!(!format!("{result:?}").contains(&value), "{reader}");
        }
    }
    for program in programs("evasions", "refused") {
        let asked = request(&program.code, None, Validate::Off);
        let result = sandbox.execute(asked).await.unwrap();
        assert_eq!(result.isolation.tier, Tier::Full, "{}", program.name);
        assert!(!format!("{result:?}").contains(&value), "{}", program.name);
    }
    assert_eq!(fs::read_to_string(&canary).unwrap(), value);
    fs::remove_file(&canary).unwrap();
    eprintln!("{controls} readers read outside and nothing inside");
    sandbox.shutdown().await;
}

fn rot13(letter: char) -> char {
    let turned = |first: u8| char::from((letter as u8 - first + 13) % 26 + first);
    match letter {
        'a'..='z' => turned(b'a'),
        'A'..='Z' => turned(b'A'),
        other => other,
    }
}
