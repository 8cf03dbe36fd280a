//! The times of the contract stand in one place each.
//!
//! SQL, Lua, help texts and descriptions get them from core by placeholders. So a number of one of
//! these times in such a text is a copy, which would not follow. Pages cannot be injected: there
//! the constant's name follows the time in a comment, as in `30 s<!-- MAX_FIRST_LEASE -->`, and the
//! number must be the constant's. Another comment, such as `<!-- example -->`, marks another time.
//!
//! Some numbers and lengths are written in SQL: the rule lists these places, and each must have the
//! constant's number.
//!
//! Rust names the constants. `in_rust` finds literals in their place.

mod in_rust;

use self::in_rust::{Amount, Constant};
use super::Finding;
use crate::markdown::prose;
use crate::rust_source::lines_of;
use crate::tree::{SourceFile, Tree};
use syn::spanned::Spanned;
use syn::visit::Visit;

/// Where the constants are defined.
const HOMES: [&str; 2] = ["crates/core/src/lease.rs", "crates/core/src/contract.rs"];
/// The constants, all of them whole seconds, each with a word of what a copy in Rust stands for.
const CONSTANTS: [(&str, &str); 8] = [
    ("DEFAULT_LEASE", "lease"),
    ("MAX_FIRST_LEASE", "lease"),
    ("MAX_LEASE", "lease"),
    ("MIN_TOMBSTONE", "tombstone"),
    ("QUEUE_SILENCE", "silence"),
    ("QUEUE_HEARTBEAT", "heartbeat"),
    ("MIN_HAND_OFF_LEASE", "hand_off"),
    ("MAX_HAND_OFF_LEASE", "hand_off"),
];
/// The lengths in bytes, the files that define them, and the same word.
const LENGTHS: [(&str, &str, &str); 3] = [
    ("MAX_NAME_BYTES", NAME, "name"),
    ("MAX_REASON_BYTES", AUDIT, "reason"),
    ("MAX_METADATA_BYTES", METADATA, "metadata"),
];
/// A time that follows from a constant, and that pages state by this name: the renew interval.
const DERIVED: (&str, &str, u64) = ("DEFAULT_LEASE / 3", "DEFAULT_LEASE", 3);
/// The numbers that are no times, and their copies.
const COUNTS: [Count; 5] = [
    Count {
        name: "HAND_OVER_BATCH",
        home: HOMES[1],
        copies: &[(MYSQL, "handed < "), (POSTGRES, "handed < ")],
    },
    Count {
        name: "MAX_REMEMBERED",
        home: TABLE,
        copies: &[(MYSQL, "m.kind = mark_kind) >= "), (POSTGRES, "cardinality(kept) >= ")],
    },
    Count {
        name: "MAX_NAME_BYTES",
        home: NAME,
        copies: &[
            (MYSQL, "in n varbinary("),
            (MYSQL_VERBS, "in n varbinary("),
            (MYSQL_VERBS, "declare n varbinary("),
            (MYSQL_VERBS, "after_name varbinary("),
            (MYSQL_TABLES, " name varbinary("),
        ],
    },
    Count {
        name: "MAX_REASON_BYTES",
        home: AUDIT,
        copies: &[
            (MYSQL, "reason_text varbinary("),
            (MYSQL_VERBS, "reason_text varbinary("),
            (MYSQL_TABLES, "reason varbinary("),
            (MYSQL_TABLES, "revoked varbinary("),
        ],
    },
    Count {
        name: "MAX_METADATA_BYTES",
        home: METADATA,
        copies: &[
            (MYSQL, "metadata varbinary("),
            (MYSQL_VERBS, "metadata varbinary("),
            (MYSQL_TABLES, "metadata varbinary("),
        ],
    },
];

/// A number that other languages repeat.
struct Count {
    /// The constant.
    name: &'static str,
    /// The file that defines the constant.
    home: &'static str,
    /// The files with copies, and the text in front of the number there.
    copies: &'static [(&'static str, &'static str)],
}

