//! One call of a tool, as its handler sees it.

use super::{Offer, Server, progress::Reporter, service::SessionEnd};
use crate::settings::OnHangUp;
use ringfence_engine::{Caller, Canceller, Engine, NamespaceAccess};
use ringfence_types::{ErrorCode, Namespace, RequestError};
use rmcp::{RoleServer, model::CallToolRequestParams, service::RequestContext};
use std::{
    convert::Infallible,
    future::pending,
    sync::atomic::{AtomicBool, Ordering},
};
use tokio::time::Instant;

pub(super) struct Call<'a> {
    pub(super) server: &'a Server,
    pub(super) context: &'a RequestContext<RoleServer>,
    /// The request without its arguments, which have been read.
    pub(super) request: &'a CallToolRequestParams,
    engine: &'a Engine,
    caller: Caller,
    pub(super) tool: &'static str,
    pub(super) begun: Instant,
    pub(super) reporter: Option<Reporter>,
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
            caller: server.caller(context),
            tool,
            begun: Instant::now(),
            reporter: Reporter::for_call(context),
            is_noted: AtomicBool::new(false),
        }
    }

    /// Returns the engine, which records the requests that it receives: from here on it also records their refusal.
    pub(super) fn engine(&self) -> &'a Engine {
        self.mark_noted();
        self.engine
    }

    /// Returns the engine, for requests whose refusal it does not record.
    pub(super) fn unrecorded(&self) -> &'a Engine {
        self.engine
    }

    pub(super) fn namespace<'b>(&'b self, namespace: &'b Namespace) -> NamespaceAccess<'b> {
        self.engine().namespace(self.caller(), namespace)
    }

    pub(super) fn mark_noted(&self) {
        self.is_noted.store(true, Ordering::Relaxed);
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(super) fn offer(&self) -> &'a Offer {
        self.server.offer()
    }

    /// Records a call that reads something of which the engine keeps no record.
    pub(super) async fn note(&self, namespace: &Namespace) -> Result<(), RequestError> {
        let engine = self.engine();
        engine
            .note_call(&self.caller, namespace.as_str(), self.tool)
            .await
    }

    /// Records a refusal unless the engine has. If it cannot be recorded, returns that error instead.
    pub(super) async fn refused(&self, error: RequestError) -> RequestError {
        if self.is_noted.swap(true, Ordering::Relaxed) {
            return error;
        }
        super::record_refusal(self.engine, &self.caller, self.tool, error).await
    }

    /// Cancels the work once the caller no longer waits for it. Never completes, since the work's end is still to come.
    pub(super) async fn cancel(&self, canceller: Canceller) -> Infallible {
        self.hung_up().await;
        canceller.cancel();
        pending().await
    }

    /// Does the work, unless the caller stops waiting for it: then the refusal has this message and hint.
    pub(super) async fn until_left<T>(
        &self,
        work: impl Future<Output = Result<T, RequestError>>,
        [message, hint]: [&str; 2],
    ) -> Result<T, RequestError> {
        tokio::select! {
            done = work => done,
            _ = self.hung_up() => Err(RequestError::new(ErrorCode::Cancelled, message, hint)),
        }
    }

    /// Completes when the caller no longer waits for this answer, and returns what becomes of its program. The client
    /// may have cancelled the call, ended its protocol session, or run out of time: they cannot be told apart.
    pub(super) async fn hung_up(&self) -> OnHangUp {
        let (call, connection) = (&self.context.ct, &self.server.gone);
        let session = async {
            match self.context.extensions.get::<SessionEnd>() {
                Some(SessionEnd(session)) => session.cancelled().await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = call.cancelled() => {}
            () = connection.cancelled() => {}
            () = session => {}
        }
        // The end of a connection cancels its calls, too.
        if connection.is_cancelled() {
            self.offer().calls.on_disconnect
        } else {
            self.offer().calls.on_cancel
        }
    }
}
