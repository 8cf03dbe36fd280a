//! Lines that fit beside each other on a screen. The formatter leaves long strings, comments and
//! macros alone, so it is looked at here.

use super::Finding;
use crate::tree::Tree;

const WIDTH: usize = 100;

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, _) in tree.rust() {
        for (index, line) in file.text.lines().enumerate() {
            let width = line.chars().count();
            if width > WIDTH && !is_unbreakable(line) {
                let says = format!("{width} characters of {WIDTH}");
                found.push(Finding::at(&file.path, index + 1, says));
            }
        }
    }
    found
}

/// An address, or a row of a table in docs.
fn is_unbreakable(line: &str) -> bool {
    let line = line.trim_start();
    line.contains("://") || line.starts_with("//! |") || line.starts_with("/// |")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    #[test]
    fn a_hundred_characters_fit() {
        let good = format!("// {}", "ä".repeat(97));
        assert_eq!(found(findings, &[("a.rs", &good)]), []);
        let address = format!("// https://example.org/{}", "a".repeat(97));
        assert_eq!(found(findings, &[("a.rs", &address)]), []);
        let row = format!("//! | {} |", "a".repeat(97));
        assert_eq!(found(findings, &[("a.rs", &row)]), []);
    }

    #[test]
    fn one_more_does_not() {
        let bad = format!("\n// {}", "a".repeat(98));
        assert_eq!(found(findings, &[("a.rs", &bad)]), [("a.rs".to_owned(), Some(2))]);
    }
}
