//! Modules with the same parent depend on each other in one direction.
//!
//! Each module that declares others is a level, and so is the root of each crate. The nodes of a
//! level are the declared modules, each with everything below it. An edge is a path outside of
//! tests that leads from one of them into another: `crate::other::…`, `super::other::…`, or an
//! item that a module on the way re-exports from there.
//!
//! What a parent defines itself belongs to no node: children may use it, as `impl` blocks of a
//! parent's type do. At the root of a crate it is a node, too. Re-exports of the root are no edges:
//! they are what the crate offers, not what it is built on.

use super::Finding;
use crate::rust_source::{RustSource, Token, lines_of};
use crate::tree::{SourceFile, Tree, module_directory};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Item, UseTree, Visibility};

/// The node of the root file.
const ROOT: &str = "crate";
/// More re-exports than lead from one name to its item.
const MAX_REEXPORTS: usize = 8;

/// The names of the modules from the root to this one.
type ModulePath = Vec<String>;

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, _) in tree.rust() {
        if !is_root_file(&file.path) {
            continue;
        }
        let modules = Modules::read(tree, &file.path);
        for (level, graph) in modules.levels() {
            let place = modules.file_of(&level);
            found.extend(graph.cycles().into_iter().map(|says| Finding::whole(place, says)));
        }
    }
    found
}

fn is_root_file(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs")
}

/// One file: what it declares and re-exports.
struct Module<'a> {
    file: &'a SourceFile,
    source: &'a RustSource,
    declared: BTreeSet<String>,
    /// The path that each imported or re-exported name stands for.
    imports: BTreeMap<String, ModulePath>,
    /// Paths before `::*`.
    globs: Vec<ModulePath>,
    /// The items that this file defines itself.
    own: BTreeSet<String>,
    /// The lines of re-exports.
    offers: Vec<RangeInclusive<usize>>,
}

impl<'a> Module<'a> {
    fn read(file: &'a SourceFile, source: &'a RustSource) -> Self {
        let mut module = Self {
            file,
            source,
            declared: BTreeSet::new(),
            imports: BTreeMap::new(),
            globs: Vec::new(),
            own: BTreeSet::new(),
            offers: Vec::new(),
        };
        for item in &source.file.items {
            let name = match item {
                Item::Mod(child) if child.content.is_none() => {
                    module.declared.insert(child.ident.to_string());
                    continue;
                }
                Item::Use(import) => {
                    module.note_use(&import.tree, &[]);
                    if !matches!(import.vis, Visibility::Inherited) {
                        module.offers.push(lines_of(import.span()));
                    }
                    continue;
                }
                Item::Fn(item) => &item.sig.ident,
                Item::Struct(item) => &item.ident,
                Item::Enum(item) => &item.ident,
                Item::Trait(item) => &item.ident,
                Item::Type(item) => &item.ident,
                Item::Const(item) => &item.ident,
                Item::Static(item) => &item.ident,
                _ => continue,
            };
            module.own.insert(name.to_string());
        }
        module
    }

    fn is_offer(&self, line: usize) -> bool {
        self.offers.iter().any(|lines| lines.contains(&line))
    }

    fn note_use(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.note_use(&path.tree, &with(&path.ident)),
            UseTree::Group(group) => {
                for item in &group.items {
                    self.note_use(item, before);
                }
            }
            UseTree::Name(name) if name.ident == "self" => {
                if let Some(last) = before.last() {
                    self.imports.insert(last.clone(), before.to_vec());
                }
            }
            UseTree::Name(name) => {
                self.imports.insert(name.ident.to_string(), with(&name.ident));
            }
            UseTree::Rename(renamed) => {
                self.imports.insert(renamed.rename.to_string(), with(&renamed.ident));
            }
            UseTree::Glob(_) => self.globs.push(before.to_vec()),
        }
    }
}

/// Where a path leads.
struct End {
    module: ModulePath,
    /// The path names the module, or an item that it defines.
    is_own: bool,
}

/// All modules of a crate that have a file.
struct Modules<'a>(BTreeMap<ModulePath, Module<'a>>);

