//! Connects to a destination: the name is resolved once, every address is checked, and one that passed is dialled by
//! address. Between check and dial there is no second lookup that could return another address.

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

/// Maximum addresses that are tried, of those that pass.
const TRIED_MAX: usize = 8;
/// Minimum time for each address, if that much is left.
const TRY_MIN: Duration = Duration::from_secs(2);

pub(crate) const UNSPECIFIED: &str =
    "An unspecified address (`0.0.0.0`, `::`) is never connected to: use the address of the service.";

/// Connects to a destination that rules allow. The returned address is the one that passed the check.
pub(crate) async fn dial(
    dialer: &Dialer,
    purpose: Purpose,
    rules: &Rules,
    to: &Destination,
) -> Result<(TcpStream, IpAddr), Refusal> {
    let limits = dialer.limits();
    let end = Instant::now() + limits.connect;
    let addresses = match &to.host {
        // The operator named the network: there is nothing to resolve, and nothing more to check.
        Host::Address(address) => vec![*address],
        Host::Name(name) => {
            let found = timeout_at(end, dialer.resolver().addresses(name)).await;
            let found = found
                .map_err(|_| unreachable(to, "the resolver did not answer in time"))?
                .map_err(|error| unresolved(to, &error))?;
            // The address may be private if the operator has named the service, or the address and its port.
            let named = dialer.may_be_private(name, to.port)
                && (purpose == Purpose::Programs || rules.names_explicitly(name, to.port));
            judged(to, found, |address| {
                // A name never makes this machine's metadata service reachable; a rule for exactly its address does.
                (named && Reach::of(address) != Reach::Metadata)
                    || dialer.may_be_dialled(address, to.port)
                    || rules.address(address, to.port).is_ok()
            })?
        }
    };
    connect(to, &addresses, end, limits).await
}

/// Returns the addresses that may be dialled, or a refusal with the kinds of all addresses.
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
            _ if !address.is_unspecified() && may_be_private(address) => passed.push(address),
            reach => drop(refused.insert(reach.as_str())),
        }
    }
    if passed.is_empty() && !refused.is_empty() {
        let reaches = refused.iter().copied().collect::<Vec<_>>().join(", ");
        return Err(Refusal::of(
            RefusalRule::Address,
            to,
            format!("{to} resolves to no public address, only to: {reaches}"),
            &match refused.contains(Reach::Metadata.as_str()) {
                true => "An address that hands out credentials is reached only by a rule for exactly that address."
                    .to_owned(),
                false if found.iter().all(|address| address.to_canonical().is_unspecified()) => UNSPECIFIED.to_owned(),
                false => Why::Address.hint(&to.host, to.port),
            },
        ));
    }
    passed.truncate(TRIED_MAX);
    Ok(passed)
}

/// Connects to the first address that answers. Later addresses get the time that earlier ones left.
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
                // Small writes are sent at once: requests and answers alternate.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY could not be set");
                }
                return Ok((stream, *address));
            }
            Ok(Err(error)) => why = described(&error).to_owned(),
            Err(_) => why = format!("no answer in {} s", limits.connect.as_secs_f64()),
        }
    }
    Err(unreachable(to, &why))
}

/// Describes a network error in fixed words.
fn described(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "the connection was refused there",
        io::ErrorKind::ConnectionReset => "the connection was reset there",
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => "there is no route to it",
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

/// Returns the refusal of a destination that is allowed but was not reached.
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
    fn only_public_ones_of_mixed_addresses_are_dialled() {
        let mixed = addresses(&["10.0.0.1", "93.184.216.34", "169.254.169.254", "::ffff:127.0.0.1"]);
        assert_eq!(judged(&to(), mixed, |_| false), Ok(addresses(&["93.184.216.34"])));
    }

    #[test]
    fn name_with_only_private_addresses_is_refused_with_their_kinds() {
        let refusal = judged(&to(), addresses(&["10.0.0.1", "127.0.0.1"]), |_| false).expect_err("refused");
        assert_eq!(refusal.rule, RefusalRule::Address);
        assert!(
            refusal.what.ends_with("only to: loopback, private"),
            "{}",
            refusal.what
        );
    }

    #[test]
    fn hint_for_metadata_address_does_not_suggest_egress_private() {
        let hint = |address: &str| {
            let refusal = judged(&to(), addresses(&[address]), |_| false);
            refusal.expect_err("refused").hint
        };
        assert!(hint("10.0.0.1").contains("egress.private"));
        assert!(!hint("169.254.169.254").contains("egress.private"));
    }

    #[test]
    fn service_named_by_operator_may_be_private() {
        let inside = addresses(&["10.0.0.1"]);
        assert_eq!(judged(&to(), inside.clone(), |_| true), Ok(inside));
        let refusal =
            judged(&to(), addresses(&["0.0.0.0", "::ffff:0.0.0.0"]), |_| true).expect_err("refused");
        assert_eq!(
            (refusal.what.ends_with("reserved"), &*refusal.hint),
            (true, UNSPECIFIED)
        );
    }
}
