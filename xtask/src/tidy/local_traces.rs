//! No file contains traces of the machine, or the mirror, that it was made with.

use super::Finding;
use crate::tree::Tree;

/// This file holds the words that it looks for.
const SELF: &str = "xtask/src/tidy/local_traces.rs";
const LOCK: &str = "Cargo.lock";
/// Where cargo itself says that a package came from, whatever mirror served it.
const INDEX: &str = concat!("registry+https://github.com/rust-lang/", "crates", ".io-index");

/// Directories in which people and their machines work.
const DIRECTORIES: [&str; 6] = ["/home/", "/root/", "/Users/", "/work/", "/workspace/", "/builds/"];
/// The hosts of package registries and their files, label by label, so that no host stands here.
const HOSTS: [&[&str]; 9] = [
    &["index", "crates", "io"],
    &["static", "crates", "io"],
    &["registry", "npmjs", "org"],
    &["pypi", "org"],
    &["pythonhosted", "org"],
    &["proxy", "golang", "org"],
    &["repo", "maven", "apache", "org"],
    &["repo1", "maven", "org"],
    &["deb", "debian", "org"],
];

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let known: Vec<String> = HOSTS.iter().map(|labels| labels.join(".")).collect();
    for file in tree.files.iter().filter(|f| f.path != SELF) {
        for (index, line) in file.text.lines().enumerate() {
            let line = if is_lock(&file.path) { line.replace(INDEX, "") } else { line.to_owned() };
            let hosts = known.iter().map(String::as_str).filter(|host| line.contains(host));
            let directories = DIRECTORIES.into_iter().filter(|one| has_root(&line, one));
            for trace in hosts.chain(directories) {
                found.push(Finding::at(&file.path, index + 1, format!("names `{trace}`")));
            }
        }
        let foreign = |line: &str| line.starts_with("source = ") && !line.contains(INDEX);
        if is_lock(&file.path) && file.text.lines().any(foreign) {
            let says = "a package comes from elsewhere than the registry";
            found.push(Finding::whole(&file.path, says));
        }
    }
    found
}

/// The workspace's, and that of the peers.
fn is_lock(path: &str) -> bool {
    path.rsplit('/').next() == Some(LOCK)
}

/// Whether `directory` begins a path in `line`, rather than standing inside of one.
fn has_root(line: &str, directory: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || "._-~*$}/".contains(c);
    line.match_indices(directory).any(|(at, _)| {
        let before = &line[..at];
        before.ends_with("file://") || !before.ends_with(inside)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    #[test]
    fn paths_of_the_system_and_of_the_tree_are_accepted() {
        let good = "~/.local/state, /var/lib/holdline, orders/work/1, $HOME/home/, docs.rs";
        assert_eq!(found(findings, &[("README.md", good)]), []);
        let lock = format!("source = \"{INDEX}\"\n");
        assert_eq!(found(findings, &[(LOCK, &lock)]), []);
    }

    #[test]
    fn machines_and_hosts_are_found() {
        let host = format!("see {}", HOSTS[0].join("."));
        for bad in ["cd /work/tree", "file:///root/x", "\"/home/ann/x\"", &host, "(/root/.cargo/)"]
        {
            let reply = found(findings, &[("docs/a.md", bad)]);
            assert_eq!(reply, [("docs/a.md".to_owned(), Some(1))], "{bad}");
        }
    }

    #[test]
    fn a_package_from_elsewhere_is_found() {
        let bad = "source = \"git+https://example.org/a\"\n";
        for path in [LOCK, "interop/rust/Cargo.lock"] {
            assert_eq!(found(findings, &[(path, bad)]), [(path.to_owned(), None)]);
        }
    }
}
