//! The top-level modules of a crate depend on each other in one direction.
//!
//! The graph has a node for each module that `lib.rs` or `main.rs` declares, and one for the root
//! itself. An edge is a path outside of tests: `crate::other::…`, `super::other::…` that leaves the
//! module, or `crate::Item` where the root re-exports the item of another module. Re-exports of the
//! root are no edges: they are what the crate offers, not what it is built on.

use super::Finding;
use crate::rust_source::{RustSource, Token, lines_of};
use crate::tree::{SourceFile, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Item, UseTree, Visibility};

/// Crates whose modules still form cycles. The rule covers all others.
const NOT_YET: [&str; 1] = ["crates/server"];
/// The node of the root file.
const ROOT: &str = "crate";

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, source) in tree.rust() {
        let Some(directory) = root_directory(&file.path) else { continue };
        let cycles = Graph::read(tree, directory, file, source).cycles();
        match NOT_YET.iter().any(|of| directory.strip_suffix("/src") == Some(of)) {
            true if cycles.is_empty() => {
                let says = "no cycle is left: take this crate off the list `NOT_YET` of the rule";
                found.push(Finding::whole(&file.path, says));
            }
            true => {}
            false => {
                found.extend(cycles.into_iter().map(|says| Finding::whole(&file.path, says)));
            }
        }
    }
    found
}

/// Returns the directory of a crate's sources if this is its root file.
fn root_directory(path: &str) -> Option<&str> {
    let directory = path.strip_suffix("/lib.rs").or_else(|| path.strip_suffix("/main.rs"))?;
    directory.ends_with("/src").then_some(directory)
}

/// What the root file declares.
#[derive(Default)]
struct Root {
    modules: BTreeSet<String>,
    /// The module of each re-exported item.
    exports: BTreeMap<String, String>,
    /// The items of the root itself.
    own: BTreeSet<String>,
    /// The lines of re-exports.
    offers: Vec<RangeInclusive<usize>>,
}

impl Root {
    fn read(source: &RustSource) -> Root {
        let mut root = Root::default();
        for item in &source.file.items {
            let name = match item {
                Item::Mod(module) if module.content.is_none() => {
                    root.modules.insert(module.ident.to_string());
                    continue;
                }
                Item::Fn(item) => item.sig.ident.to_string(),
                Item::Struct(item) => item.ident.to_string(),
                Item::Enum(item) => item.ident.to_string(),
                Item::Trait(item) => item.ident.to_string(),
                Item::Type(item) => item.ident.to_string(),
                Item::Const(item) => item.ident.to_string(),
                Item::Static(item) => item.ident.to_string(),
                _ => continue,
            };
            root.own.insert(name);
        }
        for item in &source.file.items {
            let Item::Use(item) = item else { continue };
            root.note_use(&item.tree, None);
            if !matches!(item.vis, Visibility::Inherited) {
                root.offers.push(lines_of(item.span()));
            }
        }
        root
    }

    /// Notes the names of a `use` of the root; `module` is the module that its path leads into.
    fn note_use(&mut self, tree: &UseTree, module: Option<&str>) {
        match (tree, module) {
            (UseTree::Path(path), Some(_)) => self.note_use(&path.tree, module),
            (UseTree::Path(path), None) => {
                let first = path.ident.to_string();
                match first.as_str() {
                    "crate" | "self" => self.note_use(&path.tree, None),
                    _ if self.modules.contains(&first) => {
                        self.note_use(&path.tree, Some(&first));
                    }
                    _ => {}
                }
            }
            (UseTree::Group(group), _) => {
                group.items.iter().for_each(|item| self.note_use(item, module));
            }
            (UseTree::Name(name), Some(module)) => {
                self.exports.insert(name.ident.to_string(), module.to_owned());
            }
            (UseTree::Rename(renamed), Some(module)) => {
                self.exports.insert(renamed.rename.to_string(), module.to_owned());
            }
            _ => {}
        }
    }

    /// Returns the node of `crate::name`.
    fn node_of(&self, name: &str) -> Option<&str> {
        if let Some(module) = self.modules.get(name) {
            return Some(module);
        }
        let export = self.exports.get(name).map(String::as_str);
        export.or_else(|| self.own.contains(name).then_some(ROOT))
    }
}

