//! Queries of a program that has no other way to say anything outside: whatever it asks, the answer is an answer to
//! that, is no longer than it may be, and denies no name that it gives an address to: connections to those are refused by name.

use ringfence_egress::{
    Names, Rules, Unlisted,
    dns::{Known, Transport, answer},
};

const RULES: [&str; 3] = ["a.example", "*.b.example", "GET c.example/v1"];
/// The most that a query by datagram can ask for.
const BYTES_MAX: usize = 1232;

/// One input.
pub fn run(bytes: &[u8]) {
    let rules = Rules::parse(RULES).expect("they are rules");
    let mut names = Names::default();
    let ways = [Transport::Udp, Transport::Tcp];
    let ways =
        [Unlisted::Refused, Unlisted::Asked].map(|unlisted| ways.map(|transport| (unlisted, transport)));
    for (unlisted, transport) in ways.into_iter().flatten() {
        let mut asked = Vec::new();
        let known = Known {
            names: &mut names,
            rules: &rules,
            unlisted: &|_| unlisted,
        };
        let answered = answer(bytes, transport, known, &mut |one| asked.push(one));
        assert!(asked.len() <= 1);
        for one in &asked {
            assert!(one.name.chars().count() <= 254, "{one:?}");
            assert!(
                one.name.chars().all(|c| c.is_ascii_graphic() || c == '…'),
                "{one:?}"
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
                    !has_record || asked.iter().all(|one| one.denied.is_none()),
                    "{asked:?}"
                );
                // The question comes back letter by letter.
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
