//! An untrusted rule, and a request: a printed rule parses as the same rule, a rule is within itself, and it allows
//! only the hosts it names. The lines are the rule, a wider one, a name, and a request's target.

use ringfence_egress::{HostName, Pattern, Rule, Rules, Verdict};

/// One input.
pub fn run(bytes: &[u8]) {
    let text = bytes.utf8_chunks().next().map_or("", |first| first.valid());
    let mut lines = text.split('\n');
    let mut line = || lines.next().unwrap_or_default();
    let (rule, wider, name, target) = (line(), line(), line(), line());
    let rule = match rule.parse::<Rule>() {
        Ok(rule) => rule,
        Err(error) => {
            assert!(!error.to_string().is_empty() && !error.hint().is_empty());
            return;
        }
    };
    let printed = rule.to_string();
    assert_eq!(printed.parse::<Rule>().as_ref(), Ok(&rule), "{printed}");
    assert!(rule.is_within(&rule), "{printed}");
    let Ok(name) = name.parse::<HostName>() else {
        return;
    };
    assert_eq!(HostName::from_ascii(name.as_str()).as_ref(), Ok(&name));
    let within = wider.parse::<Rule>().ok().filter(|wider| rule.is_within(wider));
    let rules = Rules::new(vec![rule.clone()]).expect("one rule is not too many");
    for port in [80, 443, 8443] {
        let permitted = rule.permits(&name, port, "GET", target);
        let named = match rule.host() {
            Pattern::Exact(exact) => *exact == name,
            Pattern::Below(apex) => name.as_str().ends_with(&format!(".{apex}")),
            Pattern::Any => true,
            Pattern::Network(_) => false,
        };
        assert!(!rule.reaches(&name, port) || named, "{printed} {name}");
        assert!(!permitted || rule.reaches(&name, port));
        assert!(
            !permitted || rule.path().is_none() || !climbs(target),
            "{printed} {target}"
        );
        assert_eq!(rules.request(&name, port, "GET", target).is_ok(), permitted);
        assert_eq!(
            rules.verdict(&name, port) == Verdict::Open,
            rule.reaches(&name, port) && !rule.needs_request()
        );
        if let Some(wider) = &within {
            assert!(
                !rule.reaches(&name, port) || wider.reaches(&name, port),
                "{printed} {wider}"
            );
            assert!(
                !permitted || wider.permits(&name, port, "GET", target),
                "{printed} {wider} {target}"
            );
        }
    }
}

fn climbs(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    path.replace("%2e", ".")
        .replace("%2E", ".")
        .split('/')
        .any(|segment| segment == "..")
}
