//! Links between documents lead somewhere.

use super::Finding;
use crate::markdown::{prose, resolved, targets};
use crate::tree::{SourceFile, Tree};

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.markdown() {
        let directory = file.path.rsplit_once('/').map_or("", |(directory, _)| directory);
        for (line, text) in prose(&file.text) {
            for target in targets(text) {
                if !leads_somewhere(tree, file, directory, target) {
                    let says = format!("`{target}` leads nowhere");
                    found.push(Finding::at(&file.path, line, says));
                }
            }
        }
    }
    found
}

fn leads_somewhere(tree: &Tree, from: &SourceFile, directory: &str, target: &str) -> bool {
    let (path, part) = target.split_once('#').unwrap_or((target, ""));
    let file = if path.is_empty() {
        from
    } else {
        let Some(path) = resolved(directory, path) else { return false };
        let below = format!("{path}/");
        match tree.file(&path) {
            Some(file) => file,
            None => {
                return part.is_empty() && tree.files.iter().any(|f| f.path.starts_with(&below));
            }
        }
    };
    // Of what is no document only the lines could be meant.
    part.is_empty() || !file.path.ends_with(".md") || parts_of(&file.text).any(|p| p == part)
}

/// What the headings of a document are called in links.
fn parts_of(text: &str) -> impl Iterator<Item = String> {
    let headings = prose(text).into_iter().filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| {
        let title = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        title.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    #[test]
    fn files_directories_parts_and_addresses_are_accepted() {
        let text = "## Here, or `there`\n\
            [a](../STYLE.md#words) [b](decisions) [c](https://example.org) [d](#here-or-there)\n\
            [f]: ../STYLE.md\n```text\n[e](nowhere.md)\n```\n";
        let style = "# Style\n## Words\n";
        let decision = "[x](../a.md)";
        let files =
            [("docs/a.md", text), ("STYLE.md", style), ("docs/decisions/0001-b.md", decision)];
        assert_eq!(found(findings, &files), []);
    }

    #[test]
    fn a_link_to_nothing_is_found() {
        let reply = found(findings, &[("docs/a.md", "\nsee [b](b.md) and [a](./a.md)")]);
        assert_eq!(reply, [("docs/a.md".to_owned(), Some(2))]);
    }

    /// Parts of a page were not looked at, nor targets that stand apart, and a path that leads out
    /// of the repository was taken for one inside.
    #[test]
    fn parts_that_are_gone_and_ways_out_are_found() {
        let style = ("STYLE.md", "## Words\n```text\n# here\n```\n");
        for bad in ["[a](../STYLE.md#word)", "[a](#here)", "[a]: b.md", "[a](../../STYLE.md)"] {
            let reply = found(findings, &[("docs/a.md", bad), style]);
            assert_eq!(reply, [("docs/a.md".to_owned(), Some(1))], "{bad}");
        }
    }
}
