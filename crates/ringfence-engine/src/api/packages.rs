//! Packages installed ahead of the programs that use them.

use super::{Canceller, EngineTask, NamespaceAccess};
use crate::{
    admission::Demand,
    caller::{Client, Requester},
    error::Result,
    packages::{LayerRequest, Provided},
    record::Note,
    services::Services,
    session::{self, Installed},
};
use ringfence_store::audit::Action;
use ringfence_types::{Language, Namespace, RequestError, Requirement, SessionId};
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc, time::Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// Maximum notices that wait for their reader.
const LINES_WAITING: usize = 16;

struct InstallRequest {
    namespace: Namespace,
    language: Language,
    packages: BTreeSet<Requirement>,
}

impl NamespaceAccess<'_> {
    /// Installs packages, so that a later program that requests them has them at once, or so that a session has them in
    /// addition to its own; see [`ringfence_types::requirements`]. Dropping the task stops nothing.
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
        let request = InstallRequest {
            namespace: self.namespace.clone(),
            language,
            packages,
        };
        tokio::spawn(async move {
            let begun = Instant::now();
            let by = Requester {
                caller: caller.clone(),
                execution_id: None,
                client: Client {
                    output: Some(live),
                    cancelled,
                },
            };
            let installing = async {
                if let Some(id) = &session {
                    return in_session(&services, &request, id, by).await;
                }
                wait_for_turn(&services, &request, &by.client).await?;
                let layer = LayerRequest {
                    requester: by,
                    namespace: &request.namespace,
                    language: request.language.packaged_as(),
                    set: &request.packages,
                };
                let Provided { layer, output, .. } = services.packages.layer(&layer).await?;
                Ok(Installed {
                    output,
                    packages: layer.packages().to_vec(),
                    ..Installed::default()
                })
            };
            let details = json!({"tool": "install_package"});
            let note = Note::of(&caller, &request.namespace, Action::ToolCalled, details);
            let installed = services.record.around(note, installing, |_, _| ()).await;
            let installed = installed.map(|installed| Installed {
                duration: begun.elapsed(),
                ..installed
            });
            // The client may be gone; the packages are installed in any case.
            drop(done.send(installed));
        });
        EngineTask {
            output: Some(notices),
            answer,
            canceller: Canceller::new(cancel),
        }
    }
}

/// Waits for the namespace's rate and turn, as a run would. The permit is released at once: none of its programs run.
async fn wait_for_turn(services: &Services, request: &InstallRequest, client: &Client) -> Result<()> {
    let queue = &services.queue;
    let permit = queue.admit_unless_cancelled(&request.namespace, Demand::default(), client);
    permit.await.map(drop)
}

/// Installs packages in a session, in its turn: no call runs in it meanwhile.
async fn in_session(
    services: &Arc<Services>,
    request: &InstallRequest,
    id: &SessionId,
    by: Requester,
) -> Result<Installed> {
    let session = services.sessions.find(&request.namespace, id)?;
    if session.language.runs_as() != request.language.runs_as() {
        let what = format!("the session runs {}, not {}.", session.language, request.language);
        return Err(RequestError::invalid(what, "Name the session's own language."));
    }
    let _turn = session.turn(&by.client).await?;
    wait_for_turn(services, request, &by.client).await?;
    let installed = session::provide(&services.packages, &session, by, &request.packages).await?;
    Ok(installed.unwrap_or_default())
}
