//! `ringfence audit`: lists, checks, exports and archives the record. It is read from its file, also while a server
//! writes it. A record in a server's memory can only be listed, by that server.

use super::{
    CommandResult, Context, ended, fault,
    live::{self, Options},
    printed, stored,
    token::OutputFormat,
};
use crate::{
    control::{AuditQuery, Request},
    render::{self, Rendered, diagnostics::Style},
    sentence,
    terminal::{Terminal, neutral},
    time,
};
use clap::{Args, Subcommand, ValueEnum};
use ringfence_engine::RecordSettings;
use ringfence_store::{
    audit::{self, Audit, ExportError, Format, Query, Records, Storage, Verdict},
    from_hex, public_key_of_pem, to_hex,
};
use ringfence_types::{ErrorCode, Namespace, RequestError};
use serde_json::{Value, json};
use std::{
    fs::File,
    io::{self, BufWriter, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct AuditArguments {
    #[command(subcommand)]
    action: Option<AuditAction>,
    #[command(flatten)]
    list: ListArguments,
}

#[derive(Debug, Subcommand)]
enum AuditAction {
    /// Show records, newest first (the default)
    List(Box<ListArguments>),
    /// Check every record, and name the first that is not as it was written (exit code 1)
    Verify(VerifyArguments),
    /// Export records as lines of JSON, oldest first
    Export(ExportArguments),
    /// Move all records into a closed, compressed segment beside the database, and print its name
    Archive(OutputFormat),
    /// Print the public key that verifies the record's signatures, in PEM
    Key,
}

#[derive(Debug, Args)]
struct ListArguments {
    #[command(flatten)]
    query: AuditQuery,
    #[command(flatten)]
    opts: Options,
}

#[derive(Debug, Args)]
struct VerifyArguments {
    /// Head that was noted earlier, which must be in the chain
    #[arg(long, value_name = "SEQ:HASH", value_parser = head)]
    head: Option<(u64, [u8; 32])>,
    /// Public key in PEM [default: of the state directory's signing key]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ExportArguments {
    /// Format of a line
    #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
    format: Form,
    /// Only records of this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<Namespace>,
    /// Only records since this time, or since so long ago, such as 2h; a number alone is seconds
    #[arg(long, value_name = "TIME", value_parser = time::read)]
    since: Option<i64>,
    /// New file to write to [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    /// Everything that is needed to check hashes and signatures
    Jsonl,
    /// Events of the Open Cybersecurity Schema Framework 1.3
    Ocsf,
}

/// Exit code of a record that is not what was written.
const BAD: u8 = 1;
const PAGE: usize = 1000;
const PROGRESS: Duration = Duration::from_millis(100);
const KEY_BYTES_MAX: u64 = 16 << 10;

fn head(text: &str) -> Result<(u64, [u8; 32]), String> {
    let read = || {
        let (seq, digits) = text.split_once(':')?;
        Some((seq.parse().ok()?, from_hex(&digits.to_ascii_lowercase())?))
    };
    read().ok_or_else(|| "write SEQ:HASH, as `ringfence audit verify` prints it".to_owned())
}

pub(super) fn audit(context: &Context, arguments: AuditArguments) -> CommandResult {
    match arguments.action {
        None => list(context, arguments.list),
        Some(AuditAction::List(arguments)) => list(context, *arguments),
        Some(AuditAction::Verify(arguments)) => verify(context, &arguments),
        Some(AuditAction::Export(arguments)) => export(context, &arguments),
        Some(AuditAction::Archive(shown)) => context.show(shown.json, &archive(context)?),
        Some(AuditAction::Key) => key(context),
    }
}

/// Warns on stderr of damaged files, whose records are not all shown.
fn report_damaged(context: &Context, damaged: &[String]) {
    for file in damaged {
        let text = format!("damaged, and not all of it is shown: {file}");
        context.terminal.dim(&neutral::line(&text));
    }
}

/// Closes a segment, also while servers write. The hash chain continues across it.
fn archive(context: &Context) -> Result<Rendered, RequestError> {
    let config = context.config()?;
    let record = &config.engine.record;
    let storage = Storage::File(file(record)?.to_owned());
    let writer = format!("cli-{}", std::process::id());
    let audit = Audit::open(storage, record.audit.durability, stored::signer(record)?, writer);
    let closed = audit.and_then(|audit| audit.archive());
    let closed = closed.map_err(|error| {
        RequestError::new(
            ErrorCode::AuditUnavailable,
            format!("no segment was closed: {error}."),
            "Run the command as the user who runs the server; `ringfence audit verify` looks at the record.",
        )
    })?;
    let text = match &closed {
        None => "nothing to close\n".to_owned(),
        Some(path) => format!("{}\n", path.display()),
    };
    Ok(Rendered::new(text, json!({"segment": closed})))
}

fn file(record: &RecordSettings) -> Result<&Path, RequestError> {
    match &record.audit.place {
        Storage::File(path) if stored::is_there(path)? => Ok(path),
        Storage::File(path) => Err(RequestError::not_found(
            format!("there is no audit record at {}.", path.display()),
            "The first run or server makes it; `ringfence config show` says where (`audit.path`, `state_dir`).",
        )),
        Storage::Memory => Err(RequestError::not_found(
            "the audit record is kept in a server's memory (`audit.store: memory`), where nothing can be checked from outside.",
            "`ringfence audit list` asks the server; set `audit.store: sqlite` for a record that lasts.",
        )),
    }
}

fn unread(error: &dyn std::fmt::Display) -> RequestError {
    RequestError::store_fault(
        format!("the audit record cannot be read: {error}."),
        "Run the command as the user who runs the server.",
    )
}

fn list(context: &Context, arguments: ListArguments) -> CommandResult {
    let config = context.config()?;
    let ListArguments { query: request, opts } = arguments;
    // Checked here too, so that an error reads the same with and without a server.
    let query = request.clone().query()?;
    if config.engine.record.audit.place == Storage::Memory || opts.server.is_some() {
        return live::one_of(
            context,
            &config.engine.state_dir,
            &opts,
            &Request::Audit { query: request },
        );
    }
    let page = audit::query(file(&config.engine.record)?, &query).map_err(|error| unread(&error))?;
    let shown = render::records_in_commands(&page);
    if opts.json {
        report_damaged(context, &page.damaged);
    }
    context.show(opts.json, &shown)
}

fn verify(context: &Context, arguments: &VerifyArguments) -> CommandResult {
    let config = context.config()?;
    let record = &config.engine.record;
    let path = file(record)?;
    let key = match &arguments.key {
        Some(path) => key_of(path)?,
        None => stored::signer(record)?.public_key(),
    };
    let terminal = context.terminal;
    let mut last = Instant::now();
    let mut progress = |done: u64, all: u64| {
        if last.elapsed() >= PROGRESS {
            last = Instant::now();
            terminal.progress(&format!("{done} of {all} records checked"));
        }
    };
    let verdict = audit::verify(path, Some(&key), arguments.head, &mut progress);
    terminal.progress("");
    let verdict = verdict.map_err(|error| unread(&error))?;
    let printed = if arguments.json {
        terminal.print_json(&facts(&verdict, path))
    } else {
        terminal.print(&verdict_text(&verdict, terminal))
    };
    ended(printed, if verdict.bad.is_some() { BAD } else { 0 })
}

fn key(context: &Context) -> CommandResult {
    let config = context.config()?;
    let signer = stored::signer(&config.engine.record)?;
    let pem = signer
        .public_key_pem()
        .map_err(|error| fault("write the key", &error))?;
    printed(context.terminal.print(&pem))
}

fn key_of(path: &Path) -> Result<[u8; 32], RequestError> {
    let invalid = |what: &dyn std::fmt::Display| {
        RequestError::invalid(
            format!("--key {}: {what}.", path.display()),
            "Give the Ed25519 public key in PEM.",
        )
    };
    let mut pem = String::new();
    File::open(path)
        .and_then(|file| file.take(KEY_BYTES_MAX).read_to_string(&mut pem))
        .map_err(|error| invalid(&error))?;
    public_key_of_pem(&pem).ok_or_else(|| invalid(&"it is not an Ed25519 public key"))
}

fn head_text(verdict: &Verdict) -> Option<String> {
    let head = verdict.head?;
    Some(format!("{}:{}", head.seq, to_hex(&head.hash)))
}

fn facts(verdict: &Verdict, path: &Path) -> Value {
    json!({
        "ok": verdict.bad.is_none(),
        "file": path,
        "records": verdict.records,
        "head": head_text(verdict),
        "bad": verdict.bad.as_ref().map(|bad| json!({"seq": bad.seq, "what": bad.what.to_string()})),
        "breaks": verdict.breaks,
        "set_back": verdict.set_back,
    })
}

fn verdict_text(verdict: &Verdict, terminal: Terminal) -> String {
    let mut text = match &verdict.bad {
        None => format!(
            "{}: {}\n",
            terminal.mark(Style::Good, "intact"),
            sentence::counted(verdict.records, "record")
        ),
        // The fault may quote the file, which is untrusted.
        Some(bad) => format!(
            "{}: {}\n{} intact before it\n",
            terminal.mark(Style::Error, "BAD"),
            neutral::line(&bad.to_string()),
            sentence::counted(verdict.records, "record")
        ),
    };
    for seq in &verdict.breaks {
        text += &format!("the chain begins anew at record {seq}, after a break; `audit list` shows why\n");
    }
    if verdict.set_back > 0 {
        text += &format!(
            "{} records are dated before their predecessor: the clock was set back\n",
            verdict.set_back
        );
    }
    if let Some(head) = head_text(verdict) {
        text += &format!("head {head}\n");
    }
    text
}

fn export(context: &Context, arguments: &ExportArguments) -> CommandResult {
    let config = context.config()?;
    let path = file(&config.engine.record)?;
    let query = Query {
        namespace: arguments.namespace.as_ref().map(ToString::to_string),
        since_us: arguments.since,
        limit: PAGE,
        ..Query::default()
    };
    let format = match arguments.format {
        Form::Jsonl => Format::Json,
        Form::Ocsf => Format::Ocsf,
    };
    let mut records = Records::of(path, query);
    let written = match &arguments.output {
        None => audit::export(&mut records, format, &mut context.terminal.json_lines()),
        Some(output) => {
            let mut options = File::options();
            options.write(true).create_new(true).mode(0o600);
            let file = options.open(output).map_err(|error| {
                RequestError::invalid(
                    format!("cannot make {}: {error}.", output.display()),
                    "Name a file that does not exist yet, in a directory that you may write.",
                )
            })?;
            audit::export(&mut records, format, &mut BufWriter::new(file))
        }
    };
    report_damaged(context, records.damaged());
    match written {
        Ok(lines) => {
            if let Some(output) = &arguments.output {
                context
                    .terminal
                    .dim(&format!("{lines} records in {}", output.display()));
            }
            Ok(ExitCode::SUCCESS)
        }
        // The reader wants no more.
        Err(ExportError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => {
            // A part of the record could be taken for all of it, and would refuse a second try.
            let removed = arguments.output.as_ref().map_or(Ok(()), std::fs::remove_file);
            if let Err(error) = removed {
                context
                    .terminal
                    .dim(&format!("the incomplete export is left: {error}"));
            }
            Err(match error {
                ExportError::Write(error) => fault("write the export", &error),
                ExportError::Read(error) => unread(&error),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_head_is_parsed() {
        let hash = [0xab; 32];
        assert_eq!(head(&format!("7:{}", to_hex(&hash))), Ok((7, hash)));
        let digits = "ab".repeat(32);
        for text in [
            String::new(),
            digits.clone(),
            format!(":{digits}"),
            format!("-1:{digits}"),
            format!("7:{digits}0"),
            format!("7:{}", &digits[2..]),
            format!("7:{}+a", &digits[2..]),
            format!("7:{}", "é".repeat(32)),
        ] {
            assert!(head(&text).is_err(), "{text}");
        }
    }
}
