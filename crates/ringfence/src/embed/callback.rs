//! The callback of an embedding program: it is called with each request for approval; its answer counts like any other.

use ringfence_engine::{Answer, ApprovalRequest, ApprovalWatch, Caller, Engine};
use ringfence_types::ErrorCode;
use std::{collections::HashMap, fmt, pin::Pin, sync::Arc};
use tokio::task::{AbortHandle, JoinSet};

const CALLER: &str = "library callback";

type AnswerFuture = Pin<Box<dyn Future<Output = Answer> + Send>>;

#[derive(Clone)]
pub(crate) struct Callback(Arc<dyn Fn(ApprovalRequest) -> AnswerFuture + Send + Sync>);

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}

impl Callback {
    pub(crate) fn new<F, A>(answer: F) -> Self
    where
        F: Fn(ApprovalRequest) -> A + Send + Sync + 'static,
        A: Future<Output = Answer> + Send + 'static,
    {
        Self(Arc::new(move |request| Box::pin(answer(request))))
    }

    /// Calls the callback with each request until no more can come. Aborts a call whose request is decided elsewhere.
    pub(crate) async fn answer_requests(self, mut watch: ApprovalWatch, engine: Engine) {
        let mut calls: HashMap<String, AbortHandle> = HashMap::new();
        let mut tasks = JoinSet::new();
        loop {
            let pending = watch.pending();
            calls.retain(|id, call| {
                let is_pending = pending.iter().any(|request| request.id == *id);
                if !is_pending {
                    call.abort();
                }
                is_pending
            });
            for request in pending {
                if !calls.contains_key(&request.id) {
                    let (id, callback, engine) = (request.id.clone(), self.clone(), engine.clone());
                    calls.insert(
                        id,
                        tasks.spawn(async move { callback.call(&engine, request).await }),
                    );
                }
            }
            while tasks.try_join_next().is_some() {}
            if !watch.changed().await {
                return;
            }
        }
    }

    async fn call(&self, engine: &Engine, request: ApprovalRequest) {
        // In its own task, so that a panic is a denial.
        let mut task = JoinSet::new();
        let (callback, argument) = (self.0.clone(), request.clone());
        task.spawn(async move { callback(argument).await });
        let answer = task.join_next().await.and_then(Result::ok);
        let caller = Caller::new(CALLER);
        decide(engine, &caller, &request, answer.unwrap_or(Answer::Deny)).await;
    }
}

/// Passes a person's answer to the engine. The first counts; one refused as invalid or by the policy becomes a denial.
pub(crate) async fn decide(engine: &Engine, by: &Caller, request: &ApprovalRequest, answer: Answer) {
    let digest = request.digest();
    let decide = async |answer| engine.decide_approval(by, &request.id, &digest, answer).await;
    match decide(answer).await {
        Err(error) if [ErrorCode::InvalidArgument, ErrorCode::PolicyDenied].contains(&error.code) => {
            tracing::warn!(%error, "an approval was not possible, and is a denial");
            drop(decide(Answer::Deny).await);
        }
        Err(error) => tracing::debug!(%error, "an answer came too late, or was not kept"),
        Ok(_) => {}
    }
}
