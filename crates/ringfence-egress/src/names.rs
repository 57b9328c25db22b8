//! Addresses assigned to names. A program looks a name up and connects to the address of the answer; since each address
//! is assigned to one name and never to another, the connection shows the name.
//!
//! A name can carry data once it is connected to and therefore resolved outside. So the number of different names below
//! a wildcard is limited, and the limit is lower for names that look random.

use crate::{
    name::HostName,
    rule::Pattern,
    rules::{RULES_MAX, Rules},
};
use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    net::Ipv4Addr,
};

/// Maximum names of a sandbox; [`RULES_MAX`] of them are reserved for names that a rule gives in full.
pub const NAMES_MAX: usize = 1024;
pub const BELOW_MAX: usize = 64;
/// Maximum names below one wildcard with a label that looks random.
pub const RANDOM_MAX: usize = 16;

/// Maximum names, beside the others, that no rule allows but for which approval can be asked.
pub const ASKED_MAX: usize = 128;
/// Maximum refused names, beside the others.
pub const REFUSED_MAX: usize = 256;

/// Minimum length of a long label.
const LONG_BYTES: usize = 24;
/// Entropy per byte above which a long label looks random. Short words repeat their letters, encoded data does not.
const RANDOM_BITS: f64 = 3.5;
/// [`RANDOM_BITS`] for a label of hexadecimal digits only, which have at most four bits per byte.
const RANDOM_BITS_HEX: f64 = 2.5;

/// First address, in a sandbox that can have it routed, of the range for tests of network devices (RFC 2544).
const BASE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
/// Addresses at the beginning of the range that are Ringfence's own.
const RESERVED: u32 = 256;
/// Size of the range, with those.
const SPAN: u32 = 1 << 17;

/// True if an address without a name exists only in the sandbox: its loopback, or in the range of assigned addresses.
pub(crate) fn is_inside(address: Ipv4Addr) -> bool {
    let ours = BASE.to_bits()..BASE.to_bits() + SPAN;
    address.is_loopback() || ours.contains(&address.to_bits())
}

#[derive(Debug)]
pub struct Names {
    base: Ipv4Addr,
    by_name: HashMap<HostName, Ipv4Addr>,
    by_address: HashMap<Ipv4Addr, HostName>,
    below: HashMap<Pattern, Below>,
    /// Random keys: no two sandboxes have the same addresses, or the same order of them.
    order: RandomState,
    drawn: u64,
    /// Number of names that no rule allowed when they got an address.
    unlisted: usize,
    /// Names with an address only to show the requested port of a refused connection. Before one of them is resolved
    /// outside, it is admitted like a new name.
    refused: BTreeMap<HostName, Refused>,
}

/// State of a name that no rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// It was looked up, and no denial names it yet.
    LookedUp,
    /// A denial of this report names it.
    Reported,
    Earlier,
}

#[derive(Debug, Default)]
struct Below {
    names: usize,
    random: usize,
}

/// Reason why a name got no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    #[error("too many names: this sandbox already has {}", NAMES_MAX)]
    Names,
    #[error("too many names: {max} were already used below `{0}`", max = BELOW_MAX)]
    Below(Pattern),
    #[error("too many names that no rule allows were already looked up")]
    Asked,
    #[error(
        "too many names: {max} that look random were already used below `{0}`",
        max = RANDOM_MAX
    )]
    Random(Pattern),
    #[error("too many names that no rule allows were already looked up")]
    Refused,
}

impl Full {
    pub fn hint(&self, name: &HostName) -> String {
        format!(
            "Name `{name}` in full in a rule: names that a rule gives in full are not counted below a wildcard."
        )
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::from(BASE)
    }
}

impl From<Ipv4Addr> for Names {
    fn from(base: Ipv4Addr) -> Self {
        Self {
            base,
            by_name: HashMap::new(),
            by_address: HashMap::new(),
            below: HashMap::new(),
            order: RandomState::new(),
            drawn: 0,
            unlisted: 0,
            refused: BTreeMap::new(),
        }
    }
}

