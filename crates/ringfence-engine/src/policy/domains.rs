//! The hosts that a request may reach: its namespace's and approved rules, narrowed to the request.

use super::Approved;
use crate::{
    error::{Result, sentence},
    settings::{EgressPolicy, OnDenied},
};
use ringfence_egress::{Rule, Rules, RulesError};
use ringfence_types::{AllowedDomains, Namespace, RequestError};
use std::time::Duration;

const SHOWN_MAX: usize = 8;

/// Returns the rules of a request; empty: it has no egress.
pub(super) fn decide(
    policy: &EgressPolicy,
    approved: &Approved,
    namespace: &Namespace,
    asked: &AllowedDomains,
) -> Result<Rules> {
    if !policy.tier.has_network() {
        return match asked.names() {
            Some(names) if !names.is_empty() => Err(RequestError::unsupported(
                format!("in the tier `{}` programs have no egress.", policy.tier),
                "It needs a network namespace of its own: the tier `full` has one.",
            )),
            _ => Ok(Rules::default()),
        };
    }
    let given = || given(policy, approved, namespace);
    match asked {
        AllowedDomains::Granted => Ok(given()),
        AllowedDomains::Operator(names) => Ok(with_own(parse(names)?.iter(), approved)),
        AllowedDomains::Only(names) => {
            let wanted = parse(names)?;
            check(&wanted, &given(), "this namespace")?;
            Ok(with_own(wanted.iter(), approved))
        }
    }
}

/// Returns the rules of a running request after those of its namespace have changed: those requested and still allowed.
pub(crate) fn reevaluate(
    policy: &EgressPolicy,
    approved: &Approved,
    namespace: &Namespace,
    asked: &AllowedDomains,
) -> Rules {
    let given = given(policy, approved, namespace);
    match asked {
        AllowedDomains::Granted => given,
        AllowedDomains::Operator(names) => with_own(parse(names).unwrap_or_default().iter(), approved),
        AllowedDomains::Only(names) => {
            let wanted = parse(names).unwrap_or_default();
            with_own(wanted.iter().filter(|rule| given.cover(rule)), approved)
        }
    }
}

/// Returns the time to wait for a person's approval of a connection that no rule allows; `None`: it is denied at once.
/// A caller that names hosts has given up all others, and they are denied: only the caller can widen that.
pub(crate) fn approval_timeout(policy: &EgressPolicy, asked: &AllowedDomains) -> Option<Duration> {
    match (policy.on_denied, asked) {
        (OnDenied::Deny, _) | (_, AllowedDomains::Only(_)) => None,
        (OnDenied::Ask(patience), AllowedDomains::Granted | AllowedDomains::Operator(_)) => {
            Some(patience).filter(|_| policy.tier.has_network())
        }
    }
}

/// Returns the named rules and those that were approved for this session or run, which count as requested.
fn with_own<'a>(named: impl Iterator<Item = &'a Rule>, approved: &'a Approved) -> Rules {
    Rules::new(named.chain(approved.extra()).cloned().collect()).unwrap_or_default()
}

fn given(policy: &EgressPolicy, approved: &Approved, namespace: &Namespace) -> Rules {
    let own = policy.allow.iter().filter(|given| given.is_for(namespace));
    let all = own.map(|given| &given.rule).chain(approved.all()).cloned();
    // The operator's rules are limited in number when they are read, and approved ones when they are approved.
    Rules::new(all.collect()).unwrap_or_default()
}

/// Returns the rules that one call of a session names; each has to be covered by the session's rules, `given`.
pub(super) fn narrow(given: &Rules, asked: &AllowedDomains) -> Result<Option<Rules>> {
    let Some(names) = asked.names() else {
        return Ok(None);
    };
    let wanted = parse(names)?;
    check(&wanted, given, "this session")?;
    Ok(Some(wanted))
}

/// Returns a session's rules, restricted to those that a call names, if it names any.
pub(crate) fn restrict(given: Rules, named: Option<&Rules>) -> Rules {
    let Some(named) = named else { return given };
    let left = named.iter().filter(|rule| given.cover(rule)).cloned();
    Rules::new(left.collect()).unwrap_or_default()
}

