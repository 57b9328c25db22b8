//! `ringfence host`: access to this host with the rights of an agent. Commands and files go through the same rules,
//! walls and record as those of an agent; if no rule allows a command, the person at the terminal is asked.

use super::{
    CommandResult, Context, FAILED,
    commit::{Keyboard, says_yes},
    live,
    outcome::is_interactive,
    printed, request, set,
};
use crate::{
    log::Log,
    render::{self, Rendered},
    settings::{Layer, LogLevel},
    terminal::{Terminal, neutral},
};
use clap::{Args, Subcommand};
use ringfence_engine::{Answer, Caller, Engine, HostCommand, HostEnding, HostRun, HostWriting, ScopeChoice};
use ringfence_types::{ErrorCode, Namespace, RequestError, WorkspacePath};
use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

#[derive(Debug, Subcommand)]
pub(super) enum HostAction {
    /// Run a command behind the walls of its rule; on a terminal, ask if no rule allows it
    Exec {
        #[command(flatten)]
        line: CommandLine,
        /// Time limit in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=300))]
        timeout: u16,
    },
    /// Show what the rules decide about a command, and what it could do, without running it
    Check(CommandLine),
    /// Print a file, if the directory rules allow it
    Read(OneFile),
    /// Write a file from standard input, show the change, and keep the old content
    Write {
        #[command(flatten)]
        file: OneFile,
        /// Show the change, without writing it
        #[arg(long)]
        preview: bool,
    },
    /// List a directory, if the directory rules allow it
    List(OneFile),
    /// Copy a file into a namespace's workspace
    Copy {
        /// Absolute path of a file of the host
        source: PathBuf,
        /// Path in the workspace
        destination: WorkspacePath,
        #[command(flatten)]
        flags: HostFlags,
    },
    /// Show the rules and directories of a namespace
    Access(HostFlags),
    /// Undo a write
    Undo {
        /// Id of the write, from its answer
        id: String,
        #[command(flatten)]
        flags: HostFlags,
    },
}

