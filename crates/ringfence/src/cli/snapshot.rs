//! `ringfence snapshot`: saves and restores the workspaces of namespaces. They are files of this user; running servers
//! wait meanwhile and then see the result. A request about a session's workspace goes to the session's server.

use super::{CommandResult, Context, live, printed};
use crate::control::{self, Request, SessionAction, SnapshotAction};
use clap::{Args, Subcommand};
use ringfence_engine::Caller;
use ringfence_types::{Namespace, SessionId};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct SnapshotArguments {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Save the workspace of a namespace, or of a session
    Create {
        /// Description, to find it again later
        #[arg(default_value = "")]
        description: String,
        #[command(flatten)]
        target: Target,
    },
    /// List snapshots, oldest first (the default)
    List(Target),
    /// Restore the workspace from a snapshot
    Restore {
        /// The snapshot
        id: String,
        #[command(flatten)]
        target: Target,
    },
    /// Delete a snapshot
    Delete {
        /// The snapshot
        id: String,
        #[command(flatten)]
        target: Target,
    },
    /// Show what has changed in the workspace, and which changes the host may later run
    Diff {
        /// Snapshot to compare with [default: the latest]
        id: Option<String>,
        #[command(flatten)]
        target: Target,
    },
}

/// The workspace, and the form in which the answer is printed.
#[derive(Debug, Args)]
struct Target {
    /// Namespace of the workspace
    #[arg(
        long,
        value_name = "NAME",
        default_value = "default",
        conflicts_with = "session"
    )]
    namespace: Namespace,
    /// Use the workspace of this session of a running server; snapshots of other workspaces of its namespace can be
    /// restored to it
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn snapshot(context: &Context, arguments: SnapshotArguments) -> CommandResult {
    let config = context.begin()?;
    let (target, action) = match arguments.action.unwrap_or(Action::List(arguments.target)) {
        Action::Create { description, target } => (target, SnapshotAction::Create { description }),
        Action::List(target) => (target, SnapshotAction::List),
        Action::Restore { id, target } => (target, SnapshotAction::Restore { id }),
        Action::Delete { id, target } => (target, SnapshotAction::Delete { id }),
        Action::Diff { id, target } => (target, SnapshotAction::Compare { id }),
    };
    let is_difference = matches!(action, SnapshotAction::Compare { .. });
    let shown = match target.session {
        Some(session) => {
            let action = SessionAction::Snapshots(action);
            let request = Request::Session { session, action };
            live::wait(live::ask(&config.engine.state_dir, None, &request))?.answer
        }
        None => live::with_engine(config.engine, async |engine| {
            let caller = Caller::new("cli snapshot");
            control::snapshots(engine.namespace(&caller, &target.namespace), None, action).await
        }),
    }?;
    if is_difference && !target.json {
        return printed(context.terminal.print_difference(&shown.text));
    }
    context.show(target.json, &shown)
}
