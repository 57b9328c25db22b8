//! `ringfence validate`: checks code, JSON and tables without running anything. The parsers read untrusted text and
//! therefore run behind the same walls as a program; findings are shown as a compiler shows them.

mod data;
mod sarif;
mod write;

use super::{CommandResult, Context, MISUSED, hints, live, printed, request};
use crate::{
    render::diagnostics::{self, Bounds, StyledText},
    terminal::Terminal,
};
use clap::{Args, ValueEnum};
use ringfence_engine::{Caller, CodeRequest, Engine, Fixing};
use ringfence_types::{
    CsvReport, ErrorCode, JsonReport, Language, ModuleName, Namespace, Profile, RequestError, Severity,
    Validation, Verdict,
};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

#[derive(Debug, Args)]
pub(super) struct ValidateArguments {
    /// Files to check, or `-` for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Language: python, node, typescript or shell [default: from each file's extension, else its first line]
    #[arg(short, long, value_name = "NAME")]
    language: Option<Language>,
    /// Kind of the files [default: from each file's extension]
    #[arg(long = "as", value_name = "KIND")]
    kind: Option<Kind>,
    /// Only report missing imports, instead of adding them (Python's; nothing is added in other languages)
    #[arg(long)]
    no_auto_fix: bool,
    /// Write the files that were fixed, each atomically
    #[arg(long, conflicts_with = "no_auto_fix")]
    write: bool,
    /// Profile for Python: unrestricted, basic, data_science, network, filesystem or strict
    #[arg(long, value_name = "NAME")]
    profile: Option<Profile>,
    /// Module that Python may import besides those of the profile; with `unrestricted`, only these
    #[arg(long, value_name = "MODULE")]
    allow_import: Vec<ModuleName>,
    /// Also reject files with warnings
    #[arg(long)]
    strict: bool,
    /// For JSON: the name of a registered schema (config, user, dataset or your own), or a schema's file [default: any
    /// JSON]
    #[arg(long, value_name = "NAME|FILE")]
    schema: Option<String>,
    /// For tables: a required column
    #[arg(long, value_name = "COLUMN")]
    require: Vec<String>,
    /// For tables: a JSON file with constraints for columns, such as {"age": "integer", "id": {"type": "uuid",
    /// "unique": true}}
    #[arg(long, value_name = "FILE")]
    constraints: Option<PathBuf>,
    /// For tables: the separator of fields [default: detected]
    #[arg(long, value_name = "CHARACTER")]
    delimiter: Option<String>,
    /// Print one JSON document for each file
    #[arg(long, conflicts_with = "sarif")]
    json: bool,
    /// Print SARIF 2.1.0, or write it to a file (with `=`)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = request::STDIN)]
    sarif: Option<PathBuf>,
}

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A program
    Code,
    /// A JSON document
    Json,
    /// A table of comma-separated values
    Csv,
}

const CALLER: &str = "cli validate";

pub(super) fn validate(context: &Context, arguments: &ValidateArguments) -> CommandResult {
    perform(context, arguments).or_else(|error| {
        let error = hints::in_commands(error);
        super::report_error(context.terminal, arguments.json, &error);
        Ok(ExitCode::from(code_of(&error)))
    })
}

/// Exit code of an error. `not_found` means a schema that the command line names, thus an invalid command line.
fn code_of(error: &RequestError) -> u8 {
    match error.code {
        ErrorCode::NotFound => MISUSED,
        _ => super::status_of(error),
    }
}

struct Checked {
    /// The path as given, or `<stdin>`.
    name: String,
    report: Report,
    code: u8,
    facts: Value,
}

enum Report {
    Code {
        language: Language,
        code: String,
        found: Box<Validation>,
    },
    Json(JsonReport),
    Csv(CsvReport),
    /// The file could not be checked. The other files are checked nevertheless.
    Unread(RequestError),
}

impl Checked {
    async fn of(engine: &Engine, arguments: &ValidateArguments, file: &Path) -> Self {
        let report = match arguments.kind_of(file) {
            Kind::Code => code(engine, arguments, file).await,
            Kind::Json => data::json(engine, arguments, file).await,
            Kind::Csv => data::csv(engine, arguments, file).await,
        };
        let name = match file.to_str() {
            Some(request::STDIN) => "<stdin>".to_owned(),
            _ => file.to_string_lossy().into_owned(),
        };
        let report = report.unwrap_or_else(|error| Report::Unread(hints::in_commands(error)));
        let (code, mut facts) = match &report {
            Report::Code { language, found, .. } => {
                let mut facts = json!(found);
                facts["language"] = json!(language);
                (u8::from(!found.valid), facts)
            }
            Report::Json(report) => (u8::from(!report.valid), json!(report)),
            Report::Csv(report) => (u8::from(!report.valid), json!(report)),
            Report::Unread(error) => (code_of(error), json!({"error": error})),
        };
        facts["file"] = json!(name);
        Self {
            name,
            report,
            code,
            facts,
        }
    }

