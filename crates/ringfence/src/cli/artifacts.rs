//! `ringfence artifacts`: lists or copies out the files that executions left, after a check of their signature and, for
//! a copy, of every byte. File names are untrusted: programs chose them.
//! `ringfence verify`: compares a file with a given digest, or with the signed artifacts of an execution.

use super::{CommandResult, Context, ended, fault, stored};
use crate::{
    render::{self, Rendered, diagnostics::Style},
    terminal::{Terminal, neutral},
    time,
};
use clap::Args;
use ringfence_engine::{ExportDirectory, create_below};
use ringfence_store::artifacts::{ArtifactStore, Manifest, SignedItem, digest};
use ringfence_types::{Namespace, RequestError};
use serde_json::json;
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

#[derive(Debug, Args)]
pub(super) struct ArtifactsArguments {
    /// The execution [default: list the latest ones]
    id: Option<String>,
    /// Namespace that it belongs to
    #[arg(long, value_name = "NAME", default_value = "default")]
    namespace: Namespace,
    /// Copy the files into this directory without overwriting any (exit code 1 if one cannot be copied)
    #[arg(long, value_name = "DIR", requires = "id")]
    out: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Exit code if some of the artifacts could not be copied.
const INCOMPLETE: u8 = 1;
const LATEST: usize = 50;

pub(super) fn artifacts(context: &Context, arguments: &ArtifactsArguments) -> CommandResult {
    let config = context.begin()?;
    let record = &config.engine.record;
    let Some(id) = &arguments.id else {
        return latest(context, stored::artifacts(record)?.as_ref(), arguments);
    };
    let (store, manifest) = stored::manifest(record, id, &arguments.namespace)?;
    match &arguments.out {
        None => show(context, arguments, &manifest),
        Some(directory) => copy_all(context.terminal, arguments, &store, &manifest, directory),
    }
}

fn latest(context: &Context, store: Option<&ArtifactStore>, arguments: &ArtifactsArguments) -> CommandResult {
    let listed = store.map_or(Ok(Vec::new()), |store| {
        store.executions(&arguments.namespace, LATEST)
    });
    let listed = listed.map_err(|error| stored::unread(&error))?;
    let time = |unix_ms: u64| time::write_seconds(unix_ms / 1000);
    let facts = listed.iter().map(|one| {
        json!({
            "execution_id": one.execution_id, "created": time(one.created_unix_ms),
            "artifacts": one.artifacts, "size_bytes": one.size_bytes,
        })
    });
    let rows = listed.iter().map(|one| {
        let (files, bytes) = (one.artifacts.to_string(), one.size_bytes.to_string());
        [one.execution_id.clone(), time(one.created_unix_ms), files, bytes]
    });
    let columns = [("EXECUTION", 36), ("TIME", 20), ("FILES", -5), ("BYTES", -12)];
    let namespace = &arguments.namespace;
    let text = match listed.is_empty() {
        true => format!("no execution of {namespace} has left any files\n"),
        false => render::table(columns, rows),
    };
    let facts = json!({"namespace": namespace, "executions": facts.collect::<Vec<_>>()});
    context.show(arguments.json, &Rendered::new(text, facts))
}

fn show(context: &Context, arguments: &ArtifactsArguments, manifest: &Manifest) -> CommandResult {
    let columns = [("SHA256", 64), ("BYTES", -12), ("TYPE", 24), ("NAME", 0)];
    let rows = manifest.artifacts.iter().map(|item| {
        let [mime, name] = [&item.mime, &item.name].map(|text| neutral::line(text));
        [item.sha256.clone(), item.size_bytes.to_string(), mime, name]
    });
    let shown = Rendered::new(render::table(columns, rows), json!(manifest));
    context.show(arguments.json, &shown)
}

/// Copies all artifacts. A failure does not stop the others from being copied.
fn copy_all(
    terminal: Terminal,
    arguments: &ArtifactsArguments,
    store: &ArtifactStore,
    manifest: &Manifest,
    directory: &Path,
) -> CommandResult {
    let export = ExportDirectory::open(directory).map_err(|error| {
        RequestError::invalid(
            format!("cannot make {}: {error}.", directory.display()),
            "Name a directory that you may write.",
        )
    })?;
    let mut all_there = true;
    let mut copies = Vec::new();
    for item in &manifest.artifacts {
        let why = copy(store, manifest, item, &export).err();
        all_there &= why.is_none();
        if !arguments.json {
            let name = neutral::line(&item.name);
            match &why {
                None => terminal.print(&format!("{name} {} bytes\n", item.size_bytes)),
                Some(why) => {
                    terminal.error_with_hint(
                        &format!("{name} was not copied: {why}."),
                        "Files are not overwritten, and hidden files are not created.",
                    );
                    Ok(())
                }
            }
            .map_err(|error| fault("print", &error))?;
        }
        copies.push(json!({
            "name": item.name, "size_bytes": item.size_bytes, "sha256": item.sha256,
            "copied": why.is_none(), "why": why,
        }));
    }
    if arguments.json {
        let document =
            json!({"execution_id": manifest.execution_id, "directory": directory, "artifacts": copies});
        super::printed(terminal.print_json(&document))?;
    }
    Ok(ExitCode::from(if all_there { 0 } else { INCOMPLETE }))
}

/// Copies one artifact. All of its content is checked before the first byte is copied.
fn copy(
    store: &ArtifactStore,
    manifest: &Manifest,
    item: &SignedItem,
    export: &ExportDirectory,
) -> Result<(), String> {
    let found = store
        .read(&manifest.execution_id, &manifest.namespace, &item.name)
        .map_err(|error| error.to_string())?;
    let (_, mut content) = found.ok_or_else(|| "it has been removed meanwhile".to_owned())?;
    let mut file = create_below(export, &item.name).map_err(|error| error.to_string())?;
    let copied = io::copy(&mut content, &mut file).map_err(|error| error.to_string())?;
    if copied == item.size_bytes {
        Ok(())
    } else {
        Err(format!("only {copied} bytes of it were copied"))
    }
}

#[derive(Debug, Args)]
pub(super) struct VerifyArguments {
    /// File to check
    file: PathBuf,
    /// Expected SHA-256, in hexadecimal
    #[arg(value_parser = sha256)]
    sha256: Option<String>,
    /// Compare it with the signed artifacts of this execution
    #[arg(long, value_name = "ID", conflicts_with = "sha256")]
    execution: Option<String>,
    /// Namespace of that execution
    #[arg(long, value_name = "NAME", default_value = "default", requires = "execution")]
    namespace: Namespace,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Exit code of a file that does not match.
const DIFFERS: u8 = 1;

fn sha256(text: &str) -> Result<String, String> {
    let is_valid = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_valid
        .then(|| text.to_ascii_lowercase())
        .ok_or_else(|| "a SHA-256 is 64 hexadecimal digits".to_owned())
}

pub(super) fn verify(context: &Context, arguments: &VerifyArguments) -> CommandResult {
    let expected = expected(context, arguments)?;
    let opened = File::open(&arguments.file).and_then(digest);
    let (found, size_bytes) = opened.map_err(|error| {
        RequestError::invalid(
            format!("cannot read {}: {error}.", arguments.file.display()),
            "Name a file that exists.",
        )
    })?;
    let names = expected.iter().filter(|(digest, _)| *digest == found);
    let names: Vec<&str> = names.map(|(_, name)| name.as_str()).collect();
    let terminal = context.terminal;
    let is_it = !names.is_empty();
    let printed = if arguments.json {
        let signed = arguments.execution.is_some().then_some(&names);
        terminal.print_json(&json!({
            "ok": is_it, "file": arguments.file, "sha256": found, "size_bytes": size_bytes, "names": signed,
        }))
    } else {
        let (mark, word) = if is_it {
            (Style::Good, "match")
        } else {
            (Style::Error, "NO MATCH")
        };
        let mut text = format!(
            "{}: sha256 {found}, {size_bytes} bytes\n",
            terminal.mark(mark, word)
        );
        for name in names.iter().filter(|_| arguments.execution.is_some()) {
            text += &format!("signed as {}\n", neutral::line(name));
        }
        terminal.print(&text)
    };
    ended(printed, if is_it { 0 } else { DIFFERS })
}

/// Acceptable digests, each with the artifact's name, which is empty for the digest of the command line.
fn expected(context: &Context, arguments: &VerifyArguments) -> Result<Vec<(String, String)>, RequestError> {
    let Some(id) = &arguments.execution else {
        let digest = arguments.sha256.clone().ok_or_else(|| {
            RequestError::invalid(
                "verify needs what the file should be: its SHA-256, or --execution ID.",
                "`ringfence artifacts` lists executions that left files; `ringfence artifacts ID` has their SHA-256.",
            )
        })?;
        return Ok(vec![(digest, String::new())]);
    };
    let config = context.config()?;
    let (_, manifest) = stored::manifest(&config.engine.record, id, &arguments.namespace)?;
    let items = manifest.artifacts.into_iter();
    Ok(items.map(|item| (item.sha256, item.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha256_is_64_hex_digits_of_either_case() {
        assert_eq!(sha256(&"AB".repeat(32)), Ok("ab".repeat(32)));
        for text in ["", "ab", &"g".repeat(64), &"é".repeat(32), &"a".repeat(65)] {
            assert!(sha256(text).is_err(), "{text}");
        }
    }
}
