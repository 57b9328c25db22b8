//! What rules about hosts mean for a sandbox: the ports at which it listens, and the networks that it has.

use crate::error::Result;
use ringfence_egress::Rules;
use ringfence_jail::{EgressSpec, PORTS_MAX, PORTS_READY};
use ringfence_types::{RequestError, Tier};

/// Where pip and npm look for packages.
pub(crate) const PACKAGE_INDEXES: [&str; 3] = ["pypi.org", "files.pythonhosted.org", "registry.npmjs.org"];

/// The ports of the rules that no sandbox has by itself.
fn ports(rules: &Rules) -> Vec<u16> {
    let mut ports = rules.ports();
    ports.retain(|port| !PORTS_READY.contains(port));
    ports.into_iter().collect()
}

/// What the claim of a sandbox with these rules, or without any, brings; none: it has no network of its own.
pub(crate) fn spec(tier: Tier, rules: &Rules) -> Option<EgressSpec> {
    tier.has_network().then(|| EgressSpec {
        ports: ports(rules),
        networks: rules
            .networks()
            .map(|network| (network.network(), network.prefix_len()))
            .collect(),
    })
}

/// Refuses rules that name more ports than there can be listeners.
pub(crate) fn check(rules: &Rules) -> Result<()> {
    match ports(rules).len() {
        0..=PORTS_MAX => Ok(()),
        count => Err(RequestError::denied(
            format!(
                "the rules for this request name {count} different ports; one sandbox has at most {PORTS_MAX}."
            ),
            "Narrow it with `allowed_domains` to the hosts that the program needs.",
        )),
    }
}