impl<'a> Modules<'a> {
    fn read(tree: &'a Tree, root_file: &str) -> Self {
        let directory = module_directory(root_file);
        let mut modules = BTreeMap::new();
        for (file, source) in tree.rust().filter(|(file, _)| !file.test_only) {
            let place = if file.path == root_file {
                Some(Vec::new())
            } else if is_root_file(&file.path) {
                None
            } else {
                let inside = module_directory(&file.path);
                let within = inside.strip_prefix(&directory).and_then(|p| p.strip_prefix('/'));
                within.map(|path| path.split('/').map(str::to_owned).collect())
            };
            if let Some(place) = place {
                modules.insert(place, Module::read(file, source));
            }
        }
        let mut modules = Self(modules);
        modules.drop_undeclared();
        modules
    }

    /// A crate with a library and a program has files of two roots in one directory.
    fn drop_undeclared(&mut self) {
        let is_declared = |modules: &Self, place: &ModulePath| {
            (1..=place.len()).all(|depth| {
                let parent = modules.0.get(&place[..depth - 1]);
                parent.is_some_and(|parent| parent.declared.contains(&place[depth - 1]))
            })
        };
        let foreign: Vec<ModulePath> =
            self.0.keys().filter(|place| !is_declared(self, place)).cloned().collect();
        for place in foreign {
            self.0.remove(&place);
        }
    }

    fn file_of(&self, level: &ModulePath) -> &'a str {
        &self.0[level].file.path
    }

    /// The graph of each module that declares others.
    fn levels(&self) -> BTreeMap<ModulePath, Graph> {
        let mut levels: BTreeMap<ModulePath, Graph> = BTreeMap::new();
        for (from, module) in &self.0 {
            if !module.declared.is_empty() {
                levels.entry(from.clone()).or_default();
            }
            for FoundPath { line, base, path } in paths_of(from, module) {
                let to = self.resolve(base, &path, 0);
                let shared = from.iter().zip(&to.module).take_while(|(a, b)| a == b).count();
                let one = from.get(shared).map(String::as_str);
                let other = to.module.get(shared).map(String::as_str);
                let is_root = shared == 0;
                let (one, other) = match (one, other) {
                    (Some(one), Some(other)) => (one, other),
                    (Some(one), None) if is_root && to.is_own => (one, ROOT),
                    (None, Some(other)) if is_root && !module.is_offer(line) => (ROOT, other),
                    _ => continue,
                };
                let level = from[..shared].to_vec();
                levels.entry(level).or_default().add(one, other, (module.file.path.clone(), line));
            }
        }
        levels
    }

    /// Follows a path as far as modules lead.
    fn resolve(&self, base: ModulePath, path: &[String], reexports: usize) -> End {
        let mut here = base;
        for (at, name) in path.iter().enumerate() {
            let below = [here.as_slice(), std::slice::from_ref(name)].concat();
            if self.0.contains_key(&below) {
                here = below;
                continue;
            }
            let Some(module) = self.0.get(&here) else {
                return End { module: here, is_own: false };
            };
            if module.own.contains(name) || reexports == MAX_REEXPORTS {
                return End { module: here, is_own: true };
            }
            if let Some(import) = module.imports.get(name) {
                let Some((base, rest)) = self.start_of(&here, import) else {
                    return End { module: here, is_own: false };
                };
                let rest = [rest, &path[at + 1..]].concat();
                return self.resolve(base, &rest, reexports + 1);
            }
            for glob in &module.globs {
                let Some((base, rest)) = self.start_of(&here, glob) else { continue };
                let rest = [rest, &path[at..]].concat();
                let found = self.resolve(base, &rest, reexports + 1);
                if found.is_own {
                    return found;
                }
            }
            return End { module: here, is_own: false };
        }
        End { module: here, is_own: true }
    }

    /// Where a path in a `use` of this module starts, and what follows.
    fn start_of<'p>(
        &self,
        here: &[String],
        path: &'p [String],
    ) -> Option<(ModulePath, &'p [String])> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some((Vec::new(), rest)),
            "self" => Some((here.to_vec(), rest)),
            "super" => {
                let up = path.iter().take_while(|name| *name == "super").count();
                let depth = here.len().checked_sub(up)?;
                Some((here[..depth].to_vec(), &path[up..]))
            }
            name => {
                let declared = &self.0.get(here)?.declared;
                declared.contains(name).then(|| (here.to_vec(), path))
            }
        }
    }
}

/// Where an edge was seen first.
type Place = (String, usize);

#[derive(Default)]
struct Graph {
    edges: BTreeMap<String, BTreeMap<String, Place>>,
}

