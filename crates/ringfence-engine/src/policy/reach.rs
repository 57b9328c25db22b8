//! The effect of egress rules on a sandbox: the ports at which it listens, and its networks.

use crate::error::Result;
use ringfence_egress::Rules;
use ringfence_jail::{EgressSpec, PORTS_MAX, PORTS_READY};
use ringfence_types::{RequestError, Tier};

pub(crate) const PACKAGE_INDEXES: [&str; 3] = ["pypi.org", "files.pythonhosted.org", "registry.npmjs.org"];

/// Returns the ports of the rules that sandboxes do not have by default.
fn ports(rules: &Rules) -> Vec<u16> {
    let mut ports = rules.ports();
    ports.retain(|port| !PORTS_READY.contains(port));
    ports.into_iter().collect()
}

/// Returns the egress part of a claim with these rules, possibly none; `None` if the sandbox has no network namespace.
pub(crate) fn spec(tier: Tier, rules: &Rules) -> Option<EgressSpec> {
    tier.has_network().then(|| EgressSpec {
        ports: ports(rules),
        networks: rules
            .networks()
            .map(|network| (network.network(), network.prefix_len()))
            .collect(),
    })
}

/// Refuses rules that name more ports than a sandbox may have listeners.
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
