//! Functions and files that fit into a head.

use super::Finding;
use crate::tree::Tree;

const FUNCTION: usize = 70;
const FILE: usize = 500;

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, source) in tree.rust() {
        for function in &source.functions {
            let lines = source.code_lines_in(&function.lines);
            if lines > FUNCTION {
                let says = format!("`{}` has {lines} code lines of {FUNCTION}", function.name);
                found.push(Finding::at(&file.path, *function.lines.start(), says));
            }
        }
        let lines = source.code_lines();
        if lines > FILE && !file.test_only {
            found.push(Finding::whole(&file.path, format!("{lines} code lines of {FILE}")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    fn function(lines: usize) -> String {
        let body = "    // why\n\n    call();\n".repeat(lines - 2);
        format!("fn long() {{\n{body}}}\n")
    }

    #[test]
    fn a_function_may_have_seventy_lines() {
        assert_eq!(found(findings, &[("a.rs", &function(70))]), []);
        let bad = format!("\n{}", function(71));
        assert_eq!(found(findings, &[("a.rs", &bad)]), [("a.rs".to_owned(), Some(2))]);
    }

    #[test]
    fn a_method_counts_like_a_function() {
        let bad = format!("impl A {{\n{}}}", function(71));
        assert_eq!(found(findings, &[("a.rs", &bad)]), [("a.rs".to_owned(), Some(2))]);
    }

    #[test]
    fn a_file_may_have_five_hundred_lines_without_its_tests() {
        let full = "const A: u8 = 0;\n".repeat(500);
        let tests = "#[cfg(test)]\nmod tests {\n    fn f() {}\n}\n";
        assert_eq!(found(findings, &[("a.rs", &format!("{full}{tests}"))]), []);
        let bad = format!("{full}const B: u8 = 0;\n");
        assert_eq!(found(findings, &[("a.rs", &bad)]), [("a.rs".to_owned(), None)]);
    }
}
