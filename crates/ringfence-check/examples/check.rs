//! Measures the parsers alone, as JSON lines: milliseconds for texts of 200 and of 10,000 lines, and megabytes in a
//! second of a table with typed columns. The engine adds a fork and a pipe.

use ringfence_check::{Answer, CodeQuestion, CsvQuestion, Question, answer, warm_up};
use ringfence_types::{Language, Rules};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const ROUNDS: usize = 50;
const TABLE_BYTES: usize = 100_000_000;

/// A piece of a program as people write it, twenty lines each.
const PIECES: [(&str, Language, &str); 4] = [
    ("Python", Language::Python, include_str!("pieces/piece.py")),
    ("JavaScript", Language::Node, include_str!("pieces/piece.mjs")),
    (
        "TypeScript",
        Language::Typescript,
        include_str!("pieces/piece.ts"),
    ),
    ("shell", Language::Shell, include_str!("pieces/piece.sh")),
];

fn main() {
    warm_up();
    for (name, language, piece) in PIECES {
        for (lines, rounds) in [(200_usize, ROUNDS), (10_000, ROUNDS / 10)] {
            // A name is imported once.
            let (imports, rest) = piece.split_at(piece.find("\n{").map_or(0, |at| at + 1));
            let text = imports.to_owned() + &rest.repeat(lines.div_ceil(rest.lines().count()));
            assert!(is_valid(&code(language, &text)), "{name}");
            let took = median(rounds, || code(language, &text));
            tell(&json!({"what": format!("{name}, {lines} lines"), "ms": took.as_secs_f64() * 1000.0}));
        }
    }
    table();
}

fn is_valid(answer: &Answer) -> bool {
    matches!(answer, Answer::Code(found) if found.validation.valid)
}

fn code(language: Language, text: &str) -> Answer {
    let question = Question::Code(CodeQuestion {
        auto_fix: true,
        ..CodeQuestion::of(language, Rules::unrestricted())
    });
    answer(&question, text.as_bytes())
}

fn table() {
    let row = "1234567,name of somebody,3.25,true,2024-02-29,2024-02-29T12:30:00Z,somebody@example.org,\
        0b9d7c1e-6b5a-4a56-9d6e-0a4f7ad5c111\n";
    let mut text = "id,name,score,active,day,at,mail,key\n".to_owned();
    text.push_str(&row.repeat(TABLE_BYTES / row.len()));
    let words = [
        "integer", "string", "float", "boolean", "date", "datetime", "email", "uuid",
    ];
    let columns = ["id", "name", "score", "active", "day", "at", "mail", "key"];
    let typed = columns.iter().zip(words);
    let question = Question::Csv(CsvQuestion {
        required_headers: vec!["id".to_owned()],
        type_constraints: typed
            .map(|(column, word)| ((*column).to_owned(), json!(word)))
            .collect(),
        delimiter: None,
    });
    let took = median(3, || answer(&question, text.as_bytes()));
    let megabytes = f64::from(u32::try_from(text.len()).unwrap_or(u32::MAX)) / 1e6;
    tell(&json!({"what": "a table of 8 typed columns, 100 MB", "mb_per_s": megabytes / took.as_secs_f64()}));
}

fn median(rounds: usize, mut act: impl FnMut() -> Answer) -> Duration {
    let mut times: Vec<Duration> = (0..rounds.max(1))
        .map(|_| {
            let begun = Instant::now();
            std::hint::black_box(act());
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

#[expect(
    clippy::print_stdout,
    reason = "what was measured is what this program is for"
)]
fn tell(line: &Value) {
    println!("{line}");
}
