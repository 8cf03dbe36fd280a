//! The allowed dependencies between crates.
//!
//! Arrows point one way: core ← net ← engines, and core ← fence ← library ← torture ← conformance
//! ← sim; engines, library and torture ← server ← dashboard ← cli; library ← what the
//! bindings share ← bindings. The fences know no lock client.
//! A concrete engine is named only by the library's features, the cli and the server. Tests see
//! more: their arrows are stated apart. The test ground (`services`) is for tests and benchmarks
//! alone. The repository's tasks depend on no crate of ours, so that they run while one does not
//! compile.

use super::Finding;
use crate::metadata::Dependency;
use crate::tree::Tree;

/// What drives other lock crates: workspaces of their own.
const PEERS: [&str; 2] = ["interop/rust", "interop/bench"];

/// A layer of the map, by a crate's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    Core,
    Fence,
    Net,
    Memory,
    Engine,
    Library,
    Torture,
    Conformance,
    Sim,
    Cli,
    Server,
    Dashboard,
    Bench,
    BindingsCommon,
    Bindings,
    Services,
    Tasks,
}

/// The place of the crate in `directory`.
fn layer_of(directory: &str) -> Option<Layer> {
    Some(match directory {
        "crates/core" => Layer::Core,
        "crates/fence" => Layer::Fence,
        "crates/net" => Layer::Net,
        "crates/engines/memory" => Layer::Memory,
        "crates/holdline" => Layer::Library,
        "crates/torture" => Layer::Torture,
        "crates/conformance" => Layer::Conformance,
        "crates/sim" => Layer::Sim,
        "crates/cli" => Layer::Cli,
        "crates/server" => Layer::Server,
        "crates/dashboard" => Layer::Dashboard,
        "crates/bench" => Layer::Bench,
        "bindings/common" => Layer::BindingsCommon,
        "bindings/node" | "bindings/python" => Layer::Bindings,
        "crates/services" => Layer::Services,
        "xtask" => Layer::Tasks,
        engine if engine.strip_prefix("crates/engines/").is_some_and(|e| !e.contains('/')) => {
            Layer::Engine
        }
        _ => return None,
    })
}

/// What the product of a crate may be built on.
fn normal(from: Layer) -> &'static [Layer] {
    use Layer::{
        BindingsCommon, Conformance, Core, Dashboard, Engine, Fence, Library, Memory, Net, Server,
        Services, Torture,
    };
    match from {
        Layer::Core | Layer::Services | Layer::Tasks => &[],
        Layer::Fence | Layer::Net | Layer::Memory => &[Core],
        Layer::Engine => &[Core, Net],
        Layer::Library => &[Core, Fence, Memory, Engine],
        Layer::Torture => &[Core, Library],
        Layer::BindingsCommon => &[Library],
        Layer::Bindings => &[Library, BindingsCommon],
        Layer::Conformance => &[Core, Library, Torture],
        Layer::Bench => &[Core, Library, Server, Dashboard, Services],
        Layer::Sim => &[Core, Library, Conformance],
        Layer::Cli => &[Core, Library, Memory, Engine, Server, Dashboard, Torture],
        Layer::Server => &[Core, Library, Memory, Engine],
        Layer::Dashboard => &[Core, Library, Server],
    }
}

/// What its tests may use besides.
fn in_tests(from: Layer) -> &'static [Layer] {
    use Layer::{Conformance, Engine, Library, Memory, Server, Services, Sim};
    match from {
        Layer::Memory | Layer::Engine => {
            &[Library, Memory, Engine, Conformance, Server, Services, Sim]
        }
        Layer::Library => &[Conformance, Services],
        Layer::Conformance => &[Memory, Services],
        Layer::Sim => &[Memory, Engine, Services],
        Layer::Torture => &[Engine, Services],
        Layer::Fence | Layer::Cli | Layer::Server | Layer::Dashboard => &[Services],
        Layer::Core
        | Layer::Net
        | Layer::Bench
        | Layer::BindingsCommon
        | Layer::Bindings
        | Layer::Services
        | Layer::Tasks => &[],
    }
}

fn allowed(from: Layer, to: Layer, dependency: &Dependency) -> Result<(), String> {
    let for_tests = dependency.kind.as_deref() == Some("dev");
    let fits = normal(from).contains(&to) || (for_tests && in_tests(from).contains(&to));
    if !fits {
        let kind = if for_tests { "not even in tests" } else { "see ARCHITECTURE.md" };
        return Err(format!("{from:?} may not depend on {to:?} ({kind})"));
    }
    if from == Layer::Library && to == Layer::Engine && !dependency.optional && !for_tests {
        return Err("the library names an engine only as an optional feature".to_owned());
    }
    Ok(())
}

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let metadata = &tree.metadata;
    let mut found = outside(tree);
    for member in metadata.members() {
        let directory = metadata.directory_of(member);
        let manifest = format!("{directory}/Cargo.toml");
        let Some(from) = layer_of(&directory) else {
            found.push(Finding::whole(&manifest, "this crate has no place on the map"));
            continue;
        };
        for dependency in &member.dependencies {
            let ours = metadata.members().find(|m| m.name == dependency.name);
            // A crate outside of the map is reported by its own check.
            let Some(to) = ours.and_then(|m| layer_of(&metadata.directory_of(m))) else { continue };
            // A crate may stand beside itself: its tests switch features on in that way.
            if dependency.name != member.name
                && let Err(says) = allowed(from, to, dependency)
            {
                found.push(Finding::whole(&manifest, format!("{}: {says}", dependency.name)));
            }
        }
    }
    found
}

