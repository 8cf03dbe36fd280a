//! Every example in the documents is compiled or run.
//!
//! Rust blocks of README.md and docs/ are doctests of the library: its file `readme.rs` includes
//! each document that has one. The README of another crate is included by that crate in the same
//! way. A block that is only compiled there (`no_run`), since it names a server, stands in an
//! example of the library too, which the tests run. `cargo xtask check examples` runs the blocks
//! marked `sh run` and `python run`. A block that names a file, as in `js interop/node/guide.cjs`,
//! is a part of that file, which the tests run. Every block of shell is run: what is only shown,
//! such as an installation, is `console`. The tests of the Python package run `python holdline`.

use super::Finding;
use crate::markdown::{Fence, fences, prose};
use crate::tree::{SourceFile, Tree};

const INCLUDES: &str = "crates/holdline/src/readme.rs";
const EXAMPLES: &str = "crates/holdline/examples/";
/// Where each block of Python is run by its mark. The tests of the Python package run those of
/// its own pages.
const PYTHON: [&str; 3] = ["docs/tasks/", "docs/migrate/", "docs/recipes/"];

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.markdown() {
        let blocks = fences(&file.text);
        for block in blocks.iter().filter(|b| b.language().is_empty()) {
            let says = "a block without a language: say `text` if it is none";
            found.push(Finding::at(&file.path, block.line, says));
        }
        let tildes = prose(&file.text).into_iter();
        for (line, _) in tildes.filter(|(_, text)| text.trim_start().starts_with("~~~")) {
            let says = "a block fenced by `~~~`, which is neither compiled nor run: use backticks";
            found.push(Finding::at(&file.path, line, says));
        }
        if is_for_users(file) {
            found.extend(rust_blocks(tree, file));
            found.extend(blocks.iter().filter_map(|block| wrong_words(tree, file, block)));
        }
    }
    let roots = tree.files.iter().filter_map(|f| f.path.strip_suffix("/readme.rs"));
    for root in roots.map(|directory| format!("{directory}/lib.rs")) {
        if !declares_includes(tree, &root) {
            found.push(Finding::whole(&root, "has no `#[cfg(doctest)] mod readme;`"));
        }
    }
    found
}

/// The first page, those of crates, and everything below docs/, decisions apart: those are history.
pub(crate) fn is_for_users(file: &SourceFile) -> bool {
    let docs = file.path.starts_with("docs/") && !file.path.starts_with("docs/decisions/");
    file.path == "README.md"
        || crate_of(&file.path).is_some()
        || (docs && file.path.ends_with(".md"))
}

/// The directory of the crate whose first page this is.
fn crate_of(path: &str) -> Option<&str> {
    path.strip_suffix("/README.md").filter(|directory| directory.starts_with("crates/"))
}

/// The file that makes a document doctests, and the attribute that does it.
fn include_of(path: &str) -> (String, String) {
    let (file, document) = match crate_of(path) {
        Some(directory) => (format!("{directory}/src/readme.rs"), "../README.md".to_owned()),
        None => (INCLUDES.to_owned(), format!("../../../{path}")),
    };
    (file, format!("#[doc = include_str!(\"{document}\")]"))
}

fn declares_includes(tree: &Tree, root: &str) -> bool {
    let root = tree.file(root).and_then(|f| f.rust.as_ref());
    root.is_some_and(|source| {
        source.tokens.windows(2).any(|w| w[0].text == "mod" && w[1].text == "readme")
    })
}

/// A block that is not run although it stands where all are, or that is not in the file it names.
fn wrong_words(tree: &Tree, file: &SourceFile, block: &Fence) -> Option<Finding> {
    let runs = block.has("run") || (block.language() == "python" && block.has("holdline"));
    let must = match block.language() {
        "sh" => true,
        "python" => PYTHON.iter().any(|directory| file.path.starts_with(directory)),
        _ => false,
    };
    let Some(source) = block.words.iter().skip(1).find(|word| word.contains('/')) else {
        return (must && !runs)
            .then(|| Finding::at(&file.path, block.line, "not run: say `run`, or `console`"));
    };
    let trimmed = |lines: &mut dyn Iterator<Item = &str>| -> String {
        lines.map(str::trim).filter(|line| !line.is_empty()).flat_map(|line| [line, "\n"]).collect()
    };
    let part = trimmed(&mut block.body.iter().map(String::as_str));
    let whole = tree.file(source).map(|source| trimmed(&mut source.text.lines()));
    let is_part = whole.is_some_and(|whole| whole.contains(&part));
    let says = format!("is no part of {source}");
    (!is_part).then(|| Finding::at(&file.path, block.line, says))
}

fn rust_blocks(tree: &Tree, file: &SourceFile) -> Vec<Finding> {
    let blocks = fences(&file.text);
    let rust: Vec<_> = blocks.iter().filter(|b| b.language() == "rust").collect();
    let mut found = Vec::new();
    for block in &rust {
        if block.has("ignore") || (block.has("no_run") && !is_an_example(tree, block)) {
            let says = "`ignore`, or `no_run` and no part of an example: it is not run";
            found.push(Finding::at(&file.path, block.line, says));
        }
        if block.body.iter().any(|line| line.trim() == "#" || line.trim().starts_with("# ")) {
            let says = "a line that rustdoc hides, and other pages show: write the whole program";
            found.push(Finding::at(&file.path, block.line, says));
        }
    }
    let (includes, line) = include_of(&file.path);
    let included = tree.file(&includes).map_or("", |f| f.text.as_str());
    if let Some(first) = rust.first()
        && !included.lines().any(|l| l.trim() == line)
    {
        let says = format!("not compiled: add `{line}` to {includes}");
        found.push(Finding::at(&file.path, first.line, says));
    }
    found
}