const MYSQL_VERBS: &str = "crates/engines/mysql/sql/verbs.sql";
const MYSQL_TABLES: &str = "crates/engines/mysql/sql/tables.sql";
const NAME: &str = "crates/core/src/name.rs";
const AUDIT: &str = "crates/core/src/audit.rs";
const METADATA: &str = "crates/core/src/metadata.rs";
const MYSQL: &str = "crates/engines/mysql/sql/rules.sql";
const POSTGRES: &str = "crates/engines/postgres/sql/rules.sql";
const TABLE: &str = "crates/core/src/table/mod.rs";
/// Programs for the stores.
const PROGRAMS: (&str, [&str; 2]) = ("crates/engines/", [".lua", ".sql"]);
/// Where the docs of items are shown to users: as help, and as the description of the API.
const SHOWN: [&str; 2] = ["crates/cli/src/", "crates/server/src/"];
/// Pages of `docs` that state times that were measured, and what was once the case.
const OTHER_PAGES: [&str; 4] =
    ["docs/benchmarks.md", "docs/contributing/", "docs/track-record.md", "docs/decisions/"];
/// Constants whose numbers are rarely another time in a page.
const DISTINCT: [&str; 4] = ["DEFAULT_LEASE", "MAX_FIRST_LEASE", "MIN_TOMBSTONE", "QUEUE_SILENCE"];
/// What a text is about that states a time of the contract.
const ABOUT: [&str; 6] = ["lease", "queue", "hand-off", "first grant", "tombstone", "heartbeat"];
/// Copies of another meaning.
const OTHERS: [(&str, &str); 3] = [
    // The format of the most frequent request: a queue of ten thousand.
    ("redis/scripts/acquire_fast.lua", "'x-q 10000'"),
    // How long a counter lasts after its last use.
    ("", "'86400000'"),
    // How long the signal of another library lasts.
    ("redis/scripts/plain_common.lua", "call('PEXPIRE', signal, "),
];

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let times: Vec<(&str, u64)> = CONSTANTS
        .iter()
        .filter_map(|(name, _)| {
            let seconds = seconds_of(tree, name);
            if seconds.is_none() {
                let says = format!("`{name}` is not defined in core as a number of seconds");
                found.push(Finding::whole(HOMES[1], says));
            }
            Some((*name, seconds?))
        })
        .collect();
    let (derived, of, parts) = DERIVED;
    let whole = times.iter().find(|(name, _)| *name == of);
    let in_pages: Vec<(&str, u64)> =
        times.iter().copied().chain(whole.map(|(_, seconds)| (derived, seconds / parts))).collect();
    found.extend(COUNTS.iter().flat_map(|count| in_count(tree, count)));
    let constants = constants(tree, &times);
    for file in &tree.files {
        if in_rust::is_product(file) {
            found.extend(in_rust::findings(file, &constants));
        }
        let is_program = file.path.starts_with(PROGRAMS.0)
            && PROGRAMS.1.iter().any(|end| file.path.ends_with(end));
        if is_program {
            found.extend(in_program(file, &times));
        } else if SHOWN.iter().any(|shown| file.path.starts_with(shown)) && !file.test_only {
            found.extend(in_docs(file, &times));
        } else if is_page(&file.path) {
            found.extend(in_page(file, &in_pages));
        }
    }
    found
}

/// Reads `pub const NAME: Duration = Duration::from_secs(…);`.
fn seconds_of(tree: &Tree, name: &str) -> Option<u64> {
    let start = format!("pub const {name}: Duration = Duration::from_secs(");
    let homes = HOMES.iter().filter_map(|home| tree.file(home));
    let line = homes.flat_map(|home| home.text.lines()).find_map(|l| l.strip_prefix(&start))?;
    let factors = line.strip_suffix(");")?.split('*');
    factors.map(|factor| factor.trim().parse::<u64>().ok()).product()
}

