//! Every page of docs stands in the table of contents of the book, once.

use super::Finding;
use crate::book::pages_of;
use crate::tree::Tree;
use std::collections::BTreeSet;

const SUMMARY: &str = "docs/SUMMARY.md";

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let Some(summary) = tree.file(SUMMARY) else {
        return vec![Finding::whole(SUMMARY, "there is no table of contents")];
    };
    let mut listed = BTreeSet::new();
    let mut found = Vec::new();
    for page in pages_of(&summary.text) {
        if let Some(twice) = listed.replace(page) {
            found.push(Finding::whole(SUMMARY, format!("{twice} stands there twice")));
        }
    }
    let pages = tree.markdown().filter(|file| file.path.starts_with("docs/"));
    for page in pages.filter(|file| file.path != SUMMARY && !listed.contains(&file.path)) {
        found.push(Finding::whole(&page.path, format!("is not in {SUMMARY}")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    #[test]
    fn a_page_stands_in_the_table_of_contents_once() {
        let of = |summary| found(findings, &[(SUMMARY, summary), ("docs/a.md", ""), ("b.md", "")]);
        assert_eq!(of("[A](a.md)"), []);
        assert_eq!(of("[B](../b.md)"), [("docs/a.md".to_owned(), None)]);
        assert_eq!(of("[A](a.md)\n[A](./a.md)"), [(SUMMARY.to_owned(), None)]);
        assert_eq!(found(findings, &[("docs/a.md", "")]), [(SUMMARY.to_owned(), None)]);
    }
}
