//! The evidence for the guarantees, the track record and the list of what doctor looks at name
//! tests, and those tests exist. The tables of the guarantees are those of the evidence, and their
//! cells are short enough to be read.

use super::Finding;
use crate::evidence::{self, CELL, Evidence, SOURCE};
use crate::tree::{SourceFile, Tree};
use std::collections::BTreeSet;

/// The documents that name tests. They must be there: without them nothing is checked.
const DOCUMENTS: [&str; 6] = [
    SOURCE,
    "docs/guarantees.md",
    "docs/track-record.md",
    "docs/doctor.md",
    "docs/safety.md",
    "docs/redlock-argument.md",
];
/// The suite's cases are functions that tests call by a table of their own.
const SUITE: &str = "crates/conformance/src/";

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let tests: BTreeSet<(&str, &str)> = tree.rust().flat_map(|(file, _)| tests_of(file)).collect();
    let mut found = Vec::new();
    for path in DOCUMENTS {
        match tree.file(path) {
            Some(document) => found.extend(unknown_tests(document, &tests)),
            None => found.push(Finding::whole(path, "missing")),
        }
    }
    if let Some(source) = tree.file(SOURCE) {
        match Evidence::parse(&source.text) {
            Ok(evidence) => found.extend(pages(tree, &evidence)),
            Err((line, says)) => found.push(Finding::at(SOURCE, line, says)),
        }
    }
    found
}

fn unknown_tests(document: &SourceFile, tests: &BTreeSet<(&str, &str)>) -> Vec<Finding> {
    let all = document.path == SOURCE;
    let lines = document.text.lines().enumerate();
    let rows = lines.filter(|(_, line)| all || line.starts_with('|'));
    let named = rows.flat_map(|(index, row)| tests_in(row).map(move |test| (index + 1, test)));
    let unknown = named.filter(|(_, test)| {
        let mut parts = test.rsplit("::").filter(|part| *part != "tests");
        let name = parts.next().unwrap_or_default();
        let module = parts.next().unwrap_or_default();
        // A path that names no module but `tests` may mean any.
        let any = module.is_empty() && tests.iter().any(|(_, test)| *test == name);
        !any && !tests.contains(&(module, name))
    });
    let says = |test| format!("there is no test `{test}`");
    unknown.map(|(line, test)| Finding::at(&document.path, line, says(test))).collect()
}

