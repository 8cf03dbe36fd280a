//! Retired words do not come back, and the glossary explains each coined word.

use super::Finding;
use crate::tree::Tree;

/// These name the words that others may not use.
const EXEMPT: [&str; 2] = ["xtask/src/tidy/words.rs", "STYLE.md"];
/// Decisions keep the words of their time behind their first paragraphs.
const DECISIONS: &str = "docs/decisions/";
const GLOSSARY: &str = "docs/glossary.md";
/// The kinds of files that the rule reads.
const KINDS: [&str; 5] = [".rs", ".lua", ".sql", ".md", ".py"];

/// A retired word or phrase, also as a part of an identifier, and what to write instead.
const RETIRED: [(&str, &str); 20] = [
    ("asker", "handle, or caller"),
    ("askers", "handles, or callers"),
    ("lane", "connection"),
    ("lanes", "connections"),
    ("errand", "assignment"),
    ("errands", "assignments"),
    ("ears", "subscribers"),
    ("heed", "handle_reply"),
    ("parting", "undo"),
    ("outwait", "wait through"),
    ("workplace", "executor, or runtime"),
    ("wish", "request"),
    ("scout", "control connection"),
    ("roster", "membership view, or seed list"),
    ("tender", "maintenance task"),
    ("mouth", "reply"),
    ("board", "router"),
    ("is had", "is acquired"),
    ("has got", "has acquired"),
    ("apply planted", "a mutant"),
];

/// The coined words that stay: each has a row in the glossary.
const COINED: [&str; 10] = [
    "lock table",
    "keeper",
    "janitor",
    "settle",
    "hand-off",
    "claim window",
    "queue heartbeat",
    "live grant",
    "episode",
    "floor",
];

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in &tree.files {
        let read = KINDS.iter().any(|kind| file.path.ends_with(kind));
        if !read || EXEMPT.contains(&file.path.as_str()) || file.path.starts_with(DECISIONS) {
            continue;
        }
        for (index, line) in file.text.lines().enumerate() {
            let words = words(line);
            for (retired, instead) in RETIRED {
                if words.contains(&format!(" {retired} ")) {
                    let says = format!("`{retired}` is retired: write {instead}");
                    found.push(Finding::at(&file.path, index + 1, says));
                }
            }
        }
    }
    if let Some(glossary) = tree.file(GLOSSARY) {
        let explained = |word: &&str| {
            glossary.text.lines().any(|line| line.starts_with(&format!("| {word} |")))
        };
        for word in COINED.iter().filter(|word| !explained(word)) {
            found.push(Finding::whole(GLOSSARY, format!("no row explains `{word}`")));
        }
    }
    found
}

/// The words of a line in lower case, with one space around each: `is_told` and `isTold` have two.
fn words(line: &str) -> String {
    let mut words = String::from(" ");
    let mut lower = false;
    for character in line.chars() {
        let starts = character.is_uppercase() && lower;
        if (starts || !character.is_alphanumeric()) && !words.ends_with(' ') {
            words.push(' ');
        }
        if character.is_alphanumeric() {
            words.extend(character.to_lowercase());
        }
        lower = character.is_lowercase();
    }
    words.push(' ');
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    fn rows() -> String {
        COINED.iter().map(|word| format!("| {word} | what it means |\n")).collect()
    }

    #[test]
    fn plain_words_are_accepted() {
        let good = "//! Returns who holds the name.\nfn retold_hearing() {}";
        assert_eq!(found(findings, &[("crates/a/src/lib.rs", good), (GLOSSARY, &rows())]), []);
    }

    #[test]
    fn retired_words_are_found_in_text_and_in_identifiers() {
        for (retired, _) in RETIRED {
            let name = retired.replace(' ', "_");
            for bad in [format!("//! It {retired} here."), format!("fn a_{name}_b() {{}}")] {
                let reply = found(findings, &[("crates/a/src/lib.rs", &bad)]);
                assert_eq!(reply, [("crates/a/src/lib.rs".to_owned(), Some(1))], "{bad}");
            }
        }
    }

    #[test]
    fn a_word_without_a_row_is_found() {
        let missing = rows().replace("| keeper |", "| gatekeeper |");
        assert_eq!(found(findings, &[(GLOSSARY, &missing)]), [(GLOSSARY.to_owned(), None)]);
    }
}
