//! The web tools. Each call is on record before anything is dialled, and again with what was reached when it has ended.

use super::{Engine, snapshots::clean};
use crate::{
    caller::Caller,
    error::{Result, task_died},
    record::{Note, refusal},
    web::{BrowseRequest, Done, PageRequest, SearchRequest, WebPage},
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
    asked: String,
}

impl WebCall {
    fn new(caller: &Caller, namespace: &Namespace, action: Action, asked: &str) -> Self {
        Self {
            caller: caller.clone(),
            namespace: namespace.clone(),
            action,
            asked: asked.to_owned(),
        }
    }

    fn note(&self) -> Note<'_> {
        let key = match self.action {
            Action::WebSearched => "query",
            _ => "url",
        };
        let details = json!({key: self.asked});
        Note::of(&self.caller, &self.namespace, self.action, details)
    }
}

/// Of a URL or a query that stands on record.
const RECORDED_CHARS_MAX: usize = 500;

impl Engine {
    /// Asks the operator's search providers, in their order.
    pub async fn web_search(&self, caller: &Caller, wanted: SearchRequest) -> Result<Searched> {
        let call = WebCall::new(caller, &wanted.namespace, Action::WebSearched, &wanted.query.text);
        let web = self.services.web.clone();
        self.web_call(call, async move { web.search(&wanted).await })
            .await
    }

    pub async fn fetch_page(&self, caller: &Caller, wanted: PageRequest) -> Result<WebPage> {
        let call = WebCall::new(caller, &wanted.namespace, Action::WebFetched, &wanted.url);
        let (web, by) = (self.services.web.clone(), caller.clone());
        self.web_call(call, async move { web.page(&wanted, &by).await })
            .await
    }

    pub async fn browse_page(&self, caller: &Caller, wanted: BrowseRequest) -> Result<WebPage> {
        let call = WebCall::new(caller, &wanted.namespace, Action::WebBrowsed, &wanted.url);
        let (web, by) = (self.services.web.clone(), caller.clone());
        self.web_call(call, async move { web.browse(&wanted, &by).await })
            .await
    }

    /// Puts a call on record, does its work in a task of the engine's own, and puts its end on record, also where the
    /// caller has left: then what it has begun is dropped.
    async fn web_call<T: Send + 'static>(
        &self,
        mut call: WebCall,
        work: impl Future<Output = Done<T>> + Send + 'static,
    ) -> Result<T> {
        let secrets = &self.services.secrets;
        let redactor = secrets.redactor_of_all(&call.namespace, &[]).await?;
        let asked = redactor.text(&call.asked);
        call.asked = asked.chars().take(RECORDED_CHARS_MAX).collect();
        self.note(call.note()).await?;
        let (_caller, left) = oneshot::channel::<Infallible>();
        let engine = self.clone();
        let task = tokio::spawn(async move {
            let mut done = tokio::select! {
                done = work => done,
                _ = left => Done {
                    result: Err(RequestError::new(ErrorCode::Cancelled, "the call was cancelled.", "Call again.")),
                    details: json!({}),
                },
            };
            // Hosts and URLs that a page has led to stand in both.
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

    async fn note_web<T>(&self, mut note: Note<'_>, done: Done<T>) -> Result<T> {
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
