//! The table of guarantees, the track record and the list of what doctor looks at name tests, and
//! those tests exist.

use super::Finding;
use crate::tree::{SourceFile, Tree};
use std::collections::BTreeSet;

/// The documents whose tables name tests. They must be there: without them nothing is checked.
const TABLES: [&str; 3] = ["docs/guarantees.md", "docs/track-record.md", "docs/doctor.md"];
/// The suite's cases are functions that tests call by a table of their own.
const SUITE: &str = "crates/conformance/src/";

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let tests: BTreeSet<(&str, &str)> = tree.rust().flat_map(|(file, _)| tests_of(file)).collect();
    let mut found = Vec::new();
    for path in TABLES {
        let Some(table) = tree.file(path) else {
            found.push(Finding::whole(path, "missing"));
            continue;
        };
        for (index, row) in table.text.lines().enumerate().filter(|(_, l)| l.starts_with('|')) {
            for test in tests_in(row) {
                let mut parts = test.rsplit("::").filter(|part| *part != "tests");
                let name = parts.next().unwrap_or_default();
                let module = parts.next().unwrap_or_default();
                // A path that names no module but `tests` may mean any.
                let any = module.is_empty() && tests.iter().any(|(_, test)| *test == name);
                if !any && !tests.contains(&(module, name)) {
                    let says = format!("there is no test `{test}`");
                    found.push(Finding::at(path, index + 1, says));
                }
            }
        }
    }
    found
}

/// The tests of a file, each with every module that it lies in.
fn tests_of(file: &SourceFile) -> Vec<(&str, &str)> {
    let Some(source) = &file.rust else { return Vec::new() };
    let all = file.test_only || file.path.contains("/tests/") || file.path.starts_with(SUITE);
    let functions = source.tokens.windows(2).filter(|w| w[0].text == "fn");
    let tests = functions.filter(|w| all || source.is_test(w[0].line));
    // A macro of a test file may make tests of the names that it is given.
    let made = source.macro_words.iter().filter(|_| all);
    let names = tests.map(|w| &w[1].text).chain(made).map(String::as_str);
    let modules = || file.path.trim_end_matches(".rs").split('/').skip(2);
    names.flat_map(|name| modules().map(move |module| (module, name))).collect()
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

    const SUITE: (&str, &str) = (
        "crates/a/tests/suite.rs",
        "fn killed_holder_frees() {}\nsuite! { fn paused_holder_is_told() {} }",
    );
    const EMPTY: (&str, &str) = ("docs/track-record.md", "");
    const DOCTOR: (&str, &str) = ("docs/doctor.md", "");

    fn told(table: &str, source: (&str, &str)) -> Vec<Option<usize>> {
        let files = [("docs/guarantees.md", table), EMPTY, DOCTOR, source];
        found(findings, &files).into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn tests_that_exist_are_accepted() {
        let table = "`no::row`\n| fault | local |\n|---|---|\n\
            | kill | `p3::suite::killed_holder_frees` |\n\
            | pause | `suite::paused_holder_is_told`, `Guard::Lost`, `kill -9` |\n";
        assert_eq!(told(table, SUITE), []);
    }

    #[test]
    fn a_test_that_is_gone_is_found() {
        let table = "| fault | local |\n|---|---|\n| kill | `suite::renamed` |\n";
        assert_eq!(told(table, SUITE), [Some(3)]);
        let record = [("docs/guarantees.md", ""), ("docs/track-record.md", table), DOCTOR, SUITE];
        let record = found(findings, &record);
        assert_eq!(record, [("docs/track-record.md".to_owned(), Some(3))]);
    }

    /// Any function of that name was taken for the test.
    #[test]
    fn a_function_of_the_product_or_of_another_module_is_no_test() {
        let table = "| kill | `suite::frees` |\n";
        let tests = "#[cfg(test)]\nmod tests { fn frees() {} }";
        assert_eq!(told(table, ("crates/a/src/suite.rs", "fn frees() {}")), [Some(1)]);
        assert_eq!(told(table, ("crates/a/tests/other.rs", "fn frees() {}")), [Some(1)]);
        assert_eq!(told(table, ("crates/a/src/suite.rs", tests)), []);
        let made = "each! { frees }";
        assert_eq!(told(table, ("crates/a/tests/suite.rs", made)), []);
        assert_eq!(told(table, ("crates/a/src/suite.rs", made)), [Some(1)]);
    }

    /// Without the table nothing was looked at, and all was well.
    #[test]
    fn a_table_that_is_missing_is_found() {
        let missing = found(findings, &[EMPTY, DOCTOR]);
        assert_eq!(missing, [("docs/guarantees.md".to_owned(), None)]);
    }
}