/// Whether an example, which the tests run, contains the block.
fn is_an_example(tree: &Tree, block: &Fence) -> bool {
    let mut examples = tree.files.iter().filter(|file| file.path.starts_with(EXAMPLES));
    examples.any(|file| file.text.contains(&block.body.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    const LIBRARY: &str = "crates/holdline/src/lib.rs";
    const LIB: (&str, &str) = (LIBRARY, "#[cfg(doctest)]\nmod readme;");
    const EXAMPLE: &str = "crates/holdline/examples/one.rs";
    const BLOCK: &str = "# A\n\n```rust\nfn main() {}\n```\n";

    #[test]
    fn an_included_document_is_accepted() {
        let includes = "#[doc = include_str!(\"../../../README.md\")]\npub struct Readme;";
        let text = format!("{BLOCK}\n```sh run\ntrue\n```\n");
        assert_eq!(found(findings, &[LIB, (INCLUDES, includes), ("README.md", &text)]), []);
        assert_eq!(found(findings, &[("docs/decisions/0001-a.md", BLOCK)]), []);
        assert_eq!(found(findings, &[("README.md", "no blocks")]), []);
    }

    #[test]
    fn a_document_that_is_not_included_is_found() {
        // Words about an include are none.
        let words = "//! #[doc = include_str!(\"../../../README.md\")]";
        for path in ["README.md", "docs/choosing.md"] {
            let reply = found(findings, &[LIB, (INCLUDES, words), (path, BLOCK)]);
            assert_eq!(reply, [(path.to_owned(), Some(3))]);
        }
    }

    #[test]
    fn a_crate_includes_its_own_first_page() {
        let page = ("crates/a/README.md", BLOCK);
        let includes =
            ("crates/a/src/readme.rs", "#[doc = include_str!(\"../README.md\")]\nstruct R;");
        let root = ("crates/a/src/lib.rs", "#[cfg(doctest)]\nmod readme;");
        assert_eq!(found(findings, &[page, includes, root]), []);
        assert_eq!(found(findings, &[page, root]), [(page.0.to_owned(), Some(3))]);
        let empty = (root.0, "mod a;");
        assert_eq!(found(findings, &[page, includes, empty]), [(root.0.to_owned(), None)]);
    }

    #[test]
    fn undeclared_includes_are_found() {
        let reply = found(findings, &[(LIBRARY, "mod client;"), (INCLUDES, "")]);
        assert_eq!(reply, [(LIBRARY.to_owned(), None)]);
    }

    #[test]
    fn a_block_that_is_not_run_or_has_no_language_is_found() {
        let includes = "#[doc = include_str!(\"../../../README.md\")]\npub struct Readme;";
        let hidden = "```rust\n# fn main() {\nshown();\n# }\n```";
        for bad in
            ["```rust,no_run\n```", "```rust ignore\n```", "```\nwhat\n```", "~~~rust", hidden]
        {
            let reply = found(findings, &[LIB, (INCLUDES, includes), ("README.md", bad)]);
            assert_eq!(reply, [("README.md".to_owned(), Some(1))], "{bad}");
        }
    }

    #[test]
    fn blocks_of_the_book_are_run() {
        let of =
            |text| found(findings, &[("docs/tasks/a.md", text), ("CONTRIBUTING.md", "```sh\n```")]);
        for good in ["```sh run\n```", "```python holdline\n```", "```console\n```"] {
            assert_eq!(of(good), [], "{good}");
        }
        for bad in ["```sh\n```", "```python\n```", "```sh holdline\n```"] {
            assert_eq!(of(bad), [("docs/tasks/a.md".to_owned(), Some(1))], "{bad}");
        }
    }

    #[test]
    fn a_block_is_a_part_of_the_file_that_it_names() {
        let program = ("interop/a.js", "'use strict';\n{\n  held();\n  done();\n}\n");
        let of = |text| found(findings, &[("docs/a.md", text), program]);
        assert_eq!(of("```js interop/a.js\nheld();\ndone();\n```"), []);
        for bad in ["```js interop/a.js\nlost();\n```", "```js interop/b.js\nheld();\n```"] {
            assert_eq!(of(bad), [("docs/a.md".to_owned(), Some(1))], "{bad}");
        }
    }

    #[test]
    fn a_block_that_is_not_run_stands_in_an_example() {
        let includes = "#[doc = include_str!(\"../../../README.md\")]\npub struct Readme;";
        let readme = ("README.md", "```rust,no_run\nfn main() {\n}\n```");
        let tree = |example| [LIB, (INCLUDES, includes), readme, (EXAMPLE, example)];
        assert_eq!(found(findings, &tree("//! One.\n\nfn main() {\n}\n")), []);
        let reply = found(findings, &tree("//! One.\n\nfn main() {\n    work();\n}\n"));
        assert_eq!(reply, [("README.md".to_owned(), Some(1))]);
    }
}
