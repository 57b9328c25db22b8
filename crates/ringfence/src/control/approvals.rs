//! What the operator's commands do with requests for approval: see them, answer them, and be told of each as it comes.

use super::{
    Unanswered,
    executions::place,
    wire::{EgressRequest, News, Response},
};
use crate::render::{self, Rendered};
use ringfence_engine::{ApprovalWatch, Caller, Decision, Engine, HostRequest};
use std::collections::BTreeSet;
use tokio::{net::unix::WriteHalf, sync::Semaphore};

/// Who watches at once. Each has one of the connections that are served.
pub(super) const WATCHING_MAX: usize = 8;

/// Asks for a host, and answers when it is decided. Dropped, as when its command goes away, it takes the request back.
pub(super) async fn request_egress(
    engine: &Engine,
    caller: &Caller,
    wish: EgressRequest,
    to: &mut WriteHalf<'_>,
) -> Result<Rendered, Unanswered> {
    engine
        .note_call(caller, wish.namespace.as_str(), "egress")
        .await?;
    let asked = HostRequest {
        namespace: wish.namespace,
        session: wish.session,
        domain: wish.domain.clone(),
        reason: wish.reason,
    };
    let mut waiting = engine.request_egress(caller, asked).await?;
    if let Some(request) = waiting.request() {
        let asked = News::Asked(Box::new(request.clone()));
        Response::News(asked).send(to).await?;
    }
    Ok(render::host_decision(&wish.domain, &waiting.decided().await))
}

/// Tells of requests until no more can come.
pub(super) async fn watch(
    engine: &Engine,
    caller: &Caller,
    places: &Semaphore,
    to: &mut WriteHalf<'_>,
) -> Result<Rendered, Unanswered> {
    let _place = place(places)?;
    engine.note_call(caller, "", "approvals.watch").await?;
    let mut watch = engine.watch_approvals();
    let mut known = BTreeSet::new();
    loop {
        for news in since(&mut watch, &mut known) {
            Response::News(news).send(to).await?;
        }
        if !watch.changed().await {
            return Ok(render::approvals(&[]));
        }
    }
}

/// What has come and gone since it was looked at last.
fn since(watch: &mut ApprovalWatch, known: &mut BTreeSet<String>) -> Vec<News> {
    let pending = watch.pending();
    let is_there = |id: &String| pending.iter().any(|request| request.id == *id);
    let gone: Vec<String> = known.iter().filter(|id| !is_there(id)).cloned().collect();
    known.retain(is_there);
    let told = gone.into_iter().map(|id| {
        let decision = watch.decision(&id);
        News::Decided {
            id,
            approved: decision.as_ref().map(Decision::is_approved),
            decided_by: decision.map(|decision| decision.decided_by),
        }
    });
    let mut news: Vec<News> = told.collect();
    for request in pending {
        if known.insert(request.id.clone()) {
            news.push(News::Asked(Box::new(request)));
        }
    }
    news
}
