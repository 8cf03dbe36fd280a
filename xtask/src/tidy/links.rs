//! Links between documents lead somewhere.

use super::Finding;
use crate::markdown::prose;
use crate::tree::Tree;

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.markdown() {
        let directory = file.path.rsplit_once('/').map_or("", |(directory, _)| directory);
        for (line, text) in prose(&file.text) {
            for target in targets(text) {
                let path = resolved(directory, target);
                let below = format!("{path}/");
                let there = tree.files.iter().any(|f| f.path == path || f.path.starts_with(&below));
                if !there {
                    let says = format!("`{target}` leads nowhere");
                    found.push(Finding::at(&file.path, line, says));
                }
            }
        }
    }
    found
}

/// The paths in `[text](path#part)`, without addresses of the web and parts of the same page.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let links = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let paths = links.map(|(target, _)| target.split('#').next().unwrap_or_default());
    paths.filter(|path| !path.is_empty() && !path.contains(':'))
}

fn resolved(directory: &str, target: &str) -> String {
    let mut parts: Vec<&str> = directory.split('/').filter(|p| !p.is_empty()).collect();
    for part in target.split('/').filter(|p| !p.is_empty() && *p != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    #[test]
    fn files_directories_parts_and_addresses_are_accepted() {
        let text = "[a](../STYLE.md#words) [b](decisions) [c](https://example.org) [d](#here)\n\
            ```text\n[e](nowhere.md)\n```\n";
        let files =
            [("docs/a.md", text), ("STYLE.md", ""), ("docs/decisions/0001-b.md", "[x](../a.md)")];
        assert_eq!(found(findings, &files), []);
    }

    #[test]
    fn a_link_to_nothing_is_found() {
        let told = found(findings, &[("docs/a.md", "\nsee [b](b.md) and [a](./a.md)")]);
        assert_eq!(told, [("docs/a.md".to_owned(), Some(2))]);
    }
}
