//! `ringfence approvals`: requests of programs and models in running servers, and the answers. An answer is for what
//! was shown: it carries the digest of the shown request. `ringfence egress DOMAIN` asks whether programs may reach a
//! host, as a model does with `request_egress`, and waits for the answer: its request is queued with all others.

mod watch;

use super::{
    CommandResult, Context,
    live::{self, Options},
    printed,
    request::one_of,
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
    /// Show the pending requests (the default)
    List(Options),
    /// Show a request, and approve it as shown
    Approve(Approve),
    /// Show a request, and deny it
    Deny {
        /// Id of the request in the list
        id: String,
        #[command(flatten)]
        opts: Options,
    },
    /// Show each request as it arrives, also of servers that start later; on a terminal, ask for the answer
    Watch {
        /// Process number of the only server to watch
        #[arg(long, value_name = "PID")]
        server: Option<u32>,
        /// Print one JSON document per line, and do not ask
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
struct Approve {
    /// Id of the request in the list
    id: String,
    /// Scope of the approval: one run, the session of the request, or the namespace for a time
    #[arg(long, value_name = "SCOPE", default_value = "once", default_value_if("lasts", clap::builder::ArgPredicate::IsPresent, "namespace"), value_parser = one_of::<Scope>(Scope::WORDS))]
    scope: Scope,
    /// Duration for the namespace, such as 90s, 15m or 1h; a number alone is seconds [default: as long as the server's
    /// settings allow]
    #[arg(long = "for", value_name = "TIME", value_parser = ttl)]
    lasts: Option<Duration>,
    #[command(flatten)]
    opts: Options,
}

impl Approve {
    fn scope_choice(&self) -> Result<ScopeChoice, RequestError> {
        match (self.scope, self.lasts) {
            (Scope::Namespace, lasts) => Ok(ScopeChoice::Namespace(lasts)),
            (Scope::Once, None) => Ok(ScopeChoice::Once),
            (Scope::Session, None) => Ok(ScopeChoice::Session),
            (scope, Some(_)) => Err(RequestError::invalid(
                format!("--for is for the scope `namespace`, not for `{scope}`."),
                "Leave out --for or --scope.",
            )),
        }
    }
}

pub(super) fn approvals(context: &Context, arguments: ApprovalsArguments) -> CommandResult {
    let ApprovalsArguments { action, json } = arguments;
    match action.unwrap_or(Action::List(Options { json, server: None })) {
        Action::List(opts) => live::all(context, &opts, &Request::ApprovalsList),
        Action::Approve(approve) => {
            let scope = approve.scope_choice()?;
            answer(context, &approve.opts, &approve.id, Answer::Approve(scope))
        }
        Action::Deny { id, opts } => answer(context, &opts, &id, Answer::Deny),
        Action::Watch { server, json: true } => watch::watch(context, server, watch::Reader::Program),
        Action::Watch { server, json: false } => {
            watch::watch(context, server, watch::Reader::at(context.terminal))
        }
    }
}

fn answer(context: &Context, opts: &Options, id: &str, answer: Answer) -> CommandResult {
    let state_dir = context.state_dir()?;
    live::wait(async {
        let (pid, request) = find(&state_dir, opts.server, id).await?;
        if !opts.json {
            let shown = render::approval(&request, time::now_milliseconds());
            printed(context.terminal.print(&neutral::text(&shown)))?;
        }
        let mut decided = decide(&state_dir, pid, &request, answer).await?;
        decided.facts["request"] = json!(request);
        decided.facts["pid"] = json!(pid);
        context.show(opts.json, &decided)
    })
}

/// Sends the answer with the digest of the request as shown, computed here and not taken from the server.
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

/// Finds the pending request with this id, and the process number of its server. Several such requests are an error.
async fn find(
    state_dir: &Path,
    server: Option<u32>,
    id: &str,
) -> Result<(u32, ApprovalRequest), RequestError> {
    let mut found = Vec::new();
    for ServerReply { pid, answer } in control::ask_all(state_dir, server, &Request::ApprovalsList).await? {
        let requests = serde_json::from_value(answer?.facts["requests"].take());
        let requests: Vec<ApprovalRequest> = requests.map_err(|_| live::not_understood())?;
        let matching = requests.into_iter().filter(|request| request.id == id);
        found.extend(matching.map(|request| (pid, request)));
    }
    match found.pop() {
        Some(one) if found.is_empty() => Ok(one),
        Some(_) => Err(RequestError::invalid(
            "several servers have a request of this name.",
            "Name one with --server PID.",
        )),
        None => Err(RequestError::not_found(
            "no request of this name waits for an answer.",
            "`ringfence approvals list` shows the pending requests; this one may have expired.",
        )),
    }
}

const DENIED: u8 = 1;

pub(super) fn egress(context: &Context, egress: EgressRequest, opts: &Options) -> CommandResult {
    let state_dir = context.state_dir()?;
    let terminal = context.terminal;
    let expires_ms = Cell::new(0);
    let show = async |response: Response| {
        if let (Response::News(News::Asked(request)), false) = (response, opts.json) {
            let id = &request.id;
            terminal.dim(&format!(
                "a person is asked: `ringfence approvals approve {id}`; Ctrl-C takes it back"
            ));
            expires_ms.set(request.expires_unix_ms);
        }
        true
    };
    let request = Request::Egress { wish: egress };
    let (pid, mut shown) = live::wait(async {
        let asking = control::follow_one(&state_dir, opts.server, &request, show, std::future::pending());
        let mut asking = pin!(asking);
        let mut seconds = interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                answer = &mut asking => {
                    terminal.progress("");
                    return answer;
                }
                _ = seconds.tick() => match time::seconds_left(expires_ms.get()) {
                    0 => {}
                    left => terminal.progress(&format!("{left} s left for the answer")),
                },
            }
        }
    })?;
    let is_approved = shown.facts["approved"] == true;
    shown.facts["pid"] = json!(pid);
    context.show(opts.json, &shown)?;
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
    fn default_scope_is_once_and_duration_implies_namespace() {
        let scope = |words: &[&str]| {
            let line = Line::try_parse_from([&["approve", "0a1b2c3d"], words].concat());
            line.ok().and_then(|line| line.approve.scope_choice().ok())
        };
        assert_eq!(scope(&[]), Some(ScopeChoice::Once));
        assert_eq!(scope(&["--scope", "session"]), Some(ScopeChoice::Session));
        assert_eq!(
            scope(&["--scope", "namespace"]),
            Some(ScopeChoice::Namespace(None))
        );
        let hour = Some(ScopeChoice::Namespace(Some(Duration::from_secs(3600))));
        assert_eq!(scope(&["--for", "1h"]), hour);
        assert_eq!(scope(&["--scope", "namespace", "--for", "60m"]), hour);
        assert_eq!(scope(&["--scope", "once", "--for", "1h"]), None);
        assert_eq!(scope(&["--scope", "always"]), None);
        assert_eq!(scope(&["--for", "soon"]), None);
    }
}