/// True if the operator's rules let a namespace reach it without an approval.
pub(crate) fn is_granted(policy: &EgressPolicy, namespace: &Namespace, rule: &Rule) -> bool {
    given(policy, &Approved::default(), namespace).cover(rule)
}

fn parse(names: &std::collections::BTreeSet<String>) -> Result<Rules> {
    Rules::parse(names).map_err(|error: RulesError| {
        RequestError::invalid(format!("allowed_domains: {error}."), sentence(&error.hint()))
    })
}

fn check(wanted: &Rules, given: &Rules, owner: &str) -> Result<()> {
    match wanted.iter().find(|rule| rule.is_network() || !given.cover(rule)) {
        None => Ok(()),
        Some(rule) => Err(denied(rule, given, owner)),
    }
}

fn denied(rule: &Rule, given: &Rules, owner: &str) -> RequestError {
    if rule.is_network() {
        return RequestError::denied(
            format!("`{rule}` is an address, which `allowed_domains` cannot name."),
            "Name hosts; or leave `allowed_domains` out, which gives all that the operator lets this namespace reach, \
             addresses among it.",
        );
    }
    let may = match given.iter().len() {
        0 => "it may reach no host".to_owned(),
        count => {
            let shown: Vec<String> = given
                .iter()
                .take(SHOWN_MAX)
                .map(|rule| format!("`{rule}`"))
                .collect();
            let more = if count > SHOWN_MAX { " and others" } else { "" };
            format!("it may reach {}{more}", shown.join(", "))
        }
    };
    RequestError::denied(
        format!("`{rule}` is not among what the operator lets {owner} reach; {may}."),
        format!("Ask for it with `request_egress`, or have the operator add `{rule}` to `egress.allow`."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::EgressRule;
    use ringfence_types::{ErrorCode, Tier};

    fn policy(rules: &[(&str, &str)]) -> EgressPolicy {
        let rule = |(namespace, rule): &(&str, &str)| EgressRule {
            namespace: (*namespace).to_owned(),
            rule: rule.parse().unwrap(),
        };
        EgressPolicy {
            secrets: Vec::new(),
            tier: Tier::Full,
            allow: rules.iter().map(rule).collect(),
            on_denied: OnDenied::Deny,
        }
    }

    fn only(names: &[&str]) -> AllowedDomains {
        AllowedDomains::from_request(Some(names.iter().map(|name| (*name).to_owned()).collect()))
    }

    fn shown(rules: &Rules) -> Vec<String> {
        rules.iter().map(ToString::to_string).collect()
    }

    /// claim: [NET-7]
    #[test]
    fn request_is_narrowed_to_rules_of_its_namespace() {
        let policy = policy(&[
            ("*", "*.example.com"),
            ("team-*", "GET api.test/v1/"),
            ("*", "10.0.0.0/8:5432"),
        ]);
        let ask = |namespace: &str, asked: &AllowedDomains| {
            let namespace = Namespace::try_from(namespace.to_owned()).unwrap();
            decide(&policy, &Approved::default(), &namespace, asked).map(|rules| shown(&rules))
        };
        assert_eq!(ask("default", &AllowedDomains::Granted).unwrap().len(), 2);
        assert_eq!(ask("team-a", &AllowedDomains::Granted).unwrap().len(), 3);
        assert_eq!(
            ask("default", &only(&["a.example.com"])).unwrap(),
            ["a.example.com"]
        );
        assert!(ask("default", &only(&[])).unwrap().is_empty());
        for (namespace, name) in [
            ("default", "example.com"),
            ("default", "a.example.com:8443"),
            ("default", "api.test"),
            ("team-a", "api.test"),
            ("team-a", "GET api.test/"),
            ("default", "10.1.2.3:5432"),
            ("default", "*"),
        ] {
            let refused = ask(namespace, &only(&[name])).unwrap_err();
            assert_eq!(refused.code, ErrorCode::PolicyDenied, "{name}");
            let hint = if name.starts_with("10.") {
                "Name hosts"
            } else {
                "egress.allow"
            };
            assert!(refused.hint.contains(hint), "{refused}");
        }
        assert_eq!(ask("team-a", &only(&["GET api.test/v1/users"])).unwrap().len(), 1);
        let nonsense = ask("default", &only(&["https://x.example.com/"])).unwrap_err();
        assert_eq!(nonsense.code, ErrorCode::InvalidArgument);
    }

    #[test]
    fn running_request_follows_rule_changes_and_approvals() {
        let namespace = Namespace::default_name();
        let asked = only(&["a.test", "b.test"]);
        let approved = Approved {
            of_namespace: vec!["d.test".parse().unwrap()],
            own: vec!["c.test".parse().unwrap()],
            once: Vec::new(),
        };
        let now = reevaluate(&policy(&[("*", "a.test")]), &approved, &namespace, &asked);
        assert_eq!(
            shown(&now),
            ["a.test", "c.test"],
            "what the namespace has was not named"
        );
        let all = reevaluate(&policy(&[]), &approved, &namespace, &AllowedDomains::Granted);
        assert_eq!(shown(&all), ["d.test", "c.test"]);
        assert!(
            reevaluate(
                &policy(&[]),
                &Approved::default(),
                &namespace,
                &AllowedDomains::Granted
            )
            .is_empty()
        );
    }

    #[test]
    fn call_is_narrowed_to_rules_of_its_session() {
        let given = Rules::parse(["*.example.com", "api.test:8443"]).unwrap();
        let narrowed = |names: &[&str]| narrow(&given, &only(names)).map(|named| shown(&named.unwrap()));
        assert_eq!(narrowed(&["a.example.com"]).unwrap(), ["a.example.com"]);
        assert!(narrowed(&[]).unwrap().is_empty());
        assert_eq!(narrow(&given, &AllowedDomains::Granted), Ok(None));
        for lacking in ["example.com", "api.test", "*", "10.0.0.1:80"] {
            let refused = narrowed(&["a.example.com", lacking]).unwrap_err();
            assert_eq!(refused.code, ErrorCode::PolicyDenied, "{lacking}");
        }
        let refused = narrowed(&["api.test"]).unwrap_err();
        assert!(refused.message.contains("lets this session reach"), "{refused}");
        assert_eq!(
            narrowed(&["http://x"]).unwrap_err().code,
            ErrorCode::InvalidArgument
        );
        // The operator's list of hosts does not widen a session either.
        let operator = AllowedDomains::Operator(["evil.test".to_owned()].into());
        assert!(narrow(&given, &operator).is_err());
        // A rule that the session loses during the call is lost for the call, too.
        let named = Rules::parse(["a.example.com", "api.test:8443"]).unwrap();
        let less = Rules::parse(["*.example.com"]).unwrap();
        assert_eq!(shown(&restrict(less.clone(), Some(&named))), ["a.example.com"]);
        assert_eq!(shown(&restrict(less, None)), ["*.example.com"]);
    }

    #[test]
    fn excluded_hosts_are_denied_without_asking() {
        let time = Duration::from_secs(10);
        let with = |tier, on_denied| EgressPolicy {
            tier,
            on_denied,
            ..policy(&[("*", "a.test")])
        };
        let ask = OnDenied::Ask(time);
        let operator = AllowedDomains::Operator(["a.test".to_owned()].into());
        let check = |tier, on_denied, asked: &AllowedDomains, expect| {
            let found = approval_timeout(&with(tier, on_denied), asked);
            assert_eq!(found, expect, "{tier} {asked:?}");
        };
        check(Tier::Full, ask, &AllowedDomains::Granted, Some(time));
        check(Tier::Full, ask, &operator, Some(time));
        check(Tier::Full, ask, &only(&[]), None);
        check(Tier::Full, ask, &only(&["a.test"]), None);
        check(Tier::Landlock, ask, &AllowedDomains::Granted, None);
        check(Tier::Full, OnDenied::Deny, &AllowedDomains::Granted, None);
    }

    #[test]
    fn egress_needs_a_network_namespace() {
        let mut policy = policy(&[("*", "a.test")]);
        policy.tier = Tier::Landlock;
        let namespace = Namespace::default_name();
        assert!(
            decide(
                &policy,
                &Approved::default(),
                &namespace,
                &AllowedDomains::Granted
            )
            .unwrap()
            .is_empty()
        );
        let refused = decide(&policy, &Approved::default(), &namespace, &only(&["a.test"])).unwrap_err();
        assert_eq!(refused.code, ErrorCode::UnsupportedArgument);
    }
}
