//! Every page of docs stands in the table of contents of one book, once.

use super::Finding;
use crate::book::{BOOKS, pages_of};
use crate::tree::Tree;
use std::collections::BTreeSet;

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut listed = BTreeSet::new();
    let mut found = Vec::new();
    for summary in BOOKS.map(|book| book.summary) {
        let Some(file) = tree.file(summary) else {
            found.push(Finding::whole(summary, "there is no table of contents"));
            continue;
        };
        for page in pages_of(summary, &file.text) {
            if let Some(twice) = listed.replace(page) {
                found.push(Finding::whole(summary, format!("{twice} stands in a book twice")));
            }
        }
    }
    let is_summary = |path: &str| BOOKS.iter().any(|book| book.summary == path);
    let pages = tree.markdown().filter(|file| file.path.starts_with("docs/"));
    for page in pages.filter(|file| !is_summary(&file.path) && !listed.contains(&file.path)) {
        let says = format!("is neither in {} nor in {}", BOOKS[0].summary, BOOKS[1].summary);
        found.push(Finding::whole(&page.path, says));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    const USERS: &str = BOOKS[0].summary;
    const CONTRIBUTORS: &str = BOOKS[1].summary;

    #[test]
    fn a_page_stands_in_one_table_of_contents_once() {
        let of = |users, contributors| {
            let summaries = [(USERS, users), (CONTRIBUTORS, contributors)];
            found(findings, &[summaries[0], summaries[1], ("docs/a.md", ""), ("b.md", "")])
        };
        assert_eq!(of("[A](a.md)", ""), []);
        assert_eq!(of("", "[A](../a.md)"), []);
        assert_eq!(of("[B](../b.md)", ""), [("docs/a.md".to_owned(), None)]);
        assert_eq!(of("[A](a.md)\n[A](./a.md)", ""), [(USERS.to_owned(), None)]);
        assert_eq!(of("[A](a.md)", "[A](../a.md)"), [(CONTRIBUTORS.to_owned(), None)]);
    }

    #[test]
    fn a_book_without_contents_is_found() {
        let one = found(findings, &[(USERS, "[A](a.md)"), ("docs/a.md", "")]);
        assert_eq!(one, [(CONTRIBUTORS.to_owned(), None)]);
    }
}
