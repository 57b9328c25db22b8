//! `ringfence approvals`: what programs and models ask for in servers that run, and the answers. What is answered is
//! what was shown: the server is told the digest of it. `ringfence egress DOMAIN` asks whether programs may reach a
//! host, as a model does with `request_egress`, and waits until somebody has answered: the question goes where all of
//! them go.

mod watch;

use super::{
    CommandResult, Context,
    live::{self, Ask},
    printed,
    request::words,
    vault::ttl,
};
use crate::{
    control::{self, EgressRequest, News, Request, Response, ServerReply},
    render::{self, Rendered},
    terminal::neutral,
    time,
};
use clap::{Args, Subcommand};
use ringfence_engine::{Answer, ApprovalRequest, Scope, ScopeChoice};
use ringfence_types::RequestError;
use serde_json::json;
use std::{cell::Cell, path::Path, pin::pin, process::ExitCode, time::Duration};
use tokio::time::interval;

#[derive(Debug, Args)]
pub(super) struct ApprovalsArguments {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print one JSON document
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the requests that wait for an answer (the default)
    List(Ask),
    /// Show a request, and say yes to what was shown
    Approve(Approve),
    /// Show a request, and say no to it
    Deny {
        /// Its name in the list
        id: String,
        #[command(flatten)]
        ask: Ask,
    },
    /// Show each request as it comes, of servers that start later, too; on a terminal, ask for the answer
    Watch {
        /// Process number of the one server that is meant
        #[arg(long, value_name = "PID")]
        server: Option<u32>,
        /// Print one JSON document a line, and ask nothing
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
struct Approve {
    /// Its name in the list
    id: String,
    /// What it is approved for: one run, the session that it is asked for, or the namespace for a time
    #[arg(long, value_name = "SCOPE", default_value = "once", default_value_if("lasts", clap::builder::ArgPredicate::IsPresent, "namespace"), value_parser = words::<Scope>(Scope::WORDS))]
    scope: Scope,
    /// How long the namespace has it, as 90s, 15m or 1h; default: as long as the server's settings allow
    #[arg(long = "for", value_name = "TIME", value_parser = ttl)]
    lasts: Option<Duration>,
    #[command(flatten)]
    ask: Ask,
}

impl Approve {
    fn wish(&self) -> Result<ScopeChoice, RequestError> {
        match (self.scope, self.lasts) {
            (Scope::Namespace, lasts) => Ok(ScopeChoice::Namespace(lasts)),
            (Scope::Once, None) => Ok(ScopeChoice::Once),
            (Scope::Session, None) => Ok(ScopeChoice::Session),
            (scope, Some(_)) => Err(RequestError::invalid(
                format!("--for is for the namespace, and not for `{scope}`."),
                "Leave one of --for and --scope out.",
            )),
        }
    }
}

pub(super) fn approvals(context: &Context, arguments: ApprovalsArguments) -> CommandResult {
    let ApprovalsArguments { action, json } = arguments;
    match action.unwrap_or(Action::List(Ask { json, server: None })) {
        Action::List(ask) => live::all(context, &ask, &Request::ApprovalsList),
        Action::Approve(approve) => {
            let wish = approve.wish()?;
            answer(context, &approve.ask, &approve.id, Answer::Approve(wish))
        }
        Action::Deny { id, ask } => answer(context, &ask, &id, Answer::Deny),
        Action::Watch { server, json: true } => watch::watch(context, server, watch::Reader::Program),
        Action::Watch { server, json: false } => {
            watch::watch(context, server, watch::Reader::at(context.terminal))
        }
    }
}

fn answer(context: &Context, ask: &Ask, id: &str, answer: Answer) -> CommandResult {
    let state_dir = context.state_dir()?;
    live::wait(async {
        let (pid, request) = find(&state_dir, ask.server, id).await?;
        if !ask.json {
            let shown = render::approval(&request, time::now_milliseconds());
            printed(context.terminal.print(&neutral::text(&shown)))?;
        }
        let mut decided = decide(&state_dir, pid, &request, answer).await?;
        decided.facts["request"] = json!(request);
        decided.facts["pid"] = json!(pid);
        context.show(ask.json, &decided)
    })
}

/// The digest is taken of what was shown, and not of what the server says that it is.
async fn decide(
    state_dir: &Path,
    pid: u32,
    request: &ApprovalRequest,
    answer: Answer,
) -> Result<Rendered, RequestError> {
    let decide = Request::ApprovalsDecide {
        id: request.id.clone(),
        digest: request.digest(),
        answer,
    };
    control::ask_one(state_dir, Some(pid), &decide).await?.answer
}

/// The request of this name, in whichever server it waits.
async fn find(
    state_dir: &Path,
    server: Option<u32>,
    id: &str,
) -> Result<(u32, ApprovalRequest), RequestError> {
    let mut found = Vec::new();
    for ServerReply { pid, answer } in control::ask_all(state_dir, server, &Request::ApprovalsList).await? {
        let requests = serde_json::from_value(answer?.facts["requests"].take());
        let requests: Vec<ApprovalRequest> = requests.map_err(|_| live::not_understood())?;
        let meant = requests.into_iter().filter(|request| request.id == id);
        found.extend(meant.map(|request| (pid, request)));
    }
    match found.pop() {
        Some(one) if found.is_empty() => Ok(one),
        Some(_) => Err(RequestError::invalid(
            "several servers have a request of this name.",
            "Say which one is meant, with --server PID.",
        )),
        None => Err(RequestError::not_found(
            "no request of this name waits for an answer.",
            "`ringfence approvals list` shows the pending requests; this one may have expired.",
        )),
    }
}

const DENIED: u8 = 1;

pub(super) fn egress(context: &Context, wish: EgressRequest, ask: &Ask) -> CommandResult {
    let state_dir = context.state_dir()?;
    let terminal = context.terminal;
    let expires_ms = Cell::new(0);
    let told = async |said: Response| {
        if let (Response::News(News::Asked(request)), false) = (said, ask.json) {
            let id = &request.id;
            terminal.dim(&format!(
                "a person is asked: `ringfence approvals approve {id}`; Ctrl-C takes it back"
            ));
            expires_ms.set(request.expires_unix_ms);
        }
        true
    };
    let request = Request::Egress { wish };
    let (pid, mut shown) = live::wait(async {
        let asking = control::follow_one(&state_dir, ask.server, &request, told, std::future::pending());
        let mut asking = pin!(asking);
        let mut seconds = interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                answer = &mut asking => {
                    terminal.progress("");
                    return answer;
                }
                _ = seconds.tick() => match time::left(expires_ms.get()) {
                    0 => {}
                    left => terminal.progress(&format!("{left} s left for the answer")),
                },
            }
        }
    })?;
    let is_approved = shown.facts["approved"] == true;
    shown.facts["pid"] = json!(pid);
    context.show(ask.json, &shown)?;
    Ok(ExitCode::from(if is_approved { 0 } else { DENIED }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        approve: Approve,
    }

    #[test]
    fn a_time_is_for_the_namespace_and_once_is_what_nobody_says() {
        let wish = |words: &[&str]| {
            let line = Line::try_parse_from([&["approve", "0a1b2c3d"], words].concat());
            line.ok().and_then(|line| line.approve.wish().ok())
        };
        assert_eq!(wish(&[]), Some(ScopeChoice::Once));
        assert_eq!(wish(&["--scope", "session"]), Some(ScopeChoice::Session));
        assert_eq!(
            wish(&["--scope", "namespace"]),
            Some(ScopeChoice::Namespace(None))
        );
        let hour = Some(ScopeChoice::Namespace(Some(Duration::from_secs(3600))));
        assert_eq!(wish(&["--for", "1h"]), hour);
        assert_eq!(wish(&["--scope", "namespace", "--for", "60m"]), hour);
        assert_eq!(wish(&["--scope", "once", "--for", "1h"]), None);
        assert_eq!(wish(&["--scope", "always"]), None);
        assert_eq!(wish(&["--for", "soon"]), None);
    }
}
