//! Resolves names outside the sandbox. Only names that a rule allows come here, whole and without a search list: the
//! name that is looked up is the name that was allowed.

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

/// Addresses of one name that are looked at.
const ADDRESSES_MAX: usize = 32;
/// No answer is kept for longer, whatever it says of itself: services move.
const KEPT_MAX: Duration = Duration::from_secs(300);
/// Answers that are kept at once.
const KEPT_ANSWERS_MAX: u64 = 1024;

const OF_THE_HOST: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];
/// How often the host's configuration is checked for changes: a laptop moves to another network.
const LOOKED_EVERY: Duration = Duration::from_secs(5);

pub(crate) struct Resolver {
    /// By the operator; empty: those of the host.
    named: Vec<SocketAddr>,
    /// `None` before the first lookup.
    now: Mutex<Option<Now>>,
}

/// The resolvers that are in use until the host's configuration changes.
struct Now {
    inner: TokioResolver,
    files: Files,
    looked: Instant,
}

/// When the host's files changed last.
type Files = [Option<SystemTime>; 2];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResolveError {
    /// There is no such name, or it has no address.
    NotFound,
    Failed(String),
    /// The host's configuration of its resolver cannot be read, or names no server.
    NoResolver(String),
}

impl Resolver {
    /// The given ones over UDP and TCP; without any, those of the host.
    pub(crate) fn new(named: Vec<SocketAddr>) -> Self {
        Self {
            named,
            now: Mutex::new(None),
        }
    }

    fn now(&self) -> Result<TokioResolver, String> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(now) = &mut *now else {
            let inner = if self.named.is_empty() {
                of_the_host()?
            } else {
                named(&self.named)?
            };
            *now = Some(Now {
                inner: inner.clone(),
                files: files(),
                looked: Instant::now(),
            });
            return Ok(inner);
        };
        if self.named.is_empty() && now.looked.elapsed() >= LOOKED_EVERY {
            now.looked = Instant::now();
            let files = files();
            if files != now.files {
                match of_the_host() {
                    Ok(inner) => (now.inner, now.files) = (inner, files),
                    Err(why) => tracing::warn!(%why, "the host's resolver is asked as it was before"),
                }
            }
        }
        Ok(now.inner.clone())
    }

    /// All addresses of a name, those of IPv4 first.
    pub(crate) async fn addresses(&self, name: &HostName) -> Result<Vec<IpAddr>, ResolveError> {
        // With the dot at its end the name is whole; nothing is appended to it.
        let resolver = self.now().map_err(ResolveError::NoResolver)?;
        match resolver.lookup_ip(format!("{name}.")).await {
            Ok(found) => Ok(found.iter().take(ADDRESSES_MAX).collect()),
            Err(error) if is_absent(&error) => Err(ResolveError::NotFound),
            Err(error) => Err(ResolveError::Failed(error.to_string())),
        }
    }
}

fn files() -> Files {
    OF_THE_HOST.map(|path| fs::metadata(path).and_then(|file| file.modified()).ok())
}

fn of_the_host() -> Result<TokioResolver, String> {
    let builder = TokioResolver::builder_tokio().map_err(|error| error.to_string())?;
    built(builder, ResolveHosts::Always)
}

fn named(resolvers: &[SocketAddr]) -> Result<TokioResolver, String> {
    let servers = resolvers.iter().map(server).collect();
    let config = ResolverConfig::from_parts(None, Vec::new(), servers);
    let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    built(builder, ResolveHosts::Never)
}

fn built(
    mut builder: ResolverBuilder<TokioRuntimeProvider>,
    hosts: ResolveHosts,
) -> Result<TokioResolver, String> {
    let options = builder.options_mut();
    options.use_hosts_file = hosts;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.cache_size = KEPT_ANSWERS_MAX;
    options.positive_max_ttl = Some(KEPT_MAX);
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
