//! The operator's commands on requests for approval that take time: requesting a host, and watching all requests.

use super::{
    Unanswered,
    executions::watch_permit,
    wire::{EgressRequest, News, Response},
};
use crate::render::{self, Rendered};
use ringfence_engine::{ApprovalWatch, Caller, Decision, Engine, HostRequest};
use std::collections::BTreeSet;
use tokio::{net::unix::WriteHalf, sync::Semaphore};

/// Maximum number of commands that watch at once. Each occupies one of the connections that are served.
pub(super) const WATCHERS_MAX: usize = 8;

/// Requests a host, and answers with the decision. Dropping the future, as when the command hangs up, withdraws it.
pub(super) async fn request_egress(
    engine: &Engine,
    caller: &Caller,
    request: EgressRequest,
    to: &mut WriteHalf<'_>,
) -> Result<Rendered, Unanswered> {
    engine
        .note_call(caller, request.namespace.as_str(), "egress")
        .await?;
    let host_request = HostRequest {
        namespace: request.namespace,
        session: request.session,
        domain: request.domain.clone(),
        reason: request.reason,
    };
    let mut waiting = engine.request_egress(caller, host_request).await?;
    if let Some(request) = waiting.request() {
        let news = News::Asked(Box::new(request.clone()));
        Response::News(news).send(to).await?;
    }
    Ok(render::host_decision(&request.domain, &waiting.decided().await))
}

pub(super) async fn watch(
    engine: &Engine,
    caller: &Caller,
    permits: &Semaphore,
    to: &mut WriteHalf<'_>,
) -> Result<Rendered, Unanswered> {
    let _permit = watch_permit(permits)?;
    engine.note_call(caller, "", "approvals.watch").await?;
    let mut watch = engine.watch_approvals();
    let mut known = BTreeSet::new();
    loop {
        for news in changes(&mut watch, &mut known) {
            Response::News(news).send(to).await?;
        }
        if !watch.changed().await {
            return Ok(render::approvals(&[]));
        }
    }
}

/// Returns the requests that were decided, and those that were added, after the last call.
fn changes(watch: &mut ApprovalWatch, known: &mut BTreeSet<String>) -> Vec<News> {
    let pending = watch.pending();
    let is_pending = |id: &String| pending.iter().any(|request| request.id == *id);
    let gone: Vec<String> = known.iter().filter(|id| !is_pending(id)).cloned().collect();
    known.retain(is_pending);
    let decided = gone.into_iter().map(|id| {
        let decision = watch.decision(&id);
        News::Decided {
            id,
            approved: decision.as_ref().map(Decision::is_approved),
            decided_by: decision.map(|decision| decision.decided_by),
        }
    });
    let mut news: Vec<News> = decided.collect();
    for request in pending {
        if known.insert(request.id.clone()) {
            news.push(News::Asked(Box::new(request)));
        }
    }
    news
}