impl Names {
    /// Returns the address of a name that the rules reach, within the limits of wildcards. Every name that is about to
    /// be resolved outside is admitted here first, from a query or from a `CONNECT`.
    pub fn admit(&mut self, name: &HostName, rules: &Rules) -> Result<Ipv4Addr, Full> {
        let known = self.by_name.get(name);
        if let Some(address) = known.filter(|_| !self.refused.contains_key(name)) {
            return Ok(*address);
        }
        let exact = |pattern: &Pattern| matches!(pattern, Pattern::Exact(exact) if exact == name);
        if rules.iter().any(|rule| exact(rule.host())) {
            return self.address_of(name);
        }
        if self.allowed() >= NAMES_MAX - RULES_MAX {
            return Err(Full::Names);
        }
        let mut full = Full::Names;
        for rule in rules.iter().filter(|rule| rule.reaches_name(name)) {
            match self.count_below(wildcard(rule.host(), name), name) {
                Ok(()) => return self.address_of(name),
                Err(why) => full = why,
            }
        }
        Err(full)
    }

    /// Admits as [`Self::admit`] does, and also a name that no rule reaches: approval comes before it is resolved. The
    /// data that such names can carry is bounded as below a rule for every name, and they take no room from allowed
    /// names.
    pub fn admit_or_ask(&mut self, name: &HostName, rules: &Rules) -> Result<Ipv4Addr, Full> {
        let is_known = self.by_name.contains_key(name) && !self.refused.contains_key(name);
        if is_known || rules.names_reached(name) {
            return self.admit(name, rules);
        }
        if self.unlisted >= ASKED_MAX {
            return Err(Full::Asked);
        }
        self.count_below(wildcard(&Pattern::Any, name), name)?;
        let address = self.address_of(name)?;
        self.unlisted += 1;
        Ok(address)
    }

    /// Returns the address of a name that no rule reaches and that cannot be approved. It is never resolved.
    pub fn refuse(&mut self, name: &HostName) -> Result<Ipv4Addr, Full> {
        if let Some(seen) = self.refused.get_mut(name)
            && *seen == Refused::Earlier
        {
            *seen = Refused::LookedUp;
        }
        if let Some(address) = self.by_name.get(name) {
            return Ok(*address);
        }
        if self.refused.len() >= REFUSED_MAX {
            return Err(Full::Refused);
        }
        self.refused.insert(name.clone(), Refused::LookedUp);
        Ok(self.assign(name))
    }

    pub(crate) fn mark_reported(&mut self, name: &str) {
        let seen = name
            .parse()
            .ok()
            .and_then(|name: HostName| self.refused.get_mut(&name));
        if let Some(seen) = seen {
            *seen = Refused::Reported;
        }
    }

    /// Takes the refused names that were looked up since the last report and that no denial names.
    pub(crate) fn take_unreported(&mut self) -> Vec<HostName> {
        let mut unreported = Vec::new();
        for (name, seen) in &mut self.refused {
            if std::mem::replace(seen, Refused::Earlier) == Refused::LookedUp {
                unreported.push(name.clone());
            }
        }
        unreported
    }

    fn allowed(&self) -> usize {
        self.by_name.len() - self.unlisted - self.refused.len()
    }

    fn count_below(&mut self, wildcard: Pattern, name: &HostName) -> Result<(), Full> {
        let random = usize::from(looks_random(name));
        let below = self.below.entry(wildcard.clone()).or_default();
        if below.names >= BELOW_MAX {
            return Err(Full::Below(wildcard));
        }
        if below.random + random > RANDOM_MAX {
            return Err(Full::Random(wildcard));
        }
        below.names += 1;
        below.random += random;
        Ok(())
    }

    /// Returns the address of a name, for the life of the sandbox, without the check of rules in [`Names::admit`].
    pub fn address_of(&mut self, name: &HostName) -> Result<Ipv4Addr, Full> {
        let is_refused = self.refused.contains_key(name);
        if let Some(address) = self.by_name.get(name).filter(|_| !is_refused) {
            return Ok(*address);
        }
        if self.allowed() >= NAMES_MAX {
            return Err(Full::Names);
        }
        self.refused.remove(name);
        Ok(self.assign(name))
    }

    fn assign(&mut self, name: &HostName) -> Ipv4Addr {
        if let Some(address) = self.by_name.get(name) {
            return *address;
        }
        let address = self.draw();
        self.by_name.insert(name.clone(), address);
        self.by_address.insert(address, name.clone());
        address
    }

