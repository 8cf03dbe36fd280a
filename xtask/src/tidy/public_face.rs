//! The root of the library has few names, and its `Client` few methods.
//!
//! A newcomer reads both lists from end to end. What only some programs need belongs into a public
//! module with a page of its own.

use super::Finding;
use crate::tree::Tree;
use syn::{ImplItem, Item, ItemImpl, Type, UseTree, Visibility};

const SOURCES: &str = "crates/holdline/src/";
const ROOT: &str = "crates/holdline/src/lib.rs";
/// The names that the root may re-export.
const NAMES: usize = 45;
/// The public methods that a `Client` may have, with and without async.
const METHODS: usize = 25;

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut names = 0;
    let mut methods = 0;
    let mut blocking_methods = 0;
    for (file, source) in tree.rust().filter(|(file, _)| file.path.starts_with(SOURCES)) {
        let items = &source.file.items;
        if file.path == ROOT {
            names = items.iter().map(names_of).sum();
        }
        let count: usize = items.iter().map(client_methods_of).sum();
        if file.path.contains("/blocking/") { blocking_methods += count } else { methods += count }
    }
    let mut found = Vec::new();
    let mut check = |count: usize, most: usize, what: &str| {
        if count > most {
            let says = format!(
                "{what}: {count}, and at most {most} are read with ease: move some to a module"
            );
            found.push(Finding::whole(ROOT, says));
        }
    };
    check(names, NAMES, "names at the root");
    check(methods, METHODS, "methods of `Client`");
    check(blocking_methods, METHODS, "methods of `blocking::Client`");
    found
}

/// Counts the names that an item of the root makes public; modules are not counted.
fn names_of(item: &Item) -> usize {
    let visibility = match item {
        Item::Use(item) if matches!(item.vis, Visibility::Public(_)) => return leaves(&item.tree),
        Item::Const(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::Type(item) => &item.vis,
        _ => return 0,
    };
    usize::from(matches!(visibility, Visibility::Public(_)))
}

/// Counts the names of a `use`. A glob brings any number, which is too many.
fn leaves(tree: &UseTree) -> usize {
    match tree {
        UseTree::Path(path) => leaves(&path.tree),
        UseTree::Group(group) => group.items.iter().map(leaves).sum(),
        UseTree::Name(_) | UseTree::Rename(_) => 1,
        UseTree::Glob(_) => NAMES + 1,
    }
}

fn client_methods_of(item: &Item) -> usize {
    let Item::Impl(ItemImpl { trait_: None, self_ty, items, .. }) = item else { return 0 };
    let Type::Path(of) = &**self_ty else { return 0 };
    if of.path.segments.last().is_none_or(|last| last.ident != "Client") {
        return 0;
    }
    let is_public = |item: &&ImplItem| match item {
        ImplItem::Fn(method) => matches!(method.vis, Visibility::Public(_)),
        _ => false,
    };
    items.iter().filter(is_public).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    const CLIENT: &str = "crates/holdline/src/client.rs";
    const LATCH: &str = "crates/holdline/src/latch.rs";
    const BLOCKING: &str = "crates/holdline/src/blocking/client.rs";

    fn root(names: usize) -> String {
        let names: Vec<String> = (0..names).map(|n| format!("Name{n}")).collect();
        format!("pub mod admin; use hidden::H; pub use types::{{{}}};", names.join(", "))
    }

    fn client(methods: usize) -> String {
        let methods: String =
            (0..methods).map(|n| format!("pub async fn m{n}(&self) {{}}")).collect();
        format!("impl Client {{ {methods} fn own(&self) {{}} }} impl Drop for Client {{}}")
    }

    #[test]
    fn what_fits_is_accepted() {
        let root = root(45);
        let methods = client(25);
        let good = [(ROOT, root.as_str()), (CLIENT, &methods), (BLOCKING, &methods)];
        assert_eq!(found(findings, &good), []);
    }

    #[test]
    fn one_more_name_or_method_is_found() {
        let many = root(46);
        let few = client(25);
        let one = client(1);
        let at_root = [(ROOT.to_owned(), None)];
        assert_eq!(found(findings, &[(ROOT, many.as_str())]), at_root);
        assert_eq!(found(findings, &[(ROOT, "pub use types::*;")]), at_root);
        assert_eq!(found(findings, &[(CLIENT, few.as_str()), (LATCH, &one)]), at_root);
        assert_eq!(found(findings, &[(BLOCKING, client(26).as_str())]), at_root);
    }
}
