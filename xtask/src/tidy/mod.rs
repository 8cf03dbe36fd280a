//! Style as a test: what STYLE.md asks and a machine can see.
//!
//! A rule is a function from the tree to findings. It lives in a file of its own, together with
//! a good and a bad sample. STYLE.md lists the rules by the names of [`RULES`].

mod arrows;
mod ascii_programs;
mod book;
mod changelog;
mod cycles;
mod decisions;
mod doc_blocks;
mod doc_headings;
mod engine_shape;
mod guarantees;
mod links;
mod local_traces;
mod marks;
mod messages;
mod module_heads;
mod one_constant;
mod public_face;
mod pure_core;
mod reached;
mod rust_version;
mod shapes;
mod sizes;
mod sleeping;
mod statements;
mod width;
mod words;

pub(crate) use doc_blocks::is_for_users;

use crate::tree::Tree;
use std::fmt;

/// Something that a rule does not accept.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// From one; none where the whole file is meant.
    pub(crate) line: Option<usize>,
    pub(crate) says: String,
}

impl Finding {
    pub(crate) fn at(path: &str, line: usize, says: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: Some(line), says: says.into() }
    }

    pub(crate) fn whole(path: &str, says: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: None, says: says.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.says),
            None => write!(f, "{}: {}", self.path, self.says),
        }
    }
}

struct Rule {
    name: &'static str,
    asks: &'static str,
    findings: fn(&Tree) -> Vec<Finding>,
}

const RULES: [Rule; 26] = [
    Rule {
        name: "arrows",
        asks: "crates depend on each other only along the map",
        findings: arrows::findings,
    },
    Rule {
        name: "cycles",
        asks: "the modules of a crate depend on each other in one direction",
        findings: cycles::findings,
    },
    Rule {
        name: "pure-core",
        asks: "core reads no clock, draws no random bits, does no I/O, starts nothing",
        findings: pure_core::findings,
    },
    Rule {
        name: "sizes",
        asks: "a function has at most 70 code lines, a file at most 500",
        findings: sizes::findings,
    },
    Rule {
        name: "shapes",
        asks: "the contract has at most 13 methods without bodies, options at most eight fields",
        findings: shapes::findings,
    },
    Rule {
        name: "statements",
        asks: "a `let` or an assignment for each name, and `if` for a bool",
        findings: statements::findings,
    },
    Rule {
        name: "public-face",
        asks: "the root of the library has at most 45 names, `Client` at most 25 methods",
        findings: public_face::findings,
    },
    Rule {
        name: "width",
        asks: "a line of Rust has at most 100 characters",
        findings: width::findings,
    },
    Rule {
        name: "module-heads",
        asks: "every Rust file says first what it is for",
        findings: module_heads::findings,
    },
    Rule {
        name: "doc-headings",
        asks: "headings in docs of items are those of STYLE, in its order",
        findings: doc_headings::findings,
    },
    Rule {
        name: "engine-shape",
        asks: "every engine crate has the same files",
        findings: engine_shape::findings,
    },
    Rule {
        name: "reached",
        asks: "every file of a crate is declared by a module",
        findings: reached::findings,
    },
    Rule {
        name: "marks",
        asks: "nothing is left unfinished or switched off",
        findings: marks::findings,
    },
    Rule {
        name: "sleeping",
        asks: "tests wait for events, not for time",
        findings: sleeping::findings,
    },
    Rule {
        name: "doc-blocks",
        asks: "every example in the documents is compiled or run",
        findings: doc_blocks::findings,
    },
    Rule {
        name: "links",
        asks: "links between documents lead somewhere",
        findings: links::findings,
    },
    Rule {
        name: "book",
        asks: "every page of docs stands in one table of contents, once",
        findings: book::findings,
    },
    Rule {
        name: "guarantees",
        asks: "the tests that the evidence names exist, and the tables are those of the evidence",
        findings: guarantees::findings,
    },
    Rule {
        name: "messages",
        asks: "the messages that the page of symptoms quotes are those of the code",
        findings: messages::findings,
    },
    Rule {
        name: "decisions",
        asks: "decisions are numbered, short, and have the three parts",
        findings: decisions::findings,
    },
    Rule {
        name: "changelog",
        asks: "the changelog has a place for what is not released yet",
        findings: changelog::findings,
    },
    Rule {
        name: "local-traces",
        asks: "no file names a directory of somebody's machine or a registry's host",
        findings: local_traces::findings,
    },
    Rule {
        name: "rust-version",
        asks: "no dependency needs a newer Rust than we declare",
        findings: rust_version::findings,
    },
    Rule {
        name: "one-constant",
        asks: "the times of the contract have no copies in SQL, Lua or help texts",
        findings: one_constant::findings,
    },
    Rule {
        name: "ascii-programs",
        asks: "SQL and Lua that are sent to a store are ASCII",
        findings: ascii_programs::findings,
    },
    Rule {
        name: "words",
        asks: "retired words do not come back, and the glossary explains each coined word",
        findings: words::findings,
    },
];

/// Prints every finding; true if there is none.
///
/// # Errors
/// The tree could not be read.
pub(crate) fn run() -> Result<bool, String> {
    let tree = Tree::read()?;
    let mut count = 0;
    for rule in &RULES {
        let mut findings = (rule.findings)(&tree);
        findings.sort();
        for finding in &findings {
            println!("{finding} [{}]", rule.name);
        }
        count += findings.len();
    }
    println!("tidy: {} files, {} rules, {count} findings", tree.files.len(), RULES.len());
    Ok(count == 0)
}

/// Prints the rules.
pub(crate) fn list() {
    for rule in &RULES {
        println!("{:<14} {}", rule.name, rule.asks);
    }
}

/// What a rule finds in a tree of samples, as `path:line: text` lines.
#[cfg(test)]
pub(crate) fn found(
    rule: fn(&Tree) -> Vec<Finding>,
    samples: &[(&str, &str)],
) -> Vec<(String, Option<usize>)> {
    let tree = Tree::of(samples.iter().copied()).expect("samples are Rust");
    rule(&tree).into_iter().map(|f| (f.path, f.line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_lists_every_rule() {
        let style = std::fs::read_to_string(crate::cargo::root().join("STYLE.md"));
        let style = style.expect("STYLE.md is there");
        for rule in &RULES {
            assert!(style.contains(&format!("| `{}` |", rule.name)), "no row for {}", rule.name);
        }
    }

    #[test]
    fn a_finding_shows_where() {
        assert_eq!(Finding::at("a.rs", 3, "wrong").to_string(), "a.rs:3: wrong");
        assert_eq!(Finding::whole("a.rs", "wrong").to_string(), "a.rs: wrong");
    }
}
