//! How many tests ran, read from what the test harness prints.

use std::ops::AddAssign;

/// Tests by how they ended. Skipped means that a test was there and did not run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Reads the closing line of one test binary:
/// `test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s`.
pub(crate) fn closing_line(line: &str) -> Option<Counts> {
    let (_, fields) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number = |word: &str| -> Option<usize> {
        let field = fields.split(';').map(str::trim).find(|f| f.ends_with(word))?;
        field.strip_suffix(word)?.trim().parse().ok()
    };
    let skipped = number("ignored")? + number("filtered out")?;
    Some(Counts { passed: number("passed")?, failed: number("failed")?, skipped })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_is_read() {
        let line = "test result: FAILED. 5 passed; 2 failed; 1 ignored; 0 measured; \
            3 filtered out; finished in 0.01s";
        assert_eq!(closing_line(line), Some(Counts { passed: 5, failed: 2, skipped: 4 }));
    }

    #[test]
    fn other_lines_are_not() {
        for line in ["", "test a ... ok", "test result: ok", "test result: ok. many passed;"] {
            assert_eq!(closing_line(line), None, "{line}");
        }
    }
}
