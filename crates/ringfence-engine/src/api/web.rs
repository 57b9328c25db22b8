//! The web tools. Each call is recorded before any connection is made, and again at its end, with what was reached.

use super::{Engine, snapshots::clean};
use crate::{
    caller::Caller,
    error::{Result, task_died},
    record::{Note, refusal},
    web::{BrowseRequest, PageRequest, SearchRequest, WebOutcome, WebPage},
};
use ringfence_store::audit::{Action, Outcome};
use ringfence_types::{ErrorCode, Namespace, RequestError};
use ringfence_web::Searched;
use serde_json::{Value, json};
use std::convert::Infallible;
use tokio::sync::oneshot;

struct WebCall {
    caller: Caller,
    namespace: Namespace,
    action: Action,
    /// A query or a URL.
    target: String,
}

impl WebCall {
    fn new(caller: &Caller, namespace: &Namespace, action: Action, target: &str) -> Self {
        Self {
            caller: caller.clone(),
            namespace: namespace.clone(),
            action,
            target: target.to_owned(),
        }
    }

    fn note(&self) -> Note<'_> {
        let key = match self.action {
            Action::WebSearched => "query",
            _ => "url",
        };
        let details = json!({key: self.target});
        Note::of(&self.caller, &self.namespace, self.action, details)
    }
}

/// Maximum recorded characters of a URL or a query.
const RECORDED_CHARS_MAX: usize = 500;

impl Engine {
    /// Queries the operator's search providers, in their order.
    pub async fn web_search(&self, caller: &Caller, search: SearchRequest) -> Result<Searched> {
        let call = WebCall::new(caller, &search.namespace, Action::WebSearched, &search.query.text);
        let web = self.services.web.clone();
        self.web_call(call, async move { web.search(&search).await })
            .await
    }

    pub async fn fetch_page(&self, caller: &Caller, request: PageRequest) -> Result<WebPage> {
        let call = WebCall::new(caller, &request.namespace, Action::WebFetched, &request.url);
        let (web, by) = (self.services.web.clone(), caller.clone());
        self.web_call(call, async move { web.page(&request, &by).await })
            .await
    }

    pub async fn browse_page(&self, caller: &Caller, request: BrowseRequest) -> Result<WebPage> {
        let call = WebCall::new(caller, &request.namespace, Action::WebBrowsed, &request.url);
        let (web, by) = (self.services.web.clone(), caller.clone());
        self.web_call(call, async move { web.browse(&request, &by).await })
            .await
    }

    /// Records a call and its end, also if the caller disconnects and the work, in a task of the engine, is dropped.
    async fn web_call<T: Send + 'static>(
        &self,
        mut call: WebCall,
        work: impl Future<Output = WebOutcome<T>> + Send + 'static,
    ) -> Result<T> {
        let secrets = &self.services.secrets;
        let redactor = secrets.redactor_of_all(&call.namespace, &[]).await?;
        let target = redactor.text(&call.target);
        call.target = target.chars().take(RECORDED_CHARS_MAX).collect();
        self.note(call.note()).await?;
        let (_caller, left) = oneshot::channel::<Infallible>();
        let engine = self.clone();
        let task = tokio::spawn(async move {
            let mut done = tokio::select! {
                done = work => done,
                _ = left => WebOutcome {
                    result: Err(RequestError::new(ErrorCode::Cancelled, "the call was cancelled.", "Call again.")),
                    details: json!({}),
                },
            };
            // Both may contain hosts and URLs to which a page has led.
            clean(&mut done.details, &redactor);
            if let Err(error) = &mut done.result {
                for text in [&mut error.message, &mut error.hint] {
                    *text = redactor.text(text).into_owned();
                }
            }
            engine.note_web(call.note(), done).await
        });
        task.await.unwrap_or_else(|_| Err(task_died()))
    }

    async fn note_web<T>(&self, mut note: Note<'_>, done: WebOutcome<T>) -> Result<T> {
        if let (Value::Object(to), Value::Object(from)) = (&mut note.details, done.details) {
            to.extend(from);
        }
        let outcome = match &done.result {
            Ok(_) => Outcome::Ok,
            Err(error) => {
                note.details["code"] = json!(error.code.as_str());
                refusal(error)
            }
        };
        self.note(note.ended(outcome)).await?;
        done.result
    }
}
