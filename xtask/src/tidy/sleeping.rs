//! Tests wait for an observed event or in virtual time, never for luck.

use super::Finding;
use crate::tree::Tree;

/// What a line says that sleeps on purpose; the reason follows.
const EXCUSE: &str = "// event:";

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, source) in tree.rust() {
        let all = file.test_only || in_tests(&file.path);
        let lines: Vec<&str> = file.text.lines().collect();
        for pair in source.tokens.windows(2) {
            let line = pair[0].line;
            let sleeps = pair[0].text == "sleep" && pair[1].text == "(";
            let declared = sleeps && is_declared(source, line);
            let excused = lines.get(line - 1).is_some_and(|l| has_reason(l));
            if sleeps && (all || source.is_test(line)) && !declared && !excused {
                let says = format!("sleeps: wait for an event, or say why with `{EXCUSE} REASON`");
                found.push(Finding::at(&file.path, line, says));
            }
        }
    }
    found
}

fn in_tests(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/")
}

/// `fn sleep(…)` of a test's own clock does not sleep where it is declared.
fn is_declared(source: &crate::rust_source::RustSource, line: usize) -> bool {
    source.functions.iter().any(|f| f.name == "sleep" && *f.lines.start() == line)
}

fn has_reason(line: &str) -> bool {
    line.split_once(EXCUSE).is_some_and(|(_, reason)| !reason.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    const PATH: &str = "crates/cli/tests/run.rs";

    #[test]
    fn events_and_reasons_are_accepted() {
        let good = "fn f() { wait_for(ready); }\n\
            fn g() { sleep(TICK); } // event: polls the file until the child wrote it\n\
            // A call of sleep() in words.\n\
            impl Clock for Hand { fn sleep(&self) {} }\n";
        assert_eq!(found(findings, &[(PATH, good)]), []);
        assert_eq!(found(findings, &[("crates/cli/src/run.rs", "fn f() { sleep(1); }")]), []);
    }

    #[test]
    fn sleeping_for_luck_is_found() {
        for bad in [
            "fn f() { std::thread::sleep(D); }",
            "fn f() { tokio::time::sleep(D).await; }",
            "fn f() { sleep(D); } // event:",
            "fn f() { sleep(D); } // soon",
        ] {
            assert_eq!(found(findings, &[(PATH, bad)]), [(PATH.to_owned(), Some(1))], "{bad}");
        }
    }

    /// Only directories of tests were looked at.
    #[test]
    fn sleeping_beside_the_code_is_found() {
        let path = "crates/cli/src/run.rs";
        let bad = "fn f() { sleep(1); }\n#[cfg(test)]\nmod tests {\n    fn g() { sleep(1); }\n}\n";
        assert_eq!(found(findings, &[(path, bad)]), [(path.to_owned(), Some(4))]);
        let apart =
            [("src/lib.rs", "#[cfg(test)]\nmod tests;"), ("src/tests.rs", "fn f() { sleep(1); }")];
        assert_eq!(found(findings, &apart), [("src/tests.rs".to_owned(), Some(1))]);
    }
}
