//! Retired words do not come back, and the glossary explains each coined word.

use super::Finding;
use crate::tree::Tree;

/// These name the words that others may not use.
const EXEMPT: [&str; 2] = ["xtask/src/tidy/words.rs", "STYLE.md"];
const GLOSSARY: &str = "docs/glossary.md";
/// It quotes former names.
const CHANGELOG: &str = "CHANGELOG.md";
/// The kinds of files that the rule reads.
const KINDS: [&str; 5] = [".rs", ".lua", ".sql", ".md", ".py"];

/// A retired word or phrase, also as a part of an identifier, and what to write instead.
const RETIRED: [(&str, &str); 55] = [
    ("apply planted", "a mutant"),
    ("asker", "handle, or caller"),
    ("askers", "handles, or callers"),
    ("bell", "what it notifies"),
    ("board", "router"),
    ("clock that decides", "deciding clock"),
    ("ear", "subscriber, or inbox"),
    ("ears", "subscribers"),
    ("errand", "assignment"),
    ("errands", "assignments"),
    ("first words", "handshake"),
    ("greet", "handshake"),
    ("greeting", "handshake"),
    ("greets", "shakes hands"),
    ("has got", "has acquired"),
    ("hear", "receive"),
    ("heard", "received"),
    ("hearing", "receiving"),
    ("hears", "receives"),
    ("heed", "handle_reply"),
    ("is had", "is acquired"),
    ("keep still", "refuse requests"),
    ("keeps still", "refuses requests"),
    ("lane", "connection"),
    ("lanes", "connections"),
    ("look after", "maintain, or monitor"),
    ("looks after", "maintains, or monitors"),
    ("mouth", "reply"),
    ("outwait", "wait through"),
    ("outwaits", "waits through"),
    ("parting", "undo"),
    ("passed over", "skipped"),
    ("reign", "master term"),
    ("ring of waits", "deadlock"),
    ("roster", "membership view, or seed list"),
    ("scout", "control connection"),
    ("seat", "node status, or holder"),
    ("seats", "nodes, or holders"),
    ("set that is well", "healthy quorum"),
    ("surroundings", "environment"),
    ("taken in again", "readmitted"),
    ("tell", "report, or show"),
    ("telling", "reporting"),
    ("tells", "returns, reports, or says"),
    ("tender", "maintenance task"),
    ("to be had", "available"),
    ("told", "reported, returned, or notified"),
    ("unheard", "not received"),
    ("untold", "unconfirmed"),
    ("we are next", "position 1 of N"),
    ("what is none", "what is absent"),
    ("whoever", "a client that, or who"),
    ("wish", "request"),
    ("wishes", "requests"),
    ("workplace", "executor, or runtime"),
];

/// Names in stores, which older releases read: such a name, and the files that may have it.
const STORED: [(&str, &str); 9] = [
    ("reign:1", ""),
    ("ear", "crates/engines/postgres/sql/verbs.sql"),
    ("heard", "crates/engines/mysql/sql/"),
    ("heard", "crates/engines/mysql/tests/it/crowds.rs"),
    ("heard", "crates/engines/mysql/tests/it/removed_rows.rs"),
    ("heard", "crates/engines/postgres/sql/"),
    ("heard", "crates/engines/postgres/tests/it/crowds.rs"),
    ("heard", "crates/engines/postgres/tests/it/removed_rows.rs"),
    ("heard", "crates/engines/postgres/tests/it/turns.rs"),
];

/// The coined words that stay: each has a row in the glossary.
const COINED: [&str; 10] = [
    "lock table",
    "keeper",
    "janitor",
    "settle",
    "hand-off",
    "hand-off lease",
    "queue heartbeat",
    "live grant",
    "episode",
    "floor",
];

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let retired = RETIRED.map(|(word, instead)| (format!(" {word} "), word, instead));
    let mut found = Vec::new();
    for file in &tree.files {
        let read = KINDS.iter().any(|kind| file.path.ends_with(kind));
        if !read || EXEMPT.contains(&file.path.as_str()) {
            continue;
        }
        let stored: Vec<&str> = STORED
            .iter()
            .filter(|(_, at)| file.path.starts_with(at))
            .map(|(name, _)| *name)
            .collect();
        for (index, line) in file.text.lines().enumerate() {
            let line = stored.iter().fold(line.to_owned(), |line, name| line.replace(name, " "));
            let words = if file.path == CHANGELOG {
                words(&line.split('`').step_by(2).collect::<String>())
            } else {
                words(&line)
            };
            for (padded, word, instead) in &retired {
                if words.contains(padded) {
                    let says = format!("`{word}` is retired: write {instead}");
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
        let good = "//! Returns who holds the name.\nfn retold_overhearing() {}";
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
    fn names_in_stores_are_accepted_where_they_stand() {
        let column = "    heard_since bigint not null,";
        let comment = "//! The column `heard_since`.";
        for (path, text, count) in
            [("crates/engines/mysql/sql/a.sql", column, 0), ("crates/a/src/lib.rs", comment, 1)]
        {
            assert_eq!(
                found(findings, &[(path, text), (GLOSSARY, &rows())]).len(),
                count,
                "{path}"
            );
        }
        assert_eq!(found(findings, &[("docs/a.md", "`holdline:reign:1`")]), []);
    }

    #[test]
    fn the_changelog_quotes_former_names() {
        for (line, count) in [("- library: `OnLost::Tell` is gone", 0), ("- `a` tells `b`", 1)] {
            assert_eq!(found(findings, &[(CHANGELOG, line), (GLOSSARY, &rows())]).len(), count);
        }
    }

    #[test]
    fn a_word_without_a_row_is_found() {
        let missing = rows().replace("| keeper |", "| gatekeeper |");
        assert_eq!(found(findings, &[(GLOSSARY, &missing)]), [(GLOSSARY.to_owned(), None)]);
    }
}