#[derive(Debug, Args)]
pub(super) struct HostFlags {
    /// Namespace whose rules apply
    #[arg(long, value_name = "NAME", default_value = "default")]
    namespace: Namespace,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct CommandLine {
    /// Command, as one word or several: a program and its arguments, without a shell
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
    /// Working directory
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    #[command(flatten)]
    flags: HostFlags,
}

impl CommandLine {
    /// The request for this command. A single word is a whole command line; several are its words, and are quoted.
    fn command(&self, timeout: u16) -> HostCommand {
        let quoted = |word: &String| format!("'{}'", word.replace('\'', "'\\''"));
        HostCommand {
            namespace: self.flags.namespace.clone(),
            command: match self.command.as_slice() {
                [one] => one.clone(),
                several => several.iter().map(quoted).collect::<Vec<_>>().join(" "),
            },
            directory: self.directory.clone(),
            timeout: Duration::from_secs(timeout.into()),
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct OneFile {
    /// Absolute path
    path: PathBuf,
    #[command(flatten)]
    flags: HostFlags,
}

const TEXT_MAX: usize = 1 << 20;
const FILE_BYTES_MAX: usize = 1 << 20;

pub(super) fn host(context: &Context, action: HostAction) -> CommandResult {
    let mut config = context.config()?;
    // The rules can be queried before they are in force.
    let is_query = matches!(action, HostAction::Check(_) | HostAction::Access(_));
    if is_query && config.engine.host.is_none() {
        context
            .terminal
            .note("access to the host is off (`host.enabled`); if it were on:");
        let mut layer = Layer::default();
        set(&mut layer, "host.enabled", "true", "ringfence host")?;
        config = context.settings(layer, LogLevel::Error)?;
    }
    Log::begin(config.log);
    let input = match &action {
        HostAction::Write { .. } => request::read_input("-".as_ref(), FILE_BYTES_MAX, "the content")?,
        _ => Vec::new(),
    };
    live::with_engine(config.engine, async |engine| {
        perform(context, engine, action, input).await
    })
}

async fn perform(context: &Context, engine: &Engine, action: HostAction, input: Vec<u8>) -> CommandResult {
    let caller = Caller::new("cli host");
    let (flags, shown) = match action {
        HostAction::Exec { line, timeout } => return execute(context, engine, line, timeout).await,
        HostAction::Check(line) => {
            let verdict = engine.host_check(&caller, line.command(30)).await?;
            context.show(line.flags.json, &render::host_verdict(&verdict))?;
            return Ok(ExitCode::from(u8::from(!verdict.allowed)));
        }
        HostAction::Read(OneFile { path, flags }) => {
            let access = engine.namespace(&caller, &flags.namespace);
            let file = access.host_file_read(&path).await?;
            let is_text = std::str::from_utf8(&file.bytes).is_ok();
            if !flags.json && (is_text || !io::stdout().is_terminal()) {
                return printed(context.terminal.print_bytes(&file.bytes));
            }
            (flags, render::host_file(&file))
        }
        HostAction::Write { file, preview } => {
            let writing = match preview {
                true => HostWriting::Preview,
                false => HostWriting::Now,
            };
            let access = engine.namespace(&caller, &file.flags.namespace);
            let written = access.host_file_write(file.path, input, writing).await?;
            (file.flags, render::host_written(&written, writing))
        }
        HostAction::List(OneFile { path, flags }) => {
            let access = engine.namespace(&caller, &flags.namespace);
            let listing = access.host_file_list(&path).await?;
            (flags, render::host_listing(&path, &listing))
        }
        HostAction::Copy {
            source,
            destination,
            flags,
        } => {
            let access = engine.namespace(&caller, &flags.namespace);
            let copied = access.host_file_copy(&source, &destination).await?;
            (flags, render::host_copied(&source, &copied))
        }
        HostAction::Access(flags) => {
            let list = engine.namespace(&caller, &flags.namespace).host_access().await?;
            let mut shown = render::host_access(&list);
            shown.text = context.terminal.wrapped(&shown.text);
            (flags, shown)
        }
        HostAction::Undo { id, flags } => {
            let path = engine.namespace(&caller, &flags.namespace).host_undo(&id).await?;
            let facts = serde_json::json!({"path": path, "undone": id});
            let text = format!("{} has been restored\n", path.display());
            (flags, Rendered::new(text, facts))
        }
    };
    context.show(flags.json, &shown)
}

/// Runs a command. If it is denied, asks the person at the terminal and runs it once if approved.
async fn execute(context: &Context, engine: &Engine, line: CommandLine, timeout: u16) -> CommandResult {
    let (caller, json) = (Caller::new("cli host"), line.flags.json);
    let command = line.command(timeout);
    let may_ask = !json && is_interactive(context.terminal);
    let run = match engine.host_exec(&caller, command.clone()).await {
        Err(error) if error.code == ErrorCode::PolicyDenied && may_ask => {
            match ask_approval(context.terminal, engine, &caller, &command).await? {
                true => engine.host_exec(&caller, command).await?,
                false => return Err(error),
            }
        }
        result => result?,
    };
    if json {
        context.show(json, &render::host_run(&run, TEXT_MAX))?;
    } else {
        print(context.terminal, &run)?;
    }
    Ok(ExitCode::from(match run.ending {
        HostEnding::Code(code) => u8::try_from(code).unwrap_or(FAILED),
        HostEnding::Signal(signal) => 128_u8.saturating_add(u8::try_from(signal).unwrap_or(0)),
        HostEnding::Timeout => 124,
        HostEnding::OutOfMemory => 137,
    }))
}

fn print(terminal: Terminal, run: &HostRun) -> CommandResult {
    let printed = printed(
        terminal
            .print_bytes(&run.stdout)
            .and_then(|()| terminal.note_bytes(&run.stderr)),
    );
    for (name, kept, all) in [
        ("stdout", run.stdout.len(), run.stdout_bytes),
        ("stderr", run.stderr.len(), run.stderr_bytes),
    ] {
        if all > kept as u64 {
            terminal.dim(&format!("{name} was cut: {kept} of {all} bytes"));
        }
    }
    printed
}

/// Requests approval of a command, as an agent does, and answers the request here. True if it is approved.
async fn ask_approval(
    terminal: Terminal,
    engine: &Engine,
    caller: &Caller,
    command: &HostCommand,
) -> Result<bool, RequestError> {
    let mut waiting = engine
        .request_host_access(caller, command.clone(), String::new())
        .await?;
    if let Some(request) = waiting.request().cloned() {
        terminal.note(&neutral::text(&request.lines.join("\n")));
        let answer = match says_yes(terminal, Keyboard::new(), "run it once? [y/N] ").await? {
            true => Answer::Approve(ScopeChoice::Once),
            false => Answer::Deny,
        };
        let by = Caller::new("the terminal");
        engine
            .decide_approval(&by, &request.id, &request.digest(), answer)
            .await?;
    }
    Ok(waiting.decided().await.is_approved())
}
