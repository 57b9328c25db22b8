//! The profiles in the real sandbox: ordinary programs run, and published evasions are refused with a rule and a line,
//! and reach nothing with checks off. The programs are those of the tests of `ringfence-check`.

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

/// A program of the lists, with the profiles that its first line names.
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

/// A sandbox that has started to keep sandboxes ready.
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

/// True if the program failed because this interpreter does not have a module.
fn lacks_a_module(result: &ExecutionResult) -> bool {
    result
        .error
        .as_ref()
        .is_some_and(|error| error.kind == "ModuleNotFoundError")
        && !is_blocked(result)
}

#[tokio::test(flavor = "multi_thread")]
async fn ordinary_programs_run_under_every_profile_that_allows_their_modules() {
    let (_scene, sandbox) = ready("ordinary").await;
    let programs = programs("ordinary", "profiles");
    let (mut runs, mut lacking) = (0, Vec::new());
    for program in &programs {
        for profile in &program.profiles {
            let execution = request(&program.code, Some(*profile), Validate::Warn);
            let about = format!("{} under {profile:?}", program.name);
            let result = sandbox.execute(execution).await;
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
async fn published_evasions_are_refused_with_rule_and_line() {
    let (_scene, sandbox) = ready("refused").await;
    let programs = programs("evasions", "refused");
    let mut refused = BTreeMap::new();
    for program in &programs {
        for profile in &program.profiles {
            let execution = request(&program.code, Some(*profile), Validate::Warn);
            let error = match sandbox.execute(execution).await {
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

/// Runs with the check off and the import hook on.
#[tokio::test(flavor = "multi_thread")]
async fn the_import_hook_alone_contains_evasions_that_need_a_module() {
    let (_scene, sandbox) = ready("hook").await;
    let (mut blocked, mut failed, mut ran) = (0, 0, Vec::new());
    let mut programs = programs("evasions", "refused");
    programs.retain(|program| program.profiles.contains(&Profile::Basic));
    for program in &programs {
        let execution = request(&program.code, Some(Profile::Basic), Validate::Off);
        let result = sandbox.execute(execution).await.unwrap();
        assert_eq!(result.isolation.tier, Tier::Full);
        match (is_blocked(&result), result.success) {
            (true, _) => blocked += 1,
            (false, false) => failed += 1,
            (false, true) => ran.push(program.name.as_str()),
        }
    }
    eprintln!(
        "by the hook alone: {blocked} blocked, {failed} failed by themselves, {} ran: {ran:?}",
        ran.len()
    );
    assert!(blocked >= 30, "{blocked}");
    sandbox.shutdown().await;
}

/// Programs that read a file of the host if only Python is in the way.
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
async fn refused_programs_reach_no_host_file_with_checks_off() {
    let (scene, sandbox) = ready("canary").await;
    // Not below /tmp, where a program's own files are; a checkout may be there.
    let canary = Path::new("/var/tmp").join(format!("canary-{}", std::process::id()));
    let value = format!(
        "canary-{}-{:x}",
        std::process::id(),
        std::ptr::from_ref(&scene) as usize
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
        assert!(
            outside.contains(&value),
            "the control does not read the file: {reader}"
        );
        controls += 1;
        let execution = request(&code, Some(Profile::Strict), Validate::Warn);
        let refused = sandbox.execute(execution).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::CodeRejected, "{reader}");
        for profile in [None, Some(Profile::Basic)] {
            let execution = request(&code, profile, Validate::Off);
            let result = sandbox.execute(execution).await.unwrap();
            assert_eq!(result.isolation.tier, Tier::Full);
            assert!(!format!("{result:?}").contains(&value), "{reader}");
        }
    }
    for program in programs("evasions", "refused") {
        let execution = request(&program.code, None, Validate::Off);
        let result = sandbox.execute(execution).await.unwrap();
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
