//! Every engine crate has the same files, so that who knows one finds the way in all.

use super::Finding;
use crate::tree::Tree;
use std::collections::BTreeSet;

/// Modules that every engine has, besides `lib` and `engine`.
const MODULES: [&str; 3] = ["options", "keys", "error"];
const SUITE: &str = "conformance";
const SAYS: &str = "missing: every engine has lib, options, engine, keys, error, conformance";

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let engines: BTreeSet<&str> = tree.files.iter().filter_map(|f| engine_of(&f.path)).collect();
    let mut found = Vec::new();
    for engine in engines.into_iter().filter(|engine| !is_stub(tree, engine)) {
        let has = |stem: String| {
            let paths = [format!("{stem}.rs"), format!("{stem}/mod.rs"), format!("{stem}/main.rs")];
            paths.iter().any(|path| tree.file(path).is_some())
        };
        // A crate with several engines has one in each room.
        let is_engine = |path: &str| {
            path.starts_with(&format!("{engine}/src/"))
                && (path.ends_with("/engine.rs") || path.ends_with("/engine/mod.rs"))
        };
        if !tree.files.iter().any(|file| is_engine(&file.path)) {
            found.push(Finding::whole(&format!("{engine}/src/engine.rs"), SAYS));
        }
        let sources = MODULES.iter().map(|module| format!("{engine}/src/{module}"));
        let wanted = sources.chain([format!("{engine}/tests/{SUITE}")]);
        for missing in wanted.filter(|stem| !has(stem.clone())) {
            found.push(Finding::whole(&format!("{missing}.rs"), SAYS));
        }
    }
    found
}

/// `crates/engines/NAME` of a path below it.
fn engine_of(path: &str) -> Option<&str> {
    let name = path.strip_prefix("crates/engines/")?.split_once('/')?.0;
    Some(&path[.."crates/engines/".len() + name.len()])
}

/// An engine that was not begun: its library declares nothing.
fn is_stub(tree: &Tree, engine: &str) -> bool {
    let library = tree.file(&format!("{engine}/src/lib.rs")).and_then(|f| f.rust.as_ref());
    library.is_some_and(|source| source.file.items.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    fn files(names: &[&str]) -> Vec<(String, &'static str)> {
        names.iter().map(|n| (format!("crates/engines/redis/{n}"), "mod a;")).collect()
    }

    fn message_of(names: &[&str]) -> usize {
        let files = files(names);
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
        found(findings, &files).len()
    }

    #[test]
    fn the_shape_is_accepted_as_files_or_directories() {
        let shape = [
            "src/lib.rs",
            "src/options.rs",
            "src/engine/mod.rs",
            "src/keys.rs",
            "src/error.rs",
            "tests/conformance.rs",
        ];
        assert_eq!(message_of(&shape), 0);
    }

    #[test]
    fn what_is_missing_is_found() {
        assert_eq!(message_of(&["src/lib.rs", "src/engine.rs", "src/error.rs"]), 3);
    }

    #[test]
    fn an_engine_without_a_directory_is_ignored() {
        let path = "crates/engines/redis/src/lib.rs";
        assert_eq!(found(findings, &[(path, "//! Under construction.\n")]), []);
    }
}
