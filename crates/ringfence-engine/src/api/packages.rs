//! Packages that are installed ahead of the program that wants them.

use super::{Canceller, Engine};
use crate::{
    caller::{Caller, OutputChunk},
    execute::queued,
    packages::{LayerRequest, Provided},
    queue::Demand,
    services::Services,
    session::{self, PackageCaller, SessionPackages},
};
use ringfence_store::layers::Package;
use ringfence_types::{ErrorCode, Language, Namespace, Priority, RequestError, Requirement, SessionId};
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, oneshot, watch};

/// Lines that wait for their reader.
const LINES_WAITING: usize = 16;

/// Who wants which packages.
#[derive(Clone, Debug)]
pub struct PackageWish {
    /// Who asks.
    pub caller: Caller,
    /// Tenant.
    pub namespace: Namespace,
    /// For programs of this language.
    pub language: Language,
    /// Which; see [`ringfence_types::requirements`].
    pub packages: BTreeSet<Requirement>,
    /// A session that is to have them at once, beside those it has.
    pub session: Option<SessionId>,
}

/// Packages that are there now.
#[derive(Clone, Debug)]
pub struct Installed {
    /// All, with those that came with what was asked for.
    pub packages: Vec<Package>,
    /// What the installer said; nothing when they were there before.
    pub output: String,
    /// What a session had before in another version, as `tabulate 0.10.0`: modules that it has imported of it stay.
    pub replaced: Vec<String>,
    /// From the question to the answer.
    pub duration: Duration,
}

/// An installation on its way. The engine owns the task: dropping this stops nothing.
pub struct Installation {
    notices: mpsc::Receiver<OutputChunk>,
    answer: oneshot::Receiver<Result<Installed, RequestError>>,
    canceller: Canceller,
}

impl Engine {
    /// Sees to it that a program which asks for these packages later has them at once.
    pub fn install(&self, wanted: PackageWish) -> Installation {
        let (cancel, cancelled) = watch::channel(false);
        let (live, notices) = mpsc::channel(LINES_WAITING);
        let (done, answer) = oneshot::channel();
        let services = self.services().clone();
        tokio::spawn(async move {
            let begun = Instant::now();
            let installing = async {
                if let Some(id) = &wanted.session {
                    return in_session(&services, &wanted, id, live, cancelled).await;
                }
                take_turn(&services, &wanted, cancelled.clone()).await?;
                let wish = LayerRequest {
                    caller: &wanted.caller,
                    namespace: &wanted.namespace,
                    execution_id: None,
                    language: wanted.language.packaged_as(),
                    set: &wanted.packages,
                    live: Some(live),
                    cancelled,
                };
                let Provided { layer, output, .. } = services.packages.layer(&wish).await?;
                Ok(SessionPackages {
                    output,
                    packages: layer.packages().to_vec(),
                    replaced: Vec::new(),
                })
            };
            let installed = installing.await.map(|told| Installed {
                packages: told.packages,
                output: told.output,
                replaced: told.replaced,
                duration: begun.elapsed(),
            });
            // Nobody may be waiting; they are installed all the same.
            drop(done.send(installed));
        });
        Installation {
            notices,
            answer,
            canceller: Canceller::new(cancel),
        }
    }
}

/// As often as its namespace may ask for a program. The place itself is for those who run one: it is given back at
/// once.
async fn take_turn(
    services: &Services,
    wanted: &PackageWish,
    cancelled: watch::Receiver<bool>,
) -> Result<(), RequestError> {
    queued(
        &services.queue,
        &wanted.namespace,
        Priority::Normal,
        Demand::default(),
        cancelled,
    )
    .await
    .map(drop)
}

/// In the session's turn: nothing runs in it meanwhile.
async fn in_session(
    services: &Arc<Services>,
    wanted: &PackageWish,
    id: &SessionId,
    notices: mpsc::Sender<OutputChunk>,
    cancelled: watch::Receiver<bool>,
) -> Result<SessionPackages, RequestError> {
    let live = services.sessions.find(&wanted.namespace, id)?;
    if live.language.runs_as() != wanted.language.runs_as() {
        return Err(RequestError::invalid(
            format!("the session speaks {}, not {}.", live.language, wanted.language),
            "Name the session's own language.",
        ));
    }
    let _turn = live.turn(cancelled.clone()).await?;
    take_turn(services, wanted, cancelled.clone()).await?;
    let of = PackageCaller {
        caller: &wanted.caller,
        execution_id: None,
        notices: Some(notices),
        cancelled,
    };
    let told = session::provide(&services.packages, &live, of, &wanted.packages).await?;
    Ok(told.unwrap_or_default())
}

impl Installation {
    /// The next line of what goes on; `None` when it has ended.
    pub async fn next_notice(&mut self) -> Option<OutputChunk> {
        self.notices.recv().await
    }

    /// A handle that stops it.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// The end of it. Lines that were not taken are dropped.
    pub async fn finish(self) -> Result<Installed, RequestError> {
        drop(self.notices);
        self.answer.await.unwrap_or_else(|_| {
            Err(RequestError::new(
                ErrorCode::SandboxFault,
                "the engine's task died.",
                "Report this.",
            ))
        })
    }
}
