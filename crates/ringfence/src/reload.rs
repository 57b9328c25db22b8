//! SIGHUP: reads the configuration again, with the flags and the environment of the start, and applies the settings
//! that can change while a server runs. The log names the others. A configuration that cannot be read changes nothing.

use crate::{
    log::Log,
    settings::{Config, refusal},
};
use ringfence_engine::{Caller, Engine, PolicySettings};
use ringfence_types::RequestError;
use std::{io, path::Path, sync::Arc, time::Duration};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) type ConfigReader = Arc<dyn Fn() -> Result<Config, RequestError> + Send + Sync>;

/// Waits for SIGHUP, which no longer ends the process once this exists.
pub(crate) struct Reloader {
    hangups: Signal,
    reading: ConfigReader,
    /// The configuration of the start, with which settings that cannot change are compared.
    started: Config,
    in_force: Config,
    log: Log,
    /// Received by the tools, whose schemas name the limits.
    policy: watch::Sender<PolicySettings>,
}

impl Reloader {
    pub(crate) fn new(
        reading: ConfigReader,
        started: Config,
        log: Log,
        policy: watch::Sender<PolicySettings>,
    ) -> io::Result<Self> {
        Ok(Self {
            hangups: signal(SignalKind::hangup())?,
            reading,
            in_force: started.clone(),
            started,
            log,
            policy,
        })
    }

    pub(crate) async fn follow(mut self, engine: Engine) {
        let caller = Caller::new("signal SIGHUP");
        while self.hangups.recv().await.is_some() {
            if let Err(error) = self.reload(&engine, &caller).await {
                tracing::error!(%error, "the configuration stays as it is");
                if let Err(error) = engine.reload_failed(&caller, &error).await {
                    tracing::error!(%error, "the failed reload could not be recorded");
                }
            }
        }
    }

    async fn reload(&mut self, engine: &Engine, caller: &Caller) -> Result<(), RequestError> {
        let mut next = self.read().await?;
        let (_, fixed) = next.changes_from(&self.started);
        next.keep_fixed(&self.started);
        let (reload, _) = next.changes_from(&self.in_force);
        let changed = reload.changed.join(", ");
        if !changed.is_empty() {
            let policy = reload.policy.clone();
            engine.reload(caller, reload).await?;
            self.log.set_level(next.log);
            self.policy.send_if_modified(|present| {
                let is_other = present.defaults != policy.defaults || present.caps != policy.caps;
                *present = policy;
                is_other
            });
        }
        tracing::info!(changed, "the configuration was read again");
        if !fixed.is_empty() {
            let settings = fixed.join(", ");
            tracing::warn!(settings, "these settings need a restart");
        }
        self.in_force = next;
        Ok(())
    }

    async fn read(&self) -> Result<Config, RequestError> {
        let (reading, file) = (self.reading.clone(), self.started.file.clone());
        let read = tokio::task::spawn_blocking(move || {
            file.as_deref().map_or(Ok(()), can_be_read_again)?;
            let next = reading()?;
            match file {
                // A file in the usual place may be absent at the start. Later, its absence is more likely a mistake
                // than an intention to continue without its limits.
                Some(file) if next.file.is_none() => Err(refusal(
                    format!("the configuration {} is gone.", file.display()),
                    "Put it back (it may be empty), or restart the server.",
                )),
                _ => Ok(next),
            }
        });
        match tokio::time::timeout(PATIENCE, read).await {
            Ok(Ok(read)) => read,
            Ok(Err(_)) => Err(refusal(
                "reading the configuration failed.".to_owned(),
                "Report this.",
            )),
            Err(_) => Err(refusal(
                "reading the configuration took too long.".to_owned(),
                "Put it on a disk that answers.",
            )),
        }
    }
}

/// Refuses a file that is not regular: a pipe is empty by now, and an empty configuration means the default limits.
fn can_be_read_again(file: &Path) -> Result<(), RequestError> {
    match file.metadata() {
        Ok(metadata) if !metadata.is_file() => Err(refusal(
            format!("{} is not a plain file and cannot be read again.", file.display()),
            "Name a plain file with --config, or restart the server.",
        )),
        // Any other error is reported when it is read.
        _ => Ok(()),
    }
}
