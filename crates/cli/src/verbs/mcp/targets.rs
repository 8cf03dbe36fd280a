//! What a target of an agent means in lock names.
//!
//! Invariant T1: two targets of one repository conflict exactly if one file may be in both. A path
//! is locked exclusively and every directory above it shared. So a path conflicts with itself,
//! with what is below it and with each directory above it that is locked as a whole, and with
//! nothing else. Invariant T2: the names are in byte order, and a directory comes before what is
//! below it. So two requests at once never wait for each other.

use std::collections::BTreeMap;
use std::path::Path;

use holdline_core::{LockName, Mode};

use super::repository::Repository;

/// The most targets of one call.
pub(super) const MAX_TARGETS: usize = 64;

/// The targets of one call.
#[derive(Clone, Debug)]
pub(super) struct Targets {
    /// The targets as they are understood, for people.
    pub(super) shown: Vec<String>,
    /// The locks that they need, in the order in which they are acquired.
    pub(super) needs: BTreeMap<LockName, Mode>,
}

impl Targets {
    /// Reads targets.
    ///
    /// # Errors
    /// Which target is wrong, and what would be right.
    pub(super) fn read(texts: &[String], repository: &Repository) -> Result<Targets, String> {
        if texts.is_empty() || texts.len() > MAX_TARGETS {
            return Err(format!("targets: give 1 to {MAX_TARGETS}, not {}", texts.len()));
        }
        let mut targets = Targets { shown: Vec::new(), needs: BTreeMap::new() };
        for text in texts {
            let wrong = |why: String| format!("target {text:?}: {why}");
            if let Some(branch) = text.strip_prefix("branch:") {
                let name = branch_name(branch, repository).map_err(wrong)?;
                targets.add(name, Mode::Exclusive).map_err(wrong)?;
                targets.shown.push(text.clone());
            } else if let Some(name) = text.strip_prefix("name:") {
                check_name(name, repository).map_err(wrong)?;
                targets.add(name.to_owned(), Mode::Exclusive).map_err(wrong)?;
                targets.shown.push(text.clone());
            } else {
                targets.add_path(text, repository).map_err(wrong)?;
            }
        }
        Ok(targets)
    }

    fn add_path(&mut self, text: &str, repository: &Repository) -> Result<(), String> {
        let (parts, is_glob) = parts(text, &repository.top)?;
        let mut name = format!("{}:file", repository.name);
        for part in &parts {
            let below = format!("{name}/{part}");
            self.add(std::mem::replace(&mut name, below), Mode::Shared)?;
        }
        self.add(name, Mode::Exclusive)?;
        let end = if is_glob { &["**"][..] } else { &[] };
        self.shown.push([&parts, end].concat().join("/"));
        Ok(())
    }

    /// Adds a lock. Exclusive includes shared.
    fn add(&mut self, name: String, mode: Mode) -> Result<(), String> {
        let name = LockName::new(name).map_err(|error| error.to_string())?;
        let needed = self.needs.entry(name).or_insert(mode);
        if mode == Mode::Exclusive {
            *needed = mode;
        }
        Ok(())
    }
}

/// Returns what the names of a repository's locks begin with.
pub(super) fn prefix(repository: &Repository) -> String {
    format!("{}:", repository.name)
}

/// Checks a name of the store that an agent chose: programs that are no agents use them too.
fn check_name(name: &str, repository: &Repository) -> Result<(), String> {
    if name.contains(['*', '?']) {
        return Err("a name has no wildcards: it is one lock, such as name:deploy".to_owned());
    }
    let prefixes = &repository.names;
    if prefixes.is_empty() || prefixes.iter().any(|prefix| name.starts_with(prefix.as_str())) {
        return Ok(());
    }
    Err(format!("the names that you may lock begin with {}", prefixes.join(" or ")))
}

fn branch_name(branch: &str, repository: &Repository) -> Result<String, String> {
    let branch = branch.strip_prefix("refs/heads/").unwrap_or(branch);
    if branch.is_empty() {
        return Err("name the branch, such as branch:main".to_owned());
    }
    Ok(format!("{}:branch/{branch}", repository.name))
}

