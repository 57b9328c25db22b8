//! Changes of the configuration that a running server applies (SIGHUP).

use super::Config;
use ringfence_engine::Reload;

/// Settings that a running server applies, by prefix of their path; `log` is another.
pub(crate) const CHANGEABLE: [&str; 17] = [
    "disk.",
    "packages.hosts",
    "egress.allow",
    "egress.secrets",
    "egress.on_denied",
    "egress.ask_seconds",
    "limits.",
    "caps.",
    "queue.",
    "artifacts.",
    "vault.allow",
    "check.",
    "workspaces",
    "packages.enabled",
    "packages.allow",
    "packages.timeout_seconds",
    "packages.max_mb",
];

impl Config {
    /// Keeps what only a restart changes of a policy that is otherwise replaced as a whole.
    pub(crate) fn keep_fixed(&mut self, started: &Self) {
        let (policy, started) = (&mut self.engine.policy, &started.engine.policy);
        policy.backends = started.backends.clone();
        policy.web.allow = started.web.allow.clone();
        policy.egress.tier = started.egress.tier;
    }

    /// Returns the changes that a server running on `present` can apply, and the changed settings that it cannot apply.
    pub(crate) fn changes_from(&self, present: &Self) -> (Reload, Vec<&'static str>) {
        let (now, then) = (self.effective.rows(), present.effective.rows());
        let rows = now.iter().zip(&then);
        let differ = rows.filter(|(now, then)| now.value != then.value);
        let is_changeable =
            |path: &&str| CHANGEABLE.iter().any(|part| path.starts_with(part)) || *path == "log";
        let (changed, fixed): (Vec<&str>, Vec<&str>) =
            differ.map(|(now, _)| now.path).partition(is_changeable);
        let reload = Reload {
            policy: self.engine.policy.clone(),
            queue: self.engine.queue.clone(),
            retention: self.engine.record.retention,
            changed: changed.into_iter().map(str::to_owned).collect(),
        };
        (reload, fixed)
    }
}