/// Crates that are no members of the workspace: no step of the check would see them.
fn outside(tree: &Tree) -> Vec<Finding> {
    let metadata = &tree.metadata;
    let manifests = tree.files.iter().filter_map(|f| f.path.strip_suffix("/Cargo.toml"));
    let forgotten = manifests.filter(|directory| {
        let ours = metadata.members().any(|member| metadata.directory_of(member) == *directory);
        // What they depend on is none of ours; the step `interop` and the benchmark build them.
        !ours && !PEERS.contains(directory)
    });
    let says = "this crate is no member of the workspace, so nothing checks it";
    forgotten.map(|directory| Finding::whole(&format!("{directory}/Cargo.toml"), says)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Metadata, Package};

    fn package(name: &str, directory: &str, dependencies: &[Dependency]) -> Package {
        Package {
            name: name.to_owned(),
            id: name.to_owned(),
            manifest_path: format!("/r/{directory}/Cargo.toml").into(),
            dependencies: dependencies.to_vec(),
            ..Package::default()
        }
    }

    fn on(name: &str, kind: Option<&str>, optional: bool) -> Dependency {
        Dependency { name: name.to_owned(), kind: kind.map(str::to_owned), optional }
    }

    fn says(packages: Vec<Package>) -> Vec<String> {
        let workspace_members = packages.iter().map(|p| p.id.clone()).collect();
        let workspace_root = "/r".into();
        let metadata =
            Metadata { packages, workspace_members, workspace_root, ..Metadata::default() };
        let tree = Tree { metadata, ..Tree::default() };
        findings(&tree).into_iter().map(|f| f.to_string()).collect()
    }

    fn map(core: &[Dependency], library: &[Dependency], engine: &[Dependency]) -> Vec<Package> {
        vec![
            package("c", "crates/core", core),
            package("h", "crates/holdline", library),
            package("e", "crates/engines/redis", engine),
            package("f", "crates/conformance", &[]),
        ]
    }

    #[test]
    fn the_map_is_accepted() {
        let library = [on("c", None, false), on("e", None, true), on("serde", None, false)];
        let engine = [on("c", None, false), on("f", Some("dev"), false)];
        assert_eq!(says(map(&[], &library, &engine)), Vec::<String>::new());
    }

    #[test]
    fn arrows_against_the_map_are_found() {
        assert_eq!(says(map(&[on("h", None, false)], &[], &[])).len(), 1);
        assert_eq!(says(map(&[], &[], &[on("f", None, false)])).len(), 1);
        assert_eq!(says(map(&[on("e", Some("dev"), false)], &[], &[])).len(), 1);
    }

    #[test]
    fn the_test_ground_is_for_tests_and_benchmarks() {
        let with = |kind| {
            let mut packages = map(&[], &[], &[on("s", kind, false)]);
            packages.push(package("s", "crates/services", &[]));
            packages.push(package("b", "crates/bench", &[on("s", None, false)]));
            says(packages)
        };
        assert_eq!(with(Some("dev")), Vec::<String>::new());
        assert_eq!(with(None).len(), 1);
    }

    #[test]
    fn a_fence_knows_no_lock_client() {
        let with = |fence: Dependency| {
            let mut packages = map(&[], &[on("g", None, false)], &[]);
            packages.push(package("g", "crates/fence", &[fence]));
            says(packages)
        };
        assert_eq!(with(on("c", None, false)), Vec::<String>::new());
        for kind in [None, Some("dev")] {
            assert_eq!(with(on("h", kind, false)).len(), 1, "{kind:?}");
        }
    }

    #[test]
    fn an_engine_in_the_library_is_optional() {
        let reply = says(map(&[], &[on("e", None, false)], &[]));
        assert_eq!(reply.len(), 1);
        assert!(reply[0].contains("optional feature"), "{}", reply[0]);
    }

    #[test]
    fn a_crate_outside_the_workspace_is_found() {
        let path = "crates/extra/Cargo.toml";
        assert_eq!(crate::tidy::found(findings, &[(path, "")]), [(path.to_owned(), None)]);
        let known = ["Cargo.toml", "interop/rust/Cargo.toml", "interop/bench/Cargo.toml"];
        let known = known.map(|path| (path, ""));
        assert_eq!(crate::tidy::found(findings, &known), []);
    }

    #[test]
    fn a_crate_beside_the_map_is_found() {
        assert_eq!(says(vec![package("x", "crates/engines/sql/extra", &[])]).len(), 1);
        assert_eq!(says(vec![package("x", "crates/helpers", &[])]).len(), 1);
    }
}
