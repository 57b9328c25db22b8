//! The engine of a server: it starts while the protocol is spoken already, and ends while the last answers leave.

use crate::{
    control::{self, Socket},
    lock::lock,
};
use ringfence_engine::{Engine, EngineSettings};
use ringfence_types::{ErrorCode, RequestError};
use std::{
    future::pending,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinHandle,
};

/// How long answers that are ready may take to leave after the client has.
const FAREWELL: Duration = Duration::from_millis(700);

/// The engine, as soon as it has started.
pub(crate) type Starting = watch::Receiver<Option<Result<Engine, RequestError>>>;

pub(crate) struct Startup {
    pub(crate) engine: Starting,
    control: Arc<Mutex<Option<Socket>>>,
    starter: JoinHandle<()>,
}

impl Startup {
    /// `attend` is given the engine before the first request.
    pub(crate) fn begin(settings: EngineSettings, attend: impl FnOnce(&Engine) + Send + 'static) -> Self {
        let (started, engine) = watch::channel(None);
        let control = Arc::new(Mutex::new(None));
        let socket = control.clone();
        let starter = tokio::spawn(async move {
            let state_dir = settings.state_dir.clone();
            let outcome = start(settings, attend).await;
            match &outcome {
                Ok(engine) => {
                    let listening = listen(&state_dir, engine).await;
                    *lock(&socket) = listening;
                }
                Err(error) => tracing::error!(%error, "NOTHING RUNS HERE"),
            }
            started.send_replace(Some(outcome));
            // the value is read as long as the channel lives
            started.closed().await;
        });
        Self {
            engine,
            control,
            starter,
        }
    }

    /// Why there is nothing to serve. A host that is too weak is told by each call, where a client shows it.
    pub(crate) async fn failure(&self) -> RequestError {
        let mut engine = self.engine.clone();
        if engine.wait_for(Option::is_some).await.is_ok()
            && let Some(Err(error)) = &*engine.borrow()
            && error.code != ErrorCode::BelowFloor
        {
            return error.clone();
        }
        pending().await
    }

    /// Waits for the programs of a client that has left. The operator's commands still reach the server.
    pub(super) async fn outlive(&self, service: &mut JoinHandle<Result<(), RequestError>>) {
        let Some(engine) = self.engine() else { return };
        // Calls that were read, but are not yet with the engine. What is not answered by then was never begun.
        if !service.is_finished() {
            drop(tokio::time::timeout(FAREWELL, service).await);
        }
        engine.idle().await;
    }

    /// The last answers leave while the runs of clients that are gone are killed. Nothing new is begun, and the end of
    /// the server is the last on record, which waits for the end of each run longer than the answers: the engine says
    /// how long.
    pub(crate) async fn farewell(self, leaving: impl Future<Output = ()>) {
        let control = lock(&self.control).take();
        let stop = async {
            if let Some(engine) = self.engine() {
                engine.shutdown().await;
            }
        };
        let answers = async {
            let answered = async {
                if let Some(control) = &control {
                    control.answered().await;
                }
            };
            let both = async { tokio::join!(leaving, answered) };
            if tokio::time::timeout(FAREWELL, both).await.is_err() {
                tracing::warn!("the last answers could not be delivered in time");
            }
        };
        tokio::join!(stop, answers);
        self.starter.abort();
    }

    fn engine(&self) -> Option<Engine> {
        match &*self.engine.borrow() {
            Some(Ok(engine)) => Some(engine.clone()),
            _ => None,
        }
    }
}

/// The engine, with the proof that it can make a sandbox of the tier.
async fn start(settings: EngineSettings, attend: impl FnOnce(&Engine)) -> Result<Engine, RequestError> {
    let engine = Engine::open(settings)?;
    attend(&engine);
    engine.prove().await?;
    engine.warm_up();
    Ok(engine)
}

/// The operator's way to this server. One that cannot be reached serves all the same, and the log says so.
async fn listen(state_dir: &Path, engine: &Engine) -> Option<Socket> {
    let opened = control::open(state_dir, engine.clone()).await;
    let told = |error| tracing::error!(%error, "NO CONTROL SOCKET: the commands cannot reach this server");
    opened.map_err(told).ok()
}

pub(crate) async fn told_to_stop() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("cannot listen for signals");
        return pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