    pub fn name_of(&self, address: Ipv4Addr) -> Option<&HostName> {
        self.by_address.get(&address)
    }

    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns an unassigned address: the first free one after a random start. There are a hundred for each name.
    fn draw(&mut self) -> Ipv4Addr {
        let span = u64::from(SPAN - RESERVED);
        let first = self.base.to_bits() + RESERVED;
        let start = self.order.hash_one(self.drawn) % span;
        self.drawn += 1;
        let mut free = (0..span).map(|step| {
            let offset = u32::try_from((start + step) % span).unwrap_or_default();
            Ipv4Addr::from_bits(first + offset)
        });
        // Some software takes an address with these ends for a network or a broadcast.
        let odd = |address: &Ipv4Addr| matches!(address.octets()[3], 0 | 255);
        let found = free.find(|address| !odd(address) && !self.by_address.contains_key(address));
        found.unwrap_or(Ipv4Addr::from_bits(first + 1))
    }
}

/// Returns the pattern that a name is counted under: the wildcard, or for `*` the last two labels, so that one domain
/// does not use up the names of all others.
fn wildcard(pattern: &Pattern, name: &HostName) -> Pattern {
    match pattern {
        Pattern::Any => {
            let mut domain = name.clone();
            while domain.labels().count() > 2
                && let Some(parent) = domain.parent()
            {
                domain = parent;
            }
            Pattern::Below(domain)
        }
        pattern => pattern.clone(),
    }
}

fn looks_random(name: &HostName) -> bool {
    name.labels()
        .filter(|label| label.len() >= LONG_BYTES)
        .any(|label| {
            let hex = label.bytes().all(|c| c.is_ascii_hexdigit());
            bits_per_byte(label) > if hex { RANDOM_BITS_HEX } else { RANDOM_BITS }
        })
}

