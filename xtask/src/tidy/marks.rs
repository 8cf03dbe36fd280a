//! Nothing unfinished, nothing switched off.

use super::Finding;
use crate::rust_source::RustSource;
use crate::tree::{SourceFile, Tree};

/// This file holds the words that it looks for.
const SELF: &str = "xtask/src/tidy/marks.rs";
/// Marks in comments of any language. A mark in a document may be about marks.
const WORDS: [&str; 4] = ["TODO", "FIXME", "XXX", "HACK"];
const CODE: [&str; 12] =
    [".rs", ".sh", ".toml", ".yml", ".lua", ".py", ".sql", ".ts", ".c", ".js", ".cjs", ".mjs"];
const SCRIPTS: [&str; 2] = ["check", ".ci/run"];

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|f| is_code(f) && f.path != SELF) {
        for (index, line) in file.text.lines().enumerate() {
            for word in WORDS.iter().filter(|word| has_word(line, word)) {
                found.push(Finding::at(&file.path, index + 1, format!("unfinished: {word}")));
            }
        }
    }
    for (file, source) in tree.rust() {
        for window in source.tokens.windows(3) {
            let [first, second, third] = window else { continue };
            let says = match (first.text.as_str(), second.text.as_str(), third.text.as_str()) {
                ("todo" | "unimplemented", "!", "(" | "[" | "{") => "unfinished",
                ("#", "[", "ignore") => "a test that does not run proves nothing",
                _ => continue,
            };
            found.push(Finding::at(&file.path, first.line, says));
        }
        found.extend(switched_off(file, source));
        found.extend(ignored_examples(file));
    }
    found
}

/// Tests that do not run in some builds, `#[cfg_attr(…, ignore)]`, and what is in no build at all.
fn switched_off(file: &SourceFile, source: &RustSource) -> Vec<Finding> {
    let tokens: Vec<&str> = source.tokens.iter().map(|token| token.text.as_str()).collect();
    let mut found = Vec::new();
    for (at, token) in source.tokens.iter().enumerate() {
        let rest = &tokens[at..];
        let says = if rest.starts_with(&["[", "cfg_attr", "("])
            && rest.iter().take_while(|word| **word != "]").any(|word| *word == "ignore")
        {
            "a test that does not always run proves nothing"
        } else if rest.starts_with(&["cfg", "(", "any", "(", ")"])
            || rest.starts_with(&["cfg", "(", "false", ")"])
        {
            "what is in no build is not there"
        } else {
            continue;
        };
        found.push(Finding::at(&file.path, token.line, says));
    }
    found
}

/// Examples in docs that are shown and never compiled.
fn ignored_examples(file: &SourceFile) -> Vec<Finding> {
    let lines = file.text.lines().enumerate();
    let fences = lines.filter_map(|(i, line)| {
        let docs = line.trim_start();
        let docs = docs.strip_prefix("///").or_else(|| docs.strip_prefix("//!"))?;
        Some((i + 1, docs.trim().strip_prefix("```")?))
    });
    let ignored = fences.filter(|(_, words)| words.split([',', ' ']).any(|w| w == "ignore"));
    ignored.map(|(line, _)| Finding::at(&file.path, line, "an example that is ignored")).collect()
}

fn is_code(file: &SourceFile) -> bool {
    SCRIPTS.contains(&file.path.as_str()) || CODE.iter().any(|end| file.path.ends_with(end))
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    #[test]
    fn finished_code_is_accepted() {
        let good = "// A rest\nfn todo() {}\n#[test]\nfn ignore() {}\nconst A: &str = \"XXXL\";";
        assert_eq!(found(findings, &[("a.rs", good), ("STYLE.md", "no TODO")]), []);
    }

    #[test]
    fn marks_are_found() {
        for (path, bad) in [
            ("a.rs", "// TODO: later"),
            ("a.rs", "/* HACK */"),
            ("a.rs", "fn f() { todo!() }"),
            ("a.rs", "fn f() { unimplemented!(\"no\") }"),
            ("a.rs", "#[ignore] fn f() {}"),
            ("a.rs", "#[ignore = \"slow\"] fn f() {}"),
            ("a.rs", "#[cfg_attr(not(feature = \"slow\"), ignore)] fn f() {}"),
            ("a.rs", "#[cfg_attr(\n    unix,\n    ignore\n)]\nfn f() {}"),
            ("a.rs", "#[cfg(any())] fn f() {}"),
            ("a.rs", "#[cfg(false)] fn f() {}"),
            ("a.rs", "//! ```rust,ignore"),
            ("check", "# FIXME"),
            ("interop/node/peer.cjs", "// TODO: later"),
            ("a.c", "/* XXX */"),
            ("deny.toml", "# XXX"),
        ] {
            assert_eq!(found(findings, &[(path, bad)]), [(path.to_owned(), Some(1))], "{bad}");
        }
    }
}
