//! Which hosts a request may reach: what the operator gives its namespace, and what was approved, narrowed to what it
//! asks for.

use super::Approved;
use crate::settings::EgressPolicy;
use ringfence_egress::{Rule, Rules, RulesError};
use ringfence_types::{AllowedDomains, ErrorCode, Namespace, RequestError, Tier};

/// Rules that a message repeats.
const SHOWN_MAX: usize = 8;

/// The rules of a request; none: it has no way out.
pub(super) fn decide(
    policy: &EgressPolicy,
    approved: &Approved,
    namespace: &Namespace,
    asked: &AllowedDomains,
) -> Result<Rules, RequestError> {
    if policy.tier != Tier::Full {
        return match asked.names() {
            Some(names) if !names.is_empty() => Err(RequestError::new(
                ErrorCode::UnsupportedArgument,
                format!("in the tier `{}` no program has a way out.", policy.tier),
                "It needs a network namespace of its own: the tier `full` has one.",
            )),
            _ => Ok(Rules::default()),
        };
    }
    let given = || given(policy, approved, namespace);
    match asked {
        AllowedDomains::Granted => Ok(given()),
        AllowedDomains::Operator(names) => parse(names),
        AllowedDomains::Only(names) => {
            let wanted = parse(names)?;
            let given = given();
            match wanted.iter().find(|rule| rule.is_network() || !given.cover(rule)) {
                None => Ok(with_own(wanted.iter(), approved)),
                Some(rule) => Err(denied(rule, &given)),
            }
        }
    }
}

/// The same for a request that is under way, when its namespace has other rules than before: what it asked for and still may
/// have.
pub(crate) fn again(
    policy: &EgressPolicy,
    approved: &Approved,
    namespace: &Namespace,
    asked: &AllowedDomains,
) -> Rules {
    let given = given(policy, approved, namespace);
    match asked {
        AllowedDomains::Granted => given,
        AllowedDomains::Operator(names) => parse(names).unwrap_or_default(),
        AllowedDomains::Only(names) => {
            let wanted = parse(names).unwrap_or_default();
            with_own(wanted.iter().filter(|rule| given.cover(rule)), approved)
        }
    }
}

/// What a human has approved for this session or run was asked for, too.
fn with_own<'a>(named: impl Iterator<Item = &'a Rule>, approved: &'a Approved) -> Rules {
    Rules::new(named.chain(approved.extra()).cloned().collect()).unwrap_or_default()
}

fn given(policy: &EgressPolicy, approved: &Approved, namespace: &Namespace) -> Rules {
    let own = policy.allow.iter().filter(|given| given.is_for(namespace));
    let all = own.map(|given| &given.rule).chain(approved.all()).cloned();
    // The operator's own are bounded when they are read, and what is approved when it is.
    Rules::new(all.collect()).unwrap_or_default()
}

/// Does the operator let a namespace reach it without anybody's being asked.
pub(crate) fn gives(policy: &EgressPolicy, namespace: &Namespace, rule: &Rule) -> bool {
    given(policy, &Approved::default(), namespace).cover(rule)
}

fn parse(names: &std::collections::BTreeSet<String>) -> Result<Rules, RequestError> {
    Rules::parse(names).map_err(|error: RulesError| {
        RequestError::invalid(format!("allowed_domains: {error}."), sentence(&error.hint()))
    })
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars
        .next()
        .map(|c| c.to_uppercase().to_string())
        .unwrap_or_default();
    let rest = chars.as_str().trim_end_matches('.');
    format!("{first}{rest}.")
}

fn denied(rule: &Rule, given: &Rules) -> RequestError {
    if rule.is_network() {
        return RequestError::new(
            ErrorCode::PolicyDenied,
            format!("`{rule}` is an address, which `allowed_domains` cannot name."),
            "Name hosts; or leave `allowed_domains` out, which gives all that the operator lets this namespace reach, \
             addresses among it.",
        );
    }
    let may = match given.iter().len() {
        0 => "it may reach nobody".to_owned(),
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
    RequestError::new(
        ErrorCode::PolicyDenied,
        format!("`{rule}` is not among what the operator lets this namespace reach; {may}."),
        format!("Ask for it with `request_egress`, or have the operator add `{rule}` to `egress.allow`."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::EgressRule;

    fn policy(rules: &[(&str, &str)]) -> EgressPolicy {
        let rule = |(namespace, rule): &(&str, &str)| EgressRule {
            namespace: (*namespace).to_owned(),
            rule: rule.parse().unwrap(),
        };
        EgressPolicy {
            secrets: Vec::new(),
            tier: Tier::Full,
            allow: rules.iter().map(rule).collect(),
        }
    }

    fn only(names: &[&str]) -> AllowedDomains {
        AllowedDomains::asked(Some(names.iter().map(|name| (*name).to_owned()).collect()))
    }

    fn shown(rules: &Rules) -> Vec<String> {
        rules.iter().map(ToString::to_string).collect()
    }

    /// claim: [NET-7]
    #[test]
    fn a_request_has_what_its_namespace_has_or_less() {
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
    fn what_is_taken_away_is_gone_and_what_was_approved_is_there() {
        let namespace = Namespace::default_name();
        let asked = only(&["a.test", "b.test"]);
        let approved = Approved {
            of_namespace: vec!["d.test".parse().unwrap()],
            own: vec!["c.test".parse().unwrap()],
            once: Vec::new(),
        };
        let now = again(&policy(&[("*", "a.test")]), &approved, &namespace, &asked);
        assert_eq!(
            shown(&now),
            ["a.test", "c.test"],
            "what the namespace has was not named"
        );
        let all = again(&policy(&[]), &approved, &namespace, &AllowedDomains::Granted);
        assert_eq!(shown(&all), ["d.test", "c.test"]);
        assert!(
            again(
                &policy(&[]),
                &Approved::default(),
                &namespace,
                &AllowedDomains::Granted
            )
            .is_empty()
        );
    }

    #[test]
    fn without_a_network_namespace_there_is_no_way_out() {
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
