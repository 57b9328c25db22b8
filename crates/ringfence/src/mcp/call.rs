//! One call of a tool, as the tools' handlers see it.

use super::{Offer, Server};
use ringfence_engine::{Caller, Canceller, Engine};
use ringfence_types::{Namespace, RequestError};
use rmcp::{RoleServer, model::CallToolRequestParams, service::RequestContext};
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) struct Call<'a> {
    pub(super) server: &'a Server,
    pub(super) context: &'a RequestContext<RoleServer>,
    /// Without its arguments, which have been read.
    pub(super) request: &'a CallToolRequestParams,
    engine: &'a Engine,
    caller: Caller,
    pub(super) tool: &'static str,
    is_noted: AtomicBool,
}

impl<'a> Call<'a> {
    pub(super) fn new(
        server: &'a Server,
        engine: &'a Engine,
        context: &'a RequestContext<RoleServer>,
        request: &'a CallToolRequestParams,
        tool: &'static str,
    ) -> Self {
        Self {
            server,
            context,
            request,
            engine,
            caller: super::caller(context),
            tool,
            is_noted: AtomicBool::new(false),
        }
    }

    /// The engine, which puts on record what it is asked for: from here on a refusal is its own to note.
    pub(super) fn engine(&self) -> &'a Engine {
        self.mark_noted();
        self.engine
    }

    /// The engine, for questions whose refusal it does not note.
    pub(super) fn unrecorded(&self) -> &'a Engine {
        self.engine
    }

    pub(super) fn mark_noted(&self) {
        self.is_noted.store(true, Ordering::Relaxed);
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(super) fn offer(&self) -> &'a Offer {
        &self.server.offer
    }

    /// Puts a call on record that reads what the engine keeps no record of.
    pub(super) async fn note(&self, namespace: &Namespace) -> Result<(), RequestError> {
        let engine = self.engine();
        engine
            .note_call(&self.caller, namespace.as_str(), self.tool)
            .await
    }

    /// Puts a refusal on record that the engine was never asked for. Where that cannot be, this is the refusal.
    pub(super) async fn refused(&self, error: RequestError) -> RequestError {
        if self.is_noted.swap(true, Ordering::Relaxed) {
            return error;
        }
        super::on_record(self.engine, &self.caller, self.tool, error).await
    }

    /// What comes of work that is cancelled when the caller no longer waits for it.
    pub(super) async fn or_cancel<T>(&self, canceller: Canceller, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        tokio::select! {
            done = &mut work => done,
            () = self.hung_up() => { canceller.cancel(); work.await }
        }
    }

    /// Until the caller no longer waits for this answer.
    pub(super) async fn hung_up(&self) {
        tokio::select! {
            () = self.context.ct.cancelled() => {}
            () = self.server.gone.cancelled() => {}
        }
    }
}
