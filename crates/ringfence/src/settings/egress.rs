//! What the settings of `egress.*` mean.

use super::keys::{Effective, Setting};
use super::words::Seconds;
use ringfence_engine::{EgressLimits, EgressPolicy, EgressSettings};
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