/// Where an edge was seen first.
type Place = (String, usize);

#[derive(Default)]
struct Graph {
    edges: BTreeMap<String, BTreeMap<String, Place>>,
}

impl Graph {
    fn read(tree: &Tree, directory: &str, root_file: &SourceFile, source: &RustSource) -> Graph {
        let root = Root::read(source);
        let mut graph = Graph::default();
        for (file, source) in tree.rust().filter(|(file, _)| !file.test_only) {
            let Some(within) = file.path.strip_prefix(directory).and_then(|p| p.strip_prefix('/'))
            else {
                continue;
            };
            if file.path == root_file.path {
                graph.read_root(&root, file, source);
                continue;
            }
            let path: Vec<&str> =
                within.trim_end_matches(".rs").split('/').filter(|part| *part != "mod").collect();
            if !root.modules.contains(path[0]) {
                continue;
            }
            for (line, name) in names_at_root(source, path.len()) {
                if let Some(to) = root.node_of(&name) {
                    graph.add(path[0], to, (file.path.clone(), line));
                }
            }
        }
        graph
    }

    /// The root's code names modules without `crate::`.
    fn read_root(&mut self, root: &Root, file: &SourceFile, source: &RustSource) {
        for at in 0..source.tokens.len() {
            let Token { line, text } = &source.tokens[at];
            let is_offer = root.offers.iter().any(|lines| lines.contains(line));
            if !is_offer && !source.is_test(*line) && is_path_start(&source.tokens, at) {
                let used = root.modules.get(text);
                used.into_iter().for_each(|to| self.add(ROOT, to, (file.path.clone(), *line)));
            }
        }
    }

    fn add(&mut self, from: &str, to: &str, place: Place) {
        if from != to {
            let edges = self.edges.entry(from.to_owned()).or_default();
            edges.entry(to.to_owned()).or_insert(place);
        }
    }

    fn reach(&self, from: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut next = vec![from];
        while let Some(node) = next.pop() {
            for to in self.edges.get(node).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(to.as_str()) {
                    next.push(to);
                }
            }
        }
        reached
    }

    /// Describes each set of modules that reach each other.
    fn cycles(&self) -> Vec<String> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.edges.keys().map(|node| (node.as_str(), self.reach(node))).collect();
        let is_mutual = |a: &str, b: &str| {
            let leads = |from, to| reached.get(from).is_some_and(|nodes| nodes.contains(to));
            leads(a, b) && leads(b, a)
        };
        let mut says = Vec::new();
        let mut seen = BTreeSet::new();
        for node in reached.keys().filter(|node| is_mutual(node, node)) {
            if !seen.insert(*node) {
                continue;
            }
            let members: Vec<&str> =
                reached.keys().copied().filter(|other| is_mutual(node, other)).collect();
            seen.extend(&members);
            let mut edges = Vec::new();
            for from in &members {
                for (to, (path, line)) in &self.edges[*from] {
                    if members.contains(&to.as_str()) {
                        edges.push(format!("{from} uses {to} ({path}:{line})"));
                    }
                }
            }
            says.push(format!("modules in a cycle: {}", edges.join(", ")));
        }
        says
    }
}

/// The names that paths of a file lead to at the root, with their lines. `depth` is the number of
/// modules from the root to this file.
fn names_at_root(source: &RustSource, depth: usize) -> Vec<(usize, String)> {
    let mut inline = InlineModules::default();
    inline.visit_file(&source.file);
    let mut found = Vec::new();
    let tokens = &source.tokens;
    for at in 0..tokens.len() {
        let line = tokens[at].line;
        if source.is_test(line) || !is_path_start(tokens, at) {
            continue;
        }
        let after = match tokens[at].text.as_str() {
            // Not `pub(in crate::…)`.
            "crate" if at == 0 || tokens[at - 1].text != "in" => at + 3,
            "super" => {
                let depth = depth + inline.0.iter().filter(|lines| lines.contains(&line)).count();
                let is_up = |step: &usize| {
                    tokens.get(at + 3 * step).is_some_and(|token| token.text == "super")
                        && is_separator(tokens, at + 3 * step + 1)
                };
                let steps = (0..).take_while(is_up).count();
                if steps != depth {
                    continue;
                }
                at + 3 * steps
            }
            _ => continue,
        };
        found.extend(first_names(&tokens[after..]).into_iter().map(|name| (line, name)));
    }
    found
}

