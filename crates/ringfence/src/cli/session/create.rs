//! `ringfence session create`: its id alone on standard output, so that a script can take it; what else there is to say
//! on standard error.

use crate::{
    cli::{
        CommandResult, Context, interrupts,
        live::{self, Ask},
        request::{self, LimitFlags},
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
    limits: LimitFlags,
    /// The session ends when it was not used for so many seconds [default: 900]
    #[arg(long, value_name = "SECONDS", value_parser = request::seconds)]
    idle: Option<u64>,
    /// A variable for the session, whose environment is otherwise built from nothing
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// A secret of the vault that the session gets as a variable of this name
    #[arg(long, value_name = "NAME")]
    secret: Vec<String>,
    /// Directory of the host to work in; or `private`, empty and gone with the session, which is the default; or
    /// `namespace`, the one that is kept for the namespace; or a name of `workspaces` in the configuration
    #[arg(long, value_name = "DIR:ro|rw|overlay")]
    workspace: Option<String>,
    /// A package that the session has from its beginning, as `numpy` or `lodash@4`; installed once, and kept for the
    /// next
    #[arg(long, value_name = "NAME")]
    package: Vec<String>,
    /// A host that the session may reach, as example.com, *.example.com, example.com:8443 or "GET example.com/path";
    /// with any, only these, and not those of egress.allow
    #[arg(long, value_name = "HOST")]
    allow: Vec<String>,
    #[command(flatten)]
    ask: Ask,
}

/// Ctrl-C hangs up, upon which the server stops what it has begun.
pub(super) fn create(context: &Context, create: Create) -> CommandResult {
    let terminal = context.terminal;
    let (server, json, workspace) = (create.ask.server, create.ask.json, create.workspace.clone());
    let request = request_of(create)?;
    let state_dir = context.state_dir()?;
    let made = live::wait(async {
        let mut interrupted = interrupts()?;
        let tell = async |said: Response| {
            if let Response::Output { bytes, .. } = said {
                terminal.notices(&bytes.0);
            }
            true
        };
        let following = control::follow_one(&state_dir, server, &request, tell, std::future::pending());
        tokio::select! {
            made = following => made.map(Some),
            _ = interrupted.recv() => Ok(None),
        }
    });
    let made = made.map_err(|error| request::explain_unlisted(error, workspace.as_deref()))?;
    let Some((pid, Rendered { text, mut facts })) = made else {
        terminal.dim("interrupted; no session was made");
        return Ok(ExitCode::from(super::INTERRUPTED));
    };
    let printed = if json {
        facts["pid"] = json!(pid);
        terminal.print_json(&facts)
    } else {
        let id = facts["session_id"].as_str().unwrap_or_default();
        // The first line of the text is the same.
        text.lines().skip(1).for_each(|line| terminal.dim(line));
        terminal.print(&format!("{}\n", neutral::line(id)))
    };
    crate::cli::printed(printed)
}

fn request_of(create: Create) -> Result<Request, RequestError> {
    let options = Box::new(SessionOptions {
        namespace: create.namespace,
        language: create.language,
        env: request::variables(&create.env)?,
        secrets: request::secrets(&create.secret)?,
        limits: create.limits.request()?,
        idle_ms: create.idle,
        workspace: match &create.workspace {
            Some(workspace) => request::workspace_of(workspace)?,
            None => WorkspaceSource::Private,
        },
        packages: create.package,
        allow: create.allow,
    });
    Ok(Request::SessionCreate { options })
}
