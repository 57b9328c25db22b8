//! Access to the host's commands and files: the rules in force, the walls available here, and concurrent commands.

use crate::{
    error::{Result, busy},
    log_redactor::LogRedactor,
    runtimes,
    settings::EngineSettings,
    store::blocking,
};
use ringfence_host::{Access, Rules, Support, UndoStore};
use ringfence_jail::cgroup::Parent;
use ringfence_types::RequestError;
use std::{path::PathBuf, sync::Arc};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

const COMMANDS_MAX: usize = 8;
const RETRY_MS: u64 = 1000;

pub(crate) struct HostAccess {
    rules: Option<Arc<Rules>>,
    pub(crate) binary: PathBuf,
    pub(crate) cgroups: Parent,
    support: OnceCell<Support>,
    pub(crate) undo: UndoStore,
    pub(crate) redactor: LogRedactor,
    commands: Arc<Semaphore>,
}

impl HostAccess {
    pub(crate) fn new(settings: &EngineSettings, cgroups: Parent, redactor: LogRedactor) -> Self {
        Self {
            rules: settings.host.as_ref().map(|rules| {
                let mut rules = Rules::clone(rules);
                rules.guard(settings.secret_files(), Access::Read);
                rules.guard(settings.deciding_files(), Access::Write);
                let interpreters = runtimes::parts(&settings.runtimes);
                rules.guard(interpreters.map(|(_, part)| part), Access::Write);
                Arc::new(rules)
            }),
            binary: settings.helper.clone(),
            cgroups,
            support: OnceCell::new(),
            undo: UndoStore::below(&settings.state_dir),
            redactor,
            commands: Arc::new(Semaphore::new(COMMANDS_MAX)),
        }
    }

    pub(crate) fn rules(&self) -> Result<&Arc<Rules>> {
        self.rules.as_ref().ok_or_else(|| {
            RequestError::denied(
                "this server has no access to the host.",
                "The operator turns it on with `host.enabled: true`.",
            )
        })
    }

    /// Returns the walls that commands have on this host. Probed once.
    pub(crate) async fn support(&self) -> Result<&Support> {
        let (binary, cgroups) = (self.binary.clone(), self.cgroups.clone());
        let probe = || blocking(move || ringfence_host::probe(&binary, &cgroups));
        self.support.get_or_try_init(probe).await
    }

    pub(crate) fn permit(&self) -> Result<OwnedSemaphorePermit> {
        self.commands.clone().try_acquire_owned().map_err(|_| {
            busy(
                format!("{COMMANDS_MAX} commands of the host run already."),
                "Try again in a second.",
                RETRY_MS,
            )
        })
    }
}
