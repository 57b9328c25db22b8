//! The roles in which the checks start this program.

use crate::{artifacts, hello, secrets, session, stream, tenants};
use ringfence::{ErrorCode, ExecuteRequest, Namespace, RequestError, Sandbox};
use std::{error::Error, fs, process::ExitCode};

/// The first argument of a command line that names a role.
pub const WORD: &str = "--role";
/// A program with this name starts a second thread before its `main` calls `init`.
pub const WITH_A_THREAD: &str = "with-a-thread";

/// Runs a role, which prints its output, and prints its error on stderr.
pub fn play(role: &str) -> ExitCode {
    let result = match role {
        "hello" => hello::main(),
        "stream" => stream::main(),
        "secrets" => secrets::main(),
        "artifacts" => artifacts::main(),
        "session" => session::main(),
        "tenants" => tenants::main(),
        "without-init" => in_a_runtime(local()),
        "late-init" => {
            begin_a_thread();
            after_init(local())
        }
        "helper-with-a-thread" => after_init(with_a_bad_helper()),
        "survive" => after_init(survive()),
        "crowd" => after_init(crowd()),
        "from-env" => after_init(from_env()),
        "vault-in-environment" => after_init(vault_in_environment()),
        "wait" => after_init(wait()),
        other => Err(format!("no role {other:?}").into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts a thread that lives as long as the process.
pub fn begin_a_thread() {
    std::thread::spawn(|| {
        loop {
            std::thread::park();
        }
    });
}

type RoleResult = Result<(), Box<dyn Error>>;

fn after_init(role: impl Future<Output = RoleResult>) -> RoleResult {
    ringfence::init();
    in_a_runtime(role)
}

fn in_a_runtime(role: impl Future<Output = RoleResult>) -> RoleResult {
    tokio::runtime::Runtime::new()?.block_on(role)
}

async fn local() -> RoleResult {
    let sandbox = Sandbox::local().await?;
    let result = sandbox.execute(ExecuteRequest::shell("echo local")).await?;
    print!("{}", result.stdout);
    sandbox.shutdown().await;
    Ok(())
}

async fn with_a_bad_helper() -> RoleResult {
    let helper = std::env::args().nth(3).ok_or("no helper")?;
    Sandbox::builder().helper(helper).build().await?;
    Ok(())
}

async fn from_env() -> RoleResult {
    let sandbox = Sandbox::from_env().await?;
    let (limits, _) = sandbox.limits(&Namespace::default_name());
    println!(
        "{} MiB, {} processes",
        limits.memory_bytes >> 20,
        limits.processes
    );
    sandbox.shutdown().await;
    Ok(())
}

async fn vault_in_environment() -> RoleResult {
    let sandbox = Sandbox::builder().vault_in_environment().build().await?;
    let mut request = ExecuteRequest::shell("echo ${#KEY} $KEY");
    request.secrets.insert("KEY".parse()?);
    print!("{}", sandbox.execute(request).await?.stdout);
    sandbox.shutdown().await;
    Ok(())
}

/// Runs a program until this process is killed.
async fn wait() -> RoleResult {
    let name = std::env::args().nth(3).ok_or("no name")?;
    let sandbox = Sandbox::local().await?;
    sandbox.warm_up();
    let code = format!("echo up; exec -a {name} sleep 3600");
    let mut execution = sandbox.start(ExecuteRequest::shell(code));
    execution.next_output().await.ok_or("it does not start")?;
    println!("up");
    execution.finish().await?;
    Ok(())
}

/// Runs everything once and writes the answer to a file, because the streams may be closed.
async fn survive() -> RoleResult {
    let answer = std::env::args().nth(3).ok_or("no file")?;
    let outcome = match run_everything().await {
        Ok(()) => "survived".to_owned(),
        Err(error) => error.to_string(),
    };
    let status = fs::read_to_string("/proc/self/status")?;
    let children = children()?;
    fs::write(answer, format!("{outcome}\nchildren: {children:?}\n{status}"))?;
    Ok(())
}

async fn run_everything() -> RoleResult {
    let sandbox = Sandbox::local().await?;
    println!("this goes nowhere, and into no sandbox");
    for (request, expect) in [
        (ExecuteRequest::python("print('python')"), "python\n"),
        (
            ExecuteRequest::shell("cat; pwd; ls -A /proc/self/fd"),
            "/workspace\n0\n1\n2\n3\n",
        ),
        // See `huge_environment`.
        (
            ExecuteRequest::shell("env | grep -cE 'LARGE_|SECRET_DEFAULT_KEY|MBB'; true"),
            "0\n",
        ),
    ] {
        let result = sandbox.execute(request).await?;
        if !result.success || result.stdout != expect {
            return Err(format!("{}{}", result.stdout, result.stderr).into());
        }
    }
    let mut execution = sandbox.start(ExecuteRequest::shell("echo up; exec sleep 3600"));
    execution.next_output().await.ok_or("it does not start")?;
    sandbox.shutdown().await;
    let error = execution.finish().await;
    if error.is_ok_and(|result| result.success) {
        return Err("it was not killed".into());
    }
    Ok(())
}

fn children() -> std::io::Result<Vec<String>> {
    let mut children = Vec::new();
    for thread in fs::read_dir("/proc/self/task")? {
        let of_thread = fs::read_to_string(thread?.path().join("children"))?;
        children.extend(of_thread.split_whitespace().map(str::to_owned));
    }
    Ok(children)
}

/// Starts more programs at once than the descriptors allow: each has its result or is refused, and a later one runs.
async fn crowd() -> RoleResult {
    let sandbox = Sandbox::builder().concurrency(40).build().await?;
    let runs = (0..40).map(|number| {
        let sandbox = sandbox.clone();
        // Long enough for many to run at once, even if they start slowly.
        let code = format!("sleep 2; echo {number}");
        tokio::spawn(async move { (number, sandbox.execute(ExecuteRequest::shell(code)).await) })
    });
    let (mut done, mut refused) = (0, 0);
    for run in runs.collect::<Vec<_>>() {
        match run.await? {
            (number, Ok(result)) if result.stdout == format!("{number}\n") => done += 1,
            (_, Ok(result)) => return Err(format!("a wrong result: {result:?}").into()),
            (_, Err(error)) if is_server_error(&error) => refused += 1,
            (_, Err(error)) => return Err(error.into()),
        }
    }
    let after = sandbox.execute(ExecuteRequest::shell("echo after")).await?;
    print!("{after}", after = after.stdout);
    println!("done and refused: {}", done + refused);
    println!("some refused: {}", refused > 0);
    sandbox.shutdown().await;
    println!("children: {:?}", children()?);
    Ok(())
}

fn is_server_error(error: &RequestError) -> bool {
    [
        ErrorCode::SandboxFault,
        ErrorCode::StoreFault,
        ErrorCode::AuditUnavailable,
        ErrorCode::RuntimeUnavailable,
    ]
    .contains(&error.code)
}