    fn styled(&self) -> StyledText {
        let name = &self.name;
        let (mut styled, summary) = match &self.report {
            Report::Code { code, found, .. } => {
                let mut styled = diagnostics::of_code(name, code, found, Bounds::TERMINAL);
                if let Some(fixed) = &found.fixed_code {
                    styled.append(diagnostics::difference(name, code, fixed));
                }
                (styled, diagnostics::summary(name, found))
            }
            Report::Json(report) => {
                let styled = diagnostics::of_json(name, report, Bounds::TERMINAL);
                (styled, diagnostics::json_summary(name, report))
            }
            Report::Csv(report) => {
                let styled = diagnostics::of_csv(name, report, Bounds::TERMINAL);
                (styled, diagnostics::csv_summary(name, report))
            }
            Report::Unread(_) => return StyledText::default(),
        };
        styled.append(summary);
        styled
    }
}

fn perform(context: &Context, arguments: &ValidateArguments) -> CommandResult {
    check_flags(arguments)?;
    let config = context.begin()?;
    let checked = live::with_engine(config.engine, async |engine| {
        let mut checked = Vec::new();
        for file in &arguments.files {
            checked.push(Checked::of(engine, arguments, file).await);
        }
        Ok(checked)
    })?;
    check_python(arguments, &checked)?;
    conclude(context.terminal, arguments, &checked)
}

fn conclude(terminal: Terminal, arguments: &ValidateArguments, checked: &[Checked]) -> CommandResult {
    if let Some(to) = &arguments.sarif {
        let document = sarif::of(checked);
        if to == Path::new(request::STDIN) {
            printed(terminal.print_json(&document))?;
        } else {
            write::replace(to, format!("{document:#}\n").as_bytes(), None)?;
        }
    }
    for one in checked {
        if arguments.json {
            printed(terminal.print_json(&one.facts))?;
        } else if arguments.sarif.is_none() {
            printed(terminal.print_styled(&one.styled()))?;
        }
        if let (Report::Unread(error), false) = (&one.report, arguments.json) {
            let message = match error.message.contains(&one.name) {
                true => error.message.clone(),
                false => format!("{}: {}", one.name, error.message),
            };
            terminal.error_with_hint(&message, &error.hint);
        }
    }
    if arguments.write {
        for one in checked {
            write_fixed(terminal, one)?;
        }
    }
    let code = checked.iter().map(|one| one.code).max();
    Ok(ExitCode::from(code.unwrap_or_default()))
}

fn write_fixed(terminal: Terminal, checked: &Checked) -> Result<(), RequestError> {
    let Report::Code { code, found, .. } = &checked.report else {
        return Ok(());
    };
    if found.verdict == Verdict::Reject && found.fixed_code.is_some() {
        terminal.dim(&format!("{} was not written: it is rejected", checked.name));
        return Ok(());
    }
    if let Some(fixed) = &found.fixed_code {
        write::replace(Path::new(&checked.name), fixed.as_bytes(), Some(code.as_bytes()))?;
        terminal.dim(&format!(
            "{} was written: {}",
            checked.name,
            found.fixes_applied.join("; ")
        ));
    }
    Ok(())
}

/// Refuses flags that contradict each other or concern none of the files.
fn check_flags(arguments: &ValidateArguments) -> Result<(), RequestError> {
    let is_stdin = |file: &PathBuf| file == Path::new(request::STDIN);
    if arguments.write && arguments.files.iter().any(is_stdin) {
        return Err(RequestError::invalid(
            "--write: standard input cannot be written.",
            "Name a file, or take `fixed_code` of --json.",
        ));
    }
    let has_kind = |kind| arguments.files.iter().any(|file| arguments.kind_of(file) == kind);
    for (flag, is_given, kind, what) in [
        ("--language", arguments.language.is_some(), Kind::Code, "code"),
        ("--strict", arguments.strict, Kind::Code, "code"),
        ("--schema", arguments.schema.is_some(), Kind::Json, "JSON"),
        ("--require", !arguments.require.is_empty(), Kind::Csv, "tables"),
        (
            "--constraints",
            arguments.constraints.is_some(),
            Kind::Csv,
            "tables",
        ),
        ("--delimiter", arguments.delimiter.is_some(), Kind::Csv, "tables"),
    ] {
        if is_given && !has_kind(kind) {
            return Err(flag_without_file(flag, what));
        }
    }
    Ok(())
}

fn check_python(arguments: &ValidateArguments, checked: &[Checked]) -> Result<(), RequestError> {
    let is_python = |one: &Checked| match &one.report {
        Report::Code { language, .. } => *language == Language::Python,
        Report::Json(_) | Report::Csv(_) => false,
        // Its language is unknown.
        Report::Unread(_) => true,
    };
    for (flag, is_given) in [
        ("--profile", arguments.profile.is_some()),
        ("--allow-import", !arguments.allow_import.is_empty()),
        ("--write", arguments.write),
    ] {
        if is_given && !checked.iter().any(is_python) {
            return Err(flag_without_file(flag, "Python"));
        }
    }
    Ok(())
}

