//! Names into addresses, outside. Only names that a rule allows come here, whole and without any search list: what is
//! asked for is what was allowed.

use crate::HostName;
use hickory_resolver::{
    TokioResolver,
    config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig},
    net::{NetError, runtime::TokioRuntimeProvider},
};
use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

/// Of one name so many addresses are looked at.
const ADDRESSES_MAX: usize = 32;
/// No answer is kept for longer, whatever it says of itself: services move.
const KEPT_MAX: Duration = Duration::from_secs(300);
/// Answers that are kept at once.
const KEPT_ANSWERS_MAX: u64 = 1024;

/// Who is asked.
pub(crate) struct Resolver {
    inner: TokioResolver,
}

/// Why a name has no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResolveError {
    /// There is no such name, or it has no address.
    NotFound,
    /// Nobody answered, or not well.
    Failed(String),
}

impl Resolver {
    /// The given ones over UDP and TCP, or none: whom the host asks.
    pub(crate) fn new(resolvers: &[SocketAddr]) -> Result<Self, String> {
        let mut builder = if resolvers.is_empty() {
            let mut builder = TokioResolver::builder_tokio().map_err(|error| error.to_string())?;
            builder.options_mut().use_hosts_file = ResolveHosts::Always;
            builder
        } else {
            let servers = resolvers.iter().map(server).collect();
            let config = ResolverConfig::from_parts(None, Vec::new(), servers);
            let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
            builder.options_mut().use_hosts_file = ResolveHosts::Never;
            builder
        };
        let options = builder.options_mut();
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.cache_size = KEPT_ANSWERS_MAX;
        options.positive_max_ttl = Some(KEPT_MAX);
        options.negative_max_ttl = Some(Duration::from_secs(30));
        options.try_tcp_on_error = true;
        let inner = builder.build().map_err(|error| error.to_string())?;
        Ok(Self { inner })
    }

    /// All addresses of a name, those of IPv4 first.
    pub(crate) async fn addresses(&self, name: &HostName) -> Result<Vec<IpAddr>, ResolveError> {
        // With the dot at its end the name is whole; nothing is appended to it.
        match self.inner.lookup_ip(format!("{name}.")).await {
            Ok(found) => Ok(found.iter().take(ADDRESSES_MAX).collect()),
            Err(error) if is_absent(&error) => Err(ResolveError::NotFound),
            Err(error) => Err(ResolveError::Failed(error.to_string())),
        }
    }
}

fn is_absent(error: &NetError) -> bool {
    error.is_nx_domain() || error.is_no_records_found()
}

fn server(address: &SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}
