//! Core is rules: no clock, no randomness, no I/O, no runtime.
//!
//! Two looks: words in its source outside of tests, and the crates that it pulls in.

use super::Finding;
use crate::rust_source::RustSource;
use crate::tree::Tree;
use std::collections::BTreeSet;
use syn::UseTree;
use syn::spanned::Spanned;
use syn::visit::Visit;

const SOURCE: &str = "crates/core/src/";
const PACKAGE: &str = "holdline-core";

/// Paths that rules have no use for, as they end or begin.
const BANNED_PATHS: [&str; 18] = [
    "Instant::now",
    "SystemTime::now",
    "std::time::Instant",
    "std::time::SystemTime",
    "RandomState",
    // Their order is drawn anew in every process.
    "HashMap",
    "HashSet",
    "std::thread",
    "std::os::unix",
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
    "rand::",
    "tokio::",
];

/// Crates that bring a clock, randomness, a runtime or I/O along.
const BANNED_CRATES: [&str; 12] = [
    "async-io",
    "chrono",
    "fastrand",
    "getrandom",
    "jiff",
    "mio",
    "nix",
    "rand",
    "rustix",
    "smol",
    "tokio",
    "uuid",
];

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = crates(tree);
    if !tree.files.iter().any(|file| file.path.starts_with(SOURCE)) {
        found.push(Finding::whole(SOURCE, "missing, so that nothing of core was looked at"));
    }
    for (file, source) in tree.rust() {
        if file.path.starts_with(SOURCE) && !file.test_only {
            let words = words(source).into_iter().filter(|(line, _)| !source.is_test(*line));
            found.extend(words.map(|(line, path)| {
                Finding::at(&file.path, line, format!("core may not use `{path}`: pass it in"))
            }));
        }
    }
    found
}

/// The banned paths in a file with their lines, each once a line.
fn words(source: &RustSource) -> BTreeSet<(usize, &'static str)> {
    let mut found = BTreeSet::new();
    let mut imports = Imports::default();
    imports.visit_file(&source.file);
    for path in BANNED_PATHS {
        let wanted = tokens_of(path);
        let windows = source.tokens.windows(wanted.len());
        let hits = windows.filter(|w| w.iter().map(|t| t.text.as_str()).eq(wanted.iter().copied()));
        found.extend(hits.map(|w| (w[0].line, path)));
        let same = |import: &str| format!("::{import}::").contains(&format!("::{path}"));
        found.extend(imports.0.iter().filter(|(_, i)| same(i)).map(|(line, _)| (*line, path)));
    }
    found
}

/// `a::b` as the tokens `a`, `:`, `:`, `b`.
fn tokens_of(path: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    for (index, part) in path.split("::").enumerate() {
        if index > 0 {
            tokens.extend([":", ":"]);
        }
        if !part.is_empty() {
            tokens.push(part);
        }
    }
    tokens
}

/// The full paths of `use` items, groups taken apart.
#[derive(Default)]
struct Imports(Vec<(usize, String)>);

impl Imports {
    fn take(&mut self, tree: &UseTree, before: &str) {
        match tree {
            UseTree::Path(path) => self.take(&path.tree, &format!("{before}{}::", path.ident)),
            UseTree::Name(name) => self.push(&name.ident, before),
            UseTree::Rename(renamed) => self.push(&renamed.ident, before),
            UseTree::Group(group) => group.items.iter().for_each(|item| self.take(item, before)),
            UseTree::Glob(star) => {
                let line = star.span().start().line;
                self.0.push((line, before.trim_end_matches("::").to_owned()));
            }
        }
    }

    fn push(&mut self, last: &proc_macro2::Ident, before: &str) {
        self.0.push((last.span().start().line, format!("{before}{last}")));
    }
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.take(&item.tree, "");
    }
}

/// Banned crates among all that core's product needs.
fn crates(tree: &Tree) -> Vec<Finding> {
    let metadata = &tree.metadata;
    let core = metadata.members().filter(|m| m.name == PACKAGE);
    let reached = metadata.reach(core, |d| d.kind.is_none());
    let banned = reached.into_iter().filter(|p| BANNED_CRATES.contains(&p.name.as_str()));
    let says = |name: &str| format!("core may not pull in `{name}`");
    banned.map(|p| Finding::whole("crates/core/Cargo.toml", says(&p.name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    const PATH: &str = "crates/core/src/lease.rs";

    #[test]
    fn rules_and_tests_are_accepted() {
        let good = "//! Never calls Instant::now.\n\
            use std::time::Duration;\n\
            fn later(now: Moment) -> Moment { now }\n\
            #[cfg(test)]\nmod tests {\n    use std::fs;\n    fn f() { std::env::args(); }\n}\n";
        assert_eq!(found(findings, &[(PATH, good)]), []);
        let elsewhere = "fn f() { std::time::Instant::now(); }";
        let core = (PATH, "");
        assert_eq!(found(findings, &[("crates/cli/src/main.rs", elsewhere), core]), []);
    }

    #[test]
    fn clocks_randomness_and_spawning_are_found() {
        for bad in [
            "fn f() { std::time::Instant::now(); }",
            "use std::{fmt, fs};",
            "use std::net::TcpStream;",
            "use rand::Rng;",
            "use std::thread::{self, spawn};",
            "use std::{fs::*};",
            "use std::{time::Instant as Clock};",
            "use std::os::unix::net::UnixStream;",
            "fn f() { std::thread::scope(|_| ()); }",
            "fn f() { RandomState::new(); }",
            "use std::collections::HashMap;",
            "fn f() { tokio::spawn(async {}); }",
            "fn f() { assert!(std::env::var(\"A\").is_ok()); }",
        ] {
            let mut reply = found(findings, &[(PATH, bad)]);
            reply.dedup();
            assert_eq!(reply, [(PATH.to_owned(), Some(1))], "{bad}");
        }
    }

    #[test]
    fn a_core_that_has_moved_is_found() {
        assert_eq!(found(findings, &[("crates/rules/src/lib.rs", "")]), [(SOURCE.into(), None)]);
    }

    #[test]
    fn a_name_that_only_ends_alike_is_no_hit() {
        let good = "use crate::operand::Kind;\nfn f() { mod_rand::x(); }";
        assert_eq!(found(findings, &[(PATH, good)]), []);
    }
}