/// What the pages have beside the evidence or lack of it, and cells that are too long.
fn pages(tree: &Tree, evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut without = evidence.stores();
    for page in evidence::pages(tree) {
        let filled = evidence.filled(&page.text);
        if filled != page.text {
            let same = filled.lines().zip(page.text.lines()).take_while(|(a, b)| a == b).count();
            let says = "not what the evidence says: run `cargo xtask guarantees`";
            found.push(Finding::at(&page.path, same + 1, says));
        }
        for (index, line) in page.text.lines().enumerate() {
            evidence::store_of(line).map(|store| without.remove(store));
            let cells = line.split('|').filter(|_| line.starts_with('|'));
            if let Some(long) = cells.map(|cell| cell.trim().chars().count()).find(|n| *n > CELL) {
                let says = format!("a cell of {long} characters, of at most {CELL}");
                found.push(Finding::at(&page.path, index + 1, says));
            }
        }
    }
    found.extend(
        without.iter().map(|store| {
            Finding::whole(SOURCE, format!("no page has `<!-- evidence: {store} -->`"))
        }),
    );
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
        "fn killed_holder_frees() {}\nsuite! { fn paused_holder_is_notified() {} }",
    );
    const EMPTY: [(&str, &str); 6] = [
        (SOURCE, ""),
        ("docs/guarantees.md", ""),
        ("docs/track-record.md", ""),
        ("docs/doctor.md", ""),
        ("docs/safety.md", ""),
        ("docs/redlock-argument.md", ""),
    ];

    /// What is found where `documents` stand in the place of empty ones.
    fn findings_with(
        documents: &[(&str, &str)],
        source: (&str, &str),
    ) -> Vec<(String, Option<usize>)> {
        let empty = EMPTY.iter().filter(|(path, _)| documents.iter().all(|(p, _)| p != path));
        let files: Vec<_> = documents.iter().chain(empty).chain([&source]).copied().collect();
        found(findings, &files)
    }

    #[test]
    fn tests_that_exist_are_accepted() {
        let table = "`no::row`\n| fault | local |\n|---|---|\n\
            | kill | `p3::suite::killed_holder_frees` |\n\
            | pause | `suite::paused_holder_is_notified`, `Guard::Lost`, `kill -9` |\n";
        assert_eq!(findings_with(&[("docs/doctor.md", table)], SUITE), []);
    }

    #[test]
    fn a_test_that_is_gone_is_found() {
        let table = "| fault | local |\n|---|---|\n| kill | `suite::renamed` |\n";
        for path in ["docs/guarantees.md", "docs/track-record.md", "docs/doctor.md"] {
            assert_eq!(findings_with(&[(path, table)], SUITE), [(path.to_owned(), Some(3))]);
        }
        let page = ("docs/guarantees.md", "<!-- evidence: etcd -->\n<!-- end of evidence -->\n");
        let evidence = "= A\n- a | b\n  etcd: `suite::renamed`\n";
        assert!(
            findings_with(&[(SOURCE, evidence), page], SUITE)
                .contains(&(SOURCE.to_owned(), Some(3)))
        );
    }

    /// Any function of that name was taken for the test.
    #[test]
    fn a_function_of_the_product_or_of_another_module_is_no_test() {
        let table = "| kill | `suite::frees` |\n";
        let tests = "#[cfg(test)]\nmod tests { fn frees() {} }";
        let of = |source| findings_with(&[("docs/track-record.md", table)], source).len();
        assert_eq!(of(("crates/a/src/suite.rs", "fn frees() {}")), 1);
        assert_eq!(of(("crates/a/tests/other.rs", "fn frees() {}")), 1);
        assert_eq!(of(("crates/a/src/suite.rs", tests)), 0);
        let made = "each! { frees }";
        assert_eq!(of(("crates/a/tests/suite.rs", made)), 0);
        assert_eq!(of(("crates/a/src/suite.rs", made)), 1);
    }

    /// Without the table nothing was looked at, and all was well.
    #[test]
    fn a_document_that_is_missing_is_found() {
        for (missing, _) in EMPTY {
            let rest = EMPTY.into_iter().filter(|(path, _)| *path != missing);
            let missing = [(missing.to_owned(), None)];
            assert_eq!(found(findings, &rest.collect::<Vec<_>>()), missing);
        }
    }

    const EVIDENCE: &str = "= A\n- kill | an error\n  etcd: `suite::killed_holder_frees`\n";
    const PAGE: &str = "docs/guarantees/etcd.md";

    #[test]
    fn a_page_with_the_tables_of_the_evidence_is_accepted() {
        let evidence = Evidence::parse(EVIDENCE).expect("the evidence is right");
        let page = evidence.filled("<!-- evidence: etcd -->\n<!-- end of evidence -->\n");
        assert_eq!(findings_with(&[(SOURCE, EVIDENCE), (PAGE, &page)], SUITE), []);
    }

    #[test]
    fn tables_that_differ_or_are_missing_are_found() {
        let page = "# a\n<!-- evidence: etcd -->\n| kill |\n<!-- end of evidence -->\n";
        let of_page = |page| findings_with(&[(SOURCE, EVIDENCE), (PAGE, page)], SUITE);
        assert_eq!(of_page(page), [(PAGE.to_owned(), Some(3))]);
        assert_eq!(of_page("# a\n"), [(SOURCE.to_owned(), None)]);
        assert_eq!(findings_with(&[(SOURCE, "kill")], SUITE), [(SOURCE.to_owned(), Some(1))]);
    }

    #[test]
    fn a_cell_that_is_too_long_is_found() {
        let row = |n| format!("{}\n| a | {} |\n", "a".repeat(CELL + 1), "ä".repeat(n));
        assert_eq!(findings_with(&[(PAGE, &row(CELL))], SUITE), []);
        assert_eq!(findings_with(&[(PAGE, &row(CELL + 1))], SUITE), [(PAGE.to_owned(), Some(2))]);
    }
}
