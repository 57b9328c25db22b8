//! Names into addresses, outside. Only names that a rule allows come here, whole and without any search list: what is
//! asked for is what was allowed.

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

/// Of one name so many addresses are looked at.
const ADDRESSES_MAX: usize = 32;
/// No answer is kept for longer, whatever it says of itself: services move.
const KEPT_MAX: Duration = Duration::from_secs(300);
/// Answers that are kept at once.
const KEPT_ANSWERS_MAX: u64 = 1024;

/// Where the host says whom it asks, and what it need not ask.
const OF_THE_HOST: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];
/// How often it is looked whether the host has changed its mind: a laptop finds itself in another network.
const LOOKED_EVERY: Duration = Duration::from_secs(5);

/// Who is asked.
pub(crate) struct Resolver {
    whom: Whom,
    now: Mutex<Now>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whom {
    /// Whom the host asks.
    Host,
    /// Whom the operator named.
    Named,
}

/// Who is asked until the host says otherwise.
struct Now {
    inner: TokioResolver,
    files: Files,
    looked: Instant,
}

/// When the host's files changed last.
type Files = [Option<SystemTime>; 2];

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
        let (whom, inner) = if resolvers.is_empty() {
            (Whom::Host, of_the_host()?)
        } else {
            (Whom::Named, named(resolvers)?)
        };
        let now = Mutex::new(Now {
            inner,
            files: files(),
            looked: Instant::now(),
        });
        Ok(Self { whom, now })
    }

    /// Who is asked now. What it has kept of answers is shared by all who ask it.
    fn now(&self) -> TokioResolver {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if self.whom == Whom::Host && now.looked.elapsed() >= LOOKED_EVERY {
            now.looked = Instant::now();
            let files = files();
            if files != now.files {
                match of_the_host() {
                    Ok(inner) => (now.inner, now.files) = (inner, files),
                    Err(why) => tracing::warn!(%why, "the host's resolver is asked as it was before"),
                }
            }
        }
        now.inner.clone()
    }

    /// All addresses of a name, those of IPv4 first.
    pub(crate) async fn addresses(&self, name: &HostName) -> Result<Vec<IpAddr>, ResolveError> {
        // With the dot at its end the name is whole; nothing is appended to it.
        match self.now().lookup_ip(format!("{name}.")).await {
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
