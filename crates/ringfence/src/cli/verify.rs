//! `ringfence verify`: is a file what somebody says it is, by its digest or by what was signed.

use super::{Context, ended, stored};
use crate::{render::diagnostics::Style, terminal::neutral};
use clap::Args;
use ringfence_store::artifacts::digest;
use ringfence_types::{Namespace, RequestError};
use serde_json::json;
use std::{fs::File, path::PathBuf, process::ExitCode};

#[derive(Debug, Args)]
pub(super) struct VerifyArguments {
    /// File to look at
    file: PathBuf,
    /// SHA-256 that it should have, in hexadecimal
    #[arg(value_parser = sha256, required_unless_present = "execution")]
    sha256: Option<String>,
    /// Hold it against what this execution left, as it was signed
    #[arg(long, value_name = "ID", conflicts_with = "sha256")]
    execution: Option<String>,
    /// Namespace of that execution
    #[arg(long, value_name = "NAME", default_value = "default", requires = "execution")]
    namespace: Namespace,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Exit code of a file that is another.
const DIFFERS: u8 = 1;

fn sha256(text: &str) -> Result<String, String> {
    let good = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    good.then(|| text.to_ascii_lowercase())
        .ok_or_else(|| "a SHA-256 is 64 hexadecimal digits".to_owned())
}

pub(super) fn verify(context: &Context, arguments: &VerifyArguments) -> Result<ExitCode, RequestError> {
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

/// Digests that would do, each with the name that stands beside it.
fn expected(context: &Context, arguments: &VerifyArguments) -> Result<Vec<(String, String)>, RequestError> {
    let Some(id) = &arguments.execution else {
        let sha256 = arguments.sha256.iter();
        return Ok(sha256.map(|digest| (digest.clone(), String::new())).collect());
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
    fn a_digest_is_sixty_four_digits_of_either_case() {
        assert_eq!(sha256(&"AB".repeat(32)), Ok("ab".repeat(32)));
        for text in ["", "ab", &"g".repeat(64), &"é".repeat(32), &"a".repeat(65)] {
            assert!(sha256(text).is_err(), "{text}");
        }
    }
}
