//! The workspace as cargo sees it: packages and their dependencies.

use crate::cargo::cargo;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The answer of `cargo metadata`, as far as we use it.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) workspace_root: PathBuf,
    pub(crate) target_directory: PathBuf,
    pub(crate) resolve: Resolve,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) id: String,
    pub(crate) rust_version: Option<String>,
    /// To which registries it may be published; all if there is no list, none if it is empty.
    #[serde(default)]
    pub(crate) publish: Option<Vec<String>>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    #[serde(default)]
    pub(crate) targets: Vec<Target>,
}

/// A library, a binary, a test binary: what cargo compiles from one root.
#[derive(Debug, Default, Clone, Deserialize)]
pub(crate) struct Target {
    pub(crate) src_path: PathBuf,
}

/// One line of a manifest's dependency section.
#[derive(Debug, Default, Clone, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `dev` or `build`; none for a normal dependency.
    pub(crate) kind: Option<String>,
    pub(crate) optional: bool,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Resolve {
    pub(crate) nodes: Vec<Node>,
}

/// A package with what was really chosen for its dependencies.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) deps: Vec<NodeDependency>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct NodeDependency {
    pub(crate) pkg: String,
    pub(crate) dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct DependencyKind {
    pub(crate) kind: Option<String>,
    pub(crate) target: Option<String>,
}

impl Metadata {
    /// Asks cargo.
    ///
    /// # Errors
    /// What cargo said on its standard error, or that its answer was not understood.
    pub(crate) fn read() -> Result<Self, String> {
        let output = cargo(&["metadata", "--format-version", "1"])
            .output()
            .map_err(|e| format!("cargo metadata could not be started: {e}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("cargo metadata failed: {said}"));
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|e| format!("cargo metadata said something unexpected: {e}"))
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|p| self.workspace_members.contains(&p.id))
    }

    /// The ids of `from` and of all that is reached over dependencies that `follow` accepts.
    pub(crate) fn reach<'a>(
        &'a self,
        from: impl Iterator<Item = &'a Package>,
        follow: impl Fn(&DependencyKind) -> bool,
    ) -> Vec<&'a Package> {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&str> = from.map(|p| p.id.as_str()).collect();
        while let Some(id) = next.pop() {
            let node = self.resolve.nodes.iter().find(|n| n.id == id);
            if seen.insert(id)
                && let Some(node) = node
            {
                let needed = node.deps.iter().filter(|d| d.dep_kinds.iter().any(&follow));
                next.extend(needed.map(|d| d.pkg.as_str()));
            }
        }
        seen.into_iter().filter_map(|id| self.packages.iter().find(|p| p.id == id)).collect()
    }

    /// The root files of all targets of the members, relative to the root.
    pub(crate) fn roots(&self) -> Vec<String> {
        let targets = self.members().flat_map(|member| &member.targets);
        targets.map(|target| self.inside(&target.src_path)).collect()
    }

    fn inside(&self, path: &Path) -> String {
        let inside = path.strip_prefix(&self.workspace_root).unwrap_or(path);
        inside.to_string_lossy().replace('\\', "/")
    }

    /// The directory of a member, relative to the root, with forward slashes.
    pub(crate) fn directory_of(&self, member: &Package) -> String {
        let directory = member.manifest_path.parent().unwrap_or(&member.manifest_path);
        self.inside(directory)
    }
}