/// Reads `pub const NAME: usize = …;`.
fn count_of(tree: &Tree, name: &str, home: &str) -> Option<u64> {
    let start = format!("pub const {name}: usize = ");
    let line = tree.file(home)?.text.lines().find_map(|line| line.strip_prefix(&start))?;
    line.trim_end_matches(';').replace('_', "").parse().ok()
}

/// What Rust must name: the times and the lengths.
fn constants(tree: &Tree, times: &[(&'static str, u64)]) -> Vec<Constant> {
    let word_of = |name: &str| CONSTANTS.iter().find(|(constant, _)| *constant == name);
    let times = times.iter().filter_map(|(name, seconds)| {
        let (_, word) = word_of(name)?;
        Some(Constant { name, word, amount: Amount::Millis(seconds * 1_000) })
    });
    let lengths = LENGTHS.iter().filter_map(|(name, home, word)| {
        Some(Constant { name, word, amount: Amount::Bytes(count_of(tree, name, home)?) })
    });
    times.chain(lengths).collect()
}

/// Compares each copy of a number with its constant.
fn in_count(tree: &Tree, count: &Count) -> Vec<Finding> {
    let Count { name, home, copies } = count;
    let mut found = Vec::new();
    for (path, before) in *copies {
        let Some(file) = tree.file(path) else { continue };
        let Some(constant) = count_of(tree, name, home) else {
            return vec![Finding::whole(home, format!("`{name}` is not defined as a number"))];
        };
        let mut is_there = false;
        for (index, line) in file.text.lines().enumerate() {
            let Some((_, after)) = line.split_once(before) else { continue };
            is_there = true;
            let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            let number = &after[..end];
            if number.parse() != Ok(constant) {
                let says = format!("`{name}` is {constant}, not {number}");
                found.push(Finding::at(path, index + 1, says));
            }
        }
        if !is_there {
            let says = format!("`{before}` and a number are not there: correct `COUNTS`");
            found.push(Finding::whole(path, says));
        }
    }
    found
}

fn in_program(file: &SourceFile, times: &[(&str, u64)]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let is_other = |(end, with): &(&str, &str)| file.path.ends_with(end) && line.contains(with);
        if line.trim_start().starts_with("--") || OTHERS.iter().any(is_other) {
            continue;
        }
        for (before, number) in numbers(line) {
            // A factor is a unit of time, not a time.
            if before.trim_end().ends_with(['*', '/']) || before.ends_with("(pg_catalog.*) ") {
                continue;
            }
            let same = |seconds: u64| number == seconds * 1_000 || number == seconds * 1_000_000;
            if let Some((name, _)) = times.iter().find(|(_, seconds)| same(*seconds)) {
                let says = format!("{number} is a copy of `{name}` or its like: inject it");
                found.push(Finding::at(&file.path, index + 1, says));
            }
        }
    }
    found
}

/// The whole numbers of a line, with the text before each.
fn numbers(line: &str) -> Vec<(&str, u64)> {
    let mut numbers = Vec::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut at = 0;
    while let Some(start) = line[at..].find(is_word).map(|found| at + found) {
        let end = line[start..].find(|c| !is_word(c)).map_or(line.len(), |found| start + found);
        numbers.extend(line[start..end].parse().ok().map(|number| (&line[..start], number)));
        at = end;
    }
    numbers
}

/// Docs that state a time of a lease, a queue or a hand-off.
fn in_docs(file: &SourceFile, times: &[(&str, u64)]) -> Vec<Finding> {
    let Some(source) = &file.rust else { return Vec::new() };
    let mut docs = Docs::default();
    docs.visit_file(&source.file);
    let is_test = |line: usize| source.is_test(line);
    let shown = docs.0.iter().filter(|(line, _)| !is_test(*line));
    shown
        .filter(|(_, text)| ABOUT.iter().any(|word| text.contains(word)))
        .filter_map(|(line, text)| {
            let (name, _) = times.iter().find(|(_, seconds)| !stated(text, *seconds).is_empty())?;
            let says =
                format!("these docs state `{name}` or its like: write `@{}@`", name.to_lowercase());
            Some(Finding::at(&file.path, *line, says))
        })
        .collect()
}

/// Returns where a text states a time: what follows each statement.
fn stated(text: &str, seconds: u64) -> Vec<&str> {
    let times = [format!("{seconds}s"), format!("{seconds} s")];
    let found = times.iter().flat_map(|time| {
        text.match_indices(time.as_str()).map(|(at, _)| text.split_at(at + time.len())).filter(
            |(before, after)| {
                let before = before[..before.len() - time.len()].chars().last();
                before.is_none_or(|c| !c.is_alphanumeric() && c != '.')
                    && after.chars().next().is_none_or(|c| !c.is_alphanumeric())
            },
        )
    });
    found.map(|(_, after)| after).collect()
}

fn is_page(path: &str) -> bool {
    let of_users = path.starts_with("docs/") || ["README.md", "ARCHITECTURE.md"].contains(&path);
    of_users && path.ends_with(".md") && !OTHER_PAGES.iter().any(|other| path.starts_with(other))
}

fn in_page(file: &SourceFile, times: &[(&str, u64)]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (line, text) in prose(&file.text) {
        for (name, seconds) in times {
            let mark = format!("<!-- {name} -->");
            let marks = text.matches(&mark).count();
            let right = stated(text, *seconds).into_iter().filter(|after| after.starts_with(&mark));
            if marks != right.count() {
                let says = format!("`{name}` is {seconds} s");
                found.push(Finding::at(&file.path, line, says));
            }
        }
        let is_bare = |seconds| stated(text, seconds).iter().any(|rest| !rest.starts_with("<!--"));
        let bare =
            times.iter().find(|(name, seconds)| DISTINCT.contains(name) && is_bare(*seconds));
        if let (Some((name, seconds)), true) = (bare, ABOUT.iter().any(|word| text.contains(word)))
        {
            let says = format!("write `{seconds} s<!-- {name} -->`, or what else it is");
            found.push(Finding::at(&file.path, line, says));
        }
    }
    found
}

/// The docs of fields, variants and items, each as one text with its first line.
#[derive(Default)]
struct Docs(Vec<(usize, String)>);

impl Docs {
    fn take(&mut self, attributes: &[syn::Attribute]) {
        let mut text = String::new();
        let mut first = None;
        for attribute in attributes {
            let syn::Meta::NameValue(pair) = &attribute.meta else { continue };
            let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(line), .. }) = &pair.value else {
                continue;
            };
            if pair.path.is_ident("doc") {
                first = first.or_else(|| Some(*lines_of(attribute.span()).start()));
                text += &line.value();
            }
        }
        self.0.extend(first.map(|line| (line, text)));
    }
}

