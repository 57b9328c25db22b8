//! Reading takes time in proportion to the text. The bench has the milliseconds.

use super::validation;
use ringfence_types::Language;
use std::time::{Duration, Instant};

const ROUNDS: usize = 3;
const SHORT: usize = 1_000;
/// Ten times as much.
const LONG: usize = 10_000;
const GROWTH_MAX: u32 = 20;

/// Functions as people write them, about a dozen lines each.
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

/// The best of some rounds: others use the machine, too.
fn best(language: Language, code: &str) -> Duration {
    let once = || {
        let started = Instant::now();
        let found = validation(language, code);
        assert!(found.valid);
        started.elapsed()
    };
    (0..ROUNDS).map(|_| once()).min().unwrap()
}

#[test]
fn scripts_are_read_in_proportion() {
    for (language, make) in [
        (Language::Node, javascript as fn(usize) -> String),
        (Language::Typescript, javascript),
        (Language::Shell, shell),
    ] {
        let (short, long) = (best(language, &make(SHORT)), best(language, &make(LONG)));
        println!("{language:?}: {SHORT} lines in {short:?}, {LONG} lines in {long:?}");
        assert!(
            long <= short * GROWTH_MAX,
            "{language:?}: {SHORT} lines in {short:?}, {LONG} lines in {long:?}"
        );
    }
}
