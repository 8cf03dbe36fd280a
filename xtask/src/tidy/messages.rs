//! Messages that a page of symptoms quotes are messages of the program.
//!
//! In a table whose first column is headed `the message says`, each text in code letters of that
//! column is a part of one string of the code outside of tests. So a message that changes is
//! noticed on the page.

use super::Finding;
use crate::markdown::prose;
use crate::tree::Tree;

/// The page of symptoms. It must be there: without it nothing is checked.
const PAGE: &str = "docs/troubleshooting.md";
const HEADING: &str = "the message says";

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file(PAGE) else { return vec![Finding::whole(PAGE, "missing")] };
    let quotes = quotes(&page.text);
    if quotes.is_empty() {
        let says = format!("no table has the column `{HEADING}`");
        return vec![Finding::whole(PAGE, says)];
    }
    let strings = strings(tree);
    let unknown =
        quotes.into_iter().filter(|(_, quote)| !strings.iter().any(|s| s.contains(quote)));
    unknown
        .map(|(line, quote)| Finding::at(PAGE, line, format!("no message says `{quote}`")))
        .collect()
}

/// The texts in code letters of the first column, with their lines.
fn quotes(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut quoted = false;
    for (number, line) in prose(text) {
        let Some(cell) = line.strip_prefix('|').and_then(|row| row.split('|').next()) else {
            quoted = false;
            continue;
        };
        quoted |= cell.trim() == HEADING;
        if quoted {
            found.extend(cell.split('`').skip(1).step_by(2).map(|quote| (number, quote)));
        }
    }
    found
}

/// The strings of the code outside of tests.
fn strings(tree: &Tree) -> Vec<String> {
    let is_code = |path: &str| path.starts_with("crates/") && !path.contains("/tests/");
    let sources = tree.rust().filter(|(file, _)| is_code(&file.path) && !file.test_only);
    let tokens = sources
        .flat_map(|(_, source)| source.tokens.iter().filter(|token| !source.is_test(token.line)));
    let literals = tokens.filter(|token| token.text.starts_with('"'));
    literals
        .filter_map(|one| Some(syn::parse_str::<syn::LitStr>(&one.text).ok()?.value()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    const CODE: &str = "fn f() { write!(f, \"the store \\\n    is gone: {why}\") }\n\
        #[cfg(test)]\nmod tests { fn g() { f(\"only a test\") } }";
    const HEAD: &str = "| the message says | cause |\n|---|---|\n";

    fn lines(rows: &str) -> Vec<Option<usize>> {
        let page = format!("{HEAD}{rows}");
        let files = [(PAGE, page.as_str()), ("crates/a/src/lib.rs", CODE)];
        found(findings, &files).into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn parts_of_messages_and_other_columns_are_accepted() {
        assert_eq!(lines("| `store is gone` | `anything` |\n\n| `PID` | b |"), []);
    }

    #[test]
    fn other_texts_and_those_of_tests_are_found() {
        assert_eq!(lines("| `store gone` | b |\n| `only a test` | b |"), [Some(3), Some(4)]);
    }

    #[test]
    fn a_page_without_such_a_table_is_found() {
        assert_eq!(found(findings, &[(PAGE, "| a |\n")]), [(PAGE.to_owned(), None)]);
        assert_eq!(found(findings, &[]), [(PAGE.to_owned(), None)]);
    }
}
