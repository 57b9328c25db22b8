//! Tests of the speed of a check: in milliseconds in the optimised build, relative to the parser in every build.

use super::*;

const ROUNDS: u32 = 10;

/// Returns a program of usual lines: imports, classes, calls, strings.
fn program(lines: usize) -> String {
    let block = "class Order:\n    \"\"\"Of one customer.\"\"\"\n    def __init__(self, name, items=None):\n        self.name = name\n        self.items = items or []\n    def total(self, rate=0.19):\n        total = sum(item['price'] * item['count'] for item in self.items)\n        if total > 100 and self.name != 'x':\n            total -= total * 0.1\n        return round(total * (1 + rate), 2)\n    def show(self):\n        text = f\"{self.name}: {self.total():.2f}\"\n        print(text.upper(), json.dumps({'name': self.name, 'at': datetime.datetime.now().isoformat()}))\n        for i, item in enumerate(self.items):\n            print(i, '{:>10}'.format(item['name']), math.sqrt(item['price']))\n\n";
    let per_block = block.lines().count();
    format!(
        "import json\nimport math\nimport datetime\n\n{}",
        block.repeat(lines.div_ceil(per_block))
    )
}

/// Returns the best time of several rounds: in the others the machine was busy with other work.
fn best(lines: usize, runs: u32) -> Duration {
    let code = program(lines);
    let round = |_| {
        let started = processor_time();
        for _ in 0..runs {
            let found = check(&code, &question(Profile::Strict)).findings;
            assert!(
                found.iter().all(|finding| finding.severity < Severity::Error),
                "{found:?}"
            );
        }
        (processor_time() - started) / runs
    };
    (0..ROUNDS).map(round).min().unwrap_or_default()
}

#[test]
fn check_is_fast() {
    let runs = if cfg!(debug_assertions) { 1 } else { 2 };
    let (short, long) = (best(200, runs * 50), best(10_000, runs));
    println!("200 lines in {short:?}, 10,000 lines in {long:?}");
    if !cfg!(debug_assertions) {
        assert!(short < Duration::from_millis(1) && long < Duration::from_millis(50));
    }
}

/// Maximum time of a check, in multiples of the time to parse the same code; a check takes two or three.
const PARSES_MAX: u32 = 4;

#[test]
fn check_costs_a_few_parses() {
    let code = program(10_000);
    let round = |_| {
        let started = processor_time();
        assert!(ruff_python_parser::parse_module(&code).is_ok());
        processor_time() - started
    };
    let parsed = (0..ROUNDS).map(round).min().unwrap_or_default();
    let checked = best(10_000, 1);
    println!("10,000 lines: parsed in {parsed:?}, checked in {checked:?}");
    assert!(checked <= parsed * PARSES_MAX, "{checked:?} against {parsed:?}");
}
