//! How much code there is: lines by crate, without tests, comments, docs and blank lines.
//!
//! Tests are what `#[cfg(test)]` marks, `tests.rs` files, and everything below a directory
//! `tests`. Code in other languages than Rust is not counted.

use crate::tree::{SourceFile, Tree};
use std::collections::BTreeMap;

pub(crate) fn print() -> Result<(), String> {
    let by_crate = count(&Tree::read()?);
    for (name, lines) in &by_crate {
        println!("{lines:>7}  {name}");
    }
    println!("{:>7}  total", by_crate.values().sum::<usize>());
    Ok(())
}

/// Code lines by the directory of their crate.
fn count(tree: &Tree) -> BTreeMap<String, usize> {
    let mut by_crate = BTreeMap::new();
    for (file, source) in tree.rust() {
        if !is_test(file) {
            *by_crate.entry(crate_of(tree, &file.path)).or_default() += source.code_lines();
        }
    }
    by_crate
}

fn is_test(file: &SourceFile) -> bool {
    let mut parts = file.path.split('/');
    file.test_only || parts.any(|part| part == "tests" || part == "tests.rs")
}

/// The nearest directory above `path` that has a manifest.
fn crate_of(tree: &Tree, path: &str) -> String {
    let mut directory = path;
    while let Some((parent, _)) = directory.rsplit_once('/') {
        if tree.file(&format!("{parent}/Cargo.toml")).is_some() {
            return parent.to_owned();
        }
        directory = parent;
    }
    "(no crate)".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_comments_and_blank_lines_are_not_counted() {
        let tree = Tree::of([
            ("crates/a/Cargo.toml", ""),
            ("crates/a/src/lib.rs", "//! Head.\n\n// why\nmod b;\n#[cfg(test)]\nmod c;\n"),
            ("crates/a/src/b.rs", "fn b() {}\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n"),
            ("crates/a/src/b/tests.rs", "fn t() {}\n"),
            ("crates/a/src/c.rs", "fn t() {}\n"),
            ("crates/a/tests/it/main.rs", "fn t() {}\n"),
            ("crates/a/deep/Cargo.toml", ""),
            ("crates/a/deep/src/lib.rs", "fn d() {}\n"),
        ]);
        let by_crate = count(&tree.expect("the samples are Rust"));
        let expected = [("crates/a".to_owned(), 2), ("crates/a/deep".to_owned(), 1)];
        assert_eq!(by_crate, BTreeMap::from(expected));
    }
}
