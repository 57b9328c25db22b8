//! `ringfence snapshot`: workspaces that are kept for namespaces, saved and put back. They are files of this user;
//! servers that run wait meanwhile, and see the result. The workspace of a session is its server's, which is asked.

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
    of: Of,
}

#[derive(Debug, Subcommand)]
enum Action {
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

pub(super) fn snapshot(context: &Context, arguments: SnapshotArguments) -> CommandResult {
    let config = context.begin()?;
    let (of, action) = match arguments.action.unwrap_or(Action::List(arguments.of)) {
        Action::Create { description, of } => (of, SnapshotAction::Create { description }),
        Action::List(of) => (of, SnapshotAction::List),
        Action::Restore { id, of } => (of, SnapshotAction::Restore { id }),
        Action::Delete { id, of } => (of, SnapshotAction::Delete { id }),
        Action::Diff { id, of } => (of, SnapshotAction::Compare { id }),
    };
    let is_difference = matches!(action, SnapshotAction::Compare { .. });
    let shown = match of.session {
        Some(session) => {
            let action = SessionAction::Snapshots(action);
            let request = Request::Session { session, action };
            live::wait(live::ask(&config.engine.state_dir, None, &request))?.answer
        }
        None => live::with_engine(config.engine, async |engine| {
            let caller = Caller::new("cli snapshot");
            control::snapshots(engine.namespace(&caller, &of.namespace), None, action).await
        }),
    }?;
    if is_difference && !of.json {
        return printed(context.terminal.print_difference(&shown.text));
    }
    context.show(of.json, &shown)
}