fn flag_without_file(flag: &str, what: &str) -> RequestError {
    RequestError::invalid(
        format!("{flag} is about {what}, and none of the files is."),
        "Leave it out, or say with --as what the files are.",
    )
}

impl ValidateArguments {
    fn kind_of(&self, file: &Path) -> Kind {
        self.kind.unwrap_or_else(|| kind_of(file))
    }
}

fn kind_of(file: &Path) -> Kind {
    let extension = file.extension().and_then(|extension| extension.to_str());
    match extension.map(str::to_ascii_lowercase).as_deref() {
        Some("json") => Kind::Json,
        Some("csv" | "tsv") => Kind::Csv,
        _ => Kind::Code,
    }
}

async fn code(engine: &Engine, arguments: &ValidateArguments, file: &Path) -> Result<Report, RequestError> {
    let code = request::read_script(file)?;
    let language = request::language(arguments.language, file, &code)?;
    let is_python = language == Language::Python;
    let beside = match file.parent() {
        Some(directory) if is_python && file != Path::new(request::STDIN) => python_files(directory),
        _ => Vec::new(),
    };
    let request = CodeRequest {
        namespace: Namespace::default_name(),
        language,
        code: code.clone(),
        fixing: match arguments.no_auto_fix {
            true => Fixing::No,
            false => Fixing::Apply,
        },
        profile: arguments.profile.filter(|_| is_python),
        allowed_imports: request::modules(&arguments.allow_import).filter(|_| is_python),
        beside,
    };
    let found = engine.validate_code(&Caller::new(CALLER), request).await?;
    let found = hints::validation_in_commands(found);
    Ok(Report::Code {
        language,
        code,
        found: Box::new(if arguments.strict { strictly(found) } else { found }),
    })
}

const BESIDE_MAX: usize = 10_000;

fn python_files(directory: &Path) -> Vec<String> {
    let directory = match directory.as_os_str().is_empty() {
        true => Path::new("."),
        false => directory,
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let names = entries.take(BESIDE_MAX).filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        match entry.path().is_dir() {
            true => Some(format!("{name}/__init__.py")),
            false => name.ends_with(".py").then_some(name),
        }
    });
    names.collect()
}

fn strictly(found: Validation) -> Validation {
    let mut severities = found.issues.iter().map(|issue| issue.severity);
    if severities.any(|severity| severity >= Severity::Warning) {
        found.rejected()
    } else {
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::diagnostics::tests::{issue, validation};
    use clap::Parser;

    fn parse(words: &[&str]) -> Result<ValidateArguments, clap::Error> {
        let words = ["ringfence", "validate"].iter().chain(words);
        match crate::cli::Cli::try_parse_from(words)?.command {
            crate::cli::Command::Validate(arguments) => Ok(*arguments),
            _ => unreachable!("the words say validate"),
        }
    }

    #[test]
    fn file_after_sarif_flag_is_checked_and_not_written() {
        let arguments = parse(&["--sarif", "main.py"]).unwrap();
        assert_eq!(arguments.sarif.unwrap(), Path::new("-"));
        assert_eq!(arguments.files, [Path::new("main.py")]);
        let arguments = parse(&["--sarif=out.sarif", "main.py"]).unwrap();
        assert_eq!(arguments.sarif.unwrap(), Path::new("out.sarif"));
    }

    #[test]
    fn flags_are_parsed_and_contradictions_are_rejected() {
        let arguments = parse(&[
            "a.py",
            "--profile",
            "strict",
            "--allow-import",
            "os.path",
            "--as",
            "csv",
        ]);
        let arguments = arguments.unwrap();
        assert_eq!(arguments.profile, Some(Profile::Strict));
        assert_eq!(arguments.kind, Some(Kind::Csv));
        assert_eq!(request::modules(&arguments.allow_import).unwrap().len(), 1);
        assert!(request::modules(&[]).is_none());
        for bad in [
            &[][..],
            &["a.py", "--profile", "basik"],
            &["a.py", "--allow-import", "a-b"],
            &["a.py", "--write", "--no-auto-fix"],
            &["a.py", "--json", "--sarif"],
            &["a.py", "--as", "xml"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn file_kind_comes_from_extension() {
        let check = |name: &str, expect: Kind| assert_eq!(kind_of(Path::new(name)), expect, "{name}");
        check("a.JSON", Kind::Json);
        check("a.tsv", Kind::Csv);
        check("a.csv", Kind::Csv);
        check("a.py", Kind::Code);
        check("-", Kind::Code);
    }

    #[test]
    fn strict_mode_rejects_warnings_but_not_notes() {
        let of = |severity| strictly(validation(vec![issue((1, 1), (1, 2), severity)])).valid;
        assert!(of(Severity::Info) && !of(Severity::Warning));
    }
}