/// A word before `::` that no `::` stands before.
fn is_path_start(tokens: &[Token], at: usize) -> bool {
    is_separator(tokens, at + 1) && (at < 2 || !is_separator(tokens, at - 2))
}

fn is_separator(tokens: &[Token], at: usize) -> bool {
    let is_colon = |token: &Token| token.text == ":";
    tokens.get(at..at + 2).is_some_and(|pair| pair.iter().all(is_colon))
}

/// The first word of a path, or of each path in a group.
fn first_names(tokens: &[Token]) -> Vec<String> {
    let mut names = Vec::new();
    let mut depth = 0;
    let mut is_first = true;
    for token in tokens {
        match token.text.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 1 => is_first = true,
            text if is_first => {
                names.push(text.to_owned());
                is_first = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

#[derive(Default)]
struct InlineModules(Vec<RangeInclusive<usize>>);

impl<'ast> Visit<'ast> for InlineModules {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_some() {
            self.0.push(lines_of(item.span()));
        }
        syn::visit::visit_item_mod(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    const LIB: &str = "crates/a/src/lib.rs";

    fn count(files: &[(&str, &str)]) -> usize {
        let reply = found(findings, files);
        assert!(reply.iter().all(|(path, line)| path == LIB && line.is_none()), "{reply:?}");
        reply.len()
    }

    #[test]
    fn one_direction_is_accepted() {
        let good = [
            (LIB, "mod low; mod high; mod other;\npub use high::High;\nuse low::Low;\nfn own() {}"),
            ("crates/a/src/low.rs", "//! crate::high\npub(in crate::high) struct Low;"),
            ("crates/a/src/high/mod.rs", "use crate::{low::Low, other};\nmod inner;"),
            ("crates/a/src/high/inner.rs", "use super::super::low;\nuse super::High;"),
            (
                "crates/a/src/other.rs",
                "mod inline {\n    use super::high;\n}\n\
                 #[cfg(test)]\nmod tests {\n    use crate::high::High;\n}",
            ),
        ];
        assert_eq!(count(&good), 0);
    }

    #[test]
    fn a_cycle_is_found_however_it_is_written() {
        for back in [
            "use crate::high::High;",
            "use super::high::High;",
            "use crate::{fmt, high::{self, High}};",
            "fn f() { crate::high::f() }",
            "use crate::High;",
            "use crate::other;",
            "mod inline {\n    use super::super::high;\n}",
            "macro_rules! m { () => { crate::high::f() } }",
        ] {
            let bad = [
                (LIB, "mod low; mod high; mod other;\npub use high::High;"),
                ("crates/a/src/low.rs", back),
                ("crates/a/src/high.rs", "use crate::low::Low;"),
                ("crates/a/src/other.rs", "use crate::high;"),
            ];
            assert_eq!(count(&bad), 1, "{back}");
        }
    }

    #[test]
    fn a_crate_on_the_list_has_a_cycle() {
        let root = |file| format!("{}/src/{file}.rs", NOT_YET[0]);
        let (lib, a, b) = (root("lib"), root("a"), root("b"));
        let (lib, a, b) = (lib.as_str(), a.as_str(), b.as_str());
        let cycle = [(lib, "mod a; mod b;"), (a, "use crate::b;"), (b, "use crate::a;")];
        assert_eq!(found(findings, &cycle), []);
        assert_eq!(found(findings, &cycle[..2]), [(lib.to_owned(), None)]);
    }

    #[test]
    fn an_item_of_the_root_that_a_module_uses_is_found() {
        let root = "mod low;\nfn own() { low::start() }";
        assert_eq!(count(&[(LIB, root), ("crates/a/src/low.rs", "use crate::own;")]), 1);
        assert_eq!(count(&[(LIB, root), ("crates/a/src/low.rs", "fn own() {}")]), 0);
    }
}
