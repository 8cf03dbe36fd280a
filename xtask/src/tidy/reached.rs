//! Every Rust file of a crate is part of it: a file that no module declares is not compiled, and
//! its tests do not run, although it looks as if they did.

use super::Finding;
use crate::rust_source::RustSource;
use crate::tree::{Tree, module_directory};
use std::collections::BTreeSet;
use syn::visit::Visit;

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let metadata = &tree.metadata;
    let mut members: Vec<String> =
        metadata.members().map(|member| metadata.directory_of(member) + "/").collect();
    members.sort();
    let reached = reached(tree, metadata.roots());
    let lost = tree.rust().filter(|(file, _)| {
        let ours = members.iter().any(|directory| file.path.starts_with(directory));
        ours && !reached.contains(&file.path)
    });
    let says = "no module declares this file, so it is not compiled and no test in it runs";
    lost.map(|(file, _)| Finding::whole(&file.path, says)).collect()
}

/// The files of all targets: their roots, and what is declared from there.
fn reached(tree: &Tree, roots: Vec<String>) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<(String, bool)> = roots.into_iter().map(|root| (root, true)).collect();
    while let Some((path, is_root)) = next.pop() {
        let Some(file) = tree.file(&path) else { continue };
        let Some(source) = file.rust.as_ref().filter(|_| reached.insert(path.clone())) else {
            continue;
        };
        let parent = path.rsplit_once('/').map_or("", |(directory, _)| directory).to_owned();
        let inside = if is_root { parent.clone() } else { module_directory(&path) };
        for module in declared(source) {
            match module {
                Declared::At(path) => next.push((format!("{parent}/{path}"), false)),
                Declared::Named(stem) => {
                    next.push((format!("{inside}/{stem}.rs"), false));
                    next.push((format!("{inside}/{stem}/mod.rs"), false));
                }
            }
        }
    }
    reached
}

enum Declared {
    /// `a/b` for `mod a { mod b; }`.
    Named(String),
    /// By `#[path = "…"]`.
    At(String),
}

fn declared(source: &RustSource) -> Vec<Declared> {
    let mut modules = Modules::default();
    modules.visit_file(&source.file);
    modules.found
}

#[derive(Default)]
struct Modules {
    within: Vec<String>,
    found: Vec<Declared>,
}

impl<'ast> Visit<'ast> for Modules {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        if item.content.is_some() {
            self.within.push(name);
            syn::visit::visit_item_mod(self, item);
            self.within.pop();
            return;
        }
        self.found.push(match item.attrs.iter().find_map(path_of) {
            Some(path) => Declared::At(path),
            None => {
                let mut parts = self.within.clone();
                parts.push(name);
                Declared::Named(parts.join("/"))
            }
        });
    }
}

fn path_of(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else {
        return None;
    };
    pair.path.is_ident("path").then(|| text.value())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Metadata, Package, Target};

    fn message_of(files: &[(&str, &str)]) -> Vec<String> {
        let root = |path: &str| Target { src_path: format!("/r/crates/a/{path}").into() };
        let package = Package {
            id: "a".to_owned(),
            manifest_path: "/r/crates/a/Cargo.toml".into(),
            targets: vec![root("src/lib.rs"), root("tests/it/main.rs"), root("tests/one.rs")],
            ..Package::default()
        };
        let metadata = Metadata {
            packages: vec![package],
            workspace_members: vec!["a".to_owned()],
            workspace_root: "/r".into(),
            ..Metadata::default()
        };
        let files = files.iter().map(|(path, text)| (format!("crates/a/{path}"), *text));
        let tree = Tree { metadata, ..Tree::of(files).expect("Rust") };
        findings(&tree).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn declared_files_are_accepted() {
        let files = [
            ("src/lib.rs", "mod a; mod b { mod c; }\n#[path = \"odd.rs\"] mod d;"),
            ("src/a.rs", "#[cfg(test)] mod tests;"),
            ("src/a/tests.rs", ""),
            ("src/b/c/mod.rs", "mod e;"),
            ("src/b/c/e.rs", ""),
            ("src/odd.rs", ""),
            ("tests/one.rs", "mod two;"),
            ("tests/two.rs", ""),
            ("tests/it/main.rs", "mod cases;"),
            ("tests/it/cases/mod.rs", ""),
        ];
        assert_eq!(message_of(&files), Vec::<String>::new());
    }

    #[test]
    fn a_file_of_tests_that_no_module_declares_is_found() {
        let files = [
            ("src/lib.rs", "mod a;\n// mod forgotten;"),
            ("src/a.rs", ""),
            ("src/forgotten.rs", ""),
            ("tests/it/main.rs", "mod cases;"),
            ("tests/it/cases.rs", ""),
            ("tests/it/more.rs", "#[test] fn never_runs() {}"),
        ];
        assert_eq!(message_of(&files), ["crates/a/src/forgotten.rs", "crates/a/tests/it/more.rs"]);
    }
}
