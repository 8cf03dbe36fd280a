//! The table of guarantees names tests, and those tests exist.

use super::Finding;
use crate::tree::Tree;
use std::collections::BTreeSet;

const TABLE: &str = "docs/guarantees.md";

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let Some(table) = tree.file(TABLE) else { return Vec::new() };
    let functions: BTreeSet<&str> = tree.rust().flat_map(|(_, s)| s.function_names()).collect();
    let mut found = Vec::new();
    for (index, row) in table.text.lines().enumerate().filter(|(_, l)| l.starts_with('|')) {
        for test in tests_in(row) {
            let name = test.rsplit("::").next().unwrap_or(test);
            if !functions.contains(name) {
                let says = format!("there is no test `{test}`");
                found.push(Finding::at(TABLE, index + 1, says));
            }
        }
    }
    found
}

/// What stands in backticks and looks like `path::to::test_name`.
fn tests_in(row: &str) -> impl Iterator<Item = &str> {
    row.split('`').skip(1).step_by(2).filter(|code| {
        let is_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let last = code.rsplit("::").next().unwrap_or_default();
        code.contains("::")
            && code.chars().all(is_path)
            && last.starts_with(|c: char| c.is_ascii_lowercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    const TESTS: &str = "fn killed_holder_frees() {}\nsuite! { fn paused_holder_is_told() {} }";

    #[test]
    fn tests_that_exist_are_accepted() {
        let table = "`no::row`\n| fault | local |\n|---|---|\n\
            | kill | `suite::p3::killed_holder_frees` |\n\
            | pause | `suite::paused_holder_is_told`, `Guard::Lost`, `kill -9` |\n";
        assert_eq!(found(findings, &[(TABLE, table), ("a.rs", TESTS)]), []);
        assert_eq!(found(findings, &[("a.rs", TESTS)]), []);
    }

    #[test]
    fn a_test_that_is_gone_is_found() {
        let table = "| fault | local |\n|---|---|\n| kill | `suite::renamed` |\n";
        let told = found(findings, &[(TABLE, table), ("a.rs", TESTS)]);
        assert_eq!(told, [(TABLE.to_owned(), Some(3))]);
    }
}
