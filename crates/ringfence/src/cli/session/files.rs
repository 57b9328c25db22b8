//! `ringfence session cp` and `session ls`: files of a session, without running a program in it.

use crate::{
    cli::{
        CommandResult, Context,
        live::{self, Options},
        printed,
        request::{self, STDIN},
    },
    control::{Bytes, Request, SessionAction},
    terminal::neutral,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Args;
use ringfence_engine::FILE_BYTES_MAX;
use ringfence_types::{RequestError, SessionId, WorkspacePath};
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

#[derive(Debug, Args)]
pub(super) struct Copy {
    /// Source: a file of the host, `-` for standard input, or ID:PATH for a file of a session
    from: String,
    /// Destination: a file or directory of the host, `-` for standard output, or ID:PATH
    to: String,
    #[command(flatten)]
    opts: Options,
}

enum End {
    Host(PathBuf),
    Session(SessionId, String),
}

impl End {
    fn of(text: &str) -> Self {
        let named = text
            .split_once(':')
            .and_then(|(id, path)| Some((id.parse().ok()?, path)));
        match named {
            Some((id, path)) => Self::Session(id, below_workspace(path).to_owned()),
            None => Self::Host(PathBuf::from(text)),
        }
    }
}

/// Removes `/workspace`, the name of the workspace inside the sandbox, from the beginning of a path.
fn below_workspace(path: &str) -> &str {
    match path.strip_prefix("/workspace") {
        Some("") => "",
        Some(rest) => rest.strip_prefix('/').unwrap_or(path),
        None => path,
    }
}

pub(super) fn copy(context: &Context, copy: Copy) -> CommandResult {
    match (End::of(&copy.from), End::of(&copy.to)) {
        (End::Host(file), End::Session(session, path)) => put(context, &copy.opts, &file, session, &path),
        (End::Session(session, path), End::Host(file)) => get(context, &copy.opts, session, &path, &file),
        _ => Err(RequestError::invalid(
            "one end of a copy is a file of a session, and the other is not.",
            "Write ID:PATH for the session's, as in `ringfence session cp data.csv ID:data.csv`.",
        )),
    }
}

fn put(context: &Context, opts: &Options, file: &Path, session: SessionId, path: &str) -> CommandResult {
    let bytes_max = usize::try_from(FILE_BYTES_MAX).unwrap_or(usize::MAX);
    let bytes = request::read_input(file, bytes_max, "the file")?;
    let path = workspace_path(into_directory(
        path,
        file.file_name().and_then(|name| name.to_str()),
    ))?;
    let bytes = Bytes(bytes);
    let action = SessionAction::Put { path, bytes };
    live::one(context, opts, &Request::Session { session, action })
}

fn get(context: &Context, opts: &Options, session: SessionId, path: &str, file: &Path) -> CommandResult {
    let path = workspace_path(path.to_owned())?;
    let state_dir = context.state_dir()?;
    let name = path.as_str().rsplit('/').next().unwrap_or_default().to_owned();
    let action = SessionAction::Get { path };
    let request = Request::Session { session, action };
    let shown = live::wait(live::ask(&state_dir, opts.server, &request))?.answer?;
    let bytes = shown.facts["base64"].as_str().map(|text| STANDARD.decode(text));
    let bytes = bytes.and_then(Result::ok).ok_or_else(live::not_understood)?;
    let is_stdout = file == Path::new(STDIN);
    let written = if is_stdout {
        context.terminal.print_bytes(&bytes)
    } else if file.is_dir() {
        fs::write(file.join(&name), &bytes)
    } else {
        fs::write(file, &bytes)
    };
    written.map_err(|error| {
        RequestError::invalid(
            format!("cannot write {}: {error}.", file.display()),
            "Name a file or a directory that can be written.",
        )
    })?;
    if opts.json && !is_stdout {
        return printed(context.terminal.print_json(&shown.facts["file"]));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn list(context: &Context, id: SessionId, dir: Option<&str>, opts: &Options) -> CommandResult {
    let below = dir.map(below_workspace);
    let below = below.filter(|path| !matches!(*path, "" | "."));
    let path = below.map(|path| workspace_path(path.to_owned())).transpose()?;
    let (session, action) = (id, SessionAction::Files { path });
    live::one(context, opts, &Request::Session { session, action })
}

fn into_directory(path: &str, name: Option<&str>) -> String {
    match name {
        Some(name) if path.is_empty() || path.ends_with('/') => format!("{path}{name}"),
        _ => path.to_owned(),
    }
}

fn workspace_path(path: String) -> Result<WorkspacePath, RequestError> {
    WorkspacePath::try_from(path).map_err(|reason| {
        RequestError::invalid(
            format!("{}.", neutral::line(&reason)),
            "Name a file below the session's workspace, as ID:data/in.csv.",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_end_with_a_session_id_is_in_the_session() {
        let id = "0190b8f0-5c1e-7000-8000-00000000abcd";
        let check = |text: &str, expect: Option<&str>| {
            let path = match End::of(text) {
                End::Session(_, path) => Some(path),
                End::Host(_) => None,
            };
            assert_eq!(path.as_deref(), expect, "{text}");
        };
        check(&format!("{id}:a/b"), Some("a/b"));
        check(&format!("{id}:/workspace/a"), Some("a"));
        check(&format!("{id}:/workspaces/a"), Some("/workspaces/a"));
        check(&format!("{id}:"), Some(""));
        check("a:b", None);
        check("a", None);
        assert_eq!(into_directory("", Some("x.csv")), "x.csv");
        assert_eq!(into_directory("data/", Some("x.csv")), "data/x.csv");
        assert_eq!(into_directory("y.csv", Some("x.csv")), "y.csv");
        assert!(workspace_path("../x".to_owned()).is_err());
    }
}
