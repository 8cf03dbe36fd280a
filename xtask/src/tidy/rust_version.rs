//! The Rust version that we declare is true for what we depend on.

use super::Finding;
use crate::metadata::DependencyKind;
use crate::tree::Tree;

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let metadata = &tree.metadata;
    let declared = metadata.members().filter_map(|m| parts(m.rust_version.as_deref()?)).min();
    let silent = metadata.members().filter(|member| member.rust_version.is_none());
    let says = "declares no rust-version";
    let mut found: Vec<Finding> = silent
        .map(|member| {
            Finding::whole(&format!("{}/Cargo.toml", metadata.directory_of(member)), says)
        })
        .collect();
    let Some(declared) = declared else { return found };
    for package in metadata.reach(metadata.members(), ships) {
        let needed = package.rust_version.as_deref();
        if let Some(needed) = needed.filter(|n| parts(n).is_some_and(|n| n > declared)) {
            let name = &package.name;
            let version = &package.version;
            let says = format!("{name} {version} needs Rust {needed}, we declare less");
            found.push(Finding::whole("Cargo.toml", says));
        }
    }
    found
}

/// Returns whether users build it, and not only tests or other platforms.
fn ships(dependency: &DependencyKind) -> bool {
    let elsewhere = dependency.target.as_deref();
    let elsewhere = elsewhere.is_some_and(|t| t.contains("windows") && !t.contains("not("));
    dependency.kind.as_deref() != Some("dev") && !elsewhere
}

/// `1.89` or `1.89.0` as numbers.
fn parts(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Metadata, Node, NodeDependency, Package, Resolve};

    fn message_of(kind: Option<&str>, needs: &str) -> usize {
        reported_on(None, kind, needs)
    }

    fn reported_on(target: Option<&str>, kind: Option<&str>, needs: &str) -> usize {
        let package = |id: &str, rust: &str| Package {
            id: id.to_owned(),
            rust_version: Some(rust.to_owned()),
            ..Package::default()
        };
        let dep_kinds = vec![DependencyKind {
            kind: kind.map(str::to_owned),
            target: target.map(str::to_owned),
        }];
        let deps = vec![NodeDependency { pkg: "theirs".to_owned(), dep_kinds }];
        let resolve = Resolve { nodes: vec![Node { id: "ours".to_owned(), deps }] };
        let packages = vec![package("ours", "1.89"), package("theirs", needs)];
        let workspace_members = vec!["ours".to_owned()];
        let metadata = Metadata { packages, workspace_members, resolve, ..Metadata::default() };
        findings(&Tree { metadata, ..Tree::default() }).len()
    }

    #[test]
    fn what_is_old_enough_or_only_tests_is_accepted() {
        assert_eq!(message_of(None, "1.89.0"), 0);
        assert_eq!(message_of(None, "1.9"), 0);
        assert_eq!(message_of(Some("dev"), "1.95"), 0);
    }

    /// Every condition with the word was taken for Windows.
    #[test]
    fn what_all_but_windows_build_is_looked_at() {
        assert_eq!(reported_on(Some("cfg(windows)"), None, "1.95"), 0);
        assert_eq!(reported_on(Some("cfg(not(windows))"), None, "1.95"), 1);
        assert_eq!(reported_on(Some("cfg(unix)"), None, "1.95"), 1);
    }

    #[test]
    fn a_crate_that_declares_none_is_found() {
        let packages = vec![Package { id: "ours".to_owned(), ..Package::default() }];
        let workspace_members = vec!["ours".to_owned()];
        let metadata = Metadata { packages, workspace_members, ..Metadata::default() };
        assert_eq!(findings(&Tree { metadata, ..Tree::default() }).len(), 1);
    }

    #[test]
    fn what_is_too_new_is_found() {
        assert_eq!(message_of(None, "1.90"), 1);
        assert_eq!(message_of(Some("build"), "2.0"), 1);
    }
}
