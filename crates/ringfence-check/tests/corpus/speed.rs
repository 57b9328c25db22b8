//! Processor time of checks: below a bound in optimised builds, and in proportion to the length of the text in every
//! build.

use super::{processor_time::processor_time, validation};
use ringfence_types::Language;
use std::time::Duration;

const ROUNDS: usize = 7;
/// Maximum growth of the time for ten times the text.
const GROWTH_MAX: u32 = 20;

/// Typical functions of about a dozen lines each.
fn javascript(lines: usize) -> String {
    let one = |n: usize| {
        format!(
            "/** Adds up what is in the list. */\nasync function total{n}(items, options = {{}}) {{\n  const {{ limit = 10, name }} = options;\n  \
             let sum = 0;\n  for (const item of items) {{\n    if (item.value > limit && !item.hidden) {{\n      sum += item.value;\n    }}\n  }}\n  \
             const path = `/items/${{name}}/` + String(sum);\n  await store.save(path, {{ sum, at: Date.now() }});\n  return sum;\n}}\n"
        )
    };
    (0..lines.div_ceil(13)).map(one).collect()
}

fn shell(lines: usize) -> String {
    let one = |n: usize| {
        format!(
            "# Packs one directory.\npack_{n}() {{\n  local source=\"$1\" target=\"${{2:-out}}\"\n  if [[ ! -d \"$source\" ]]; then\n    \
             echo \"no $source\" >&2\n    return 1\n  fi\n  mkdir -p \"$target\"\n  for file in \"$source\"/*.txt; do\n    \
             count=$(wc -l < \"$file\")\n    printf '%s %d\\n' \"$file\" \"$count\" >> \"$target/list\"\n  done\n}}\n"
        )
    };
    (0..lines.div_ceil(13)).map(one).collect()
}

/// The shortest of several rounds. The bounds are wide because other processes share the caches; the benchmark has
/// exact figures.
fn best(language: Language, code: &str) -> Duration {
    let once = || {
        let started = processor_time();
        let found = validation(language, code);
        // A text refused as unparsed would be fast, but has a finding.
        assert!(found.issues.is_empty(), "{:?}", found.issues);
        processor_time() - started
    };
    (0..ROUNDS).map(|_| once()).min().unwrap()
}

#[test]
fn scripts_are_read_within_the_time_bound() {
    for (language, make) in [
        (Language::Node, javascript as fn(usize) -> String),
        (Language::Typescript, javascript),
        (Language::Shell, shell),
    ] {
        for (lines, bound) in [
            (200, Duration::from_millis(5)),
            (10_000, Duration::from_millis(250)),
        ] {
            let code = make(lines);
            let took = best(language, &code);
            eprintln!("{language:?}: {lines} lines, {} bytes: {took:?}", code.len());
            assert!(
                cfg!(debug_assertions) || took <= bound,
                "{language:?}: {lines} lines in {took:?}"
            );
        }
        let (short, long) = (best(language, &make(1_000)), best(language, &make(10_000)));
        assert!(
            long <= short * GROWTH_MAX,
            "{language:?}: 1,000 lines in {short:?}, 10,000 in {long:?}"
        );
    }
}
