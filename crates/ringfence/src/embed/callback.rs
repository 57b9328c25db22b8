//! The callback of a program that embeds us: it is asked of each request for approval, and its answer is one like any
//! other's.

use ringfence_engine::{Answer, ApprovalRequest, ApprovalWatch, Caller, Engine};
use ringfence_types::ErrorCode;
use std::{collections::HashMap, fmt, pin::Pin, sync::Arc};
use tokio::task::{AbortHandle, JoinSet};

const CALLER: &str = "library callback";

type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

#[derive(Clone)]
pub(crate) struct Callback(Arc<dyn Fn(ApprovalRequest) -> Answering + Send + Sync>);

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

    /// Asks it of each request, as long as there can be any. Of one that is decided elsewhere it is asked no more.
    pub(crate) async fn attend(self, mut watch: ApprovalWatch, engine: Engine) {
        let mut asked: HashMap<String, AbortHandle> = HashMap::new();
        let mut asking = JoinSet::new();
        loop {
            let pending = watch.pending();
            asked.retain(|id, asking| {
                let is_there = pending.iter().any(|request| request.id == *id);
                if !is_there {
                    asking.abort();
                }
                is_there
            });
            for request in pending {
                if !asked.contains_key(&request.id) {
                    let (id, callback, engine) = (request.id.clone(), self.clone(), engine.clone());
                    asked.insert(
                        id,
                        asking.spawn(async move { callback.ask(&engine, request).await }),
                    );
                }
            }
            while asking.try_join_next().is_some() {}
            if !watch.changed().await {
                return;
            }
        }
    }

    async fn ask(&self, engine: &Engine, request: ApprovalRequest) {
        // In a task of its own: one that panics has not said yes.
        let mut answering = JoinSet::new();
        let (callback, asked) = (self.0.clone(), request.clone());
        answering.spawn(async move { callback(asked).await });
        let answer = answering.join_next().await.and_then(Result::ok);
        let caller = Caller::new(CALLER);
        decide(engine, &caller, &request, answer.unwrap_or(Answer::Deny)).await;
    }
}

/// Carries a person's word to the engine. The first answer counts; an approval that is not possible is a denial.
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