impl Graph {
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

/// A path in a file, and the module where it starts.
struct FoundPath {
    line: usize,
    base: ModulePath,
    path: Vec<String>,
}

/// The paths of a file that start at `crate`, `super`, `self` or a module that it declares.
fn paths_of(from: &ModulePath, module: &Module<'_>) -> Vec<FoundPath> {
    let mut inline = InlineModules::default();
    inline.visit_file(&module.source.file);
    let mut found = Vec::new();
    let tokens = &module.source.tokens;
    for at in 0..tokens.len() {
        let line = tokens[at].line;
        if module.source.is_test(line) || !is_path_start(tokens, at) {
            continue;
        }
        let mut start = at + 3;
        let base = match tokens[at].text.as_str() {
            // Not `pub(in crate::…)`.
            "crate" if at == 0 || tokens[at - 1].text != "in" => Vec::new(),
            "self" => from.clone(),
            "super" => {
                let is_super = |step: &usize| {
                    tokens.get(at + 3 * step).is_some_and(|token| token.text == "super")
                        && is_separator(tokens, at + 3 * step + 1)
                };
                let steps = (0..).take_while(is_super).count();
                start = at + 3 * steps;
                let inside = inline.0.iter().filter(|lines| lines.contains(&line)).count();
                let depth = from.len().saturating_sub(steps.saturating_sub(inside));
                from[..depth].to_vec()
            }
            name if module.declared.contains(name) => {
                start = at;
                from.clone()
            }
            _ => continue,
        };
        let mut paths = Vec::new();
        let mut next = start;
        read_paths(tokens, &mut next, &[], &mut paths);
        let starting = |path| FoundPath { line, base: base.clone(), path };
        found.extend(paths.into_iter().map(starting));
    }
    found
}

/// Reads `a::b`, or each path of `a::{b, c::d}`, from `next` on.
fn read_paths(tokens: &[Token], next: &mut usize, before: &[String], found: &mut Vec<Vec<String>>) {
    let Some(token) = tokens.get(*next) else { return };
    if token.text == "{" {
        *next += 1;
        while tokens.get(*next).is_some_and(|token| token.text != "}") {
            if tokens[*next].text == "," {
                *next += 1;
            } else {
                let at = *next;
                read_paths(tokens, next, before, found);
                // `as name`
                while tokens.get(*next).is_some_and(|t| t.text != "," && t.text != "}") {
                    *next += 1;
                }
                debug_assert!(*next > at);
            }
        }
        *next += 1;
        return;
    }
    let mut path = before.to_vec();
    if token.text != "self" && token.text != "*" {
        path.push(token.text.clone());
    }
    *next += 1;
    if is_separator(tokens, *next) {
        *next += 2;
        read_paths(tokens, next, &path, found);
    } else {
        found.push(path);
    }
}

/// A word before `::` that no `::` stands before.
fn is_path_start(tokens: &[Token], at: usize) -> bool {
    is_separator(tokens, at + 1) && (at < 2 || !is_separator(tokens, at - 2))
}

fn is_separator(tokens: &[Token], at: usize) -> bool {
    let is_colon = |token: &Token| token.text == ":";
    tokens.get(at..at + 2).is_some_and(|pair| pair.iter().all(is_colon))
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
    fn an_item_of_the_root_that_a_module_uses_is_found() {
        let root = "mod low;\nfn own() { low::start() }";
        assert_eq!(count(&[(LIB, root), ("crates/a/src/low.rs", "use crate::own;")]), 1);
        assert_eq!(count(&[(LIB, root), ("crates/a/src/low.rs", "fn own() {}")]), 0);
    }

    #[test]
    fn each_module_with_children_is_a_level() {
        let high = "mod one; mod two; mod three;\npub(crate) use two::Two;\nstruct High;";
        let with = |back: &'static str| {
            [
                (LIB, "mod high;"),
                ("crates/a/src/high/mod.rs", high),
                ("crates/a/src/high/one.rs", "use super::three::{self, Three};"),
                ("crates/a/src/high/two.rs", "use super::High;\nuse super::one::One;"),
                ("crates/a/src/high/three.rs", back),
            ]
        };
        let message_of = |back| found(findings, &with(back));
        assert_eq!(message_of("use super::High;\nfn f() {}"), []);
        for back in
            ["use super::Two;", "use crate::high::{High, Two};", "fn f() { super::two::f() }"]
        {
            assert_eq!(message_of(back), [("crates/a/src/high/mod.rs".to_owned(), None)], "{back}");
        }
    }
}
