//! `ringfence session create`: creates a session. Only its id is printed on standard output, for scripts; everything
//! else goes to standard error.

use crate::{
    cli::{
        CommandResult, Context, interrupts,
        live::{self, Options},
        request::{self, SandboxFlags},
    },
    control::{self, Request, Response, SessionOptions},
    render::Rendered,
    terminal::neutral,
};
use clap::Args;
use ringfence_types::{Language, Namespace, RequestError, WorkspaceSource};
use serde_json::json;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct Create {
    /// Language: python, node, typescript or shell
    #[arg(short, long, value_name = "NAME", default_value = "python")]
    language: Language,
    /// Namespace that it belongs to
    #[arg(long, value_name = "NAME", default_value = "default")]
    namespace: Namespace,
    #[command(flatten)]
    sandbox: SandboxFlags,
    /// Seconds without use after which the session ends [default: 900]
    #[arg(long, value_name = "SECONDS", value_parser = request::seconds)]
    idle: Option<u64>,
    /// Directory of the host to work in; or `private`, empty and deleted with the session, which is the default; or
    /// `namespace`, the namespace's own workspace; or a name of `workspaces` in the configuration
    #[arg(long, value_name = "DIR:ro|rw|overlay")]
    workspace: Option<String>,
    #[command(flatten)]
    opts: Options,
}

/// Creates a session. Ctrl-C closes the connection, and the server then stops what it has begun.
pub(super) fn create(context: &Context, create: Create) -> CommandResult {
    let terminal = context.terminal;
    let (server, json) = (create.opts.server, create.opts.json);
    let workspace = create.workspace.clone();
    let request = request_of(create)?;
    let state_dir = context.state_dir()?;
    let created = live::wait(async {
        let mut interrupted = interrupts()?;
        let show = async |response: Response| {
            if let Response::Output { bytes, .. } = response {
                terminal.notices(&bytes.0);
            }
            true
        };
        let following = control::follow_one(&state_dir, server, &request, show, std::future::pending());
        tokio::select! {
            answer = following => answer.map(Some),
            _ = interrupted.recv() => Ok(None),
        }
    });
    let created = created.map_err(|error| request::explain_unlisted(error, workspace.as_deref()))?;
    let Some((pid, Rendered { text, mut facts })) = created else {
        terminal.dim("interrupted; no session was made");
        return Ok(ExitCode::from(super::INTERRUPTED));
    };
    let printed = if json {
        facts["pid"] = json!(pid);
        terminal.print_json(&facts)
    } else {
        let id = facts["session_id"].as_str().unwrap_or_default();
        // The first line of the text is the id as well.
        text.lines().skip(1).for_each(|line| terminal.dim(line));
        terminal.print(&format!("{}\n", neutral::line(id)))
    };
    crate::cli::printed(printed)
}

fn request_of(create: Create) -> Result<Request, RequestError> {
    let options = Box::new(SessionOptions {
        namespace: create.namespace,
        language: create.language,
        env: create.sandbox.variables()?,
        secrets: create.sandbox.secrets()?,
        limits: create.sandbox.limits(),
        idle_ms: create.idle,
        workspace: match &create.workspace {
            Some(workspace) => request::workspace_of(workspace)?,
            None => WorkspaceSource::Private,
        },
        packages: create.sandbox.package,
        allow: create.sandbox.allow,
    });
    Ok(Request::SessionCreate { options })
}
