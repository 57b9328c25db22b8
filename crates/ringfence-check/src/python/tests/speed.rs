//! How long a check takes, beside the parser that it stands on: a ratio holds on every machine and in every build. The
//! bench has the milliseconds.

use super::*;

const ROUNDS: u32 = 5;
/// Of what the parser takes for the same text.
const PARSES_MAX: u32 = 6;

/// Lines as they are usual: imports, classes, calls, texts.
fn program(lines: usize) -> String {
    let block = "class Order:\n    \"\"\"Of one customer.\"\"\"\n    def __init__(self, name, items=None):\n        self.name = name\n        self.items = items or []\n    def total(self, rate=0.19):\n        total = sum(item['price'] * item['count'] for item in self.items)\n        if total > 100 and self.name != 'x':\n            total -= total * 0.1\n        return round(total * (1 + rate), 2)\n    def show(self):\n        text = f\"{self.name}: {self.total():.2f}\"\n        print(text.upper(), json.dumps({'name': self.name, 'at': datetime.datetime.now().isoformat()}))\n        for i, item in enumerate(self.items):\n            print(i, '{:>10}'.format(item['name']), math.sqrt(item['price']))\n\n";
    let per_block = block.lines().count();
    format!(
        "import json\nimport math\nimport datetime\n\n{}",
        block.repeat(lines.div_ceil(per_block))
    )
}

/// Processor time of the best of some rounds: in the others the machine was somebody else's.
fn best(mut work: impl FnMut()) -> Duration {
    let round = |_| {
        let started = processor_time();
        work();
        processor_time() - started
    };
    (0..ROUNDS).map(round).min().unwrap_or_default()
}

fn check_all(code: &str) {
    let found = check(code, &asked(Profile::Strict)).findings;
    assert!(
        found.iter().all(|finding| finding.severity < Severity::Error),
        "{found:?}"
    );
}

#[test]
fn a_check_costs_a_few_parses_and_grows_with_its_text() {
    let (short, long) = (program(500), program(10_000));
    let parsed = best(|| assert!(parse(&long, PythonVersion::latest()).is_some()));
    let checked = best(|| check_all(&long));
    let checked_short = best(|| check_all(&short));
    println!("10,000 lines: parsed in {parsed:?}, checked in {checked:?}; 500 lines: {checked_short:?}");
    assert!(checked <= parsed * PARSES_MAX, "{checked:?} against {parsed:?}");
    // Twenty times the text.
    assert!(
        checked <= checked_short * 40,
        "{checked:?} against {checked_short:?}"
    );
}