/// Returns Shannon's entropy of the bytes of a label, in bits per byte.
fn bits_per_byte(label: &str) -> f64 {
    let mut counts = [0u16; 256];
    for byte in label.bytes() {
        counts[usize::from(byte)] += 1;
    }
    // At most 63 bytes, which a float holds exactly.
    let all = f64::from(u16::try_from(label.len()).unwrap_or(u16::MAX));
    let parts = counts.iter().filter(|count| **count > 0).map(|count| {
        let share = f64::from(*count) / all;
        -share * share.log2()
    });
    parts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    fn rules(texts: &[&str]) -> Rules {
        Rules::parse(texts).unwrap()
    }

    #[test]
    fn address_is_assigned_to_one_name_only() {
        let mut names = Names::default();
        let a = names.address_of(&name("a.example")).unwrap();
        let b = names.address_of(&name("b.example")).unwrap();
        assert_ne!(a, b);
        assert_eq!(names.address_of(&name("a.example")), Ok(a));
        assert_eq!(names.name_of(a), Some(&name("a.example")));
        assert_eq!(names.name_of(b), Some(&name("b.example")));
        assert_eq!(names.name_of(Ipv4Addr::new(198, 18, 0, 1)), None);
    }

    #[test]
    fn assigned_addresses_are_not_reserved_and_not_in_order() {
        let (mut one, mut other) = (Names::default(), Names::default());
        let draw = |names: &mut Names| -> Vec<Ipv4Addr> {
            let given = (0..NAMES_MAX).map(|i| names.address_of(&name(&format!("n{i}.example"))).unwrap());
            given.collect()
        };
        let (first, second) = (draw(&mut one), draw(&mut other));
        for address in &first {
            let [a, b, c, d] = address.octets();
            assert!(
                a == 198 && matches!(b, 18 | 19) && (b, c) != (18, 0) && !matches!(d, 0 | 255),
                "{address}"
            );
        }
        assert_ne!(first, second);
        assert!(!first.is_sorted() && !second.is_sorted());
        assert_eq!(
            first.iter().collect::<std::collections::HashSet<_>>().len(),
            NAMES_MAX
        );
        assert_eq!(one.address_of(&name("one.more")), Err(Full::Names));
    }

    #[test]
    fn wildcard_limit_does_not_count_names_given_in_full() {
        let rules = rules(&["*.a.example", "x.a.example:443", "*.b.example"]);
        let mut names = Names::default();
        for i in 0..BELOW_MAX {
            names.admit(&name(&format!("n{i}.a.example")), &rules).unwrap();
        }
        let full = names.admit(&name("more.a.example"), &rules).unwrap_err();
        assert_eq!(
            full.to_string(),
            "too many names: 64 were already used below `*.a.example`"
        );
        assert!(full.hint(&name("more.a.example")).contains("`more.a.example`"));
        assert!(
            names.admit(&name("n1.a.example"), &rules).is_ok(),
            "known already"
        );
        assert!(names.admit(&name("x.a.example"), &rules).is_ok(), "in full");
        assert!(
            names.admit(&name("n.b.example"), &rules).is_ok(),
            "another wildcard"
        );
    }

    #[test]
    fn refused_name_counts_once_it_is_admitted() {
        let mut names = Names::default();
        let random = |i: usize| name(&format!("{i:02}mzxw6ytboi4dkobqgu3tsnjzha2q.a.example"));
        let given: Vec<Ipv4Addr> = (0..REFUSED_MAX)
            .map(|i| names.refuse(&random(i)).unwrap())
            .collect();
        assert_eq!(names.refuse(&name("one.more")), Err(Full::Refused));
        let rules = rules(&["*.a.example"]);
        let admitted: Vec<_> = (0..REFUSED_MAX)
            .map(|i| names.admit(&random(i), &rules))
            .collect();
        assert_eq!(admitted.iter().flatten().count(), RANDOM_MAX);
        assert_eq!(admitted[0], Ok(given[0]), "it keeps its address");
        assert_eq!(
            names.admit_or_ask(&random(99), &Rules::default()),
            Err(Full::Random(Pattern::Below(name("a.example")))),
        );
    }

    #[test]
    fn refused_name_is_reported_once_per_report_with_a_lookup() {
        let mut names = Names::default();
        for text in ["a.example", "b.example"] {
            names.refuse(&name(text)).unwrap();
        }
        names.mark_reported("a.example");
        names.refuse(&name("a.example")).unwrap();
        assert_eq!(names.take_unreported(), [name("b.example")]);
        assert_eq!(names.take_unreported(), []);
        names.refuse(&name("a.example")).unwrap();
        assert_eq!(names.take_unreported(), [name("a.example")]);
    }

    #[test]
    fn random_looking_names_have_a_lower_limit() {
        let rules = rules(&["*.a.example"]);
        let mut names = Names::default();
        let random = |i: usize| name(&format!("{i:02}mzxw6ytboi4dkobqgu3tsnjzha2q.a.example"));
        for i in 0..RANDOM_MAX {
            names.admit(&random(i), &rules).unwrap();
        }
        let full = names.admit(&random(99), &rules).unwrap_err();
        assert_eq!(full, Full::Random(Pattern::Below(name("a.example"))));
        assert!(names.admit(&name("plain.a.example"), &rules).is_ok());
    }

    #[test]
    fn names_below_any_are_counted_by_domain() {
        let rules = rules(&["*"]);
        let mut names = Names::default();
        for i in 0..BELOW_MAX {
            names.admit(&name(&format!("n{i}.evil.example")), &rules).unwrap();
        }
        let full = names.admit(&name("x.y.evil.example"), &rules).unwrap_err();
        assert_eq!(full, Full::Below(Pattern::Below(name("evil.example"))));
        assert!(names.admit(&name("good.example"), &rules).is_ok());
        assert!(names.admit(&name("single"), &rules).is_ok());
    }

    #[test]
    fn wildcards_leave_room_for_names_given_in_full() {
        let wide = rules(&["*"]);
        let mut names = Names::default();
        let admitted = (0..NAMES_MAX).filter(|i| names.admit(&name(&format!("d{i}.example")), &wide).is_ok());
        assert_eq!(admitted.count(), NAMES_MAX - RULES_MAX);
        let exact = Rules::parse((0..RULES_MAX).map(|i| format!("e{i}.example"))).unwrap();
        for i in 0..RULES_MAX {
            assert!(
                names.admit(&name(&format!("e{i}.example")), &exact).is_ok(),
                "{i}"
            );
        }
        assert_eq!(names.by_name.len(), NAMES_MAX);
    }

    #[test]
    fn only_long_labels_with_high_entropy_look_random() {
        let check = |text: &str, expect: &str| {
            let found = if looks_random(&name(text)) {
                "random"
            } else {
                "plain"
            };
            assert_eq!(found, expect, "{text}");
        };
        check("a.example", "plain");
        check("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example", "plain");
        check("abababababababababababababababab.example", "plain");
        check("d111111abcdef8.cdn.example", "plain");
        check("d41d8cd98f00b204e9800998ecf8427e.example", "random");
        check("nbswy3dpeb3w64tmmqqhi2djonuxg.x.example", "random");
        check("x.nbswy3dpeb3w64tmmqqhi2djonuxg", "random");
    }
}
