//! The changelog has a place for what is not released yet.

use super::Finding;
use crate::tree::Tree;

const PATH: &str = "CHANGELOG.md";
/// The groups of a release, in this order.
const GROUPS: [&str; 4] = ["Breaking", "Added", "Changed", "Fixed"];

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.file(PATH) else {
        return vec![Finding::whole(PATH, "missing")];
    };
    let first = file.text.lines().find_map(|line| line.strip_prefix("## "));
    let mut found = Vec::new();
    if first.map(|title| title.trim_matches(['[', ']'])) != Some("Unreleased") {
        found.push(Finding::whole(PATH, "the first section is not `## Unreleased`"));
    }
    let mut last = None;
    for (index, line) in file.text.lines().enumerate() {
        if line.starts_with("## ") {
            last = None;
        }
        let Some(group) = line.strip_prefix("### ").map(str::trim) else { continue };
        let rank = GROUPS.iter().position(|known| *known == group);
        let says = match rank {
            None => format!("`{group}` is none of: {}", GROUPS.join(", ")),
            Some(_) if rank <= last => format!("`{group}` stands out of order, or twice"),
            Some(_) => {
                last = rank;
                continue;
            }
        };
        found.push(Finding::at(PATH, index + 1, says));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    #[test]
    fn an_unreleased_section_is_accepted() {
        let good = "# Changelog\n\n## Unreleased\n\n### Added\n\n- cli: a verb\n";
        assert_eq!(found(findings, &[(PATH, good)]), []);
    }

    #[test]
    fn its_absence_is_found() {
        assert_eq!(found(findings, &[]), [(PATH.to_owned(), None)]);
        assert_eq!(found(findings, &[(PATH, "## 1.0.0\n")]), [(PATH.to_owned(), None)]);
    }

    #[test]
    fn groups_out_of_order_or_twice_are_found() {
        for bad in ["### Fixed\n### Added\n", "### Added\n### Added\n"] {
            let bad = format!("## Unreleased\n{bad}## 1.0.0\n### Breaking\n");
            assert_eq!(found(findings, &[(PATH, &bad)]), [(PATH.to_owned(), Some(3))]);
        }
    }

    #[test]
    fn another_group_is_found() {
        let bad = "## Unreleased\n### New\n";
        assert_eq!(found(findings, &[(PATH, bad)]), [(PATH.to_owned(), Some(2))]);
    }
}
