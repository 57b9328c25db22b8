//! `ringfence bench`: the time of a run on this host, compared with the bare interpreter. Workloads are measured in
//! turn (A B C A B C ...), so that other load on the machine affects all of them alike.

mod figures;
mod measure;
mod plot;

use super::{CommandResult, Context, fault, request};
use crate::render::Rendered;
use clap::Args;
use figures::Document;
use ringfence_types::RequestError;
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
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
    /// Measure nothing; show the result of an earlier `--json`
    #[arg(long, value_name = "FILE", conflicts_with = "runs")]
    read: Option<PathBuf>,
}

const DOCUMENT_BYTES_MAX: usize = 16 << 20;

pub(super) fn bench(context: &Context, arguments: &BenchArguments) -> CommandResult {
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
    context.show(
        arguments.json,
        &Rendered::new(document.as_text(), json!(document)),
    )
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
    let bytes = request::read_input(path, DOCUMENT_BYTES_MAX, "the result")?;
    let document: Document = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    document.check().map_err(wrong)?;
    Ok(document)
}
