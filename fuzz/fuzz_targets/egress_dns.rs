//! DNS queries of a program, its only way to send anything outside: the answer belongs to the query, is within the
//! limit of size, and no name that gets an address is reported as denied: connections to it are refused by name
//! instead.

use ringfence_egress::{
    Names, Rules, Unlisted,
    dns::{QueryContext, Transport, answer},
};

const RULES: [&str; 3] = ["a.example", "*.b.example", "GET c.example/v1"];
/// Maximum size that a query over UDP can request.
const BYTES_MAX: usize = 1232;

/// One input.
pub fn run(bytes: &[u8]) {
    let rules = Rules::parse(RULES).expect("the rules are valid");
    let mut names = Names::default();
    let ways = [Transport::Udp, Transport::Tcp];
    let ways =
        [Unlisted::Refused, Unlisted::Asked].map(|unlisted| ways.map(|transport| (unlisted, transport)));
    for (unlisted, transport) in ways.into_iter().flatten() {
        let mut lookups = Vec::new();
        let known = QueryContext {
            names: &mut names,
            rules: &rules,
            unlisted: &|_| unlisted,
        };
        let answered = answer(bytes, transport, known, &mut |lookup| lookups.push(lookup));
        assert!(lookups.len() <= 1);
        for lookup in &lookups {
            assert!(lookup.name.chars().count() <= 254, "{lookup:?}");
            assert!(
                lookup.name.chars().all(|c| c.is_ascii_graphic() || c == '…'),
                "{lookup:?}"
            );
        }
        match answered {
            None => assert!(bytes.len() < 12 || bytes[2] & 0x80 != 0),
            Some(answer) => {
                assert!((12..=BYTES_MAX).contains(&answer.len()), "{} bytes", answer.len());
                assert_eq!(answer[..2], bytes[..2]);
                assert!(answer[2] & 0x80 != 0);
                let has_record = answer[6..8] != [0, 0];
                assert!(
                    !has_record || lookups.iter().all(|lookup| lookup.denied.is_none()),
                    "{lookups:?}"
                );
                // The question is repeated byte for byte.
                if answer[5] == 1 {
                    let end = 12
                        + answer[12..]
                            .iter()
                            .position(|byte| *byte == 0)
                            .expect("a name ends");
                    assert_eq!(answer[12..end], bytes[12..end]);
                }
            }
        }
    }
    assert!(names.len() <= 1);
}
