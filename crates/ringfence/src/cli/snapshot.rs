//! `ringfence snapshot`: workspaces that are kept for namespaces, saved and put back. They are files of this user;
//! servers that run wait meanwhile, and see the result. The workspace of a session is its server's, which is asked.

use super::{Context, live, printed};
use crate::{
    control::Request,
    render::{self, Rendered},
};
use clap::{Args, Subcommand};
use ringfence_engine::{Caller, Engine};
use ringfence_types::{Namespace, RequestError, SessionId};
use serde_json::json;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct SnapshotArguments {
    #[command(subcommand)]
    action: Option<SnapshotAction>,
    #[command(flatten)]
    of: Of,
}

#[derive(Debug, Subcommand)]
enum SnapshotAction {
    /// Save the workspace of a namespace, or of a session
    Create {
        /// Description, to find it again later
        #[arg(default_value = "")]
        description: String,
        #[command(flatten)]
        of: Of,
    },
    /// List what was saved, oldest first (the default)
    List(Of),
    /// Put the workspace back to what it was
    Restore {
        /// The snapshot
        id: String,
        #[command(flatten)]
        of: Of,
    },
    /// Forget a snapshot
    Delete {
        /// The snapshot
        id: String,
        #[command(flatten)]
        of: Of,
    },
    /// Show what has changed in the workspace, and what of it the host may later run
    Diff {
        /// The snapshot that it is compared with [default: the latest]
        id: Option<String>,
        #[command(flatten)]
        of: Of,
    },
}

/// Whose, and how the answer is printed.
#[derive(Debug, Args)]
struct Of {
    /// Namespace whose workspace is meant
    #[arg(
        long,
        value_name = "NAME",
        default_value = "default",
        conflicts_with = "session"
    )]
    namespace: Namespace,
    /// The workspace of this session of a running server; a snapshot of any other of its namespace can be restored to
    /// it
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn snapshot(context: &Context, arguments: SnapshotArguments) -> Result<ExitCode, RequestError> {
    let config = context.begin()?;
    let action = arguments.action.unwrap_or(SnapshotAction::List(arguments.of));
    let (is_difference, of) = match &action {
        SnapshotAction::Diff { of, .. } => (true, of),
        SnapshotAction::Create { of, .. }
        | SnapshotAction::List(of)
        | SnapshotAction::Restore { of, .. }
        | SnapshotAction::Delete { of, .. } => (false, of),
    };
    let (json, session) = (of.json, of.session.clone());
    let shown = match session {
        Some(session) => {
            let request = of_session(session, action)?;
            live::wait(live::ask(&config.engine.state_dir, None, &request))?.answer
        }
        None => live::with_engine(config.engine, async |engine| perform(engine, action).await),
    }?;
    if is_difference && !json {
        return printed(context.terminal.print_difference(&shown.text));
    }
    context.show(json, &shown)
}

fn of_session(session: SessionId, action: SnapshotAction) -> Result<Request, RequestError> {
    Ok(match action {
        SnapshotAction::Create { description, .. } => Request::SessionSnapshot { session, description },
        SnapshotAction::List(_) => Request::SessionSnapshots { session },
        SnapshotAction::Restore { id, .. } => Request::SessionRestore {
            session,
            snapshot: id,
        },
        SnapshotAction::Diff { id, .. } => Request::SessionCompare {
            session,
            snapshot: id,
        },
        SnapshotAction::Delete { .. } => {
            return Err(RequestError::invalid(
                "a snapshot is its namespace's, also that of a session.",
                "Give --namespace, or neither.",
            ));
        }
    })
}

async fn perform(engine: &Engine, action: SnapshotAction) -> Result<Rendered, RequestError> {
    let caller = &Caller::new("cli snapshot");
    match action {
        SnapshotAction::Create { description, of } => {
            let workspace = engine.workspace(caller, &of.namespace, None);
            Ok(render::snapshot_made(
                &workspace.create_snapshot(description).await?,
            ))
        }
        SnapshotAction::List(of) => {
            let listed = engine.snapshots(caller, &of.namespace).await?;
            Ok(render::snapshots(&listed))
        }
        SnapshotAction::Restore { id, of } => {
            let restored = engine.restore_snapshot(caller, &of.namespace, &id, None).await?;
            Ok(render::snapshot_restored(&id, restored))
        }
        SnapshotAction::Delete { id, of } => {
            engine.delete_snapshot(caller, &of.namespace, &id).await?;
            Ok(Rendered::new(
                "deleted\n",
                json!({"snapshot_id": id, "deleted": true}),
            ))
        }
        SnapshotAction::Diff { id, of } => {
            let workspace = engine.workspace(caller, &of.namespace, None);
            Ok(render::difference(&workspace.diff(id.as_deref()).await?))
        }
    }
}
