//! Resolves names outside the sandbox, only those that a rule allows. Names are absolute and no search list is used:
//! the name that is looked up is the name that was allowed.

use crate::HostName;
use hickory_resolver::{
    ResolverBuilder, TokioResolver,
    config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig},
    net::{NetError, runtime::TokioRuntimeProvider},
};
use std::{
    fs,
    net::{IpAddr, SocketAddr},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

/// Maximum addresses of one name; the rest of an answer is ignored.
const ADDRESSES_MAX: usize = 32;
/// Maximum time in the cache, even for an answer with a longer TTL: services move.
const CACHE_TTL_MAX: Duration = Duration::from_secs(300);
const CACHE_ENTRIES_MAX: u64 = 1024;

const HOST_FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];
/// Minimum time between two checks of the host's configuration for changes: a laptop may move to another network.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) struct Resolver {
    /// Resolvers configured by the operator; empty: those of the host.
    configured: Vec<SocketAddr>,
    /// `None` before the first lookup.
    current: Mutex<Option<Current>>,
}

/// The resolver in use until the host's configuration changes.
struct Current {
    inner: TokioResolver,
    files: Files,
    checked: Instant,
}

/// Modification times of [`HOST_FILES`]; `None` if a file cannot be read.
type Files = [Option<SystemTime>; 2];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResolveError {
    /// The name does not exist, or has no address.
    NotFound,
    Failed(String),
    /// The host's resolver configuration cannot be read, or names no server.
    NoResolver(String),
}

impl Resolver {
    /// Uses the given resolvers over UDP and TCP; if there are none, those of the host.
    pub(crate) fn new(configured: Vec<SocketAddr>) -> Self {
        Self {
            configured,
            current: Mutex::new(None),
        }
    }

    fn current(&self) -> Result<TokioResolver, String> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(current) = &mut *current else {
            let inner = if self.configured.is_empty() {
                host_resolver()?
            } else {
                configured(&self.configured)?
            };
            *current = Some(Current {
                inner: inner.clone(),
                files: files(),
                checked: Instant::now(),
            });
            return Ok(inner);
        };
        if self.configured.is_empty() && current.checked.elapsed() >= CHECK_INTERVAL {
            current.checked = Instant::now();
            let files = files();
            if files != current.files {
                match host_resolver() {
                    Ok(inner) => (current.inner, current.files) = (inner, files),
                    Err(why) => tracing::warn!(%why, "the host's resolver is used as it was before"),
                }
            }
        }
        Ok(current.inner.clone())
    }

    /// Returns the addresses of a name, IPv4 first, at most [`ADDRESSES_MAX`].
    pub(crate) async fn addresses(&self, name: &HostName) -> Result<Vec<IpAddr>, ResolveError> {
        // The dot at the end makes the name absolute: nothing is appended to it.
        let resolver = self.current().map_err(ResolveError::NoResolver)?;
        match resolver.lookup_ip(format!("{name}.")).await {
            Ok(found) => Ok(found.iter().take(ADDRESSES_MAX).collect()),
            Err(error) if is_absent(&error) => Err(ResolveError::NotFound),
            Err(error) => Err(ResolveError::Failed(error.to_string())),
        }
    }
}

fn files() -> Files {
    HOST_FILES.map(|path| fs::metadata(path).and_then(|file| file.modified()).ok())
}

fn host_resolver() -> Result<TokioResolver, String> {
    let builder = TokioResolver::builder_tokio().map_err(|error| error.to_string())?;
    build_resolver(builder, ResolveHosts::Always)
}

fn configured(resolvers: &[SocketAddr]) -> Result<TokioResolver, String> {
    let servers = resolvers.iter().map(server).collect();
    let config = ResolverConfig::from_parts(None, Vec::new(), servers);
    let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    build_resolver(builder, ResolveHosts::Never)
}

fn build_resolver(
    mut builder: ResolverBuilder<TokioRuntimeProvider>,
    hosts: ResolveHosts,
) -> Result<TokioResolver, String> {
    let options = builder.options_mut();
    options.use_hosts_file = hosts;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.cache_size = CACHE_ENTRIES_MAX;
    options.positive_max_ttl = Some(CACHE_TTL_MAX);
    options.negative_max_ttl = Some(Duration::from_secs(30));
    options.try_tcp_on_error = true;
    builder.build().map_err(|error| error.to_string())
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
