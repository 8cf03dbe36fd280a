//! Decisions are numbered, so that they can be cited, and short: Context, Decision, Consequences.

use super::Finding;
use crate::tree::Tree;
use std::collections::BTreeSet;

const DIRECTORY: &str = "docs/decisions/";
/// The parts of a decision, in their order. Others may stand between them.
const PARTS: [&str; 3] = ["## Context", "## Decision", "## Consequences"];
/// How many words these parts have at most.
const MAX_WORDS: usize = 300;

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
        let headings: Vec<&str> = file.text.lines().filter(|line| PARTS.contains(line)).collect();
        if headings != PARTS {
            found.push(Finding::whole(&file.path, format!("its parts are not {PARTS:?}")));
        }
        let words = words_of(&file.text);
        if words > MAX_WORDS {
            let says = format!("{words} words from {} on, more than {MAX_WORDS}", PARTS[0]);
            found.push(Finding::whole(&file.path, says));
        }
    }
    found
}

/// How many words stand behind the first heading of the parts. Marks alone are no words.
fn words_of(text: &str) -> usize {
    let from = text.find(PARTS[0]).unwrap_or(0);
    let is_word = |word: &&str| word.chars().any(char::is_alphanumeric);
    text[from..].split_whitespace().filter(is_word).count()
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

    const GOOD: &str = "# A\n\n## Context\n\nB.\n\n## Decision\n\nC.\n\n## Consequences\n\nD.\n";

    #[test]
    fn numbered_decisions_are_accepted() {
        let good = [("docs/decisions/0001-engine-contract.md", GOOD), ("docs/a.md", "")];
        assert_eq!(found(findings, &good), []);
    }

    #[test]
    fn missing_parts_and_long_texts_are_found() {
        let parts = GOOD.replace("## Consequences", "## Costs");
        let order = GOOD.replace("## Decision", "## Context");
        let long = GOOD.replace("B.", &"word - ".repeat(MAX_WORDS));
        for bad in [parts, order, long] {
            let reply = found(findings, &[("docs/decisions/0001-a.md", &bad)]);
            assert_eq!(reply, [("docs/decisions/0001-a.md".to_owned(), None)], "{bad}");
        }
    }

    #[test]
    fn other_names_are_found() {
        for name in ["1-a.md", "0001_a.md", "0001-A.md", "0001-.md", "0001-a.txt", "README.md"] {
            let path = format!("docs/decisions/{name}");
            assert_eq!(found(findings, &[(&path, GOOD)]), [(path.clone(), None)]);
        }
    }

    #[test]
    fn a_number_used_twice_is_found() {
        let twice = [("docs/decisions/0001-a.md", GOOD), ("docs/decisions/0001-b.md", GOOD)];
        assert_eq!(found(findings, &twice), [("docs/decisions/0001-b.md".to_owned(), None)]);
    }
}
