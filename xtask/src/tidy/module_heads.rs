//! Every Rust file says first what it is for.

use super::Finding;
use crate::tree::Tree;

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let headless = tree.rust().filter(|(file, _)| {
        let head = file.text.lines().next().unwrap_or_default();
        head.strip_prefix("//!").is_none_or(|says| says.trim().is_empty())
    });
    headless
        .map(|(file, _)| Finding::at(&file.path, 1, "begins without `//!` and what it is for"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    #[test]
    fn a_head_is_accepted() {
        assert_eq!(found(findings, &[("a.rs", "//! Words.\n")]), []);
    }

    #[test]
    fn a_missing_or_empty_head_is_found() {
        for bad in ["", "fn f() {}", "// Words.\n", "//!\n//! Words.\n"] {
            assert_eq!(found(findings, &[("a.rs", bad)]), [("a.rs".to_owned(), Some(1))], "{bad}");
        }
    }
}
