//! How many tests a program says it ran, read from its closing lines.

/// Tests that passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Passed.
    pub passed: u64,
    /// Failed.
    pub failed: u64,
    /// Of those that passed: at a second try alone.
    pub second: u64,
}

impl Tally {
    /// One check that is not a test program.
    pub const ONE: Self = Self {
        passed: 1,
        failed: 0,
        second: 0,
    };

    /// Adds another.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.second += other.second;
    }

    /// Adds what one line says: libtest's `test result: ok. 5 passed; 0 failed; ...`, or `5 passed, 0 failed` alone.
    pub fn read_line(&mut self, line: &str) {
        let line = line.trim();
        let (rest, separator) = match line.strip_prefix("test result: ") {
            Some(rest) => (rest.split_once(". ").map_or("", |(_, counts)| counts), "; "),
            None => (line, ", "),
        };
        let mut parts = rest.split(separator);
        let passed = parts.next().and_then(|part| count(part, "passed"));
        let failed = parts.next().and_then(|part| count(part, "failed"));
        if let (Some(passed), Some(failed)) = (passed, failed) {
            self.add(Self {
                passed,
                failed,
                second: 0,
            });
        }
    }
}

fn count(part: &str, word: &str) -> Option<u64> {
    part.trim().strip_suffix(word)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_read_and_other_lines_are_not() {
        let check = |line: &str, expect: (u64, u64)| {
            let mut tally = Tally::default();
            tally.read_line(line);
            assert_eq!((tally.passed, tally.failed), expect, "{line}");
        };
        check(
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            (5, 0),
        );
        check(
            "test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out",
            (2, 3),
        );
        check("12 passed, 1 failed\n", (12, 1));
        check("as root: 12 held, 0 escaped", (0, 0));
        check("the 5 passed, 2 failed of yesterday", (0, 0));
        check("5 passed", (0, 0));
        check("", (0, 0));
    }
}