impl<'ast> Visit<'ast> for Docs {
    fn visit_field(&mut self, field: &'ast syn::Field) {
        self.take(&field.attrs);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.take(&variant.attrs);
        syn::visit::visit_variant(self, variant);
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        self.take(crate::rust_source::attributes_of(item));
        syn::visit::visit_item(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    const LEASE: &str = "pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);\n\
        pub const MAX_FIRST_LEASE: Duration = Duration::from_secs(30);\n\
        pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);\n";
    const CONTRACT: &str = "pub const MIN_TOMBSTONE: Duration = Duration::from_secs(30);\n\
        pub const QUEUE_SILENCE: Duration = Duration::from_secs(4);\n\
        pub const QUEUE_HEARTBEAT: Duration = Duration::from_secs(1);\n\
        pub const MIN_HAND_OFF_LEASE: Duration = Duration::from_secs(1);\n\
        pub const MAX_HAND_OFF_LEASE: Duration = Duration::from_secs(10);\n";
    const LUA: &str = "crates/engines/redis/scripts/common.lua";
    const SQL: &str = "crates/engines/postgres/sql/verbs.sql";
    const HELP: &str = "crates/cli/src/verbs/acquire.rs";

    fn lines(path: &str, text: &str) -> Vec<Option<usize>> {
        let files = [(HOMES[0], LEASE), (HOMES[1], CONTRACT), (path, text)];
        found(findings, &files).into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn placeholders_units_and_other_numbers_are_accepted() {
        let lua = "-- 4000 ms\nlocal us = time[1] * 1000000 + 4\nlocal now = us / 1000\nx('40001')";
        assert_eq!(lines(LUA, lua), []);
        assert_eq!(lines(SQL, "set look = @queue_heartbeat@;\nvarbinary(1024)"), []);
        let help = "struct A {\n    /// A lease [default: @default_lease@]\n    a: u8,\n\
            /// Wait, such as 30s\n    b: u8,\n    /// A lease of 130s or 30sec\n    c: u8,\n}";
        assert_eq!(lines(HELP, help), []);
    }

    #[test]
    fn copies_are_found() {
        assert_eq!(lines(LUA, "local A, B = 4000, '30000'"), [Some(1), Some(1)]);
        assert_eq!(lines(SQL, "\nif beat + 4000000 <= t then"), [Some(2)]);
        assert_eq!(lines(SQL, "set look = least(1000000, 86400000);"), [Some(1), Some(1)]);
        let help =
            "struct A {\n    /// How long the lease lasts\n    /// [default: 30s]\n    a: u8,\n}";
        assert_eq!(lines(HELP, help), [Some(2)]);
        assert_eq!(lines(HELP, "/// A queue is left after 4 s.\nfn f() {}"), [Some(1)]);
    }

    #[test]
    fn a_page_states_a_time_of_the_contract_with_its_constant() {
        let page = |text: &str| lines("docs/etcd.md", text);
        let good = "A lease of 30 s<!-- DEFAULT_LEASE --> or 30s<!-- example -->, 0.4 s, 31 s.\n\
            Another time of 30 s.\n```text\na lease of 30 s\n```";
        assert_eq!(page(good), []);
        assert_eq!(page("A lease of 30 s."), [Some(1)]);
        assert_eq!(page("A lease of 20 s<!-- DEFAULT_LEASE -->."), [Some(1)]);
        assert_eq!(lines("docs/decisions/0001-a.md", "A lease of 30 s."), []);
    }

    #[test]
    fn a_third_of_the_default_lease_is_stated_by_its_name() {
        let good = "Renewed every 10 s<!-- DEFAULT_LEASE / 3 -->, or every 10 s.";
        assert_eq!(lines("docs/scale.md", good), []);
        assert_eq!(lines("docs/scale.md", "Every 9 s<!-- DEFAULT_LEASE / 3 -->."), [Some(1)]);
    }

    #[test]
    fn a_number_of_the_table_in_sql_is_that_of_the_constant() {
        let contract = format!("{CONTRACT}pub const HAND_OVER_BATCH: usize = 64;\n");
        let table = "pub const MAX_REMEMBERED: usize = 1_024;\n";
        let of = |sql: &str| {
            let files = [(HOMES[0], LEASE), (HOMES[1], &contract), (TABLE, table), (POSTGRES, sql)];
            let found = found(findings, &files).into_iter();
            found.map(|(path, line)| (path == POSTGRES, line)).collect::<Vec<_>>()
        };
        assert_eq!(of("while handed < 64 do\nif cardinality(kept) >= 1024"), []);
        let others = "while handed < 640 do\nif cardinality(kept) >= 1025\nhanded < 64\nhanded < 1";
        assert_eq!(of(others), [(true, Some(1)), (true, Some(4)), (true, Some(2))]);
        assert_eq!(of("while handed < 64 do"), [(true, None)]);
    }

    #[test]
    fn a_constant_that_has_moved_is_found() {
        let contract = CONTRACT.replace("QUEUE_SILENCE", "SILENCE");
        assert_eq!(found(findings, &[(HOMES[0], LEASE), (HOMES[1], &contract)]).len(), 1);
    }
}
