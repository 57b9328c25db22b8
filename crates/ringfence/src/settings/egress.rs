//! What the settings of `egress.*` mean.

use super::egress_words::OnDeniedWord;
use super::keys::{Effective, Setting};
use super::words::Seconds;
use ringfence_engine::{EgressLimits, EgressPolicy, EgressSettings, OnDenied};
use std::{path::PathBuf, time::Duration};

const MEBIBYTE: u64 = 1 << 20;
/// Finding an address and connecting to it.
const CONNECT: Duration = Duration::from_secs(10);
/// The first words of a connection.
const HELLO: Duration = Duration::from_secs(10);

pub(super) fn policy(settings: &Effective) -> EgressPolicy {
    let allow = settings.egress_allow.value.items().iter();
    EgressPolicy {
        tier: settings.floor.value.tier(),
        allow: allow.map(|pattern| pattern.rule()).collect(),
        secrets: settings
            .egress_secrets
            .value
            .items()
            .iter()
            .map(|bound| bound.0.clone())
            .collect(),
        on_denied: match settings.egress_on_denied.value {
            OnDeniedWord::Deny => OnDenied::Deny,
            OnDeniedWord::Ask => OnDenied::Ask(Duration::from_secs(settings.egress_ask_seconds.value.get())),
        },
    }
}

pub(super) fn settings(settings: &Effective, ca_file: Option<PathBuf>) -> EgressSettings {
    let time = |setting: &Setting<Seconds>| Duration::from_millis(setting.value.thousandths());
    EgressSettings {
        ca_file,
        resolvers: settings
            .egress_resolvers
            .value
            .items()
            .iter()
            .map(|resolver| resolver.0)
            .collect(),
        private: settings
            .egress_private
            .value
            .items()
            .iter()
            .map(|host| host.0.clone())
            .collect(),
        limits: EgressLimits {
            connections: super::bounded(settings.egress_connections.value.get()),
            connections_per_namespace: super::bounded(settings.egress_connections_per_namespace.value.get()),
            bytes_out: settings.egress_sent_mb.value.get() * MEBIBYTE,
            bytes_in: settings.egress_received_mb.value.get() * MEBIBYTE,
            connection_time: time(&settings.egress_connection_seconds),
            idle: time(&settings.egress_idle_seconds),
            connect: CONNECT,
            hello: HELLO,
        },
    }
}
