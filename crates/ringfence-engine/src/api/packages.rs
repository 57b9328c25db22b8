//! Packages that are installed ahead of the program that wants them.

use super::{Canceller, EngineTask, NamespaceAccess};
use crate::{
    admission::Demand,
    caller::{Client, Requester},
    error::Result,
    packages::{LayerRequest, Provided},
    services::Services,
    session::{self, Installed},
};
use ringfence_types::{Language, Namespace, RequestError, Requirement, SessionId};
use std::{collections::BTreeSet, sync::Arc, time::Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// Lines that wait for their reader.
const LINES_WAITING: usize = 16;

/// Packages that somebody asks for.
struct Wanted {
    namespace: Namespace,
    language: Language,
    packages: BTreeSet<Requirement>,
}

impl NamespaceAccess<'_> {
    /// Sees to it that a program which asks for these packages later has them at once, or that a session has them
    /// beside those it has; see [`ringfence_types::requirements`]. Dropping the task stops nothing.
    pub fn install(
        &self,
        language: Language,
        packages: BTreeSet<Requirement>,
        session: Option<SessionId>,
    ) -> EngineTask<Installed> {
        let (cancel, cancelled) = watch::channel(false);
        let (live, notices) = mpsc::channel(LINES_WAITING);
        let (done, answer) = oneshot::channel();
        let (services, caller) = (self.services.clone(), self.caller.clone());
        let wanted = Wanted {
            namespace: self.namespace.clone(),
            language,
            packages,
        };
        tokio::spawn(async move {
            let begun = Instant::now();
            let by = Requester {
                caller,
                execution_id: None,
                client: Client {
                    output: Some(live),
                    cancelled,
                },
            };
            let installing = async {
                if let Some(id) = &session {
                    return in_session(&services, &wanted, id, by).await;
                }
                take_turn(&services, &wanted, &by.client).await?;
                let layer = LayerRequest {
                    by,
                    namespace: &wanted.namespace,
                    language: wanted.language.packaged_as(),
                    set: &wanted.packages,
                };
                let Provided { layer, output, .. } = services.packages.layer(&layer).await?;
                Ok(Installed {
                    output,
                    packages: layer.packages().to_vec(),
                    ..Installed::default()
                })
            };
            let installed = installing.await.map(|told| Installed {
                duration: begun.elapsed(),
                ..told
            });
            // The client may be gone; they are installed all the same.
            drop(done.send(installed));
        });
        EngineTask {
            output: Some(notices),
            answer,
            canceller: Canceller::new(cancel),
        }
    }
}

/// As often as its namespace may ask for a program. The permit itself is for those that run one: it is given back at
/// once.
async fn take_turn(services: &Services, wanted: &Wanted, client: &Client) -> Result<()> {
    let queue = &services.queue;
    let permit = queue.admit_unless_cancelled(&wanted.namespace, Demand::default(), client);
    permit.await.map(drop)
}

/// In the session's turn: nothing runs in it meanwhile.
async fn in_session(
    services: &Arc<Services>,
    wanted: &Wanted,
    id: &SessionId,
    by: Requester,
) -> Result<Installed> {
    let session = services.sessions.find(&wanted.namespace, id)?;
    if session.language.runs_as() != wanted.language.runs_as() {
        let what = format!(
            "the session speaks {}, not {}.",
            session.language, wanted.language
        );
        return Err(RequestError::invalid(what, "Name the session's own language."));
    }
    let _turn = session.turn(&by.client).await?;
    take_turn(services, wanted, &by.client).await?;
    let shown = session::provide(&services.packages, &session, by, &wanted.packages).await?;
    Ok(shown.unwrap_or_default())
}
