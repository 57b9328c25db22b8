//! Start and stop of the engine: it starts while the protocol is served, and stops while the last answers are sent.

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

/// Time limit for sending finished answers after the client has left.
const LAST_ANSWERS_PATIENCE: Duration = Duration::from_millis(700);

pub(crate) type Starting = watch::Receiver<Option<Result<Engine, RequestError>>>;

pub(crate) struct Startup {
    pub(crate) engine: Starting,
    control: Arc<Mutex<Option<Socket>>>,
    starter: JoinHandle<()>,
}

impl Startup {
    /// Starts the engine. `on_started` receives it before the first request.
    pub(crate) fn begin(settings: EngineSettings, on_started: impl FnOnce(&Engine) + Send + 'static) -> Self {
        let (started, engine) = watch::channel(None);
        let control = Arc::new(Mutex::new(None));
        let socket = control.clone();
        let starter = tokio::spawn(async move {
            let state_dir = settings.state_dir.clone();
            let outcome = start(settings, on_started).await;
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

    /// Completes with the error that prevents serving; not for a host below the floor, which each call reports.
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
    pub(super) async fn wait_for_programs(&self, service: &mut JoinHandle<Result<(), RequestError>>) {
        let Some(engine) = self.engine() else { return };
        // Calls that were read may not have reached the engine yet. One that is not answered by then was never started.
        if !service.is_finished() {
            drop(tokio::time::timeout(LAST_ANSWERS_PATIENCE, service).await);
        }
        engine.idle().await;
    }

    /// Sends the last answers while the runs of clients that are gone are killed. Nothing new is started, and the
    /// server's end is its last record. It waits for the runs longer than for the answers: the engine decides how long.
    pub(crate) async fn finish(self, service_end: impl Future<Output = ()>) {
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
            let both = async { tokio::join!(service_end, answered) };
            if tokio::time::timeout(LAST_ANSWERS_PATIENCE, both).await.is_err() {
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

async fn start(settings: EngineSettings, on_started: impl FnOnce(&Engine)) -> Result<Engine, RequestError> {
    let engine = Engine::open(settings)?;
    on_started(&engine);
    engine.prove().await?;
    engine.warm_up();
    Ok(engine)
}

/// Opens the socket for the operator's commands. If that fails, the server runs without it, and the log says so.
async fn listen(state_dir: &Path, engine: &Engine) -> Option<Socket> {
    let opened = control::open(state_dir, engine.clone()).await;
    let log = |error| tracing::error!(%error, "NO CONTROL SOCKET: the commands cannot reach this server");
    opened.map_err(log).ok()
}

pub(crate) async fn stop_signal() {
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
