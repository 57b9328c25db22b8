//! From a destination to a connection: resolved once, every address judged, and the one that passed dialled by number.
//! No second look-up happens between judging and dialling, so there is nothing to change in between.

use crate::{
    Destination, Host, Limits, RefusalRule, Rules, Why,
    dialer::{Dialer, Purpose},
    refusal::Refusal,
    resolve::ResolveError,
};
use ringfence_types::Reach;
use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout_at},
};

/// Addresses that are tried of those that pass.
const TRIED_MAX: usize = 8;
/// No single address is given up sooner, if there is that much time at all.
const TRY_MIN: Duration = Duration::from_secs(2);

/// Connects to a destination that rules allow. The address is the one that was judged.
pub(crate) async fn dial(
    dialer: &Dialer,
    purpose: Purpose,
    rules: &Rules,
    to: &Destination,
) -> Result<(TcpStream, IpAddr), Refusal> {
    let limits = dialer.limits();
    let end = Instant::now() + limits.connect;
    let addresses = match &to.host {
        // The operator named the network; there is nothing to look up, and nothing more to judge.
        Host::Address(address) => vec![*address],
        Host::Name(name) => {
            let found = timeout_at(end, dialer.resolver().addresses(name)).await;
            let found = found
                .map_err(|_| unreachable(to, "the resolver did not answer in time"))?
                .map_err(|error| unresolved(to, &error))?;
            // Where the operator has named the service, or the address and its port, it may be a private one.
            let named = dialer.may_be_private(name, to.port)
                && (purpose == Purpose::Programs || rules.name_it(name, to.port));
            judged(to, found, |address| {
                // A name never makes a metadata service of this machine reachable; its address, named by itself, does.
                (named && Reach::of(address) != Reach::Metadata)
                    || dialer.may_be_dialled(address, to.port)
                    || rules.address(address, to.port).is_ok()
            })?
        }
    };
    connect(to, &addresses, end, limits).await
}

/// Those of the addresses that may be dialled, or the refusal with the kinds of all of them.
fn judged(
    to: &Destination,
    found: Vec<IpAddr>,
    may_be_private: impl Fn(IpAddr) -> bool,
) -> Result<Vec<IpAddr>, Refusal> {
    let mut refused = BTreeSet::new();
    let mut passed = Vec::new();
    for address in found.iter().map(IpAddr::to_canonical) {
        match Reach::of(address) {
            Reach::Public => passed.push(address),
            _ if may_be_private(address) => passed.push(address),
            reach => drop(refused.insert(reach.as_str())),
        }
    }
    if passed.is_empty() && !refused.is_empty() {
        let reaches = refused.iter().copied().collect::<Vec<_>>().join(", ");
        return Err(Refusal::of(
            RefusalRule::Address,
            to,
            format!("{to} leads to no public address, only to: {reaches}"),
            &match refused.contains(Reach::Metadata.as_str()) {
                true => "An address that hands out credentials is reached only by a rule for exactly that address."
                    .to_owned(),
                false => Why::Address.hint(&to.host, to.port),
            },
        ));
    }
    passed.truncate(TRIED_MAX);
    Ok(passed)
}

/// The first that answers. Later addresses get what time the earlier ones left.
async fn connect(
    to: &Destination,
    addresses: &[IpAddr],
    end: Instant,
    limits: &Limits,
) -> Result<(TcpStream, IpAddr), Refusal> {
    let mut why = "it has no address".to_owned();
    for (index, address) in addresses.iter().enumerate() {
        let left = end.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        let until = (Instant::now() + share.max(TRY_MIN)).min(end);
        match timeout_at(until, TcpStream::connect(SocketAddr::new(*address, to.port))).await {
            Ok(Ok(stream)) => {
                // What is small is sent at once: requests and answers take turns.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "a connection keeps its delay");
                }
                return Ok((stream, *address));
            }
            Ok(Err(error)) => why = said(&error).to_owned(),
            Err(_) => why = format!("no answer in {} s", limits.connect.as_secs_f64()),
        }
    }
    Err(unreachable(to, &why))
}

/// An error of the network in the same words everywhere.
fn said(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "the connection was refused there",
        io::ErrorKind::ConnectionReset => "the connection was reset there",
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => "this machine has no way there",
        io::ErrorKind::TimedOut => "no answer",
        _ => "the connection failed",
    }
}

fn unresolved(to: &Destination, error: &ResolveError) -> Refusal {
    match error {
        ResolveError::NotFound => unreachable(to, "the name does not resolve"),
        ResolveError::Failed(why) => {
            tracing::debug!(%why, "a name could not be looked up");
            unreachable(to, "the name could not be looked up")
        }
        ResolveError::NoResolver(why) => Refusal {
            hint: "Have the operator name resolvers in `egress.resolvers`.".to_owned(),
            ..unreachable(to, &format!("this host has no resolver: {why}"))
        },
    }
}

/// Nothing of ours refused it.
pub(crate) fn unreachable(to: &Destination, why: &str) -> Refusal {
    Refusal::of(
        RefusalRule::Unreachable,
        to,
        format!("{to} was not reached: {why}"),
        "",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to() -> Destination {
        Destination::read("api.test:443", None).expect("a destination")
    }

    fn addresses(list: &[&str]) -> Vec<IpAddr> {
        list.iter()
            .map(|text| text.parse().expect("an address"))
            .collect()
    }

    #[test]
    fn of_mixed_addresses_only_the_public_ones_are_dialled() {
        let mixed = addresses(&["10.0.0.1", "93.184.216.34", "169.254.169.254", "::ffff:127.0.0.1"]);
        assert_eq!(judged(&to(), mixed, |_| false), Ok(addresses(&["93.184.216.34"])));
    }

    #[test]
    fn a_name_that_leads_only_to_private_addresses_is_refused_with_what_they_are() {
        let refusal = judged(&to(), addresses(&["10.0.0.1", "127.0.0.1"]), |_| false).expect_err("refused");
        assert_eq!(refusal.rule, RefusalRule::Address);
        assert!(
            refusal.what.ends_with("only to: loopback, private"),
            "{}",
            refusal.what
        );
    }

    #[test]
    fn what_would_not_help_is_not_advised_for_a_metadata_service() {
        let hint = |address: &str| {
            let refusal = judged(&to(), addresses(&[address]), |_| false);
            refusal.expect_err("refused").hint
        };
        assert!(hint("10.0.0.1").contains("egress.private"));
        assert!(!hint("169.254.169.254").contains("egress.private"));
    }

    #[test]
    fn a_service_that_the_operator_named_may_be_private() {
        let inside = addresses(&["10.0.0.1"]);
        assert_eq!(judged(&to(), inside.clone(), |_| true), Ok(inside));
    }
}