/// Splits a path at its slashes, up to the first part with a wildcard. Returns also whether there
/// is one, or whether the path is the whole repository.
fn parts<'a>(text: &'a str, top: &Path) -> Result<(Vec<&'a str>, bool), String> {
    if text.is_empty() {
        return Err("it is empty; `**` is the whole repository".to_owned());
    }
    let relative = match Path::new(text).strip_prefix(top) {
        Ok(relative) => relative.to_str().unwrap_or(text),
        Err(_) if text.starts_with('/') => {
            return Err(format!("it is outside of the repository {}", top.display()));
        }
        Err(_) => text,
    };
    let mut parts = Vec::new();
    for part in relative.split('/').filter(|part| !matches!(*part, "" | ".")) {
        match part {
            ".." => return Err("`..` is not allowed; begin at the top of the repository".into()),
            _ if part.contains(['*', '?']) => return Ok((parts, true)),
            _ => parts.push(part),
        }
    }
    let whole = parts.is_empty();
    Ok((parts, whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(targets: &[&str]) -> Result<Targets, String> {
        read_in(&Repository { top: "/r".into(), name: "r".into(), names: Vec::new() }, targets)
    }

    fn read_in(repository: &Repository, targets: &[&str]) -> Result<Targets, String> {
        let targets: Vec<String> = targets.iter().map(|&target| target.into()).collect();
        Targets::read(&targets, repository)
    }

    fn needs(target: &str) -> BTreeMap<LockName, Mode> {
        read(&[target]).expect("good").needs
    }

    fn conflict(one: &str, other: &str) -> bool {
        let one = needs(one);
        let other = needs(other);
        one.iter().any(|(name, mode)| {
            let also = other.get(name);
            also.is_some_and(|also| [*mode, *also].contains(&Mode::Exclusive))
        })
    }

    #[test]
    fn targets_conflict_exactly_if_a_file_may_be_in_both() {
        for (one, other, expected) in [
            ("src/a.rs", "src/a.rs", true),
            ("src/a.rs", "src/b.rs", false),
            ("src/parser/**", "src/parser/lexer.rs", true),
            ("src/parser/**", "src/parser", true),
            ("src/parser/**", "src/parser/", true),
            ("src/parser/**", "src/parser.rs", false),
            ("src/parser/**", "src/**", true),
            ("src/**", "tests/**", false),
            ("src/*.rs", "src/deep/a.txt", true),
            ("**", "README.md", true),
            (".", "README.md", true),
            ("./src//a.rs", "src/./a.rs", true),
            ("/r/src/a.rs", "src/a.rs", true),
            ("/r", "src/a.rs", true),
            ("app/[id]/page.tsx", "app/[name]/page.tsx", false),
            ("branch:main", "main", false),
            ("branch:main", "branch:main", true),
            ("branch:refs/heads/main", "branch:main", true),
            ("branch:a/b", "branch:a", false),
            ("**", "branch:main", false),
            ("name:deploy", "branch:deploy", false),
            ("name:deploy", "name:deploy", true),
        ] {
            assert_eq!(conflict(one, other), expected, "{one} and {other}");
            assert_eq!(conflict(other, one), expected, "{other} and {one}");
        }
    }

    #[test]
    fn an_agent_may_lock_the_names_that_it_is_given() {
        let names = vec!["agents/".to_owned(), "deploy".to_owned()];
        let repository = Repository { top: "/r".into(), name: "r".into(), names };
        for target in ["name:agents/a", "name:deploy", "branch:main", "src/a.rs"] {
            read_in(&repository, &[target]).expect(target);
        }
        for target in ["name:prod", "name:agents", "name:r:file/src", "name:"] {
            let why = read_in(&repository, &[target]).expect_err(target);
            assert!(why.contains("begin with agents/ or deploy"), "{target}: {why}");
        }
    }

    #[test]
    fn a_directory_comes_before_what_is_below_it() {
        let targets = read(&["src/parser/lexer.rs", "src/**", "src/b.rs"]).expect("good");
        let needs: Vec<(&str, Mode)> =
            targets.needs.iter().map(|(name, mode)| (name.as_str(), *mode)).collect();
        let expected = [
            ("r:file", Mode::Shared),
            ("r:file/src", Mode::Exclusive),
            ("r:file/src/b.rs", Mode::Exclusive),
            ("r:file/src/parser", Mode::Shared),
            ("r:file/src/parser/lexer.rs", Mode::Exclusive),
        ];
        assert_eq!(needs, expected);
        assert_eq!(targets.shown, ["src/parser/lexer.rs", "src/**", "src/b.rs"]);
    }

    #[test]
    fn what_is_wrong_says_what_would_be_right() {
        for (target, says) in [
            ("", "`**` is the whole repository"),
            ("../other/a.rs", "`..` is not allowed"),
            ("/etc/passwd", "outside of the repository /r"),
            ("/r2/a.rs", "outside of the repository /r"),
            ("branch:", "such as branch:main"),
            ("name:", "at least one character"),
            ("name:deploy*", "no wildcards"),
            ("a\nb", "control characters"),
            (&"x/".repeat(300), "at most 512 bytes"),
        ] {
            let why = read(&[target]).expect_err(target);
            assert!(why.contains(says), "{target:?}: {why}");
        }
        assert!(read(&[]).expect_err("none").contains("1 to 64"));
        assert!(read(&["a"; 65]).expect_err("too many").contains("not 65"));
    }
}
