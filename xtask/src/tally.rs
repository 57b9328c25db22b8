//! Counts of passed and failed tests, read from the closing lines of test programs.

/// Numbers of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Those of the passed tests that passed only on their second try.
    pub retried: u64,
}

impl Tally {
    /// One passed check that is not a test program.
    pub const ONE: Self = Self {
        passed: 1,
        failed: 0,
        retried: 0,
    };

    /// Adds another tally.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.retried += other.retried;
    }

    /// Adds the counts of a closing line: libtest's `test result: ok. 5 passed; 0 failed; ...`, or `5 passed, 0 failed`
    /// alone. Ignores other lines.
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
                retried: 0,
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
