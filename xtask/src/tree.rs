//! The files of the repository as rules see them.

use crate::cargo::root;
use crate::metadata::Metadata;
use crate::rust_source::RustSource;
use std::io::ErrorKind;
use std::process::Command;

pub(crate) struct SourceFile {
    /// From the root, with forward slashes.
    pub(crate) path: String,
    pub(crate) text: String,
    /// Parsed, if the file is Rust.
    pub(crate) rust: Option<RustSource>,
    /// The module is declared under `#[cfg(test)]`, here or in a parent.
    pub(crate) test_only: bool,
}

/// Everything that rules look at.
#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<SourceFile>,
    pub(crate) metadata: Metadata,
}

impl Tree {
    /// Reads the files that git tracks and those that it would if they were added.
    ///
    /// # Errors
    /// Git or cargo could not be asked, or a Rust file is no Rust.
    pub(crate) fn read() -> Result<Self, String> {
        let mut files = Vec::new();
        for path in ours(paths()?)? {
            match std::fs::read_to_string(root().join(&path)) {
                Ok(text) => files.push((path, text)),
                // A picture: nothing to read, but links may lead to it.
                Err(why) if why.kind() == ErrorKind::InvalidData => {
                    files.push((path, String::new()));
                }
                // Deleted but still in the index, or a directory: nothing for a rule.
                Err(_) => {}
            }
        }
        Ok(Self { metadata: Metadata::read()?, ..Self::of(files)? })
    }

    /// A tree of these paths and texts.
    ///
    /// # Errors
    /// A Rust file is no Rust.
    pub(crate) fn of(
        files: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    ) -> Result<Self, String> {
        let mut tree = Self::default();
        for (path, text) in files {
            let path = path.into();
            let text = text.into();
            let rust = if path.ends_with(".rs") {
                Some(RustSource::parse(&text).map_err(|why| format!("{path} {why}"))?)
            } else {
                None
            };
            tree.files.push(SourceFile { path, text, rust, test_only: false });
        }
        tree.mark_test_modules();
        Ok(tree)
    }

    pub(crate) fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|f| f.path == path)
    }

    /// Files that are Rust, with their parsed form.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&SourceFile, &RustSource)> {
        self.files.iter().filter_map(|file| Some((file, file.rust.as_ref()?)))
    }

    pub(crate) fn markdown(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(|f| f.path.ends_with(".md"))
    }

    fn mark_test_modules(&mut self) {
        let mut stems = Vec::new();
        for (file, source) in self.rust() {
            let inside = module_directory(&file.path);
            stems.extend(source.test_modules.iter().map(|name| format!("{inside}/{name}")));
        }
        for file in &mut self.files {
            let within = |stem: &String| {
                let rest = file.path.strip_prefix(stem.as_str());
                rest.is_some_and(|r| r == ".rs" || r.starts_with('/'))
            };
            file.test_only = stems.iter().any(within);
        }
    }
}

/// Where the files of a file's child modules lie.
pub(crate) fn module_directory(path: &str) -> String {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => directory.to_owned(),
        _ => format!("{directory}/{}", name.trim_end_matches(".rs")),
    }
}

/// In a copy that lies where another repository ignores it, git lists nothing: that is not a tree
/// without findings.
fn ours(paths: Vec<String>) -> Result<Vec<String>, String> {
    if paths.iter().any(|path| path == "Cargo.toml") {
        Ok(paths)
    } else {
        Err("git lists none of our files; style is checked in a clone".to_owned())
    }
}

fn paths() -> Result<Vec<String>, String> {
    let listed = Command::new("git")
        .current_dir(root())
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .map_err(|e| format!("git could not be started: {e}"))?;
    if !listed.status.success() {
        let said = String::from_utf8_lossy(&listed.stderr);
        return Err(format!("git could not list the files; style is checked in a clone: {said}"));
    }
    let names = String::from_utf8_lossy(&listed.stdout);
    let mut paths: Vec<String> = names.split_terminator('\0').map(str::to_owned).collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a single file every rule was satisfied.
    #[test]
    fn a_tree_without_our_files_is_refused() {
        assert!(ours(Vec::new()).is_err() && ours(vec!["README.md".to_owned()]).is_err());
        assert!(ours(vec!["Cargo.toml".to_owned()]).is_ok());
    }

    #[test]
    fn a_module_under_cfg_test_marks_its_files() {
        let tree = Tree::of([
            ("crates/a/src/lib.rs", "mod table;"),
            ("crates/a/src/table/mod.rs", "#[cfg(test)] mod tests; mod rules;"),
            ("crates/a/src/table/tests.rs", "mod deep;"),
            ("crates/a/src/table/tests/deep.rs", ""),
            ("crates/a/src/table/rules.rs", ""),
        ]);
        let tree = tree.expect("the samples are Rust");
        let marked: Vec<&str> =
            tree.files.iter().filter(|f| f.test_only).map(|f| f.path.as_str()).collect();
        assert_eq!(marked, ["crates/a/src/table/tests.rs", "crates/a/src/table/tests/deep.rs"]);
    }
}
