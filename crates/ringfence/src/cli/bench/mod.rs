//! `ringfence bench`: what a run costs on this host, beside what the bare interpreter costs. Lines are measured in turn
//! (A B C A B C ...), so that whatever else the machine does hits all of them alike.

mod figures;
mod measure;
mod plot;

use super::{Context, fault, printed};
use clap::Args;
use figures::Document;
use ringfence_types::RequestError;
use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    process::ExitCode,
};

#[derive(Debug, Args)]
pub(super) struct BenchArguments {
    /// Measurements of each line
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Print one JSON document, with every measurement
    #[arg(long)]
    json: bool,
    /// Write a picture of the distributions (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Measure nothing; show what an earlier `--json` has printed
    #[arg(long, value_name = "FILE", conflicts_with = "runs")]
    read: Option<PathBuf>,
}

/// The longest document that is read, in bytes.
const DOCUMENT_BYTES_MAX: u64 = 16 << 20;

pub(super) fn bench(context: &Context, arguments: &BenchArguments) -> Result<ExitCode, RequestError> {
    let document = match &arguments.read {
        Some(file) => read(file)?,
        None => {
            let say = |text: &str| context.terminal.dim(text);
            measure::everything(context.begin()?.engine, arguments.runs as usize, say)?
        }
    };
    if let Some(file) = &arguments.plot {
        fs::write(file, plot::svg(&document))
            .map_err(|error| fault(&format!("write {}", file.display()), &error))?;
    }
    printed(match arguments.json {
        true => context.terminal.print_json(&document),
        false => context.terminal.print(&document.as_text()),
    })
}

fn read(path: &Path) -> Result<Document, RequestError> {
    let wrong = |reason: String| {
        RequestError::invalid(
            format!(
                "{} is not a result of `ringfence bench`: {reason}.",
                path.display()
            ),
            "Name a file that `ringfence bench --json` has written.",
        )
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    file.take(DOCUMENT_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error: io::Error| wrong(error.to_string()))?;
    let document: Document = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    document.check().map_err(wrong)?;
    Ok(document)
}
