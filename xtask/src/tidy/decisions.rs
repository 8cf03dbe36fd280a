//! Decisions are numbered, so that they can be cited.

use super::Finding;
use crate::tree::Tree;
use std::collections::BTreeSet;

const DIRECTORY: &str = "docs/decisions/";

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut numbers = BTreeSet::new();
    let mut found = Vec::new();
    for file in &tree.files {
        let Some(name) = file.path.strip_prefix(DIRECTORY) else { continue };
        match number_of(name) {
            None => found.push(Finding::whole(&file.path, "not named NNNN-title.md")),
            Some(number) if !numbers.insert(number) => {
                found.push(Finding::whole(&file.path, format!("a second decision {number}")));
            }
            Some(_) => {}
        }
    }
    found
}

/// The number in `NNNN-title-in-lower-case.md`.
fn number_of(name: &str) -> Option<&str> {
    let (number, title) = name.strip_suffix(".md")?.split_once('-')?;
    let is_title = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let well = number.len() == 4
        && number.chars().all(|c| c.is_ascii_digit())
        && !title.is_empty()
        && title.chars().all(is_title);
    well.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    #[test]
    fn numbered_decisions_are_accepted() {
        let good = [("docs/decisions/0001-engine-contract.md", ""), ("docs/a.md", "")];
        assert_eq!(found(findings, &good), []);
    }

    #[test]
    fn other_names_are_found() {
        for name in ["1-a.md", "0001_a.md", "0001-A.md", "0001-.md", "0001-a.txt", "README.md"] {
            let path = format!("docs/decisions/{name}");
            assert_eq!(found(findings, &[(&path, "")]), [(path.clone(), None)]);
        }
    }

    #[test]
    fn a_number_used_twice_is_found() {
        let twice = [("docs/decisions/0001-a.md", ""), ("docs/decisions/0001-b.md", "")];
        assert_eq!(found(findings, &twice), [("docs/decisions/0001-b.md".to_owned(), None)]);
    }
}
