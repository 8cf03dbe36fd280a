//! Programs for a store are ASCII: SQL and Lua, also their comments, which are sent too.
//!
//! A PostgreSQL server converts each statement to the encoding of its database, and refuses one
//! with a character that the encoding lacks, such as the ellipsis in LATIN1. The rule covers files
//! of SQL and Lua, and texts in Rust that begin as a statement does. Names and other values are
//! parameters, so they may be any text.

use super::Finding;
use crate::tree::{SourceFile, Tree};

const PROGRAMS: [&str; 2] = [".sql", ".lua"];
/// Where Rust has statements for a store.
const SENDERS: [&str; 3] = ["crates/engines/", "crates/fence/src/", "crates/net/src/sql/"];
/// How statements start.
const STATEMENT_STARTS: [&str; 23] = [
    "alter",
    "begin",
    "call",
    "comment",
    "create",
    "delete",
    "do",
    "drop",
    "explain",
    "grant",
    "insert",
    "listen",
    "local",
    "pragma",
    "redis.call",
    "replace",
    "return",
    "revoke",
    "select",
    "set",
    "show",
    "update",
    "with",
];

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in &tree.files {
        if PROGRAMS.iter().any(|end| file.path.ends_with(end)) {
            found.extend(in_program(file));
        } else if SENDERS.iter().any(|sender| file.path.starts_with(sender)) {
            found.extend(in_rust(file));
        }
    }
    found
}

fn in_program(file: &SourceFile) -> Vec<Finding> {
    let lines = file.text.lines().enumerate();
    let odd = lines.filter_map(|(index, line)| Some((index + 1, first_odd(line)?)));
    odd.map(|(line, odd)| finding(file, line, odd)).collect()
}

fn in_rust(file: &SourceFile) -> Vec<Finding> {
    let Some(source) = &file.rust else { return Vec::new() };
    if file.test_only || file.path.contains("/tests/") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for token in source.tokens.iter().filter(|token| !source.is_test(token.line)) {
        let Ok(text) = syn::parse_str::<syn::LitStr>(&token.text) else { continue };
        let text = text.value();
        let first = text.split_whitespace().next().unwrap_or_default().to_lowercase();
        if let (true, Some(odd)) = (STATEMENT_STARTS.contains(&first.as_str()), first_odd(&text)) {
            found.push(finding(file, token.line, odd));
        }
    }
    found
}

fn first_odd(text: &str) -> Option<char> {
    text.chars().find(|c| !c.is_ascii())
}

fn finding(file: &SourceFile, line: usize, odd: char) -> Finding {
    Finding::at(&file.path, line, format!("`{odd}` in a program that is sent: write it in ASCII"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    const SQL: &str = "crates/engines/postgres/sql/look.sql";
    const RUST: &str = "crates/engines/mysql/src/views.rs";

    fn lines(path: &str, text: &str) -> Vec<Option<usize>> {
        found(findings, &[(path, text)]).into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn ascii_programs_and_other_texts_are_accepted() {
        assert_eq!(lines(SQL, "-- `case ... when`\nselect 1"), []);
        assert_eq!(lines(RUST, "/// `…heads`\nconst A: &str = \"`…heads` are ours\";"), []);
        let test = "#[cfg(test)]\nmod tests {\n    const A: &str = \"select 'ä'\";\n}";
        assert_eq!(lines(RUST, test), []);
        assert_eq!(lines("crates/cli/src/a.rs", "const A: &str = \"select …\";"), []);
    }

    #[test]
    fn another_character_is_found_in_comments_and_statements() {
        assert_eq!(lines(SQL, "select 1;\n-- `case … when`"), [Some(2)]);
        assert_eq!(lines("crates/engines/redis/scripts/a.lua", "-- in µs"), [Some(1)]);
        assert_eq!(lines(RUST, "const A: &str =\n    \"select '…'\";"), [Some(2)]);
        assert_eq!(lines(RUST, "fn f() { ask(&format!(r\"Insert {} -- ä\", 1)); }"), [Some(1)]);
        assert_eq!(lines(RUST, "const A: &str = \"set a = '\\u{2026}'\";"), [Some(1)]);
    }
}
